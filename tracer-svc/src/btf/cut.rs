//! A small BTF with only the structs that a program reads.
//!
//! CO-RE needs the layout of a dozen structs. Giving it the whole of vmlinux
//! costs tens of megabytes and half a second; the cut has some hundred types.

use std::collections::{BTreeSet, HashMap};

use super::blob::u32_at;
use super::fit::is_bits;
use super::{BtfError, Kind, Type, Types, Writer};

/// Structs within structs: the kernel's deepest are about ten.
const MAX_DEPTH: usize = 24;

/// Names of the structs, unions and enums that an object declares, without the
/// part after three underscores that marks another version of the same struct.
///
/// # Errors
/// The object's BTF is broken.
pub fn names_in(object: &Types<'_>) -> Result<BTreeSet<Vec<u8>>, BtfError> {
    let mut names = BTreeSet::new();
    for found in object.own_types() {
        let (_, found) = found?;
        if !matches!(found.kind, Kind::Struct | Kind::Union | Kind::Enum) || found.name == 0 {
            continue;
        }
        let name = object.string(found.name)?;
        let end = name
            .windows(3)
            .position(|w| w == b"___")
            .unwrap_or(name.len());
        names.insert(name[..end].to_vec());
    }
    Ok(names)
}

/// Copies structs, unions and enums, given by id, as far as CO-RE looks at them:
/// members with their offsets, arrays and integers; pointers lead to nothing,
/// structs that are not named here keep only their size, and bit-fields are left
/// out.
///
/// # Errors
/// The kernel's BTF is broken.
pub fn cut(kernel: &Types<'_>, ids: impl Iterator<Item = u32>) -> Result<Vec<u8>, BtfError> {
    let mut copy = Copy {
        kernel,
        writer: Writer::default(),
        whole: HashMap::new(),
        shells: HashMap::new(),
    };
    for id in ids {
        copy.composite(id, 0)?;
    }
    Ok(copy.writer.finish())
}

struct Copy<'k> {
    kernel: &'k Types<'k>,
    writer: Writer,
    /// Structs and enums copied with their members.
    whole: HashMap<u32, u32>,
    /// Everything else.
    shells: HashMap<u32, u32>,
}

impl Copy<'_> {
    /// Copies a struct with its members, or an enum with its values.
    fn composite(&mut self, id: u32, depth: usize) -> Result<u32, BtfError> {
        if let Some(known) = self.whole.get(&id) {
            return Ok(*known);
        }
        if depth > MAX_DEPTH {
            return Err(BtfError::TooDeep(id));
        }
        let found = self.kernel.get(id)?;
        if !matches!(found.kind, Kind::Struct | Kind::Union | Kind::Enum) {
            return Err(BtfError::Unexpected {
                id,
                wanted: "a struct, union or enum",
            });
        }
        let mut extra = Vec::with_capacity(found.extra.len() / 4);
        if found.kind == Kind::Enum {
            for value in found.extra.chunks_exact(8) {
                extra.push(self.name(u32_at(value, 0))?);
                extra.push(u32_at(value, 4));
            }
        }
        let mut vlen = if found.kind == Kind::Enum {
            found.vlen
        } else {
            0
        };
        for member in found.members() {
            // A bit-field has no address: what reads it must not find it.
            if is_bits(self.kernel, &found, member)? {
                continue;
            }
            let type_id = self.member(member.name, member.type_id, depth + 1)?;
            // Without bit-fields the struct goes without the flag for them.
            extra.extend([self.name(member.name)?, type_id, member.bit_offset]);
            vlen += 1;
        }
        let flag = found.kind == Kind::Enum && found.flag;
        let name = self.name(found.name)?;
        let size = found.size_or_type;
        let new = self
            .writer
            .add(name, found.kind, (vlen, flag), size, &extra);
        self.whole.insert(id, new);
        Ok(new)
    }

    /// Copies a member's type. Members of a member without a name are looked up
    /// as if they were the outer struct's own, so its type is copied whole.
    fn member(&mut self, name: u32, type_id: u32, depth: usize) -> Result<u32, BtfError> {
        let (id, found) = self.kernel.resolve(type_id)?;
        let composite = matches!(found.kind, Kind::Struct | Kind::Union);
        if composite && (name == 0 || found.name == 0) {
            return self.composite(id, depth);
        }
        if let Some(known) = self.shells.get(&id) {
            return Ok(*known);
        }
        if depth > MAX_DEPTH {
            return Err(BtfError::TooDeep(id));
        }
        let new = match found.kind {
            Kind::Void => return Ok(0),
            Kind::Int | Kind::Float => {
                let extra: Vec<u32> = found.extra.chunks_exact(4).map(|w| u32_at(w, 0)).collect();
                self.add(&found, found.size_or_type, &extra)?
            }
            Kind::Array => {
                let element = self.member(1, u32_at(found.extra, 0), depth + 1)?;
                let index = self.member(1, u32_at(found.extra, 4), depth + 1)?;
                self.add(&found, 0, &[element, index, u32_at(found.extra, 8)])?
            }
            Kind::Ptr => self.writer.add(0, Kind::Ptr, (0, false), 0, &[]),
            // Only the size matters. Without a name it is no candidate beside a
            // whole copy of the same struct.
            Kind::Struct | Kind::Union => {
                self.writer
                    .add(0, found.kind, (0, false), found.size_or_type, &[])
            }
            // Members of enumeration types are compared by the type's name.
            Kind::Enum | Kind::Enum64 => {
                let name = self.name(found.name)?;
                self.writer
                    .add(name, found.kind, (0, false), found.size_or_type, &[])
            }
            _ => {
                return Err(BtfError::Unexpected {
                    id,
                    wanted: "a type that a struct can hold",
                });
            }
        };
        self.shells.insert(id, new);
        Ok(new)
    }

    fn add(&mut self, found: &Type<'_>, size_or_type: u32, extra: &[u32]) -> Result<u32, BtfError> {
        let name = self.name(found.name)?;
        Ok(self.writer.add(
            name,
            found.kind,
            (found.vlen, found.flag),
            size_or_type,
            extra,
        ))
    }

    fn name(&mut self, offset: u32) -> Result<u32, BtfError> {
        Ok(self.writer.string(self.kernel.string(offset)?))
    }
}
