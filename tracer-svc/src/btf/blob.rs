//! The bytes of one BTF and typed access to them.

use std::collections::{BTreeMap, BTreeSet};

/// Largest BTF that is read: vmlinux has 4 to 6 MB; this bounds a broken file.
const MAX_BYTES: usize = 64 << 20;
/// Bytes of `struct btf_header`.
const HEADER_BYTES: usize = 24;
/// Bytes of `struct btf_type`.
const TYPE_BYTES: usize = 12;
/// Modifiers (const, typedef …) in a row before a type counts as broken; the
/// kernel's own limit for resolving is 32.
const MAX_MODIFIERS: usize = 32;

/// A BTF that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BtfError {
    /// The header is not one of BTF version 1 of this byte order.
    #[error("not a BTF header")]
    Header,
    /// A part lies outside the bytes.
    #[error("truncated at {0}")]
    Truncated(&'static str),
    /// A kind that this version does not know; its length is unknown too.
    #[error("unknown kind {kind} of type {id}")]
    UnknownKind {
        /// Type id.
        id: u32,
        /// The number.
        kind: u32,
    },
    /// A type id that does not exist.
    #[error("no type {0}")]
    NoType(u32),
    /// A string offset that does not exist.
    #[error("no string at {0}")]
    NoString(u32),
    /// Modifiers or structs nest without end.
    #[error("type {0} nests too deeply")]
    TooDeep(u32),
    /// A type is of another kind than its use asks for.
    #[error("type {id} is not {wanted}")]
    Unexpected {
        /// Type id.
        id: u32,
        /// What it should be.
        wanted: &'static str,
    },
    /// Larger than any real one.
    #[error("{0} bytes of BTF are too many")]
    TooLarge(usize),
}

/// Kinds of BTF types; the numbers are those of `include/uapi/linux/btf.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are the kernel's")]
pub enum Kind {
    Void = 0,
    Int = 1,
    Ptr = 2,
    Array = 3,
    Struct = 4,
    Union = 5,
    Enum = 6,
    Fwd = 7,
    Typedef = 8,
    Volatile = 9,
    Const = 10,
    Restrict = 11,
    Func = 12,
    FuncProto = 13,
    Var = 14,
    DataSec = 15,
    Float = 16,
    DeclTag = 17,
    TypeTag = 18,
    Enum64 = 19,
}

impl Kind {
    fn from_number(number: u32) -> Option<Self> {
        const ALL: [Kind; 20] = [
            Kind::Void,
            Kind::Int,
            Kind::Ptr,
            Kind::Array,
            Kind::Struct,
            Kind::Union,
            Kind::Enum,
            Kind::Fwd,
            Kind::Typedef,
            Kind::Volatile,
            Kind::Const,
            Kind::Restrict,
            Kind::Func,
            Kind::FuncProto,
            Kind::Var,
            Kind::DataSec,
            Kind::Float,
            Kind::DeclTag,
            Kind::TypeTag,
            Kind::Enum64,
        ];
        ALL.get(number as usize).copied()
    }

    /// Bytes that follow the fixed part for `vlen` entries.
    fn extra_bytes(self, vlen: usize) -> usize {
        match self {
            Self::Int | Self::Var | Self::DeclTag => 4,
            Self::Array => 12,
            Self::Struct | Self::Union | Self::DataSec | Self::Enum64 => 12 * vlen,
            Self::Enum | Self::FuncProto => 8 * vlen,
            _ => 0,
        }
    }
}

/// One type: its fixed part, and the bytes that follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Type<'a> {
    /// Offset of the name in the strings; 0 for none.
    pub name: u32,
    /// Kind.
    pub kind: Kind,
    /// Number of members, parameters or values.
    pub vlen: u32,
    /// The kind's flag (bit-fields, signedness).
    pub flag: bool,
    /// Bytes, or the type referred to, by kind.
    pub size_or_type: u32,
    /// Members, parameters, values, or the integer's encoding.
    pub extra: &'a [u8],
}

/// One member of a struct or union, or one parameter (`bit_offset` 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Offset of the name in the strings.
    pub name: u32,
    /// Type id.
    pub type_id: u32,
    /// From the start of the struct, in bits.
    pub bit_offset: u32,
    /// As written: with a bit-field's size in the top byte where the struct has
    /// the flag.
    pub raw_offset: u32,
}

impl Type<'_> {
    /// Members of a struct or union, in order.
    pub fn members(&self) -> impl Iterator<Item = Member> + '_ {
        let flag = self.flag;
        let composite = matches!(self.kind, Kind::Struct | Kind::Union);
        let bytes = if composite { self.extra } else { &[] };
        bytes.chunks_exact(12).map(move |m| {
            let raw_offset = u32_at(m, 8);
            Member {
                name: u32_at(m, 0),
                type_id: u32_at(m, 4),
                bit_offset: if flag {
                    raw_offset & 0xff_ffff
                } else {
                    raw_offset
                },
                raw_offset,
            }
        })
    }

    /// Parameters of a prototype: name and type, in order.
    pub fn parameters(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let bytes = if self.kind == Kind::FuncProto {
            self.extra
        } else {
            &[]
        };
        bytes.chunks_exact(8).map(|p| (u32_at(p, 0), u32_at(p, 4)))
    }
}

