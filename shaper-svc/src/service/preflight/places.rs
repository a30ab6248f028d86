//! Where the service keeps its state and where it listens.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rdmesh_services::server::ListenAddress;
use rustix::fs::{Access, access, statfs, statvfs};

use super::{Finding, Grade, finding};
use crate::config::ShaperConfig;
use crate::service::locks::{lock_devices, lock_name, lock_state};
use crate::service::start::agent_name;
use crate::service::state::StateFiles;

/// File systems of the kernel in which nobody makes a file, by their magic numbers
/// (`linux/magic.h`): proc and sysfs.
const NO_FILES: [u64; 2] = [0x9fa0, 0x6265_6572];

/// The path as it is under another root; a relative one is left alone.
fn under(root: &Path, path: &Path) -> PathBuf {
    path.strip_prefix("/")
        .map_or_else(|_| path.to_owned(), |path| root.join(path))
}

/// Whether the state can be kept, and what became of the one of before.
pub(super) fn state(config: &ShaperConfig, root: &Path) -> Finding {
    let told = config.state_directory.display();
    let directory = under(root, &config.state_directory);
    let refused = |why: String| {
        finding(
            Grade::Refused,
            format!("state_directory {told} cannot be made or used: {why}"),
        )
    };
    // The directory, or the one in which it would be made.
    let mut there = directory.as_path();
    while !there.exists() {
        match there.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => there = parent,
            _ => there = Path::new("."),
        }
    }
    if !there.is_dir() {
        return refused(format!("{} is no directory", there.display()));
    }
    if let Ok(system) = statfs(there)
        && NO_FILES.contains(&u64::try_from(system.f_type).unwrap_or(0))
    {
        return refused(format!("{} takes no files", there.display()));
    }
    if let Err(why) = access(there, Access::WRITE_OK | Access::EXEC_OK) {
        let text = format!(
            "state_directory {told} cannot be written ({}: {why}): the service starts, refuses \
             every change of a rate, and remembers nothing new over a restart",
            there.display()
        );
        return finding(Grade::Doubtful, text);
    }
    if let Err(error) = StateFiles::at(&directory).load() {
        let text =
            format!("{error}; the service sets it aside and starts with the configured rates");
        return finding(Grade::Doubtful, text);
    }
    if statvfs(there)
        .is_ok_and(|system| system.f_bavail == 0 || system.f_files > 0 && system.f_favail == 0)
    {
        let text = format!(
            "there is no room in {told}: the service starts, and refuses every change of a rate"
        );
        return finding(Grade::Doubtful, text);
    }
    finding(Grade::Fine, format!("state is kept in {told}"))
}

/// Whether the service could listen there.
pub(super) fn listen(config: &ShaperConfig, root: &Path) -> Option<Finding> {
    let address = &config.server.listen;
    let text = match address {
        ListenAddress::Unix(path) => {
            let directory = path.parent().unwrap_or(path);
            if under(root, directory).is_dir() {
                return None;
            }
            format!(
                "server.listen = {address}: there is no directory {}; make it first",
                directory.display()
            )
        }
        ListenAddress::Tcp(_) if address.is_local() || config.server.insecure_listen => {
            return None;
        }
        ListenAddress::Tcp(_) => format!(
            "server.listen = {address}: others can connect without TLS; listen on loopback, or \
             set server.insecure_listen = true"
        ),
    };
    Some(finding(Grade::Refused, text))
}

