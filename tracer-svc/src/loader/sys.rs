//! The bpf(2) calls that aya does not make: a program for a function of a
//! *module*, its attachment, a one-time run, and the list of BTFs.
//!
//! Layouts are those of `union bpf_attr` in `include/uapi/linux/bpf.h`; a test
//! compares them with the bindings of aya-obj.
#![expect(
    unsafe_code,
    reason = "bpf(2) takes pointers; every call of it is in this file"
)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use aya_obj::generated::bpf_insn;

use super::functions::{FunctionInfo, FunctionTypes};

mod programs;

pub(super) use programs::{
    attach_event, attach_kprobes, attach_kretprobe_multi, enable_statistics, figures_of,
};

const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_PROG_TEST_RUN: libc::c_int = 10;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const BPF_RAW_TRACEPOINT_OPEN: libc::c_int = 17;
const BPF_BTF_LOAD: libc::c_int = 18;
const BPF_BTF_GET_FD_BY_ID: libc::c_int = 19;
const BPF_BTF_GET_NEXT_ID: libc::c_int = 23;
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_ENABLE_STATS: libc::c_int = 32;

const BPF_PROG_TYPE_KPROBE: u32 = 2;
const BPF_PROG_TYPE_RAW_TRACEPOINT: u32 = 17;
const BPF_PROG_TYPE_TRACING: u32 = 26;
const BPF_TRACE_FEXIT: u32 = 25;
const BPF_PERF_EVENT: u32 = 41;
const BPF_TRACE_KPROBE_MULTI: u32 = 42;

/// As in the program's source.
const LICENSE: &std::ffi::CStr = c"Dual BSD/GPL";
/// Room for the verifier's log. Its end holds the reason; a longer log is cut by
/// the kernel, so this is well above what 3,300 instructions produce at level 1.
const LOG_BYTES: usize = 1 << 20;
/// Lines of the log that go into an error.
const LOG_TAIL_LINES: usize = 2;

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
    prog_btf_fd: u32,
    func_info_rec_size: u32,
    func_info: u64,
    func_info_cnt: u32,
    line_info_rec_size: u32,
    line_info: u64,
    line_info_cnt: u32,
    attach_btf_id: u32,
    attach_btf_obj_fd: u32,
    core_relo_cnt: u32,
}

#[repr(C)]
#[derive(Default)]
struct TestRun {
    prog_fd: u32,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    ctx_size_in: u32,
    ctx_size_out: u32,
    ctx_in: u64,
    ctx_out: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    pad: u32,
}

#[repr(C)]
#[derive(Default)]
struct RawTracepointOpen {
    name: u64,
    prog_fd: u32,
    pad: u32,
    cookie: u64,
}

#[repr(C)]
#[derive(Default)]
struct BtfLoad {
    btf: u64,
    log_buf: u64,
    size: u32,
    log_size: u32,
    log_level: u32,
    pad: u32,
}

#[repr(C)]
#[derive(Default)]
struct GetId {
    id: u32,
    next_id: u32,
    open_flags: u32,
}

#[repr(C)]
struct Info {
    bpf_fd: u32,
    info_len: u32,
    info: u64,
}

#[repr(C)]
#[derive(Default)]
struct BtfInfo {
    btf: u64,
    btf_size: u32,
    id: u32,
    name: u64,
    name_len: u32,
    kernel_btf: u32,
}

/// The kernel refused a program.
#[derive(Debug)]
pub(super) struct Refusal {
    /// Why.
    pub(super) error: io::Error,
    /// End of the verifier's log, empty when it had nothing to say.
    pub(super) log: String,
}

/// What a program is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target<'a> {
    /// Run at the exit of a kernel function: its id in the BTF of the kernel
    /// (`None`) or of a module.
    Fexit(u32, Option<BorrowedFd<'a>>),
    /// Run once by [`run_once`].
    RawTracepoint,
    /// Run where a kprobe is hit; attached by a perf event.
    Kprobe,
    /// Run where one of a link's kprobes is hit.
    KprobeMulti,
}

/// One bpf(2) call. The result is a descriptor or 0.
fn bpf<T>(command: libc::c_int, attr: &mut T) -> io::Result<libc::c_int> {
    // SAFETY: `attr` is one of the structs above, which have no padding that is
    // not zeroed, and the size handed over is its own; the kernel reads and
    // writes within it and through the pointers that the callers below keep
    // alive for the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_mut(attr),
            size_of::<T>(),
        )
    };
    match libc::c_int::try_from(result) {
        Ok(result) if result >= 0 => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}

