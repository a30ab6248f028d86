//! Everything that runs, and what can be done to it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use rdmesh_test_postgres::{Cluster, SUPERUSER};
use rustix::process::Signal;

use super::disk::Disk;
use super::network::{HERE, Network};
use super::plan::Fault;
use crate::children::{self, Child};
use crate::programs;
use crate::scratch::Scratch;

/// Processes with agents, and agents in each: a hundred in all.
pub(super) const GROUPS: usize = 10;
pub(super) const AGENTS: usize = 10;

/// Groups from here on are behind the link that can be cut.
const BEHIND_THE_LINK: usize = 8;

/// Time between two snapshots of an agent: two hundred a second in all.
const INTERVAL_MS: u64 = 500;

/// Length of the shaper's windows.
const WINDOW_MS: u64 = 500;

/// Lines of a log that go into an error.
const TAIL_LINES: usize = 12;

/// Everything, dropped in this order.
pub(super) struct Parts {
    groups: Vec<Group>,
    shaper: Program,
    collectors: [Program; 2],
    network: Network,
    lock: Option<JoinHandle<Result<(), String>>>,
    pub(super) cluster: Cluster,
    pub(super) database: String,
    pub(super) scratch: Scratch,
}

/// A program that is started again and again in the same way.
#[derive(Debug)]
struct Program {
    name: &'static str,
    namespace: Option<String>,
    arguments: Vec<String>,
    log: PathBuf,
    child: Option<Child>,
}

/// A process with some agents.
#[derive(Debug)]
struct Group {
    program: Program,
    disk: Disk,
}

impl Program {
    /// Starts it; `stop` is what ends it, also when the lab dies.
    fn start(&mut self, stop: Signal) -> Result<()> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        let errors = log.try_clone()?;
        let program = programs::find(self.name)?;
        let (file, before) = match &self.namespace {
            None => (program, Vec::new()),
            Some(ns) => {
                let inside = ["netns", "exec", ns].map(str::to_owned);
                let program = program.to_string_lossy().into_owned();
                (
                    PathBuf::from("ip"),
                    [inside.to_vec(), vec![program]].concat(),
                )
            }
        };
        let child = children::spawn(file, stop, None, |command| {
            command.args(before).args(&self.arguments);
            command.stdout(log).stderr(errors);
        })?;
        self.child = Some(child);
        Ok(())
    }

    /// kill -9.
    fn kill(&mut self) -> Result<()> {
        let mut child = self.child.take().context("it does not run")?;
        child.kill();
        Ok(())
    }

    /// Ends it in order.
    fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.stop();
        }
    }

    fn log_tail(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let from = lines.len().saturating_sub(TAIL_LINES);
        format!(
            "{} ({}):\n{}",
            self.name,
            self.log.display(),
            lines[from..].join("\n")
        )
    }
}

fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("0.0.0.0:0")?
        .local_addr()?
        .port())
}

impl Parts {
    /// Starts everything.
    pub(super) fn start(seed: u64) -> Result<Self> {
        let scratch = Scratch::new()?;
        let network = Network::lay()?;
        let cluster = Cluster::start()?;
        let database = cluster.new_database()?;
        let ports = [free_port()?, free_port()?];
        let url = cluster.url(&database);
        let path = scratch.path().to_owned();
        let collector = |number: usize| -> Result<Program> {
            let config = path.join(format!("collector-{number}.toml"));
            let text = format!(
                "[server]\nlisten = \"0.0.0.0:{}\"\ninsecure_listen = true\n\n\
                 [database]\nurl = \"{url}\"\n",
                ports[number]
            );
            fs::write(&config, text)?;
            Ok(Program {
                name: "collector-svc",
                namespace: None,
                arguments: vec!["--config".to_owned(), config.to_string_lossy().into_owned()],
                log: path.join(format!("collector-{number}.log")),
                child: None,
            })
        };
        let addresses = |host: &str| ports.map(|port| format!("{host}:{port}")).join(",");
        fs::create_dir(path.join("journals"))?;
        let mut groups = Vec::new();
        for number in 0..GROUPS {
            let behind = number >= BEHIND_THE_LINK;
            let at = addresses(if behind { HERE } else { "127.0.0.1" });
            let namespace = behind.then(|| network.namespace().to_owned());
            groups.push(Group::new(&path, number, namespace, &at, seed)?);
        }
        let mut parts = Self {
            groups,
            shaper: shaper(&path, &addresses("127.0.0.1"))?,
            collectors: [collector(0)?, collector(1)?],
            network,
            lock: None,
            cluster,
            database,
            scratch,
        };
        for collector in &mut parts.collectors {
            collector.start(Signal::TERM)?;
        }
        parts.shaper.start(Signal::TERM)?;
        for group in &mut parts.groups {
            group.program.start(Signal::TERM)?;
        }
        Ok(parts)
    }

