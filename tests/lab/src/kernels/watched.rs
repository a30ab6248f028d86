//! Running apt-get where it may not end: on a full disk it falls silent for good, with all
//! its methods idle, and its own time limits, which are about the mirror, do not see that.

use crate::cache;
use anyhow::{Context, Result, bail, ensure};
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Less than what one write of apt takes: where no more is free, it has met the end.
const LEAST_ROOM_BYTES: u64 = 4 << 20;

const POLL: Duration = Duration::from_millis(50);

/// What ends a program before its time.
#[derive(Debug)]
pub(super) struct Limits<'a> {
    /// Where it writes.
    path: &'a Path,
    /// Bytes that stay free there.
    least_room: u64,
    /// How long it may take.
    time: Duration,
}

impl<'a> Limits<'a> {
    /// For a program that writes below `path`.
    pub(super) fn of(path: &'a Path, time: Duration) -> Self {
        Self {
            path,
            least_room: LEAST_ROOM_BYTES,
            time,
        }
    }
}

/// Runs a program to its end or to a limit; its error output becomes the error.
pub(super) fn run(command: &mut Command, limits: &Limits<'_>) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {program}"))?;
    let errors = child.stderr.take();
    // Read beside it: a full pipe would hold it up.
    let reader = thread::spawn(move || {
        let mut text = Vec::new();
        if let Some(mut errors) = errors {
            // What was read until then is what can be shown.
            let _ = errors.read_to_end(&mut text);
        }
        String::from_utf8_lossy(&text).into_owned()
    });
    let ended = within(&mut child, limits);
    if ended.is_err() {
        // Its methods end when it is gone.
        let _ = child.kill();
        let _ = child.wait();
    }
    let status = ended.with_context(|| format!("{program} was ended"))?;
    let said = reader.join().unwrap_or_default();
    ensure!(status.success(), "{program}: {status}: {}", said.trim_end());
    Ok(())
}

fn within(child: &mut Child, limits: &Limits<'_>) -> Result<ExitStatus> {
    let deadline = Instant::now() + limits.time;
    let shown = limits.path.display();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        let room = cache::room(limits.path)?;
        if room < limits.least_room {
            bail!(
                "no space left in {shown} ({room} bytes are free); free some, or name another \
                 directory: {}=/path",
                cache::CACHE_VARIABLE
            );
        }
        if Instant::now() >= deadline {
            bail!(
                "it has not ended within {} s, writing below {shown}; is the mirror there?",
                limits.time.as_secs()
            );
        }
        thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(limits: &Limits<'_>) -> String {
        let began = Instant::now();
        let refused = run(Command::new("sleep").arg("1000"), limits).unwrap_err();
        assert!(began.elapsed() < Duration::from_secs(100));
        format!("{refused:#}")
    }

    #[test]
    fn regression_a_silent_program_is_ended_when_the_disk_is_full() {
        let directory = tempfile::tempdir().unwrap();
        let message = message(&Limits {
            path: directory.path(),
            least_room: u64::MAX,
            time: Duration::from_secs(600),
        });
        for part in [
            "sleep",
            "no space left in",
            directory.path().to_str().unwrap(),
        ] {
            assert!(message.contains(part), "{part}: {message}");
        }
    }

    #[test]
    fn a_silent_program_is_ended_at_its_time_limit() {
        let directory = tempfile::tempdir().unwrap();
        let limits = Limits::of(directory.path(), Duration::ZERO);
        let message = message(&limits);
        assert!(message.contains("not ended within 0 s"), "{message}");
    }

    #[test]
    fn what_it_says_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let limits = Limits::of(directory.path(), Duration::from_secs(60));
        run(&mut Command::new("true"), &limits).unwrap();
        let refused = run(
            Command::new("sh").args(["-c", "echo no such mirror >&2; exit 100"]),
            &limits,
        );
        let message = refused.unwrap_err().to_string();
        assert!(message.contains("100: no such mirror"), "{message}");
    }
}
