//! A dump in JSON. Only the needed fields are kept; stacks are passed over.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::DumpError;
use super::dump::{Dump, Entry, GroupConfig, State, is_known, ranks_of_text};

#[derive(Deserialize)]
#[serde(untagged)]
enum Loose {
    Number(i64),
    Flag(bool),
    Text(String),
    Ranks(Vec<i64>),
    Names(Vec<String>),
    Other(serde::de::IgnoredAny),
}

impl Loose {
    fn text(&self) -> Option<String> {
        match self {
            Loose::Number(number) => Some(number.to_string()),
            Loose::Text(text) => Some(text.clone()),
            Loose::Names(names) => names.first().cloned(),
            _ => None,
        }
    }

    fn int(&self) -> Option<i64> {
        match self {
            Loose::Number(number) => Some(*number),
            Loose::Flag(flag) => Some(i64::from(*flag)),
            Loose::Text(text) => text.trim().parse().ok(),
            _ => None,
        }
    }
}

#[derive(Deserialize)]
struct RawEntry {
    pg_id: Option<Loose>,
    process_group: Option<Loose>,
    collective_seq_id: Option<Loose>,
    seq_id: Option<Loose>,
    is_p2p: Option<Loose>,
    profiling_name: Option<Loose>,
    state: Option<Loose>,
    time_created_ns: Option<Loose>,
}

#[derive(Deserialize)]
struct RawConfig {
    desc: Option<Loose>,
    ranks: Option<Loose>,
}

#[derive(Deserialize)]
struct RawStatus {
    last_enqueued_collective: Option<Loose>,
}

#[derive(Deserialize)]
struct RawDump {
    version: Option<Loose>,
    entries: Option<Vec<RawEntry>>,
    #[serde(default)]
    pg_config: BTreeMap<String, RawConfig>,
    #[serde(default)]
    pg_status: BTreeMap<String, RawStatus>,
    nccl_comm_state: Option<serde::de::IgnoredAny>,
}

pub(super) fn read(bytes: &[u8]) -> Result<Dump, DumpError> {
    let text = String::from_utf8_lossy(bytes);
    let raw: RawDump =
        serde_json::from_str(&text).map_err(|error| DumpError::Json(error.to_string()))?;
    let version = raw.version.as_ref().and_then(Loose::text);
    let empty = raw.entries.is_none() && raw.pg_config.is_empty() && raw.pg_status.is_empty();
    if version.is_none() && empty && raw.nccl_comm_state.is_none() {
        return Err(DumpError::Shape("it has neither a version nor entries"));
    }
    let version = version.unwrap_or_else(|| "0".to_owned());
    let mut names = BTreeMap::new();
    let entries = raw
        .entries
        .unwrap_or_default()
        .iter()
        .filter_map(|raw| entry(raw, &mut names))
        .collect();
    let last_enqueued = raw
        .pg_status
        .iter()
        .filter_map(|(key, status)| {
            let last = u64::try_from(status.last_enqueued_collective.as_ref()?.int()?).ok()?;
            Some((names.get(key).unwrap_or(key).clone(), last))
        })
        .collect();
    Ok(Dump {
        rank: None,
        version_known: is_known(&version),
        version,
        entries,
        groups: raw.pg_config.into_iter().map(group).collect(),
        last_enqueued,
    })
}

fn entry(raw: &RawEntry, names: &mut BTreeMap<String, String>) -> Option<Entry> {
    let number = raw.pg_id.as_ref().and_then(Loose::text);
    let name = raw.process_group.as_ref().and_then(Loose::text);
    if let (Some(number), Some(name)) = (&number, &name) {
        names.insert(number.clone(), name.clone());
    }
    let sequence = raw
        .collective_seq_id
        .as_ref()
        .or(raw.seq_id.as_ref())?
        .int()?;
    Some(Entry {
        group: name.or(number).unwrap_or_default(),
        sequence: u64::try_from(sequence).ok()?,
        p2p: raw.is_p2p.as_ref().and_then(Loose::int).unwrap_or(0) != 0,
        operation: raw
            .profiling_name
            .as_ref()
            .and_then(Loose::text)
            .unwrap_or_default(),
        state: State::of(&raw.state.as_ref().and_then(Loose::text).unwrap_or_default()),
        created_ns: raw
            .time_created_ns
            .as_ref()
            .and_then(Loose::int)
            .unwrap_or(0),
    })
}

fn group((name, raw): (String, RawConfig)) -> (String, GroupConfig) {
    let ranks = match raw.ranks {
        Some(Loose::Ranks(ranks)) => ranks
            .into_iter()
            .filter_map(|rank| u32::try_from(rank).ok())
            .collect(),
        Some(Loose::Text(text)) => ranks_of_text(&text),
        _ => Vec::new(),
    };
    let description = raw.desc.as_ref().and_then(Loose::text).unwrap_or_default();
    (name, GroupConfig { description, ranks })
}
