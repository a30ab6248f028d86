//! An error that vanished on its way up, and a failure that followed it.

use rdmesh_proto::collector::v1::{Confidence, VerdictClass};

use super::Finding;
use crate::diagnosis::select::Deciding;
use crate::diagnosis::words::chain_line;
use crate::diagnosis::{Case, Chain};

/// A swallowed error of the same process so shortly before a failure is taken for its
/// cause: programs go on to the next call at once.
const SHORTLY: std::time::Duration = std::time::Duration::from_secs(2);

/// An error of another call of the process was swallowed right before.
pub(super) fn before_failure(deciding: &Deciding<'_>, _: &Case) -> Option<Finding> {
    let first = deciding.chain;
    let earlier = deciding.swallowed_before.iter().rev().find(|swallowed| {
        swallowed.verb != first.verb && first.first_at - swallowed.first_at <= SHORTLY
    })?;
    Some(
        Finding::new(VerdictClass::SwallowedError, Confidence::Medium)
            .because(format!(
                "right before it, in the same process: {}",
                chain_line(earlier)
            ))
            .because(format!(
                "that error did not reach user space: {} had it last",
                outermost(earlier)
            ))
            .though("nothing shows that the later failure follows from the swallowed one"),
    )
}

/// The function that had the error last.
pub(crate) fn outermost(chain: &Chain) -> &str {
    chain.steps.last().map_or("", |step| step.function.as_str())
}
