//! `rdmesh wire watch`: a line for each window, or a board that is redrawn in place.

use std::collections::BTreeMap;

use rdmesh_client::Moment;
use rdmesh_client::model::wire::SeenWindow;
use unicode_width::UnicodeWidthChar;

use super::printable::printable;
use super::table::{Cell, Column, Table};
use super::wires::{bits_per_second, rate_text, short_time, validity};
use super::wrap::wrap;
use super::{Ink, Style};

/// Cells of the bar that shows how much of the rate is used.
const BAR_CELLS: u64 = 10;

const COLUMNS: [Column; 10] = [
    Column::name("SHAPER"),
    Column::name("WIRE"),
    Column::number("RATE"),
    Column::number("SENT"),
    // It shows what RATE and SENT say.
    Column::fixed("USED").cheap(0),
    Column::number("QUEUE\nP99").dear(3),
    Column::number("WAIT\nP99").dear(2),
    Column::number("CE\nMARKS").cheap(1),
    Column::fixed("AGE").dear(1),
    Column::fixed("WINDOW"),
];

/// The latest window of each wire, drawn over the last drawing.
#[derive(Debug, Default)]
pub(crate) struct Board {
    latest: BTreeMap<(String, String), SeenWindow>,
    drawn_lines: usize,
    /// What stands below the wires until the next window.
    note: Option<String>,
}

impl Board {
    /// Takes a window in and draws.
    pub(crate) fn draw(&mut self, seen: SeenWindow, style: &Style, now: Moment) -> String {
        let shaper = seen.shaper_host.clone().unwrap_or_default();
        self.latest.insert((shaper, seen.window.wire.clone()), seen);
        self.note = None;
        self.redraw(style, now)
    }

    /// Says something below the wires, from the next drawing to the next window.
    pub(crate) fn note(&mut self, text: &str) {
        self.note = Some(text.to_owned());
    }

    /// Draws: back up over the old lines, then each line anew.
    pub(crate) fn redraw(&mut self, style: &Style, now: Moment) -> String {
        let mut table = Table::new(&COLUMNS);
        for seen in self.latest.values() {
            table.row(row(seen, now));
        }
        let mut text = table.to_text(style);
        if let Some(note) = &self.note {
            let lines = wrap(&printable(note), "", style.width.unwrap_or(usize::MAX));
            let painted = lines
                .lines()
                .map(|line| style.paint(Ink::Warning, line) + "\n");
            text.extend(painted);
        }
        let mut out = match self.drawn_lines {
            0 => String::new(),
            lines => format!("\u{1b}[{lines}A\r"),
        };
        self.drawn_lines = 0;
        for line in text.lines() {
            out.push_str(&fitted(line, style.width));
            // What was longer before does not stay.
            out.push_str("\u{1b}[K\n");
            self.drawn_lines += 1;
        }
        // A board that became shorter leaves nothing below it.
        out.push_str("\u{1b}[J");
        out
    }
}

/// The line without what the terminal would break; escape sequences take no room.
fn fitted(line: &str, width: Option<usize>) -> String {
    let Some(width) = width else {
        return line.to_owned();
    };
    let (mut used, mut in_escape, mut cut) = (0, false, false);
    let mut out = String::new();
    for c in line.chars() {
        let is_escape = in_escape || c == '\u{1b}';
        if is_escape {
            in_escape = !c.is_ascii_alphabetic();
            out.push(c);
            continue;
        }
        used += c.width().unwrap_or(0);
        cut |= used > width;
        if !cut {
            out.push(c);
        }
    }
    out
}

fn row(seen: &SeenWindow, now: Moment) -> [Cell; 10] {
    let window = &seen.window;
    let shaper = seen.shaper_host.as_deref().map(printable);
    let rate = if window.bypass {
        Cell::inked(Ink::Warning, "bypass")
    } else {
        rate_text(window.rate_bps).into()
    };
    [
        shaper.unwrap_or_default().into(),
        printable(&window.wire).into(),
        rate,
        window
            .sent_bps
            .map(bits_per_second)
            .unwrap_or_default()
            .into(),
        bar(window.sent_bps, window.rate_bps).into(),
        window.queue_frames_p99.to_string().into(),
        short_time(window.waited_ns_p99).into(),
        window.ce_marks.to_string().into(),
        window
            .to
            .map(|to| format!("{} s", to.seconds_until(now).max(0)))
            .unwrap_or_default()
            .into(),
        validity(window),
    ]
}

