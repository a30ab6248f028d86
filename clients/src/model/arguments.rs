//! What a failing call was asked to do.

use rdmesh_proto::collector::v1 as wire;
use rdmesh_proto::tracer::v1 as tracer;
use serde::Serialize;

use super::wire_enum;

wire_enum! {
    /// What an address of the failing process mapped.
    Mapping from rdmesh_proto::tracer::v1::Mapping {
        None => "none",
        Anonymous => "anonymous",
        File => "file",
        HugePage => "huge_page",
        DevicePfn => "device_pfn",
    }
}

/// As far as the probes read it; names as in the SQL column
/// `rdmesh.failures.arguments`. What was not read is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CallArguments {
    /// What the first byte of the memory mapped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mapping: Option<Mapping>,
    /// What its last byte mapped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mapping_of_end: Option<Mapping>,
    /// Where the memory begins, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Its length, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length_bytes: Option<u64>,
    /// `enum ib_access_flags`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_flags: Option<u32>,
    /// File descriptor of the dmabuf.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dmabuf_fd: Option<i32>,
    /// Where in the dmabuf the region begins, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dmabuf_offset_bytes: Option<u64>,
    /// The queue pair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qp_number: Option<u32>,
    /// State that it was in: `INIT`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_state: Option<String>,
    /// State that was asked for: `RTS`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked_state: Option<String>,
    /// `enum ib_qp_attr_mask`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attribute_mask: Option<u32>,
    /// Index into the port's GID table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gid_index: Option<u32>,
    /// `RoCE v2`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gid_type: Option<String>,
    /// GID of the peer, as an IPv6 address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination_gid: Option<String>,
    /// Port of the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u32>,
    /// Sizes that a create_cq or create_qp asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub create: Option<CreateSizes>,
    /// What the firmware answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firmware: Option<FirmwareAnswer>,
}

/// Sizes of a queue that was to be made; 0: not asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CreateSizes {
    /// Completion queue entries.
    pub cqe: u32,
    /// Send work requests.
    pub max_send_wr: u32,
    /// Receive work requests.
    pub max_recv_wr: u32,
    /// Segments of a send.
    pub max_send_sge: u32,
    /// Segments of a receive.
    pub max_recv_sge: u32,
    /// Inline bytes.
    pub max_inline_data_bytes: u32,
    /// Completion vector of a completion queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_vector: Option<u32>,
    /// `enum ib_qp_type`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qp_type: Option<u32>,
}

/// A device's answer to a firmware command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FirmwareAnswer {
    /// The command.
    pub opcode: u32,
    /// 0: success, also where the command never reached the device.
    pub status: u32,
    /// The vendor's own number for what went wrong.
    pub syndrome: u32,
    /// Type of the object that a DEVX command makes or changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object_type: Option<u32>,
}

impl From<wire::CallArguments> for CallArguments {
    fn from(a: wire::CallArguments) -> CallArguments {
        let mapping = |told| Some(Mapping::from(told)).filter(|m| *m != Mapping::Unspecified);
        CallArguments {
            mapping: mapping(a.mapping),
            mapping_of_end: mapping(a.mapping_of_end),
            address: a.address,
            length_bytes: a.length_bytes,
            access_flags: a.access_flags,
            dmabuf_fd: a.dmabuf_fd,
            dmabuf_offset_bytes: a.dmabuf_offset_bytes,
            qp_number: a.qp_number,
            current_state: a.current_state,
            asked_state: a.asked_state,
            attribute_mask: a.attribute_mask,
            gid_index: a.gid_index,
            gid_type: a.gid_type,
            destination_gid: a.destination_gid,
            port: a.port,
            create: a.create.map(Into::into),
            firmware: a.firmware.map(Into::into),
        }
    }
}

impl From<tracer::CreateArguments> for CreateSizes {
    fn from(c: tracer::CreateArguments) -> CreateSizes {
        CreateSizes {
            cqe: c.cqe(),
            max_send_wr: c.max_send_wr(),
            max_recv_wr: c.max_recv_wr(),
            max_send_sge: c.max_send_sge(),
            max_recv_sge: c.max_recv_sge(),
            max_inline_data_bytes: c.max_inline_data_bytes(),
            completion_vector: c.completion_vector,
            qp_type: c.qp_type,
        }
    }
}

impl From<tracer::FirmwareCommandArguments> for FirmwareAnswer {
    fn from(f: tracer::FirmwareCommandArguments) -> FirmwareAnswer {
        FirmwareAnswer {
            opcode: f.opcode(),
            status: f.status(),
            syndrome: f.syndrome(),
            object_type: f.object_type,
        }
    }
}
