//! Processes that the lab starts on this machine. Each dies with the lab, whatever
//! ends it: by `Drop`, by the interrupt handler, or by the kernel when the lab was
//! killed (the parent-death signal, set by `setpriv`).

use crate::scratch;
use anyhow::{Context, Result, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::process::{Child as StdChild, ChildStderr, ChildStdin, ChildStdout};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How long a child may take to end after its stop signal before it is killed.
const STOP_GRACE: Duration = Duration::from_secs(5);
const STOP_POLL: Duration = Duration::from_millis(10);

/// Exit code after an interrupt, as shells report it.
const INTERRUPTED: i32 = 130;

/// Live children and the signal that stops each, for the interrupt handler.
static LIVE: Mutex<BTreeMap<i32, Signal>> = Mutex::new(BTreeMap::new());

/// User and group that a child runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunAs {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// A child process that is stopped on drop.
#[derive(Debug)]
pub struct Child {
    child: StdChild,
    pid: Pid,
    stop: Signal,
}

/// Starts `program`; `prepare` sets arguments, environment and streams. `stop` ends
/// it, also when the lab dies.
pub fn spawn(
    program: impl AsRef<OsStr>,
    stop: Signal,
    run_as: Option<RunAs>,
    prepare: impl FnOnce(&mut Command),
) -> Result<Child> {
    let program = program.as_ref();
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", signal_name(stop)?]);
    if let Some(RunAs { uid, gid }) = run_as {
        command.args([format!("--reuid={uid}"), format!("--regid={gid}")]);
        command.arg("--clear-groups");
    }
    command.arg("--").arg(program).stdin(Stdio::null());
    prepare(&mut command);
    let child = on_spawner(command).with_context(|| format!("cannot start {program:?}"))?;
    let raw = i32::try_from(child.id()).context("pid out of range")?;
    let pid = Pid::from_raw(raw).context("pid 0")?;
    live().insert(raw, stop);
    Ok(Child { child, pid, stop })
}

/// The name that setpriv takes.
fn signal_name(signal: Signal) -> Result<&'static str> {
    match signal {
        Signal::KILL => Ok("KILL"),
        Signal::TERM => Ok("TERM"),
        Signal::INT => Ok("INT"),
        other => bail!("{other:?} is no signal to stop a child with"),
    }
}

impl Child {
    /// Process id on this machine.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Its streams, where `prepare` made them pipes; once.
    pub fn take_streams(&mut self) -> Result<(ChildStdin, ChildStdout, ChildStderr)> {
        let streams = (
            self.child.stdin.take(),
            self.child.stdout.take(),
            self.child.stderr.take(),
        );
        match streams {
            (Some(stdin), Some(stdout), Some(stderr)) => Ok((stdin, stdout, stderr)),
            _ => bail!("the streams are no pipes, or were taken"),
        }
    }

    /// The exit status, once it has ended.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// kill -9, and reaps it.
    pub fn kill(&mut self) {
        // One that has ended is reaped all the same.
        let _ = self.child.kill();
        let _ = self.child.wait();
        live().remove(&self.pid());
    }

    /// Stops it by its signal, after a grace period by SIGKILL, and reaps it.
    pub fn stop(&mut self) {
        // The id of one that was reaped may be another's.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill_process(self.pid, self.stop);
        }
        let deadline = Instant::now() + STOP_GRACE;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() >= deadline {
                let _ = self.child.kill();
                let _ = self.child.wait();
                break;
            }
            std::thread::sleep(STOP_POLL);
        }
        live().remove(&self.pid());
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.stop();
    }
}

fn live() -> std::sync::MutexGuard<'static, BTreeMap<i32, Signal>> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

type SpawnRequest = (Command, Sender<io::Result<StdChild>>);

/// Starts the child from a thread that lives as long as the process: the kernel
/// sends the parent-death signal when the *thread* that forked ends.
fn on_spawner(command: Command) -> Result<StdChild> {
    static SPAWNER: OnceLock<Sender<SpawnRequest>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (requests, incoming) = channel::<SpawnRequest>();
        std::thread::spawn(move || {
            for (mut command, answer) in incoming {
                // A caller that no longer waits has no use for the child either.
                let _ = answer.send(command.spawn());
            }
        });
        requests
    });
    let (answer, child) = channel();
    spawner
        .send((command, answer))
        .map_err(|_| anyhow!("the spawner thread ended"))?;
    Ok(child.recv()??)
}

