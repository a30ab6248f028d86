//! Prose broken into lines.

use unicode_width::UnicodeWidthStr;

/// Breaks at spaces so that no line is wider than `columns`, its indent
/// included. A longer word keeps its own line: function names and paths must
/// stay whole to be searched for. The first line starts with `first`, the others
/// with as many spaces.
pub(crate) fn wrap(text: &str, first: &str, columns: usize) -> String {
    let indent = first.width();
    let mut out = String::from(first);
    let mut used = indent;
    for word in text.split_whitespace() {
        let width = word.width();
        if used > indent && used + 1 + width > columns {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            used = indent;
        } else if used > indent {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        used += width;
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_break_at_spaces_under_the_indent() {
        assert_eq!(
            wrap("one two three", "  + ", 12),
            "  + one two\n    three\n"
        );
        assert_eq!(wrap("", "", 12), "\n");
        assert_eq!(
            wrap("ib_uverbs_handler_UVERBS a", "", 5),
            "ib_uverbs_handler_UVERBS\na\n"
        );
    }

    proptest! {
        #[test]
        fn no_word_is_lost_and_no_line_too_wide(text in "[a-z日 ]{0,200}", columns in 10_usize..60) {
            let out = wrap(&text, "  ", columns);
            prop_assert!(out.split_whitespace().eq(text.split_whitespace()));
            for line in out.lines() {
                prop_assert!(line.width() <= columns || line.split_whitespace().count() <= 1);
            }
        }
    }
}
