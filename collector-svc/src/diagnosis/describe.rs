//! From a case to the verdict: the rules, and the words around what they found.

use rdmesh_proto::collector::v1::{Confidence, JobState, VerdictClass};
use rdmesh_proto::common::v1::Verb;
use rdmesh_store::errno;
use time::OffsetDateTime;
use time::macros::format_description;

use crate::diagnosis::meanings::{Key, Meanings};
use crate::diagnosis::rules::{self, Finding};
use crate::diagnosis::select::{self, Deciding};
use crate::diagnosis::undecided::{state_shaping, swallowed_alone, undecided};
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
    weigh_outcome(&mut verdict, case);
    let decided = !verdict.function.is_empty();
    verdict.unwatched = watch::unwatched(case, decided.then_some(verdict.verb));
    verdict
}

/// What failed did not keep an attempt from completing.
fn weigh_outcome(verdict: &mut Verdict, case: &Case) {
    let found = !verdict.function.is_empty() || verdict.rule == "co-signal-without-failure";
    if case.state != JobState::Completed || !found {
        return;
    }
    verdict.confidence = match verdict.confidence {
        Confidence::High => Confidence::Medium,
        _ => Confidence::Low,
    };
    verdict
        .against
        .push("the attempt completed all the same".to_owned());
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
    verdict.evidence.extend(spread(deciding, case));
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
pub(super) fn from_chain(chain: &Chain, class: VerdictClass, confidence: Confidence) -> Verdict {
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

pub(super) fn who(chain: &Chain) -> String {
    match chain.rank {
        Some(rank) => format!("rank {rank} on {}", chain.host),
        None => format!("{} (pid {}) on {}", chain.comm, chain.tgid, chain.host),
    }
}

pub(super) fn doing(verb: Verb) -> &'static str {
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

pub(super) fn moment(at: OffsetDateTime) -> String {
    let form =
        format_description!("[year]-[month]-[day] [hour]:[minute]:[second].[subsecond digits:3]Z");
    at.format(&form).unwrap_or_default()
}

/// Where else the same failure is, and how often it was repeated.
fn spread(deciding: &Deciding<'_>, case: &Case) -> Option<String> {
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
    // What was dropped, or not looked at, would count as well.
    let dropped = case.chains_cut || case.hosts.iter().any(|watch| watch.drops > 0);
    let at_least = if dropped { "at least " } else { "" };
    Some(format!(
        "the same failure {at_least}{calls} times on {}{ranks} (repeats count as one failure)",
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
pub(super) fn totals(chain: &Chain, case: &Case) -> Option<String> {
    let deepest = chain.deepest();
    let count = case
        .totals
        .iter()
        .filter(|total| total.function == deepest.function && total.errno == deepest.errno)
        .fold(0_u64, |sum, total| sum.saturating_add(total.count));
    (count > 0).then(|| {
        let name = errno::name(deepest.errno);
        format!(
            "exact counters of the attempt: {} failed {} with {name}",
            deepest.function,
            times(count)
        )
    })
}

/// Independent co-signals before the first failure are another possible cause.
pub(super) fn signals_before(case: &Case, first_at: OffsetDateTime) -> Vec<String> {
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

pub(super) fn signal_line(signal: &Signal) -> String {
    let device = match signal.device.as_str() {
        "" => String::new(),
        device => format!(" ({device})"),
    };
    match signal.detail.as_str() {
        "" => format!("on {}{device}: {}", signal.host, signal.name),
        detail => format!("on {}{device}: {}, {detail}", signal.host, signal.name),
    }
}

pub(super) fn times(count: u64) -> String {
    match count {
        1 => "once".to_owned(),
        many => format!("{many} times"),
    }
}
