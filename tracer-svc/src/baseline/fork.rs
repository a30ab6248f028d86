//! The place where a failing call parts from good ones.

use std::collections::BTreeMap;

use super::trace::{Outcome, Step, Trace, Watched, function_name};
use super::tree::{Node, Tree, name};

/// Calls of good traces that a failing one did not come to: those are named first that
/// come first, and what follows them is missing as well.
const NOT_REACHED: usize = 3;

/// Where a failing call parts from good ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fork {
    /// From the entry point to the function, both included.
    pub path: Vec<String>,
    /// What it returned.
    pub outcome: Outcome,
    /// What it returned in good calls at this place, by name, and how often; empty: good
    /// calls do not call it there.
    pub usual: BTreeMap<String, u64>,
    /// Good calls of the same entry point; 0: none was recorded.
    pub good_calls: u64,
    /// The first function that it called and good calls do not call there: what it does
    /// about the failure, or a part of the cause.
    pub called_newly: Option<String>,
    /// Functions that it calls in every good call and did not call here, in order.
    pub not_reached: Vec<String>,
}

impl Fork {
    /// Calls from the entry point; 0 is the entry point itself.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.path.len().saturating_sub(1)
    }
}

/// A call of the failing trace with those that it made.
#[derive(Debug)]
struct Call<'w> {
    function: &'w str,
    outcome: Outcome,
    calls: Vec<Call<'w>>,
}

/// Lays a failing call beside the good ones.
///
/// The error is followed from the entry point inwards: from each function to the first
/// one below it that returned the same error, or else to the first that returned an
/// error, as far as good calls do not return it at this place. A look-up that found
/// nothing on the way, or an error of the clean-up afterwards, is so not taken for the
/// cause.
#[must_use]
pub fn fork(tree: &Tree, trace: &Trace, watched: &[Watched]) -> Fork {
    let mut steps = trace.steps.iter();
    let (mut calls, _) = calls(&mut steps, watched);
    let entry = match calls.is_empty() {
        // A trace begins with its entry point; the weaver makes no other.
        true => Call {
            function: function_name(watched, trace.entry),
            outcome: trace.outcome,
            calls: Vec::new(),
        },
        false => calls.swap_remove(0),
    };
    let mut path = vec![entry.function];
    let mut call = &entry;
    while let Some(inner) = next(tree, &mut path, call) {
        path.push(inner.function);
        call = inner;
    }
    let node = tree.at(&path);
    Fork {
        outcome: call.outcome,
        usual: node.map(|node| node.outcomes.clone()).unwrap_or_default(),
        good_calls: tree.at(&path[..1]).map_or(0, |node| node.traces),
        called_newly: node.and_then(|node| newly(node, call)),
        not_reached: node.map(|node| missing(node, call)).unwrap_or_default(),
        path: path.into_iter().map(str::to_owned).collect(),
    }
}

/// The call below that the error came from.
fn next<'c, 'w>(tree: &Tree, path: &mut Vec<&'w str>, call: &'c Call<'w>) -> Option<&'c Call<'w>> {
    let mut unusual = Vec::new();
    for inner in &call.calls {
        path.push(inner.function);
        let node = tree.at(path);
        path.pop();
        let is_usual = |node: &Node| node.outcomes.contains_key(&name(inner.outcome));
        if inner.outcome != Outcome::Good && !node.is_some_and(is_usual) {
            unusual.push(inner);
        }
    }
    let same = unusual.iter().find(|inner| inner.outcome == call.outcome);
    same.or(unusual.first()).copied()
}

fn newly(node: &Node, call: &Call<'_>) -> Option<String> {
    let is_new = |inner: &&Call<'_>| !node.calls.iter().any(|n| n.function == inner.function);
    let new = call.calls.iter().find(is_new)?;
    Some(new.function.to_owned())
}

fn missing(node: &Node, call: &Call<'_>) -> Vec<String> {
    let usual = node.calls.iter().filter(|n| n.traces == node.traces);
    let missing = usual.filter(|n| !call.calls.iter().any(|c| c.function == n.function));
    missing
        .map(|n| n.function.clone())
        .take(NOT_REACHED)
        .collect()
}

/// All calls up to the return of the function around them, and that return. As deep as
/// the trace, which is bounded.
fn calls<'s, 'w>(
    steps: &mut impl Iterator<Item = &'s Step>,
    watched: &'w [Watched],
) -> (Vec<Call<'w>>, Outcome) {
    let mut out = Vec::new();
    while let Some(step) = steps.next() {
        let function = match step {
            Step::Returns(outcome) => return (out, *outcome),
            Step::Enters(function) => function_name(watched, *function),
        };
        let (calls, outcome) = calls(steps, watched);
        out.push(Call {
            function,
            outcome,
            calls,
        });
    }
    (out, Outcome::Good)
}
