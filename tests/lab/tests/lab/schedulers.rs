//! What schedulers run at both ends of a job: with what a real Slurm 22.05 gave, and with
//! pods as the Kubernetes API (v1) writes them.

use anyhow::{Context, Result};
use rdmesh_lab::lab::Lab;
use rdmesh_lab::programs;
use rdmesh_lab::progress::Progress;
use rdmesh_lab::until;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

const SEEN: Duration = Duration::from_secs(30);

/// A job that waits for its end is seen as one that goes on.
const PLAYED: &str = r#"#!/bin/sh
case "$1 $2" in
"show hostnames") printf 'gpu-01\ngpu-02\n' ;;
"show job") cat "$SLURM_PLAYED/job" ;;
*) printf '%s\n' "${0##*/} $*" >>"$SLURM_PLAYED/updates"; [ ! -e "$SLURM_PLAYED/refuses.${0##*/}" ] ;;
esac
"#;

/// Slurm as far as the hook sees it: its environment and its two commands.
struct Slurm {
    directory: PathBuf,
    collector: String,
}

impl Slurm {
    fn new(lab: &Lab) -> Result<Self> {
        let directory = lab.directory().join("slurm");
        fs::create_dir(&directory)?;
        for command in ["scontrol", "sacctmgr"] {
            let path = directory.join(command);
            fs::write(&path, PLAYED)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        }
        symlink(programs::find("rdmesh")?, directory.join("rdmesh"))?;
        let collector = lab.collector().address();
        Ok(Self {
            directory,
            collector,
        })
    }

    fn sources() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/slurm")
    }

    fn job_is(&self, recorded: &str) -> Result<()> {
        let recorded = fs::read_to_string(Self::sources().join("recorded").join(recorded))?;
        // Its files are here, and not in somebody's home.
        let here = self.directory.display();
        let recorded = recorded.replace("/home/ada", &here.to_string());
        // Whole at once: the hook may be reading it.
        let next = self.directory.join("job.next");
        fs::write(&next, recorded)?;
        fs::rename(next, self.directory.join("job"))?;
        Ok(())
    }

    fn updates(&self) -> String {
        fs::read_to_string(self.directory.join("updates")).unwrap_or_default()
    }

    /// What the hook wrote to its log.
    fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// Runs the hook as slurmctld does: in a recorded environment and nothing else, with
    /// a pipe that it waits on.
    async fn runs(&self, recorded: &str) -> Result<()> {
        let recorded = fs::read_to_string(Self::sources().join("recorded").join(recorded))?;
        let environment = recorded.lines().filter_map(|line| line.split_once('='));
        let output = tokio::process::Command::new(Self::sources().join("rdmesh-slurmctld"))
            .env_clear()
            .envs(environment)
            .env("RDMESH_COLLECTOR", &self.collector)
            .env("RDMESH_PATH", &self.directory)
            .env("RDMESH_SLURM_ENV", self.directory.join("no-settings"))
            .env("RDMESH_SLURM_LOG", self.directory.join("log"))
            .env("RDMESH_SETTLE_SECONDS", "0")
            .env("SLURM_PLAYED", &self.directory)
            .stdin(Stdio::null())
            .output();
        let output = tokio::time::timeout(SEEN, output)
            .await
            .context("the hook holds slurmctld's pipe")??;
        anyhow::ensure!(output.status.success(), "it failed: {output:?}");
        anyhow::ensure!(output.stdout.is_empty() && output.stderr.is_empty());
        Ok(())
    }
}

async fn job(lab: &Lab, attempt: &str) -> Result<Option<Value>> {
    let output = lab.rdmesh(&["-o", "json", "job", "show", attempt]).await?;
    if !output.status.success() {
        return Ok(None);
    }
    let told: Value = serde_json::from_slice(&output.stdout)?;
    Ok(Some(told["job"].clone()))
}

async fn job_that(lab: &Lab, attempt: &str, holds: impl Fn(&Value) -> bool) -> Result<Value> {
    let what = format!("{attempt} as the hook should tell it");
    until::some(&what, SEEN, || async {
        Ok(job(lab, attempt).await?.filter(&holds))
    })
    .await
}

