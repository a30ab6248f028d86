//! Starting processes. A child is first this same binary, which enters the control
//! group, sets the limits, drops to the user and then becomes the program: nothing
//! has to run between fork and exec, and the program is in its group from its first
//! instruction.

use crate::procfs;
use crate::reaper::Reaper;
use anyhow::{Context, Result, bail, ensure};
use rdmesh_guest::{Clocks, Exec, Exit, MAX_OUTPUT_BYTES, Text};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, setrlimit};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// First argument of the intermediate process.
pub(crate) const BECOME: &str = "--become";

/// Where the streams of each process are kept until its end was reported.
const OUTPUT_DIR: &str = "/run/rdmesh-lab";

const CGROUP_ROOT: &str = "/sys/fs/cgroup";

const DEFAULT_PATH: &str = "/usr/sbin:/usr/bin";

/// What a shell answers when it cannot start a program.
const CANNOT_START: u8 = 127;

/// After SIGKILL a process is gone at once, unless it hangs in the kernel.
const KILL_GRACE: Duration = Duration::from_secs(10);

/// Starts processes and knows where their output goes.
#[derive(Clone)]
pub(crate) struct Processes {
    reaper: Reaper,
    running: Arc<Mutex<BTreeMap<i32, Running>>>,
    next_output: Arc<AtomicU64>,
}

struct Running {
    stdout: PathBuf,
    stderr: PathBuf,
    started: Clocks,
}

impl Processes {
    pub(crate) fn new(reaper: &Reaper) -> Self {
        Self {
            reaper: reaper.clone(),
            running: Arc::default(),
            next_output: Arc::default(),
        }
    }

    /// Starts a process and gives its pid.
    pub(crate) fn spawn(&self, exec: &Exec) -> Result<i32> {
        ensure!(!exec.argv.is_empty(), "argv is empty");
        fs::create_dir_all(OUTPUT_DIR)?;
        let number = self.next_output.fetch_add(1, Ordering::Relaxed);
        let output = |stream: &str| Path::new(OUTPUT_DIR).join(format!("{number}.{stream}"));
        let (stdout, stderr) = (output("out"), output("err"));
        let mut command = Command::new("/proc/self/exe");
        command
            .arg(BECOME)
            .arg(serde_json::to_string(exec)?)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(File::create(&stdout)?)
            .stderr(File::create(&stderr)?);
        let started = procfs::clocks();
        let child = command.spawn().context("cannot fork")?;
        let pid = i32::try_from(child.id()).context("pid out of range")?;
        self.lock().insert(
            pid,
            Running {
                stdout,
                stderr,
                started,
            },
        );
        self.reaper.started();
        Ok(pid)
    }

    /// Waits for a process that was started here; none while it still runs.
    pub(crate) fn wait(&self, pid: i32, limit: Duration) -> Result<Option<Exit>> {
        ensure!(
            self.lock().contains_key(&pid),
            "process {pid} was not started by the lab"
        );
        let Some(end) = self.reaper.wait(pid, limit) else {
            return Ok(None);
        };
        let Some(running) = self.lock().remove(&pid) else {
            bail!("process {pid} was waited for twice");
        };
        let (stdout, stdout_bytes) = tail(&running.stdout)?;
        let (stderr, stderr_bytes) = tail(&running.stderr)?;
        fs::remove_file(&running.stdout)?;
        fs::remove_file(&running.stderr)?;
        Ok(Some(Exit {
            pid,
            code: end.code,
            signal: end.signal,
            timed_out: false,
            stdout,
            stderr,
            output_bytes: stdout_bytes + stderr_bytes,
            started: running.started,
            ended: end.at,
        }))
    }

    /// What a running process has written, and its length.
    pub(crate) fn output(&self, pid: i32) -> Result<(Text, u64)> {
        let running = self.lock();
        let paths = running
            .get(&pid)
            .map(|running| [&running.stdout, &running.stderr]);
        let [stdout, stderr] = paths.with_context(|| format!("process {pid} does not run"))?;
        let ((mut text, out_bytes), (errors, err_bytes)) = (tail(stdout)?, tail(stderr)?);
        text.append(&errors);
        Ok((text, out_bytes + err_bytes))
    }

