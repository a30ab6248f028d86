//! What a column holds, and how it gives way when there is little room.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::fit::LONGEST_NAME;

/// The least room in which a sentence can be read, unless a column says
/// otherwise.
const MIN_PROSE: usize = 24;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Set to the right, never shortened.
    Number,
    /// Never shortened: a time, a state.
    Fixed,
    /// Anything of a table that says no more of its columns: broken at spaces
    /// when it is the last, never shortened.
    Text,
    /// One word, shortened when it is very long.
    Name,
    /// Broken at spaces when there is less room than this.
    Prose(usize),
}

/// How dear a column is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Worth {
    /// Given up before the last column goes below the others; the lowest first.
    Cheap(u8),
    /// Given up before names are cut short; the lowest first.
    Dear(u8),
    /// Never given up.
    Kept,
}

/// One column of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    /// May have two lines.
    pub(super) title: &'static str,
    kind: Kind,
    worth: Worth,
}

impl Column {
    const fn of(title: &'static str, kind: Kind) -> Column {
        Column {
            title,
            kind,
            worth: Worth::Kept,
        }
    }

    pub(crate) const fn number(title: &'static str) -> Column {
        Column::of(title, Kind::Number)
    }

    pub(crate) const fn fixed(title: &'static str) -> Column {
        Column::of(title, Kind::Fixed)
    }

    pub(crate) const fn name(title: &'static str) -> Column {
        Column::of(title, Kind::Name)
    }

    /// `least`: columns below which it is no longer readable.
    pub(crate) const fn prose(title: &'static str, least: usize) -> Column {
        Column::of(title, Kind::Prose(least))
    }

    /// Left out early; the lowest `turn` first.
    pub(crate) const fn cheap(mut self, turn: u8) -> Column {
        self.worth = Worth::Cheap(turn);
        self
    }

    /// Left out late; the lowest `turn` first.
    pub(crate) const fn dear(mut self, turn: u8) -> Column {
        self.worth = Worth::Dear(turn);
        self
    }

    pub(super) fn is_number(&self) -> bool {
        self.kind == Kind::Number
    }

    pub(super) fn is_cheap(&self) -> bool {
        matches!(self.worth, Worth::Cheap(_))
    }

    /// Its place in the order of giving up; absent: it stays.
    pub(super) fn turn(&self) -> Option<impl Ord> {
        (self.worth != Worth::Kept).then_some(self.worth)
    }

    /// The least room when it can be broken, as the last column or as prose.
    pub(super) fn least(&self, is_last: bool) -> Option<usize> {
        match self.kind {
            Kind::Prose(least) => Some(least),
            Kind::Text if is_last => Some(MIN_PROSE),
            _ => None,
        }
    }

    /// The text with what is too long cut: a name at `cap`, a word of prose at
    /// [`LONGEST_NAME`].
    pub(super) fn shortened(&self, text: &str, cap: usize) -> String {
        match self.kind {
            Kind::Number | Kind::Fixed | Kind::Text => text.to_owned(),
            Kind::Name => cut(text, cap),
            Kind::Prose(_) => {
                // Names in a sentence are searched for, so that they stay whole
                // where a name in a column would not.
                let words = text.split(' ').map(|word| cut(word, LONGEST_NAME));
                words.collect::<Vec<_>>().join(" ")
            }
        }
    }
}

impl From<&'static str> for Column {
    /// A title that starts with `>` is of numbers, any other of text.
    fn from(title: &'static str) -> Column {
        match title.strip_prefix('>') {
            Some(title) => Column::number(title),
            None => Column::of(title, Kind::Text),
        }
    }
}

/// The text in at most `cap` columns; `…` stands for what is cut.
fn cut(text: &str, cap: usize) -> String {
    if text.width() <= cap {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 1;
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used > cap {
            break;
        }
        out.push(c);
    }
    out.push('…');
    out
}