/// The bytes of one BTF with the place of each type.
#[derive(Debug)]
pub struct Blob {
    bytes: Vec<u8>,
    strings: (usize, usize),
    offsets: Vec<u32>,
    first_id: u32,
    first_string: u32,
}

impl Blob {
    /// Indexes a BTF. `base` is the one that it continues: vmlinux for a module.
    ///
    /// # Errors
    /// The bytes are no BTF of this machine's byte order, or are cut short, or
    /// hold an unknown kind.
    pub fn parse(bytes: Vec<u8>, base: Option<&Self>) -> Result<Self, BtfError> {
        if bytes.len() > MAX_BYTES {
            return Err(BtfError::TooLarge(bytes.len()));
        }
        if bytes.len() < HEADER_BYTES
            || u16::from_ne_bytes([bytes[0], bytes[1]]) != 0xeb9f
            || bytes[2] != 1
        {
            return Err(BtfError::Header);
        }
        let header = u32_at(&bytes, 4) as usize;
        let types = part(&bytes, header, 8, "types")?;
        let strings = part(&bytes, header, 16, "strings")?;
        let first_id = base.map_or(1, |b| b.first_id.saturating_add(b.count()));
        let offsets = index(&bytes, types, first_id)?;
        Ok(Self {
            strings,
            offsets,
            first_id,
            first_string: base.map_or(0, Self::end_of_strings),
            bytes,
        })
    }

    /// How far a BTF that continues this one starts: types and bytes of strings.
    #[must_use]
    pub fn extent(&self) -> (u32, u32) {
        let types = (self.first_id - 1).saturating_add(self.count());
        (types, self.end_of_strings())
    }

    /// Number of types, void not counted.
    fn count(&self) -> u32 {
        u32::try_from(self.offsets.len()).unwrap_or(u32::MAX)
    }

    fn end_of_strings(&self) -> u32 {
        let len = self.strings.1 - self.strings.0;
        self.first_string
            .saturating_add(u32::try_from(len).unwrap_or(u32::MAX))
    }

    fn get(&self, id: u32) -> Result<Type<'_>, BtfError> {
        let place = id
            .checked_sub(self.first_id)
            .and_then(|n| self.offsets.get(n as usize))
            .ok_or(BtfError::NoType(id))?;
        read_type(&self.bytes, *place as usize, id)
    }

    /// A string begins at this offset and not in the middle of another one.
    fn starts_a_string(&self, offset: u32) -> bool {
        let Some(inside) = offset.checked_sub(self.first_string) else {
            return false;
        };
        let start = self.strings.0 + inside as usize;
        let begins = inside == 0 || self.bytes.get(start - 1) == Some(&0);
        begins && start < self.strings.1
    }

    fn string(&self, offset: u32) -> Option<&[u8]> {
        let start = self.strings.0 + offset.checked_sub(self.first_string)? as usize;
        let rest = self.bytes.get(start..self.strings.1)?;
        let end = rest.iter().position(|b| *b == 0)?;
        Some(&rest[..end])
    }
}

/// Start and end of the part whose offset and length stand at `at`.
fn part(
    bytes: &[u8],
    header: usize,
    at: usize,
    name: &'static str,
) -> Result<(usize, usize), BtfError> {
    let start = header.checked_add(u32_at(bytes, at) as usize);
    let end = start.and_then(|s| s.checked_add(u32_at(bytes, at + 4) as usize));
    match (start, end) {
        (Some(start), Some(end)) if header >= HEADER_BYTES && end <= bytes.len() => {
            Ok((start, end))
        }
        _ => Err(BtfError::Truncated(name)),
    }
}

fn index(bytes: &[u8], (start, end): (usize, usize), first_id: u32) -> Result<Vec<u32>, BtfError> {
    let mut offsets = Vec::new();
    let mut at = start;
    while at < end {
        let id = first_id.saturating_add(u32::try_from(offsets.len()).unwrap_or(u32::MAX));
        let found = read_type(&bytes[..end], at, id)?;
        offsets.push(u32::try_from(at).map_err(|_| BtfError::Truncated("types"))?);
        at += TYPE_BYTES + found.extra.len();
    }
    offsets.shrink_to_fit();
    Ok(offsets)
}

