//! Aligned columns.

use unicode_width::UnicodeWidthStr;

use super::wrap::wrap;
use super::{Ink, Style};

/// Space between columns.
const GAP: &str = "  ";

/// The last column is broken into lines only when it has that much room; in
/// less it runs on, as the terminal breaks it.
const MIN_WRAPPED_COLUMNS: usize = 24;

/// One cell. Its text must be printable.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cell {
    text: String,
    ink: Option<Ink>,
}

impl Cell {
    pub(crate) fn inked(ink: Ink, text: impl Into<String>) -> Cell {
        Cell {
            text: text.into(),
            ink: Some(ink),
        }
    }

    fn is_empty(&self) -> bool {
        self.text.is_empty()
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Cell {
        Cell {
            text: text.into(),
            ink: None,
        }
    }
}

/// Columns with titles. A title that starts with `>` is of a column of numbers,
/// set to the right. A column that is empty in every row is left out. Without
/// any title there is no line of titles.
#[derive(Debug)]
pub(crate) struct Table {
    titles: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
    indent: &'static str,
}

impl Table {
    pub(crate) fn new(titles: &[&'static str]) -> Table {
        Table {
            titles: titles.to_vec(),
            rows: Vec::new(),
            indent: "",
        }
    }

    pub(crate) fn indented(mut self, indent: &'static str) -> Table {
        self.indent = indent;
        self
    }

    /// Adds a row; it has a cell for every title.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let row: Vec<Cell> = cells.into_iter().collect();
        debug_assert_eq!(row.len(), self.titles.len(), "a cell for every title");
        self.rows.push(row);
    }

    /// The table as lines, each ended.
    pub(crate) fn to_text(&self, style: &Style) -> String {
        let shown: Vec<usize> = (0..self.titles.len())
            .filter(|i| {
                self.rows
                    .iter()
                    .any(|row| row.get(*i).is_some_and(|c| !c.is_empty()))
            })
            .collect();
        let Some((last, before)) = shown.split_last() else {
            return String::new();
        };
        let title = |i: usize| self.titles[i].trim_start_matches('>');
        let width = |i: usize| {
            let cells = self.rows.iter().map(|row| row[i].text.width());
            cells.chain([title(i).width()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = before.iter().map(|i| width(*i)).collect();
        let last_width = if self.is_number(*last) {
            width(*last)
        } else {
            0
        };
        let start = self.indent.width()
            + widths
                .iter()
                .map(|width| width + GAP.width())
                .sum::<usize>();

        let mut out = String::new();
        let heading = |i: usize| Cell::inked(Ink::Quiet, title(i));
        let headings: Vec<Cell> = (0..self.titles.len()).map(heading).collect();
        let titled = self.titles.iter().any(|title| !title.is_empty());
        for row in titled.then_some(&headings).into_iter().chain(&self.rows) {
            let mut line = String::from(self.indent);
            for (i, width) in before.iter().zip(&widths) {
                line.push_str(&self.padded(*i, &row[*i], *width, style));
                line.push_str(GAP);
            }
            let tail = self.padded(*last, &row[*last], last_width, style);
            let room = style
                .width
                .map_or(0, |columns| columns.saturating_sub(start));
            if room >= MIN_WRAPPED_COLUMNS && row[*last].text.width() > room {
                let wrapped = wrap(&row[*last].text, &" ".repeat(start), start + room);
                line.push_str(&painted(wrapped.trim(), row[*last].ink, style));
            } else {
                line.push_str(&tail);
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }

    fn is_number(&self, column: usize) -> bool {
        self.titles[column].starts_with('>')
    }

    fn padded(&self, column: usize, cell: &Cell, width: usize, style: &Style) -> String {
        let pad = " ".repeat(width.saturating_sub(cell.text.width()));
        let text = painted(&cell.text, cell.ink, style);
        if self.is_number(column) {
            pad + &text
        } else {
            text + &pad
        }
    }
}

fn painted(text: &str, ink: Option<Ink>, style: &Style) -> String {
    ink.map_or_else(|| text.to_owned(), |ink| style.paint(ink, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Table {
        let mut table = Table::new(&["HOST", "EMPTY", ">N", "WHY"]);
        table.row([
            "gpu-01".into(),
            "".into(),
            "7".into(),
            "silent for 12 minutes now".into(),
        ]);
        table.row(["日本".into(), "".into(), "1234".into(), "".into()]);
        table
    }

    #[test]
    fn columns_align_and_empty_ones_go() {
        let expected = "HOST       N  WHY\n\
                        gpu-01     7  silent for 12 minutes now\n\
                        日本    1234\n";
        assert_eq!(sample().to_text(&Style::PLAIN), expected);
    }

    #[test]
    fn the_last_column_wraps_on_a_terminal() {
        let style = Style {
            color: false,
            width: Some(38),
        };
        let expected = "HOST       N  WHY\n\
                        gpu-01     7  silent for 12 minutes\n\
                        \u{20}             now\n\
                        日本    1234\n";
        assert_eq!(sample().to_text(&style), expected);
    }

    #[test]
    fn a_table_without_rows_is_nothing() {
        assert_eq!(Table::new(&["A"]).to_text(&Style::PLAIN), "");
    }
}
