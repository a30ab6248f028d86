//! What an agent reports.

use rdmesh_proto::collector::v1::report_request;
use rdmesh_proto::shaper::v1::WireWindow;
use rdmesh_proto::tracer::v1::{Heartbeat, Inventory, ProbeReport, Snapshot};

/// One item of the stream: everything that `ReportRequest` can carry but Hello, which
/// the uplink sends itself.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "one at a time, encoded as soon as it is pushed"
)]
pub enum Item {
    /// What a host saw fail in an interval.
    Snapshot(Snapshot),
    /// An interval without failures.
    Heartbeat(Heartbeat),
    /// Which probes are attached.
    ProbeReport(ProbeReport),
    /// What the host is.
    Inventory(Inventory),
    /// One interval of a shaped wire.
    WireWindow(WireWindow),
}

/// What the backlog knows of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Counted for itself when it is given up.
    Snapshot,
    /// Another report of an interval: the next one does not depend on it.
    Interval,
    /// A state that later items refer to: given up last.
    State,
}

impl Item {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Snapshot(_) => Kind::Snapshot,
            Self::Heartbeat(_) | Self::WireWindow(_) => Kind::Interval,
            Self::ProbeReport(_) | Self::Inventory(_) => Kind::State,
        }
    }

    pub(crate) fn into_wire(self) -> report_request::Item {
        match self {
            Self::Snapshot(it) => report_request::Item::Snapshot(it),
            Self::Heartbeat(it) => report_request::Item::Heartbeat(it),
            Self::ProbeReport(it) => report_request::Item::ProbeReport(it),
            Self::Inventory(it) => report_request::Item::Inventory(it),
            Self::WireWindow(it) => report_request::Item::WireWindow(it),
        }
    }
}

impl From<Snapshot> for Item {
    fn from(it: Snapshot) -> Self {
        Self::Snapshot(it)
    }
}

impl From<Heartbeat> for Item {
    fn from(it: Heartbeat) -> Self {
        Self::Heartbeat(it)
    }
}

impl From<ProbeReport> for Item {
    fn from(it: ProbeReport) -> Self {
        Self::ProbeReport(it)
    }
}

impl From<Inventory> for Item {
    fn from(it: Inventory) -> Self {
        Self::Inventory(it)
    }
}

impl From<WireWindow> for Item {
    fn from(it: WireWindow) -> Self {
        Self::WireWindow(it)
    }
}
