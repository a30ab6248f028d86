//! One rank's dump, whatever its version.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::DumpError;
use super::value::{Values, View};

/// Newest major version whose meaning is known.
pub(super) const KNOWN_MAJOR: u32 = 2;

/// How far a collective got on one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Enqueued; the GPU has not begun it.
    Scheduled,
    /// Running on the GPU.
    Started,
    /// Done.
    Completed,
    /// A state that this version does not know.
    Unknown,
}

impl State {
    pub(super) fn of(text: &str) -> State {
        match text {
            "scheduled" => State::Scheduled,
            "started" => State::Started,
            "completed" => State::Completed,
            _ => State::Unknown,
        }
    }
}

/// One operation that a rank recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Process group: its name, or its number before 2.0.
    pub group: String,
    /// Number of the collective in its group; of a point-to-point operation
    /// among those.
    pub sequence: u64,
    /// Whether it is point-to-point: those have no sequence that all ranks share.
    pub p2p: bool,
    /// What it is, such as `nccl:all_reduce`.
    pub operation: String,
    /// How far it got.
    pub state: State,
    /// When it was enqueued, nanoseconds since 1970; 0 when the dump does not say.
    pub created_ns: i64,
}

/// What a dump says of a process group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupConfig {
    /// What people call it, such as `default_pg`.
    pub description: String,
    /// Global ranks of its members; kept as runs, for a group may have thousands.
    #[serde(with = "super::runs")]
    pub ranks: Vec<u32>,
}

/// One rank's dump.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dump {
    /// Whose it is, where the file's name says it.
    pub rank: Option<u32>,
    /// As it stands in the dump; `0` for a list without one.
    pub version: String,
    /// Whether that version's meaning is known; a newer one is read as the newest
    /// known.
    pub version_known: bool,
    /// Operations, oldest first.
    pub entries: Vec<Entry>,
    /// Groups by name.
    pub groups: BTreeMap<String, GroupConfig>,
    /// Last collective that was enqueued, by group, where the dump says it apart
    /// from the entries (2.1 and newer).
    pub last_enqueued: BTreeMap<String, u64>,
}

/// Operations of a group that are kept of a dump: ranks drift apart by some, not by more.
const KEPT_OF_GROUP: usize = 128;

impl Dump {
    /// The same with what a comparison of ranks needs: of each group the last operations,
    /// and the first that did not complete.
    pub fn reduced(mut self) -> Dump {
        self.entries.retain(|entry| !entry.p2p);
        let mut later: BTreeMap<String, usize> = BTreeMap::new();
        let mut pending: BTreeMap<String, usize> = BTreeMap::new();
        let mut kept: Vec<bool> = self
            .entries
            .iter()
            .map(|entry| {
                let first = pending.entry(entry.group.clone()).or_default();
                let keep = entry.state != State::Completed && *first < KEPT_OF_GROUP;
                *first += usize::from(keep);
                keep
            })
            .collect();
        for (entry, keep) in self.entries.iter().zip(&mut kept).rev() {
            let count = later.entry(entry.group.clone()).or_default();
            *keep |= *count < KEPT_OF_GROUP;
            *count += 1;
        }
        let mut kept = kept.into_iter();
        self.entries.retain(|_| kept.next().unwrap_or(false));
        self
    }
}

/// Whether a version is known.
pub(super) fn is_known(version: &str) -> bool {
    version
        .split('.')
        .next()
        .and_then(|major| major.parse::<u32>().ok())
        .is_some_and(|major| major <= KNOWN_MAJOR)
}

/// Global ranks out of `"[0, 1, 2]"`, which is how both formats write them.
pub(super) fn ranks_of_text(text: &str) -> Vec<u32> {
    text.split(|c: char| !c.is_ascii_digit())
        .filter_map(|digits| digits.parse().ok())
        .collect()
}

pub(super) fn from_values(values: &Values<'_>) -> Result<Dump, DumpError> {
    let root = values.root();
    // The first recorders wrote the list of entries alone.
    let (entries, version) = if root.is_dict() {
        let version = root.get("version").and_then(View::name);
        let known = ["entries", "pg_config", "pg_status", "nccl_comm_state"];
        if version.is_none() && !known.iter().any(|key| root.get(key).is_some()) {
            return Err(DumpError::Shape("it has neither a version nor entries"));
        }
        (
            root.get("entries"),
            version.unwrap_or_else(|| "0".to_owned()),
        )
    } else {
        (Some(root), "0".to_owned())
    };
    let mut dump = Dump {
        rank: None,
        version_known: is_known(&version),
        version,
        entries: Vec::new(),
        groups: BTreeMap::new(),
        last_enqueued: BTreeMap::new(),
    };
    let mut names = BTreeMap::new();
    if let Some(entries) = entries {
        let items = entries
            .items()
            .ok_or(DumpError::Shape("its entries are no list"))?;
        for item in items.filter(|item| item.is_dict()) {
            if let Some(entry) = entry(item, &mut names) {
                dump.entries.push(entry);
            }
        }
    }
    if let Some(config) = root.get("pg_config") {
        read_config(config, &mut dump);
    }
    if let Some(status) = root.get("pg_status") {
        read_status(status, &names, &mut dump);
    }
    Ok(dump)
}

fn entry(item: View<'_>, names: &mut BTreeMap<String, String>) -> Option<Entry> {
    let number = item.get("pg_id").and_then(View::name);
    // (name, description) from 2.0 on; the name alone for a while before.
    let name = item
        .get("process_group")
        .and_then(|group| match group.items() {
            Some(mut parts) => parts.next().and_then(View::name),
            None => group.name(),
        });
    if let (Some(number), Some(name)) = (&number, &name) {
        names.insert(number.clone(), name.clone());
    }
    let sequence = ["collective_seq_id", "seq_id"]
        .into_iter()
        .find_map(|key| item.get(key))?
        .int()?;
    let state = item.get("state").and_then(View::name).unwrap_or_default();
    Some(Entry {
        group: name.or(number).unwrap_or_default(),
        sequence: u64::try_from(sequence).ok()?,
        p2p: item.get("is_p2p").and_then(View::bool).unwrap_or(false),
        operation: item
            .get("profiling_name")
            .and_then(View::name)
            .unwrap_or_default(),
        state: State::of(&state),
        created_ns: item.get("time_created_ns").and_then(View::int).unwrap_or(0),
    })
}

fn read_config(config: View<'_>, dump: &mut Dump) {
    for (key, value) in config.pairs() {
        let Some(name) = key.name() else {
            continue;
        };
        let ranks = value
            .get("ranks")
            .map_or_else(Vec::new, |ranks| match ranks.items() {
                Some(items) => items
                    .filter_map(|rank| u32::try_from(rank.int()?).ok())
                    .collect(),
                None => ranks
                    .name()
                    .map(|text| ranks_of_text(&text))
                    .unwrap_or_default(),
            });
        let description = value.get("desc").and_then(View::name).unwrap_or_default();
        dump.groups.insert(name, GroupConfig { description, ranks });
    }
}

fn read_status(status: View<'_>, names: &BTreeMap<String, String>, dump: &mut Dump) {
    for (key, value) in status.pairs() {
        let last = value.get("last_enqueued_collective").and_then(View::int);
        let (Some(key), Some(last)) = (key.name(), last.and_then(|last| u64::try_from(last).ok()))
        else {
            continue;
        };
        let name = names.get(&key).cloned().unwrap_or(key);
        dump.last_enqueued.insert(name, last);
    }
}
