//! Wires of the attempt that were shaped, and shapers that were away.

use rdmesh_proto::collector::v1::{Confidence, VerdictClass};
use rdmesh_proto::rate::LineRate;

use crate::diagnosis::outline::nothing;
use crate::diagnosis::undecided::is_undecided;
use crate::diagnosis::{Case, Shaping, Verdict, select};

/// A shaper reports every five seconds unless configured otherwise; three intervals
/// without a word are an outage. What is on its way when somebody asks is less.
const SILENT_SECONDS: f64 = 15.0;

/// Shaping of any host of the attempt, or an outage of its shaper, is stated first,
/// always; it caps verdicts about the network, and where nothing else failed it is the
/// verdict.
pub(super) fn state_shaping(verdict: &mut Verdict, case: &Case) {
    let at_work = |shaping: &&Shaping| shaping.windows > 0 || is_outage(shaping);
    let at_work: Vec<&Shaping> = case.shaping.iter().filter(at_work).collect();
    if at_work.is_empty() {
        return;
    }
    match verdict.class {
        VerdictClass::CannotTell if is_undecided(verdict) => {
            let evidence = std::mem::take(&mut verdict.evidence);
            *verdict = nothing(VerdictClass::InjectedStraggler);
            verdict.rule = "shaped-and-nothing-else";
            verdict.confidence = Confidence::Medium;
            verdict.summary = summary(&at_work, case);
            verdict.hosts = select::distinct(at_work.iter().map(|s| s.host.as_str()));
            verdict.evidence = evidence;
        }
        VerdictClass::Network | VerdictClass::Reachability => {
            verdict.confidence = Confidence::Low;
            verdict
                .against
                .push("a shaped wire can look like a network fault".to_owned());
        }
        _ => {}
    }
    let stated = at_work.into_iter().flat_map(statements);
    verdict.evidence.splice(0..0, stated.collect::<Vec<_>>());
}

fn is_outage(shaping: &Shaping) -> bool {
    shaping.invalid > 0 || shaping.silent_seconds >= SILENT_SECONDS
}

fn summary(at_work: &[&Shaping], case: &Case) -> String {
    let what = if at_work.iter().any(|shaping| shaping.windows > 0) {
        "a wire of it was shaped"
    } else {
        "the shaper of a wire of it was away or lost frames"
    };
    format!("Nothing failed in attempt {}, and {what}.", case.attempt)
}

/// The shaping, then what the shaper missed.
fn statements(shaping: &Shaping) -> Vec<String> {
    let (wire, host) = (&shaping.wire, &shaping.host);
    let mut stated = Vec::new();
    if shaping.windows > 0 {
        let rate = match LineRate::new(shaping.rate_bps) {
            Ok(rate) => format!("{rate} ({} bit/s)", shaping.rate_bps),
            Err(_) => format!("{} bit/s", shaping.rate_bps),
        };
        stated.push(format!(
            "the wire {wire} of {host} was shaped to {rate} while the attempt ran"
        ));
    }
    if shaping.invalid > 0 {
        let windows = match shaping.invalid {
            1 => "1 window".to_owned(),
            many => format!("{many} windows"),
        };
        stated.push(format!(
            "the shaper of the wire {wire} of {host} was down, or its port dropped frames, in \
             {windows} of that time"
        ));
    }
    if shaping.silent_seconds >= SILENT_SECONDS {
        stated.push(format!(
            "the shaper said nothing of the wire {wire} of {host} for {:.0} s of that time",
            shaping.silent_seconds
        ));
    }
    stated
}
