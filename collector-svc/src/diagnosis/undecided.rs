//! The verdict where no failing call decides: a swallowed error, a co-signal, or nothing.

use rdmesh_proto::collector::v1::{Confidence, JobState, VerdictClass};
use rdmesh_proto::tracer::v1::CoSignalKind;
use rdmesh_store::errno;

use crate::diagnosis::outline::{from_chain, nothing};
use crate::diagnosis::select;
use crate::diagnosis::words::{
    chain_line, counted, counters, doing, moment, signal_line, signals_before, totals, who,
};
use crate::diagnosis::{Case, Chain, HostWatch, Signal, Step, Total, Verdict, watch};
use crate::names;

pub(super) fn swallowed_alone(chain: &Chain, case: &Case) -> Verdict {
    let mut verdict = from_chain(
        chain,
        VerdictClass::SwallowedError,
        Confidence::Low,
        "swallowed-error-alone",
    );
    verdict.devices = select::distinct(
        [chain.device.as_str()]
            .into_iter()
            .filter(|d| !d.is_empty()),
    );
    verdict.summary = format!(
        "No call failed towards the application; inside the kernel {} ({} layer) failed with {} \
         while {} was {}, and the error got lost on its way up.",
        verdict.function,
        names::layer(verdict.layer),
        verdict.errno_name,
        who(chain),
        doing(chain.verb)
    );
    verdict.evidence = vec![
        chain_line(chain),
        format!(
            "the error did not reach user space: {} had it last",
            chain.steps.last().map_or("", |step| step.function.as_str())
        ),
    ];
    verdict.evidence.extend(totals(chain, case));
    verdict.weigh_doubts(chain);
    verdict
        .against
        .push("no call of the attempt failed towards the application".to_owned());
    let against = signals_before(case, chain.first_at, verdict.class);
    verdict.against.extend(against);
    verdict
}

/// No chain decides: a co-signal, or nothing.
pub(super) fn undecided(case: &Case) -> Verdict {
    if let Some(signal) = cause(case) {
        let mut verdict = from_signal(signal);
        if let Some(start) = case.started_at
            && signal.at < start - SAMPLED
        {
            let before = (start - signal.at).whole_seconds();
            verdict.lower_confidence();
            verdict
                .against
                .push(format!("it came {before} s before the attempt started"));
        }
        return verdict;
    }
    if let Some(verdict) = by_scheduler(case) {
        return verdict;
    }
    let mut verdict = nothing(VerdictClass::CannotTell);
    verdict.rule = "nothing-decides";
    verdict.next_steps = steps_on_hosts(verdict.next_steps, case);
    verdict.summary = match case.state {
        JobState::Completed => format!("Attempt {} completed, and nothing failed.", case.attempt),
        _ => format!(
            "Nothing that was watched explains attempt {}.",
            case.attempt
        ),
    };
    let expected = case.chains.iter().filter(|c| c.is_expected()).count();
    if expected > 0 {
        verdict.evidence.push(match expected {
            1 => "1 failure was seen that is part of normal work; it never decides".to_owned(),
            many => {
                format!("{many} failures were seen that are part of normal work; they never decide")
            }
        });
    }
    for chain in case
        .chains
        .iter()
        .filter(|c| c.flags.incomplete && !c.is_expected())
        .take(3)
    {
        verdict.evidence.push(format!(
            "{} while this chain grew, so that it decides nothing: {}",
            what_is_lacking(case, &chain.host),
            chain_line(chain)
        ));
    }
    for total in case.totals.iter().take(3) {
        verdict.evidence.push(format!(
            "{}: {} ({}) failed {} with {} on {}; {}",
            counters(case),
            total.function,
            names::layer(total.layer),
            counted(total.count, case),
            errno::name(total.errno),
            total.host,
            why_no_decision(total, case)
        ));
    }
    verdict.evidence.extend(ended(case));
    if case.chains.is_empty() && case.totals.is_empty() {
        not_watched(&mut verdict, case);
    }
    verdict
}

/// The ranks that ended first by a signal that somebody sent: no cause, but where to look.
fn ended(case: &Case) -> impl Iterator<Item = String> + '_ {
    let of_process = |signal: &&Signal| signal.kind == CoSignalKind::Process;
    let ends = case.signals.iter().filter(of_process).take(ENDS_NAMED);
    ends.map(|signal| format!("{} {}", moment(signal.at), signal_line(signal)))
}

/// What the scheduler says of the end, where nobody saw anything else.
fn by_scheduler(case: &Case) -> Option<Verdict> {
    let told = match case.state {
        JobState::OutOfMemory => "the attempt ran out of memory",
        JobState::NodeFail => "a node failed under the attempt",
        _ => return None,
    };
    let mut verdict = nothing(VerdictClass::Host);
    verdict.rule = "by-the-schedulers-word";
    verdict.confidence = Confidence::Medium;
    verdict.summary = format!("No call to the kernel failed, and the scheduler says that {told}.");
    verdict.evidence = vec![format!("the scheduler says that {told}")];
    verdict.against =
        vec!["no tracer saw a process killed for its memory, or a host go".to_owned()];
    Some(verdict)
}

