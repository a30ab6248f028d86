//! `rdmesh diagnose`: what somebody reads who was woken by it. The verdict in
//! one sentence stands first, then the facts, the chain, and what to do.

use rdmesh_client::Moment;
use rdmesh_client::model::baseline::CapturedFork;
use rdmesh_client::model::failure::ChainStep;
use rdmesh_client::model::log::{LogAgreement, LogVerdict};
use rdmesh_client::model::verdict::{Confidence, Diagnosis, Verdict, VerdictClass};
use rdmesh_client::model::{Layer, Verb};

use super::printable::printable;
use super::table::{Cell, Column, Table};
use super::wrap::wrap;
use super::{Ink, Style, ago, baseline, count_of, errno_text, job, some_of};

/// Hosts, devices and ranks that one line names; JSON has them all.
const MAX_NAMED: usize = 8;

/// Lines of totals that are shown; a job on a thousand hosts has more than
/// anybody reads at night. JSON has them all.
const MAX_TOTALS: usize = 20;

const CHAIN_COLUMNS: [Column; 5] = [
    Column::fixed(""),
    Column::function(""),
    Column::name("").dear(0),
    Column::fixed(""),
    Column::prose("", 24),
];

const TOTAL_COLUMNS: [Column; 6] = [
    Column::name("HOST"),
    Column::fixed("LAYER").cheap(1),
    Column::function("FUNCTION"),
    Column::name("MODULE").cheap(0),
    Column::fixed("ERRNO"),
    Column::number("COUNT"),
];

/// The whole answer.
pub(crate) fn text(diagnosis: &Diagnosis, style: &Style, now: Moment) -> String {
    let verdict = &diagnosis.verdict;
    let columns = style.prose_columns();
    let mut out = job::heading(&diagnosis.job, style);
    out.push('\n');
    out.push_str(&job::marks(&diagnosis.job, style));

    let ink = if is_answer(verdict) {
        Ink::Bad
    } else {
        Ink::Warning
    };
    let sentence = wrap(&headline(diagnosis), "", columns);
    out.push('\n');
    for line in sentence.lines() {
        out.push_str(&style.paint(ink, line));
        out.push('\n');
    }

    out.push('\n');
    out.push_str(&facts(diagnosis, style, now));
    out.push_str(&chain(verdict, style));
    if let Some(meaning) = &verdict.meaning {
        out.push_str(&title("What it means", style));
        out.push_str(&wrap(&printable(meaning), "  ", columns));
    }
    if !verdict.next_steps.is_empty() {
        out.push_str(&title("Check next", style));
        for (number, step) in (1_u32..).zip(&verdict.next_steps) {
            out.push_str(&wrap(&printable(step), &format!("{number:>3}. "), columns));
        }
    }
    out.push_str(&points("Evidence", "  + ", &verdict.evidence, style));
    out.push_str(&points("Against it", "  - ", &verdict.against, style));
    out.push_str(&points("Not watched", "  ? ", &verdict.unwatched, style));
    out.push_str(&totals(diagnosis, style));
    out
}

fn is_answer(verdict: &Verdict) -> bool {
    !matches!(
        verdict.class,
        VerdictClass::CannotTell | VerdictClass::Unspecified
    )
}

/// The collector's sentence, or one of the fields when it sent none.
fn headline(diagnosis: &Diagnosis) -> String {
    let verdict = &diagnosis.verdict;
    if let Some(summary) = &verdict.summary {
        return printable(summary);
    }
    let Some(function) = verdict.function.as_deref().filter(|_| is_answer(verdict)) else {
        return format!(
            "Cannot tell what broke {}.",
            printable(&diagnosis.job.attempt.to_string())
        );
    };
    let mut sentence = printable(function);
    sentence.push_str(" failed");
    if let Some(errno) = verdict.errno {
        let name = errno_text(errno, verdict.errno_name.as_deref());
        sentence.push_str(&format!(" with {name}"));
    }
    if !verdict.hosts.is_empty() {
        sentence.push_str(&format!(" on {}", some_of(&verdict.hosts, MAX_NAMED)));
    }
    sentence.push('.');
    sentence
}

