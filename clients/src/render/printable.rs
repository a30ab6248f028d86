//! Text from the store can be hostile: a process names itself, a job name may
//! hold an escape sequence. Nothing of it may command the terminal.

use std::fmt::Write;

/// The text with every control character and every invisible or
/// direction-changing character written as an escape.
pub(crate) fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if is_dangerous(c) && u32::from(c) < 0x100 => {
                // Writing into a String cannot fail.
                let _ = write!(out, "\\x{:02x}", u32::from(c));
            }
            c if is_dangerous(c) => {
                let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out
}

/// Serialised JSON in which the same characters stand as `\uXXXX`, which means
/// the same to every reader. They can only stand inside its strings.
pub(crate) fn json_escaped(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if c != '\n' && is_dangerous(c) {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// C0, DEL and C1 controls; zero-width characters; line and paragraph
/// separators; the bidirectional controls of Unicode TR 36; tags.
fn is_dangerous(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn escape_sequences_are_shown_and_not_obeyed() {
        assert_eq!(printable("\u{1b}[31mred\u{9b}0m"), "\\x1b[31mred\\x9b0m");
        assert_eq!(printable("a\nb\tc\rd\u{0}"), "a\\nb\\tc\\rd\\x00");
        assert_eq!(printable("\u{202e}txt\u{200b}"), "\\u{202e}txt\\u{200b}");
        assert_eq!(printable("Zürich 日本"), "Zürich 日本");
    }

    proptest! {
        #[test]
        fn nothing_dangerous_is_left(text: String) {
            prop_assert!(!printable(&text).chars().any(is_dangerous));
        }

        #[test]
        fn json_means_the_same_after_escaping(text: String) {
            let escaped = json_escaped(&serde_json::to_string(&text).unwrap());
            prop_assert!(!escaped.chars().any(is_dangerous));
            prop_assert_eq!(serde_json::from_str::<String>(&escaped).unwrap(), text);
        }
    }
}
