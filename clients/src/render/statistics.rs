//! `rdmesh misattribution|coverage|silent|lost-hours`.

use rdmesh_client::Moment;
use rdmesh_client::model::statistics::{Coverage, LostHours, Misattribution, Share, Silent};

use super::printable::printable;
use super::table::{Cell, Column, Table};
use super::wrap::wrap;
use super::{Ink, Style, note};

/// Attempts, hours and both shares: the last columns of every table.
const SHARE_COLUMNS: [Column; 5] = [
    Column::number("ATTEMPTS"),
    Column::number("OF THEM"),
    Column::number("GPU HOURS"),
    Column::number("OF THEM"),
    Column::number("NOT MEASURED").cheap(0),
];

pub(crate) fn misattribution(answer: &Misattribution, style: &Style, _now: Moment) -> String {
    let headline = match answer.with_log.attempts {
        0 => "No attempt for which the kernel shows the failing call has a log.".to_owned(),
        all => format!(
            "{} of {all} attempts for which the kernel shows the failing call are filed under the \
             network by their own logs, wrongly: {} of them, {} of their GPU hours.",
            answer.misattributed.attempts,
            percent(answer.misattributed.of_attempts),
            percent(answer.misattributed.of_gpu_hours)
        ),
    };
    let rows = answer.rows.iter().map(|row| {
        let filed = row.filed_as.map_or("(no log)", |class| class.name());
        let judged = match (row.misattributed, row.filed_as) {
            (true, _) => Cell::inked(Ink::Bad, "wrongly"),
            _ => Cell::default(),
        };
        (vec![Cell::from(filed), judged], row.share)
    });
    let columns = [Column::fixed("FILED AS"), Column::fixed("")];
    page(&headline, &columns, rows, answer.undiagnosed, style)
}

pub(crate) fn coverage(answer: &Coverage, style: &Style, _now: Moment) -> String {
    let headline = match answer.counted.attempts {
        0 => "No log tells a failing call that is counted.".to_owned(),
        all => format!(
            "Probes cover {} of {all} failing calls that logs tell: {} of them, {} of their GPU \
             hours.",
            answer.covered.attempts,
            percent(answer.covered.of_attempts),
            percent(answer.covered.of_gpu_hours)
        ),
    };
    let rows = answer.rows.iter().map(|row| {
        let what = match row.excluded {
            true => Cell::inked(Ink::Quiet, "left out on purpose"),
            false => Cell::default(),
        };
        (vec![Cell::from(row.coverage.name()), what], row.share)
    });
    let columns = [Column::fixed("COVERAGE"), Column::fixed("")];
    page(&headline, &columns, rows, answer.undiagnosed, style)
}

pub(crate) fn silent(answer: &Silent, style: &Style, _now: Moment) -> String {
    let headline = match answer.counted.attempts {
        0 => "The kernel shows a failing call for no attempt.".to_owned(),
        all => format!(
            "{} of {all} attempts for which the kernel shows the failing call have no other signal: \
             {} of them, {} of their GPU hours.",
            answer.silent.attempts,
            percent(answer.silent.of_attempts),
            percent(answer.silent.of_gpu_hours)
        ),
    };
    let rows = answer.rows.iter().map(|row| {
        let what = match row.silent {
            true => "nothing else was seen",
            false => "other signals were seen",
        };
        (vec![Cell::from(what)], row.share)
    });
    page(
        &headline,
        &[Column::fixed("")],
        rows,
        answer.undiagnosed,
        style,
    )
}

