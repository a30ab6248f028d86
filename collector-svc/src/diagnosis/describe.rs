//! From a case to the verdict: the rules, and the words around what they found.

use rdmesh_proto::collector::v1::{Confidence, JobState, VerdictClass};
use rdmesh_store::errno;

use crate::diagnosis::flight::weigh_flight;
use crate::diagnosis::history::state_history;
use crate::diagnosis::log::weigh_log;
use crate::diagnosis::outline::from_chain;
use crate::diagnosis::rules::{self, Finding};
use crate::diagnosis::select::{self, Deciding};
use crate::diagnosis::shaping::state_shaping;
use crate::diagnosis::undecided::{swallowed_alone, undecided};
use crate::diagnosis::watch;
use crate::diagnosis::words::{
    chain_line, doing, first_of_many, moment, signals_before, totals, who,
};
use crate::diagnosis::{Case, Chain, HostWatch, Step, Verdict};
use crate::names;

/// Chains of other signatures that the evidence names.
const LATER_NAMED: usize = 3;
/// Ranks that the evidence names.
const RANKS_NAMED: usize = 8;
/// Rows in doubt that `against` names.
const DOUBTED_NAMED: usize = 3;

/// The verdict on a case.
pub fn verdict(case: &Case) -> Verdict {
    let mut verdict = match select::deciding(case) {
        Some(deciding) => decided(&deciding, case),
        None => match select::swallowed(case) {
            Some(chain) => swallowed_alone(chain, case),
            None => undecided(case),
        },
    };
    state_history(&mut verdict, case);
    state_shaping(&mut verdict, case);
    weigh_outcome(&mut verdict, case);
    weigh_times(&mut verdict, case);
    weigh_log(&mut verdict, case);
    weigh_flight(&mut verdict, case);
    let decided = !verdict.function.is_empty();
    verdict.unwatched = watch::unwatched(case, decided.then_some(verdict.verb));
    verdict.failures_looked_at = u64::try_from(case.chains.len()).unwrap_or(u64::MAX);
    verdict.failures_total = verdict
        .failures_looked_at
        .saturating_add(case.chains_left_out);
    if case.chains_left_out > 0 {
        verdict.evidence.push(format!(
            "looked at the first {} of the attempt's {} failures{}",
            verdict.failures_looked_at,
            verdict.failures_total,
            if case.more_left_out { " or more" } else { "" }
        ));
    }
    verdict
}

/// Whether something that failed decided.
fn found(verdict: &Verdict) -> bool {
    !verdict.function.is_empty() || verdict.rule == "co-signal-without-failure"
}

/// When an attempt ran that ended before it started is not known, and so not what is its.
fn weigh_times(verdict: &mut Verdict, case: &Case) {
    let Some((start, end)) = case.contradicting_times() else {
        return;
    };
    if found(verdict) {
        verdict.lower_confidence();
    }
    verdict.against.push(format!(
        "the times told of the attempt contradict each other: it ended at {}, before it started \
         at {}; when it ran is not known",
        moment(end),
        moment(start)
    ));
}

/// What failed did not keep an attempt from completing.
fn weigh_outcome(verdict: &mut Verdict, case: &Case) {
    if case.state != JobState::Completed || !found(verdict) {
        return;
    }
    verdict.lower_confidence();
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
    let mut verdict = from_chain(chain, finding.class, finding.confidence, rule);
    verdict.hosts = deciding.hosts();
    verdict.devices = deciding.devices();
    verdict.first_at = Some(chain.first_at);
    verdict.summary = summary(chain, &verdict, deciding);
    verdict.evidence = vec![chain_line(deciding.chain)];
    verdict.evidence.extend(finding.evidence);
    verdict.evidence.extend(spread(deciding, case));
    verdict.evidence.extend(changes(chain));
    verdict.evidence.extend(later(deciding));
    verdict.evidence.extend(totals(chain, case));
    verdict.weigh_doubts(chain);
    verdict.against.extend(doubted(deciding));
    verdict.against.extend(finding.against);
    let against = signals_before(case, chain.first_at, verdict.class);
    verdict.against.extend(against);
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

fn summary(chain: &Chain, verdict: &Verdict, deciding: &Deciding<'_>) -> String {
    let whose = if deciding.has_many_tasks() {
        first_of_many(chain)
    } else {
        who(chain)
    };
    let others = match deciding.hosts().len() {
        0 | 1 => String::new(),
        2 => ", and one more host,".to_owned(),
        many => format!(", and {} more hosts,", many - 1),
    };
    format!(
        "{whose}{others} failed in {} ({} layer) with {} while {}: {}.",
        verdict.function,
        names::layer(verdict.layer),
        verdict.errno_name,
        doing(chain.verb),
        verdict.summary
    )
}

/// Rows in doubt beside the one that decides; where that one is in doubt itself, what would
/// come first without it.
fn doubted(deciding: &Deciding<'_>) -> Vec<String> {
    if deciding.chain.is_doubted() {
        let sure = deciding.later.first().filter(|chain| !chain.is_doubted());
        return sure
            .map(|chain| {
                let line = chain_line(chain);
                format!("the first failure that nothing speaks against is another: {line}")
            })
            .into_iter()
            .collect();
    }
    let rows: Vec<&&Chain> = deciding.same.iter().filter(|c| c.is_doubted()).collect();
    let mut lines: Vec<String> = rows
        .iter()
        .take(DOUBTED_NAMED)
        .map(|chain| {
            let reasons = [chain.doubts.as_slice(), &chain.time_doubts].concat();
            format!(
                "a row of the same failure is in doubt and sets neither time nor first host: {} \
                 {}: {}",
                moment(chain.first_at),
                who(chain),
                reasons.join("; ")
            )
        })
        .collect();
    match rows.len().saturating_sub(DOUBTED_NAMED) {
        0 => {}
        1 => lines.push("1 more row of it is in doubt".to_owned()),
        more => lines.push(format!("{more} more rows of it are in doubt")),
    }
    lines
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
        1 => format!(", rank {}", named.join(", ")),
        _ => format!(", ranks {}", named.join(", ")),
    };
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    // What was dropped, not shown, or not looked at would count as well.
    let missed = |watch: &HostWatch| watch.drops > 0 || watch.unseen > 0;
    let more = case.chains_left_out > 0 || case.hosts.iter().any(missed);
    let at_least = if more { "at least " } else { "" };
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
