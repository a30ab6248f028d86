//! What the full records of a chain say, merged into one object.

use std::net::Ipv6Addr;

use rdmesh_proto::tracer::v1::record_arguments::Verb as Read;
use rdmesh_proto::tracer::v1::{
    AddressHandleArguments, CreateArguments, DevxArguments, Mapping, ModifyQpArguments,
    RecordArguments, RegMrArguments,
};

use crate::diagnosis::{Arguments, CreateSizes, FirmwareAnswer, Mapping as Mapped};

/// The JSON object that is kept with the chain, of what its records tell, innermost first;
/// `None` when no record said anything.
pub(crate) fn merged(read: &[&RecordArguments]) -> Option<String> {
    let mut merged = Arguments::default();
    // Innermost first: what stands closer to the error wins.
    for arguments in read {
        match &arguments.verb {
            Some(Read::RegMr(read)) => reg_mr(&mut merged, read),
            Some(Read::ModifyQp(read)) => modify_qp(&mut merged, read),
            Some(Read::AddressHandle(read)) => address_handle(&mut merged, read),
            Some(Read::Create(read)) => create(&mut merged, read),
            Some(Read::FirmwareCommand(read)) => {
                merged.firmware.get_or_insert(FirmwareAnswer {
                    opcode: read.opcode.unwrap_or(0),
                    status: read.status.unwrap_or(0),
                    syndrome: read.syndrome.unwrap_or(0),
                    object_type: read.object_type,
                });
            }
            Some(Read::Devx(read)) => devx(&mut merged, read),
            None => {}
        }
    }
    if merged == Arguments::default() {
        return None;
    }
    serde_json::to_string(&merged).ok()
}

/// Sets what no inner record said.
fn fill<T>(merged: &mut Option<T>, read: Option<T>) {
    if merged.is_none() {
        *merged = read;
    }
}

fn mapped(mapping: Mapping) -> Option<Mapped> {
    match mapping {
        Mapping::Unspecified => None,
        Mapping::None => Some(Mapped::None),
        Mapping::Anonymous => Some(Mapped::Anonymous),
        Mapping::File => Some(Mapped::File),
        Mapping::HugePage => Some(Mapped::HugePage),
        Mapping::DevicePfn => Some(Mapped::DevicePfn),
    }
}

fn reg_mr(merged: &mut Arguments, read: &RegMrArguments) {
    fill(&mut merged.mapping, mapped(read.mapping()));
    fill(&mut merged.mapping_of_end, mapped(read.mapping_of_end()));
    fill(
        &mut merged.address,
        read.address.map(|at| format!("{at:#x}")),
    );
    fill(&mut merged.length_bytes, read.length_bytes);
    fill(&mut merged.access_flags, read.access_flags);
    fill(&mut merged.dmabuf_fd, read.dmabuf_fd);
    fill(&mut merged.dmabuf_offset_bytes, read.dmabuf_offset_bytes);
}

/// The same command as the driver's own record tells it, which has not its object's type.
fn devx(merged: &mut Arguments, read: &DevxArguments) {
    let firmware = merged.firmware.get_or_insert(FirmwareAnswer {
        opcode: read.opcode.unwrap_or(0),
        status: read.status.unwrap_or(0),
        syndrome: read.syndrome.unwrap_or(0),
        object_type: None,
    });
    if read.opcode == Some(firmware.opcode) {
        fill(&mut firmware.object_type, read.object_type);
    }
    fill(&mut merged.length_bytes, read.length_bytes);
    let address = read.address.map(|at| format!("{at:#x}"));
    fill(&mut merged.address, address);
}

/// `enum ib_qp_state` of include/rdma/ib_verbs.h.
fn state(number: u32) -> String {
    let states = ["RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"];
    let named = usize::try_from(number)
        .ok()
        .and_then(|index| states.get(index));
    named.map_or_else(|| format!("state {number}"), |name| (*name).to_owned())
}

/// `enum ib_gid_type` of include/rdma/ib_verbs.h.
fn gid_type(number: u32) -> String {
    match number {
        0 => "InfiniBand".to_owned(),
        1 => "RoCE v1".to_owned(),
        2 => "RoCE v2".to_owned(),
        other => format!("GID type {other}"),
    }
}

fn modify_qp(merged: &mut Arguments, read: &ModifyQpArguments) {
    fill(&mut merged.qp_number, read.qp_number);
    fill(&mut merged.current_state, read.current_state.map(state));
    fill(&mut merged.asked_state, read.asked_state.map(state));
    fill(&mut merged.attribute_mask, read.attribute_mask);
    fill(&mut merged.port, read.port);
    gid(merged, read.gid_index, read.gid_type, &read.destination_gid);
}

fn address_handle(merged: &mut Arguments, read: &AddressHandleArguments) {
    fill(&mut merged.port, read.port);
    gid(merged, read.gid_index, read.gid_type, &read.destination_gid);
}

