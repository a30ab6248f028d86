//! Whether a member of a kernel's struct is what a program expects.

use super::blob::u32_at;
use super::{BtfError, Kind, Member, Type, Types};

/// Structs without names within structs: the kernel's deepest are about five.
const MAX_DEPTH: usize = 16;
/// Bytes of the widest number that a program takes.
const NUMBER_BYTES: u32 = 8;

/// Why a member cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// The struct has no such member.
    Missing,
    /// It is of another kind: a pointer for a number, another enumeration.
    OtherKind,
    /// It is a bit-field, which has no address.
    Bits,
    /// A number, or an array, of another size than can be taken: its bytes.
    Wide(u32),
}

/// Compares the members of one name of two structs: as CO-RE does, and also by
/// size. `program` and `kernel` are types and the id of the struct.
///
/// # Errors
/// Broken types.
pub fn fit(
    program: (&Types<'_>, u32),
    kernel: (&Types<'_>, u32),
    name: &str,
) -> Result<Result<(), Unfit>, BtfError> {
    let name = name.as_bytes();
    let (Some((_, ours)), Some((bits, theirs))) = (
        member(program.0, program.1, name, 0)?,
        member(kernel.0, kernel.1, name, 0)?,
    ) else {
        return Ok(Err(Unfit::Missing));
    };
    if bits {
        return Ok(Err(Unfit::Bits));
    }
    compare((program.0, ours), (kernel.0, theirs))
}

/// A member by its name, in structs without names too: whether it is a bit-field,
/// and its type.
fn member(
    types: &Types<'_>,
    id: u32,
    name: &[u8],
    depth: usize,
) -> Result<Option<(bool, u32)>, BtfError> {
    if depth > MAX_DEPTH {
        return Err(BtfError::TooDeep(id));
    }
    let found = types.get(id)?;
    for each in found.members() {
        if each.name != 0 && types.string(each.name)? == name {
            return Ok(Some((is_bits(types, &found, each)?, each.type_id)));
        }
        if each.name == 0 {
            let (inner, found) = types.resolve(each.type_id)?;
            if matches!(found.kind, Kind::Struct | Kind::Union)
                && let Some(found) = member(types, inner, name, depth + 1)?
            {
                return Ok(Some(found));
            }
        }
    }
    Ok(None)
}

/// Whether a member is a bit-field, in either way of writing one.
pub(super) fn is_bits(
    types: &Types<'_>,
    within: &Type<'_>,
    member: Member,
) -> Result<bool, BtfError> {
    if within.flag && member.raw_offset >> 24 != 0 {
        return Ok(true);
    }
    let (_, found) = types.resolve(member.type_id)?;
    let encoding = u32_at(found.extra, 0);
    let (bits, offset) = (encoding & 0xff, encoding >> 16 & 0xff);
    // A size that no number has is none of our bits either.
    let is_whole = found.size_or_type.checked_mul(8) == Some(bits);
    Ok(found.kind == Kind::Int && (!is_whole || offset != 0))
}

fn compare(
    (program, ours): (&Types<'_>, u32),
    (kernel, theirs): (&Types<'_>, u32),
) -> Result<Result<(), Unfit>, BtfError> {
    let (_, ours) = program.resolve(ours)?;
    let (_, theirs) = kernel.resolve(theirs)?;
    let composite = |kind| matches!(kind, Kind::Struct | Kind::Union);
    if composite(ours.kind) && composite(theirs.kind) {
        return Ok(Ok(()));
    }
    if ours.kind != theirs.kind {
        return Ok(Err(Unfit::OtherKind));
    }
    let bytes = theirs.size_or_type;
    Ok(match ours.kind {
        Kind::Enum if program.string(ours.name)? != kernel.string(theirs.name)? => {
            Err(Unfit::OtherKind)
        }
        Kind::Int | Kind::Enum if bytes > NUMBER_BYTES => Err(Unfit::Wide(bytes)),
        Kind::Array => {
            let (ours, theirs) = (u32_at(ours.extra, 8), u32_at(theirs.extra, 8));
            // Without a length it goes on behind the struct.
            match theirs {
                0 => Ok(()),
                _ if ours == theirs => Ok(()),
                _ => Err(Unfit::Wide(theirs)),
            }
        }
        _ => Ok(()),
    })
}
