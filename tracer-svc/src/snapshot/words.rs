//! Our words in the contract's.

use rdmesh_proto::common::v1 as wire;

use rdmesh_proto::tracer::v1::ChainMark;

use crate::catalogue::{Hook, Layer, Object, Verb};
use crate::chain::Marks;
use crate::identity::Source;

/// The contract's layer.
#[must_use]
pub fn layer(layer: Layer) -> wire::Layer {
    match layer {
        Layer::Uverbs => wire::Layer::Uverbs,
        Layer::Core => wire::Layer::Core,
        Layer::Driver => wire::Layer::Driver,
        Layer::Memory => wire::Layer::Memory,
        Layer::Firmware => wire::Layer::Firmware,
        // No hook is there.
        Layer::Kernel => wire::Layer::Unspecified,
    }
}

/// The contract's verb of a hook. A function that serves several verbs has the
/// one that it is there for.
#[must_use]
pub fn verb(hook: &Hook) -> wire::Verb {
    match hook.verb {
        Verb::AllocPd => wire::Verb::AllocPd,
        Verb::RegMr => wire::Verb::RegMr,
        Verb::RegDmabufMr => wire::Verb::RegDmabufMr,
        Verb::CreateCq => wire::Verb::CreateCq,
        Verb::CreateQp => wire::Verb::CreateQp,
        Verb::ModifyQp => wire::Verb::ModifyQp,
        Verb::CreateAh => wire::Verb::CreateAh,
        Verb::DevxCreate => wire::Verb::DevxObjCreate,
        Verb::DevxModify => wire::Verb::DevxObjModify,
        Verb::DevxUmem => wire::Verb::DevxUmemReg,
        Verb::AsyncEvent => wire::Verb::AsyncEvent,
        Verb::Any if hook.layer == Layer::Memory && hook.name.ends_with("dmabuf") => {
            wire::Verb::RegDmabufMr
        }
        Verb::Any if hook.layer == Layer::Memory => wire::Verb::RegMr,
        Verb::Any => wire::Verb::FirmwareCommand,
    }
}

/// The contract's object of a hook.
#[must_use]
pub fn object(hook: &Hook) -> wire::ObjectType {
    match (hook.object, hook.verb) {
        (Object::Pd, _) => wire::ObjectType::Pd,
        (Object::Mr, _) => wire::ObjectType::Mr,
        (Object::Cq, _) => wire::ObjectType::Cq,
        (Object::Qp, _) => wire::ObjectType::Qp,
        (Object::Ah, _) => wire::ObjectType::Ah,
        (Object::Other, Verb::DevxCreate | Verb::DevxModify) => wire::ObjectType::Devx,
        (Object::Other, Verb::DevxUmem) => wire::ObjectType::Umem,
        (Object::Other, _) => wire::ObjectType::Device,
    }
}

/// The contract's module: empty for a function of the kernel itself.
#[must_use]
pub fn module(module: &str) -> &str {
    if module == "vmlinux" { "" } else { module }
}

/// The contract's source of an identity.
#[must_use]
pub fn source(source: Source) -> wire::IdentitySource {
    match source {
        Source::Environment => wire::IdentitySource::Environment,
        Source::Cgroup => wire::IdentitySource::Cgroup,
        Source::None => wire::IdentitySource::None,
    }
}

/// Marks as the bits of the contract.
#[must_use]
pub(super) fn mark_bits(marks: Marks) -> u32 {
    let bit = |set: bool, mark: ChainMark| if set { mark as u32 } else { 0 };
    bit(marks.expected, ChainMark::Expected)
        | bit(marks.swallowed, ChainMark::Swallowed)
        | bit(marks.incomplete, ChainMark::Incomplete)
}
