//! Memory of every kind that an address can map, none of which can be registered.

#![allow(unsafe_code)]

use crate::verbs::UNMAPPED_ADDRESS;
use anyhow::{Context, Result};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::ptr::null_mut;

/// Bytes of a mapping, where pages are small.
const SMALL_BYTES: usize = 4096;

/// Bytes of a huge page on x86-64 and arm64 with 4 KiB pages.
const HUGE_BYTES: usize = 2 << 20;

/// How many huge pages the kernel keeps for who asks for them.
const HUGE_PAGES: &str = "/proc/sys/vm/nr_hugepages";

/// Physical address of the BIOS of a PC, which `/dev/mem` hands out.
const BIOS_ADDRESS: i64 = 0xf_0000;

/// What the address maps. Nothing may be read from any of them (but for the device),
/// so that the kernel cannot pin them: EFAULT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Mapped {
    /// Nothing.
    Nothing,
    /// Memory without a file.
    Anonymous,
    /// This program's own file.
    File,
    /// A huge page, which is reserved first.
    HugePage,
    /// Pages of a device: `/dev/mem`.
    Device,
    /// Memory that ends before the registration does.
    Short,
}

/// A mapping that stays until the process ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Region {
    pub(crate) address: u64,
    /// What is to be registered.
    pub(crate) bytes: usize,
    /// What the tracer should say of the first byte and of the last.
    pub(crate) first: &'static str,
    pub(crate) last: &'static str,
}

impl Mapped {
    /// Makes it.
    pub(crate) fn make(self) -> Result<Region> {
        let none = libc::PROT_NONE;
        let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let region = |address, bytes, kind| Region {
            address,
            bytes,
            first: kind,
            last: kind,
        };
        Ok(match self {
            Self::Nothing => region(UNMAPPED_ADDRESS, SMALL_BYTES, "none"),
            Self::Anonymous => {
                let at = map(SMALL_BYTES, none, anonymous, None, 0)?;
                region(at, SMALL_BYTES, "anonymous")
            }
            Self::File => {
                let file = File::open("/proc/self/exe").context("/proc/self/exe")?;
                let at = map(SMALL_BYTES, none, libc::MAP_PRIVATE, Some(&file), 0)?;
                region(at, SMALL_BYTES, "file")
            }
            Self::HugePage => {
                let huge = anonymous | libc::MAP_HUGETLB;
                std::fs::write(HUGE_PAGES, "1").context(HUGE_PAGES)?;
                let at = map(HUGE_BYTES, none, huge, None, 0).context("no huge page is free")?;
                region(at, SMALL_BYTES, "huge_page")
            }
            Self::Device => {
                let file = File::open("/dev/mem").context("/dev/mem")?;
                let (read, shared) = (libc::PROT_READ, libc::MAP_SHARED);
                let at = map(SMALL_BYTES, read, shared, Some(&file), BIOS_ADDRESS)?;
                region(at, SMALL_BYTES, "device_pfn")
            }
            Self::Short => Region {
                // At an address with nothing behind it.
                address: map_at(UNMAPPED_ADDRESS, SMALL_BYTES)?,
                bytes: 2 * SMALL_BYTES,
                first: "anonymous",
                last: "none",
            },
        })
    }
}

fn map(bytes: usize, rights: i32, flags: i32, file: Option<&File>, offset: i64) -> Result<u64> {
    let fd = file.map_or(-1, AsRawFd::as_raw_fd);
    // SAFETY: the kernel chooses the place, so that no memory of this program is
    // replaced; the file is open.
    let at = unsafe { libc::mmap(null_mut(), bytes, rights, flags, fd, offset) };
    mapped(at)
}

/// Memory that can be read and written, at an address where nothing is.
fn map_at(address: u64, bytes: usize) -> Result<u64> {
    let wanted = std::ptr::with_exposed_provenance_mut(usize::try_from(address)?);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the flag keeps the kernel from replacing what is there.
    let at = unsafe { libc::mmap(wanted, bytes, rights, flags, -1, 0) };
    mapped(at)
}

fn mapped(at: *mut libc::c_void) -> Result<u64> {
    if at == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error()).context("mmap");
    }
    Ok(at.addr() as u64)
}
