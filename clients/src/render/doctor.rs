//! `rdmesh doctor`.

use rdmesh_client::Moment;
use rdmesh_client::doctor::{Check, Status};

use super::printable::printable;
use super::table::{Cell, Column, Table};
use super::wrap::wrap;
use super::{Ink, Style, count_of};
use crate::command::doctor::Examination;

const COLUMNS: [Column; 3] = [
    Column::fixed("STATUS"),
    Column::name("CHECK"),
    Column::prose("FOUND", 24),
];

/// Counts, a line for each check with the worst first, and what to do.
pub(crate) fn text(examination: &Examination, style: &Style, _now: Moment) -> String {
    let mut table = Table::new(&COLUMNS);
    for check in &examination.checks {
        table.row([
            Cell::inked(ink(check.status), word(check.status)),
            printable(&check.name).into(),
            // Programs and parsers say several lines.
            printable(&one_line(&check.found)).into(),
        ]);
    }
    let mut out = format!(
        "{}\n\n{}",
        heading(examination, style),
        table.to_text(style)
    );
    let to_do: Vec<(&Check, &String)> = examination
        .checks
        .iter()
        .filter_map(|check| Some((check, check.next.as_ref()?)))
        .collect();
    if to_do.is_empty() {
        return out;
    }
    out.push_str(&format!("\n{}\n", style.paint(Ink::Heading, "What to do")));
    let digits = to_do.len().to_string().len();
    for (index, (check, next)) in to_do.iter().enumerate() {
        let lead = format!("  {:>digits$}. ", index + 1);
        let line = format!("{}: {}", printable(&check.name), printable(&one_line(next)));
        out.push_str(&wrap(&line, &lead, style.prose_columns()));
    }
    out
}

/// White space of any kind as one space.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn heading(examination: &Examination, style: &Style) -> String {
    let host = match examination.host.as_str() {
        "" => "this machine".to_owned(),
        host => printable(host),
    };
    let counts = Status::ALL.into_iter().filter_map(|status| {
        let count = match status {
            Status::Problem => examination.problems,
            Status::Warning => examination.warnings,
            Status::CouldNotLook => examination.could_not_look,
            Status::Ok => examination.ok,
        };
        let text = match status {
            Status::Problem => count_of(count, "problem"),
            Status::Warning => count_of(count, "warning"),
            Status::CouldNotLook => format!("{count} not looked at"),
            Status::Ok => format!("{count} ok"),
        };
        (count > 0).then(|| style.paint(ink(status), &text))
    });
    format!("{host}: {}", counts.collect::<Vec<_>>().join(", "))
}

fn word(status: Status) -> &'static str {
    match status {
        Status::Problem => "problem",
        Status::Warning => "warning",
        Status::CouldNotLook => "not looked at",
        Status::Ok => "ok",
    }
}

fn ink(status: Status) -> Ink {
    match status {
        Status::Problem => Ink::Bad,
        Status::Warning => Ink::Warning,
        Status::CouldNotLook => Ink::Quiet,
        Status::Ok => Ink::Good,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::samples;

    #[test]
    fn the_worst_first_and_what_to_do() {
        insta::assert_snapshot!(text(&samples::examination(), &Style::PLAIN, samples::now()));
    }

    #[test]
    fn it_fits_a_terminal_and_is_coloured() {
        let style = Style {
            color: true,
            width: Some(80),
        };
        let shown = text(&samples::examination(), &style, samples::now());
        insta::assert_snapshot!(shown.replace('\u{1b}', "ESC"));
    }

    #[test]
    fn nothing_to_do_is_no_list() {
        let mut well = samples::examination();
        well.checks.retain(|check| check.status == Status::Ok);
        let well = Examination::of(String::new(), well.examined_at, well.checks);
        insta::assert_snapshot!(text(&well, &Style::PLAIN, samples::now()));
    }

    #[test]
    fn json_names_are_stable() {
        insta::assert_snapshot!(crate::output::json(&samples::examination()).unwrap());
    }
}
