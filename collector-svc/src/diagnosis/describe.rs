//! From a case to the verdict: the rules, and the words around what they found.

use rdmesh_proto::collector::v1::{Confidence, JobState, VerdictClass};
use rdmesh_proto::common::v1::{Layer, Verb};
use rdmesh_proto::tracer::v1::CoSignalKind;
use rdmesh_store::errno;
use time::OffsetDateTime;
use time::macros::format_description;

use crate::diagnosis::meanings::{Key, Meaning, Meanings};
use crate::diagnosis::rules::{self, Finding};
use crate::diagnosis::select::{self, Deciding};
use crate::diagnosis::watch;
use crate::diagnosis::{Case, Chain, Signal, Step, Verdict};
use crate::names;

/// Chains of other signatures that the evidence names.
const LATER_NAMED: usize = 3;
/// Co-signals that the evidence names.
const SIGNALS_NAMED: usize = 3;
/// Ranks that the evidence names.
const RANKS_NAMED: usize = 8;

/// The verdict on a case.
pub fn verdict(case: &Case) -> Verdict {
    let mut verdict = match select::deciding(case) {
        Some(deciding) => decided(&deciding, case),
        None => match select::swallowed(case) {
            Some(chain) => swallowed_alone(chain, case),
            None => undecided(case),
        },
    };
    state_shaping(&mut verdict, case);
    verdict.unwatched = watch::unwatched(case);
    verdict
}

fn decided(deciding: &Deciding<'_>, case: &Case) -> Verdict {
    let (rule, finding) = rules::first(deciding, case).unwrap_or_else(no_rule);
    // A swallowed error decides by its own chain; else the deciding one's.
    let chain = match finding.class {
        VerdictClass::SwallowedError => deciding
            .swallowed_before
            .last()
            .copied()
            .unwrap_or(deciding.chain),
        _ => deciding.chain,
    };
    let mut verdict = from_chain(chain, finding.class, finding.confidence);
    verdict.rule = rule;
    verdict.hosts = deciding.hosts();
    verdict.devices = deciding.devices();
    verdict.first_at = Some(chain.first_at);
    verdict.summary = summary(chain, &verdict, deciding.hosts().len());
    verdict.evidence = vec![chain_line(deciding.chain)];
    verdict.evidence.extend(finding.evidence);
    verdict.evidence.extend(spread(deciding));
    verdict.evidence.extend(changes(chain));
    verdict.evidence.extend(later(deciding));
    verdict.evidence.extend(totals(chain, case));
    verdict.against = finding.against;
    verdict.against.extend(signals_before(case, chain.first_at));
    verdict
}

/// Every deepest layer has a rule; a chain with a layer that is not known has none.
fn no_rule() -> (&'static str, Finding) {
    let finding = Finding {
        class: VerdictClass::CannotTell,
        confidence: Confidence::Low,
        evidence: vec!["the layer of the innermost function is not known".to_owned()],
        against: Vec::new(),
    };
    ("layer-not-known", finding)
}

/// The fields that a chain and a class give.
fn from_chain(chain: &Chain, class: VerdictClass, confidence: Confidence) -> Verdict {
    let deepest = chain.deepest();
    let errno_name = errno::name(deepest.errno);
    let meanings = Meanings::built_in();
    let key = Key {
        class,
        layer: deepest.layer,
        verb: chain.verb,
        errno_name: &errno_name,
        mapping: chain.arguments.mapping,
    };
    let meaning = meanings.find(key);
    let fill = |text: &str| filled(text, chain, &errno_name);
    Verdict {
        class,
        layer: deepest.layer,
        verb: chain.verb,
        function: deepest.function.clone(),
        module: deepest.module.clone(),
        errno: deepest.errno,
        hosts: vec![chain.host.clone()],
        devices: Vec::new(),
        first_at: Some(chain.first_at),
        confidence,
        route_to: meanings.route(class),
        rule: "",
        evidence: Vec::new(),
        against: Vec::new(),
        unwatched: Vec::new(),
        summary: meaning.map(|m| m.short.clone()).unwrap_or_default(),
        meaning: meaning.map(|m| fill(&m.means)).unwrap_or_default(),
        next_steps: meaning
            .map(|m| m.next.iter().map(|n| fill(n)).collect())
            .unwrap_or_default(),
        chain: chain.steps.clone(),
        errno_name,
    }
}

