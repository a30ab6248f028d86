//! What the full records of a chain say, merged into one object.

use std::net::Ipv6Addr;

use rdmesh_proto::tracer::v1::record_arguments::Verb as Read;
use rdmesh_proto::tracer::v1::{
    CreateArguments, Mapping, ModifyQpArguments, RegMrArguments, Sample,
};

use crate::diagnosis::{Arguments, CreateSizes, FirmwareAnswer, Mapping as Mapped};

/// The JSON object that is kept with the chain; `None` when no record said anything.
pub(crate) fn merged(sample: &Sample) -> Option<String> {
    let mut merged = Arguments::default();
    // Innermost first: what stands closer to the error wins.
    for record in &sample.records {
        match record
            .arguments
            .as_ref()
            .and_then(|arguments| arguments.verb.as_ref())
        {
            Some(Read::RegMr(read)) => reg_mr(&mut merged, read),
            Some(Read::ModifyQp(read)) => modify_qp(&mut merged, read),
            Some(Read::Create(read)) => create(&mut merged, read),
            Some(Read::FirmwareCommand(read)) => {
                merged.firmware.get_or_insert(FirmwareAnswer {
                    opcode: read.opcode,
                    status: read.status,
                    syndrome: read.syndrome,
                });
            }
            Some(Read::Devx(read)) => {
                merged.address.get_or_insert(format!("{:#x}", read.address));
                merged.length_bytes.get_or_insert(read.length_bytes);
            }
            None => {}
        }
    }
    if merged == Arguments::default() {
        return None;
    }
    serde_json::to_string(&merged).ok()
}

fn reg_mr(merged: &mut Arguments, read: &RegMrArguments) {
    if merged.mapping.is_none() {
        merged.mapping = match read.mapping() {
            Mapping::Unspecified => None,
            Mapping::None => Some(Mapped::None),
            Mapping::Anonymous => Some(Mapped::Anonymous),
            Mapping::File => Some(Mapped::File),
            Mapping::HugePage => Some(Mapped::HugePage),
            Mapping::DevicePfn => Some(Mapped::DevicePfn),
        };
    }
    merged.address.get_or_insert(format!("{:#x}", read.address));
    merged.length_bytes.get_or_insert(read.length_bytes);
    merged.access_flags.get_or_insert(read.access_flags);
    merged.dmabuf_fd = merged.dmabuf_fd.or(read.dmabuf_fd);
}

/// `enum ib_qp_state` of include/rdma/ib_verbs.h.
fn state(number: u32) -> String {
    let states = ["RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"];
    let named = usize::try_from(number)
        .ok()
        .and_then(|index| states.get(index));
    named.map_or_else(|| format!("state {number}"), |name| (*name).to_owned())
}

fn modify_qp(merged: &mut Arguments, read: &ModifyQpArguments) {
    merged.qp_number.get_or_insert(read.qp_number);
    merged
        .current_state
        .get_or_insert_with(|| state(read.current_state));
    merged
        .asked_state
        .get_or_insert_with(|| state(read.asked_state));
    merged.port.get_or_insert(read.port);
    merged.gid_index.get_or_insert(read.gid_index);
    if merged.destination_gid.is_none()
        && let Ok(gid) = <[u8; 16]>::try_from(read.destination_gid.as_slice())
        && gid != [0; 16]
    {
        merged.destination_gid = Some(Ipv6Addr::from(gid).to_string());
    }
}

fn create(merged: &mut Arguments, read: &CreateArguments) {
    merged.create.get_or_insert(CreateSizes {
        cqe: read.cqe,
        max_send_wr: read.max_send_wr,
        max_recv_wr: read.max_recv_wr,
        max_send_sge: read.max_send_sge,
        max_recv_sge: read.max_recv_sge,
        max_inline_data_bytes: read.max_inline_data_bytes,
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdmesh_proto::tracer::v1::{Record, RecordArguments};

    fn record(verb: Read) -> Record {
        Record {
            arguments: Some(RecordArguments { verb: Some(verb) }),
            ..Record::default()
        }
    }

    #[test]
    fn the_innermost_record_wins_and_zero_mapping_is_unknown() {
        let inner = RegMrArguments {
            address: 0x10,
            mapping: 1,
            ..RegMrArguments::default()
        };
        let outer = RegMrArguments {
            address: 0x20,
            mapping: 2,
            ..RegMrArguments::default()
        };
        let sample = Sample {
            chain: 0,
            records: vec![
                Record::default(),
                record(Read::RegMr(inner)),
                record(Read::RegMr(outer)),
            ],
        };
        let json = merged(&sample).unwrap();
        let read: Arguments = serde_json::from_str(&json).unwrap();
        assert_eq!(read.mapping, Some(Mapped::None));
        assert_eq!(read.address.as_deref(), Some("0x10"));
    }

    #[test]
    fn qp_states_and_gids_are_readable() {
        let mut destination_gid = vec![0; 10];
        destination_gid.extend([0xff, 0xff, 10, 0, 0, 9]);
        let read = ModifyQpArguments {
            current_state: 0,
            asked_state: 3,
            destination_gid,
            ..ModifyQpArguments::default()
        };
        let sample = Sample {
            chain: 0,
            records: vec![record(Read::ModifyQp(read))],
        };
        let json = merged(&sample).unwrap();
        assert!(
            json.contains(r#""current_state":"RESET","asked_state":"RTS""#),
            "{json}"
        );
        assert!(json.contains("::ffff:10.0.0.9"), "{json}");
        assert_eq!(state(77), "state 77");
    }

    #[test]
    fn nothing_read_is_no_object() {
        let sample = Sample {
            chain: 0,
            records: vec![Record::default()],
        };
        assert_eq!(merged(&sample), None);
    }
}
