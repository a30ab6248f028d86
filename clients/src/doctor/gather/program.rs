//! What other programs of the machine say.

use std::io::{ErrorKind, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use crate::doctor::facts::Looked;

/// How often it is looked whether a program has ended.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Most bytes that are read of what a program says: it answers in lines.
const MOST_BYTES: u64 = 64 << 10;

/// How long the rest of an ended program's words may take.
const AFTER_THE_END: Duration = Duration::from_secs(1);

/// What a program said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Said {
    /// Its exit code; absent: a signal ended it.
    pub(super) code: Option<i32>,
    pub(super) out: String,
    pub(super) error: String,
}

/// Runs a program of `PATH` to its end, `within` a time after which it is killed. Absent: there
/// is no such program.
pub(super) fn run(program: &str, arguments: &[&str], within: Duration) -> Looked<Said> {
    let spawned = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) if error.kind() == ErrorKind::NotFound => return Looked::Absent,
        Err(error) => return Looked::Unknown(format!("{program} cannot be run: {error}")),
    };
    let (out, error) = (child.stdout.take(), child.stderr.take());
    // Read beside the waiting: a full pipe would keep the program from ending.
    let (out, error) = (beside(|| drained(out)), beside(|| drained(error)));
    let Some(status) = ended(&mut child, within) else {
        // It may have ended this moment; one that hangs in the kernel is left to it.
        let _ = child.kill();
        let _ = ended(&mut child, LOOK_EVERY * 10);
        let seconds = within.as_secs();
        return Looked::Unknown(format!("{program} did not end within {seconds} s"));
    };
    // A child of its own may hold the pipe: then what it would say is not waited for.
    let text = |read: Receiver<String>| read.recv_timeout(AFTER_THE_END).unwrap_or_default();
    Looked::Found(Said {
        code: status.code(),
        out: text(out),
        error: text(error),
    })
}

fn beside(read: impl FnOnce() -> String + Send + 'static) -> Receiver<String> {
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // Who waited may have given up.
        let _ = send.send(read());
    });
    receive
}

fn ended(child: &mut Child, within: Duration) -> Option<std::process::ExitStatus> {
    let until = Instant::now() + within;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < until => std::thread::sleep(LOOK_EVERY),
            Ok(None) | Err(_) => return None,
        }
    }
}

/// The first of it as text; the rest is read and dropped.
fn drained(pipe: Option<impl Read>) -> String {
    let Some(mut pipe) = pipe else {
        return String::new();
    };
    let mut bytes = Vec::new();
    // What was read until an error is what there is.
    let _ = Read::by_ref(&mut pipe)
        .take(MOST_BYTES)
        .read_to_end(&mut bytes);
    let _ = std::io::copy(&mut pipe, &mut std::io::sink());
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_heard_or_given_up() {
        let said = |script: &str, within| run("sh", &["-c", script], within);
        let long = Duration::from_secs(60);
        let heard = said("echo out; echo error >&2; exit 3", long);
        assert_eq!(
            heard,
            Looked::Found(Said {
                code: Some(3),
                out: "out\n".to_owned(),
                error: "error\n".to_owned(),
            })
        );
        // More than a pipe holds, and more than is kept.
        let much = said("head -c 1000000 /dev/zero | tr '\\0' x", long);
        assert_eq!(much.found().unwrap().out.len() as u64, MOST_BYTES);
        let hanging = said("exec sleep 600", Duration::from_millis(100));
        assert!(
            matches!(&hanging, Looked::Unknown(why) if why.contains("did not end")),
            "{hanging:?}"
        );
        assert_eq!(run("/nonexistent/program", &[], long), Looked::Absent);
    }
}
