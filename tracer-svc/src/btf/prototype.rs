//! What a hook must know of a function: where its return value stands, how to
//! tell an error, and what its first argument leads to.

use super::{BtfError, Kind, Type, Types};

/// How a function tells an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReturnKind {
    /// The low 32 bits are in `[-4095, -1]`; the rest is junk.
    Int,
    /// All 64 bits are in `[-4095, -1]`.
    Long,
    /// `ERR_PTR`: all 64 bits are in `[-4095, -1]`.
    Pointer,
    /// Nothing to read.
    Nothing,
}

/// What the first argument points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum FirstArgument {
    /// Nothing that leads to a device.
    Other = 0,
    /// `struct ib_device`
    Device = 1,
    /// `struct ib_pd`
    Pd = 2,
    /// `struct ib_cq`
    Cq = 3,
    /// `struct ib_qp`
    Qp = 4,
    /// `struct ib_ah`
    Ah = 5,
    /// `struct uverbs_attr_bundle`
    Bundle = 6,
    /// `struct ib_event`
    Event = 7,
    /// The second argument is a `struct ib_event`.
    SecondEvent = 8,
}

/// What a hook needs of one function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prototype {
    /// Id of the function in its module's BTF.
    pub function_id: u32,
    /// Eight-byte places that the arguments take in the program's context; the
    /// return value stands in the place after them.
    pub argument_words: u32,
    /// How an error is told.
    pub returns: ReturnKind,
    /// What the first argument leads to.
    pub first: FirstArgument,
}

/// Reads the prototype of a function.
///
/// # Errors
/// The id is no function, or its types are broken.
pub fn function(types: &Types<'_>, function_id: u32) -> Result<Prototype, BtfError> {
    let proto = proto_of(types, function_id)?;
    let mut argument_words = 0_u32;
    for (_, parameter) in proto.parameters() {
        argument_words = argument_words.saturating_add(words(types, parameter)?);
    }
    let mut arguments = proto.parameters().map(|(_, id)| id);
    let first = pointee(types, arguments.next())?;
    let second = pointee(types, arguments.next())?;
    Ok(Prototype {
        function_id,
        argument_words,
        returns: return_kind(types, proto.size_or_type)?,
        first: match (first, second) {
            (b"ib_device", _) => FirstArgument::Device,
            (b"ib_pd", _) => FirstArgument::Pd,
            (b"ib_cq", _) => FirstArgument::Cq,
            (b"ib_qp", _) => FirstArgument::Qp,
            (b"ib_ah", _) => FirstArgument::Ah,
            (b"uverbs_attr_bundle", _) => FirstArgument::Bundle,
            (b"ib_event", _) => FirstArgument::Event,
            (_, b"ib_event") => FirstArgument::SecondEvent,
            _ => FirstArgument::Other,
        },
    })
}

/// A parameter: its name, its type, and the places that it takes.
pub type Parameter<'a> = (&'a [u8], u32, u32);

/// The parameters of a function, in order.
///
/// # Errors
/// The id is no function, or its types are broken.
pub fn parameters<'a>(types: &Types<'a>, function_id: u32) -> Result<Vec<Parameter<'a>>, BtfError> {
    let proto = proto_of(types, function_id)?;
    let read = |(name, id)| Ok((types.string(name)?, id, words(types, id)?));
    proto.parameters().map(read).collect()
}

fn proto_of<'a>(types: &Types<'a>, function_id: u32) -> Result<Type<'a>, BtfError> {
    let function = types.get(function_id)?;
    let proto = types.get(function.size_or_type)?;
    if function.kind != Kind::Func || proto.kind != Kind::FuncProto {
        return Err(BtfError::Unexpected {
            id: function_id,
            wanted: "a function",
        });
    }
    Ok(proto)
}

/// A struct that is passed by value takes a place for each eight bytes.
fn words(types: &Types<'_>, id: u32) -> Result<u32, BtfError> {
    let (_, found) = types.resolve(id)?;
    Ok(match found.kind {
        Kind::Struct | Kind::Union | Kind::Int => found.size_or_type.div_ceil(8).max(1),
        _ => 1,
    })
}

fn return_kind(types: &Types<'_>, id: u32) -> Result<ReturnKind, BtfError> {
    let (_, found) = types.resolve(id)?;
    Ok(match (found.kind, found.size_or_type) {
        (Kind::Ptr, _) => ReturnKind::Pointer,
        (Kind::Int | Kind::Enum, 4) => ReturnKind::Int,
        (Kind::Int, 8) => ReturnKind::Long,
        _ => ReturnKind::Nothing,
    })
}

/// Name of the struct that a pointer leads to; empty for anything else.
fn pointee<'a>(types: &Types<'a>, id: Option<u32>) -> Result<&'a [u8], BtfError> {
    let Some(id) = id else { return Ok(b"") };
    let (_, pointer) = types.resolve(id)?;
    if pointer.kind != Kind::Ptr {
        return Ok(b"");
    }
    let (_, target) = types.resolve(pointer.size_or_type)?;
    match target.kind {
        Kind::Struct | Kind::Fwd => types.string(target.name),
        _ => Ok(b""),
    }
}

/// A prototype as text, for comparing functions of different modules: the names
/// of structs and integers, without the parameters' names.
///
/// # Errors
/// Broken types.
pub fn signature(types: &Types<'_>, proto: &Type<'_>) -> Result<String, BtfError> {
    let mut out = text_of(types, proto.size_or_type, 0)?;
    out.push('(');
    for (_, parameter) in proto.parameters() {
        out.push_str(&text_of(types, parameter, 0)?);
        out.push(',');
    }
    out.push(')');
    Ok(out)
}

/// The signature of a function; see [`signature`].
///
/// # Errors
/// The id is no function, or its types are broken.
pub fn signature_of(types: &Types<'_>, function_id: u32) -> Result<String, BtfError> {
    signature(types, &proto_of(types, function_id)?)
}

/// Pointers to pointers in a row; verbs functions have two at most.
const MAX_POINTERS: usize = 4;

fn text_of(types: &Types<'_>, id: u32, depth: usize) -> Result<String, BtfError> {
    let (_, found) = types.resolve(id)?;
    let name = String::from_utf8_lossy(types.string(found.name)?).into_owned();
    Ok(match found.kind {
        Kind::Void => "void".to_owned(),
        Kind::Ptr if depth >= MAX_POINTERS => "*".to_owned(),
        Kind::Ptr => text_of(types, found.size_or_type, depth + 1)? + "*",
        Kind::Struct => format!("struct {name}"),
        // A module may only declare what another defines.
        Kind::Fwd => format!("{} {name}", if found.flag { "union" } else { "struct" }),
        Kind::Union => format!("union {name}"),
        Kind::Enum | Kind::Enum64 => format!("enum {name}"),
        _ => name,
    })
}

/// Bit offset and signature of a member of a table of operations.
///
/// # Errors
/// Broken types. `Ok(None)` when the table has no such member.
pub fn operation(
    types: &Types<'_>,
    table: u32,
    name: &[u8],
) -> Result<Option<(u32, String)>, BtfError> {
    for member in types.get(table)?.members() {
        if types.string(member.name)? != name {
            continue;
        }
        let (id, pointer) = types.resolve(member.type_id)?;
        let (_, proto) = types.resolve(pointer.size_or_type)?;
        if pointer.kind != Kind::Ptr || proto.kind != Kind::FuncProto {
            return Err(BtfError::Unexpected {
                id,
                wanted: "a pointer to a function",
            });
        }
        return Ok(Some((member.bit_offset, signature(types, &proto)?)));
    }
    Ok(None)
}
