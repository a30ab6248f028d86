//! What stops the tracer from starting, with what to do about it.

/// The tracer cannot load its programs on this host. Each message says what to
/// do next; [`LoadError::exit_code`] is what `tracer-svc` exits with.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Not root, or root without a capability.
    #[error(
        "the tracer lacks {missing}: run it as root, or give its unit \
         AmbientCapabilities=CAP_SYS_ADMIN CAP_SYSLOG CAP_SYS_PTRACE"
    )]
    Capability {
        /// Names of the missing capabilities.
        missing: String,
    },
    /// The kernel describes no types.
    #[error(
        "this kernel has no BTF (/sys/kernel/btf/vmlinux is missing): use a kernel built with \
         CONFIG_DEBUG_INFO_BTF=y, as those of Debian 12, Ubuntu 22.04 and RHEL 9 are"
    )]
    NoBtf,
    /// Tracing programs are refused although every capability is there.
    #[error(
        "this kernel refuses BPF tracing programs to a process with every capability \
         (EPERM): the host is a sandbox or a security module forbids them; run the tracer on \
         the host itself and not in a container or micro-VM, and look at `dmesg` for a denial"
    )]
    TracingRefused,
    /// The kernel lacks a helper that the programs call.
    #[error(
        "this kernel is too old for the probes: Linux 5.17 or later is needed (RHEL 9 has backports)"
    )]
    KernelTooOld,
    /// Lockdown forbids reading kernel memory.
    #[error(
        "kernel lockdown is in mode {mode}, which forbids BPF to read kernel memory: boot with \
         lockdown=integrity or none"
    )]
    Lockdown {
        /// The active mode.
        mode: String,
    },
    /// A map or ring could not be made.
    #[error(
        "the kernel refused map {map} ({error}): raise the memory limit of the unit \
         (LimitMEMLOCK=infinity, MemoryMax; LimitNOFILE if it says that too many files are \
         open), or make the ring smaller"
    )]
    Map {
        /// Name of the map.
        map: String,
        /// What the kernel said.
        error: String,
    },
    /// The kernel's BTF cannot be read.
    #[error(
        "type information of {module} cannot be used ({error}): report this with the kernel's version"
    )]
    Btf {
        /// Kernel module.
        module: String,
        /// What is wrong.
        error: String,
    },
    /// The embedded program does not fit this kernel.
    #[error("the BPF program does not fit this kernel: {0}: report this with the kernel's version")]
    Program(String),
    /// The wide set of a baseline cannot be found.
    #[error("no baseline: {0}")]
    Baseline(String),
    /// A file of /proc or /sys cannot be read.
    #[error("cannot read {path}: {error}")]
    Read {
        /// The file.
        path: String,
        /// What the kernel said.
        error: std::io::Error,
    },
}

impl LoadError {
    /// Exit code of the service, each told in `--help` ([`crate::cli::EXIT_CODES`]):
    /// 77 (`EX_NOPERM`) where rights are missing, 69 (`EX_UNAVAILABLE`) without BTF
    /// or on a kernel that is too old,
    /// 71 (`EX_OSERR`) where the kernel refuses tracing, 75 (`EX_TEMPFAIL`) where it
    /// refuses memory, 70 (`EX_SOFTWARE`) otherwise.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Capability { .. } => 77,
            Self::TracingRefused | Self::Lockdown { .. } => 71,
            Self::NoBtf | Self::KernelTooOld => 69,
            Self::Map { .. } => 75,
            Self::Baseline(_) => 1,
            Self::Btf { .. } | Self::Program(_) | Self::Read { .. } => 70,
        }
    }
}
