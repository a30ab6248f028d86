//! Where a function takes what a reading needs.

use crate::btf::{BtfError, FirstArgument, Kind, Types, parameters};

use super::Reading;

/// Arguments that a reading needs at most: what fits into the program's constant.
pub(super) const SLOTS: usize = 6;
/// No argument: `NO_PLACE` of `bpf/spec.h`, the largest of four bits.
const NO_PLACE: u32 = 15;

/// An argument that a reading needs. Numbers of slots are those of
/// `bpf/spec.h`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) number: usize,
    pub(super) is: Is,
}

/// How an argument is recognised. A name alone never suffices: the type must be
/// right too.
#[derive(Clone, Copy, Debug)]
pub(super) enum Is {
    /// A pointer to this struct or union.
    PointerTo(&'static str),
    /// As above with one of these names, where there may be two.
    PointerNamed(&'static str, &'static [&'static str]),
    /// `void *` of this name.
    Bytes(&'static str),
    /// An integer of so many bytes with one of these names.
    Integer(u32, &'static [&'static str]),
}

// What drivers of 6.1 to 7.3 call the same arguments of `struct ib_device_ops`.
const ADDRESS: &[&str] = &["start", "addr", "address"];
const OFFSET: &[&str] = &["offset", "start"];
const LENGTH: &[&str] = &["length", "len", "size"];
const ACCESS: &[&str] = &["access", "access_flags", "mr_access_flags", "acc", "rights"];
const MASK: &[&str] = &["attr_mask", "mask", "qp_attr_mask", "ibattr_mask"];

const fn slot(number: usize, is: Is) -> Slot {
    Slot { number, is }
}

impl Reading {
    /// What it needs of the function.
    pub(super) fn slots(self) -> &'static [Slot] {
        const QP: &[Slot] = &[
            slot(0, Is::PointerTo("ib_qp")),
            slot(1, Is::PointerTo("ib_qp_attr")),
            slot(2, Is::Integer(4, MASK)),
            slot(3, Is::PointerTo("ib_uverbs_ex_modify_qp")),
        ];
        const REG_MR: &[Slot] = &[
            slot(0, Is::Integer(8, ADDRESS)),
            slot(1, Is::Integer(8, LENGTH)),
            slot(2, Is::Integer(4, ACCESS)),
            slot(4, Is::PointerTo("ib_uverbs_buffer_desc")),
        ];
        const DMABUF: &[Slot] = &[
            slot(0, Is::Integer(8, OFFSET)),
            slot(1, Is::Integer(8, LENGTH)),
            slot(2, Is::Integer(4, ACCESS)),
            slot(3, Is::Integer(4, &["fd"])),
        ];
        const PATH: &[Slot] = &[
            slot(0, Is::PointerTo("rdma_ah_attr")),
            slot(1, Is::PointerTo("rdma_ah_init_attr")),
            slot(2, Is::PointerTo("ib_gid_attr")),
            slot(3, Is::PointerNamed("ib_gid", &["dgid"])),
        ];
        const COMMAND: &[Slot] = &[
            slot(0, Is::Bytes("in")),
            slot(1, Is::Bytes("out")),
            slot(2, Is::Integer(2, &["op"])),
        ];
        match self {
            Self::ModifyQp => QP,
            Self::RegMr => REG_MR,
            Self::RegDmabufMr => DMABUF,
            Self::CreateQp => const { &[slot(0, Is::PointerTo("ib_qp_init_attr"))] },
            Self::CreateCq => const { &[slot(0, Is::PointerTo("ib_cq_init_attr"))] },
            Self::AddressHandle => PATH,
            Self::Command => COMMAND,
            Self::CqpCommand => const { &[slot(0, Is::PointerTo("irdma_cqp_request"))] },
            Self::RcfwCommand => const { &[slot(0, Is::PointerTo("bnxt_qplib_cmdqmsg"))] },
            Self::GdmaCommand => const { &[slot(0, Is::Bytes("req")), slot(1, Is::Bytes("resp"))] },
            Self::RegMrCommand
            | Self::RegMrMethod
            | Self::DmabufMethod
            | Self::DevxCommand
            | Self::DevxUmem => const { &[slot(0, Is::PointerTo("uverbs_attr_bundle"))] },
        }
    }
}

/// Where one function takes what a reading needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// What is read.
    pub reading: Reading,
    slots: [Option<u8>; SLOTS],
}

impl Places {
    /// Looks through the function's parameters.
    ///
    /// # Errors
    /// The id is no function, or its types are broken.
    pub fn find(types: &Types<'_>, function_id: u32, reading: Reading) -> Result<Self, BtfError> {
        let mut slots = [None; SLOTS];
        let mut place = 0_u32;
        for (name, type_id, words) in parameters(types, function_id)? {
            let wanted = reading.slots().iter();
            for slot in wanted.filter(|slot| slots[slot.number].is_none()) {
                if is(types, name, type_id, slot.is)? {
                    slots[slot.number] = u8::try_from(place)
                        .ok()
                        .filter(|p| u32::from(*p) < NO_PLACE);
                    break;
                }
            }
            place = place.saturating_add(words);
        }
        Ok(Self { reading, slots })
    }

    /// Whether the function takes the argument of a slot.
    pub(super) fn has(&self, slot: usize) -> bool {
        self.slots.get(slot).is_some_and(Option::is_some)
    }
}

fn is(types: &Types<'_>, name: &[u8], type_id: u32, wanted: Is) -> Result<bool, BtfError> {
    let (_, found) = types.resolve(type_id)?;
    let named = |names: &[&str]| names.iter().any(|n| n.as_bytes() == name);
    let pointee = || -> Result<(Kind, &[u8]), BtfError> {
        if found.kind != Kind::Ptr {
            return Ok((Kind::Int, b""));
        }
        let (_, target) = types.resolve(found.size_or_type)?;
        Ok((target.kind, types.string(target.name)?))
    };
    let points_to = |wanted: &str| -> Result<bool, BtfError> {
        let (kind, target) = pointee()?;
        let composite = matches!(kind, Kind::Struct | Kind::Union | Kind::Fwd);
        Ok(composite && target == wanted.as_bytes())
    };
    Ok(match wanted {
        Is::PointerTo(target) => points_to(target)?,
        Is::PointerNamed(target, names) => named(names) && points_to(target)?,
        Is::Bytes(wanted) => wanted.as_bytes() == name && pointee()?.0 == Kind::Void,
        Is::Integer(bytes, names) => {
            let integer = matches!(found.kind, Kind::Int | Kind::Enum);
            named(names) && integer && found.size_or_type == bytes
        }
    })
}

/// The constant that a program is given: the first argument's kind, the reading and
/// the places, four bits each.
#[must_use]
pub(crate) fn constant(first: FirstArgument, places: Option<&Places>) -> u32 {
    let mut out = first as u32 & 15;
    let slots = places.map_or([None; SLOTS], |p| p.slots);
    out |= places.map_or(0, |p| p.reading as u32) << 4;
    for (number, place) in slots.iter().enumerate() {
        let place = place.map_or(NO_PLACE, u32::from);
        out |= (place & NO_PLACE) << (8 + 4 * number);
    }
    out
}