fn bpf_fd<T>(command: libc::c_int, attr: &mut T) -> io::Result<OwnedFd> {
    let fd = bpf(command, attr)?;
    // SAFETY: the commands that come here return a new descriptor that nobody
    // else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn raw(fd: BorrowedFd<'_>) -> u32 {
    // A descriptor is never negative.
    fd.as_raw_fd().unsigned_abs()
}

fn address<T: ?Sized>(of: &T) -> u64 {
    std::ptr::from_ref(of).cast::<u8>() as u64
}

fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// Gives the kernel a BTF of ours.
pub(super) fn load_btf(bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut attr = BtfLoad {
        btf: address(bytes),
        size: count(bytes.len()),
        ..BtfLoad::default()
    };
    bpf_fd(BPF_BTF_LOAD, &mut attr)
}

/// Loads a program of one function.
pub(super) fn load_program(
    name: &str,
    instructions: &[bpf_insn],
    target: Target<'_>,
) -> Result<OwnedFd, Refusal> {
    load(name, instructions, &ProgLoad::default(), target)
}

/// Loads a program whose functions are told to the kernel.
pub(super) fn load_program_of(
    name: &str,
    instructions: &[bpf_insn],
    functions: &FunctionTypes,
    target: Target<'_>,
) -> Result<OwnedFd, Refusal> {
    let rows = functions.rows(instructions);
    let attr = ProgLoad {
        prog_btf_fd: raw(functions.fd.as_fd()),
        func_info_rec_size: count(size_of::<FunctionInfo>()),
        func_info: address(rows.as_slice()),
        func_info_cnt: count(rows.len()),
        ..ProgLoad::default()
    };
    load(name, instructions, &attr, target)
}

/// On refusal it is tried once more for the verifier's log. What `attr` points to
/// is alive.
fn load(
    name: &str,
    instructions: &[bpf_insn],
    attr: &ProgLoad,
    target: Target<'_>,
) -> Result<OwnedFd, Refusal> {
    let mut attr = ProgLoad {
        insn_cnt: count(instructions.len()),
        insns: address(instructions),
        license: LICENSE.as_ptr() as u64,
        prog_name: program_name(name),
        ..*attr
    };
    match target {
        Target::Fexit(id, module) => {
            attr.prog_type = BPF_PROG_TYPE_TRACING;
            attr.expected_attach_type = BPF_TRACE_FEXIT;
            attr.attach_btf_id = id;
            attr.attach_btf_obj_fd = module.map_or(0, raw);
        }
        Target::RawTracepoint => attr.prog_type = BPF_PROG_TYPE_RAW_TRACEPOINT,
        Target::Kprobe => attr.prog_type = BPF_PROG_TYPE_KPROBE,
        Target::KprobeMulti => {
            attr.prog_type = BPF_PROG_TYPE_KPROBE;
            attr.expected_attach_type = BPF_TRACE_KPROBE_MULTI;
        }
    }
    let error = match bpf_fd(BPF_PROG_LOAD, &mut attr) {
        Ok(fd) => return Ok(fd),
        Err(error) => error,
    };
    let mut log = vec![0_u8; LOG_BYTES];
    attr.log_level = 1;
    attr.log_size = count(log.len());
    attr.log_buf = log.as_mut_ptr() as u64;
    if let Ok(fd) = bpf_fd(BPF_PROG_LOAD, &mut attr) {
        return Ok(fd);
    }
    Err(Refusal {
        error,
        log: tail(&log),
    })
}

/// Names may hold letters, digits, `_` and `.`, 15 of them.
fn program_name(name: &str) -> [u8; 16] {
    let mut out = [0; 16];
    for (to, from) in out.iter_mut().take(15).zip(name.bytes()) {
        *to = if from.is_ascii_alphanumeric() {
            from
        } else {
            b'_'
        };
    }
    out
}

/// The last lines that are no statistics: the instruction and what is wrong with
/// it.
fn tail(log: &[u8]) -> String {
    let end = log.iter().position(|b| *b == 0).unwrap_or(log.len());
    let text = String::from_utf8_lossy(&log[..end]);
    let mut lines: Vec<&str> = text
        .lines()
        .rev()
        .filter(|line| !line.starts_with("processed ") && !line.trim().is_empty())
        .take(LOG_TAIL_LINES)
        .map(|line| line.split("  ").next().unwrap_or(line))
        .collect();
    lines.reverse();
    lines.join("; ")
}

/// Attaches a tracing program to the function it was loaded for. The link ends
/// with the descriptor.
pub(super) fn attach(program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    bpf_fd(
        BPF_RAW_TRACEPOINT_OPEN,
        &mut RawTracepointOpen {
            prog_fd: raw(program),
            ..RawTracepointOpen::default()
        },
    )
}