#[tokio::test]
async fn slurm_tells_of_a_job_that_fails_and_reads_the_verdict() -> Result<()> {
    let lab = Lab::start(Progress::Quiet).await?;
    let slurm = Slurm::new(&lab)?;
    slurm.runs("prolog.env").await?;
    let began = job_that(&lab, "4711/0", |_| true).await?;
    assert_eq!(began["state"], "running", "{began}");
    assert_eq!(began["name"], "train 7b");
    assert_eq!(began["user"], "ada");
    assert_eq!(began["cluster"], "train");
    assert_eq!(began["labels"]["partition"], "gpu");
    let hosts: Vec<&str> = began["placements"]
        .as_array()
        .context("placements")?
        .iter()
        .filter_map(|placement| placement["host"].as_str())
        .collect();
    assert_eq!(hosts, ["gpu-01", "gpu-02"]);

    slurm.job_is("job-completing.txt")?;
    let log = "gpu-01: ibv_reg_mr failed: Cannot allocate memory\n";
    fs::write(slurm.directory.join("train-4711.out"), log)?;
    fs::write(slurm.directory.join("refuses.scontrol"), "")?;
    slurm.runs("epilog-failed.env").await?;
    slurm.job_is("job-failed.txt")?;
    let ended = job_that(&lab, "4711/0", |job| job["state"] == "failed").await?;
    assert_eq!(ended["exit_code"], 3, "{ended}");
    assert!(!ended.to_string().contains("ended before"), "{ended}");
    assert_eq!(ended["exit_reason"], "NonZeroExitCode");
    let updates = until::some("the comment in slurmdbd", SEEN, || async {
        let updates = slurm.updates();
        Ok(updates.contains("sacctmgr").then_some(updates))
    })
    .await
    .with_context(|| slurm.log())?;
    let shown = lab.rdmesh(&["-o", "json", "job", "show", "4711/0"]).await?;
    let shown: Value = serde_json::from_slice(&shown.stdout)?;
    let logs = shown["logs"].as_array().context("logs")?;
    assert_eq!(logs.len(), 1, "output and errors go to one file: {shown}");
    assert_eq!(logs[0]["name"], "train-4711.out", "{shown}");
    let comment = "AdminComment=rdmesh 4711/0 cannot_tell: ";
    let asked: Vec<&str> = updates.lines().collect();
    assert!(
        asked[0].starts_with(&format!("scontrol update JobId=4711 {comment}")),
        "{updates}"
    );
    assert!(
        asked[1].starts_with(&format!(
            "sacctmgr -i modify job where jobid=4711 set {comment}"
        )),
        "{updates}"
    );
    Ok(())
}

#[tokio::test]
async fn slurm_that_requeues_a_job_ends_the_attempt_that_ran() -> Result<()> {
    let lab = Lab::start(Progress::Quiet).await?;
    let slurm = Slurm::new(&lab)?;
    slurm.runs("prolog.env").await?;
    job_that(&lab, "4711/0", |_| true).await?;
    // Slurm has counted the next attempt already.
    slurm.job_is("job-requeued.txt")?;
    slurm.runs("epilog-requeued.env").await?;
    let ended = job_that(&lab, "4711/0", |job| job["state"] == "cancelled").await?;
    assert_eq!(ended["exit_reason"], "requeued", "{ended}");
    assert!(
        job(&lab, "4711/1").await?.is_none(),
        "no attempt is invented"
    );
    Ok(())
}

#[tokio::test]
async fn slurm_never_waits_for_a_collector_that_is_away() -> Result<()> {
    let lab = Lab::start(Progress::Quiet).await?;
    let mut slurm = Slurm::new(&lab)?;
    slurm.collector = "127.0.0.1:1".to_owned();
    slurm.runs("prolog.env").await?;
    until::some("the note of it", SEEN, || async {
        let log = slurm.log();
        Ok(log.contains("127.0.0.1:1").then_some(log))
    })
    .await?;
    Ok(())
}