fn title(text: &str, style: &Style) -> String {
    let lines = wrap(text, "", style.prose_columns());
    let painted = lines
        .lines()
        .map(|line| style.paint(Ink::Heading, line) + "\n");
    format!("\n{}", painted.collect::<String>())
}

fn points(heading: &str, bullet: &str, items: &[String], style: &Style) -> String {
    if items.is_empty() {
        return String::new();
    }
    let lines = items
        .iter()
        .map(|item| wrap(&printable(item), bullet, style.prose_columns()));
    title(heading, style) + &lines.collect::<String>()
}

fn facts(diagnosis: &Diagnosis, style: &Style, now: Moment) -> String {
    let verdict = &diagnosis.verdict;
    let function = verdict
        .function
        .as_deref()
        .map(|function| match &verdict.module {
            Some(module) => format!("{} (module {})", printable(function), printable(module)),
            None => printable(function),
        });
    let ranks: Vec<String> = diagnosis.ranks.iter().map(ToString::to_string).collect();
    let named = |items: &[String]| (!items.is_empty()).then(|| some_of(items, MAX_NAMED));
    let plural = |items: &[String], one, many| if items.len() > 1 { many } else { one };
    let confidence = match verdict.confidence {
        Confidence::Low => Cell::inked(Ink::Warning, verdict.confidence.name()),
        _ => verdict.confidence.name().into(),
    };
    let rows = [
        ("cause", Some(verdict.class.name().to_owned().into())),
        ("layer", verdict.layer.map(|layer| layer.name().into())),
        ("function", function.map(Cell::from)),
        (
            "errno",
            verdict
                .errno
                .map(|e| errno_text(e, verdict.errno_name.as_deref()).into()),
        ),
        ("call", verdict.verb.map(|verb| call_name(verb).into())),
        (
            plural(&verdict.hosts, "host", "hosts"),
            named(&verdict.hosts).map(Cell::from),
        ),
        (
            plural(&ranks, "rank", "ranks"),
            ranks_named(&ranks, diagnosis.ranks_cut).map(Cell::from),
        ),
        (
            plural(&verdict.devices, "device", "devices"),
            named(&verdict.devices).map(Cell::from),
        ),
        (
            "when",
            verdict
                .first_at
                .map(|at| format!("{} ({})", at.to_millis_text(), ago(at, now)).into()),
        ),
        ("confidence", Some(confidence)),
        ("good calls", diagnosis.captured.as_ref().map(left)),
        ("log", diagnosis.log.as_ref().map(log)),
        (
            "who to call",
            verdict
                .route_to
                .as_deref()
                .map(|to| Cell::inked(Ink::Heading, printable(to))),
        ),
        (
            "rule",
            verdict.rule.as_deref().map(|rule| printable(rule).into()),
        ),
        ("decided", decided(verdict).map(Cell::from)),
    ];
    let mut table = Table::new(&["", ""]).indented("  ");
    for (key, value) in rows {
        if let Some(value) = value {
            table.row([Cell::inked(Ink::Quiet, key), value]);
        }
    }
    table.to_text(style)
}

/// When an earlier verdict was decided that stands.
pub(crate) fn decided(verdict: &Verdict) -> Option<String> {
    let at = verdict.decided_at?.to_millis_text();
    Some(format!("{at}; details have aged out since"))
}

/// Where such calls leave good ones.
fn left(captured: &CapturedFork) -> Cell {
    printable(&baseline::left(captured)).into()
}

/// What the job's own logs say, beside the cause.
fn log(log: &LogVerdict) -> Cell {
    let beside = match (log.misattributed, log.agreement) {
        (true, _) => "misattributed: the kernel shows another cause",
        (_, LogAgreement::Agrees) => "the same",
        (_, LogAgreement::Consequence) => "what such a cause brings about",
        (_, LogAgreement::Disagrees) => "another cause",
        (_, LogAgreement::Silent) => "no cause",
        (_, LogAgreement::Alone) => "the only one that tells a cause",
        (_, LogAgreement::Unspecified | LogAgreement::Newer(_)) => "",
    };
    let text = match beside {
        "" => log.class.name().to_owned(),
        beside => format!("{} ({beside})", log.class.name()),
    };
    match log.misattributed || log.agreement == LogAgreement::Disagrees {
        true => Cell::inked(Ink::Warning, text),
        false => text.into(),
    }
}

