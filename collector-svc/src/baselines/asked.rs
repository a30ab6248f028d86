//! What tracers ask and hand in, validated.

use prost::Message;
use rdmesh_proto::collector::v1::{FinishWindowRequest, LeaseWindowRequest, WindowPurpose};
use rdmesh_proto::common::v1::{Layer, Verb};
use rdmesh_proto::tracer::v1::{Baseline, BaselineNode, ChainStep, Fork};
use rdmesh_store::baselines::{Finished, ForkSeen, LeaseAsk, Purpose, StoredBaseline};
use rdmesh_store::fleet::Signature;
use rdmesh_store::ingest::Step;
use uuid::Uuid;

use crate::attempt::{self, BadRequest};
use crate::times;

/// Verbs of a window, and baselines that come of it; the tracer's catalogue has 14.
const VERBS_MAX: usize = 32;
/// Bytes of the name of a verb, a module or a kernel: the kernel's own limits are 64.
const NAME_MAX_BYTES: usize = 64;
/// Bytes of the name of a function: the kernel's own limit is 511.
const FUNCTION_MAX_BYTES: usize = 512;
/// Steps of a chain, as in a snapshot.
const CHAIN_MAX: usize = 64;
/// Places of a tree, and how deep they go, as the tracer bounds them.
const NODES_MAX: usize = 20_000;
const DEPTH_MAX: usize = 48;
/// Steps of a failing call.
const TRACE_MAX: usize = 1_000;
/// Ways in which one function returns: errnos that a person has ever seen from it.
const RETURNS_MAX: usize = 256;
/// Bytes of one baseline: what an item of the agents' stream may have.
const BASELINE_MAX_BYTES: usize = 2 << 20;
/// Bytes of the reason why a window has no result.
const FAILURE_MAX_BYTES: usize = 1_024;
/// errno values of the kernel end here.
const ERRNO_MAX: u32 = 4_095;

/// A wish for a window.
pub(super) fn lease(request: &LeaseWindowRequest) -> Result<LeaseAsk, BadRequest> {
    if request.verbs.is_empty() || request.verbs.len() > VERBS_MAX {
        let count = request.verbs.len();
        return Err(bad(
            "verbs",
            format!("has {count} names; allowed are 1 to {VERBS_MAX}"),
        ));
    }
    let verbs: Vec<String> = request
        .verbs
        .iter()
        .map(|verb| verb_name("verbs", verb))
        .collect::<Result<_, _>>()?;
    let driver = name("driver", &request.driver)?;
    let purpose = match (request.purpose(), verbs.as_slice()) {
        (WindowPurpose::Record, _) => Purpose::Record { verbs },
        (WindowPurpose::Capture, [verb]) => Purpose::Capture {
            verb: verb.clone(),
            signature: Signature {
                driver: driver.clone(),
                verb: verb_number(request.verb)?,
                steps: steps(&request.chain)?,
            },
            has_baseline: request.has_baseline,
        },
        (WindowPurpose::Capture, verbs) => {
            let count = verbs.len();
            return Err(bad(
                "verbs",
                format!("has {count} names; a failing call has one"),
            ));
        }
        (WindowPurpose::Unspecified, _) => {
            return Err(bad("purpose", "is missing or not known; RECORD or CAPTURE"));
        }
    };
    Ok(LeaseAsk {
        host: attempt::host("host", &request.host)?,
        run_id: uuid("run_id", &request.run_id)?,
        kernel_release: name("kernel_release", &request.kernel_release)?,
        driver,
        purpose,
    })
}

