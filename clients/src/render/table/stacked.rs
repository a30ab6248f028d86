//! A row on a terminal that is too narrow for columns: each cell follows its title,
//! as many on a line as it holds.

use unicode_width::UnicodeWidthStr;

use super::fit::{Fit, Shown};
use super::{Cell, GAP, Ink, STACKED_INDENT, Style, Table, painted};

/// Text that is not broken.
struct Word {
    text: String,
    ink: Option<Ink>,
    /// Space before it, unless it begins a line.
    gap: usize,
}

impl Table {
    /// One row, its other lines indented.
    pub(super) fn stacked(&self, row: &[Cell], fit: &Fit, style: &Style) -> String {
        let is_prose = self.columns[fit.last.column].least(true).is_some();
        let in_line = fit.before.iter().chain((!is_prose).then_some(&fit.last));
        let room = fit.last.width + STACKED_INDENT;
        let mut out = String::from(self.indent);
        let mut used = 0;
        for shown in in_line {
            let words = self.words(&row[shown.column], shown);
            // A title stays with its text where a line has room for both.
            let whole: usize = words.iter().map(|word| word.gap + word.text.width()).sum();
            let mut begin = used > 0 && used + whole > room;
            for word in words {
                let (gap, width) = (word.gap, word.text.width());
                if begin || (used > STACKED_INDENT && used + gap + width > room) {
                    out.push('\n');
                    out.push_str(self.indent);
                    out.push_str(&" ".repeat(STACKED_INDENT));
                    used = STACKED_INDENT;
                } else if used > 0 {
                    out.push_str(&" ".repeat(gap));
                    used += gap;
                }
                begin = false;
                out.push_str(&painted(&word.text, word.ink, style));
                used += width;
            }
        }
        out.push('\n');
        if is_prose {
            out.push_str(&self.below(row, &fit.last, style));
        }
        out
    }

    /// The title and the text, which is broken only when no line can hold it.
    fn words(&self, cell: &Cell, shown: &Shown) -> Vec<Word> {
        let text = self.columns[shown.column].shortened(cell.text.trim(), shown.caps);
        if text.is_empty() {
            return Vec::new();
        }
        let title = Some(self.title_text(shown.column)).filter(|title| !title.is_empty());
        let parts: Vec<&str> = match text.width() > shown.width {
            true => text.split_whitespace().collect(),
            false => vec![text.as_str()],
        };
        let titles = title.into_iter().map(|title| (title, Some(Ink::Quiet)));
        let texts = parts.into_iter().map(|part| (part.to_owned(), cell.ink));
        let words = titles.chain(texts).enumerate();
        words
            .map(|(index, (text, ink))| Word {
                text,
                ink,
                gap: if index == 0 { GAP.width() } else { 1 },
            })
            .collect()
    }
}
