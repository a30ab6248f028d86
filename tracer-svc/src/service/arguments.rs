//! What calls were asked to do, as JSON with the contract's field names. What is
//! absent is left out.

use std::net::Ipv6Addr;

use rdmesh_proto::tracer::v1 as wire;
use rdmesh_proto::tracer::v1::record_arguments::Verb;
use serde_json::{Map, Value, json};

/// The arguments of one step; null where its probe reads none.
#[must_use]
pub(super) fn arguments_json(arguments: &wire::RecordArguments) -> Value {
    let (name, fields) = match &arguments.verb {
        None => return Value::Null,
        Some(Verb::RegMr(a)) => ("reg_mr", reg_mr(a)),
        Some(Verb::ModifyQp(a)) => ("modify_qp", modify_qp(a)),
        Some(Verb::AddressHandle(a)) => ("address_handle", address_handle(a)),
        Some(Verb::Create(a)) => ("create", create(a)),
        Some(Verb::FirmwareCommand(a)) => ("firmware_command", command(a)),
        Some(Verb::Devx(a)) => ("devx", devx(a)),
    };
    json!({ name: fields })
}

fn object<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    let there = fields
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(Map::from_iter(there))
}

fn number<T: Into<Value>>(value: Option<T>) -> Option<Value> {
    value.map(Into::into)
}

fn mapping(mapping: wire::Mapping) -> Option<Value> {
    let name = match mapping {
        wire::Mapping::Unspecified => return None,
        wire::Mapping::None => "none",
        wire::Mapping::Anonymous => "anonymous",
        wire::Mapping::File => "file",
        wire::Mapping::HugePage => "huge_page",
        wire::Mapping::DevicePfn => "device_pfn",
    };
    Some(name.into())
}

fn gid(bytes: &[u8]) -> Option<Value> {
    let bytes = <[u8; 16]>::try_from(bytes).ok()?;
    Some(Ipv6Addr::from(bytes).to_string().into())
}

fn reg_mr(a: &wire::RegMrArguments) -> Value {
    object([
        ("address", number(a.address)),
        ("length_bytes", number(a.length_bytes)),
        ("access_flags", number(a.access_flags)),
        ("mapping", mapping(a.mapping())),
        ("mapping_of_end", mapping(a.mapping_of_end())),
        ("dmabuf_fd", number(a.dmabuf_fd)),
        ("dmabuf_offset_bytes", number(a.dmabuf_offset_bytes)),
    ])
}

fn modify_qp(a: &wire::ModifyQpArguments) -> Value {
    object([
        ("qp_number", number(a.qp_number)),
        ("current_state", number(a.current_state)),
        ("asked_state", number(a.asked_state)),
        ("attribute_mask", number(a.attribute_mask)),
        ("port", number(a.port)),
        ("gid_index", number(a.gid_index)),
        ("gid_type", number(a.gid_type)),
        ("destination_gid", gid(&a.destination_gid)),
    ])
}

fn address_handle(a: &wire::AddressHandleArguments) -> Value {
    object([
        ("port", number(a.port)),
        ("gid_index", number(a.gid_index)),
        ("gid_type", number(a.gid_type)),
        ("destination_gid", gid(&a.destination_gid)),
    ])
}

fn create(a: &wire::CreateArguments) -> Value {
    object([
        ("cqe", number(a.cqe)),
        ("max_send_wr", number(a.max_send_wr)),
        ("max_recv_wr", number(a.max_recv_wr)),
        ("max_send_sge", number(a.max_send_sge)),
        ("max_recv_sge", number(a.max_recv_sge)),
        ("max_inline_data_bytes", number(a.max_inline_data_bytes)),
        ("completion_vector", number(a.completion_vector)),
        ("qp_type", number(a.qp_type)),
    ])
}

fn command(a: &wire::FirmwareCommandArguments) -> Value {
    object([
        ("opcode", number(a.opcode)),
        ("status", number(a.status)),
        ("syndrome", number(a.syndrome)),
    ])
}

fn devx(a: &wire::DevxArguments) -> Value {
    object([
        ("opcode", number(a.opcode)),
        ("object_type", number(a.object_type)),
        ("status", number(a.status)),
        ("syndrome", number(a.syndrome)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json_of(verb: Verb) -> String {
        arguments_json(&wire::RecordArguments { verb: Some(verb) }).to_string()
    }

    #[test]
    fn what_is_absent_is_left_out_and_zero_is_not_absent() {
        let mut destination_gid = vec![0; 10];
        destination_gid.extend([0xff, 0xff, 192, 0, 2, 2]);
        let path = wire::AddressHandleArguments {
            gid_index: Some(0),
            destination_gid,
            ..wire::AddressHandleArguments::default()
        };
        assert_eq!(
            json_of(Verb::AddressHandle(path)),
            r#"{"address_handle":{"destination_gid":"::ffff:192.0.2.2","gid_index":0}}"#
        );
        let region = wire::RegMrArguments {
            mapping: wire::Mapping::None.into(),
            dmabuf_fd: Some(-1),
            ..wire::RegMrArguments::default()
        };
        assert_eq!(
            json_of(Verb::RegMr(region)),
            r#"{"reg_mr":{"dmabuf_fd":-1,"mapping":"none"}}"#
        );
        assert_eq!(
            arguments_json(&wire::RecordArguments { verb: None }),
            Value::Null
        );
    }
}