fn gid(merged: &mut Arguments, index: Option<u32>, kind: Option<u32>, destination: &[u8]) {
    fill(&mut merged.gid_index, index);
    fill(&mut merged.gid_type, kind.map(gid_type));
    if merged.destination_gid.is_none()
        && let Ok(gid) = <[u8; 16]>::try_from(destination)
        && gid != [0; 16]
    {
        merged.destination_gid = Some(Ipv6Addr::from(gid).to_string());
    }
}

fn create(merged: &mut Arguments, read: &CreateArguments) {
    merged.create.get_or_insert(CreateSizes {
        cqe: read.cqe.unwrap_or(0),
        max_send_wr: read.max_send_wr.unwrap_or(0),
        max_recv_wr: read.max_recv_wr.unwrap_or(0),
        max_send_sge: read.max_send_sge.unwrap_or(0),
        max_recv_sge: read.max_recv_sge.unwrap_or(0),
        max_inline_data_bytes: read.max_inline_data_bytes.unwrap_or(0),
        completion_vector: read.completion_vector,
        qp_type: read.qp_type,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(verb: Read) -> RecordArguments {
        RecordArguments { verb: Some(verb) }
    }

    #[test]
    fn the_innermost_record_wins_and_zero_mapping_is_unknown() {
        let inner = RegMrArguments {
            address: Some(0x10),
            mapping: 1,
            ..RegMrArguments::default()
        };
        let outer = RegMrArguments {
            address: Some(0x20),
            mapping: 2,
            ..RegMrArguments::default()
        };
        let (inner, outer) = (read(Read::RegMr(inner)), read(Read::RegMr(outer)));
        let json = merged(&[&inner, &outer]).unwrap();
        let read: Arguments = serde_json::from_str(&json).unwrap();
        assert_eq!(read.mapping, Some(Mapped::None));
        assert_eq!(read.address.as_deref(), Some("0x10"));
    }

    #[test]
    fn qp_states_and_gids_are_readable() {
        let mut destination_gid = vec![0; 10];
        destination_gid.extend([0xff, 0xff, 10, 0, 0, 9]);
        let asked = ModifyQpArguments {
            current_state: Some(0),
            asked_state: Some(3),
            destination_gid,
            ..ModifyQpArguments::default()
        };
        let json = merged(&[&read(Read::ModifyQp(asked))]).unwrap();
        assert!(
            json.contains(r#""current_state":"RESET","asked_state":"RTS""#),
            "{json}"
        );
        assert!(json.contains("::ffff:10.0.0.9"), "{json}");
        assert_eq!(state(77), "state 77");
    }

    #[test]
    fn what_a_record_does_not_say_comes_from_one_further_out() {
        let path = AddressHandleArguments {
            gid_index: Some(3),
            gid_type: Some(2),
            ..AddressHandleArguments::default()
        };
        let call = ModifyQpArguments {
            qp_number: Some(17),
            gid_index: Some(4),
            ..ModifyQpArguments::default()
        };
        let (path, call) = (read(Read::AddressHandle(path)), read(Read::ModifyQp(call)));
        assert_eq!(
            merged(&[&path, &call]).unwrap(),
            r#"{"qp_number":17,"gid_index":3,"gid_type":"RoCE v2"}"#
        );
    }

    /// The driver's command failed below the handler, which knows the type of the object.
    #[test]
    fn a_devx_command_is_told_once_with_its_object() {
        use rdmesh_proto::tracer::v1::FirmwareCommandArguments;
        let command = FirmwareCommandArguments {
            opcode: Some(0xa00),
            status: Some(3),
            syndrome: Some(0x5e),
            object_type: None,
        };
        let method = DevxArguments {
            opcode: Some(0xa00),
            object_type: Some(0x1f),
            status: Some(3),
            syndrome: Some(0x5e),
            ..DevxArguments::default()
        };
        let method = read(Read::Devx(method));
        let told = |read: &[&RecordArguments]| merged(read).unwrap();
        let whole = r#"{"firmware":{"opcode":2560,"status":3,"syndrome":94,"object_type":31}}"#;
        let driver = read(Read::FirmwareCommand(command));
        assert_eq!(told(&[&driver, &method]), whole);
        assert_eq!(told(&[&method]), whole);
        // A command that the driver gives besides is another one.
        let other = FirmwareCommandArguments {
            opcode: Some(0x500),
            ..command
        };
        let driver = read(Read::FirmwareCommand(other));
        assert!(!told(&[&driver, &method]).contains("object_type"));
    }

    #[test]
    fn nothing_read_is_no_object() {
        assert_eq!(merged(&[]), None);
        assert_eq!(merged(&[&RecordArguments::default()]), None);
    }
}