pub(crate) fn lost_hours(answer: &LostHours, style: &Style, _now: Moment) -> String {
    let headline = match answer.counted.attempts {
        0 => "No attempt ended badly.".to_owned(),
        all => format!(
            "{} GPU hours were lost with {all} attempts; {} of them with failing calls that probes \
             show or could show.",
            hours(answer.counted.gpu_hours),
            percent(answer.covered.of_gpu_hours)
        ),
    };
    let rows = answer.rows.iter().map(|row| {
        let coverage = match (row.coverage, row.excluded) {
            (_, true) => Cell::inked(Ink::Quiet, "left out on purpose"),
            (Some(coverage), false) => coverage.name().into(),
            (None, false) => Cell::default(),
        };
        let cells = vec![
            printable(&row.class).into(),
            row.told_by.name().into(),
            coverage,
        ];
        (cells, row.share)
    });
    let columns = [
        Column::fixed("CLASS"),
        Column::fixed("TOLD BY"),
        Column::fixed("COVERAGE").cheap(1),
    ];
    page(&headline, &columns, rows, answer.undiagnosed, style)
}

/// The sentence, the table, and what is missing from both.
fn page(
    headline: &str,
    columns: &[Column],
    rows: impl Iterator<Item = (Vec<Cell>, Share)>,
    undiagnosed: u64,
    style: &Style,
) -> String {
    let mut out = wrap(headline, "", style.prose_columns());
    let columns: Vec<Column> = columns.iter().chain(&SHARE_COLUMNS).copied().collect();
    let mut table = Table::new(&columns);
    let mut any = false;
    for (cells, share) in rows {
        table.row(cells.into_iter().chain(share_cells(share)));
        any = true;
    }
    if any {
        out.push('\n');
        out.push_str(&table.to_text(style));
    }
    if undiagnosed > 0 {
        let missing = format!(
            "Not in it: {undiagnosed} attempts without a verdict; rdmesh diagnose gives them one."
        );
        out.push_str(&note(&missing, style));
    }
    out
}

fn share_cells(share: Share) -> [Cell; 5] {
    let unmeasured = match share.unmeasured {
        0 => Cell::default(),
        some => Cell::inked(Ink::Warning, some.to_string()),
    };
    [
        share.attempts.to_string().into(),
        percent(share.of_attempts).into(),
        hours(share.gpu_hours).into(),
        percent(share.of_gpu_hours).into(),
        unmeasured,
    ]
}

pub(super) fn hours(hours: f64) -> String {
    format!("{hours:.1}")
}

pub(super) fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::samples::statistics as samples;

    fn shown<T>(answer: &T, of: fn(&T, &Style, Moment) -> String) -> String {
        of(answer, &Style::PLAIN, crate::render::samples::now())
    }

    #[test]
    fn each_answer_begins_with_its_share() {
        let all = [
            shown(&samples::misattribution(), misattribution),
            shown(&samples::coverage(), coverage),
            shown(&samples::silent(), silent),
            shown(&samples::lost_hours(), lost_hours),
        ];
        let shown = all.map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
        for (text, part) in shown.iter().zip([
            "25.0 % of them, 40.0 % of their GPU hours.",
            "Probes cover 90 of 100 failing calls that logs tell: 90.0 % of them",
            "have no other signal: 96.0 % of them",
            "1000.0 GPU hours were lost with 100 attempts; 90.0 % of them",
        ]) {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
        assert!(
            shown[0].contains("3 attempts without a verdict"),
            "{}",
            shown[0]
        );
    }

    #[test]
    fn of_nothing_there_is_no_share() {
        let nothing = rdmesh_proto::collector::v1::GetCoverageResponse::default();
        let all = [
            shown(&Coverage::from(nothing), coverage),
            shown(
                &Silent::from(rdmesh_proto::collector::v1::GetSilentFailuresResponse::default()),
                silent,
            ),
        ];
        assert_eq!(
            all,
            [
                "No log tells a failing call that is counted.\n",
                "The kernel shows a failing call for no attempt.\n"
            ]
        );
    }

    #[test]
    fn json_names_are_stable() {
        let json = crate::output::json(&samples::lost_hours()).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["rows"][0]["class"], "driver");
        assert_eq!(json["rows"][0]["told_by"], "kernel");
        assert_eq!(json["rows"][0]["gpu_hours"], 900.0);
        assert_eq!(json["covered"]["of_gpu_hours"], 0.9);
        assert_eq!(json["undiagnosed"], 0);
    }
}
