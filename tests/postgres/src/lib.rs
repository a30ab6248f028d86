//! A private Postgres cluster made from the system's own binaries: `initdb` in a
//! temporary directory, a Unix socket, no TCP port, removed with its owner, also
//! when the owner is killed.
//!
//! This crate never touches an existing cluster and never runs SQL of its own
//! beyond creating a database.

mod binaries;
mod guardian;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::binaries::{Account, Binaries};
use crate::guardian::Guardian;

/// The superuser of the private cluster. The socket directory is closed to other
/// accounts of the machine, so the cluster itself trusts whoever reaches it.
pub const SUPERUSER: &str = "rdmesh";

/// A cluster is ready within a second on an idle machine; loaded CI machines were
/// seen to take twenty times that.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// How often the readiness of the server is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// `sun_path` holds 108 bytes with its terminator, and Postgres appends
/// `/.s.PGSQL.5432` (14 bytes).
const SOCKET_DIR_MAX_BYTES: usize = 107 - 14;

/// Why the private cluster is not there.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// No server binaries of a version that rdmesh supports.
    #[error(
        "no PostgreSQL server of version 15 or later found (looked in {looked}); \
         install it: apt-get install postgresql"
    )]
    NoBinaries {
        /// Where was looked.
        looked: String,
    },
    /// Postgres refuses to run as root and no unprivileged account was found.
    #[error(
        "Postgres does not run as root, and /etc/passwd has neither `postgres` nor `nobody` \
         to run it as; run the tests as a normal user"
    )]
    NoAccount,
    /// The directory's path does not fit a Unix socket address.
    #[error(
        "the socket directory {0} is longer than {SOCKET_DIR_MAX_BYTES} bytes, the most a Unix \
         socket allows; set TMPDIR to a shorter path"
    )]
    PathTooLong(PathBuf),
    /// A program of Postgres failed.
    #[error("{program} failed: {output}")]
    Program {
        /// Which program.
        program: String,
        /// What it said.
        output: String,
    },
    /// The server did not come up in time.
    #[error("Postgres was not ready within {READY_WITHIN:?}; its log says:\n{log}")]
    NotReady {
        /// The end of the server's log.
        log: String,
    },
    /// A file or process operation failed.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: String,
        /// What the system said.
        source: io::Error,
    },
}

/// A running private cluster. Dropping it stops the server and removes its files.
pub struct Cluster {
    // The order of fields is the order of dropping: the guardian ends the server
    // before the directory goes.
    guardian: Guardian,
    server: Mutex<Option<Child>>,
    dir: TempDir,
    binaries: Binaries,
    account: Option<Account>,
    /// Beside those that every cluster has; of one that stands twice the later counts.
    settings: &'static [&'static str],
    databases: AtomicU32,
}

impl Cluster {
    /// Makes a cluster under the system's temporary directory and starts it.
    ///
    /// # Errors
    /// When no server binaries are found or the server does not come up.
    pub fn start() -> Result<Self, ClusterError> {
        Self::start_under(&std::env::temp_dir())
    }

    /// Makes a cluster in a new directory under `parent` and starts it.
    ///
    /// # Errors
    /// When no server binaries are found, the path is too long for a socket, or the
    /// server does not come up.
    pub fn start_under(parent: &Path) -> Result<Self, ClusterError> {
        Self::start_with(parent, &[])
    }