    /// Starts a process and waits for it; after `limit` it is killed.
    pub(crate) fn run(&self, exec: &Exec, limit: Duration) -> Result<Exit> {
        let pid = self.spawn(exec)?;
        if let Some(exit) = self.wait(pid, limit)? {
            return Ok(exit);
        }
        kill(pid, 9)?;
        match self.wait(pid, KILL_GRACE)? {
            Some(exit) => Ok(Exit {
                timed_out: true,
                ..exit
            }),
            None => bail!("process {pid} does not die: it hangs in the kernel"),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<i32, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends a signal by its number.
pub(crate) fn kill(pid: i32, signal: i32) -> Result<()> {
    let to = Pid::from_raw(pid).context("pid must not be 0")?;
    let signal = Signal::from_named_raw(signal).with_context(|| format!("no signal {signal}"))?;
    kill_process(to, signal).with_context(|| format!("cannot signal process {pid}"))
}

/// The last [`MAX_OUTPUT_BYTES`] of a file and its length.
pub(crate) fn tail(path: &Path) -> Result<(Text, u64)> {
    let mut file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let length = file.metadata()?.len();
    if length == 0 {
        return unmeasured_tail(file);
    }
    let mut data = Vec::new();
    if length > MAX_OUTPUT_BYTES {
        file.seek(SeekFrom::Start(length - MAX_OUTPUT_BYTES))?;
    }
    file.take(MAX_OUTPUT_BYTES).read_to_end(&mut data)?;
    let bytes = length.max(u64::try_from(data.len())?);
    Ok((Text::from(data), bytes))
}

/// The same of a file of proc or sysfs: it has no length until it is read to its end.
fn unmeasured_tail(mut file: impl Read) -> Result<(Text, u64)> {
    let most = usize::try_from(MAX_OUTPUT_BYTES)?;
    let (mut data, mut bytes) = (Vec::new(), 0);
    loop {
        let got = (&mut file).take(MAX_OUTPUT_BYTES).read_to_end(&mut data)?;
        if got == 0 {
            return Ok((Text::from(data), bytes));
        }
        bytes += u64::try_from(got)?;
        data.drain(..data.len().saturating_sub(most));
    }
}

/// The intermediate process: prepares itself and becomes the program.
pub(crate) fn become_program(exec: Option<String>) -> ExitCode {
    let prepared = exec
        .context("--become needs an argument")
        .and_then(|exec| Ok(serde_json::from_str::<Exec>(&exec)?))
        .and_then(|exec| prepare(&exec));
    let error = match prepared {
        Ok(mut command) => anyhow::Error::from(command.exec()),
        Err(error) => error,
    };
    eprintln!("cannot start: {error:#}");
    ExitCode::from(CANNOT_START)
}

fn prepare(exec: &Exec) -> Result<Command> {
    if let Some(group) = &exec.cgroup {
        enter_cgroup(group)?;
    }
    let limits = [
        (Resource::Memlock, exec.memlock_bytes),
        (Resource::Nofile, exec.open_files),
    ];
    for (resource, limit) in limits {
        let Some(most) = limit else { continue };
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        setrlimit(resource, limit).with_context(|| format!("limit {resource:?}"))?;
    }
    let (program, args) = exec.argv.split_first().context("argv is empty")?;
    let mut command = Command::new(program);
    command
        .args(args)
        .env_clear()
        .env("PATH", DEFAULT_PATH)
        .envs(&exec.env);
    if let Some(gid) = exec.gid {
        command.gid(gid);
    }
    if let Some(uid) = exec.uid {
        command.uid(uid);
    }
    Ok(command)
}

fn enter_cgroup(group: &Text) -> Result<()> {
    let below = Path::new(OsStr::from_bytes(group.as_bytes()));
    let below = below.strip_prefix("/").unwrap_or(below);
    let plain = below
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    ensure!(
        plain,
        "cgroup {group:?} must be a path below the root without '..'"
    );
    for root in cgroup_hierarchies()? {
        let group = root.join(below);
        fs::create_dir_all(&group).with_context(|| format!("cannot make {}", group.display()))?;
        fs::write(group.join("cgroup.procs"), "0")
            .with_context(|| format!("cannot enter {}", group.display()))?;
    }
    Ok(())
}

/// The one root of version 2, or the roots of version 1.
fn cgroup_hierarchies() -> Result<Vec<PathBuf>> {
    let root = Path::new(CGROUP_ROOT);
    if root.join("cgroup.procs").exists() {
        return Ok(vec![root.to_path_buf()]);
    }
    let roots = fs::read_dir(root)?.map(|entry| Ok(entry?.path()));
    roots.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_kept_of_what_has_no_length() {
        let most = usize::try_from(MAX_OUTPUT_BYTES).unwrap();
        let mut long = vec![b'a'; 3 * most + 7];
        long.extend_from_slice(b"end");
        let (text, bytes) = unmeasured_tail(long.as_slice()).unwrap();
        assert_eq!(bytes, u64::try_from(long.len()).unwrap());
        assert_eq!(text.as_bytes(), &long[long.len() - most..]);
        let (text, bytes) = unmeasured_tail(&b"short"[..]).unwrap();
        assert_eq!((text.as_bytes(), bytes), (&b"short"[..], 5));
    }
}
