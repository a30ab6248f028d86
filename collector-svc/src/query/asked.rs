//! What a failing call was asked to do, from the object that is kept with it.

use rdmesh_proto::collector::v1::CallArguments;
use rdmesh_proto::tracer::v1::{CreateArguments, FirmwareCommandArguments, Mapping};

use crate::diagnosis::{Arguments, CreateSizes, FirmwareAnswer, Mapping as Mapped};

/// The message of an object; `None` where a later version wrote one that this one cannot
/// read.
pub(crate) fn to_proto(object: &str) -> Option<CallArguments> {
    let asked: Arguments = serde_json::from_str(object).ok()?;
    Some(CallArguments {
        mapping: mapping(asked.mapping).into(),
        mapping_of_end: mapping(asked.mapping_of_end).into(),
        address: asked.address,
        length_bytes: asked.length_bytes,
        access_flags: asked.access_flags,
        dmabuf_fd: asked.dmabuf_fd,
        dmabuf_offset_bytes: asked.dmabuf_offset_bytes,
        qp_number: asked.qp_number,
        current_state: asked.current_state,
        asked_state: asked.asked_state,
        attribute_mask: asked.attribute_mask,
        port: asked.port,
        gid_index: asked.gid_index,
        gid_type: asked.gid_type,
        destination_gid: asked.destination_gid,
        create: asked.create.as_ref().map(sizes),
        firmware: asked.firmware.map(answer),
    })
}

fn mapping(mapped: Option<Mapped>) -> Mapping {
    match mapped {
        None => Mapping::Unspecified,
        Some(Mapped::None) => Mapping::None,
        Some(Mapped::Anonymous) => Mapping::Anonymous,
        Some(Mapped::File) => Mapping::File,
        Some(Mapped::HugePage) => Mapping::HugePage,
        Some(Mapped::DevicePfn) => Mapping::DevicePfn,
    }
}

fn sizes(asked: &CreateSizes) -> CreateArguments {
    CreateArguments {
        cqe: Some(asked.cqe),
        max_send_wr: Some(asked.max_send_wr),
        max_recv_wr: Some(asked.max_recv_wr),
        max_send_sge: Some(asked.max_send_sge),
        max_recv_sge: Some(asked.max_recv_sge),
        max_inline_data_bytes: Some(asked.max_inline_data_bytes),
        completion_vector: asked.completion_vector,
        qp_type: asked.qp_type,
    }
}

fn answer(answer: FirmwareAnswer) -> FirmwareCommandArguments {
    FirmwareCommandArguments {
        opcode: Some(answer.opcode),
        status: Some(answer.status),
        syndrome: Some(answer.syndrome),
        object_type: answer.object_type,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_object_comes_back_as_it_was_kept() {
        let object = r#"{"mapping":"none","address":"0x7f0000000000","length_bytes":4096,
            "asked_state":"RTS","create":{"cqe":8},"firmware":{"opcode":512,"status":3}}"#;
        let told = to_proto(object).unwrap();
        assert_eq!(told.mapping(), Mapping::None);
        assert_eq!(told.mapping_of_end(), Mapping::Unspecified);
        assert_eq!(told.address.as_deref(), Some("0x7f0000000000"));
        assert_eq!(told.length_bytes, Some(4_096));
        assert_eq!(told.asked_state.as_deref(), Some("RTS"));
        assert_eq!(told.create.unwrap().cqe, Some(8));
        assert_eq!(told.firmware.unwrap().status, Some(3));
        assert_eq!(told.qp_number, None);
    }

    #[test]
    fn an_object_of_a_later_version_is_left_out() {
        assert_eq!(to_proto(r#"{"mapping":"holographic"}"#), None);
        assert_eq!(to_proto("7"), None);
    }
}
