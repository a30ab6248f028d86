//! One service per device and per state directory: abstract Unix sockets, which the
//! kernel frees when the process ends in whatever way, and which are separate in each
//! network namespace, as interfaces are.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;

/// Longest name that is used as it is, bytes; `sun_path` has 108.
const MAX_NAME_BYTES: usize = 80;

/// Somebody else has it.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another service.
    #[error("{what} is in use by another shaper: stop it first (`ss -xlp | grep rdmesh-shaper`)")]
    Taken {
        /// What.
        what: String,
    },
    /// Another service of this machine reports under the same name.
    #[error(
        "another shaper of this machine has the name {name}: set `name`, a name of its own for \
         each, since the collector tells them apart by it"
    )]
    NameTaken {
        /// The name.
        name: String,
    },
    /// The system refuses.
    #[error("cannot lock {what}: {source}")]
    Io {
        /// What.
        what: String,
        /// What the system said.
        source: io::Error,
    },
}

/// Held until it is dropped.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "held for its name")] UnixDatagram);

fn lock(kind: &str, name: &str, what: String) -> Result<Lock, LockError> {
    let tail = name.len().saturating_sub(MAX_NAME_BYTES);
    let full = [
        b"rdmesh-shaper/",
        kind.as_bytes(),
        b"/",
        &name.as_bytes()[tail..],
    ]
    .concat();
    let bound = SocketAddr::from_abstract_name(full).and_then(|at| UnixDatagram::bind_addr(&at));
    bound.map(Lock).map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => LockError::Taken { what },
        _ => LockError::Io { what, source },
    })
}

/// Locks a state directory.
///
/// # Errors
/// [`LockError`].
pub fn lock_state(directory: &Path) -> Result<Lock, LockError> {
    let name = directory
        .canonicalize()
        .unwrap_or_else(|_| directory.to_owned());
    let name = name.to_string_lossy();
    lock("state", &name, format!("state directory {name}"))
}

/// Locks the name under which a service reports.
///
/// # Errors
/// [`LockError`].
pub fn lock_name(name: &str) -> Result<Lock, LockError> {
    lock("name", name, format!("name {name}")).map_err(|error| match error {
        LockError::Taken { .. } => LockError::NameTaken {
            name: name.to_owned(),
        },
        other => other,
    })
}

/// Locks what stands behind each device: a PCI address, or the interface that a
/// device without a bus names. Devices with nothing behind them need no lock.
///
/// # Errors
/// [`LockError`].
pub fn lock_devices(devices: &[String]) -> Result<Vec<Lock>, LockError> {
    let behind = devices.iter().filter_map(|device| behind(device));
    behind
        .map(|name| lock("device", name, format!("device {name}")))
        .collect()
}

fn behind(device: &str) -> Option<&str> {
    let interface = device
        .split(',')
        .find_map(|part| part.strip_prefix("iface="));
    let address = device.split(',').next().filter(|name| name.contains(':'));
    interface.or(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_one_service() {
        let device = |name: &str| vec![format!("net_af_packet0,iface={name},qdisc_bypass=0")];
        let unique = format!("test{}", std::process::id());
        let held = lock_devices(&device(&unique)).unwrap();
        let error = lock_devices(&device(&unique)).unwrap_err();
        assert!(error.to_string().contains(&unique), "{error}");
        drop(held);
        assert!(lock_devices(&device(&unique)).is_ok());
    }

    #[test]
    fn a_name_has_one_service_of_a_machine() {
        let name = format!("dpu-{}", std::process::id());
        let held = lock_name(&name).unwrap();
        let error = lock_name(&name).unwrap_err().to_string();
        assert!(
            error.contains("set `name`") && error.contains(&name),
            "{error}"
        );
        assert!(lock_name(&format!("{name}-b")).is_ok());
        drop(held);
        assert!(lock_name(&name).is_ok());
    }

    #[test]
    fn what_stands_behind_a_device_is_found() {
        assert_eq!(behind("net_af_packet0,iface=veth0"), Some("veth0"));
        assert_eq!(
            behind("0000:03:00.0,representor=vf[0-1]"),
            Some("0000:03:00.0")
        );
        assert_eq!(behind("net_null0,size=64"), None);
    }

    #[test]
    fn a_state_directory_has_one_service() {
        let directory = tempfile::tempdir().unwrap();
        let _held = lock_state(directory.path()).unwrap();
        assert!(matches!(
            lock_state(directory.path()),
            Err(LockError::Taken { .. })
        ));
    }
}
