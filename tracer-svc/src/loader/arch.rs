//! Everything in the loader that differs between processors. The programs' part is
//! `bpf/arch.h`; build.rs chooses it.

/// Argument words that a function may have to be traced on any kernel: those that
/// are passed in registers. Newer kernels trace more (x86-64 from 6.6 on).
#[cfg(target_arch = "x86_64")]
pub(super) const REGISTER_ARGUMENTS: u32 = 6;

/// As above.
#[cfg(target_arch = "aarch64")]
pub(super) const REGISTER_ARGUMENTS: u32 = 8;

/// Offset of the register with a function's return value in `struct pt_regs`: rax.
#[cfg(target_arch = "x86_64")]
pub(super) const RETURN_REGISTER_OFFSET: i16 = 80;

/// As above: x0, in `struct user_pt_regs`.
#[cfg(target_arch = "aarch64")]
pub(super) const RETURN_REGISTER_OFFSET: i16 = 0;
