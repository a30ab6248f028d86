//! The kernel's own BTF, out of whatever file holds it: a raw BTF, a vmlinux, a
//! bzImage, or an arm64 Image, packed or not.

use std::path::{Path, PathBuf};

use object::{Object, ObjectSection};

use super::SelectError;
use super::files::{Packing, read_whole, unpack};
use crate::btf::Blob;

/// Largest kernel that is read, unpacked: a vmlinux with symbols has 60 MB, one
/// with debugging information up to 1 GB.
const MAX_KERNEL_BYTES: u64 = 2 << 30;
/// Packed streams inside one another: an EFI image packs an Image, no more.
const MAX_LAYERS: usize = 3;
/// First bytes of a BTF of version 1 without flags, with the header's length.
const BTF_MAGIC: [u8; 8] = [0x9f, 0xeb, 1, 0, 24, 0, 0, 0];
/// A kernel's BTF has some 100,000 types; what is smaller belongs to something
/// else that happens to lie in the image (a BPF program that is built in).
const SMALLEST_KERNEL_BTF: u32 = 4096;

/// Reads the types of a kernel.
///
/// # Errors
/// The file cannot be read or holds no BTF of a kernel.
pub(super) fn read(path: &Path) -> Result<Blob, SelectError> {
    let bytes = read_whole(path, MAX_KERNEL_BYTES)?;
    let raw = find(bytes, path, 0)?.ok_or_else(|| SelectError::Kernel {
        path: path.to_owned(),
        reason: "no BTF in it".to_owned(),
    })?;
    parse(raw, path)
}

fn parse(raw: Vec<u8>, path: &Path) -> Result<Blob, SelectError> {
    Blob::parse(raw, None).map_err(|reason| SelectError::Btf {
        path: path.to_owned(),
        reason,
        remedy: "name the kernel that belongs to these modules with --kernel",
    })
}

fn find(bytes: Vec<u8>, path: &Path, layer: usize) -> Result<Option<Vec<u8>>, SelectError> {
    if bytes.starts_with(&BTF_MAGIC[..3]) {
        return Ok(Some(bytes));
    }
    if let Some(packing) = Packing::of(&bytes) {
        let inner = unpack(packing, &bytes, MAX_KERNEL_BYTES, path)?;
        return if layer < MAX_LAYERS {
            find(inner, path, layer + 1)
        } else {
            Ok(None)
        };
    }
    if bytes.starts_with(b"\x7fELF") {
        return Ok(elf_section(&bytes));
    }
    if let Some(found) = scan(&bytes) {
        return Ok(Some(found));
    }
    if layer >= MAX_LAYERS {
        return Ok(None);
    }
    // A boot image: the payload is a packed stream somewhere inside.
    for at in payloads(&bytes) {
        let Some(packing) = Packing::of(&bytes[at..]) else {
            continue;
        };
        let Ok(inner) = unpack(packing, &bytes[at..], MAX_KERNEL_BYTES, path) else {
            continue;
        };
        if let Some(found) = find(inner, path, layer + 1)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn elf_section(bytes: &[u8]) -> Option<Vec<u8>> {
    let file = object::File::parse(bytes).ok()?;
    let section = file.section_by_name(".BTF")?;
    Some(section.data().ok()?.to_vec())
}

/// The place that the x86 boot header names, then every place that looks like
/// the start of a packed stream.
fn payloads(bytes: &[u8]) -> Vec<usize> {
    let mut out: Vec<usize> = boot_header_payload(bytes).into_iter().collect();
    let streams = bytes.windows(6).enumerate();
    out.extend(
        streams
            .filter(|(_, w)| Packing::of(w).is_some())
            .map(|(at, _)| at),
    );
    out
}

/// `Documentation/arch/x86/boot.rst`: setup_sects at 0x1f1, "HdrS" at 0x202,
/// payload_offset at 0x248, from the start of the protected-mode code.
fn boot_header_payload(bytes: &[u8]) -> Option<usize> {
    if bytes.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    let sectors = match *bytes.get(0x1f1)? {
        0 => 4,
        n => usize::from(n),
    };
    let offset = u32::from_le_bytes(bytes.get(0x248..0x24c)?.try_into().ok()?);
    let at = (sectors + 1) * 512 + offset as usize;
    (at < bytes.len()).then_some(at)
}

/// Searches an image without section headers for the largest BTF.
fn scan(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut best: Option<Vec<u8>> = None;
    let mut at = 0;
    while let Some(next) = find_magic(bytes, at) {
        at = next + 1;
        let Some(length) = btf_length(&bytes[next..]) else {
            continue;
        };
        let candidate = bytes[next..next + length].to_vec();
        let Ok(blob) = Blob::parse(candidate.clone(), None) else {
            continue;
        };
        let larger = best.as_ref().is_none_or(|b| b.len() < candidate.len());
        if blob.extent().0 >= SMALLEST_KERNEL_BTF && larger {
            at = next + length;
            best = Some(candidate);
        }
    }
    best
}

fn find_magic(bytes: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?;
    let mut at = 0;
    while let Some(found) = rest[at..].iter().position(|b| *b == BTF_MAGIC[0]) {
        at += found;
        if rest[at..].starts_with(&BTF_MAGIC) {
            return Some(from + at);
        }
        at += 1;
    }
    None
}

fn btf_length(bytes: &[u8]) -> Option<usize> {
    let word = |at: usize| -> Option<usize> {
        let four = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_le_bytes(four) as usize)
    };
    let end = 24_usize.checked_add(word(16)?)?.checked_add(word(20)?)?;
    (end <= bytes.len()).then_some(end)
}

/// The kernel file that belongs to a modules directory: named as packages and
/// distributions name it, beside the modules or above them.
pub(super) fn beside(directory: &Path) -> Option<PathBuf> {
    let release = directory.file_name()?.to_str()?;
    let mut places = vec![
        directory.join("vmlinux"),
        directory.join("build/vmlinux"),
        directory.join("vmlinuz"),
    ];
    for above in directory.ancestors().skip(1).take(4) {
        places.push(above.join(format!("boot/vmlinux-{release}")));
        places.push(above.join(format!("boot/vmlinuz-{release}")));
        places.push(above.join("vmlinux"));
        places.push(above.join("vmlinuz"));
    }
    places.into_iter().find(|place| place.is_file())
}