/// Puts the failure's own names into a text.
fn filled(text: &str, chain: &Chain, errno_name: &str) -> String {
    let deepest = chain.deepest();
    let or = |text: &str, otherwise: &str| {
        if text.is_empty() {
            otherwise.to_owned()
        } else {
            text.to_owned()
        }
    };
    text.replace("{host}", &chain.host)
        .replace("{device}", &or(&chain.device, "DEVICE"))
        .replace("{function}", &deepest.function)
        .replace("{module}", &or(&deepest.module, "the kernel"))
        .replace("{driver}", &or(&chain.driver, "DRIVER"))
        .replace("{errno}", errno_name)
        .replace("{comm}", &chain.comm)
        .replace("{pid}", &chain.tgid.to_string())
}

fn who(chain: &Chain) -> String {
    match chain.rank {
        Some(rank) => format!("rank {rank} on {}", chain.host),
        None => format!("{} (pid {}) on {}", chain.comm, chain.tgid, chain.host),
    }
}

fn doing(verb: Verb) -> &'static str {
    match verb {
        Verb::AllocPd => "making a protection domain (alloc_pd)",
        Verb::RegMr => "registering memory (reg_mr)",
        Verb::RegDmabufMr => "registering GPU memory (reg_dmabuf_mr)",
        Verb::CreateCq => "making a completion queue (create_cq)",
        Verb::CreateQp => "making a queue pair (create_qp)",
        Verb::ModifyQp => "connecting a queue pair (modify_qp)",
        Verb::CreateAh => "making an address handle (create_ah)",
        Verb::DevxObjCreate => "making a device object (DEVX)",
        Verb::DevxObjModify => "changing a device object (DEVX)",
        Verb::DevxUmemReg => "registering memory (DEVX)",
        Verb::FirmwareCommand => "giving a command to the firmware",
        Verb::AsyncEvent => "handling an asynchronous event",
        Verb::Unspecified => "calling the kernel",
    }
}

fn summary(chain: &Chain, verdict: &Verdict, hosts: usize) -> String {
    let others = match hosts {
        0 | 1 => String::new(),
        2 => ", and one more host,".to_owned(),
        many => format!(", and {} more hosts,", many - 1),
    };
    format!(
        "{}{others} failed in {} ({} layer) with {} while {}: {}.",
        who(chain),
        verdict.function,
        names::layer(verdict.layer),
        verdict.errno_name,
        doing(chain.verb),
        verdict.summary
    )
}

/// One failure in a line: when, who, and the chain from the innermost outward.
pub(crate) fn chain_line(chain: &Chain) -> String {
    let steps: Vec<String> = chain
        .steps
        .iter()
        .map(|step| {
            let layer = names::layer(step.layer);
            format!("{} ({layer}) {}", step.function, errno::name(step.errno))
        })
        .collect();
    let times = match chain.count {
        1 => String::new(),
        many => format!(", {many} times"),
    };
    format!(
        "{} {}: {}{times}",
        moment(chain.first_at),
        who(chain),
        steps.join(" → ")
    )
}

fn moment(at: OffsetDateTime) -> String {
    let form =
        format_description!("[year]-[month]-[day] [hour]:[minute]:[second].[subsecond digits:3]Z");
    at.format(&form).unwrap_or_default()
}

/// Where else the same failure is, and how often it was repeated.
fn spread(deciding: &Deciding<'_>) -> Option<String> {
    let (hosts, calls) = (deciding.hosts(), deciding.calls());
    if hosts.len() < 2 && calls < 2 {
        return None;
    }
    let ranks = deciding.ranks();
    let named: Vec<String> = ranks
        .iter()
        .take(RANKS_NAMED)
        .map(ToString::to_string)
        .collect();
    let ranks = match ranks.len() {
        0 => String::new(),
        many if many > RANKS_NAMED => {
            format!(
                ", ranks {} and {} more",
                named.join(", "),
                many - RANKS_NAMED
            )
        }
        _ => format!(", ranks {}", named.join(", ")),
    };
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    Some(format!(
        "the same failure {calls} times on {}{ranks} (repeats count as one failure)",
        watch::listed(&hosts)
    ))
}

