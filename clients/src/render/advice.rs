//! `rdmesh advise-retry`.

use rdmesh_client::Moment;
use rdmesh_client::model::advice::{Advice, RetryAdvice};

use super::printable::printable;
use super::wrap::wrap;
use super::{Ink, Style, note, some_of};

/// Hosts and attempts that a line names; JSON has them all.
const MAX_NAMED: usize = 8;

/// The advice first, then why.
pub(crate) fn text(advice: &Advice, style: &Style, _now: Moment) -> String {
    let columns = style.prose_columns();
    let (ink, what) = match advice.advice {
        RetryAdvice::Retry => (Ink::Good, "retry".to_owned()),
        RetryAdvice::RetryWithoutHosts => (
            Ink::Warning,
            format!("retry without {}", some_of(&advice.hosts, MAX_NAMED)),
        ),
        RetryAdvice::DoNotRetry => (Ink::Bad, "do not retry".to_owned()),
        RetryAdvice::Unspecified | RetryAdvice::Newer(_) => (Ink::Warning, "no advice".to_owned()),
    };
    let headline = format!(
        "{}: {what} (confidence {})",
        printable(&advice.attempt.to_string()),
        advice.confidence.name()
    );
    let mut out = String::new();
    for line in wrap(&headline, "", columns).lines() {
        out.push_str(&style.paint(ink, line));
        out.push('\n');
    }
    out.push_str(&wrap(
        &format!("Why: {}.", printable(&advice.reason)),
        "",
        columns,
    ));
    if let Some(team) = &advice.route_to {
        let said = format!(
            "Cause: {}; who to call: {}.",
            advice.class.name(),
            printable(team)
        );
        out.push_str(&wrap(&said, "", columns));
    }
    if !advice.same_failure.is_empty() {
        let said = format!(
            "The same failure before: {}.",
            some_of(&advice.same_failure, MAX_NAMED)
        );
        out.push_str(&wrap(&said, "", columns));
    }
    if !advice.evidence.is_empty() {
        out.push_str(&format!("\n{}\n", style.paint(Ink::Heading, "Evidence")));
        for line in &advice.evidence {
            out.push_str(&wrap(&printable(line), "  + ", columns));
        }
    }
    for mark in &advice.marks {
        out.push_str(&note(&printable(mark), style));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::samples;

    #[test]
    fn the_advice_stands_first() {
        let mut all = Vec::new();
        for kind in [
            RetryAdvice::RetryWithoutHosts,
            RetryAdvice::DoNotRetry,
            RetryAdvice::Newer(9),
        ] {
            let mut advice = samples::advice();
            advice.advice = kind;
            all.push(text(&advice, &Style::PLAIN, samples::now()));
        }
        for (text, begins) in all.iter().zip([
            "4711/2: retry without gpu-07, gpu-09 (confidence high)\n",
            "4711/2: do not retry (confidence high)\n",
            "4711/2: no advice (confidence high)\n",
        ]) {
            assert!(text.starts_with(begins), "{text}");
            assert!(
                text.contains("The same failure before: 4711/0, 4711/1."),
                "{text}"
            );
            assert!(!text.contains('\u{202e}'), "{text:?}");
        }
    }

    #[test]
    fn json_names_are_stable() {
        let json = crate::output::json(&samples::advice()).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["advice"], "retry_without_hosts");
        assert_eq!(json["hosts"][1], "gpu-09");
        assert_eq!(json["attempt"]["id"], "4711/2");
        assert_eq!(json["confidence"], "high");
    }
}
