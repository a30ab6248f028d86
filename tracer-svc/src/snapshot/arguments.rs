//! What calls were asked to do, in the contract's words.

use rdmesh_proto::tracer::v1 as wire;
use rdmesh_proto::tracer::v1::record_arguments::Verb;

use crate::record::{
    Arguments, CommandArguments, CreateArguments, DevxArguments, Mapping, QpArguments, Record,
    RegMrArguments,
};

/// What a record says of its call; none where its probe reads nothing.
#[must_use]
pub fn arguments(record: &Record) -> Option<wire::RecordArguments> {
    let verb = match record.arguments()? {
        Arguments::ModifyQp(said) => Verb::ModifyQp(modify_qp(&said)),
        Arguments::AddressHandle(said) => Verb::AddressHandle(address_handle(&said)),
        Arguments::RegMr(said) => Verb::RegMr(reg_mr(&said)),
        Arguments::Create(said) => Verb::Create(create(&said)),
        Arguments::Command(said) => Verb::FirmwareCommand(command(&said)),
        Arguments::Devx(said) => Verb::Devx(devx(&said)),
    };
    Some(wire::RecordArguments { verb: Some(verb) })
}

fn gid(bytes: Option<[u8; 16]>) -> Vec<u8> {
    bytes.map_or_else(Vec::new, |gid| gid.to_vec())
}

fn modify_qp(said: &QpArguments) -> wire::ModifyQpArguments {
    wire::ModifyQpArguments {
        qp_number: said.qp_number,
        current_state: said.current_state,
        asked_state: said.asked_state,
        attribute_mask: said.attribute_mask,
        port: said.port,
        gid_index: said.gid_index,
        gid_type: said.gid_type,
        destination_gid: gid(said.destination_gid),
    }
}

fn address_handle(said: &QpArguments) -> wire::AddressHandleArguments {
    wire::AddressHandleArguments {
        port: said.port,
        gid_index: said.gid_index,
        gid_type: said.gid_type,
        destination_gid: gid(said.destination_gid),
    }
}

fn mapping(mapping: Mapping) -> i32 {
    match mapping {
        Mapping::Unknown => wire::Mapping::Unspecified,
        Mapping::None => wire::Mapping::None,
        Mapping::Anonymous => wire::Mapping::Anonymous,
        Mapping::File => wire::Mapping::File,
        Mapping::HugePage => wire::Mapping::HugePage,
        Mapping::Device => wire::Mapping::DevicePfn,
    }
    .into()
}

fn reg_mr(said: &RegMrArguments) -> wire::RegMrArguments {
    wire::RegMrArguments {
        address: said.address,
        length_bytes: said.length,
        access_flags: said.access_flags,
        mapping: mapping(said.mapping),
        dmabuf_fd: said.dmabuf_fd,
        mapping_of_end: mapping(said.mapping_of_end),
        dmabuf_offset_bytes: said.dmabuf_offset,
    }
}

fn create(said: &CreateArguments) -> wire::CreateArguments {
    wire::CreateArguments {
        cqe: said.cqe,
        max_send_wr: said.max_send_wr,
        max_recv_wr: said.max_recv_wr,
        max_send_sge: said.max_send_sge,
        max_recv_sge: said.max_recv_sge,
        max_inline_data_bytes: said.max_inline_data,
        completion_vector: said.completion_vector,
        qp_type: said.qp_type,
    }
}

fn command(said: &CommandArguments) -> wire::FirmwareCommandArguments {
    wire::FirmwareCommandArguments {
        opcode: said.opcode,
        status: said.status,
        syndrome: said.syndrome,
        object_type: None,
    }
}

fn devx(said: &DevxArguments) -> wire::DevxArguments {
    wire::DevxArguments {
        opcode: said.opcode,
        object_type: said.object_type,
        status: said.status,
        syndrome: said.syndrome,
        // Of memory there is a message of its own.
        address: None,
        length_bytes: None,
    }
}
