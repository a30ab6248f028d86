//! Asynchronous events as co-signals.

use std::borrow::Cow;

use rdmesh_proto::tracer::v1::CoSignalKind;

use crate::record::{ArgsKind, Record};

/// Something else that went wrong near a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoSignal {
    /// Boot clock.
    pub boot_ns: u64,
    /// What it tells about.
    pub kind: CoSignalKind,
    /// Whether it can be a cause; else it echoes a failure.
    pub independent: bool,
    /// The kernel's name of the event or counter, or that of the rule.
    pub name: Cow<'static, str>,
    /// More, for people: the port.
    pub detail: String,
    /// RDMA device; empty: not known.
    pub device: Vec<u8>,
}

/// `enum ib_event_type` (include/rdma/ib_verbs.h): number, name, kind, whether
/// it can be a cause. An event of one QP or CQ follows from what happened to it;
/// an event of a port or device comes from outside. Events that are part of
/// normal work (communication established, queue drained, limit reached, last
/// element reached) are not here.
const EVENTS: [(u64, &str, CoSignalKind, bool); 15] = [
    (0, "CQ_ERR", CoSignalKind::Device, false),
    (1, "QP_FATAL", CoSignalKind::Device, false),
    (2, "QP_REQ_ERR", CoSignalKind::Device, false),
    (3, "QP_ACCESS_ERR", CoSignalKind::Device, false),
    (7, "PATH_MIG_ERR", CoSignalKind::Network, true),
    (8, "DEVICE_FATAL", CoSignalKind::Device, true),
    (9, "PORT_ACTIVE", CoSignalKind::Network, true),
    (10, "PORT_ERR", CoSignalKind::Network, true),
    (11, "LID_CHANGE", CoSignalKind::Network, true),
    (12, "PKEY_CHANGE", CoSignalKind::Network, true),
    (13, "SM_CHANGE", CoSignalKind::Network, true),
    (14, "SRQ_ERR", CoSignalKind::Device, false),
    (17, "CLIENT_REREGISTER", CoSignalKind::Network, true),
    (18, "GID_CHANGE", CoSignalKind::Network, true),
    (19, "WQ_FATAL", CoSignalKind::Device, false),
];

/// Port and device events carry a port number where the others carry a pointer.
const PORT_EVENTS: std::ops::RangeInclusive<u64> = 9..=18;
/// RDMA devices have at most this many ports (struct ib_device: u32, in the
/// field two); a larger element is a pointer and never shown.
const PORTS: u64 = 255;

/// What an event's record says; none for an event of normal work.
#[must_use]
pub fn co_signal(record: &Record) -> Option<CoSignal> {
    if record.args_kind != ArgsKind::AsyncEvent {
        return None;
    }
    let [event, element, ..] = record.args;
    let (_, name, kind, independent) = EVENTS.iter().find(|(number, ..)| *number == event)?;
    let is_port = PORT_EVENTS.contains(&event) && (1..=PORTS).contains(&element);
    Some(CoSignal {
        boot_ns: record.boot_ns,
        kind: *kind,
        independent: *independent,
        name: Cow::Borrowed(*name),
        detail: if is_port {
            format!("port {element}")
        } else {
            String::new()
        },
        device: record.device_name().to_vec(),
    })
}
