//! Text that Postgres can hold and a terminal can show: UTF-8 without control characters.

/// Text made fit for the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Storable {
    /// UTF-8 without control characters; what did not fit is replaced by U+FFFD.
    pub text: String,
    /// Whether something was replaced or cut off.
    pub changed: bool,
}

/// Makes `bytes` fit for a text column: bytes that are not UTF-8, and control characters
/// (Postgres refuses NUL in text, a terminal obeys the others), become U+FFFD; at most
/// `max_bytes` are kept.
pub fn storable(bytes: &[u8], max_bytes: usize) -> Storable {
    let lossy = String::from_utf8_lossy(bytes);
    let mut changed = matches!(lossy, std::borrow::Cow::Owned(_));
    let mut text = lossy.into_owned();
    if text.contains(char::is_control) {
        text = text.replace(char::is_control, "\u{FFFD}");
        changed = true;
    }
    if text.len() > max_bytes {
        let cut = (0..=max_bytes)
            .rev()
            .find(|i| text.is_char_boundary(*i))
            .unwrap_or(0);
        text.truncate(cut);
        changed = true;
    }
    Storable { text, changed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clean_text_is_kept() {
        let kept = storable("nccl-übung".as_bytes(), 64);
        assert_eq!(
            kept,
            Storable {
                text: "nccl-übung".into(),
                changed: false
            }
        );
    }

    #[test]
    fn other_bytes_are_replaced_and_said() {
        let kept = storable(b"a\xFFb\0c\x1b[31m\xc2\x9b", 64);
        assert_eq!(
            kept,
            Storable {
                text: "a\u{FFFD}b\u{FFFD}c\u{FFFD}[31m\u{FFFD}".into(),
                changed: true
            }
        );
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        let kept = storable("aé".as_bytes(), 2);
        assert_eq!(
            kept,
            Storable {
                text: "a".into(),
                changed: true
            }
        );
    }
}
