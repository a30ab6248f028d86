//! The compiled programs, and the types that they expect of a kernel.

use crate::btf::{Blob, BtfError, Types, names_in};

use super::Ids;

/// The programs of `bpf/probes.bpf.c`, compiled by build.rs. The wrapper aligns
/// them for the ELF reader.
static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/probes.o")));

#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

/// The object file.
pub(crate) fn object() -> &'static [u8] {
    &OBJECT.0
}

/// The types that the programs were compiled with.
#[derive(Debug)]
pub struct Program {
    blob: Blob,
    ids: Ids,
}

/// The embedded program is broken: a fault of the build.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// Not an object file with BTF.
    #[error("the embedded program has no BTF; build the tracer again with clang")]
    NoBtf,
    /// Its BTF is broken.
    #[error("the embedded program's BTF: {0}")]
    Btf(#[from] BtfError),
}

impl Program {
    /// Reads the embedded program.
    ///
    /// # Errors
    /// Only for a broken build; a test reads it.
    pub fn embedded() -> Result<Self, ProgramError> {
        let object = aya_obj::Object::parse(object()).map_err(|_| ProgramError::NoBtf)?;
        let btf = object.btf.as_ref().ok_or(ProgramError::NoBtf)?;
        let blob = Blob::parse(btf.to_bytes(), None)?;
        let types = Types::whole(&blob);
        let ids = types.locate(&names_in(&types)?)?;
        Ok(Self { blob, ids })
    }

    pub(super) fn types(&self) -> (Types<'_>, &Ids) {
        (Types::whole(&self.blob), &self.ids)
    }

    /// Names of the structs that the programs read.
    pub fn names(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.ids.keys()
    }
}
