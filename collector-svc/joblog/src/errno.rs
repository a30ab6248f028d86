//! From what a line says about an error to the errno's name.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::OnceLock;

use rdmesh_proto::errno::{self, ERRNOS};
use regex::bytes::Regex;

/// What other C libraries and UCX call an errno. Texts of musl
/// (`src/errno/__strerror.h`) and of UCX statuses that are an errno in other
/// words (`src/ucs/type/status.c`).
const OTHER_TEXTS: &[(&str, i32)] = &[
    ("Operation timed out", 110),
    ("Network unreachable", 101),
    ("Host is unreachable", 113),
    ("No buffer space available", 105),
    ("Address not available", 99),
    ("Address in use", 98),
    ("Resource busy", 16),
    ("Not supported", 95),
    ("I/O error", 5),
    ("Permission denied", 13),
    ("Cannot allocate memory", 12),
];

/// Largest number that is taken for an errno (`MAX_ERRNO` of the kernel).
const MAX_ERRNO: i64 = 4_095;

struct Texts {
    names: HashSet<&'static str>,
    numbers: Regex,
}

fn texts() -> &'static Texts {
    static TEXTS: OnceLock<Texts> = OnceLock::new();
    TEXTS.get_or_init(|| Texts {
        names: ERRNOS.iter().map(|(_, name, _)| *name).collect(),
        numbers: fixed(
            r"(?i-u)(?:\berrno[ =:]*\(?-?|\berr(?:or)?(?: code)?[ =:(]+-|\bRC[ =:]+-?|\bret(?:val|urn(?:ed)?)?[ =:(]+-|failed[ ,:]*(?:with )?\(?-|\bunknown error -?|\berror(?:[ _]code)?[ =]+|\[-|\(-|\w: -|status[ =:]+-|rc[ =]+-)(\d{1,4})\b",
        ),
    })
}

/// Words for errnos in lower case, each with its number.
pub(crate) fn words() -> impl Iterator<Item = (String, i32)> {
    let known = ERRNOS.iter().map(|(number, _, text)| (*text, *number));
    known
        // "Success" is number 0 and none of the table; short texts would match in prose.
        .filter(|(text, _)| text.len() > 5)
        .chain(OTHER_TEXTS.iter().copied())
        .map(|(text, number)| (text.to_ascii_lowercase(), number))
}

/// Words for an errno that stand in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WordsAt {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) number: i32,
}

fn fixed(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a constant of this crate, built by a test")
}

/// The name of a number that a line gives, either sign.
pub(crate) fn name_of_number(text: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(text).ok()?;
    let number = text.trim().parse::<i64>().ok()?.abs();
    if !(1..=MAX_ERRNO).contains(&number) {
        return None;
    }
    i32::try_from(number).ok().map(errno::name)
}

/// The name of the first errno that stands in a part of the line: by its words, by its
/// name, or by a number that is called one. `words` are all of the line.
pub(crate) fn find(line: &[u8], part: Range<usize>, words: &[WordsAt]) -> Option<String> {
    let inside = words
        .iter()
        .filter(|words| part.start <= words.start && words.end <= part.end);
    let first = inside.min_by_key(|words| (words.start, Reverse(words.end)));
    if let Some(first) = first {
        return Some(errno::name(first.number));
    }
    let window = &line[part];
    let mut places = memchr::memchr_iter(b'E', window);
    if let Some(name) = places.find_map(|at| name_at(window, at)) {
        return Some(name.to_owned());
    }
    let found = texts().numbers.captures(window)?;
    let number = found.get(1)?.as_bytes();
    // `returned -1` says that a call failed, and not that it was EPERM.
    let says_errno = found
        .get(0)?
        .as_bytes()
        .to_ascii_lowercase()
        .starts_with(b"errno");
    if number == b"1" && !says_errno {
        return None;
    }
    name_of_number(number)
}

/// The name of an errno that stands at `at` as a word of its own.
fn name_at(window: &[u8], at: usize) -> Option<&'static str> {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if at > 0 && is_word(window[at - 1]) {
        return None;
    }
    let word = window[at..].iter().take_while(|byte| is_word(**byte));
    let word = std::str::from_utf8(&window[at..at + word.count()]).ok()?;
    texts().names.get(word).copied()
}

/// Whether the text is the name of an errno.
pub(crate) fn is_name(text: &str) -> bool {
    texts().names.contains(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a line alone.
    fn find(line: &[u8]) -> Option<String> {
        let lower = line.to_ascii_lowercase();
        let mut all = Vec::new();
        for (text, number) in words() {
            let places = memchr::memmem::find_iter(&lower, text.as_bytes());
            all.extend(places.map(|start| WordsAt {
                start,
                end: start + text.len(),
                number,
            }));
        }
        super::find(line, 0..line.len(), &all)
    }

    #[test]
    fn every_text_of_the_table_is_found() {
        for (_, name, text) in ERRNOS.iter().filter(|(_, _, text)| text.len() > 5) {
            let line = format!("Call to ibv_x failed with error {text}hostB:1:2 [0]");
            let found = find(line.as_bytes());
            assert!(found.is_some(), "{name}: {text}");
        }
        assert_eq!(
            find(b"failed: Cannot allocate memory"),
            Some("ENOMEM".into())
        );
        assert_eq!(
            find(b"failed: Operation timed out"),
            Some("ETIMEDOUT".into())
        );
    }

    #[test]
    fn names_and_numbers_are_found() {
        let found = |line: &str| find(line.as_bytes());
        assert_eq!(found("err: EFAULT"), Some("EFAULT".into()));
        assert_eq!(found("ERROR in EVENT"), None);
        assert_eq!(found("errno 524"), Some("ENOTSUPP".into()));
        assert_eq!(found("errno=600"), Some("errno 600".into()));
        assert_eq!(found("err(-22)"), Some("EINVAL".into()));
        assert_eq!(found("RC: -22"), Some("EINVAL".into()));
        assert_eq!(found("Failed to allocate pd[-12]"), Some("ENOMEM".into()));
        assert_eq!(found("Can't create QP: -12, size 8"), Some("ENOMEM".into()));
        assert_eq!(found("Unknown error 524"), Some("ENOTSUPP".into()));
        assert_eq!(found("ibv_poll_cq() returned -1"), None);
        assert_eq!(found("with errno -22"), Some("EINVAL".into()));
        assert_eq!(found("errno 1"), Some("EPERM".into()));
        assert_eq!(found("len 12 of 14"), None);
        assert_eq!(name_of_number(b"-110"), Some("ETIMEDOUT".into()));
        assert_eq!(name_of_number(b"99999"), None);
        assert_eq!(name_of_number(b"99999999999999999999"), None);
    }
}
