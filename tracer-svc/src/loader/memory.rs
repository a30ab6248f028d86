//! Copies kernel memory by running a small BPF program once.
//!
//! /proc/kcore would do the same where it exists; this needs nothing that the
//! tracer does not need anyway.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};

use aya::maps::{Array, MapData};

use super::object::Template;
use super::sys::{self, Target};
use super::{LoadError, object};

/// Bytes of one copy: `KERNEL_COPY_BYTES` of `bpf/probes.bpf.c`.
const COPY_BYTES: usize = 2048;

/// Reads kernel memory, [`COPY_BYTES`] at a time.
pub(super) struct KernelMemory {
    program: OwnedFd,
    copy: Array<MapData, [u8; COPY_BYTES]>,
}

impl KernelMemory {
    pub(super) fn new(
        template: &Template,
        map_fds: &BTreeMap<String, OwnedFd>,
    ) -> Result<Self, LoadError> {
        let instructions = template
            .copy_program(map_fds)
            .map_err(|error| LoadError::Program(error.to_string()))?;
        let program = sys::load_program("copy_kernel", &instructions, Target::RawTracepoint)
            .map_err(|refusal| LoadError::Program(format!("{}: {}", refusal.error, refusal.log)))?;
        Ok(Self {
            program,
            copy: object::open_array(map_fds, "kernel_copy")?,
        })
    }

    /// The bytes at an address; none when it is not mapped.
    pub(super) fn read(&self, address: u64) -> Option<Vec<u8>> {
        let result = sys::run_once(self.program.as_fd(), address).ok()?;
        if result != 0 {
            return None;
        }
        Some(self.copy.get(&0, 0).ok()?.to_vec())
    }
}
