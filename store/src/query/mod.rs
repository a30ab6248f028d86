//! Questions of operators and programs.

mod agents;
mod ambiguous;
mod failures;

pub use agents::{AgentStatus, ProbeCount, StoredReport};
pub use ambiguous::Ambiguous;
pub(crate) use failures::push_candidates;
pub use failures::{Failure, FailureCursor, FailureFilter};
