//! Questions of operators and programs.

mod agents;
mod failures;

pub use agents::{AgentStatus, StoredReport};
pub(crate) use failures::push_candidates;
pub use failures::{Failure, FailureCursor, FailureFilter};
