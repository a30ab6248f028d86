//! Which failing calls are of one kind.

use super::trace::{Outcome, Step, Trace, Watched, function_name};
use super::tree::{Tree, name};

/// The failing returns of a call that good calls do not have, in order: calls that have
/// the same are shown as one. A job repeats its failure thousands of times.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signature(Vec<(u32, u16)>);

impl Signature {
    /// Failing returns in it; none of a call that does as good ones do.
    #[must_use]
    pub fn failures(&self) -> usize {
        self.0.len()
    }
}

/// The chain of (function, errno) of a failing call.
#[must_use]
pub fn signature(tree: &Tree, trace: &Trace, watched: &[Watched]) -> Signature {
    let (mut path, mut inside, mut out) = (Vec::new(), Vec::new(), Vec::new());
    for step in &trace.steps {
        match step {
            Step::Enters(function) => {
                path.push(function_name(watched, *function));
                inside.push(*function);
            }
            Step::Returns(outcome) => {
                let usual = |errno| {
                    let node = tree.at(&path);
                    node.is_some_and(|n| n.outcomes.contains_key(&name(Outcome::Error(errno))))
                };
                if let (Outcome::Error(errno), Some(function)) = (outcome, inside.last())
                    && !usual(*errno)
                    // A loop that looks for something fails often.
                    && out.last() != Some(&(*function, *errno))
                {
                    out.push((*function, *errno));
                }
                path.pop();
                inside.pop();
            }
        }
    }
    Signature(out)
}