/// What came of a window.
pub(super) fn finished(request: &FinishWindowRequest) -> Result<Finished, BadRequest> {
    let host = attempt::host("host", &request.host)?;
    let lease_id = uuid("lease_id", &request.lease_id)?;
    let failure = attempt::text("failure", &request.failure, FAILURE_MAX_BYTES)?;
    let is_empty = request.baselines.is_empty() && request.fork.is_none();
    if is_empty && failure.is_empty() {
        return Err(bad(
            "failure",
            "is empty, and there is neither a baseline nor a fork; say why",
        ));
    }
    if request.baselines.len() > VERBS_MAX {
        let count = request.baselines.len();
        return Err(bad(
            "baselines",
            format!("has {count} of them; at most {VERBS_MAX} are allowed"),
        ));
    }
    let baselines = request.baselines.iter().map(|b| baseline(&host, b));
    let baselines = baselines.collect::<Result<_, _>>()?;
    let fork = match &request.fork {
        None => None,
        Some(told) => Some(fork(told, request)?),
    };
    Ok(Finished {
        host,
        lease_id,
        baselines,
        fork,
        failure,
    })
}

fn baseline(host: &str, told: &Baseline) -> Result<StoredBaseline, BadRequest> {
    let recorded_at = times::optional("baselines.recorded_at", told.recorded_at.as_ref())?
        .ok_or_else(|| bad("baselines.recorded_at", "is missing"))?;
    tree(&told.nodes)?;
    let body = told.encode_to_vec();
    if body.len() > BASELINE_MAX_BYTES {
        let bytes = body.len();
        return Err(bad(
            "baselines",
            format!("has one of {bytes} bytes; at most {BASELINE_MAX_BYTES} are allowed"),
        ));
    }
    Ok(StoredBaseline {
        host: host.to_owned(),
        kernel_release: name("baselines.kernel_release", &told.kernel_release)?,
        driver: name("baselines.driver", &told.driver)?,
        verb: verb_name("baselines.verb", &told.verb)?,
        recorded_at,
        good_calls: number("baselines.good_calls", told.good_calls)?,
        functions: number("baselines.functions", told.functions)?,
        body,
    })
}

/// Each place stands below the last one before it whose depth is less by one.
fn tree(nodes: &[BaselineNode]) -> Result<(), BadRequest> {
    if nodes.is_empty() || nodes.len() > NODES_MAX {
        let count = nodes.len();
        return Err(bad(
            "baselines.nodes",
            format!("has {count}; allowed are 1 to {NODES_MAX}"),
        ));
    }
    let mut deepest = 0;
    for node in nodes {
        let depth = usize::try_from(node.depth).unwrap_or(usize::MAX);
        if depth > deepest || depth >= DEPTH_MAX {
            return Err(bad(
                "baselines.nodes",
                format!("has a depth of {depth} that nothing stands above, or is too deep"),
            ));
        }
        deepest = depth + 1;
        function("baselines.nodes.function", &node.function)?;
        if node.returns.len() > RETURNS_MAX {
            return Err(bad(
                "baselines.nodes.returns",
                "has too many kinds of returns",
            ));
        }
    }
    Ok(())
}

fn fork(told: &Fork, request: &FinishWindowRequest) -> Result<ForkSeen, BadRequest> {
    if told.path.is_empty() || told.path.len() > DEPTH_MAX {
        let count = told.path.len();
        return Err(bad(
            "fork.path",
            format!("has {count} functions; allowed are 1 to {DEPTH_MAX}"),
        ));
    }
    let path = told.path.iter().map(|f| function("fork.path", f));
    let path = path.collect::<Result<_, _>>()?;
    if told.trace.len() > TRACE_MAX || told.usual.len() > RETURNS_MAX {
        return Err(bad(
            "fork",
            format!("is too large; a trace has at most {TRACE_MAX} steps"),
        ));
    }
    let Some(call_errno) = errno(told.call_errno).filter(|errno| *errno > 0) else {
        let no = told.call_errno;
        return Err(bad(
            "fork.call_errno",
            format!("is {no}; allowed are 1 to {ERRNO_MAX}"),
        ));
    };
    let errno =
        errno(told.errno).ok_or_else(|| bad("fork.errno", format!("is above {ERRNO_MAX}")))?;
    let told_at = request.baseline_recorded_at.as_ref();
    Ok(ForkSeen {
        verb: verb_name("fork.verb", &told.verb)?,
        call_errno,
        path,
        errno,
        good_calls: number("fork.good_calls", told.good_calls)?,
        baseline_host: attempt::host("baseline_host", &request.baseline_host)?,
        baseline_recorded_at: times::optional("baseline_recorded_at", told_at)?,
        body: told.encode_to_vec(),
    })
}

