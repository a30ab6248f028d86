//! Windows and baselines in the words of the contract, and back.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prost_types::Timestamp;
use rdmesh_proto::errno;
use rdmesh_proto::tracer::v1 as wire;

use super::{Parted, Phase, Progress, key};
use crate::baseline::{MAX_DEPTH, Node, Outcome, Step, Trace, Tree, TreeError};

/// Steps of a failing call that are told: modify_qp has about 100.
const MAX_STEPS_TOLD: usize = 1000;

/// How a window stands.
pub(crate) fn progress(told: &Progress) -> wire::WindowProgress {
    let phase = match told.phase {
        Phase::Finding => wire::WindowPhase::Finding,
        Phase::Attaching => wire::WindowPhase::Attaching,
        Phase::Watching => wire::WindowPhase::Watching,
        Phase::Ended => wire::WindowPhase::Ended,
    };
    wire::WindowProgress {
        phase: phase.into(),
        seconds_left: told.seconds_left,
        driver: told.driver.clone(),
        functions: number(told.functions),
        unwatchable: number(told.unwatchable),
        beyond_bound: number(told.beyond_bound),
        good_calls: told.good,
        slow_calls: told.slow,
        failed_calls: told.failed,
        lost_calls: told.lost,
        kinds: number(told.kinds),
    }
}

/// A baseline, with its tree where that is asked for.
pub(crate) fn baseline(tree: &Tree, with_nodes: bool) -> wire::Baseline {
    let mut nodes = Vec::new();
    if with_nodes {
        branches(&tree.entries, 0, &mut nodes);
    }
    wire::Baseline {
        kernel_release: tree.kernel.clone(),
        driver: tree.driver.clone(),
        verb: tree.verb.clone(),
        recorded_at: Some(recorded_at(tree)),
        good_calls: tree.traces,
        functions: tree.functions,
        nodes,
    }
}

/// When the last window of a baseline ended.
pub(crate) fn recorded_at(tree: &Tree) -> Timestamp {
    timestamp(UNIX_EPOCH + Duration::from_secs(tree.recorded_at.min(YEAR_9999)))
}

/// Last second that a timestamp can tell.
const YEAR_9999: u64 = 253_402_300_799;

/// As deep as the tree, which is bounded.
fn branches(calls: &[Node], depth: u32, out: &mut Vec<wire::BaselineNode>) {
    for node in calls {
        out.push(wire::BaselineNode {
            depth,
            function: node.function.clone(),
            calls: node.traces,
            returns: counts(&node.outcomes),
        });
        branches(&node.calls, depth + 1, out);
    }
}

fn counts(outcomes: &std::collections::BTreeMap<String, u64>) -> Vec<wire::ReturnCount> {
    let count = |(outcome, count): (&String, &u64)| wire::ReturnCount {
        outcome: outcome.clone(),
        count: *count,
    };
    outcomes.iter().map(count).collect()
}

/// Where a failing call parts from good ones.
pub(crate) fn fork(parted: &Parted) -> wire::Fork {
    let (trace, fork) = (&parted.trace, &parted.fork);
    let (call_errno, call_errno_name) = told_errno(trace.outcome);
    let (errno, errno_name) = told_errno(fork.outcome);
    wire::Fork {
        verb: parted.verb.clone(),
        at: Some(timestamp(parted.at)),
        tgid: trace.tgid,
        tid: trace.tid,
        call_errno,
        call_errno_name,
        path: fork.path.clone(),
        errno,
        errno_name,
        usual: counts(&fork.usual),
        good_calls: fork.good_calls,
        called_newly: fork.called_newly.clone().unwrap_or_default(),
        not_reached: fork.not_reached.clone(),
        trace: steps(trace, &parted.names),
    }
}

fn told_errno(outcome: Outcome) -> (u32, String) {
    outcome.errno().map_or((0, String::new()), |errno| {
        (u32::from(errno), errno::name(i32::from(errno)))
    })
}