    /// Journals of all agents, by their hosts.
    pub(super) fn journals(&self) -> Vec<(String, PathBuf)> {
        let directory = self.scratch.path().join("journals");
        (0..GROUPS)
            .flat_map(|group| (0..AGENTS).map(move |agent| format!("sim-{group}-{agent}")))
            .map(|host| (host.clone(), directory.join(host)))
            .collect()
    }

    /// The two groups that a round is about.
    fn chosen(which: usize) -> [usize; 2] {
        let first = which % GROUPS;
        [first, (first + 1 + which / GROUPS % (GROUPS - 1)) % GROUPS]
    }

    /// Begins a fault. Returns the hosts whose agents were killed by it.
    pub(super) fn begin(
        &mut self,
        fault: Fault,
        which: usize,
        hold: Duration,
    ) -> Result<Vec<String>> {
        match fault {
            Fault::KillAgents => {
                let chosen = Self::chosen(which);
                for group in chosen {
                    self.groups[group].program.kill()?;
                }
                let of = |group| (0..AGENTS).map(move |agent| format!("sim-{group}-{agent}"));
                return Ok(chosen.into_iter().flat_map(of).collect());
            }
            Fault::KillCollector => self.collectors[which % 2].kill()?,
            Fault::KillCollectors => {
                for collector in &mut self.collectors {
                    collector.kill()?;
                }
            }
            Fault::RestartCollector => self.collectors[which % 2].stop(),
            Fault::CrashPostgres => self.cluster.stop()?,
            Fault::FreezePostgres => self.cluster.pause()?,
            Fault::LockTables => self.lock_tables(hold),
            Fault::CutNetwork => self.network.cut()?,
            Fault::FillDisk => {
                for group in Self::chosen(which) {
                    self.groups[group].disk.fill()?;
                }
                for collector in &mut self.collectors {
                    collector.kill()?;
                }
            }
            Fault::KillShaper => self.shaper.kill()?,
        }
        Ok(Vec::new())
    }

    /// Ends a fault.
    pub(super) fn end(&mut self, fault: Fault, which: usize) -> Result<()> {
        match fault {
            Fault::KillAgents => {
                for group in Self::chosen(which) {
                    self.groups[group].program.start(Signal::TERM)?;
                }
            }
            Fault::KillCollector | Fault::RestartCollector => {
                self.collectors[which % 2].start(Signal::TERM)?;
            }
            Fault::KillCollectors => self.start_collectors()?,
            Fault::CrashPostgres => self.cluster.start_again()?,
            Fault::FreezePostgres => self.cluster.go_on()?,
            Fault::LockTables => {
                let lock = self.lock.take().context("nothing is locked")?;
                let ended = lock
                    .join()
                    .map_err(|_| anyhow!("the lock's thread panicked"))?;
                ended.map_err(anyhow::Error::msg)?;
            }
            Fault::CutNetwork => self.network.mend()?,
            Fault::FillDisk => {
                for group in Self::chosen(which) {
                    self.groups[group].disk.free()?;
                }
                self.start_collectors()?;
            }
            Fault::KillShaper => self.shaper.start(Signal::TERM)?,
        }
        Ok(())
    }