/// Whether nothing but shaping may still explain the attempt.
pub(super) fn is_undecided(verdict: &Verdict) -> bool {
    matches!(verdict.rule, "nothing-decides" | "nothing-watched")
}

/// Names the host to begin with: the first that was not watched, else the first.
fn steps_on_hosts(steps: Vec<String>, case: &Case) -> Vec<String> {
    let first = case.hosts.iter().find(|watch| blind(watch));
    let host = first
        .or(case.hosts.first())
        .map_or("HOST", |watch| watch.host.as_str());
    let named = |step: String| step.replace("{host}", host);
    steps.into_iter().map(named).collect()
}

/// Whether nothing of it was watched while the attempt ran.
fn blind(watch: &HostWatch) -> bool {
    !watch.known || (watch.watched_seconds <= 0.0 && watch.attempt_seconds > 0.0)
}

/// Where no host was watched, the application has nothing to look at that would be the first
/// thing to mend: the tracers are.
fn not_watched(verdict: &mut Verdict, case: &Case) {
    if case.hosts.is_empty() || !case.hosts.iter().all(blind) {
        return;
    }
    let hosts: Vec<&str> = case.hosts.iter().map(|watch| watch.host.as_str()).collect();
    let named = watch::listed(&hosts);
    verdict.rule = "nothing-watched";
    verdict.summary = format!(
        "Nothing can be said of attempt {}: no tracer watched {named} while it ran.",
        case.attempt
    );
    verdict.route_to = format!("host team (tracers), then {}", verdict.route_to);
    verdict.next_steps.insert(
        0,
        format!("start tracer-svc on {named}, or mend it, before the job runs there again"),
    );
}

/// What made a chain on `host` incomplete: a full ring, or calls that the kernel hid.
fn what_is_lacking(case: &Case, host: &str) -> &'static str {
    let watch = case.hosts.iter().find(|watch| watch.host == host);
    match watch {
        Some(watch) if watch.unseen > 0 && watch.drops == 0 => {
            "the kernel did not show every call to the probes"
        }
        Some(watch) if watch.unseen > 0 => {
            "records were dropped, or calls not shown to the probes,"
        }
        _ => "records were dropped",
    }
}

/// Why what the counters saw decides nothing.
fn why_no_decision(total: &Total, case: &Case) -> String {
    let same = |step: &Step| step.function == total.function && step.errno == total.errno;
    let mut rows = case
        .chains
        .iter()
        .filter(|chain| chain.host == total.host && chain.steps.iter().any(same))
        .peekable();
    if rows.peek().is_none() {
        return "its details were dropped, are still on their way, or have aged out".to_owned();
    }
    if rows.all(|chain| chain.is_expected()) {
        "a rule says that it is part of normal work".to_owned()
    } else {
        format!(
            "its chain is incomplete, because {}",
            what_is_lacking(case, &total.host)
        )
    }
}

/// Ends of ranks that the evidence names.
const ENDS_NAMED: usize = 3;

/// What is looked at once an interval is told with the time of the look before.
const SAMPLED: std::time::Duration = std::time::Duration::from_secs(5);

/// The first co-signal that can be a cause. A link or a card may have been broken before the
/// attempt started; a process that ended before it was another's.
fn cause(case: &Case) -> Option<&Signal> {
    let lasts = |kind| matches!(kind, CoSignalKind::Network | CoSignalKind::Device);
    let while_it_ran = |signal: &&Signal| {
        case.started_at
            .is_none_or(|start| match lasts(signal.kind) {
                true => signal.at >= start - SAMPLED,
                false => signal.at >= start,
            })
    };
    let mut causes = case.signals.iter().filter(|signal| signal.independent);
    let first = causes.clone().find(while_it_ran);
    first.or_else(|| causes.find(|signal| lasts(signal.kind)))
}

fn from_signal(signal: &Signal) -> Verdict {
    let class = match signal.kind {
        CoSignalKind::Network => VerdictClass::Network,
        CoSignalKind::Device => VerdictClass::Device,
        CoSignalKind::Process => VerdictClass::Process,
        CoSignalKind::Host => VerdictClass::Host,
        CoSignalKind::Unspecified => VerdictClass::CannotTell,
    };
    let mut verdict = nothing(class);
    verdict.rule = "co-signal-without-failure";
    verdict.hosts = vec![signal.host.clone()];
    if !signal.device.is_empty() {
        verdict.devices = vec![signal.device.clone()];
    }
    verdict.first_at = Some(signal.at);
    verdict.confidence = match signal.kind {
        CoSignalKind::Unspecified => Confidence::Low,
        _ => Confidence::Medium,
    };
    verdict.summary = format!("No call to the kernel failed, and {}.", signal_line(signal));
    let fill = |text: &str| text.replace("{host}", &signal.host);
    verdict.meaning = fill(&verdict.meaning);
    verdict.next_steps = verdict.next_steps.iter().map(|step| fill(step)).collect();
    verdict.evidence = vec![format!("{} {}", moment(signal.at), signal_line(signal))];
    verdict
}