/// How much of the rate is used; nothing where there is no rate.
fn bar(sent_bps: Option<u64>, rate_bps: u64) -> String {
    let (Some(sent), true) = (sent_bps, rate_bps > 0) else {
        return String::new();
    };
    let tenths = u128::from(sent) * u128::from(BAR_CELLS) / u128::from(rate_bps);
    let full = usize::try_from(tenths.min(u128::from(BAR_CELLS))).unwrap_or(0);
    let empty = usize::try_from(BAR_CELLS).unwrap_or(0) - full;
    format!("{}{}", "#".repeat(full), ".".repeat(empty))
}

/// A window as one line of its own.
pub(crate) fn line(seen: &SeenWindow, style: &Style) -> String {
    let window = &seen.window;
    let name = match &seen.shaper_host {
        Some(host) => format!("{}/{}", printable(host), printable(&window.wire)),
        None => printable(&window.wire),
    };
    let rate = if window.bypass {
        "bypass".to_owned()
    } else {
        rate_text(window.rate_bps)
    };
    let valid = if window.invalid.is_empty() {
        "valid".to_owned()
    } else {
        let causes: Vec<&str> = window.invalid.iter().map(|cause| cause.name()).collect();
        style.paint(Ink::Bad, &format!("invalid: {}", causes.join(",")))
    };
    let marks: Vec<String> = seen.marks.iter().map(|mark| printable(mark)).collect();
    let marks = if marks.is_empty() {
        String::new()
    } else {
        format!("  ({})", marks.join("; "))
    };
    format!(
        "{} {name} rate {rate} sent {} queue p99 {} wait p99 {} {valid}{marks}\n",
        window.to.map(Moment::to_millis_text).unwrap_or_default(),
        window
            .sent_bps
            .map_or_else(|| "-".to_owned(), bits_per_second),
        window.queue_frames_p99,
        short_time(window.waited_ns_p99),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::samples;
    use crate::render::samples::wires as sample;

    #[test]
    fn into_a_pipe_each_window_is_a_line() {
        let lines: String = sample::windows()
            .iter()
            .map(|seen| line(seen, &Style::PLAIN))
            .collect();
        insta::assert_snapshot!(lines);
    }

    #[test]
    fn in_a_terminal_each_wire_has_one_line_that_is_redrawn() {
        let style = Style {
            color: false,
            width: Some(80),
        };
        let mut board = Board::default();
        let drawn: Vec<String> = sample::windows()
            .into_iter()
            .map(|seen| board.draw(seen, &style, samples::now()))
            .collect();
        assert!(!drawn[0].contains("A\r"), "nothing to go back over");
        insta::assert_snapshot!(drawn.join("---\n").replace('\u{1b}', "ESC"));
    }

    #[test]
    fn eighty_columns_tell_wires_of_two_shapers_apart() {
        let style = Style {
            color: false,
            width: Some(80),
        };
        let mut board = Board::default();
        let drawn = sample::windows()
            .into_iter()
            .map(|seen| board.draw(seen, &style, samples::now()))
            .last()
            .unwrap();
        for part in ["SHAPER", "gpu-01  w0", "gpu-02  w0", "retransmits", "AGE"] {
            assert!(drawn.contains(part), "no {part} in {drawn}");
        }
        assert!(drawn.contains("narrow: USED"), "{drawn}");
    }

    #[test]
    fn a_note_stands_below_the_wires_until_the_next_window() {
        let style = Style {
            color: false,
            width: Some(40),
        };
        let mut board = Board::default();
        board.note("no collector answers; asking again until it is back");
        let alone = board.redraw(&style, samples::now());
        assert_eq!(alone.matches("\u{1b}[K\n").count(), 2, "{alone:?}");
        let first = sample::windows().remove(0);
        let drawn = board.draw(first.clone(), &style, samples::now());
        assert!(drawn.starts_with("\u{1b}[2A\r"), "{drawn:?}");
        assert!(!drawn.contains("no collector"), "{drawn}");
        board.note("no collector answers");
        let away = board.redraw(&style, samples::now());
        assert!(away.contains("w0") && away.contains("no collector answers"));
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        assert_eq!(fitted("abcdef", Some(4)), "abcd");
        assert_eq!(
            fitted("\u{1b}[1mabcdef\u{1b}[0m", Some(2)),
            "\u{1b}[1mab\u{1b}[0m"
        );
        assert_eq!(fitted("abc", None), "abc");
    }

    #[test]
    fn the_bar_is_never_longer_than_its_cells() {
        assert_eq!(bar(Some(5), 10), "#####.....");
        assert_eq!(bar(Some(u64::MAX), 1), "##########");
        assert_eq!(
            (bar(None, 10), bar(Some(1), 0)),
            (String::new(), String::new())
        );
    }
}