/// What somebody has that the service needs. It may be this very service, which runs: that
/// is doubtful, and no reason not to start it anew.
pub(super) fn in_use(config: &ShaperConfig) -> Vec<Finding> {
    let mut findings = Vec::new();
    let doubtful = |text: String| finding(Grade::Doubtful, text);
    let locks = [
        lock_state(&config.state_directory).map(drop),
        agent_name(config).map_or(Ok(()), |name| lock_name(&name).map(drop)),
        lock_devices(&config.dpdk.devices).map(drop),
    ];
    findings.extend(locks.into_iter().filter_map(Result::err).map(|error| {
        doubtful(format!(
            "{error}; nothing is wrong if it is this service that runs"
        ))
    }));
    let address = &config.server.listen;
    let taken = match address {
        ListenAddress::Tcp(at) => TcpListener::bind(at).map(drop),
        ListenAddress::Unix(path) => match path.symlink_metadata() {
            Ok(meta) if !meta.file_type().is_socket() => {
                let text = format!(
                    "server.listen = {address}: {} is no socket; remove it first",
                    path.display()
                );
                findings.push(finding(Grade::Refused, text));
                return findings;
            }
            // A socket that nobody answers at is left from before, and is replaced.
            Ok(_) if UnixStream::connect(path).is_ok() => Err(ErrorKind::AddrInUse.into()),
            _ => Ok(()),
        },
    };
    if let Err(error) = taken {
        findings.push(match error.kind() {
            ErrorKind::AddrInUse => doubtful(format!(
                "server.listen = {address} is in use; nothing is wrong if it is this service that \
                 runs"
            )),
            _ => finding(
                Grade::Refused,
                format!("server.listen = {address} cannot be listened on: {error}"),
            ),
        });
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(directory: &str) -> Finding {
        let config = ShaperConfig {
            state_directory: directory.into(),
            ..ShaperConfig::default()
        };
        state(&config, Path::new("/"))
    }

    #[test]
    fn a_state_directory_that_cannot_be_is_refused() {
        for directory in ["/proc/x", "/sys/x/y", "/dev/null", "/dev/null/x"] {
            let found = at(directory);
            assert_eq!(found.grade, Grade::Refused, "{directory}: {found:?}");
            assert!(found.text.contains(directory), "{found:?}");
        }
        let place = tempfile::tempdir().unwrap();
        let new = place.path().join("a/b");
        assert_eq!(at(&new.display().to_string()).grade, Grade::Fine);
        assert!(!place.path().join("a").exists(), "nothing is touched");
        std::fs::write(place.path().join("state.json"), "[]").unwrap();
        let found = at(&place.path().display().to_string());
        assert_eq!(found.grade, Grade::Doubtful);
        assert!(found.text.contains("sets it aside"), "{found:?}");
    }

    #[test]
    fn a_directory_that_cannot_be_written_is_no_reason_not_to_start() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("state.json");
        // Also root may not write where nobody can: a file system that is read-only.
        let found = at("/sys/fs/cgroup/../../kernel");
        assert_eq!(found.grade, Grade::Refused, "{found:?}");
        std::fs::create_dir(&file).unwrap();
        let found = at(&place.path().display().to_string());
        assert_eq!(found.grade, Grade::Doubtful, "{found:?}");
        assert!(found.text.contains("no file"), "{found:?}");
    }

    #[test]
    fn what_somebody_has_is_told() {
        let place = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut config = ShaperConfig {
            name: format!("dpu-{}", std::process::id()),
            state_directory: place.path().into(),
            ..ShaperConfig::default()
        };
        config.server.listen = ListenAddress::Tcp(listener.local_addr().unwrap());
        let _state = lock_state(place.path()).unwrap();
        let _name = lock_name(&config.name).unwrap();
        let grades = |config: &ShaperConfig| -> Vec<Grade> {
            let found = in_use(config);
            found.into_iter().map(|finding| finding.grade).collect()
        };
        assert_eq!(grades(&config), [Grade::Doubtful; 3]);
        drop((listener, _state, _name));
        assert_eq!(grades(&config), []);
        config.server.listen = "192.0.2.1:7402".parse().unwrap();
        assert_eq!(
            grades(&config),
            [Grade::Refused],
            "no address of this machine"
        );
        let file = place.path().join("file");
        std::fs::write(&file, "").unwrap();
        config.server.listen = ListenAddress::Unix(file.clone());
        assert_eq!(grades(&config), [Grade::Refused]);
        std::fs::remove_file(&file).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(&file).unwrap();
        assert_eq!(grades(&config), [Grade::Doubtful]);
    }

    #[test]
    fn a_socket_needs_its_directory() {
        let mut config = ShaperConfig::default();
        let root = tempfile::tempdir().unwrap();
        assert_eq!(listen(&config, root.path()), None);
        config.server.listen = "unix:/run/rdmesh/s.sock".parse().unwrap();
        let found = listen(&config, root.path()).unwrap();
        assert!(found.text.contains("/run/rdmesh;"), "{found:?}");
        std::fs::create_dir_all(root.path().join("run/rdmesh")).unwrap();
        assert_eq!(listen(&config, root.path()), None);
        config.server.listen = "0.0.0.0:7402".parse().unwrap();
        assert!(listen(&config, root.path()).is_some());
    }
}
