//! Aligned columns.

use unicode_width::UnicodeWidthStr;

use super::wrap::wrap;
use super::{Ink, Style};

/// Space between columns.
const GAP: &str = "  ";

/// The last column is broken into lines beside the others when it has that much
/// room; with less it stands on lines of its own below them.
const MIN_WRAPPED_COLUMNS: usize = 24;

/// Indent of a last column that stands below.
const BELOW_INDENT: usize = 4;

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

/// Where everything stands.
struct Layout {
    /// Columns before the last, with their widths.
    before: Vec<(usize, usize)>,
    /// The last column and its width.
    last: (usize, usize),
    /// Where the last column begins.
    start: usize,
    tail: Tail,
}

/// How the last column fits.
enum Tail {
    Beside,
    Wrapped,
    Below,
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
        let Some(layout) = self.layout(style) else {
            return String::new();
        };
        let heading = |title: &&str| Cell::inked(Ink::Quiet, title.trim_start_matches('>'));
        let headings: Vec<Cell> = self.titles.iter().map(heading).collect();
        let titled = self.titles.iter().any(|title| !title.is_empty());
        let rows = titled.then_some(&headings).into_iter().chain(&self.rows);
        rows.map(|row| self.line(row, &layout, style)).collect()
    }

    /// Absent when no cell holds anything.
    fn layout(&self, style: &Style) -> Option<Layout> {
        let filled = |column: &usize| self.rows.iter().any(|row| !row[*column].is_empty());
        let shown: Vec<usize> = (0..self.titles.len()).filter(filled).collect();
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].text.width());
            let title = self.titles[column].trim_start_matches('>').width();
            cells.chain([title]).max().unwrap_or(0)
        };
        let (last, before) = shown.split_last()?;
        let before: Vec<(usize, usize)> = before.iter().map(|c| (*c, width(*c))).collect();
        let taken: usize = before.iter().map(|(_, width)| width + GAP.width()).sum();
        let start = self.indent.width() + taken;
        let room = style.width.map(|columns| columns.saturating_sub(start));
        let tail = match room {
            Some(room) if room < width(*last) && !self.is_number(*last) => {
                if room >= MIN_WRAPPED_COLUMNS {
                    Tail::Wrapped
                } else {
                    Tail::Below
                }
            }
            _ => Tail::Beside,
        };
        let last_width = if self.is_number(*last) {
            width(*last)
        } else {
            0
        };
        Some(Layout {
            before,
            last: (*last, last_width),
            start,
            tail,
        })
    }

    fn line(&self, row: &[Cell], layout: &Layout, style: &Style) -> String {
        let mut line = String::from(self.indent);
        for (column, width) in &layout.before {
            line.push_str(&self.padded(*column, &row[*column], *width, style));
            line.push_str(GAP);
        }
        let (last, last_width) = layout.last;
        let columns = style.width.unwrap_or(usize::MAX);
        let broken = |indent: usize| {
            let lines = wrap(&row[last].text, &" ".repeat(indent), columns);
            painted(lines.trim(), row[last].ink, style)
        };
        match layout.tail {
            Tail::Beside => line.push_str(&self.padded(last, &row[last], last_width, style)),
            Tail::Wrapped => line.push_str(&broken(layout.start)),
            Tail::Below if row[last].is_empty() => {}
            Tail::Below => {
                let indent = self.indent.width() + BELOW_INDENT;
                line.truncate(line.trim_end().len());
                line.push('\n');
                line.push_str(&" ".repeat(indent));
                line.push_str(&broken(indent));
            }
        }
        line.truncate(line.trim_end().len());
        line.push('\n');
        line
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
    fn the_last_column_goes_below_when_there_is_no_room() {
        let style = Style {
            color: false,
            width: Some(30),
        };
        let expected = "HOST       N\n\
                        \u{20}   WHY\n\
                        gpu-01     7\n\
                        \u{20}   silent for 12 minutes now\n\
                        日本    1234\n";
        assert_eq!(sample().to_text(&style), expected);
    }

    #[test]
    fn a_table_without_rows_is_nothing() {
        assert_eq!(Table::new(&["A"]).to_text(&Style::PLAIN), "");
    }
}