/// kubectl as far as the watcher sees it: a watch that ends, the pods there are, and an
/// Event that is made.
const PLAYED_KUBECTL: &str = r#"#!/bin/sh
case "$*" in
*--watch*) cat "$KUBE_PLAYED/events" ;;
"get pods"*) cat "$KUBE_PLAYED/pods" ;;
"create -f -") cat >>"$KUBE_PLAYED/made" ;;
*) exit 1 ;;
esac
"#;

/// Runs the watcher over a recorded watch; what it made.
async fn watches(lab: &Lab, directory: &Path, recorded: u32) -> Result<Vec<Value>> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/kubernetes");
    for what in ["events", "pods"] {
        let from = sources.join(format!("recorded/{what}-{recorded}.json"));
        fs::copy(from, directory.join(what))?;
    }
    fs::write(directory.join("made"), "")?;
    let path = format!("{}:/usr/bin:/bin", directory.display());
    let output = tokio::process::Command::new(sources.join("rdmesh-watch-pods"))
        .env_clear()
        .env("PATH", path)
        .env("RDMESH_COLLECTOR", lab.collector().address())
        .env("RDMESH_SETTLE_SECONDS", "0")
        .env("KUBE_PLAYED", directory)
        .output()
        .await?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    anyhow::ensure!(output.status.success() && said.is_empty(), "{said}");
    let made = fs::read(directory.join("made"))?;
    let made = serde_json::Deserializer::from_slice(&made).into_iter();
    Ok(made.collect::<Result<_, _>>()?)
}

#[tokio::test]
async fn kubernetes_pods_are_told_and_a_verdict_stands_beside_the_failed_one() -> Result<()> {
    const POD: &str = "pod:5f7c1d2e-9a44-4b0e-8a5e-0d6b1a2c3d4e";
    let lab = Lab::start(Progress::Quiet).await?;
    let directory = lab.directory().join("kubernetes");
    fs::create_dir(&directory)?;
    let kubectl = directory.join("kubectl");
    fs::write(&kubectl, PLAYED_KUBECTL)?;
    fs::set_permissions(&kubectl, fs::Permissions::from_mode(0o755))?;
    symlink(programs::find("rdmesh")?, directory.join("rdmesh"))?;

    let made = watches(&lab, &directory, 1).await?;
    let failed = job(&lab, POD).await?.context("the pod's job")?;
    assert_eq!(failed["state"], "out_of_memory", "{failed}");
    assert_eq!(failed["exit_code"], 137);
    assert_eq!(failed["exit_reason"], "OOMKilled");
    assert_eq!(failed["started_at"], "2026-11-30T07:00:05Z");
    assert_eq!(failed["ended_at"], "2026-11-30T07:10:00Z");
    assert_eq!(failed["placements"][0]["host"], "gpu-01");
    let [event] = made.as_slice() else {
        anyhow::bail!("one Event, told once: {made:?}");
    };
    assert_eq!(event["involvedObject"]["name"], "train-a");
    assert_eq!(event["metadata"]["namespace"], "training");
    let message = event["message"].as_str().context("message")?;
    // No tracer watched gpu-01, and the pod's own end tells why.
    assert!(message.starts_with("host: "), "{message}");
    assert!(message.contains("ran out of memory"), "{message}");
    assert!(message.ends_with(&format!("More: rdmesh diagnose {POD}")));
    let group = job(&lab, "llama-7").await?.context("the group's job")?;
    assert_eq!(group["state"], "running", "one of its two pods is at work");
    assert_eq!(group["placements"].as_array().map(Vec::len), Some(2));

    // The watch began again: nothing is told twice, and the group ends with its last pod.
    let made = watches(&lab, &directory, 2).await?;
    assert_eq!(made, Vec::<Value>::new());
    let again = job(&lab, POD).await?.context("the pod's job")?;
    assert_eq!(again["ended_at"], failed["ended_at"]);
    let group = job(&lab, "llama-7").await?.context("the group's job")?;
    assert_eq!(group["state"], "completed", "{group}");
    assert_eq!(group["ended_at"], "2026-11-30T07:21:00Z");
    Ok(())
}

/// What came to the receiver of a webhook: its headers and its body.
type Posts = tokio::sync::mpsc::UnboundedReceiver<(String, Value)>;

