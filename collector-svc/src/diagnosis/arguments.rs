//! What the arguments of a failing call said, as far as its probes read them.

use serde::{Deserialize, Serialize};

use crate::diagnosis::transition::{self, Step};

/// What an address of the failing process mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mapping {
    /// Nothing.
    None,
    /// Anonymous memory.
    Anonymous,
    /// A file.
    File,
    /// Huge pages.
    HugePage,
    /// Pages of a device without a struct page, as a GPU driver maps them.
    DevicePfn,
}

/// Kept as a JSON object in `rdmesh.failures.arguments`; what was not read is absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Arguments {
    /// What the address mapped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mapping: Option<Mapping>,
    /// What the last byte mapped: `none` where the length runs over the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mapping_of_end: Option<Mapping>,
    /// Address of the memory, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Length of the memory, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length_bytes: Option<u64>,
    /// Access flags (`enum ib_access_flags`).
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
    /// What was to be changed (`enum ib_qp_attr_mask`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attribute_mask: Option<u32>,
    /// Index into the port's GID table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gid_index: Option<u32>,
    /// Kind of that GID: `RoCE v2`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gid_type: Option<String>,
    /// GID of the peer, as an IPv6 address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination_gid: Option<String>,
    /// Port of the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u32>,
    /// Sizes that create_cq or create_qp asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub create: Option<CreateSizes>,
    /// The firmware's own answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firmware: Option<FirmwareAnswer>,
}

impl Arguments {
    /// The step of the queue pair's state machine that was asked for; `None`: no step was,
    /// or nobody read which.
    pub(crate) fn step(&self) -> Option<Step> {
        let from = self.current_state.as_deref()?;
        let to = self.asked_state.as_deref()?;
        Some(transition::step(from, to, self.attribute_mask))
    }

    /// The step in words, with what it lacks.
    pub(crate) fn step_in_words(&self) -> Option<String> {
        let step = self.step()?;
        let (from, to) = (self.current_state.as_deref()?, self.asked_state.as_deref()?);
        let told = format!("the queue pair was to go from {from} to {to}");
        Some(match step {
            Step::Forbidden => format!("{told}, which the state machine does not have"),
            Step::Allowed { lacks } if lacks.is_empty() => {
                format!("{told}, which the state machine has")
            }
            Step::Allowed { lacks } => format!(
                "{told}, and what an RC queue pair needs for that was not given: {}",
                lacks.join(", ")
            ),
        })
    }
}

/// Sizes of a queue that was to be made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
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
    /// Type of a queue pair (`enum ib_qp_type`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qp_type: Option<u32>,
}

/// What the firmware answered to a command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FirmwareAnswer {
    /// The command.
    pub opcode: u32,
    /// Its status; 0: well.
    pub status: u32,
    /// The vendor's own number for what went wrong.
    pub syndrome: u32,
    /// Type of the object that a DEVX command makes or changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object_type: Option<u32>,
}