/// An errno that changes on the way up: name the function that changed it.
fn changes(chain: &Chain) -> Vec<String> {
    chain
        .steps
        .windows(2)
        .filter(|pair| pair[0].errno != pair[1].errno)
        .map(|pair| {
            format!(
                "{} turned {} into {}: the application sees the latter",
                pair[1].function,
                errno::name(pair[0].errno),
                errno::name(pair[1].errno)
            )
        })
        .collect()
}

/// Failures of other kinds after the deciding one.
fn later(deciding: &Deciding<'_>) -> Vec<String> {
    let mut shown: Vec<&[Step]> = Vec::new();
    let mut lines = Vec::new();
    let mut kinds = 0;
    for chain in &deciding.later {
        if shown.contains(&chain.steps.as_slice()) {
            continue;
        }
        kinds += 1;
        shown.push(&chain.steps);
        if kinds <= LATER_NAMED {
            let after = (chain.first_at - deciding.chain.first_at).as_seconds_f64();
            lines.push(format!(
                "another failure {after:.3} s later: {}",
                chain_line(chain)
            ));
        }
    }
    if kinds > LATER_NAMED {
        lines.push(format!(
            "{} more kinds of later failures",
            kinds - LATER_NAMED
        ));
    }
    lines
}

/// What the exact counters say of the deciding function.
fn totals(chain: &Chain, case: &Case) -> Option<String> {
    let deepest = chain.deepest();
    let count = case
        .totals
        .iter()
        .filter(|total| total.function == deepest.function && total.errno == deepest.errno)
        .fold(0_u64, |sum, total| sum.saturating_add(total.count));
    (count > 0).then(|| {
        let name = errno::name(deepest.errno);
        format!(
            "exact counters of the attempt: {} failed {count} times with {name}",
            deepest.function
        )
    })
}

/// Independent co-signals before the first failure are another possible cause.
fn signals_before(case: &Case, first_at: OffsetDateTime) -> Vec<String> {
    case.signals
        .iter()
        .filter(|signal| signal.independent && signal.at <= first_at)
        .take(SIGNALS_NAMED)
        .map(|signal| {
            let before = (first_at - signal.at).as_seconds_f64();
            format!(
                "{before:.3} s before the first failure, {}",
                signal_line(signal)
            )
        })
        .collect()
}

fn signal_line(signal: &Signal) -> String {
    let device = match signal.device.as_str() {
        "" => String::new(),
        device => format!(" ({device})"),
    };
    match signal.detail.as_str() {
        "" => format!("on {}{device}: {}", signal.host, signal.name),
        detail => format!("on {}{device}: {}, {detail}", signal.host, signal.name),
    }
}

fn swallowed_alone(chain: &Chain, case: &Case) -> Verdict {
    let mut verdict = from_chain(chain, VerdictClass::SwallowedError, Confidence::Low);
    verdict.rule = "swallowed-error-alone";
    verdict.devices = select::distinct(
        [chain.device.as_str()]
            .into_iter()
            .filter(|d| !d.is_empty()),
    );
    verdict.summary = summary(chain, &verdict, 1);
    verdict.evidence = vec![
        chain_line(chain),
        format!(
            "the error did not reach user space: {} had it last",
            chain.steps.last().map_or("", |step| step.function.as_str())
        ),
    ];
    verdict.evidence.extend(totals(chain, case));
    verdict.against = vec!["no call of the attempt failed towards the application".to_owned()];
    verdict.against.extend(signals_before(case, chain.first_at));
    verdict
}

