//! Questions of operators and programs.

mod agents;
mod ambiguous;
mod exact;
mod failures;
mod wires;

pub use agents::{AgentStatus, ProbeCount, StoredReport};
pub use ambiguous::Ambiguous;
pub use exact::ExactSnapshot;
pub use failures::{
    COUNTED_MAX, Failure, FailureCursor, FailureFilter, FailurePage, StoredSnapshot,
};
pub use wires::{
    Comparison, FleetWire, Microseconds, Shaper, Span, SpanSummary, StoredWindow, WindowPlaces,
    WireFilter,
};
