//! Who this machine is: name, boot, clocks.

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rdmesh_proto::common::v1::ClockPair;
use rustix::time::{ClockId, clock_gettime};

/// Longest host name that the collector takes, bytes (RFC 1035: 253 in text form).
pub const MAX_HOST_NAME_BYTES: usize = 253;

/// Where Linux tells the random id of this boot.
const BOOT_ID_PATH: &str = "/proc/sys/kernel/random/boot_id";

/// Why the machine could not be named.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The name is empty, too long, or has bytes that no scheduler uses.
    #[error(
        "host name {name:?} cannot be used: {why}; set `host` in the configuration to the name \
         that the scheduler uses for this machine"
    )]
    Name {
        /// The name that was found or configured.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The boot id could not be read.
    #[error("cannot read the boot id from {path}: {source}; is /proc mounted?")]
    BootId {
        /// The file.
        path: String,
        /// What the kernel said.
        source: std::io::Error,
    },
}

/// The host's name as schedulers know it: `configured` when it is not empty,
/// else what `uname` says, unchanged.
///
/// # Errors
/// [`HostError::Name`] when the name is empty, longer than
/// [`MAX_HOST_NAME_BYTES`], or has spaces, `/` or control characters.
pub fn host_name(configured: &str) -> Result<String, HostError> {
    let name = if configured.is_empty() {
        rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned()
    } else {
        configured.to_owned()
    };
    let why = if name.is_empty() || name == "(none)" {
        "it is empty"
    } else if name.len() > MAX_HOST_NAME_BYTES {
        "it is longer than 253 bytes"
    } else if name
        .chars()
        .any(|c| c.is_control() || c.is_whitespace() || c == '/')
    {
        "it has a space, a slash or a control character"
    } else {
        return Ok(name);
    };
    Err(HostError::Name { name, why })
}

/// The random id of this boot (`/proc/sys/kernel/random/boot_id`).
///
/// # Errors
/// [`HostError::BootId`] when `/proc` does not have it.
pub fn boot_id() -> Result<String, HostError> {
    boot_id_at(Path::new(BOOT_ID_PATH))
}

fn boot_id_at(path: &Path) -> Result<String, HostError> {
    fs::read_to_string(path)
        .map(|text| text.trim().to_owned())
        .map_err(|source| HostError::BootId {
            path: path.display().to_string(),
            source,
        })
}

/// CLOCK_BOOTTIME and CLOCK_REALTIME, read one right after the other.
#[must_use]
pub fn clock_pair() -> ClockPair {
    let boot = clock_gettime(ClockId::Boottime);
    let real = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    ClockPair {
        boottime_ns: nanoseconds(boot.tv_sec, boot.tv_nsec),
        realtime_ns: u64::try_from(real.as_nanos()).unwrap_or(u64::MAX),
    }
}

fn nanoseconds(seconds: i64, nanoseconds: i64) -> u64 {
    let seconds = u64::try_from(seconds).unwrap_or(0);
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::try_from(nanoseconds).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configured_name_wins() {
        assert_eq!(host_name("gpu-17").unwrap(), "gpu-17");
    }

    #[test]
    fn without_a_configured_name_the_kernel_is_asked() {
        let name = host_name("").unwrap();
        let kernel = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        assert_eq!(name, kernel.trim());
    }

    #[test]
    fn names_that_no_scheduler_uses_are_refused() {
        for bad in ["a b", "a/b", "a\nb", &"x".repeat(254)] {
            let message = host_name(bad).unwrap_err().to_string();
            assert!(message.contains("set `host`"), "{message}");
        }
    }

    #[test]
    fn the_boot_id_is_a_uuid() {
        let id = boot_id().unwrap();
        assert!(uuid::Uuid::parse_str(&id).is_ok(), "{id}");
    }

    #[test]
    fn a_missing_boot_id_names_the_file() {
        let message = boot_id_at(Path::new("/nonexistent/boot_id"))
            .unwrap_err()
            .to_string();
        assert!(message.contains("/nonexistent/boot_id"), "{message}");
    }

    #[test]
    fn both_clocks_run() {
        let first = clock_pair();
        let second = clock_pair();
        assert!(first.boottime_ns > 0 && second.boottime_ns >= first.boottime_ns);
        assert!(first.realtime_ns > 1_600_000_000_000_000_000);
    }
}