    /// The same with `settings` of the server, as `name=value`; they go before those that
    /// tests have (`fsync=off` and the like).
    ///
    /// # Errors
    /// As [`Cluster::start_under`]; also where the server does not know a setting.
    pub fn start_with(
        parent: &Path,
        settings: &'static [&'static str],
    ) -> Result<Self, ClusterError> {
        let binaries = Binaries::find()?;
        let account = Account::for_server()?;
        let dir = tempfile::Builder::new()
            .prefix("rdmesh-pg-")
            .tempdir_in(parent)
            .map_err(|e| failed(format!("making a directory in {}", parent.display()), e))?;
        let socket_dir = dir.path().join("s");
        if socket_dir.as_os_str().len() > SOCKET_DIR_MAX_BYTES {
            return Err(ClusterError::PathTooLong(socket_dir));
        }
        fs::create_dir(&socket_dir)
            .map_err(|e| failed(format!("making {}", socket_dir.display()), e))?;
        for path in [dir.path(), &socket_dir] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o700))
                .map_err(|e| failed(format!("closing {} to others", path.display()), e))?;
            if let Some(account) = account {
                chown(path, Some(account.uid), Some(account.gid))
                    .map_err(|e| failed(format!("giving {} to Postgres", path.display()), e))?;
            }
        }
        let guardian = Guardian::watch(dir.path())
            .map_err(|e| failed("starting the guardian process".into(), e))?;
        let cluster = Self {
            guardian,
            server: Mutex::new(None),
            dir,
            binaries,
            account,
            settings,
            databases: AtomicU32::new(0),
        };
        cluster.initdb()?;
        cluster.start_server()?;
        Ok(cluster)
    }

    /// The directory of the Unix socket.
    pub fn socket_dir(&self) -> PathBuf {
        self.dir.path().join("s")
    }

    /// A connection URL for a database of this cluster, as its superuser.
    pub fn url(&self, database: &str) -> String {
        self.url_as(database, SUPERUSER)
    }

    /// A connection URL for a database of this cluster, as `role`.
    pub fn url_as(&self, database: &str, role: &str) -> String {
        format!(
            "postgres:///{database}?host={}&user={role}",
            self.socket_dir().display()
        )
    }

    /// Makes an empty database with a name of its own and returns the name.
    ///
    /// # Errors
    /// When the server refuses.
    pub fn new_database(&self) -> Result<String, ClusterError> {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.create_database(&name)?;
        Ok(name)
    }

    /// Makes an empty database.
    ///
    /// # Errors
    /// When the server refuses, for instance because it exists.
    pub fn create_database(&self, name: &str) -> Result<(), ClusterError> {
        self.psql(
            "postgres",
            SUPERUSER,
            &format!("CREATE DATABASE \"{name}\""),
        )
        .map(drop)
    }

    /// Runs `sql` by psql and returns its output, unaligned and without headers.
    ///
    /// # Errors
    /// When psql or the server reports an error.
    pub fn psql(&self, database: &str, role: &str, sql: &str) -> Result<String, ClusterError> {
        let mut command = Command::new(self.binaries.path("psql"));
        command
            .args([
                "-X",
                "-q",
                "-A",
                "-t",
                "-v",
                "ON_ERROR_STOP=1",
                "-U",
                role,
                "-d",
                database,
            ])
            .arg("-h")
            .arg(self.socket_dir())
            .args(["-c", sql])
            .stdin(Stdio::null());
        run("psql", &mut command)
    }

    /// Stops the server and keeps its files: what a client sees when Postgres is away.
    ///
    /// # Errors
    /// When the server does not stop.
    pub fn stop(&self) -> Result<(), ClusterError> {
        let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mut child) = server.take() else {
            return Ok(());
        };
        let mut command = self.command("pg_ctl");
        command
            .arg("-D")
            .arg(self.data_dir())
            .args(["-m", "immediate", "-w", "stop"]);
        run("pg_ctl", &mut command)?;
        child
            .wait()
            .map_err(|e| failed("waiting for Postgres to end".into(), e))?;
        Ok(())
    }

    /// Starts the server again after [`Cluster::stop`].
    ///
    /// # Errors
    /// When the server does not come up.
    pub fn start_again(&self) -> Result<(), ClusterError> {
        self.start_server()
    }

    /// Stops every process of the server where it stands: what clients see of a machine
    /// that hangs.
    ///
    /// # Errors
    /// When the server does not run, or a process cannot be stopped.
    pub fn pause(&self) -> Result<(), ClusterError> {
        self.signal("-STOP")
    }

    /// Lets them go on after [`Cluster::pause`].
    ///
    /// # Errors
    /// As [`Cluster::pause`].
    pub fn go_on(&self) -> Result<(), ClusterError> {
        self.signal("-CONT")
    }

    /// Sends a signal to the server and to every process that it has started.
    fn signal(&self, signal: &str) -> Result<(), ClusterError> {
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(child) = server.as_ref() else {
            return Err(ClusterError::Program {
                program: "kill".to_owned(),
                output: "the server does not run".to_owned(),
            });
        };
        // The one that starts others first, so that none is missed.
        self.kill_all(signal, &[child.id()])?;
        let children = children_of(child.id())
            .map_err(|e| failed("listing the server's processes".into(), e))?;
        self.kill_all(signal, &children)
    }

    fn kill_all(&self, signal: &str, pids: &[u32]) -> Result<(), ClusterError> {
        for pid in pids {
            // The shell's own: a small system has no other.
            let mut kill = Command::new("sh");
            kill.args(["-c", "kill \"$1\" \"$2\"", "kill", signal]);
            let said = run("kill", kill.arg(pid.to_string()));
            // One that has ended meanwhile needs no signal.
            if said.is_err() && Path::new(&format!("/proc/{pid}")).exists() {
                said?;
            }
        }
        Ok(())
    }

    fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn log_path(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    /// A command of the server, as the account that owns its files.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.binaries.path(program));
        command.current_dir(self.dir.path()).stdin(Stdio::null());
        if let Some(account) = self.account {
            command.uid(account.uid).gid(account.gid);
        }
        command
    }

    fn initdb(&self) -> Result<(), ClusterError> {
        let mut command = self.command("initdb");
        command
            .arg("-D")
            .arg(self.data_dir())
            .args(["-U", SUPERUSER, "-A", "trust", "-E", "UTF8", "--locale=C"])
            .args(["--no-sync", "--no-instructions"]);
        run("initdb", &mut command).map(drop)
    }

    fn start_server(&self) -> Result<(), ClusterError> {
        let log = File::create(self.log_path())
            .map_err(|e| failed(format!("making {}", self.log_path().display()), e))?;
        let mut command = self.command("postgres");
        command
            .arg("-D")
            .arg(self.data_dir())
            .arg("-k")
            .arg(self.socket_dir());
        // The cluster lives as long as one test or one demo: it need not survive a power
        // cut, but what was committed survives a kill of the server.
        let of_all = [
            "listen_addresses=",
            "fsync=off",
            "full_page_writes=off",
            "shared_buffers=64MB",
            "max_connections=60",
            "timezone=UTC",
        ];
        for setting in of_all.iter().chain(self.settings) {
            command.arg("-c").arg(setting);
        }
        // Away from the terminal's Ctrl-C: the guardian ends it.
        command
            .process_group(0)
            .stdout(Stdio::null())
            .stderr(Stdio::from(log));
        let child = command
            .spawn()
            .map_err(|e| failed("starting postgres".into(), e))?;
        *self.server.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
        self.wait_until_ready()
    }

    /// The last line of postmaster.pid says `ready` once the server takes connections
    /// (src/include/utils/pidfile.h).
    fn wait_until_ready(&self) -> Result<(), ClusterError> {
        let deadline = Instant::now() + READY_WITHIN;
        let pid_file = self.data_dir().join("postmaster.pid");
        loop {
            let text = fs::read_to_string(&pid_file).unwrap_or_default();
            if text
                .lines()
                .nth(7)
                .is_some_and(|status| status.trim() == "ready")
            {
                return Ok(());
            }
            let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
            let ended = server
                .as_mut()
                .is_some_and(|c| matches!(c.try_wait(), Ok(Some(_))));
            if ended || Instant::now() > deadline {
                let log = fs::read_to_string(self.log_path()).unwrap_or_default();
                return Err(ClusterError::NotReady { log });
            }
            drop(server);
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.guardian.end();
        let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mut child) = server.take() {
            // The guardian has stopped it; this only reaps. A server that is gone
            // already is no error.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Processes that `parent` has started.
fn children_of(parent: u32) -> io::Result<Vec<u32>> {
    let mut children = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // One that ended meanwhile is none. After the name in brackets: state, parent.
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let of = stat
            .rsplit_once(") ")
            .and_then(|(_, rest)| rest.split(' ').nth(1));
        if of.and_then(|of| of.parse().ok()) == Some(parent) {
            children.push(pid);
        }
    }
    Ok(children)
}

fn run(program: &str, command: &mut Command) -> Result<String, ClusterError> {
    let output = command
        .output()
        .map_err(|e| failed(format!("running {program}"), e))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(ClusterError::Program {
            program: program.to_owned(),
            output: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }
}

fn failed(doing: String, source: io::Error) -> ClusterError {
    ClusterError::Io { doing, source }
}
