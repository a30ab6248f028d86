//! A kprobe or kretprobe by perf_event_open(2): the older way of seeing a function
//! called or return.
//!
//! `struct perf_event_attr` is that of `include/uapi/linux/perf_event.h`, as far as
//! its first published version goes; a test compares it with the bindings of
//! aya-obj.
#![expect(
    unsafe_code,
    reason = "perf_event_open(2) takes a pointer, and nobody else's crate is at hand for it"
)]

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The kernel's kprobes as a perf event source.
const SOURCE: &str = "/sys/bus/event_source/devices/kprobe";
/// ioctl numbers of `include/uapi/linux/perf_event.h`.
const PERF_EVENT_IOC_ENABLE: libc::c_ulong = 0x2400;
const PERF_EVENT_IOC_SET_BPF: libc::c_ulong = 0x4004_2408;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;

/// The first version has 64 bytes; with `config1` and `config2` it has 72.
#[repr(C)]
#[derive(Default)]
struct EventAttr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    /// `kprobe_func`: address of the function's name; 0 where `config2` has the
    /// function's own address.
    config1: u64,
    /// `kprobe_addr`, or `probe_offset` behind a name.
    config2: u64,
}

/// A function, as a kretprobe finds it.
#[derive(Clone, Copy, Debug)]
pub(super) enum At<'a> {
    /// Its name, or `module:name` where other modules have one of this name.
    Name(&'a str),
    /// Where it starts, which tells functions of equal name apart.
    Address(u64),
}

/// Attaches a program to the return of a function. It ends with the descriptor.
pub(super) fn attach_kretprobe(at: At<'_>, program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let source = Source::read()?;
    let event = open(at, source.kind, source.at_return)?;
    control(&event, PERF_EVENT_IOC_SET_BPF, program.as_raw_fd())?;
    control(&event, PERF_EVENT_IOC_ENABLE, 0)?;
    Ok(event)
}

/// How the kernel numbers its kprobes as a source of events; read once for many.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    kind: u32,
    /// `config` of an event at the return.
    at_return: u64,
}

impl Source {
    /// Reads it.
    pub(super) fn read() -> io::Result<Self> {
        Ok(Self {
            kind: number("type", "")?,
            at_return: 1_u64 << number("format/retprobe", "config:")?,
        })
    }

    /// An event where the function at an address begins or returns; nothing runs there
    /// before a program is attached.
    pub(super) fn event(self, address: u64, is_return: bool) -> io::Result<OwnedFd> {
        let config = if is_return { self.at_return } else { 0 };
        open(At::Address(address), self.kind, config)
    }
}

fn open(at: At<'_>, kind: u32, config: u64) -> io::Result<OwnedFd> {
    let name = match at {
        At::Name(name) => Some(CString::new(name)?),
        At::Address(_) => None,
    };
    let mut attr = EventAttr {
        kind,
        size: u32::try_from(size_of::<EventAttr>()).unwrap_or(0),
        config,
        config1: name.as_ref().map_or(0, |name| name.as_ptr() as u64),
        config2: match at {
            At::Name(_) => 0,
            At::Address(address) => address,
        },
        ..EventAttr::default()
    };
    // SAFETY: `attr` and the name that it points to live through the call; pid -1
    // with a processor asks for that processor, and a probe fires on all of them.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::from_mut(&mut attr),
            -1,
            0,
            -1,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    let fd = libc::c_int::try_from(fd).unwrap_or(-1);
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just returned this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn control(event: &OwnedFd, request: libc::c_ulong, argument: libc::c_int) -> io::Result<()> {
    // SAFETY: both requests take a number.
    let answer = unsafe { libc::ioctl(event.as_raw_fd(), request, argument) };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// A number that sysfs tells of the source, behind a prefix.
fn number(file: &str, prefix: &str) -> io::Result<u32> {
    let path = format!("{SOURCE}/{file}");
    let text = fs::read_to_string(&path)?;
    let number = text.trim().strip_prefix(prefix).unwrap_or_default();
    number
        .parse()
        .map_err(|_| io::Error::other(format!("{path}: {text:?} is no number")))
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use aya_obj::generated::perf_event_attr;

    use super::*;

    #[test]
    fn the_event_is_laid_out_as_the_kernel_has_it() {
        assert_eq!(size_of::<EventAttr>(), 72);
        assert_eq!(
            offset_of!(EventAttr, kind),
            offset_of!(perf_event_attr, type_)
        );
        assert_eq!(
            offset_of!(EventAttr, size),
            offset_of!(perf_event_attr, size)
        );
        assert_eq!(
            offset_of!(EventAttr, config),
            offset_of!(perf_event_attr, config)
        );
        assert_eq!(
            offset_of!(EventAttr, read_format),
            offset_of!(perf_event_attr, read_format)
        );
        assert_eq!(
            offset_of!(EventAttr, bp_type),
            offset_of!(perf_event_attr, bp_type)
        );
        assert_eq!(
            offset_of!(EventAttr, config1),
            offset_of!(perf_event_attr, __bindgen_anon_3)
        );
        assert_eq!(
            offset_of!(EventAttr, config2),
            offset_of!(perf_event_attr, __bindgen_anon_4)
        );
    }
}
