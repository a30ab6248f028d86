//! Ranks as runs: `[[0, 1023]]` for a thousand of them.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Ranks that a kept dump may stand for: sixteen times the largest jobs. A run is a few
/// bytes, and must not become gigabytes.
const RANKS_MAX: usize = 1 << 20;

pub(super) fn serialize<S: Serializer>(ranks: &[u32], to: S) -> Result<S::Ok, S::Error> {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for rank in ranks {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*rank) => *last = *rank,
            _ => runs.push((*rank, *rank)),
        }
    }
    runs.serialize(to)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u32>, D::Error> {
    let runs: Vec<(u32, u32)> = Vec::deserialize(from)?;
    let ranks = runs.into_iter().flat_map(|(first, last)| first..=last);
    Ok(ranks.take(RANKS_MAX).collect())
}

#[cfg(test)]
mod tests {
    use super::super::GroupConfig;

    #[test]
    fn ranks_come_back_as_they_were() {
        let config = GroupConfig {
            description: "default_pg".into(),
            ranks: vec![0, 1, 2, 3, 7, 9, 8],
        };
        let json = serde_json::to_string(&config).unwrap();
        assert!(json.contains("[[0,3],[7,7],[9,9],[8,8]]"), "{json}");
        assert_eq!(serde_json::from_str::<GroupConfig>(&json).unwrap(), config);
        let wide = r#"{"description":"","ranks":[[0,4294967295]]}"#;
        let wide: GroupConfig = serde_json::from_str(wide).unwrap();
        assert_eq!(wide.ranks.len(), 1 << 20);
    }
}
