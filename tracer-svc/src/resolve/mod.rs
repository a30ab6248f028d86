//! Catalogue × running kernel → plan: which function serves each hook, how it is
//! reached, and why a hook is missing.
//!
//! A pure function of [`KernelView`]: nothing here reads a file or the kernel.

mod chosen;
mod plan;
mod report;
mod symbols;
mod tables;

pub use chosen::{Chosen, ChosenHook, checked_text, extend, is_checked};
pub use plan::{KernelView, ModuleView, Plan, Planned, resolve};
pub use report::{HookReport, HookState, Report};
pub use symbols::{Symbol, Symbols};
pub use tables::{DriverFunction, ReadKernel, find_by_name, find_by_prototype, find_tables};

use crate::arguments::Readable;
use crate::catalogue::{Hook, Role};
use crate::record::ProbeId;

/// How the function behind a hook was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Found {
    /// The catalogue names it.
    Name,
    /// The driver's `ib_device_ops` table in kernel memory points to it.
    OpsTable,
    /// Its prototype is that of the operation and its name ends like it; used
    /// where the table cannot be read.
    Prototype,
    /// Its name ends like the operation; used where the table cannot be read and
    /// the driver has no BTF.
    Symbol,
}

/// How a probe is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mechanism {
    /// A BPF trampoline on the function's exit.
    Fexit,
    /// A kretprobe of a perf event, where a trampoline cannot be.
    Kretprobe,
    /// The same by a link of kretprobes, where the kernel has such.
    KretprobeMulti,
}

/// Why a function is not hooked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// The module is not loaded; it is attached when it appears.
    #[error("module {0} is not loaded")]
    ModuleNotLoaded(String),
    /// No RDMA driver is loaded.
    #[error("no RDMA driver is loaded")]
    NoDriver,
    /// The loaded module has no such function.
    #[error("{module} has no function {function}")]
    NoFunction {
        /// Kernel module.
        module: String,
        /// Function name.
        function: String,
    },
    /// The function exists only inlined or as a suffixed copy.
    #[error("{function} was inlined or split by the compiler ({symbol})")]
    Suffixed {
        /// Function name.
        function: String,
        /// The symbol that is there.
        symbol: String,
    },
    /// The function is there, but the module's BTF does not describe it: the
    /// compiler changed how it takes its arguments.
    #[error("the BTF of the module does not describe {0}")]
    NotDescribed(String),
    /// The module carries no BTF (out-of-tree builds usually skip it).
    #[error("module {0} has no BTF")]
    NoBtf(String),
    /// The module's BTF cannot be used: of a newer kind, or of another kernel.
    #[error("the BTF of module {module} cannot be used ({error})")]
    BrokenBtf {
        /// Kernel module.
        module: String,
        /// What is wrong with it.
        error: String,
    },
    /// ftrace does not list the function, so that nothing can be attached.
    #[error("{0} is not traceable (not in available_filter_functions)")]
    NotTraceable(String),
    /// Two functions of the module have this name: which of them the kernel would
    /// hook cannot be told.
    #[error("{module} has several functions called {function}")]
    Ambiguous {
        /// Kernel module.
        module: String,
        /// Function name.
        function: String,
    },
    /// The driver does not have the operation.
    #[error("driver {module} has no operation {operation}")]
    NoOperation {
        /// Kernel module.
        module: String,
        /// Member of `struct ib_device_ops`.
        operation: String,
    },
    /// The function returns nothing.
    #[error("{0} returns nothing that tells a failure")]
    NoReturnValue(String),
    /// The kernel refused the program or its attachment.
    #[error("the kernel refused {function}: {reason}")]
    Refused {
        /// Function name.
        function: String,
        /// Positive errno.
        errno: i32,
        /// The errno's meaning here, or the end of the verifier's log.
        reason: String,
    },
    /// Taken off by request, so that the module can be unloaded.
    #[error("detached from {0} by request")]
    Detached(String),
    /// Everything was taken off because the tracer cost its host too much.
    #[error("detached: budget passed ({0})")]
    BudgetPassed(String),
}

/// State of one probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeState {
    /// Planned, not yet tried.
    Planned,
    /// Working.
    Attached(Mechanism),
    /// Not working.
    Missing(Missing),
}

/// One kernel function that serves a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Number in records and counters.
    pub id: ProbeId,
    /// The hook it serves, with this function's own depth.
    pub hook: Hook,
    /// Kernel module, `vmlinux` when built in.
    pub module: String,
    /// Function name.
    pub function: String,
    /// How it was found.
    pub found: Found,
    /// As which of the hook's places.
    pub role: Role,
    /// Attached or why not.
    pub state: ProbeState,
    /// Where a kretprobe serves: why no fexit program does.
    pub not_by_fexit: Option<Missing>,
    /// It is a single kretprobe, where a link of them would be cheaper, because the kernel
    /// hides the addresses of functions (`kernel.kptr_restrict`).
    pub address_hidden: bool,
    /// What its records tell of the call's arguments, and why the rest is absent.
    pub arguments: Vec<Readable>,
}

impl Probe {
    /// Why it is attached the way it is, where there is a better one.
    #[must_use]
    pub fn not_better(&self) -> Option<String> {
        let no_fexit = self.not_by_fexit.as_ref()?;
        let hidden = match self.address_hidden {
            true => "; no kretprobe.multi: the kernel hides addresses (kernel.kptr_restrict)",
            false => "",
        };
        Some(format!("no fexit: {no_fexit}{hidden}"))
    }
}

#[cfg(test)]
mod tests;
