//! Names of Linux error numbers, as `asm-generic/errno*.h` and
//! `include/linux/errno.h` have them. The table is fixed, so that a workstation
//! with another kernel reads a Linux host's failures right.

use std::str::FromStr;

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
    NAMES
        .iter()
        .find(|(_, n)| *n == number)
        .map(|(name, _)| *name)
}

impl FromStr for Errno {
    type Err = ErrnoError;

    /// Reads `EFAULT`, `efault`, `14` and `-14`.
    fn from_str(text: &str) -> Result<Errno, ErrnoError> {
        let digits = text.strip_prefix('-').unwrap_or(text);
        let number = match digits.parse::<u32>() {
            Ok(number) => Some(number),
            Err(_) => NAMES
                .iter()
                .find(|(n, _)| n.eq_ignore_ascii_case(text))
                .map(|(_, n)| *n),
        };
        number
            .filter(|n| (1..=MAX_ERRNO).contains(n))
            .map(Errno)
            .ok_or_else(|| ErrnoError(text.to_owned()))
    }
}

/// First the name that is shown, then other names of the same number.
const NAMES: &[(&str, u32)] = &[
    ("EPERM", 1),
    ("ENOENT", 2),
    ("ESRCH", 3),
    ("EINTR", 4),
    ("EIO", 5),
    ("ENXIO", 6),
    ("E2BIG", 7),
    ("ENOEXEC", 8),
    ("EBADF", 9),
    ("ECHILD", 10),
    ("EAGAIN", 11),
    ("ENOMEM", 12),
    ("EACCES", 13),
    ("EFAULT", 14),
    ("ENOTBLK", 15),
    ("EBUSY", 16),
    ("EEXIST", 17),
    ("EXDEV", 18),
    ("ENODEV", 19),
    ("ENOTDIR", 20),
    ("EISDIR", 21),
    ("EINVAL", 22),
    ("ENFILE", 23),
    ("EMFILE", 24),
    ("ENOTTY", 25),
    ("ETXTBSY", 26),
    ("EFBIG", 27),
    ("ENOSPC", 28),
    ("ESPIPE", 29),
    ("EROFS", 30),
    ("EMLINK", 31),
    ("EPIPE", 32),
    ("EDOM", 33),
    ("ERANGE", 34),
    ("EDEADLK", 35),
    ("ENAMETOOLONG", 36),
    ("ENOLCK", 37),
    ("ENOSYS", 38),
    ("ENOTEMPTY", 39),
    ("ELOOP", 40),
    ("ENOMSG", 42),
    ("EIDRM", 43),
    ("ECHRNG", 44),
    ("EL2NSYNC", 45),
    ("EL3HLT", 46),
    ("EL3RST", 47),
    ("ELNRNG", 48),
    ("EUNATCH", 49),
    ("ENOCSI", 50),
    ("EL2HLT", 51),
    ("EBADE", 52),
    ("EBADR", 53),
    ("EXFULL", 54),
    ("ENOANO", 55),
    ("EBADRQC", 56),
    ("EBADSLT", 57),
    ("EBFONT", 59),
    ("ENOSTR", 60),
    ("ENODATA", 61),
    ("ETIME", 62),
    ("ENOSR", 63),
    ("ENONET", 64),
    ("ENOPKG", 65),
    ("EREMOTE", 66),
    ("ENOLINK", 67),
    ("EADV", 68),
    ("ESRMNT", 69),
    ("ECOMM", 70),
    ("EPROTO", 71),
    ("EMULTIHOP", 72),
    ("EDOTDOT", 73),
    ("EBADMSG", 74),
    ("EOVERFLOW", 75),
    ("ENOTUNIQ", 76),
    ("EBADFD", 77),
    ("EREMCHG", 78),
    ("ELIBACC", 79),
    ("ELIBBAD", 80),
    ("ELIBSCN", 81),
    ("ELIBMAX", 82),
    ("ELIBEXEC", 83),
    ("EILSEQ", 84),
    ("ERESTART", 85),
    ("ESTRPIPE", 86),
    ("EUSERS", 87),
    ("ENOTSOCK", 88),
    ("EDESTADDRREQ", 89),
    ("EMSGSIZE", 90),
    ("EPROTOTYPE", 91),
    ("ENOPROTOOPT", 92),
    ("EPROTONOSUPPORT", 93),
    ("ESOCKTNOSUPPORT", 94),
    ("EOPNOTSUPP", 95),
    ("EPFNOSUPPORT", 96),
    ("EAFNOSUPPORT", 97),
    ("EADDRINUSE", 98),
    ("EADDRNOTAVAIL", 99),
    ("ENETDOWN", 100),
    ("ENETUNREACH", 101),
    ("ENETRESET", 102),
    ("ECONNABORTED", 103),
    ("ECONNRESET", 104),
    ("ENOBUFS", 105),
    ("EISCONN", 106),
    ("ENOTCONN", 107),
    ("ESHUTDOWN", 108),
    ("ETOOMANYREFS", 109),
    ("ETIMEDOUT", 110),
    ("ECONNREFUSED", 111),
    ("EHOSTDOWN", 112),
    ("EHOSTUNREACH", 113),
    ("EALREADY", 114),
    ("EINPROGRESS", 115),
    ("ESTALE", 116),
    ("EUCLEAN", 117),
    ("ENOTNAM", 118),
    ("ENAVAIL", 119),
    ("EISNAM", 120),
    ("EREMOTEIO", 121),
    ("EDQUOT", 122),
    ("ENOMEDIUM", 123),
    ("EMEDIUMTYPE", 124),
    ("ECANCELED", 125),
    ("ENOKEY", 126),
    ("EKEYEXPIRED", 127),
    ("EKEYREVOKED", 128),
    ("EKEYREJECTED", 129),
    ("EOWNERDEAD", 130),
    ("ENOTRECOVERABLE", 131),
    ("ERFKILL", 132),
    ("ERESTARTSYS", 512),
    ("ERESTARTNOINTR", 513),
    ("ERESTARTNOHAND", 514),
    ("ENOIOCTLCMD", 515),
    ("ERESTART_RESTARTBLOCK", 516),
    ("EPROBE_DEFER", 517),
    ("EOPENSTALE", 518),
    ("ENOPARAM", 519),
    ("EBADHANDLE", 521),
    ("ENOTSYNC", 522),
    ("EBADCOOKIE", 523),
    ("ENOTSUPP", 524),
    ("ETOOSMALL", 525),
    ("ESERVERFAULT", 526),
    ("EBADTYPE", 527),
    ("EJUKEBOX", 528),
    ("EIOCBQUEUED", 529),
    ("ERECALLCONFLICT", 530),
    ("ENOGRACE", 531),
    ("EWOULDBLOCK", 11),
    ("EDEADLOCK", 35),
    ("ENOTSUP", 95),
];

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
