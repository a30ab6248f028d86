//! The control channel: reads requests, answers each from a thread of its own.

use crate::process::{self, Processes};
use crate::reaper::Reaper;
use crate::{boot, procfs};
use anyhow::{Context, Result, bail, ensure};
use rdmesh_guest::{CONTROL_PORT, Command, Line, MAX_REQUEST_BYTES, Reply, Request};
use rustix::system::{RebootCommand, delete_module, reboot};
use rustix::time::{ClockId, Timespec, clock_gettime, clock_settime};
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Requests being worked on at once. Tests run a few dozen jobs side by side.
const MAX_IN_FLIGHT: usize = 256;

/// The port appears a moment after its driver was loaded.
const PORT_LIMIT: Duration = Duration::from_secs(20);
const PORT_POLL: Duration = Duration::from_millis(10);

/// Waits for the control port and opens it.
pub(crate) fn open_port() -> Result<File> {
    let deadline = Instant::now() + PORT_LIMIT;
    loop {
        if let Some(path) = find_port() {
            let port = OpenOptions::new().read(true).write(true).open(&path);
            return port.with_context(|| format!("cannot open {}", path.display()));
        }
        ensure!(
            Instant::now() < deadline,
            "no virtio-serial port {CONTROL_PORT}"
        );
        std::thread::sleep(PORT_POLL);
    }
}

fn find_port() -> Option<PathBuf> {
    let ports = fs::read_dir("/sys/class/virtio-ports").ok()?;
    for port in ports.flatten() {
        let device = Path::new("/dev").join(port.file_name());
        let name = fs::read_to_string(port.path().join("name")).unwrap_or_default();
        if name.trim_end() == CONTROL_PORT && device.exists() {
            return Some(device);
        }
    }
    None
}

/// Says why the machine did not come up.
pub(crate) fn report_failure(port: File, error: &anyhow::Error) -> Result<()> {
    Writer::new(port).send(&Line::Failed {
        message: format!("{error:#}"),
    })
}

/// Answers requests until the lab closes the channel.
pub(crate) fn until_closed(port: File, reaper: &Reaper, ready: &Line) -> Result<()> {
    let writer = Writer::new(port.try_clone()?);
    writer.send(ready)?;
    let processes = Processes::new(reaper);
    let in_flight = Arc::new(AtomicUsize::new(0));
    let mut lines = BufReader::new(port);
    while let Some(line) = next_line(&mut lines)? {
        let request = match parse(&line) {
            Ok(request) => request,
            Err(error) => {
                writer.send(&Line::Error {
                    id: None,
                    message: format!("{error:#}"),
                })?;
                continue;
            }
        };
        if in_flight.fetch_add(1, Ordering::Relaxed) >= MAX_IN_FLIGHT {
            in_flight.fetch_sub(1, Ordering::Relaxed);
            let message = format!("more than {MAX_IN_FLIGHT} requests at once; wait for answers");
            writer.send(&Line::Error {
                id: Some(request.id),
                message,
            })?;
            continue;
        }
        let (writer, processes) = (writer.clone(), processes.clone());
        let in_flight = Arc::clone(&in_flight);
        std::thread::spawn(move || {
            let id = request.id;
            let line = match answer(&request.command, &processes) {
                Ok(reply) => Line::Reply { id, reply },
                Err(error) => Line::Error {
                    id: Some(id),
                    message: format!("{error:#}"),
                },
            };
            if let Err(error) = writer.send(&line) {
                eprintln!("rdmesh-guest-init: answer lost: {error:#}");
            }
            in_flight.fetch_sub(1, Ordering::Relaxed);
        });
    }
    Ok(())
}