/// A line for each function that was called, with what it returned.
fn steps(trace: &Trace, names: &[String]) -> Vec<wire::TraceStep> {
    let (mut out, mut inside) = (Vec::<wire::TraceStep>::new(), Vec::new());
    for step in &trace.steps {
        match step {
            Step::Enters(function) => {
                let name = usize::try_from(*function).ok().and_then(|at| names.get(at));
                inside.push(out.len());
                out.push(wire::TraceStep {
                    depth: number(inside.len() - 1),
                    function: name.cloned().unwrap_or_default(),
                    errno: 0,
                });
            }
            Step::Returns(outcome) => {
                let step = inside.pop().and_then(|at| out.get_mut(at));
                if let (Some(step), Some(errno)) = (step, outcome.errno()) {
                    step.errno = errno.into();
                }
            }
        }
    }
    out.truncate(MAX_STEPS_TOLD);
    out
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn timestamp(at: SystemTime) -> Timestamp {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp {
        seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(since.subsec_nanos()).unwrap_or(0),
    }
}

/// A baseline that another host recorded.
///
/// # Errors
/// It says what no recording can have.
pub(crate) fn tree(told: wire::Baseline) -> Result<Tree, TreeError> {
    let key = key(&told.kernel_release, &told.driver, &told.verb);
    let recorded_at = told.recorded_at.map_or(0, |at| at.seconds);
    let mut nodes = told.nodes.into_iter().peekable();
    let tree = Tree {
        recorded_at: u64::try_from(recorded_at).unwrap_or(0),
        functions: told.functions,
        traces: told.good_calls,
        entries: below(&mut nodes, 0),
        ..Tree::new(&key)
    };
    match nodes.next() {
        None => tree.checked(),
        Some(odd) => Err(TreeError::Content(format!(
            "{} stands at depth {}, and nothing above it",
            odd.function, odd.depth
        ))),
    }
}

/// The places of one depth and what is below them; stops at the first that is neither.
/// As deep as they are told, which [`MAX_DEPTH`] bounds.
fn below(
    nodes: &mut std::iter::Peekable<impl Iterator<Item = wire::BaselineNode>>,
    depth: u32,
) -> Vec<Node> {
    let mut out = Vec::new();
    let is_here = |node: &wire::BaselineNode| {
        node.depth == depth && usize::try_from(depth).is_ok_and(|depth| depth < MAX_DEPTH)
    };
    while let Some(node) = nodes.next_if(is_here) {
        let counts = node.returns.into_iter();
        out.push(Node {
            function: node.function,
            traces: node.calls,
            outcomes: counts.map(|of| (of.outcome, of.count)).collect(),
            calls: below(nodes, depth + 1),
        });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_told_as_a_line_for_each_call() {
        let error = |errno| Step::Returns(Outcome::Error(errno));
        let trace = Trace {
            tid: 7,
            tgid: 5,
            entry: 0,
            began_ns: 0,
            took_ns: 1,
            steps: vec![
                Step::Enters(0),
                Step::Enters(1),
                error(2),
                Step::Enters(2),
                Step::Enters(9),
                Step::Returns(Outcome::Good),
                error(14),
                error(14),
            ],
            outcome: Outcome::Error(14),
        };
        let names = ["entry", "look_up", "pin"].map(str::to_owned);
        let lines: Vec<_> = steps(&trace, &names)
            .into_iter()
            .map(|s| (s.depth, s.function, s.errno))
            .collect();
        let line = |depth, function: &str, errno| (depth, function.to_owned(), errno);
        assert_eq!(
            lines,
            [
                line(0, "entry", 14),
                line(1, "look_up", 2),
                line(1, "pin", 14),
                line(2, "", 0),
            ]
        );
    }

    fn node(depth: u32, function: &str) -> wire::BaselineNode {
        wire::BaselineNode {
            depth,
            function: function.to_owned(),
            calls: 3,
            returns: vec![wire::ReturnCount {
                outcome: "good".to_owned(),
                count: 3,
            }],
        }
    }

    fn told(nodes: Vec<wire::BaselineNode>) -> wire::Baseline {
        wire::Baseline {
            kernel_release: "6.1".to_owned(),
            driver: "rdma_rxe".to_owned(),
            verb: "reg_mr".to_owned(),
            recorded_at: Some(Timestamp {
                seconds: 1_800_000_000,
                nanos: 0,
            }),
            good_calls: 3,
            functions: 9,
            nodes,
        }
    }

    #[test]
    fn a_baseline_comes_back_as_it_went() {
        let nodes = vec![
            node(0, "entry"),
            node(1, "look_up"),
            node(1, "reg"),
            node(2, "pin"),
            node(1, "track"),
            node(0, "other_entry"),
        ];
        let there = told(nodes);
        let tree = tree(there.clone()).unwrap();
        assert_eq!(tree.at(&["entry", "reg", "pin"]).unwrap().traces, 3);
        assert_eq!(tree.entries.len(), 2);
        assert_eq!(baseline(&tree, true), there);
    }

    #[test]
    fn what_no_host_recorded_is_refused() {
        let deep = (0..60).map(|depth| node(depth, "f")).collect();
        for nodes in [
            vec![],
            vec![node(1, "entry")],
            vec![node(0, "entry"), node(2, "pin")],
            vec![node(0, "")],
            deep,
        ] {
            let refused = tree(told(nodes.clone()));
            assert!(refused.is_err(), "{nodes:?}");
        }
        let nobody = wire::Baseline {
            driver: String::new(),
            ..told(vec![node(0, "entry")])
        };
        assert!(tree(nobody).is_err());
    }
}
