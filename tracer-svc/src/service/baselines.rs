//! Windows and baselines in the words of the contract.

use std::pin::Pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prost_types::Timestamp;
use rdmesh_proto::errno;
use rdmesh_proto::tracer::v1 as wire;
use rdmesh_proto::tracer::v1::{diff_baseline_response, record_baseline_response};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::Status;

use crate::baseline::{Node, Outcome, Step, Trace, Tree};
use crate::window::{
    Ask, Kept, Parted, Phase, Progress, Purpose, ShelfError, Told, WindowError, Words,
};

/// Steps of a failing call that are told: modify_qp has about 100.
const MAX_STEPS_TOLD: usize = 1000;

/// What comes of a call that streams.
pub(super) type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// A call as it is asked for.
pub(super) fn ask(purpose: Purpose, verbs: &[String], seconds: u32, driver: &str) -> Ask {
    Ask {
        purpose,
        verbs: verbs.to_vec(),
        driver: (!driver.is_empty()).then(|| driver.to_owned()),
        seconds,
    }
}

/// The window's words for who records. Dropping it closes the window.
pub(super) fn recorded(words: Words) -> Answers<wire::RecordBaselineResponse> {
    use record_baseline_response::Event;
    Box::pin(ReceiverStream::new(words).filter_map(|word| {
        let event = match word {
            Ok(Told::Progress(told)) => Event::Progress(progress(&told)),
            Ok(Told::Recorded(tree)) => Event::Baseline(baseline(&tree, true)),
            // A recording tells none.
            Ok(Told::Parted(_)) => return None,
            Err(error) => return Some(Err(status(&error))),
        };
        Some(Ok(wire::RecordBaselineResponse { event: Some(event) }))
    }))
}

/// The window's words for who compares.
pub(super) fn compared(words: Words) -> Answers<wire::DiffBaselineResponse> {
    use diff_baseline_response::Event;
    Box::pin(ReceiverStream::new(words).filter_map(|word| {
        let event = match word {
            Ok(Told::Progress(told)) => Event::Progress(progress(&told)),
            Ok(Told::Parted(parted)) => Event::Fork(fork(&parted)),
            // A comparison tells none.
            Ok(Told::Recorded(_)) => return None,
            Err(error) => return Some(Err(status(&error))),
        };
        Some(Ok(wire::DiffBaselineResponse { event: Some(event) }))
    }))
}

/// The baselines of a verb, or of all.
pub(super) fn listed(kept: Kept, verb: &str, nodes: bool) -> wire::ListBaselinesResponse {
    let wanted = |tree: &&Tree| verb.is_empty() || tree.verb == verb;
    let trees = kept.trees.iter().filter(wanted);
    wire::ListBaselinesResponse {
        baselines: trees.map(|tree| baseline(tree, nodes)).collect(),
        damaged: kept.damaged,
    }
}

/// Why there is none.
pub(super) fn status(error: &WindowError) -> Status {
    let text = error.to_string();
    match error {
        WindowError::Busy { .. } | WindowError::Thread(_) => Status::resource_exhausted(text),
        WindowError::Asked(_) | WindowError::Shelf(ShelfError::Name(_)) => {
            Status::invalid_argument(text)
        }
        WindowError::NoBaseline { .. } => Status::not_found(text),
        WindowError::NothingGood { .. } | WindowError::Load(_) | WindowError::Shelf(_) => {
            Status::failed_precondition(text)
        }
        WindowError::Closed(_) => Status::aborted(text),
    }
}

fn progress(told: &Progress) -> wire::WindowProgress {
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

fn baseline(tree: &Tree, with_nodes: bool) -> wire::Baseline {
    let mut nodes = Vec::new();
    if with_nodes {
        branches(&tree.entries, 0, &mut nodes);
    }
    wire::Baseline {
        kernel_release: tree.kernel.clone(),
        driver: tree.driver.clone(),
        verb: tree.verb.clone(),
        recorded_at: Some(timestamp(
            UNIX_EPOCH + Duration::from_secs(tree.recorded_at.min(YEAR_9999)),
        )),
        good_calls: tree.traces,
        functions: tree.functions,
        nodes,
    }
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

fn fork(parted: &Parted) -> wire::Fork {
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

    #[test]
    fn each_reason_has_its_code() {
        use tonic::Code;
        let code = |error: WindowError| status(&error).code();
        assert_eq!(code(WindowError::Closed("")), Code::Aborted);
        assert_eq!(
            code(WindowError::Asked(String::new())),
            Code::InvalidArgument
        );
        let name = ShelfError::Name("..".to_owned());
        assert_eq!(code(name.into()), Code::InvalidArgument);
        let busy = WindowError::Busy {
            what: String::new(),
            left: 1,
        };
        assert_eq!(code(busy), Code::ResourceExhausted);
    }
}
