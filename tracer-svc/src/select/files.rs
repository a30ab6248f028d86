//! Finding a kernel's modules and reading them, compressed or not.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::SelectError;

/// Largest module that is read, decompressed. The largest RDMA module of the
/// kernels seen has 4 MB, amdgpu 40 MB.
const MAX_MODULE_BYTES: u64 = 256 << 20;
/// Memory for the dictionary of an xz stream, in KiB. Modules are packed with
/// 1 to 2 MiB, kernels with up to 128 MiB.
const XZ_MEMORY_KIB: u32 = 256 << 10;
/// Directories inside each other; lib/modules has nine at most.
const MAX_DEPTH: usize = 16;
/// Files of a directory tree; a whole lib/modules has 5,000.
const MAX_FILES: usize = 100_000;

/// How a file is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    Xz,
    Zstd,
    Gzip,
}

impl Packing {
    /// By the first bytes; none when the bytes are not packed.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Self::Xz),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Self::Zstd),
            [0x1f, 0x8b, 8, ..] => Some(Self::Gzip),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Xz => "xz",
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
        }
    }
}

/// Unpacks bytes that begin with a packed stream.
pub(super) fn unpack(
    packing: Packing,
    bytes: &[u8],
    limit: u64,
    path: &Path,
) -> Result<Vec<u8>, SelectError> {
    let mut out = Vec::new();
    let read = match packing {
        Packing::Xz => lzma_rust2::XzReader::new_mem_limit(bytes, false, XZ_MEMORY_KIB)
            .take(limit + 1)
            .read_to_end(&mut out),
        Packing::Zstd => zstd::stream::read::Decoder::with_buffer(bytes)
            .and_then(|stream| stream.single_frame().take(limit + 1).read_to_end(&mut out)),
        Packing::Gzip => flate2::bufread::GzDecoder::new(bytes)
            .take(limit + 1)
            .read_to_end(&mut out),
    };
    read.map_err(|error| SelectError::Compressed {
        path: path.to_owned(),
        format: packing.name(),
        reason: error.to_string(),
    })?;
    if out.len() as u64 > limit {
        return Err(SelectError::TooLarge {
            path: path.to_owned(),
            limit,
        });
    }
    Ok(out)
}

/// Reads a module file and unpacks it where it is packed.
pub(super) fn read_module(path: &Path) -> Result<Vec<u8>, SelectError> {
    let bytes = read_whole(path, MAX_MODULE_BYTES)?;
    match Packing::of(&bytes) {
        Some(packing) => unpack(packing, &bytes, MAX_MODULE_BYTES, path),
        None => Ok(bytes),
    }
}

/// Reads a file of at most `limit` bytes.
pub(super) fn read_whole(path: &Path, limit: u64) -> Result<Vec<u8>, SelectError> {
    // Of a named pipe the opening alone waits for a writer.
    let found = fs::metadata(path).map_err(SelectError::io(path))?;
    if !found.is_file() {
        return Err(SelectError::NoFile {
            path: path.to_owned(),
        });
    }
    let file = fs::File::open(path).map_err(SelectError::io(path))?;
    let mut bytes = Vec::new();
    file.take(limit + 1)
        .read_to_end(&mut bytes)
        .map_err(SelectError::io(path))?;
    if bytes.len() as u64 > limit {
        return Err(SelectError::TooLarge {
            path: path.to_owned(),
            limit,
        });
    }
    Ok(bytes)
}

/// Name of the module in a file, as /proc/modules writes it; none for a file
/// that is no module by its name.
pub(super) fn module_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let name = [".xz", ".zst", ".gz"]
        .iter()
        .find_map(|end| name.strip_suffix(end))
        .unwrap_or(name);
    Some(name.strip_suffix(".ko")?.replace('-', "_"))
}

/// All module files below a directory, by module name.
///
/// # Errors
/// The directory cannot be read, or holds one of the `wanted` modules twice.
/// Others may stand twice: what is not analysed is not judged.
pub(super) fn find_modules(
    directory: &Path,
    wanted: impl Fn(&str) -> bool,
) -> Result<BTreeMap<String, PathBuf>, SelectError> {
    let mut out: BTreeMap<String, PathBuf> = BTreeMap::new();
    let mut open = vec![(directory.to_owned(), 0)];
    let mut files = 0_usize;
    while let Some((at, depth)) = open.pop() {
        for entry in fs::read_dir(&at).map_err(SelectError::io(&at))? {
            let entry = entry.map_err(SelectError::io(&at))?;
            let path = entry.path();
            let kind = entry.file_type().map_err(SelectError::io(&path))?;
            files += 1;
            if files > MAX_FILES {
                return Err(SelectError::Module {
                    path: directory.to_owned(),
                    reason: format!("more than {MAX_FILES} files"),
                });
            }
            // `build` and `source` of lib/modules are links to whole source trees.
            if kind.is_dir() && depth < MAX_DEPTH {
                open.push((path, depth + 1));
                continue;
            }
            // Opening one would wait for somebody who writes.
            let waits = |kind: fs::FileType| kind.is_fifo() || kind.is_socket();
            if waits(kind) || fs::metadata(&path).is_ok_and(|file| waits(file.file_type())) {
                continue;
            }
            let Some(name) = module_name(&path) else {
                continue;
            };
            keep(&mut out, name, path, &wanted)?;
        }
    }
    Ok(out)
}

/// depmod's order: a module under `updates` or `extra` replaces the kernel's own.
fn is_replacement(path: &Path) -> bool {
    path.iter()
        .any(|part| part == "updates" || part == "extra" || part == "weak-updates")
}

fn keep(
    out: &mut BTreeMap<String, PathBuf>,
    name: String,
    path: PathBuf,
    wanted: &impl Fn(&str) -> bool,
) -> Result<(), SelectError> {
    match out.get(&name) {
        Some(other) if is_replacement(other) == is_replacement(&path) && wanted(&name) => {
            let (first, second) = if *other < path {
                (other.clone(), path)
            } else {
                (path, other.clone())
            };
            return Err(SelectError::Twice {
                path: second,
                other: first,
                module: name,
            });
        }
        Some(other) if is_replacement(other) && !is_replacement(&path) => {}
        _ => {
            out.insert(name, path);
        }
    }
    Ok(())
}
