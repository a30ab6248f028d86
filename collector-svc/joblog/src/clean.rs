//! From the bytes of a line to text that rules can read.

use std::borrow::Cow;

/// Bytes that are looked at between two decisions: some registers full.
const CHUNK_BYTES: usize = 128;

/// The line without ANSI escape sequences and control characters. Carriage returns
/// stay: they part what was written over itself. Bytes that are no UTF-8 stay too:
/// rules match bytes.
pub(crate) fn clean(line: &[u8]) -> Cow<'_, [u8]> {
    // Whole chunks, so that one instruction looks at many bytes.
    let has_control = |chunk: &[u8]| {
        chunk
            .iter()
            .fold(false, |has, byte| has | is_control(*byte))
    };
    if !line.chunks(CHUNK_BYTES).any(has_control) {
        return Cow::Borrowed(line);
    }
    let mut out = Vec::with_capacity(line.len());
    let mut at = 0;
    while at < line.len() {
        let byte = line[at];
        if byte == 0x1b {
            at += escape_length(&line[at..]);
        } else if byte == 0 {
            // Text in UTF-16 has a NUL beside each letter; leaving them out makes
            // it readable. Runs of NUL come from sparse files.
            at += 1;
        } else {
            out.push(if is_control(byte) { b' ' } else { byte });
            at += 1;
        }
    }
    Cow::Owned(out)
}

/// Tabs stay: they separate words in kernel logs and hide nothing.
const fn is_control(byte: u8) -> bool {
    (byte < 0x20 && byte != b'\t' && byte != b'\r') || byte == 0x7f
}

/// Longest escape sequence that is taken for one; a longer one is text after a
/// stray escape byte.
const MAX_ESCAPE_BYTES: usize = 64;

/// Bytes of the escape sequence at the start: CSI, OSC, or a two-byte one
/// (ECMA-48, 5.4 and 8.3.89).
fn escape_length(bytes: &[u8]) -> usize {
    let window = &bytes[..bytes.len().min(MAX_ESCAPE_BYTES)];
    match window.get(1) {
        Some(b'[') => window
            .iter()
            .skip(2)
            .position(|byte| !(0x20..=0x3f).contains(byte))
            .map_or(2, |end| {
                // The final byte belongs to it when it is one.
                2 + end + usize::from((0x40..=0x7e).contains(&window[2 + end]))
            }),
        Some(b']') => window
            .iter()
            .position(|byte| *byte == 0x07)
            .map_or(2, |end| end + 1),
        // Two-byte sequences of the sets 0x40 to 0x5f; anything else is a stray escape.
        Some(0x40..=0x5f) => 2,
        _ => 1,
    }
}

/// Bytes as text for people and JSON: what is no UTF-8 becomes U+FFFD.
pub(crate) fn text(bytes: &[u8]) -> String {
    // Nearly all of it is UTF-8, and to see that is faster than to mend it.
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => String::from_utf8_lossy(bytes).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn colours_are_taken_out() {
        assert_eq!(clean(b"\x1b[1;31mNCCL\x1b[0m WARN").as_ref(), b"NCCL WARN");
        assert_eq!(clean(b"\x1b]0;title\x07NCCL").as_ref(), b"NCCL");
        assert_eq!(clean(b"a\x1bMb").as_ref(), b"ab");
        assert_eq!(clean(b"\x1b[31").as_ref(), b"31".as_slice());
        assert_eq!(clean(b"end\x1b").as_ref(), b"end");
    }

    #[test]
    fn control_characters_become_spaces_and_nul_goes() {
        assert_eq!(clean(b"a\rb\x08c\td").as_ref(), b"a\rb c\td");
        assert_eq!(clean(b"N\0C\0C\0L\0").as_ref(), b"NCCL");
        assert!(matches!(clean("Z\u{fc}rich".as_bytes()), Cow::Borrowed(_)));
    }

    proptest! {
        #[test]
        fn any_bytes_end_without_control(bytes: Vec<u8>) {
            let cleaned = clean(&bytes);
            prop_assert!(!cleaned.iter().any(|byte| is_control(*byte)));
            prop_assert!(cleaned.len() <= bytes.len());
        }
    }
}