/// Runs a raw tracepoint program once with one argument; gives its result.
pub(super) fn run_once(program: BorrowedFd<'_>, argument: u64) -> io::Result<u32> {
    let context = [argument];
    let mut attr = TestRun {
        prog_fd: raw(program),
        ctx_size_in: count(size_of_val(&context)),
        ctx_in: address(&context),
        ..TestRun::default()
    };
    bpf(BPF_PROG_TEST_RUN, &mut attr)?;
    Ok(attr.retval)
}

/// The kernel's own description of one module's types.
#[derive(Debug)]
pub(super) struct KernelBtf {
    /// Module name; `vmlinux` for the kernel.
    pub(super) name: String,
    /// Keeps it alive, and names it when loading a program.
    pub(super) fd: OwnedFd,
}

/// All kernel BTFs, in the order of their ids.
pub(super) fn kernel_btfs() -> io::Result<Vec<KernelBtf>> {
    let mut out = Vec::new();
    let mut next = GetId::default();
    loop {
        if let Err(error) = bpf(BPF_BTF_GET_NEXT_ID, &mut next) {
            return match error.raw_os_error() {
                Some(libc::ENOENT) => Ok(out),
                _ => Err(error),
            };
        }
        let mut by_id = GetId {
            id: next.next_id,
            ..GetId::default()
        };
        next.id = next.next_id;
        let fd = match bpf_fd(BPF_BTF_GET_FD_BY_ID, &mut by_id) {
            Ok(fd) => fd,
            // Gone since its id was listed.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => continue,
            Err(error) => return Err(error),
        };
        if let Some(name) = kernel_btf_name(&fd)? {
            out.push(KernelBtf { name, fd });
        }
    }
}

/// Name of a kernel BTF; none for the BTF of somebody's program.
fn kernel_btf_name(fd: &OwnedFd) -> io::Result<Option<String>> {
    // MODULE_NAME_LEN is 56.
    let mut name = [0_u8; 64];
    let mut info = BtfInfo {
        name: name.as_mut_ptr() as u64,
        name_len: count(name.len()),
        ..BtfInfo::default()
    };
    let mut attr = Info {
        bpf_fd: fd.as_raw_fd().unsigned_abs(),
        info_len: count(size_of::<BtfInfo>()),
        info: std::ptr::from_mut(&mut info) as u64,
    };
    bpf(BPF_OBJ_GET_INFO_BY_FD, &mut attr)?;
    if info.kernel_btf == 0 {
        return Ok(None);
    }
    let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
    Ok(Some(String::from_utf8_lossy(&name[..end]).into_owned()))
}

/// Gives freed memory back to the system: reading the kernel's types takes some
/// megabytes for a moment, and the tracer is to stay small.
pub(super) fn return_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes a number and touches only free memory.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use aya_obj::generated::{bpf_attr, bpf_attr__bindgen_ty_4};

    use super::*;

    #[test]
    fn the_load_attributes_are_laid_out_as_the_kernel_has_them() {
        assert_eq!(offset_of!(ProgLoad, attach_btf_id), 108);
        assert_eq!(offset_of!(ProgLoad, attach_btf_obj_fd), 112);
        assert_eq!(
            offset_of!(ProgLoad, expected_attach_type),
            offset_of!(bpf_attr__bindgen_ty_4, expected_attach_type)
        );
        assert_eq!(
            offset_of!(ProgLoad, line_info_cnt),
            offset_of!(bpf_attr__bindgen_ty_4, line_info_cnt)
        );
        assert_eq!(
            offset_of!(ProgLoad, attach_btf_id),
            offset_of!(bpf_attr__bindgen_ty_4, attach_btf_id)
        );
        assert!(size_of::<ProgLoad>() <= size_of::<bpf_attr>());
        assert_eq!(offset_of!(TestRun, ctx_in), 48);
        assert_eq!(offset_of!(BtfInfo, kernel_btf), 28);
    }

    #[test]
    fn a_program_name_has_only_allowed_characters() {
        let name = program_name("ib-umem get_something_long");
        assert_eq!(&name, b"ib_umem_get_som\0");
    }

    #[test]
    fn the_reason_of_a_refusal_is_the_end_of_the_log() {
        let mut log =
            b"0: (b7) r0 = 0\n1: (85) call 7     ; frame1: R0=1\ninvalid func 7\n".to_vec();
        log.extend_from_slice(b"processed 2 insns\n\0\0\0");
        assert_eq!(tail(&log), "1: (85) call 7; invalid func 7");
    }
}