/// One line without its end; none when the channel was closed. Of a line over the
/// limit only as much is kept as shows that it is too long.
fn next_line(lines: &mut impl BufRead) -> Result<Option<Vec<u8>>> {
    let limit = u64::try_from(MAX_REQUEST_BYTES)? + 1;
    let mut line = Vec::new();
    lines.by_ref().take(limit).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.last() != Some(&b'\n') && line.len() > MAX_REQUEST_BYTES {
        skip_line(lines)?;
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    Ok(Some(line))
}

fn skip_line(lines: &mut impl BufRead) -> Result<()> {
    loop {
        let buffer = lines.fill_buf()?;
        let (used, found) = match buffer.iter().position(|byte| *byte == b'\n') {
            Some(at) => (at + 1, true),
            None => (buffer.len(), buffer.is_empty()),
        };
        lines.consume(used);
        if found {
            return Ok(());
        }
    }
}

fn parse(line: &[u8]) -> Result<Request> {
    ensure!(
        line.len() <= MAX_REQUEST_BYTES,
        "request is over {MAX_REQUEST_BYTES} bytes"
    );
    serde_json::from_slice(line).context("request not understood")
}

fn answer(command: &Command, processes: &Processes) -> Result<Reply> {
    match command {
        Command::Run { exec, timeout_ms } => Ok(Reply::Exit(
            processes.run(exec, Duration::from_millis(*timeout_ms))?,
        )),
        Command::Spawn { exec } => Ok(Reply::Spawned {
            pid: processes.spawn(exec)?,
        }),
        Command::Wait { pid, timeout_ms } => {
            match processes.wait(*pid, Duration::from_millis(*timeout_ms))? {
                Some(exit) => Ok(Reply::Exit(exit)),
                None => bail!("process {pid} still runs after {timeout_ms} ms"),
            }
        }
        Command::ReadOutput { pid } => {
            let (data, bytes) = processes.output(*pid)?;
            Ok(Reply::File { data, bytes })
        }
        Command::Kill { pid, signal } => done(process::kill(*pid, *signal)),
        Command::WriteFile { path, data, mode } => done(write_file(path, data.as_bytes(), *mode)),
        Command::ReadFile { path } => {
            let (data, bytes) = process::tail(Path::new(path))?;
            Ok(Reply::File { data, bytes })
        }
        Command::ProcessStat { pid } => Ok(Reply::ProcessStat(procfs::process_stat(*pid)?)),
        Command::LoadModule { name } => done(load_module(name)),
        Command::UnloadModule { name } => {
            let module = CString::new(name.as_str())?;
            done(delete_module(&module, 0).with_context(|| format!("cannot unload {name}")))
        }
        Command::JumpClock { by_ms } => done(jump_clock(*by_ms)),
        Command::Link { name, up } => done(set_link(processes, name, *up)),
        Command::Clocks => Ok(Reply::Clocks(procfs::clocks())),
        Command::Poweroff => done(reboot(RebootCommand::PowerOff).context("cannot power off")),
    }
}

fn done(result: Result<()>) -> Result<Reply> {
    result.map(|()| Reply::Done)
}

fn write_file(path: &str, data: &[u8], mode: u32) -> Result<()> {
    let path = Path::new(path);
    ensure!(
        path.is_absolute(),
        "{}: want an absolute path",
        path.display()
    );
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(path, data).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
}

fn load_module(name: &str) -> Result<()> {
    let list = boot::module_list()?;
    let Some(paths) = list.on_request.get(name) else {
        bail!("module {name} is not in the initramfs; ask for it when the host is booted");
    };
    paths
        .iter()
        .try_for_each(|path| boot::load_module(Path::new(path)))
}

fn jump_clock(by_ms: i64) -> Result<()> {
    let now = clock_gettime(ClockId::Realtime);
    let target = i128::from(now.tv_sec) * 1_000_000_000
        + i128::from(now.tv_nsec)
        + i128::from(by_ms) * 1_000_000;
    let time = Timespec {
        tv_sec: i64::try_from(target.div_euclid(1_000_000_000))?,
        tv_nsec: i64::try_from(target.rem_euclid(1_000_000_000))?,
    };
    clock_settime(ClockId::Realtime, time).context("cannot set the clock")
}

fn set_link(processes: &Processes, name: &str, up: bool) -> Result<()> {
    let state = if up { "up" } else { "down" };
    boot::step(processes, &["ip", "link", "set", name, state])
}

/// Sends whole lines, one thread at a time.
#[derive(Clone)]
struct Writer(Arc<Mutex<File>>);

impl Writer {
    fn new(port: File) -> Self {
        Self(Arc::new(Mutex::new(port)))
    }

    fn send(&self, line: &Line) -> Result<()> {
        let mut bytes = serde_json::to_vec(line)?;
        bytes.push(b'\n');
        let mut port = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        port.write_all(&bytes).context("control channel")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    #[test]
    fn a_line_over_the_limit_is_cut_and_the_next_one_is_read() {
        let mut input = vec![b'x'; MAX_REQUEST_BYTES + 10];
        input.extend_from_slice(b"\n{\"id\":1,\"command\":\"clocks\"}\n");
        let mut lines = BufReader::new(Cursor::new(input));
        let long = next_line(&mut lines).unwrap().unwrap();
        assert!(parse(&long).unwrap_err().to_string().contains("over"));
        let next = next_line(&mut lines).unwrap().unwrap();
        assert_eq!(
            parse(&next).unwrap(),
            Request {
                id: 1,
                command: Command::Clocks
            }
        );
        assert!(next_line(&mut lines).unwrap().is_none());
    }
}