fn steps(chain: &[ChainStep]) -> Result<Vec<Step>, BadRequest> {
    if chain.is_empty() || chain.len() > CHAIN_MAX {
        let count = chain.len();
        return Err(bad(
            "chain",
            format!("has {count} steps; allowed are 1 to {CHAIN_MAX}"),
        ));
    }
    let step = |step: &ChainStep| {
        let Some(errno) = errno(step.errno).filter(|errno| *errno > 0) else {
            return Err(bad(
                "chain.errno",
                format!("is {}; allowed are 1 to {ERRNO_MAX}", step.errno),
            ));
        };
        let layer = Layer::try_from(step.layer)
            .map_err(|_| bad("chain.layer", format!("is {}, which is none", step.layer)))?;
        Ok(Step {
            function: function("chain.function", &step.function)?,
            // Empty: built into the kernel.
            module: match step.module.as_str() {
                "" => String::new(),
                module => name("chain.module", module)?,
            },
            layer: i16::try_from(i32::from(layer)).unwrap_or(0),
            errno,
        })
    };
    chain.iter().map(step).collect()
}

fn verb_number(verb: i32) -> Result<i16, BadRequest> {
    match Verb::try_from(verb) {
        Err(_) | Ok(Verb::Unspecified) => Err(bad("verb", format!("is {verb}, which is none"))),
        Ok(known) => Ok(i16::try_from(i32::from(known)).unwrap_or(0)),
    }
}

fn errno(told: u32) -> Option<i32> {
    i32::try_from(told).ok().filter(|_| told <= ERRNO_MAX)
}

fn number(field: &str, told: u64) -> Result<i64, BadRequest> {
    i64::try_from(told).map_err(|_| bad(field, format!("is {told}, which no host can count")))
}

/// A word of a catalogue: lower case and underscores.
fn verb_name(field: &str, text: &str) -> Result<String, BadRequest> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if !text.chars().all(is_plain) {
        return Err(bad(
            field,
            format!("has {text:?}; verbs are written like reg_mr"),
        ));
    }
    name(field, text)
}

/// A name without white space and control characters.
fn name(field: &str, text: &str) -> Result<String, BadRequest> {
    named(field, text, NAME_MAX_BYTES)
}

fn function(field: &str, text: &str) -> Result<String, BadRequest> {
    named(field, text, FUNCTION_MAX_BYTES)
}

fn named(field: &str, text: &str, max_bytes: usize) -> Result<String, BadRequest> {
    let odd = |c: char| c.is_whitespace() || c.is_control();
    if text.is_empty() || text.len() > max_bytes || text.contains(odd) {
        return Err(bad(
            field,
            format!("is no name: 1 to {max_bytes} bytes without white space are allowed"),
        ));
    }
    Ok(text.to_owned())
}

fn uuid(field: &str, text: &str) -> Result<Uuid, BadRequest> {
    Uuid::parse_str(text).map_err(|_| bad(field, "is no UUID"))
}