/// No chain decides: a co-signal, or nothing.
fn undecided(case: &Case) -> Verdict {
    if let Some(signal) = case.signals.iter().find(|signal| signal.independent) {
        return from_signal(signal);
    }
    let mut verdict = nothing(VerdictClass::CannotTell);
    verdict.rule = "nothing-decides";
    verdict.summary = match case.state {
        JobState::Completed => format!("Attempt {} completed, and nothing failed.", case.attempt),
        _ => format!(
            "Nothing that was watched explains attempt {}.",
            case.attempt
        ),
    };
    let expected = case.chains.iter().filter(|c| c.flags.expected).count();
    if expected > 0 {
        verdict.evidence.push(format!(
            "{expected} failures were seen that are part of normal work; they never decide"
        ));
    }
    for chain in case
        .chains
        .iter()
        .filter(|c| c.flags.incomplete && !c.flags.expected)
        .take(3)
    {
        verdict.evidence.push(format!(
            "records were dropped while this chain grew, so that it decides nothing: {}",
            chain_line(chain)
        ));
    }
    for total in case.totals.iter().take(3) {
        verdict.evidence.push(format!(
            "exact counters: {} ({}) failed {} times with {} on {}; its details were dropped, \
             are still on their way, or have aged out",
            total.function,
            names::layer(total.layer),
            total.count,
            errno::name(total.errno),
            total.host
        ));
    }
    verdict
}

fn from_signal(signal: &Signal) -> Verdict {
    let class = match signal.kind {
        CoSignalKind::Network => VerdictClass::Network,
        CoSignalKind::Device => VerdictClass::Device,
        CoSignalKind::Process => VerdictClass::Process,
        CoSignalKind::Host | CoSignalKind::Unspecified => VerdictClass::Host,
    };
    let mut verdict = nothing(class);
    verdict.rule = "co-signal-without-failure";
    verdict.hosts = vec![signal.host.clone()];
    if !signal.device.is_empty() {
        verdict.devices = vec![signal.device.clone()];
    }
    verdict.first_at = Some(signal.at);
    verdict.confidence = Confidence::Medium;
    verdict.summary = format!("No call to the kernel failed, and {}.", signal_line(signal));
    verdict.evidence = vec![format!("{} {}", moment(signal.at), signal_line(signal))];
    verdict
}

/// A verdict without a chain.
fn nothing(class: VerdictClass) -> Verdict {
    let meanings = Meanings::built_in();
    let key = Key {
        class,
        layer: Layer::Unspecified,
        verb: Verb::Unspecified,
        errno_name: "",
        mapping: None,
    };
    let meaning: Option<&Meaning> = meanings.find(key);
    Verdict {
        class,
        layer: Layer::Unspecified,
        verb: Verb::Unspecified,
        function: String::new(),
        module: String::new(),
        errno: 0,
        errno_name: String::new(),
        hosts: Vec::new(),
        devices: Vec::new(),
        first_at: None,
        confidence: Confidence::Low,
        route_to: meanings.route(class),
        rule: "",
        evidence: Vec::new(),
        against: Vec::new(),
        unwatched: Vec::new(),
        summary: String::new(),
        meaning: meaning.map(|m| m.means.clone()).unwrap_or_default(),
        next_steps: meaning.map(|m| m.next.clone()).unwrap_or_default(),
        chain: Vec::new(),
    }
}

/// Shaping of any host of the attempt is stated first, always; it caps verdicts about
/// the network, and where nothing else failed it is the verdict.
fn state_shaping(verdict: &mut Verdict, case: &Case) {
    let shaped: Vec<String> = case
        .shaping
        .iter()
        .filter(|shaping| shaping.windows > 0 || shaping.invalid > 0)
        .map(|shaping| {
            let outage = match shaping.invalid {
                0 => String::new(),
                many => format!(", {many} of its windows with an outage or a loss"),
            };
            format!(
                "the wire {} of {} was shaped to {} bit/s while the attempt ran{outage}",
                shaping.wire, shaping.host, shaping.rate_bps
            )
        })
        .collect();
    if shaped.is_empty() {
        return;
    }
    match verdict.class {
        VerdictClass::CannotTell if verdict.rule == "nothing-decides" => {
            let (evidence, hosts) = (std::mem::take(&mut verdict.evidence), &case.shaping);
            let hosts = select::distinct(hosts.iter().map(|shaping| shaping.host.as_str()));
            *verdict = nothing(VerdictClass::InjectedStraggler);
            verdict.rule = "shaped-and-nothing-else";
            verdict.confidence = Confidence::Medium;
            verdict.summary = format!(
                "Nothing failed, and a wire of attempt {} was shaped.",
                case.attempt
            );
            verdict.hosts = hosts;
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
    verdict.evidence.splice(0..0, shaped);
}
