//! Reading the kernel's type information (BTF) without building a tree of it.
//!
//! vmlinux describes some 150,000 types; a tree of them costs tens of megabytes.
//! [`Blob`] keeps the bytes and one offset for each type, [`Types`] joins a
//! module's BTF with the one it continues, and [`cut`] copies the few structs
//! that a program needs into a BTF of a few kilobytes.
//!
//! Every index is checked: a broken BTF is an error, never a panic.

mod blob;
mod cut;
mod fit;
mod prototype;
mod write;

pub use blob::{Blob, BtfError, Kind, Member, Type, Types};
pub use cut::{cut, names_in};
pub use fit::{Unfit, fit};
pub use prototype::{
    FirstArgument, Parameter, Prototype, ReturnKind, function, operation, parameters, signature,
    signature_of,
};
pub use write::Writer;

#[cfg(test)]
pub(crate) mod synthetic;
#[cfg(test)]
mod tests;