fn bad(field: &str, problem: impl Into<String>) -> BadRequest {
    BadRequest::new(field, problem)
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost_types::Timestamp;

    fn capture() -> LeaseWindowRequest {
        LeaseWindowRequest {
            host: "gpu-01".into(),
            run_id: Uuid::from_u128(1).to_string(),
            purpose: WindowPurpose::Capture.into(),
            kernel_release: "6.12".into(),
            driver: "rdma_rxe".into(),
            verbs: vec!["reg_mr".into()],
            verb: Verb::RegMr.into(),
            chain: vec![ChainStep {
                function: "ib_umem_get".into(),
                module: "ib_uverbs".into(),
                layer: Layer::Memory.into(),
                errno: 14,
                errno_name: "EFAULT".into(),
            }],
            has_baseline: true,
        }
    }

    fn result() -> FinishWindowRequest {
        let node = |depth, function: &str| BaselineNode {
            depth,
            function: function.into(),
            calls: 1,
            returns: Vec::new(),
        };
        FinishWindowRequest {
            host: "gpu-01".into(),
            lease_id: Uuid::from_u128(2).to_string(),
            baselines: vec![Baseline {
                kernel_release: "6.12".into(),
                driver: "rdma_rxe".into(),
                verb: "reg_mr".into(),
                recorded_at: Some(Timestamp::default()),
                good_calls: 3,
                functions: 9,
                nodes: vec![node(0, "a"), node(1, "b"), node(2, "c"), node(1, "d")],
            }],
            fork: Some(Fork {
                verb: "reg_mr".into(),
                call_errno: 14,
                path: vec!["a".into(), "b".into()],
                errno: 14,
                ..Fork::default()
            }),
            baseline_host: "gpu-02".into(),
            baseline_recorded_at: None,
            failure: String::new(),
        }
    }

    #[test]
    fn what_is_told_rightly_is_taken() {
        let ask = lease(&capture()).unwrap();
        assert!(matches!(ask.purpose, Purpose::Capture { .. }), "{ask:?}");
        let record = LeaseWindowRequest {
            purpose: WindowPurpose::Record.into(),
            verbs: vec!["reg_mr".into(), "create_qp".into()],
            chain: Vec::new(),
            ..capture()
        };
        assert!(
            matches!(lease(&record).unwrap().purpose, Purpose::Record { verbs } if verbs.len() == 2)
        );
        let finished = finished(&result()).unwrap();
        assert_eq!(finished.baselines[0].good_calls, 3);
        assert_eq!(finished.fork.unwrap().path, ["a", "b"]);
    }

    #[test]
    fn a_bad_wish_names_its_field() {
        type Change = fn(&mut LeaseWindowRequest);
        let cases: [(&str, Change); 11] = [
            ("host", |r| r.host = "a b".into()),
            ("run_id", |r| r.run_id = "x".into()),
            ("purpose", |r| r.purpose = 0),
            ("purpose", |r| r.purpose = 99),
            ("kernel_release", |r| r.kernel_release = String::new()),
            ("driver", |r| r.driver = "x".repeat(65)),
            ("verbs", |r| r.verbs.clear()),
            ("verbs", |r| r.verbs.push("create_qp".into())),
            ("verbs", |r| r.verbs = vec!["../etc".into()]),
            ("chain", |r| r.chain.clear()),
            ("chain.errno", |r| r.chain[0].errno = 0),
        ];
        for (field, change) in cases {
            let mut request = capture();
            change(&mut request);
            let error = lease(&request).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{field} ")), "{field}: {error}");
        }
        for verb in [0, -1, 99] {
            let error = lease(&LeaseWindowRequest { verb, ..capture() });
            assert!(error.unwrap_err().to_string().starts_with("verb "));
        }
    }

    #[test]
    fn a_bad_result_names_its_field() {
        type Change = fn(&mut FinishWindowRequest);
        let cases: [(&str, Change); 10] = [
            ("lease_id", |r| r.lease_id = "7".into()),
            ("failure", |r| {
                r.baselines.clear();
                r.fork = None;
            }),
            ("failure", |r| r.failure = "x".repeat(1_025)),
            ("baselines.recorded_at", |r| {
                r.baselines[0].recorded_at = None
            }),
            ("baselines.nodes", |r| r.baselines[0].nodes.clear()),
            // A place that nothing stands above.
            ("baselines.nodes", |r| r.baselines[0].nodes[1].depth = 3),
            ("baselines.nodes", |r| r.baselines[0].nodes[0].depth = 1),
            ("fork.path", |r| r.fork.as_mut().unwrap().path.clear()),
            ("fork.errno", |r| r.fork.as_mut().unwrap().errno = 4_096),
            ("baseline_host", |r| r.baseline_host = String::new()),
        ];
        for (field, change) in cases {
            let mut request = result();
            change(&mut request);
            let error = finished(&request).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{field} ")), "{field}: {error}");
        }
    }
}
