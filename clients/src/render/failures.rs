//! `rdmesh failures`.

use rdmesh_client::Moment;
use rdmesh_client::model::failure::{ChainStep, Failure};

use super::asked::asked;
use super::printable::printable;
use super::table::{Cell, Column, Table};
use super::wrap::wrap;
use super::{Ink, Style, errno_short, newest_shown, note};
use crate::command::failures::FailureList;

const COLUMNS: [Column; 12] = [
    Column::fixed("FIRST"),
    Column::name("HOST"),
    Column::attempt("ATTEMPT"),
    Column::number("RANK").dear(2),
    Column::name("DEVICE").cheap(2),
    Column::number("COUNT"),
    Column::fixed("VERB").dear(1),
    Column::fixed("ERRNO"),
    Column::name("PROCESS").cheap(1),
    Column::prose("ASKED FOR", 16).cheap(0).folding(),
    Column::prose("MARKS", 16).dear(0).folding(),
    Column::prose("CHAIN, INNERMOST FIRST", 24),
];

/// One line for each failure, newest first.
pub(crate) fn text(list: &FailureList, style: &Style, _now: Moment) -> String {
    if list.failures.is_empty() {
        let text = "No failures match. Without --all, expected ones are left out; rdmesh fleet \
                    lists the hosts that report.";
        return wrap(text, "", style.prose_columns());
    }
    let mut table = Table::new(&COLUMNS);
    for failure in &list.failures {
        table.row(row(failure));
    }
    let mut out = table.to_text(style);
    if list.more {
        let hint = format!(
            "Only {}; --limit shows more, --since and --until fewer.",
            newest_shown(list.failures.len())
        );
        out.push_str(&note(&hint, style));
    }
    out
}

/// One failure on a line of its own, for a stream of them.
pub(crate) fn line(failure: &Failure, style: &Style) -> String {
    let attempt = failure.attempt.as_ref().map(ToString::to_string);
    let rank = failure.rank.map(|rank| format!("rank {rank}"));
    let parts = [
        failure.first_at.map(Moment::to_millis_text),
        Some(printable(&failure.host)),
        attempt.map(|attempt| printable(&attempt)),
        rank,
        failure.device.as_deref().map(printable),
        Some(failure.verb.name().to_owned()),
    ];
    let told = parts.into_iter().flatten().collect::<Vec<_>>().join(" ");
    let errno = style.paint(Ink::Bad, &born_errno(&failure.steps));
    let times = match failure.count {
        1 => String::new(),
        many => format!(" ({many} times)"),
    };
    format!("{told} {errno}{times}: {}\n", chain_text(&failure.steps))
}

fn row(failure: &Failure) -> [Cell; 12] {
    let optional = |text: &Option<String>| text.as_deref().map(printable).unwrap_or_default();
    let process = match &failure.comm {
        Some(comm) => format!("{}[{}]", printable(comm), failure.tgid),
        None => failure.tgid.to_string(),
    };
    let marks = marks(failure);
    [
        failure
            .first_at
            .map(Moment::to_millis_text)
            .unwrap_or_default()
            .into(),
        printable(&failure.host).into(),
        failure
            .attempt
            .as_ref()
            .map(|a| printable(&a.to_string()))
            .unwrap_or_default()
            .into(),
        failure
            .rank
            .map(|rank| rank.to_string())
            .unwrap_or_default()
            .into(),
        optional(&failure.device).into(),
        failure.count.to_string().into(),
        failure.verb.name().into(),
        born_errno(&failure.steps).into(),
        process.into(),
        failure
            .arguments
            .as_ref()
            .map(asked)
            .unwrap_or_default()
            .into(),
        if marks.is_empty() {
            Cell::default()
        } else {
            Cell::inked(Ink::Warning, marks)
        },
        chain_text(&failure.steps).into(),
    ]
}

fn born_errno(steps: &[ChainStep]) -> String {
    steps
        .first()
        .map(|s| errno_short(s.errno, s.errno_name.as_deref()))
        .unwrap_or_default()
}

/// `ib_umem_get > rxe_reg_user_mr > ib_uverbs_reg_mr`; a step whose errno is not
/// the one below it says so.
fn chain_text(steps: &[ChainStep]) -> String {
    let mut parts = Vec::with_capacity(steps.len());
    let mut below = None;
    for step in steps {
        let mut part = printable(&step.function);
        if below.is_some_and(|errno| errno != step.errno) {
            part = format!(
                "{part} ({})",
                errno_short(step.errno, step.errno_name.as_deref())
            );
        }
        below = Some(step.errno);
        parts.push(part);
    }
    parts.join(" > ")
}

/// What is odd about a failure.
pub(crate) fn marks(failure: &Failure) -> String {
    let flags = [
        (failure.expected, "expected"),
        (failure.swallowed, "swallowed"),
        (failure.incomplete, "incomplete"),
    ];
    let flags = flags
        .into_iter()
        .filter(|(set, _)| *set)
        .map(|(_, name)| name.to_owned());
    flags
        .chain(failure.marks.iter().map(|mark| printable(mark)))
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::samples;

    #[test]
    fn a_line_for_each_failure() {
        let list = FailureList {
            failures: samples::failures(),
            more: true,
        };
        insta::assert_snapshot!(text(&list, &Style::PLAIN, samples::now()));
    }

    #[test]
    fn no_failures_are_said_to_be_none() {
        let list = FailureList {
            failures: Vec::new(),
            more: false,
        };
        insta::assert_snapshot!(text(&list, &Style::PLAIN, samples::now()));
    }

    #[test]
    fn json_names_are_stable() {
        let list = FailureList {
            failures: samples::failures(),
            more: false,
        };
        insta::assert_snapshot!(crate::output::json(&list).unwrap());
    }
}
