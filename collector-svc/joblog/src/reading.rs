//! From one match of a rule to what the message says.

use std::ops::Range;

use crate::class::{Class, Kind, Weight};
use crate::classify::Finding;
use crate::clean::text;
use crate::errno::WordsAt;
use crate::rules::{ClassSource, ErrnoSource, Rule, Words};
use crate::search::Slot;
use crate::{errno, extract};

/// How far around a message its errno is looked for.
const ERRNO_REACH_BYTES: usize = 400;

/// How far around a message device and peer are looked for.
const SUBJECT_REACH_BYTES: usize = 400;

/// The piece of a line that belongs to one message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) from: usize,
    pub(crate) to: usize,
}

/// One match of one rule.
pub(crate) struct Reading<'a> {
    pub(crate) line: &'a [u8],
    pub(crate) rule: &'a Rule,
    pub(crate) words: &'a Words,
    /// None of a rule that captures nothing.
    pub(crate) slots: &'a [Slot],
    /// Words for errnos in the line.
    pub(crate) errnos: &'a [WordsAt],
    pub(crate) segment: Segment,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// What class and status a message got.
struct Verdict {
    class: Class,
    weak: bool,
    status: Option<String>,
    status_code: Option<u32>,
}

impl Reading<'_> {
    fn capture(&self, name: &str) -> Option<&[u8]> {
        Some(&self.line[self.span(name)?])
    }

    fn span(&self, name: &str) -> Option<Range<usize>> {
        let first = 2 * self.rule.group(name)?;
        let (start, end) = (*self.slots.get(first)?, *self.slots.get(first + 1)?);
        Some(start?.get()..end?.get())
    }

    fn text_of(&self, name: &str) -> Option<String> {
        self.capture(name)
            .map(text)
            .filter(|value| !value.is_empty())
    }

    /// What the message says.
    pub(crate) fn finding(self) -> Finding {
        let (verb, kind) = self.verb();
        let errno = self.errno();
        let verdict = self.verdict(kind, errno.as_deref());
        let decides = self.rule.decides && kind != Some(Kind::ReadOnly);
        let weight = if !verdict.class.is_root() || !decides {
            Weight::Never
        } else if verdict.weak || self.rule.weak {
            Weight::Weak
        } else {
            Weight::Root
        };
        let before = &self.line[self
            .segment
            .from
            .max(self.start.saturating_sub(SUBJECT_REACH_BYTES))
            ..self.start];
        let from_match = &self.line[self.start
            ..self
                .segment
                .to
                .min(self.end.saturating_add(SUBJECT_REACH_BYTES))];
        let subject = |find: fn(&[u8]) -> Option<String>| find(from_match).or_else(|| find(before));
        Finding {
            rule: self.rule.id.clone(),
            class: verdict.class,
            weight,
            verb,
            kind,
            errno,
            status: verdict.status,
            status_code: verdict.status_code,
            vendor_err: self.vendor_err(),
            device: self.text_of("device").or_else(|| subject(extract::device)),
            peer: self.text_of("peer").or_else(|| extract::peer(from_match)),
            rank: self
                .capture("rank")
                .and_then(extract::parse)
                .or_else(|| extract::rank(&self.line[self.segment.from..self.segment.to])),
            start: self.start,
            end: self.end,
        }
    }

    /// One form for all programs: NCCL writes decimal, UCX and the kernel hexadecimal.
    fn vendor_err(&self) -> Option<String> {
        let hexadecimal = |digits: &str| u64::from_str_radix(digits, 16).ok();
        let told = self.text_of("vendor").or_else(|| {
            let digits = self.text_of("vendor_hex")?;
            Some(format!("0x{digits}"))
        })?;
        let number = match told.strip_prefix("0x") {
            Some(digits) => hexadecimal(digits),
            None => told.parse().ok().or_else(|| hexadecimal(&told)),
        };
        Some(number.map_or(told, |number| format!("{number:#x}")))
    }

    fn verb(&self) -> (Option<String>, Option<Kind>) {
        let in_words = || {
            let object = self.capture("object")?;
            self.words.verb_in_words(self.capture("action")?, object)
        };
        let named = self.text_of("verb").map(|name| self.words.verb(&name));
        let verb = named.or_else(in_words).or_else(|| self.rule.verb.clone());
        verb.map_or((None, None), |verb| (Some(verb.name), verb.kind))
    }

    fn errno(&self) -> Option<String> {
        match &self.rule.errno {
            ErrnoSource::Off => None,
            ErrnoSource::Fixed(name) => Some(name.clone()),
            ErrnoSource::Find => {
                let told = self.span("errno").and_then(|told| {
                    errno::name_of_number(&self.line[told.clone()]).or_else(|| self.errno_in(told))
                });
                let reach = |at: usize| at.saturating_add(ERRNO_REACH_BYTES);
                let from_match = self.start..self.segment.to.min(reach(self.end));
                let from = self.start.saturating_sub(ERRNO_REACH_BYTES);
                let before = self.segment.from.max(from)..self.start;
                told.or_else(|| self.errno_in(from_match))
                    .or_else(|| self.errno_in(before))
            }
        }
    }

    fn errno_in(&self, part: Range<usize>) -> Option<String> {
        errno::find(self.line, part, self.errnos)
    }

    fn verdict(&self, kind: Option<Kind>, errno: Option<&str>) -> Verdict {
        let plain = |class| Verdict {
            class,
            weak: false,
            status: self.text_of("status").or_else(|| self.rule.status.clone()),
            status_code: None,
        };
        let by_errno = errno.and_then(|errno| {
            let mut entries = self.rule.by_errno.iter();
            entries
                .find(|(name, _)| name == errno)
                .map(|(_, class)| *class)
        });
        if let Some(class) = by_errno {
            return plain(class);
        }
        match self.rule.class {
            ClassSource::Fixed(class) => plain(class),
            ClassSource::Verb => plain(kind.map_or(Class::Syscall, Kind::class)),
            ClassSource::Status => self.status(),
            ClassSource::Event => self.event(),
            ClassSource::None => plain(Class::CannotTell),
        }
    }

    fn status(&self) -> Verdict {
        let number = self.capture("code").and_then(extract::parse);
        let syndrome = self
            .capture("syndrome")
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .and_then(|hex| u32::from_str_radix(hex, 16).ok());
        let known = number
            .and_then(|number| self.words.status_by_number(number))
            .or_else(|| self.words.status_by_text(self.capture("status")?))
            .or_else(|| self.words.status_by_syndrome(syndrome?));
        let unknown = || {
            let told = number.map(|number| format!("IBV_WC_{number}"));
            told.or_else(|| self.text_of("status"))
        };
        Verdict {
            class: known.map_or(Class::CannotTell, |status| status.class),
            weak: false,
            status: known.map(|status| status.name.clone()).or_else(unknown),
            status_code: known.and_then(|status| status.number).or(number),
        }
    }

    fn event(&self) -> Verdict {
        let known = self
            .capture("event")
            .and_then(|event| self.words.event(event));
        Verdict {
            class: known.map_or(Class::CannotTell, |event| event.class),
            weak: known.is_some_and(|event| event.weak),
            status: known
                .map(|event| event.name.clone())
                .or_else(|| self.text_of("event")),
            status_code: None,
        }
    }
}