/// The first ranks, and how many more there are as far as is known.
fn ranks_named(ranks: &[String], cut: bool) -> Option<String> {
    let shown = some_of(ranks, MAX_NAMED);
    match (ranks.len(), cut) {
        (0, _) => None,
        (_, false) => Some(shown),
        (1..=MAX_NAMED, true) => Some(format!("{shown} and perhaps more")),
        (_, true) => Some(shown.replace(" and ", " and at least ")),
    }
}

/// The call as the application made it.
fn call_name(verb: Verb) -> String {
    match verb {
        Verb::FirmwareCommand | Verb::AsyncEvent | Verb::Unspecified | Verb::Newer(_) => {
            verb.name().to_owned()
        }
        Verb::DevxObjCreate | Verb::DevxObjModify | Verb::DevxUmemReg => {
            format!("mlx5dv_{}", verb.name())
        }
        _ => format!("ibv_{}", verb.name()),
    }
}

/// The chain from the system call inward, as a person thinks of a call. It holds
/// the innermost step first.
fn chain(verdict: &Verdict, style: &Style) -> String {
    let Some(innermost) = verdict.chain.first() else {
        return String::new();
    };
    let mut table = Table::new(&CHAIN_COLUMNS).indented("  ");
    let outermost = verdict.chain.last().unwrap_or(innermost);
    if verdict.class == VerdictClass::SwallowedError && outermost.layer != Layer::Uverbs {
        let nothing = Cell::inked(Ink::Warning, "the application was told of no error");
        table.row(["uverbs".into(), nothing, "".into(), "".into(), "".into()]);
        table.row(connector());
    }
    for (index, step) in verdict.chain.iter().enumerate().rev() {
        table.row(step_row(
            step,
            index.checked_sub(1).and_then(|i| verdict.chain.get(i)),
        ));
        if index > 0 {
            table.row(connector());
        }
    }
    let heading = match verdict.verb {
        Some(verb) => format!("{}, from the system call inward", call_name(verb)),
        None => "The call, from the system call inward".to_owned(),
    };
    title(&heading, style) + &table.to_text(style)
}

fn connector() -> [Cell; 5] {
    ["  |".into(), "".into(), "".into(), "".into(), "".into()]
}

/// One step; `below` is the one that it called, absent at the bottom.
fn step_row(step: &ChainStep, below: Option<&ChainStep>) -> [Cell; 5] {
    let errno = errno_text(step.errno, step.errno_name.as_deref());
    let note = match below {
        None => Cell::inked(Ink::Bad, "<== the error was born here"),
        Some(below) if below.errno != step.errno => {
            let was = errno_text(below.errno, below.errno_name.as_deref());
            Cell::inked(Ink::Warning, format!("<-- made this of {was}"))
        }
        Some(_) => Cell::default(),
    };
    [
        step.layer.name().into(),
        printable(&step.function).into(),
        step.module
            .as_deref()
            .map(printable)
            .unwrap_or_default()
            .into(),
        errno.into(),
        note,
    ]
}

