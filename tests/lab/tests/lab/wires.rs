//! Shaped wires from the shaper to the command line, all parts real: shaper-svc on
//! DPDK's null ports (which deliver frames without end), the collector, Postgres,
//! `rdmesh`.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rdmesh_lab::children::{self, Child};
use rdmesh_lab::collector::Collector;
use rdmesh_lab::scratch::Scratch;
use rdmesh_lab::{programs, until};
use rdmesh_test_postgres::Cluster;
use rustix::process::Signal;
use serde_json::Value;

/// Nothing here takes longer, also on a loaded machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Everything that runs. Dropped in this order.
struct Parts {
    shaper: Option<Child>,
    collector: Option<Collector>,
    cluster: Cluster,
    database: String,
    shaper_port: u16,
    /// Its name, and that of another one: a machine has one shaper of a name, and tests
    /// run side by side.
    names: [String; 2],
    collector_port: u16,
    scratch: Scratch,
}

fn free_port() -> Result<u16> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    Ok(listener.local_addr()?.port())
}

impl Parts {
    async fn start() -> Result<Self> {
        let shaper_port = free_port()?;
        let cluster = Cluster::start()?;
        let database = cluster.new_database()?;
        let mut parts = Self {
            shaper: None,
            collector: None,
            cluster,
            database,
            shaper_port,
            names: [1, 2].map(|which| format!("dpu-{shaper_port}-{which}")),
            collector_port: free_port()?,
            scratch: Scratch::new()?,
        };
        parts.start_collector().await?;
        parts.start_shaper(512)?;
        Ok(parts)
    }

    fn path(&self) -> &Path {
        self.scratch.path()
    }

    async fn start_collector(&mut self) -> Result<()> {
        let url = self.cluster.url(&self.database);
        let collector = Collector::start_at(self.path(), &url, self.collector_port).await?;
        self.collector = Some(collector);
        Ok(())
    }

    fn start_shaper(&mut self, queue_frames: u32) -> Result<()> {
        let listen = format!("127.0.0.1:{}", self.shaper_port);
        self.shaper = Some(self.spawn_shaper(&self.names[0], &listen, queue_frames)?);
        Ok(())
    }

