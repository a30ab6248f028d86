//! Where the service keeps its state and where it listens.

use std::path::{Path, PathBuf};

use rdmesh_services::server::ListenAddress;
use rustix::fs::{Access, access, statfs, statvfs};

use super::{Finding, Grade, finding};
use crate::config::ShaperConfig;
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
        return refused(format!("{}: {why}", there.display()));
    }
    if let Err(error) = StateFiles::at(&directory).load() {
        let text =
            format!("{error}; the service sets it aside and starts with the configured rates");
        return finding(Grade::Doubtful, text);
    }
    if statvfs(there).is_ok_and(|system| system.f_bavail == 0) {
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
