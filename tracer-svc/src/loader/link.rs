//! One attached program: the descriptors that hold it, and how it was attached.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use aya_obj::generated::bpf_insn;

use super::functions::FunctionTypes;
use super::perf::{self, At};
use super::sys::{self, Refusal, Target};
use crate::resolve::Mechanism;

/// What keeps a program attached. Dropping it takes the program off.
#[derive(Debug)]
pub(super) struct Link {
    _link: OwnedFd,
    /// For asking what the kernel counted of it.
    pub(super) program: OwnedFd,
    /// The number of the module when it was attached: a kretprobe does not keep its
    /// module from going, and then hangs in the air.
    pub(super) loaded: Option<u64>,
}

fn plain(error: std::io::Error) -> Refusal {
    Refusal {
        error,
        log: String::new(),
    }
}

/// At the exit of the function with this id in the BTF of a module.
pub(super) fn at_exit(
    name: &str,
    instructions: &[bpf_insn],
    functions: &FunctionTypes,
    (id, module): (u32, BorrowedFd<'_>),
    loaded: Option<u64>,
) -> Result<Link, Refusal> {
    let target = Target::Fexit(id, Some(module));
    let program = sys::load_program_of(name, instructions, functions, target)?;
    let link = sys::attach(program.as_fd()).map_err(plain)?;
    Ok(Link {
        _link: link,
        program,
        loaded,
    })
}

/// At the exit of a function of the kernel itself.
pub(super) fn at_kernel_exit(
    name: &str,
    instructions: &[bpf_insn],
    functions: &FunctionTypes,
    id: u32,
) -> Result<Link, Refusal> {
    let target = Target::Fexit(id, None);
    let program = sys::load_program_of(name, instructions, functions, target)?;
    let link = sys::attach(program.as_fd()).map_err(plain)?;
    Ok(Link {
        _link: link,
        program,
        loaded: None,
    })
}

/// Where a function begins, for a kretprobe.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beginning<'a> {
    pub(super) module: &'a str,
    pub(super) function: &'a str,
    /// None where the kernel hides addresses.
    pub(super) address: Option<u64>,
}

/// At the return of a function that has no BTF: by a link of several kretprobes,
/// which is the cheaper one, else by a perf event.
pub(super) fn at_return(
    of: Beginning<'_>,
    instructions: &[bpf_insn],
    functions: &FunctionTypes,
    loaded: Option<u64>,
) -> Result<(Link, Mechanism), Refusal> {
    if let Some(address) = of.address
        && let Ok(link) = by_link(of.function, address, instructions, functions, loaded)
    {
        return Ok((link, Mechanism::KretprobeMulti));
    }
    // With its module: other modules may have a function of this name.
    let name = format!("{}:{}", of.module, of.function);
    let at = of.address.map_or(At::Name(&name), At::Address);
    let program = sys::load_program_of(of.function, instructions, functions, Target::Kprobe)?;
    let link = perf::attach_kretprobe(at, program.as_fd()).map_err(plain)?;
    let link = Link {
        _link: link,
        program,
        loaded,
    };
    Ok((link, Mechanism::Kretprobe))
}

/// Not on every kernel: `CONFIG_FPROBE`, from 5.18 on.
fn by_link(
    name: &str,
    address: u64,
    instructions: &[bpf_insn],
    functions: &FunctionTypes,
    loaded: Option<u64>,
) -> Result<Link, Refusal> {
    let program = sys::load_program_of(name, instructions, functions, Target::KprobeMulti)?;
    let link = sys::attach_kretprobe_multi(address, program.as_fd()).map_err(plain)?;
    Ok(Link {
        _link: link,
        program,
        loaded,
    })
}
