//! What the running kernel allows tracing programs to do, tried out before any
//! probe is loaded.

use aya_obj::generated::bpf_insn;

use crate::btf::Types;

use super::entry::instruction;
use super::sys::{self, Refusal, Target};
use super::{LoadError, btf_error};

/// A function of the kernel that exists to be traced by BPF's own self-tests.
const TEST_FUNCTION: &[u8] = b"bpf_fentry_test1";

/// The newest helper of all that the probes use: `bpf_get_func_ret` of 5.17.
const NEWEST_HELPER: i32 = 184;

/// Loads (and does not attach) a small tracing program: some sandboxes refuse the
/// program type to root with every capability, and old kernels lack a helper.
pub(super) fn check_tracing(kernel: &Types<'_>) -> Result<(), LoadError> {
    let mut test = None;
    for function in kernel.own_functions() {
        let (name, id) = function.map_err(|error| btf_error("vmlinux", error))?;
        if name == TEST_FUNCTION {
            test = Some(id);
            break;
        }
    }
    // A kernel without the function says no later, hook by hook.
    let Some(test) = test else { return Ok(()) };
    sys::load_program("rdmesh_check", &newest_helper(), Target::Fexit(test, None))
        .map(drop)
        .map_err(|refusal| why(&refusal))
}

fn why(refusal: &Refusal) -> LoadError {
    match refusal.error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => LoadError::TracingRefused,
        _ if refusal.log.contains("func") => LoadError::KernelTooOld,
        _ => LoadError::Program(format!("{}: {}", refusal.error, refusal.log)),
    }
}

/// Calls the newest helper and returns 0.
fn newest_helper() -> [bpf_insn; 6] {
    let store_dw_k = 0x7a;
    let (mov, mov_k, add_k, call, exit) = (0xbf, 0xb7, 0x07, 0x85, 0x95);
    [
        // *(u64 *)(r10 - 8) = 0; r2 = r10 - 8
        instruction(store_dw_k, 10, 0, -8, 0),
        instruction(mov, 2, 10, 0, 0),
        instruction(add_k, 2, 0, 0, -8),
        instruction(call, 0, 0, 0, NEWEST_HELPER),
        instruction(mov_k, 0, 0, 0, 0),
        instruction(exit, 0, 0, 0, 0),
    ]
}
