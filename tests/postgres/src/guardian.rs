//! The process that ends the server and removes its files once the owner is gone,
//! also when the owner was killed: it reads a pipe whose other end only the owner
//! holds.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// `$1` is the cluster's directory. SIGQUIT is Postgres' immediate shutdown; the
/// loop ends when the server has removed its pid file, or after five seconds.
const SCRIPT: &str = r#"
cat >/dev/null
pid_file="$1/data/postmaster.pid"
if [ -s "$pid_file" ]; then
    pid=$(head -n 1 "$pid_file")
    kill -QUIT "$pid" 2>/dev/null
    n=0
    while [ -e "$pid_file" ] && [ "$n" -lt 100 ]; do sleep 0.05; n=$((n + 1)); done
    [ -e "$pid_file" ] && kill -KILL "$pid" 2>/dev/null
fi
rm -rf "$1"
"#;

#[derive(Debug)]
pub(crate) struct Guardian(Child);

impl Guardian {
    pub(crate) fn watch(dir: &Path) -> io::Result<Self> {
        Command::new("sh")
            .args(["-c", SCRIPT, "rdmesh-postgres-guardian"])
            .arg(dir)
            .current_dir("/")
            // Its own group: a Ctrl-C or a runner's kill of our group must not take it.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map(Self)
    }

    /// Closes the pipe and waits until the server is stopped and its files are gone.
    pub(crate) fn end(&mut self) {
        drop(self.0.stdin.take());
        // Nothing is left to do about a guardian that cannot be waited for.
        let _ = self.0.wait();
    }
}
