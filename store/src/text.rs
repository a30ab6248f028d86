//! Text that Postgres can hold: UTF-8 without NUL.

/// Text made fit for the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Storable {
    /// UTF-8 without NUL; what did not fit is replaced by U+FFFD.
    pub text: String,
    /// Whether something was replaced or cut off.
    pub changed: bool,
}

/// Makes `bytes` fit for a text column: bytes that are not UTF-8, and NUL (which
/// Postgres refuses in text), become U+FFFD; at most `max_bytes` are kept.
pub fn storable(bytes: &[u8], max_bytes: usize) -> Storable {
    let lossy = String::from_utf8_lossy(bytes);
    let mut changed = matches!(lossy, std::borrow::Cow::Owned(_));
    let mut text = lossy.into_owned();
    if text.contains('\0') {
        text = text.replace('\0', "\u{FFFD}");
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
        let kept = storable(b"a\xFFb\0c", 64);
        assert_eq!(
            kept,
            Storable {
                text: "a\u{FFFD}b\u{FFFD}c".into(),
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
