//! The clock.

use super::Check;
use crate::doctor::Topic;
use crate::doctor::facts::{Clock, Dial, Dialled, Facts, Looked, OFFSET_UNSURE_MS, Outcome};

/// From where on a clock that is off confuses people who read logs of several hosts; the
/// collector calls an agent degraded then (it measures finer).
const CONFUSING_MS: i64 = 1_000;

/// From where on certificates of today may not hold yet, and a job's times are other jobs'.
const HARMFUL_MS: i64 = 60_000;

pub(super) fn examine(facts: &Facts, checks: &mut Vec<Check>) {
    checks.push(in_step(&facts.clock));
    // One line for each place; two services may dial the same.
    let mut seen: Vec<&str> = Vec::new();
    for dial in &facts.dials {
        let is_other = !matches!(dial.whom, Dialled::Own(_));
        if is_other && !seen.contains(&dial.address.as_str()) {
            seen.push(&dial.address);
            checks.extend(offset(dial));
        }
    }
}

fn in_step(clock: &Clock) -> Check {
    let check = "clock synchronised";
    let daemons = super::listed(&clock.daemons);
    let has_daemon = !clock.daemons.is_empty();
    match &clock.synchronized {
        Looked::Found(true) if has_daemon => Check::ok(Topic::Time, check, format!("by {daemons}")),
        Looked::Found(true) => Check::ok(Topic::Time, check, "yes"),
        Looked::Found(false) if has_daemon => Check::warning(
            Topic::Time,
            check,
            format!("no, though {daemons} runs"),
            "`chronyc tracking` or `timedatectl timesync-status` says whether a server answers; \
             just after a start it takes some minutes",
        ),
        Looked::Found(false) => Check::warning(
            Topic::Time,
            check,
            "no, and nothing that would do it runs",
            "install chrony, or `timedatectl set-ntp true`",
        ),
        Looked::Absent => elsewhere(clock, "there is no timedatectl"),
        Looked::Unknown(why) => elsewhere(clock, why),
    }
}

/// systemd does not say it: the daemon itself may.
fn elsewhere(clock: &Clock, why: &str) -> Check {
    let daemons = super::listed(&clock.daemons);
    let (runs, next) = match clock.daemons.is_empty() {
        true => (
            "no program that keeps the clock runs".to_owned(),
            "`adjtimex --print` shows it (status 64: not synchronised)".to_owned(),
        ),
        false => (
            format!("{daemons} runs"),
            format!("ask {daemons} itself (`chronyc tracking`, `ntpq -p`)"),
        ),
    };
    Check {
        next: Some(next),
        ..Check::unknown(Topic::Time, "clock synchronised", format!("{why}; {runs}"))
    }
}

/// Against a collector's clock.
fn offset(dial: &Dial) -> Option<Check> {
    let Outcome::Answered(answer) = &dial.outcome else {
        return None;
    };
    let ahead_ms = answer.ahead_ms?;
    let address = &dial.address;
    let check = format!("clock against {address}");
    let off = ahead_ms.saturating_abs();
    if off <= CONFUSING_MS + OFFSET_UNSURE_MS {
        let seconds = (CONFUSING_MS + OFFSET_UNSURE_MS) / 1_000;
        let found = format!("not off by more than {seconds} s");
        return Some(Check::ok(Topic::Time, check, found));
    }
    let side = if ahead_ms > 0 { "ahead" } else { "behind" };
    let found = format!("{} s {side}, give or take one", off / 1_000);
    let next = "see which of the two is wrong (`timedatectl` on both), and keep both in step with \
                the same servers (chrony)";
    Some(match off > HARMFUL_MS {
        true => Check::problem(Topic::Time, check, found, next),
        false => Check::warning(Topic::Time, check, found, next),
    })
}