fn totals(diagnosis: &Diagnosis, style: &Style) -> String {
    let totals = &diagnosis.totals;
    if totals.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&TOTAL_COLUMNS).indented("  ");
    for total in totals.iter().take(MAX_TOTALS) {
        table.row([
            printable(&total.host).into(),
            total.layer.name().into(),
            printable(&total.function).into(),
            total
                .module
                .as_deref()
                .map(printable)
                .unwrap_or_default()
                .into(),
            errno_text(total.errno, total.errno_name.as_deref()).into(),
            total.count.to_string().into(),
        ]);
    }
    let exactly = match diagnosis.unseen {
        0 => "counted exactly".to_owned(),
        1 => "at least: the kernel hid 1 call".to_owned(),
        calls => format!("at least: the kernel hid {calls} calls"),
    };
    let mut out = title(
        &format!("Failing returns of this attempt, {exactly}"),
        style,
    );
    out.push_str(&table.to_text(style));
    let more = totals.len().saturating_sub(MAX_TOTALS);
    if more > 0 {
        out.push_str(&format!(
            "  and {}; -o json has them all\n",
            count_of(more, "more line")
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::samples;

    fn shown(diagnosis: &Diagnosis) -> String {
        text(diagnosis, &Style::PLAIN, samples::now())
    }

    #[test]
    fn an_unmapped_address() {
        insta::assert_snapshot!(shown(&samples::diagnosis()));
    }

    #[test]
    fn on_a_narrow_terminal_in_colour() {
        let style = Style {
            color: true,
            width: Some(60),
        };
        let out = text(&samples::diagnosis(), &style, samples::now());
        insta::assert_snapshot!(out.replace('\u{1b}', "ESC"));
    }

    #[test]
    fn ranks_of_a_bounded_answer_are_a_lower_bound() {
        let ranks: Vec<String> = (0..10).map(|rank: i32| rank.to_string()).collect();
        let all = ranks_named(&ranks, false);
        assert_eq!(all.as_deref(), Some("0, 1, 2, 3, 4, 5, 6, 7 and 2 more"));
        let cut = ranks_named(&ranks, true);
        assert_eq!(
            cut.as_deref(),
            Some("0, 1, 2, 3, 4, 5, 6, 7 and at least 2 more")
        );
        let few = ranks_named(&ranks[..1], true);
        assert_eq!(few.as_deref(), Some("0 and perhaps more"));
        assert_eq!(ranks_named(&[], true), None);
    }

    #[test]
    fn counts_are_exact_unless_the_kernel_hid_calls() {
        let mut diagnosis = samples::diagnosis();
        assert!(shown(&diagnosis).contains("of this attempt, counted exactly\n"));
        diagnosis.unseen = 31;
        let text = shown(&diagnosis);
        assert!(
            text.contains("of this attempt, at least: the kernel hid 31 calls\n"),
            "{text}"
        );
    }

    #[test]
    fn a_log_that_says_network_is_contradicted() {
        let shown = shown(&samples::misattributed());
        assert!(
            shown.contains("misattributed: the kernel shows another cause"),
            "{shown}"
        );
        assert!(shown.contains("  - misattribution: "), "{shown}");
    }

    #[test]
    fn nothing_known() {
        insta::assert_snapshot!(shown(&samples::cannot_tell()));
    }

    #[test]
    fn an_errno_that_changed_and_vanished_on_many_hosts() {
        insta::assert_snapshot!(shown(&samples::swallowed()));
    }

    #[test]
    fn a_verdict_that_outlived_its_details_says_when_it_was_decided() {
        let mut diagnosis = samples::diagnosis();
        diagnosis.verdict.decided_at = diagnosis.verdict.first_at;
        let shown = shown(&diagnosis);
        let line = shown
            .lines()
            .find(|line| line.trim().starts_with("decided"));
        let line = line.unwrap_or_default();
        assert!(line.ends_with("Z; details have aged out since"), "{shown}");
    }

    #[test]
    fn hostile_text_is_shown_and_not_obeyed() {
        let out = shown(&samples::hostile());
        assert!(
            !out.contains('\u{1b}') && !out.contains('\u{9b}'),
            "{out:?}"
        );
        insta::assert_snapshot!(out);
    }

    #[test]
    fn json_has_the_verdict_at_its_top() {
        let json = crate::output::json(&samples::diagnosis()).unwrap();
        insta::assert_snapshot!(json);
    }

    #[test]
    fn json_of_no_verdict_has_the_same_fields() {
        let json = crate::output::json(&samples::cannot_tell()).unwrap();
        insta::assert_snapshot!(json);
    }
}