    fn start_collectors(&mut self) -> Result<()> {
        for collector in &mut self.collectors {
            collector.start(Signal::TERM)?;
        }
        Ok(())
    }

    /// Keeps every commit of agents' items waiting for so long.
    fn lock_tables(&mut self, hold: Duration) {
        let url = self.cluster.url_as(&self.database, SUPERUSER);
        let sql = format!(
            "BEGIN; LOCK TABLE rdmesh_store.agent_runs IN ACCESS EXCLUSIVE MODE; \
             SELECT pg_sleep({}); COMMIT;",
            hold.as_secs_f64()
        );
        self.lock = Some(std::thread::spawn(move || {
            let output = std::process::Command::new("psql")
                .args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", &url, "-c", &sql])
                .output()
                .map_err(|error| error.to_string())?;
            match output.status.success() {
                true => Ok(()),
                false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
            }
        }));
    }

    /// Ends agents and shaper in order: they hand over what waits.
    pub(super) fn stop_agents(&mut self) {
        std::thread::scope(|scope| {
            for group in &mut self.groups {
                scope.spawn(|| group.program.stop());
            }
            scope.spawn(|| self.shaper.stop());
        });
    }

    /// The ends of all logs, for an error.
    pub(super) fn log_tails(&self) -> String {
        let agents = self.groups.iter().map(|group| group.program.log_tail());
        let others = self.collectors.iter().chain([&self.shaper]);
        let tails = others.map(Program::log_tail).chain(agents.take(2));
        tails.collect::<Vec<_>>().join("\n")
    }

    /// Where spools are, by group: none holds anything once everything is handed over.
    pub(super) fn spools(&self) -> impl Iterator<Item = PathBuf> {
        self.groups
            .iter()
            .map(|group| group.disk.path().join("spools"))
    }
}

impl Group {
    fn new(
        path: &Path,
        number: usize,
        namespace: Option<String>,
        collectors: &str,
        seed: u64,
    ) -> Result<Self> {
        let disk = Disk::mount(path.join(format!("disk-{number}")))?;
        let arguments = [
            format!("--host=sim-{number}"),
            format!("--agents={AGENTS}"),
            format!("--collectors={collectors}"),
            format!("--spools={}", disk.path().join("spools").display()),
            format!("--journals={}", path.join("journals").display()),
            format!("--interval-ms={INTERVAL_MS}"),
            format!("--seed={}", seed.wrapping_add(number as u64 * 1_000)),
        ];
        Ok(Self {
            program: Program {
                name: "rdmesh-simulated-agents",
                namespace,
                arguments: arguments.to_vec(),
                log: path.join(format!("agents-{number}.log")),
                child: None,
            },
            disk,
        })
    }
}

/// A real shaper on DPDK's null ports.
fn shaper(path: &Path, collectors: &str) -> Result<Program> {
    let port = free_port()?;
    let config = path.join("shaper.toml");
    let text = format!(
        "name = \"dpu-{port}\"\nhost = \"sim-0-0\"\nstate_directory = \"{0}/shaper\"\n\
         window_ms = {WINDOW_MS}\n\
         [server]\nlisten = \"127.0.0.1:{port}\"\n\
         [uplink]\ncollector = \"{collectors}\"\n\
         [dpdk]\nhuge_pages = false\nfile_prefix = \"faults-{port}\"\n\
         rx_descriptors = 64\ndevices = [\"net_null0\", \"net_null1\"]\n\
         [[wires]]\nname = \"w0\"\nvirtual_function = \"vf0\"\n\
         in_port = \"net_null0\"\nout_port = \"net_null1\"\nrate = \"20mbit\"\n\
         port_rate = \"1gbit\"\nqueue_frames = 512\n",
        path.display(),
    );
    fs::write(&config, text)?;
    Ok(Program {
        name: "shaper-svc",
        namespace: None,
        arguments: vec!["--config".to_owned(), config.to_string_lossy().into_owned()],
        log: path.join("shaper.log"),
        child: None,
    })
}