fn read_type(bytes: &[u8], at: usize, id: u32) -> Result<Type<'_>, BtfError> {
    let fixed = bytes
        .get(at..at + TYPE_BYTES)
        .ok_or(BtfError::Truncated("type"))?;
    let info = u32_at(fixed, 4);
    let number = (info >> 24) & 0x1f;
    let kind = Kind::from_number(number).ok_or(BtfError::UnknownKind { id, kind: number })?;
    let vlen = info & 0xffff;
    let start = at + TYPE_BYTES;
    let extra = bytes
        .get(start..start + kind.extra_bytes(vlen as usize))
        .ok_or(BtfError::Truncated("type"))?;
    Ok(Type {
        name: u32_at(fixed, 0),
        kind,
        vlen,
        flag: info >> 31 == 1,
        size_or_type: u32_at(fixed, 8),
        extra,
    })
}

/// Void, which has no bytes.
const VOID: Type<'static> = Type {
    name: 0,
    kind: Kind::Void,
    vlen: 0,
    flag: false,
    size_or_type: 0,
    extra: &[],
};

/// A BTF together with the one that it continues.
#[derive(Clone, Copy, Debug)]
pub struct Types<'a> {
    base: Option<&'a Blob>,
    own: &'a Blob,
}

impl<'a> Types<'a> {
    /// Types of the kernel itself.
    #[must_use]
    pub fn whole(own: &'a Blob) -> Self {
        Self { base: None, own }
    }

    /// Types of a module, whose BTF was parsed with this `base`.
    #[must_use]
    pub fn split(base: &'a Blob, own: &'a Blob) -> Self {
        Self {
            base: Some(base),
            own,
        }
    }

    /// One type.
    ///
    /// # Errors
    /// There is no such id.
    pub fn get(&self, id: u32) -> Result<Type<'a>, BtfError> {
        match self.base {
            _ if id == 0 => Ok(VOID),
            Some(base) if id < self.own.first_id => base.get(id),
            _ => self.own.get(id),
        }
    }

    /// The string at an offset: a name of a type or member. Empty at 0.
    ///
    /// # Errors
    /// There is no such offset, or no end of the string.
    pub fn string(&self, offset: u32) -> Result<&'a [u8], BtfError> {
        let blob = match self.base {
            Some(base) if offset < self.own.first_string => base,
            _ => self.own,
        };
        blob.string(offset).ok_or(BtfError::NoString(offset))
    }

    /// Whether a string begins at an offset. A BTF that continues another base
    /// than the given one names things in the middle of other names.
    #[must_use]
    pub fn starts_a_string(&self, offset: u32) -> bool {
        match self.base {
            Some(base) if offset < self.own.first_string => base.starts_a_string(offset),
            _ => self.own.starts_a_string(offset),
        }
    }

    /// Skips modifiers and typedefs. Gives the id and the type behind them.
    ///
    /// # Errors
    /// A broken id, or modifiers without end.
    pub fn resolve(&self, id: u32) -> Result<(u32, Type<'a>), BtfError> {
        let mut at = id;
        for _ in 0..MAX_MODIFIERS {
            let found = self.get(at)?;
            match found.kind {
                Kind::Typedef | Kind::Const | Kind::Volatile | Kind::Restrict | Kind::TypeTag => {
                    at = found.size_or_type;
                }
                _ => return Ok((at, found)),
            }
        }
        Err(BtfError::TooDeep(id))
    }

    /// Ids of this BTF's own structs, unions and enums with these names, the
    /// first of each. A struct without members does not count.
    ///
    /// # Errors
    /// A broken string offset.
    pub fn locate(&self, names: &BTreeSet<Vec<u8>>) -> Result<BTreeMap<Vec<u8>, u32>, BtfError> {
        let mut out = BTreeMap::new();
        for found in self.own_types() {
            let (id, found) = found?;
            if !matches!(found.kind, Kind::Struct | Kind::Union | Kind::Enum)
                || found.name == 0
                || found.vlen == 0
            {
                continue;
            }
            let name = self.string(found.name)?;
            if names.contains(name) && !out.contains_key(name) {
                out.insert(name.to_vec(), id);
            }
        }
        Ok(out)
    }

    /// Names and ids of all the module's own functions.
    ///
    /// # Errors
    /// Each item may be a broken type or string.
    pub fn own_functions(&self) -> impl Iterator<Item = Result<(&'a [u8], u32), BtfError>> {
        self.own_types().filter_map(|found| match found {
            Ok((id, found)) if found.kind == Kind::Func => {
                Some(self.string(found.name).map(|name| (name, id)))
            }
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        })
    }

    /// The types of this BTF itself, without those of its base.
    pub fn own_types(&self) -> impl Iterator<Item = Result<(u32, Type<'a>), BtfError>> + use<'a> {
        let own = self.own;
        let first = own.first_id;
        (first..first.saturating_add(own.count())).map(move |id| Ok((id, own.get(id)?)))
    }
}

/// The word at an offset that the caller has checked; 0 past the end.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    match bytes.get(at..at + 4) {
        Some(&[a, b, c, d]) => u32::from_ne_bytes([a, b, c, d]),
        _ => 0,
    }
}
