//! The allowed name nearest to a mistyped one.

/// Farther apart than this many edits, a suggestion would mislead.
const MAX_EDITS: usize = 3;

/// The candidate with the fewest edits, when it is near enough.
pub(crate) fn nearest<'a>(
    name: &str,
    allowed: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    allowed
        .into_iter()
        .map(|candidate| (edits(name, candidate), candidate))
        .filter(|(edits, candidate)| *edits <= MAX_EDITS.min(candidate.len().div_ceil(2)))
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// Levenshtein distance by characters.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replace = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_mistyped_name() {
        assert_eq!(
            nearest("colector", ["collector", "listen"]),
            Some("collector")
        );
        assert_eq!(nearest("interval", ["interval_seconds", "listen"]), None);
    }

    #[test]
    fn says_nothing_when_all_are_far() {
        assert_eq!(nearest("zebra", ["collector", "listen"]), None);
        assert_eq!(nearest("ab", ["xy"]), None);
    }
}