    fn spawn_shaper(&self, name: &str, listen: &str, queue_frames: u32) -> Result<Child> {
        let file = self.shaper_config(name, listen, queue_frames)?;
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.log())?;
        let program = programs::find("shaper-svc")?;
        children::spawn(program, Signal::TERM, None, |command| {
            command.arg("--config").arg(&file);
            command.stdout(log.try_clone().unwrap()).stderr(log);
        })
    }

    /// Rates so low that a busy machine's poll gaps stay within the catch-up.
    fn shaper_config(&self, name: &str, listen: &str, queue_frames: u32) -> Result<PathBuf> {
        let wire = |name: &str, function: &str, ports: (u8, u8), rate: &str| {
            format!(
                "[[wires]]\nname = \"{name}\"\nvirtual_function = \"{function}\"\n\
                 in_port = \"net_null{}\"\nout_port = \"net_null{}\"\nrate = \"{rate}\"\n\
                 port_rate = \"1gbit\"\nqueue_frames = {queue_frames}\n",
                ports.0, ports.1
            )
        };
        let config = format!(
            "name = \"{name}\"\nhost = \"gpu-01\"\nstate_directory = \"{0}/{name}\"\n\
             window_ms = 200\n\
             [server]\nlisten = \"{listen}\"\ninsecure_listen = true\n\
             [uplink]\ncollector = \"127.0.0.1:{1}\"\n\
             [dpdk]\nhuge_pages = false\nfile_prefix = \"wires-{2}-{name}\"\n\
             rx_descriptors = 64\ndevices = [\"net_null0\", \"net_null1\"]\n{3}{4}",
            self.path().display(),
            self.collector_port,
            self.shaper_port,
            wire("w0", "vf0", (0, 1), "20mbit"),
            wire("w1", "vf1", (1, 0), "10mbit"),
        );
        let file = self.path().join(format!("{name}.toml"));
        fs::write(&file, config)?;
        Ok(file)
    }

    /// A wire of the first shaper, as people name it.
    fn wire_of(&self, wire: &str) -> String {
        format!("{}/{wire}", self.names[0])
    }

    fn log(&self) -> PathBuf {
        self.path().join("shaper.log")
    }

    fn rdmesh(&self, args: &[&str]) -> Result<Output> {
        let mut command = Command::new(programs::find("rdmesh")?);
        command
            .args(args)
            .env("HOME", "/nonexistent")
            .env("USER", "ada")
            .env_remove("XDG_CONFIG_HOME");
        if !args.contains(&"--shaper") {
            command.env(
                "RDMESH_COLLECTOR",
                format!("127.0.0.1:{}", self.collector_port),
            );
        }
        Ok(command.output()?)
    }

    /// The answer as JSON; the exit code has to be 0.
    fn json(&self, args: &[&str]) -> Result<Value> {
        let mut args = args.to_vec();
        args.extend(["-o", "json"]);
        let output = self.rdmesh(&args)?;
        ensure!(
            output.status.success(),
            "{args:?}: {}\n{}",
            String::from_utf8_lossy(&output.stderr),
            fs::read_to_string(self.log()).unwrap_or_default()
        );
        serde_json::from_slice(&output.stdout).context("no JSON")
    }

    /// The refusal: exit code and words.
    fn refused(&self, args: &[&str]) -> Result<(i32, String)> {
        let output = self.rdmesh(args)?;
        ensure!(!output.status.success(), "{args:?} was not refused");
        // Wrapped for the reader; words are looked for.
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let said: Vec<&str> = said.split_whitespace().collect();
        Ok((output.status.code().unwrap_or(-1), said.join(" ")))
    }

    fn sql(&self, query: &str) -> Result<String> {
        let answer = self.cluster.psql(&self.database, "rdmesh_reader", query)?;
        Ok(answer.trim().to_owned())
    }

    /// A wire of the list.
    fn wire(&self, name: &str) -> Result<Value> {
        let list = self.json(&["wire", "list", "--wire", name])?;
        Ok(list["wires"][0].clone())
    }

    /// Waits until so many windows are stored in all.
    async fn windows(&self, more_than: u64) -> Result<()> {
        until::holds("more windows", LIMIT, || async {
            let count: u64 = self
                .sql("SELECT count(*) FROM rdmesh.wire_windows")?
                .parse()?;
            Ok(count > more_than)
        })
        .await
    }

    fn stored(&self) -> Result<u64> {
        Ok(self
            .sql("SELECT count(*) FROM rdmesh.wire_windows")?
            .parse()?)
    }

    async fn wires_are_live(&self, how_many: usize) -> Result<()> {
        until::holds("live wires", LIMIT, || async {
            let list = self.json(&["wire", "list"])?;
            let wires = list["wires"].as_array().cloned().unwrap_or_default();
            Ok(wires.len() == how_many && wires.iter().all(|wire| wire["live"] == true))
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wires_are_listed_changed_watched_and_joined_with_jobs() -> Result<()> {
    let mut parts = Parts::start().await?;
    parts.wires_are_live(2).await?;
    parts.json(&["job", "start", "4711", "--host", "gpu-01:vfs=vf0"])?;

    let (name, w0) = (parts.names[0].clone(), parts.wire_of("w0"));
    // A rate for a while; the same request again is the same change.
    let id = "7b0b7d8e-9a63-4a0e-8f0e-1d1c6c1d0001";
    let set = [
        "wire",
        "set",
        &w0,
        "5mbit",
        "--for",
        "4s",
        "--reason",
        "study",
        "--request-id",
        id,
    ];
    let first = parts.json(&set)?;
    assert_eq!(first["wire"]["rate_bps"], 5_000_000);
    assert!(first["in_force_after_ns"].as_u64().unwrap() > 0);
    assert!(first["wire"]["expires_at"].is_string());
    let again = parts.json(&set)?;
    assert_eq!(
        first["wire"]["policy_generation"],
        again["wire"]["policy_generation"]
    );
    assert!(again["in_force_after_ns"].is_null());
    let listed = parts.wire("w0")?;
    assert_eq!(listed["wire"]["rate_bps"], 5_000_000, "at once, {listed}");
    assert_eq!(listed["attempts"][0]["job_id"], "4711");
    assert!(parts.wire("w1")?["attempts"].as_array().unwrap().is_empty());

    // By what it shapes, and watched: an object a line, a line a window.
    let output = parts.rdmesh(&["wire", "watch", "--wire", "w0", "-n", "3", "-o", "json"])?;
    let lines = String::from_utf8(output.stdout)?;
    let windows: Vec<Value> = lines
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    assert_eq!(windows.len(), 3);
    assert!(
        windows
            .iter()
            .all(|w| w["wire"] == "w0" && w["shaper_host"] == name.as_str())
    );
    let plain = parts.rdmesh(&["wire", "watch", "--host", "gpu-01", "-n", "2"])?;
    let plain = String::from_utf8(plain.stdout)?;
    assert_eq!(plain.lines().count(), 2, "{plain}");
    assert!(
        plain.contains(&format!("{name}/w")) && !plain.contains('\u{1b}'),
        "{plain}"
    );

    // The collector goes and comes back; the shaper keeps what it measured meanwhile.
    let before = parts.stored()?;
    parts.collector.take().unwrap().stop();
    let unanswered = parts.refused(&["wire", "list"])?;
    assert_eq!(unanswered.0, 5, "{}", unanswered.1);
    parts.start_collector().await?;
    parts.windows(before + 10).await?;
    until::holds("the rate expires by itself", LIMIT, || async {
        let wire = parts.wire("w0")?;
        Ok(wire["wire"]["rate_bps"] == 20_000_000 && wire["wire"]["expires_at"].is_null())
    })
    .await?;

    let around = parts.json(&["wire", "bypass", "gpu-01:vf1", "on"])?;
    assert_eq!(around["wire"]["bypass"], true);
    let through = parts.json(&["wire", "bypass", &parts.wire_of("w1"), "off"])?;
    assert_eq!(through["wire"]["bypass"], false);
    parts.json(&["wire", "set", "w1", "2mbit"])?;
    let reset = parts.json(&["wire", "reset", "--all", "--reason", "done"])?;
    assert_eq!(reset["wires"].as_array().unwrap().len(), 2);
    assert_eq!(parts.wire("w1")?["wire"]["rate_bps"], 10_000_000);

    nothing_is_lost_or_twice(&parts)?;
    joined_with_the_job(&parts).await?;
    refusals_say_what_to_do(&parts)?;
    one_shaper_alone(&parts)?;
    let audit = fs::read_to_string(parts.path().join(name).join("audit.jsonl"))?;
    assert!(
        audit.contains("ada at 127.0.0.1") && audit.contains("study"),
        "{audit}"
    );
    another_configuration_is_not_compared(&mut parts).await
}

/// Sequences of the one run without a hole and without a repeat, windows end to end.
fn nothing_is_lost_or_twice(parts: &Parts) -> Result<()> {
    let sequences = parts.sql(
        "SELECT count(DISTINCT run_id), count(*) = count(DISTINCT sequence), \
         count(*) = max(sequence) FROM rdmesh.wire_windows",
    )?;
    assert_eq!(sequences, "1|t|t");
    assert_eq!(parts.sql("SELECT * FROM rdmesh.wire_gaps")?, "");
    assert_eq!(
        parts.sql("SELECT max(windows_given_up) FROM rdmesh.wires")?,
        "0"
    );
    Ok(())
}

async fn joined_with_the_job(parts: &Parts) -> Result<()> {
    let joined = parts
        .sql("SELECT DISTINCT job_id, wire, virtual_function, joined_by FROM rdmesh.job_wires")?;
    assert_eq!(joined, "4711|w0|vf0|virtual_function");
    parts.json(&["job", "end", "4711", "--state", "timeout"])?;
    // Its last windows are on their way.
    parts.windows(parts.stored()? + 4).await?;
    let verdict = parts.json(&["diagnose", "4711"])?;
    assert_eq!(verdict["class"], "injected_straggler", "{verdict}");
    let first = verdict["evidence"][0].as_str().unwrap_or_default();
    assert!(
        first.starts_with("the wire w0 of gpu-01 was shaped to 5mbit"),
        "{first}"
    );
    assert!(!verdict.to_string().contains("the wire w1"), "{verdict}");
    let same = parts.json(&["wire", "compare", &parts.wire_of("w0"), "4711", "4711/0"])?;
    assert_eq!(same["a"]["windows"], same["b"]["windows"]);
    assert!(same["a"]["windows"].as_u64().unwrap() > 0);
    Ok(())
}

fn refusals_say_what_to_do(parts: &Parts) -> Result<()> {
    let w9 = parts.wire_of("w9");
    let refuses = format!("the shaper of {} refuses: `rate_bps`", parts.names[0]);
    for (args, code, words) in [
        (&["wire", "set", "w9", "1gbit"][..], 4, "rdmesh wire list"),
        (&["wire", "set", &w9, "1gbit"], 4, "w0"),
        (
            &["wire", "reset", "gpu-07:vf0"],
            4,
            "no shaper of gpu-07 has ever reported",
        ),
        // Above the port's rate: the shaper itself says so.
        (&["wire", "set", "w0", "2gbit"], 2, &refuses),
        (&["wire", "set", "w0", "fast"], 2, "a number and one of bit"),
        (
            &["wire", "set", "w0", "5mbit", "--for", "40d"],
            2,
            "30 days",
        ),
        (&["wire", "watch", "--wire", "w9"], 4, "rdmesh wire list"),
        (
            &["wire", "compare", "w0", "2h..1h", "1h.."],
            1,
            "no whole window in a",
        ),
    ] {
        let (found, said) = parts.refused(args)?;
        assert_eq!(found, code, "{args:?}: {said}");
        assert!(said.contains(words), "{args:?}: {said}");
    }
    Ok(())
}

/// The same commands, without the collector.
fn one_shaper_alone(parts: &Parts) -> Result<()> {
    let at = format!("127.0.0.1:{}", parts.shaper_port);
    let ask = |args: &[&str]| {
        let mut all = vec!["wire"];
        all.extend(args);
        all.extend(["--shaper", &at]);
        parts.json(&all)
    };
    let list = ask(&["list", "--wire", "w1"])?;
    assert_eq!(list["wires"][0]["wire"]["virtual_function"], "vf1");
    let set = ask(&["set", "gpu-01:vf1", "3mbit"])?;
    assert_eq!(set["wire"]["rate_bps"], 3_000_000);
    assert!(set["shaper_host"].is_null());
    let window = ask(&["watch", "--wire", "w1", "-n", "1"])?;
    assert_eq!(window["wire"], "w1");
    assert_eq!(ask(&["bypass", "w1", "on"])?["wire"]["bypass"], true);
    assert_eq!(ask(&["bypass", "w1", "off"])?["wire"]["bypass"], false);
    let reset = ask(&["reset", "--all"])?;
    assert_eq!(reset["wires"].as_array().unwrap().len(), 2);
    let (code, said) = parts.refused(&["wire", "list", "--shaper", "127.0.0.1:1"])?;
    assert_eq!(code, 5, "{said}");
    assert!(said.contains("no shaper answers at 127.0.0.1:1"), "{said}");
    Ok(())
}

async fn another_configuration_is_not_compared(parts: &mut Parts) -> Result<()> {
    parts.shaper.take().unwrap().stop();
    let (code, said) = parts.refused(&["wire", "set", &parts.wire_of("w0"), "1mbit"])?;
    assert_eq!(code, 1, "{said}");
    assert!(
        said.contains("does not answer at") && said.contains("nothing was changed"),
        "{said}"
    );
    until::holds("the list marks the silence", LIMIT, || async {
        let wire = parts.wire("w0")?;
        let marks = wire["marks"].to_string();
        Ok(wire["live"] == false && marks.contains("no window for"))
    })
    .await?;
    parts.start_shaper(1024)?;
    until::holds("windows of the new run", LIMIT, || async {
        let runs = parts.sql("SELECT count(DISTINCT run_id) FROM rdmesh.wire_windows")?;
        Ok(runs == "2")
    })
    .await?;
    // The time between the runs is told: each wire's first window says that nothing passed.
    let down = parts.sql(
        "SELECT wire, sequence, valid, invalid_causes, to_at > from_at, sent_frames, \
         policy_generation > 0 FROM rdmesh.wire_windows \
         WHERE 'data_path_down' = ANY (invalid_causes) ORDER BY wire",
    )?;
    assert_eq!(
        down,
        "w0|1|f|{data_path_down}|t|0|t\nw1|2|f|{data_path_down}|t|0|t"
    );
    assert_eq!(parts.sql("SELECT * FROM rdmesh.wire_gaps")?, "");
    let (code, said) = parts.refused(&["wire", "compare", "w0", "4711", "1h.."])?;
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("are not compared"), "{said}");
    Ok(())
}

/// Two DPUs of one host, whose wires have the same names: each has a name of its own, and
/// what they report stays apart. The second one listens on any address.
#[tokio::test(flavor = "multi_thread")]
async fn two_shapers_of_a_host_are_kept_apart() -> Result<()> {
    let parts = Parts::start().await?;
    let second = format!("0.0.0.0:{}", free_port()?);
    let [one, two] = &parts.names;
    let _second = parts.spawn_shaper(two, &second, 512)?;
    parts.wires_are_live(4).await?;
    parts.windows(parts.stored()? + 20).await?;

    let told = parts.sql(
        "SELECT host, shaped_host, count(DISTINCT run_id), count(*) = count(DISTINCT sequence), \
         count(*) = max(sequence), count(DISTINCT wire) FROM rdmesh.wire_windows \
         GROUP BY 1, 2 ORDER BY 1",
    )?;
    assert_eq!(told, format!("{one}|gpu-01|1|t|t|2\n{two}|gpu-01|1|t|t|2"));
    assert_eq!(parts.sql("SELECT * FROM rdmesh.wire_gaps")?, "");

    // Dialled where it can be reached, though it did not say where it listens.
    let set = parts.json(&["wire", "set", &format!("{two}/w0"), "3mbit"])?;
    assert_eq!(set["wire"]["rate_bps"], 3_000_000);
    assert_eq!(set["shaper_host"], two.as_str());
    let unknown = parts.rdmesh(&["wire", "list", "--wire", "nope"])?;
    let said = String::from_utf8_lossy(&unknown.stdout).into_owned();
    assert_eq!(unknown.status.code(), Some(4), "{said}");
    assert!(said.contains("No wire has that name"), "{said}");
    let list = parts.json(&["wire", "list", "--host", "gpu-01", "--wire", "w0"])?;
    let rates: Vec<_> = list["wires"]
        .as_array()
        .unwrap()
        .iter()
        .map(|wire| {
            (
                wire["shaper_host"].as_str(),
                wire["wire"]["rate_bps"].as_u64(),
            )
        })
        .collect();
    assert_eq!(
        rates,
        [
            (Some(one.as_str()), Some(20_000_000)),
            (Some(two.as_str()), Some(3_000_000))
        ]
    );
    let address = list["wires"][1]["shaper_address"].as_str().unwrap();
    assert_eq!(address, second.replace("0.0.0.0", "127.0.0.1"));
    let (code, said) = parts.refused(&["wire", "set", "gpu-01:vf0", "1mbit"])?;
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("several wires"), "{said}");

    // A third one of the same name does not start beside it, and says why.
    let file = parts.shaper_config(two, "127.0.0.1:0", 512)?;
    let other = parts.path().join("third");
    let third = Command::new(programs::find("shaper-svc")?)
        .arg("--config")
        .arg(file)
        .arg("--set")
        .arg(format!("state_directory={}", other.display()))
        .output()?;
    let said = String::from_utf8_lossy(&third.stderr);
    assert_eq!(third.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("has the name {two}")), "{said}");
    Ok(())
}