/// From now on SIGINT, SIGTERM and SIGHUP (the terminal was closed; not where the process
/// was started to ignore that, as by nohup) stop all children, remove all scratch
/// directories and end the process with code 130. Later calls do nothing.
pub fn clean_up_on_interrupt() -> Result<()> {
    static STARTED: OnceLock<()> = OnceLock::new();
    if STARTED.set(()).is_err() {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let interrupts = {
        let _entered = runtime.enter();
        Interrupts::listen().context("cannot listen for signals")?
    };
    std::thread::spawn(move || {
        runtime.block_on(interrupts.first());
        stop_all();
        scratch::remove_all();
        std::process::exit(INTERRUPTED);
    });
    Ok(())
}

/// The signals that end the lab.
struct Interrupts {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hangup: Option<tokio::signal::unix::Signal>,
}

impl Interrupts {
    /// Listens from here on.
    fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let status = std::fs::read_to_string("/proc/self/status")?;
        let hangup = (!ignores_hangup(&status)).then(|| signal(SignalKind::hangup()));
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: hangup.transpose()?,
        })
    }

    /// Completes with the first of them.
    async fn first(mut self) {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = hangup => {}
        }
    }
}

/// Whether a process that says this in `/proc/self/status` ignores SIGHUP (proc(5):
/// the lowest bit of `SigIgn` is signal 1).
fn ignores_hangup(status: &str) -> bool {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & 1 == 1)
}

fn stop_all() {
    let children = live().clone();
    for (&pid, &stop) in &children {
        if let Some(pid) = Pid::from_raw(pid) {
            let _ = kill_process(pid, stop);
        }
    }
    let deadline = Instant::now() + STOP_GRACE;
    let ended = |pid: i32| {
        // Not reaped here, so an ended child is a zombie: state Z after its name.
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(')')
            .is_none_or(|(_, rest)| rest.trim_start().starts_with('Z'))
    };
    while !children.keys().all(|&pid| ended(pid)) && Instant::now() < deadline {
        std::thread::sleep(STOP_POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Set for the process that is hung up on.
    const HUNG_UP: &str = "RDMESH_TEST_HUNG_UP";

    #[test]
    fn regression_a_closed_terminal_leaves_no_directory() {
        use std::io::{BufRead, BufReader};
        if std::env::var_os(HUNG_UP).is_some() {
            clean_up_on_interrupt().unwrap();
            let scratch = scratch::Scratch::new().unwrap();
            println!("\nscratch {}", scratch.path().display());
            std::thread::sleep(Duration::from_secs(60));
            return;
        }
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture"])
            .arg("children::tests::regression_a_closed_terminal_leaves_no_directory")
            .env(HUNG_UP, "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let scratch = lines
            .map(|line| line.unwrap())
            .find_map(|line| line.strip_prefix("scratch ").map(str::to_owned))
            .unwrap();
        assert!(std::path::Path::new(&scratch).exists());
        let pid = Pid::from_raw(i32::try_from(process.id()).unwrap()).unwrap();
        kill_process(pid, Signal::HUP).unwrap();
        assert_eq!(process.wait().unwrap().code(), Some(INTERRUPTED));
        assert!(!std::path::Path::new(&scratch).exists());
    }

    #[test]
    fn who_was_started_by_nohup_ignores_a_closed_terminal() {
        assert!(ignores_hangup("Name:\tx\nSigIgn:\t0000000000001001\n"));
        assert!(!ignores_hangup("Name:\tx\nSigIgn:\t0000000000001000\n"));
        assert!(!ignores_hangup(""));
    }

    #[test]
    fn a_child_ends_with_its_handle() {
        let child = spawn("sleep", Signal::TERM, None, |command| {
            command.arg("1000");
        })
        .unwrap();
        let pid = child.pid();
        assert!(std::path::Path::new(&format!("/proc/{pid}")).exists());
        drop(child);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }
}
