//! What the kernel tells of a loaded program, and kprobes by a link.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use super::{
    BPF_ENABLE_STATS, BPF_LINK_CREATE, BPF_OBJ_GET_INFO_BY_FD, BPF_PERF_EVENT,
    BPF_TRACE_KPROBE_MULTI, Info, address, bpf, bpf_fd, count, raw,
};
use crate::counters::RunTime;

/// `BPF_STATS_RUN_TIME`, the only kind of statistics.
const STATS_RUN_TIME: u32 = 0;
/// `BPF_F_KPROBE_MULTI_RETURN`
const RETURN: u32 = 1;

/// Bytes of `struct bpf_prog_info` that are asked for.
const INFO_BYTES: usize = 224;
/// Offsets in `struct bpf_prog_info`.
const RUN_TIME_NS: usize = 192;
const RUN_COUNT: usize = 200;
const RECURSION_MISSES: usize = 208;

#[repr(C)]
#[derive(Default)]
struct EnableStats {
    kind: u32,
}

#[repr(C)]
#[derive(Default)]
struct LinkCreate {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    multi_flags: u32,
    multi_count: u32,
    multi_symbols: u64,
    multi_addresses: u64,
    multi_cookies: u64,
}

/// The same call for one perf event; the cookie stands where the flags of several
/// kprobes do.
#[repr(C)]
#[derive(Default)]
struct LinkEvent {
    prog_fd: u32,
    event_fd: u32,
    attach_type: u32,
    flags: u32,
    cookie: u64,
}

/// What the kernel counted of one program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::loader) struct ProgramFigures {
    /// While statistics were on.
    pub(in crate::loader) run_time: RunTime,
    /// How often the kernel did not run it, because another task was preempted
    /// inside it on the same processor (`recursion_misses`).
    pub(in crate::loader) missed: u64,
}

/// Asks for them; three numbers of `struct bpf_prog_info`.
pub(in crate::loader) fn figures_of(program: BorrowedFd<'_>) -> io::Result<ProgramFigures> {
    let mut out = [0_u8; INFO_BYTES];
    let mut attr = Info {
        bpf_fd: raw(program),
        info_len: count(INFO_BYTES),
        info: out.as_mut_ptr() as u64,
    };
    bpf(BPF_OBJ_GET_INFO_BY_FD, &mut attr)?;
    let word = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&out[at..at + 8]);
        u64::from_ne_bytes(word)
    };
    Ok(ProgramFigures {
        run_time: RunTime {
            runs: word(RUN_COUNT),
            ns: word(RUN_TIME_NS),
        },
        missed: word(RECURSION_MISSES),
    })
}

/// Lets the kernel count and time every program of the host, until the descriptor
/// is closed: also by the end of the process.
pub(in crate::loader) fn enable_statistics() -> io::Result<OwnedFd> {
    let mut attr = EnableStats {
        kind: STATS_RUN_TIME,
    };
    bpf_fd(BPF_ENABLE_STATS, &mut attr)
}

/// Attaches a program to the return of the function at an address. It ends with
/// the descriptor.
pub(in crate::loader) fn attach_kretprobe_multi(
    at: u64,
    program: BorrowedFd<'_>,
) -> io::Result<OwnedFd> {
    attach_kprobes(&[at], &[0], true, program)
}

/// Attaches a program to the beginning or the return of the functions at these
/// addresses; it reads the cookie of the same place. It ends with the descriptor.
pub(in crate::loader) fn attach_kprobes(
    at: &[u64],
    cookies: &[u64],
    is_return: bool,
    program: BorrowedFd<'_>,
) -> io::Result<OwnedFd> {
    if at.len() != cookies.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut attr = LinkCreate {
        prog_fd: raw(program),
        attach_type: BPF_TRACE_KPROBE_MULTI,
        multi_flags: if is_return { RETURN } else { 0 },
        multi_count: count(at.len()),
        multi_addresses: address(at),
        multi_cookies: address(cookies),
        ..LinkCreate::default()
    };
    bpf_fd(BPF_LINK_CREATE, &mut attr)
}

/// Attaches a program to a perf event, and reads this cookie there. The link keeps the
/// event, and ends with the descriptor. From 5.15 on.
pub(in crate::loader) fn attach_event(
    event: BorrowedFd<'_>,
    cookie: u64,
    program: BorrowedFd<'_>,
) -> io::Result<OwnedFd> {
    let mut attr = LinkEvent {
        prog_fd: raw(program),
        event_fd: raw(event),
        attach_type: BPF_PERF_EVENT,
        cookie,
        ..LinkEvent::default()
    };
    bpf_fd(BPF_LINK_CREATE, &mut attr)
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use aya_obj::generated::{bpf_attach_type, bpf_cmd, bpf_prog_info, bpf_stats_type};

    use super::*;

    #[test]
    fn what_is_read_of_a_program_stands_where_the_kernel_has_it() {
        assert_eq!(offset_of!(bpf_prog_info, run_time_ns), RUN_TIME_NS);
        assert_eq!(offset_of!(bpf_prog_info, run_cnt), RUN_COUNT);
        assert_eq!(
            offset_of!(bpf_prog_info, recursion_misses),
            RECURSION_MISSES
        );
    }

    #[test]
    fn numbers_of_calls_are_the_kernels() {
        assert_eq!(bpf_cmd::BPF_LINK_CREATE as i32, BPF_LINK_CREATE);
        assert_eq!(bpf_cmd::BPF_ENABLE_STATS as i32, BPF_ENABLE_STATS);
        assert_eq!(bpf_stats_type::BPF_STATS_RUN_TIME as u32, STATS_RUN_TIME);
        assert_eq!(
            bpf_attach_type::BPF_TRACE_KPROBE_MULTI as u32,
            BPF_TRACE_KPROBE_MULTI
        );
        assert_eq!(bpf_attach_type::BPF_PERF_EVENT as u32, BPF_PERF_EVENT);
        // `perf_event.bpf_cookie` in the union of BPF_LINK_CREATE.
        assert_eq!(offset_of!(LinkEvent, cookie), 16);
        assert_eq!(size_of::<LinkEvent>(), 24);
        // `kprobe_multi` in the same. of BPF_LINK_CREATE.
        assert_eq!(offset_of!(LinkCreate, multi_flags), 16);
        assert_eq!(offset_of!(LinkCreate, multi_addresses), 32);
        assert_eq!(size_of::<LinkCreate>(), 48);
    }
}
