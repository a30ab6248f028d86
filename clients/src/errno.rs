//! Names of Linux error numbers, as `asm-generic/errno*.h` and
//! `include/linux/errno.h` have them. The table is fixed, so that a workstation
//! with another kernel reads a Linux host's failures right.

use std::str::FromStr;

use rdmesh_proto::errno;
use serde::Serialize;

/// An error number of a Linux kernel: 1 to 4095 (`MAX_ERRNO`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Errno(u32);

/// Largest error number that a kernel function returns
/// (`MAX_ERRNO` in `include/linux/err.h`).
pub const MAX_ERRNO: u32 = 4_095;

/// Why a text is no error number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no error number; write a name such as EFAULT or a number from 1 to {MAX_ERRNO}")]
pub struct ErrnoError(String);

impl Errno {
    /// The number, positive.
    pub fn number(self) -> u32 {
        self.0
    }
}

/// The name of a number, where Linux has one.
pub fn name_of(number: u32) -> Option<&'static str> {
    i32::try_from(number).ok().and_then(errno::known_name)
}

impl FromStr for Errno {
    type Err = ErrnoError;

    /// Reads `EFAULT`, `efault`, `14` and `-14`.
    fn from_str(text: &str) -> Result<Errno, ErrnoError> {
        let digits = text.strip_prefix('-').unwrap_or(text);
        let number = match digits.parse::<u32>() {
            Ok(number) => Some(number),
            Err(_) => number_of(text),
        };
        number
            .filter(|n| (1..=MAX_ERRNO).contains(n))
            .map(Errno)
            .ok_or_else(|| ErrnoError(text.to_owned()))
    }
}

/// The number of a name, in any case.
fn number_of(text: &str) -> Option<u32> {
    let usual = errno::ERRNOS
        .iter()
        .map(|(number, name, _)| (*name, number.unsigned_abs()));
    usual
        .chain(OTHER_NAMES)
        .find(|(name, _)| name.eq_ignore_ascii_case(text))
        .map(|(_, number)| number)
}

/// Other names of numbers that have a usual one.
const OTHER_NAMES: [(&str, u32); 3] = [("EWOULDBLOCK", 11), ("EDEADLOCK", 35), ("ENOTSUP", 95)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_read() {
        for text in ["EFAULT", "efault", "14", "-14"] {
            assert_eq!(text.parse::<Errno>().unwrap().number(), 14, "{text}");
        }
        assert_eq!("ENOTSUPP".parse::<Errno>().unwrap().number(), 524);
        assert_eq!("EWOULDBLOCK".parse::<Errno>().unwrap().number(), 11);
    }

    #[test]
    fn refuses_what_is_no_error_number() {
        for text in ["", "0", "-0", "4096", "EWHAT", "-", "--14", "99999999999"] {
            assert!(text.parse::<Errno>().is_err(), "{text}");
        }
    }

    #[test]
    fn every_number_shows_its_usual_name() {
        assert_eq!(name_of(11), Some("EAGAIN"));
        assert_eq!(name_of(95), Some("EOPNOTSUPP"));
        assert_eq!(name_of(61), Some("ENODATA"));
        assert_eq!(name_of(41), None);
    }

    #[test]
    fn the_numbers_are_this_kernels_own() {
        // std speaks of the machine it runs on, which in CI is Linux.
        for (name, kind) in [
            ("ENOENT", std::io::ErrorKind::NotFound),
            ("EPERM", std::io::ErrorKind::PermissionDenied),
            ("ENOMEM", std::io::ErrorKind::OutOfMemory),
            ("ETIMEDOUT", std::io::ErrorKind::TimedOut),
        ] {
            let number = i32::try_from(name.parse::<Errno>().unwrap().number()).unwrap();
            assert_eq!(
                std::io::Error::from_raw_os_error(number).kind(),
                kind,
                "{name}"
            );
        }
    }
}
