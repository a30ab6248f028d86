//! Aligned columns that fit the terminal: what matters least is left out first,
//! and no line is left for the terminal to break in the middle of a word.

mod column;
mod fit;
mod stacked;

use unicode_width::UnicodeWidthStr;

use super::wrap::wrap;
use super::{Ink, Style};
pub(crate) use column::Column;
use fit::{Caps, Fit, Shown, Tail};

/// Space between columns.
const GAP: &str = "  ";

/// Indent of a last column that stands below the others.
const BELOW_INDENT: usize = 4;

/// Indent of all lines of a row but the first, where nothing stands in columns.
const STACKED_INDENT: usize = 2;

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

/// Columns with titles. A column that is empty in every row is left out. Without
/// any title there is no line of titles.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
    indent: &'static str,
}

impl Table {
    pub(crate) fn new<C: Into<Column> + Copy>(columns: &[C]) -> Table {
        Table {
            columns: columns.iter().map(|column| (*column).into()).collect(),
            rows: Vec::new(),
            indent: "",
        }
    }

    pub(crate) fn indented(mut self, indent: &'static str) -> Table {
        self.indent = indent;
        self
    }

    /// Adds a row; it has a cell for every column.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let row: Vec<Cell> = cells.into_iter().collect();
        debug_assert_eq!(row.len(), self.columns.len(), "a cell for every column");
        self.rows.push(row);
    }

    /// The table as lines, each ended.
    pub(crate) fn to_text(&self, style: &Style) -> String {
        let Some(fit) = fit::fit(self, style.width) else {
            return String::new();
        };
        let mut out = String::new();
        let has_titles = self.columns.iter().any(|column| !column.title.is_empty());
        if has_titles && fit.tail != Tail::Stacked {
            out.push_str(&self.heading(&fit, style));
        }
        for row in &self.rows {
            match fit.tail {
                Tail::Stacked => out.push_str(&self.stacked(row, &fit, style)),
                Tail::Beside | Tail::Below => out.push_str(&self.line(row, &fit, style)),
            }
            for column in &fit.folded {
                out.push_str(&self.folded(row, *column, style));
            }
        }
        let left_out: Vec<String> = fit.left_out.iter().map(|c| self.title_text(*c)).collect();
        if left_out.iter().any(|title| !title.is_empty()) {
            let note = format!(
                "Left out, for the terminal is narrow: {}; -o json has all.",
                left_out.join(", ")
            );
            for line in wrap(&note, self.indent, style.prose_columns()).lines() {
                out.push_str(&style.paint(Ink::Quiet, line));
                out.push('\n');
            }
        }
        out
    }

    /// A title of two lines as one.
    fn title_text(&self, column: usize) -> String {
        self.columns[column].title.replace('\n', " ")
    }

    /// The titles; short ones stand on the lowest line.
    fn heading(&self, fit: &Fit, style: &Style) -> String {
        let titles = fit.before.iter().chain([&fit.last]);
        let height = titles
            .map(|shown| self.columns[shown.column].title.lines().count())
            .max()
            .unwrap_or(0);
        let row: Vec<Cell> = self
            .columns
            .iter()
            .map(|column| {
                let missing = height.saturating_sub(column.title.lines().count());
                Cell::inked(Ink::Quiet, "\n".repeat(missing) + column.title)
            })
            .collect();
        self.line(&row, fit, style)
    }

    /// One row; several lines where a cell is broken.
    fn line(&self, row: &[Cell], fit: &Fit, style: &Style) -> String {
        let beside = matches!(fit.tail, Tail::Beside).then_some(&fit.last);
        let shown: Vec<&Shown> = fit.before.iter().chain(beside).collect();
        let cells: Vec<Vec<String>> = shown
            .iter()
            .map(|shown| self.lines_of(&row[shown.column], shown))
            .collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(0);
        let mut out = String::new();
        for index in 0..height {
            let mut line = String::from(self.indent);
            for (position, shown) in shown.iter().enumerate() {
                if position > 0 {
                    line.push_str(GAP);
                }
                let text = cells[position].get(index).map_or("", String::as_str);
                line.push_str(&self.padded(shown, text, row[shown.column].ink, style));
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        if fit.tail == Tail::Below {
            out.push_str(&self.below(row, &fit.last, style));
        }
        out
    }

    /// The last column on lines of its own.
    fn below(&self, row: &[Cell], shown: &Shown, style: &Style) -> String {
        let cell = &row[shown.column];
        let text = cell.text.replace('\n', " ");
        self.own_lines(
            &self.columns[shown.column].shortened(&text, shown.caps),
            cell,
            style,
        )
    }

    /// A column that gave way, with its title, which the heading does not have.
    fn folded(&self, row: &[Cell], column: usize, style: &Style) -> String {
        match row[column].text.trim() {
            "" => String::new(),
            text => {
                let room = fit::below(self, style.width.unwrap_or(usize::MAX));
                let text = self.columns[column].shortened(text, Caps::WHOLE.on_lines_of(room));
                let titled = format!("{}: {text}", self.title_text(column));
                self.own_lines(&titled, &row[column], style)
            }
        }
    }

    /// Text below a row, under its indent.
    fn own_lines(&self, text: &str, cell: &Cell, style: &Style) -> String {
        let mut out = String::new();
        if text.trim().is_empty() {
            return out;
        }
        let indent = " ".repeat(self.indent.width() + BELOW_INDENT);
        let columns = style.width.unwrap_or(usize::MAX);
        for line in wrap(text, &indent, columns).lines() {
            out.push_str(&indent);
            out.push_str(&painted(line.trim(), cell.ink, style));
            out.push('\n');
        }
        out
    }

    /// A cell in the room that its column has.
    fn lines_of(&self, cell: &Cell, shown: &Shown) -> Vec<String> {
        let kept = |line: &str| self.columns[shown.column].shortened(line, shown.caps);
        if shown.wraps && cell.text.width() > shown.width {
            let text = kept(&cell.text);
            return wrap(&text, "", shown.width)
                .lines()
                .map(str::to_owned)
                .collect();
        }
        cell.text.split('\n').map(kept).collect()
    }

    fn padded(&self, shown: &Shown, text: &str, ink: Option<Ink>, style: &Style) -> String {
        let pad = " ".repeat(shown.width.saturating_sub(text.width()));
        let text = painted(text, ink, style);
        if self.columns[shown.column].is_number() {
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
mod tests;
