//! What a column holds, and how it gives way when there is little room.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::fit::{Caps, LONGEST_NAME};

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
    /// A function of the kernel: shortened late and in its middle, for both ends
    /// tell it from others.
    Function,
    /// `JOB/REQUEUE`: shortened in the middle of the job, for what follows the
    /// slash says which attempt it is.
    Attempt,
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
    folds: bool,
}

impl Column {
    const fn of(title: &'static str, kind: Kind) -> Column {
        Column {
            title,
            kind,
            worth: Worth::Kept,
            folds: false,
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

    pub(crate) const fn function(title: &'static str) -> Column {
        Column::of(title, Kind::Function)
    }

    pub(crate) const fn attempt(title: &'static str) -> Column {
        Column::of(title, Kind::Attempt)
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

    /// When it is left out, its text stands below the row instead.
    pub(crate) const fn folding(mut self) -> Column {
        self.folds = true;
        self
    }

    pub(super) fn folds(&self) -> bool {
        self.folds
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

    /// The text with what is too long cut: a name as `caps` has it, a word of
    /// prose at [`LONGEST_NAME`] or, with both its ends kept, where its line ends.
    pub(super) fn shortened(&self, text: &str, caps: Caps) -> String {
        match self.kind {
            Kind::Number | Kind::Fixed => text.to_owned(),
            Kind::Text => by_words(text, |word| cut_middle(word, caps.word)),
            Kind::Name => cut(text, caps.name),
            Kind::Function => cut_middle(text, caps.function),
            Kind::Attempt => cut_attempt(text, caps.name),
            Kind::Prose(_) => {
                // Names in a sentence are searched for, so that they stay whole
                // where a name in a column would not.
                by_words(text, |word| match caps.word < LONGEST_NAME {
                    true => cut_middle(word, caps.word),
                    false => cut(word, LONGEST_NAME),
                })
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

/// The text with each word as `shown` has it.
fn by_words(text: &str, shown: impl Fn(&str) -> String) -> String {
    let words: Vec<String> = text.split(' ').map(shown).collect();
    words.join(" ")
}

/// The text in at most `cap` columns; `…` stands for what is cut.
fn cut(text: &str, cap: usize) -> String {
    if text.width() <= cap {
        return text.to_owned();
    }
    fitting(text.chars(), cap.saturating_sub(1)) + "…"
}

/// The same with both ends kept.
fn cut_middle(text: &str, cap: usize) -> String {
    if text.width() <= cap {
        return text.to_owned();
    }
    let kept = cap.saturating_sub(1);
    let end: String = fitting(text.chars().rev(), kept / 2);
    let end: String = end.chars().rev().collect();
    fitting(text.chars(), kept - kept / 2) + "…" + &end
}

/// `JOB/REQUEUE` with the job cut in its middle; a requeue without any room for
/// its job is cut like any other text.
fn cut_attempt(text: &str, cap: usize) -> String {
    /// One of the job's characters on each side of the `…`.
    const LEAST_JOB: usize = 3;
    let slash = text.rfind('/').unwrap_or(text.len());
    let (job, attempt) = text.split_at(slash);
    match cap.checked_sub(attempt.width()) {
        Some(room) if room >= LEAST_JOB => cut_middle(job, room) + attempt,
        _ => cut_middle(text, cap),
    }
}

/// As many of the characters as fit into `columns`.
fn fitting(chars: impl Iterator<Item = char>, columns: usize) -> String {
    let mut used = 0;
    chars
        .take_while(|c| {
            used += c.width().unwrap_or(0);
            used <= columns
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_kind_is_cut_where_it_hurts_least() {
        assert_eq!(cut("gpu-09.site.example", 12), "gpu-09.site…");
        let function = "ib_uverbs_handler_UVERBS_METHOD_CQ_CREATE";
        assert_eq!(cut_middle(function, 28), "ib_uverbs_hand…HOD_CQ_CREATE");
        assert_eq!(cut_attempt("4711/0", 12), "4711/0");
        let job = "train-llama-70b-x7k2q/12.3";
        assert_eq!(cut_attempt(job, 14), "trai…7k2q/12.3");
        assert_eq!(cut_attempt("job/4294967295.4294967295", 12), "job/42…67295");
        assert_eq!(cut_attempt("日本日本日本/1", 8), "日…本/1");
    }

    proptest! {
        #[test]
        fn what_is_cut_fits(text in "[a-z日/…]{0,80}", cap in 12_usize..70) {
            for cut in [cut(&text, cap), cut_middle(&text, cap), cut_attempt(&text, cap)] {
                prop_assert!(cut.width() <= cap, "{cut}");
                prop_assert!(text.width() > cap || cut == text);
            }
        }
    }
}