/// Answers a post by each of `codes` in turn, and by the last one from then on.
async fn receiver(codes: &'static [&'static str]) -> Result<(String, Posts)> {
    use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/hooks/rdmesh", listener.local_addr()?);
    let (told, posts) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut codes = codes.iter().copied();
        let mut code = "500";
        while let Ok((stream, _)) = listener.accept().await {
            code = codes.next().unwrap_or(code);
            let mut stream = BufReader::new(stream);
            let mut headers = String::new();
            while !headers.ends_with("\r\n\r\n") {
                if stream.read_line(&mut headers).await? == 0 {
                    break;
                }
            }
            let length = headers
                .lines()
                .find_map(|line| line.strip_prefix("Content-Length: ")?.parse().ok())
                .unwrap_or(0);
            let mut body = vec![0; length];
            stream.read_exact(&mut body).await?;
            let answer = format!("HTTP/1.1 {code} told\r\nContent-Length: 0\r\n\r\n");
            stream.write_all(answer.as_bytes()).await?;
            // The test may have all that it waits for.
            let _ = told.send((headers, serde_json::from_slice(&body)?));
        }
        anyhow::Ok(())
    });
    Ok((url, posts))
}

/// Looks once for failed attempts, as a timer would have it; what it said.
async fn posts_to(lab: &Lab, url: &str) -> Result<String> {
    let directory = lab.directory().join("webhook");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/webhook/rdmesh-webhook");
    let rdmesh = programs::find("rdmesh")?;
    let rdmesh = rdmesh.parent().context("a folder")?.display();
    let output = tokio::process::Command::new(script)
        .arg(url)
        .env_clear()
        .env("PATH", format!("{rdmesh}:/usr/bin:/bin"))
        .env("RDMESH_COLLECTOR", lab.collector().address())
        .env("RDMESH_WEBHOOK_STATE", directory.join("state"))
        .env("RDMESH_WEBHOOK_HEADERS", directory.join("headers"))
        .env("RDMESH_WEBHOOK_EVERY", "0")
        .env("RDMESH_SETTLE_SECONDS", "0")
        .output()
        .await?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    anyhow::ensure!(output.status.success(), "{said}");
    Ok(said)
}

async fn fails(lab: &Lab, job: &str) -> Result<()> {
    for told in [
        &["job", "start", job, "--host=gpu-01"][..],
        &["job", "end", job, "--state=failed", "--exit-code=1"],
    ] {
        let output = lab.rdmesh(told).await?;
        anyhow::ensure!(output.status.success(), "{output:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_webhook_gets_each_verdict_once_also_when_it_was_away() -> Result<()> {
    let lab = Lab::start(Progress::Quiet).await?;
    let directory = lab.directory().join("webhook");
    fs::create_dir(&directory)?;
    fs::write(directory.join("headers"), "Authorization: Bearer letmein\n")?;
    let (url, mut posts) = receiver(&["503", "204"]).await?;
    fails(&lab, "before").await?;
    assert_eq!(posts_to(&lab, &url).await?, "");
    assert!(
        posts.try_recv().is_err(),
        "what failed before the first run"
    );

    fails(&lab, "it's \"odd\"").await?;
    let said = posts_to(&lab, &url).await?;
    assert!(
        said.contains("503") && said.contains("tried again"),
        "{said}"
    );
    let (_, refused) = posts.recv().await.context("a post")?;
    assert_eq!(posts_to(&lab, &url).await?, "");
    let (headers, told) = posts.recv().await.context("a second post")?;
    assert!(headers.starts_with("POST /hooks/rdmesh "), "{headers}");
    assert!(
        headers.contains("Authorization: Bearer letmein"),
        "{headers}"
    );
    assert_eq!(told["job"]["attempt"]["job_id"], "it's \"odd\"", "{told}");
    assert_eq!(told, refused);
    let text = told["text"].as_str().context("text")?;
    assert!(text.starts_with("it's \"odd\"/0"), "{text}");
    assert!(text.contains(told["summary"].as_str().context("summary")?));

    assert_eq!(posts_to(&lab, &url).await?, "");
    assert!(posts.try_recv().is_err(), "it is posted once");
    Ok(())
}
