//! What stops a selection; each message names the file and the remedy.

use std::path::PathBuf;

use crate::btf::BtfError;

/// A selection that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum SelectError {
    /// A file or directory cannot be read.
    #[error("{}: {reason}{}", path.display(), io_remedy(reason))]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the system says.
        reason: std::io::Error,
    },
    /// A directory, a device, a pipe or a socket where a file belongs.
    #[error("{}: not a file; name a kernel, a module or an output of `select -o json`", path.display())]
    NoFile {
        /// What was named.
        path: PathBuf,
    },
    /// A compressed file that does not decompress.
    #[error("{}: cannot decompress as {format}: {reason}; copy the file again from its package", path.display())]
    Compressed {
        /// The file.
        path: PathBuf,
        /// `xz`, `zstd` or `gzip`.
        format: &'static str,
        /// What the decompressor says.
        reason: String,
    },
    /// Larger than any real one.
    #[error("{}: more than {limit} bytes, unpacked: larger than any kernel or module; name another file", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The limit in bytes.
        limit: u64,
    },
    /// A file that is not a kernel module, or is cut short.
    #[error("{}: {reason}; copy the file again from its package, or take it out of the directory", path.display())]
    Module {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A module for a processor that this version does not read.
    #[error("{}: made for {machine}; modules for x86-64 and arm64 can be read", path.display())]
    Machine {
        /// The file.
        path: PathBuf,
        /// The processor.
        machine: String,
    },
    /// Modules of two kernels or two processors in one directory.
    #[error(
        "{}: made for {found}, and {} for {wanted}; give the directory of one kernel, lib/modules/RELEASE",
        path.display(), other.display()
    )]
    Mixed {
        /// The file.
        path: PathBuf,
        /// Its kernel.
        found: String,
        /// The first file.
        other: PathBuf,
        /// The first file's kernel.
        wanted: String,
    },
    /// Two files of the same module.
    #[error("{} and {} are the same module {module}; give the directory of one kernel", path.display(), other.display())]
    Twice {
        /// The one.
        path: PathBuf,
        /// The other.
        other: PathBuf,
        /// Module name.
        module: String,
    },
    /// A module that the analysis cannot do without.
    #[error("{}: no module {module}; {remedy}", path.display())]
    NoModule {
        /// The directory.
        path: PathBuf,
        /// Module name.
        module: String,
        /// What to do.
        remedy: String,
    },
    /// The kernel file that holds the types is missing.
    #[error(
        "{}: no kernel beside these modules; name it with --kernel: vmlinuz, vmlinux or a raw BTF such as /sys/kernel/btf/vmlinux",
        path.display()
    )]
    NoKernel {
        /// The directory.
        path: PathBuf,
    },
    /// The kernel file holds no BTF.
    #[error("{}: {reason}; name the kernel that belongs to these modules with --kernel", path.display())]
    Kernel {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The kernel or a module has a broken BTF, or one of another version.
    #[error("{}: BTF: {reason}; {remedy}", path.display())]
    Btf {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: BtfError,
        /// What to do.
        remedy: &'static str,
    },
    /// A module's BTF does not continue the one of this kernel.
    #[error(
        "{}: its BTF does not continue that of {} ({reason}); they are of different builds, name the right kernel with --kernel",
        path.display(), kernel.display()
    )]
    ForeignBtf {
        /// The module.
        path: PathBuf,
        /// The kernel.
        kernel: PathBuf,
        /// What does not fit.
        reason: String,
    },
    /// A module without BTF where types are indispensable.
    #[error(
        "{}: no BTF; build it with CONFIG_DEBUG_INFO_BTF_MODULES, or give the distribution's own module",
        path.display()
    )]
    NoBtf {
        /// The file.
        path: PathBuf,
    },
    /// Selections that are not to be compared.
    #[error(
        "the old selection is of {old}, this one of {new}: compare two kernels with the same \
         driver (--driver) and processor"
    )]
    OtherSelection {
        /// Driver and processor of the old one.
        old: String,
        /// Of the new one.
        new: String,
    },
    /// The module that was named as the driver drives no RDMA device.
    #[error(
        "{}: no table that fits struct ib_device_ops, so it is no RDMA driver: name one with --driver, \
         such as mlx5_ib or rdma_rxe",
        path.display()
    )]
    NoDriver {
        /// The file.
        path: PathBuf,
    },
    /// The types lack what the analysis reads.
    #[error("{}: {what}; this kernel is older than 5.17 or a fork that this version does not know: report it", path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
        /// What is missing.
        what: String,
    },
    /// The rules that are compiled in, or given, cannot be used.
    #[error("rules: {0}")]
    Rules(String),
    /// An earlier selection that cannot be read.
    #[error("{}: {reason}; make it with `tracer-svc select -o json` of this version", path.display())]
    Old {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

/// What to do about an error of the system, where something can be said.
fn io_remedy(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::NotFound => {
            "; name what is there: the modules of a kernel stand in /lib/modules/RELEASE, those of \
             another in its package"
        }
        std::io::ErrorKind::NotADirectory => {
            "; name the directory that the modules stand in, not one of them"
        }
        std::io::ErrorKind::PermissionDenied => "; run it as root, or copy what it shall read",
        _ => "",
    }
}

impl SelectError {
    /// An input or output error of one file.
    pub(super) fn io(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |reason| Self::Io { path, reason }
    }
}
