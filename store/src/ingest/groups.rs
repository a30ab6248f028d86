//! Groups: what a snapshot tells of one attempt within one minute, as the arrays that
//! `rdmesh_store.failures` takes apart again; and its counters.

use std::collections::{BTreeMap, HashMap};

use sqlx::PgConnection;

use crate::StoreError;
use crate::copy::{CopyRows, Micros};
use crate::ingest::tables::{begin, identity, ordinal};
use crate::ingest::words::{Device, Words};
use crate::ingest::{Chain, Count, Identity, Item, Snapshot};

/// Rows of a group at most: each of them costs a look at the arrays of its group when it is
/// read.
const ROWS_MAX: usize = 1_024;

const MINUTE_US: i64 = 60_000_000;

/// A time of a host that stands further than this from where the group's clock puts it is
/// kept by itself; nearer, it is what was cut off when both were made whole microseconds.
const CUT_OFF_US: i64 = 1;

const FAILURE_GROUPS: &[&str] = &[
    "host",
    "at",
    "run_id",
    "seq",
    "until",
    "host_ahead_us",
    "job_id",
    "requeue",
    "restart",
    "source",
    "first_ordinal",
    "afters",
    "spans",
    "long_spans",
    "counts",
    "long_counts",
    "signature_places",
    "task_places",
    "flags",
    "ordinals",
    "host_firsts",
    "host_lasts",
    "marks",
    "arguments",
    "signatures",
    "tgids",
    "tids",
    "ranks",
    "local_ranks",
    "device_places",
    "comm_places",
    "cgroup_places",
    "devices",
    "texts",
];

const COUNT_GROUPS: &[&str] = &[
    "host",
    "at",
    "run_id",
    "seq",
    "of_host",
    "cgroup_path",
    "job_id",
    "requeue",
    "restart",
    "source",
    "returns",
    "deltas",
    "long_deltas",
];

/// Which bit of `flags` says what.
const SWALLOWED: i16 = 1;
const INCOMPLETE: i16 = 2;

/// The order of attempts is any, but the same for all collectors.
type IdentityKey<'a> = (Option<&'a str>, i64, i64, i16);

fn key_of(identity: &Identity) -> IdentityKey<'_> {
    let Identity {
        job_id,
        requeue,
        restart,
        source,
    } = identity;
    (job_id.as_deref(), *requeue, *restart, *source)
}

/// Stores the chains of these snapshots.
pub(super) async fn store_failures(
    connection: &mut PgConnection,
    snapshots: &[(&Item, &Snapshot)],
    words: &Words<'_>,
) -> Result<(), StoreError> {
    let mut rows = CopyRows::new("failure_groups", FAILURE_GROUPS);
    for (item, snapshot) in snapshots {
        for group in groups(&snapshot.chains) {
            add_group(&mut rows, item, &group, words);
            rows.send_full(connection).await?;
        }
    }
    rows.send(connection).await
}

/// Chains with their places in the snapshot.
type Group<'a> = Vec<(usize, &'a Chain, Micros)>;

fn groups(chains: &[Chain]) -> impl Iterator<Item = Group<'_>> {
    let mut groups: BTreeMap<(IdentityKey<'_>, i64, usize), Group<'_>> = BTreeMap::new();
    for (place, chain) in chains.iter().enumerate() {
        let first = Micros::from(chain.first_at);
        let key = (
            key_of(&chain.identity),
            first.0.div_euclid(MINUTE_US),
            place / ROWS_MAX,
        );
        groups.entry(key).or_default().push((place, chain, first));
    }
    groups.into_values()
}

/// Things that rows point to, each once, with their places.
struct Places<K> {
    places: HashMap<K, i16>,
    all: Vec<K>,
}

impl<K: Copy + Eq + std::hash::Hash> Places<K> {
    fn new() -> Self {
        Self {
            places: HashMap::new(),
            all: Vec::new(),
        }
    }

    fn of(&mut self, thing: K) -> i16 {
        *self.places.entry(thing).or_insert_with(|| {
            self.all.push(thing);
            // A group has 1,024 rows, and each names two texts at most.
            i16::try_from(self.all.len() - 1).unwrap_or(i16::MAX)
        })
    }
}

/// A task of a group, with the device that it used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Task<'a> {
    tgid: u32,
    tid: u32,
    rank: Option<i32>,
    local_rank: Option<i32>,
    comm: &'a str,
    cgroup_path: &'a str,
    device: Option<Device<'a>>,
}

impl<'a> From<&'a Chain> for Task<'a> {
    fn from(chain: &'a Chain) -> Self {
        Self {
            tgid: chain.tgid,
            tid: chain.tid,
            rank: chain.rank,
            local_rank: chain.local_rank,
            comm: &chain.comm,
            cgroup_path: &chain.cgroup_path,
            device: Device::of(chain),
        }
    }
}

/// 32 bits as the table holds them.
fn bits(number: u32) -> i32 {
    i32::from_be_bytes(number.to_be_bytes())
}

/// Numbers as 32 bits where all of them fit, else as 64.
enum Numbers {
    Short(Vec<i32>),
    Long(Vec<i64>),
}

impl Numbers {
    fn of(numbers: Vec<i64>) -> Self {
        let short: Result<Vec<i32>, _> = numbers.iter().map(|n| i32::try_from(*n)).collect();
        short.map_or(Self::Long(numbers), Self::Short)
    }

    fn add(&self, row: &mut CopyRows) {
        match self {
            Self::Short(numbers) => row.array(numbers).null(),
            Self::Long(numbers) => row.null().array(numbers),
        };
    }
}

/// None where all are the same as `usual`.
fn unless_all<T: PartialEq + Copy>(values: &[T], usual: &T) -> Option<Vec<T>> {
    let all = values.iter().all(|value| value == usual);
    (!all).then(|| values.to_vec())
}

fn add_group(rows: &mut CopyRows, item: &Item, group: &Group<'_>, words: &Words<'_>) {
    let Some((first_place, first_chain, _)) = group.first() else {
        return;
    };
    let at = group.iter().map(|row| row.2).min().unwrap_or(Micros(0));
    let until = group.iter().map(|row| row.2).max().unwrap_or(at);
    let ahead = ahead(group);
    let row = rows
        .row()
        .text(&item.run.host)
        .int8(at.0)
        .uuid(item.run.run_id)
        .int8(item.sequence)
        .int8(until.0)
        .int8_or_null(ahead);
    identity(row, &first_chain.identity).int4(ordinal(*first_place));
    add_calls(row, group, at);
    let mut signatures = Places::new();
    let mut tasks = Places::new();
    let (mut of_signatures, mut of_tasks) = (Vec::new(), Vec::new());
    for (_, chain, _) in group {
        of_signatures.push(signatures.of(words.signature(chain)));
        of_tasks.push(tasks.of(Task::from(*chain)));
    }
    row.array(&of_signatures).array(&of_tasks);
    add_rare(row, group, ahead);
    row.array(&signatures.all);
    add_tasks(row, &tasks.all, words);
}

/// How far the host's clock stands ahead of the collector's time; none where rows differ.
fn ahead(group: &Group<'_>) -> Option<i64> {
    let mut of_rows = group.iter().flat_map(|(_, chain, first)| {
        let first_ahead = Micros::from(chain.host_first_at).0 - first.0;
        let last_ahead = Micros::from(chain.host_last_at).0 - Micros::from(chain.last_at).0;
        [first_ahead, last_ahead]
    });
    let ahead = of_rows.next()?;
    of_rows
        .all(|other| (other - ahead).abs() <= CUT_OFF_US)
        .then_some(ahead)
}

/// When, for how long, how often.
fn add_calls(row: &mut CopyRows, group: &Group<'_>, at: Micros) {
    let afters: Vec<i32> = group
        .iter()
        // Within one minute.
        .map(|(_, _, first)| i32::try_from(first.0 - at.0).unwrap_or(i32::MAX))
        .collect();
    row.array(&afters);
    let spans = group
        .iter()
        .map(|(_, chain, first)| Micros::from(chain.last_at).0 - first.0);
    Numbers::of(spans.collect()).add(row);
    let counts: Vec<i64> = group.iter().map(|(_, chain, _)| chain.count).collect();
    if counts.iter().all(|count| *count == 1) {
        row.null().null();
    } else {
        Numbers::of(counts).add(row);
    }
}

/// What most groups have in no row.
fn add_rare(row: &mut CopyRows, group: &Group<'_>, ahead: Option<i64>) {
    let flags: Vec<i16> = group
        .iter()
        .map(|(_, chain, _)| {
            let flag = |set: bool, bit: i16| if set { bit } else { 0 };
            flag(chain.swallowed, SWALLOWED) | flag(chain.incomplete, INCOMPLETE)
        })
        .collect();
    row.array_or_null(unless_all(&flags, &0).as_deref());
    let first_place = group.first().map_or(0, |row| row.0);
    let follow = group.iter().zip(first_place..).all(|(row, n)| row.0 == n);
    let ordinals: Vec<i32> = group.iter().map(|row| ordinal(row.0)).collect();
    row.array_or_null((!follow).then_some(ordinals.as_slice()));
    match ahead {
        Some(_) => row.null().null(),
        None => {
            let times = |of: fn(&Chain) -> Micros| -> Vec<Micros> {
                group.iter().map(|(_, chain, _)| of(chain)).collect()
            };
            row.array(&times(|chain| chain.host_first_at.into()))
                .array(&times(|chain| chain.host_last_at.into()))
        }
    };
    let marks: Vec<Option<String>> = group
        .iter()
        .map(|(_, chain, _)| (!chain.marks.is_empty()).then(|| json_list(&chain.marks)))
        .collect();
    row.array_of_some(&marks);
    let arguments: Vec<Option<&str>> = group
        .iter()
        .map(|(_, chain, _)| chain.arguments.as_deref())
        .collect();
    row.array_of_some(&arguments);
}

/// Texts as a JSON list. No text that is stored has control characters.
fn json_list(texts: &[String]) -> String {
    let quoted = texts
        .iter()
        .map(|text| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")));
    format!("[{}]", quoted.collect::<Vec<_>>().join(","))
}

fn add_tasks(row: &mut CopyRows, tasks: &[Task<'_>], words: &Words<'_>) {
    let tgids: Vec<i32> = tasks.iter().map(|task| bits(task.tgid)).collect();
    let tids: Vec<i32> = tasks.iter().map(|task| bits(task.tid)).collect();
    let ranks: Vec<Option<i32>> = tasks.iter().map(|task| task.rank).collect();
    let local_ranks: Vec<Option<i32>> = tasks.iter().map(|task| task.local_rank).collect();
    row.array(&tgids)
        .array_or_null((tids != tgids).then_some(tids.as_slice()))
        .array_of_some(&ranks)
        .array_of_some(&local_ranks);
    let mut devices = Places::new();
    let of_devices: Vec<i16> = tasks
        .iter()
        .map(|task| match &task.device {
            Some(device) => devices.of(words.device(device)) + 1,
            None => 0,
        })
        .collect();
    let mut texts = Places::new();
    let comms: Vec<i16> = tasks.iter().map(|task| texts.of(task.comm)).collect();
    let cgroups: Vec<i16> = tasks.iter().map(|t| texts.of(t.cgroup_path)).collect();
    row.array_or_null(unless_all(&of_devices, &0).as_deref())
        .array_or_null(unless_all(&comms, &0).as_deref())
        .array_or_null(unless_all(&cgroups, &0).as_deref())
        .array_or_null((!devices.all.is_empty()).then_some(devices.all.as_slice()))
        .array(&texts.all);
}

/// Stores the counters of these snapshots.
pub(super) async fn store_counts(
    connection: &mut PgConnection,
    snapshots: &[(&Item, &Snapshot)],
    words: &Words<'_>,
) -> Result<(), StoreError> {
    let mut rows = CopyRows::new("count_groups", COUNT_GROUPS);
    for (item, snapshot) in snapshots {
        for group in count_groups(&snapshot.counts, words) {
            add_counts(&mut rows, item, snapshot, &group);
            rows.send_full(connection).await?;
        }
    }
    rows.send(connection).await
}

/// Counters of the host, of a cgroup, or of both where they are the same.
struct CountGroup<'a> {
    of_host: bool,
    cgroup: Option<(&'a str, &'a Identity)>,
    /// Failing return and growth.
    counts: Vec<(i64, i64)>,
}

fn count_groups<'a>(counts: &'a [Count], words: &Words<'_>) -> Vec<CountGroup<'a>> {
    type Key<'a> = Option<(&'a str, IdentityKey<'a>)>;
    let mut groups: BTreeMap<Key<'a>, CountGroup<'a>> = BTreeMap::new();
    for count in counts {
        let cgroup = count.cgroup.as_ref();
        let key = cgroup.map(|(path, identity)| (path.as_str(), key_of(identity)));
        let group = groups.entry(key).or_insert_with(|| CountGroup {
            of_host: cgroup.is_none(),
            cgroup: cgroup.map(|(path, identity)| (path.as_str(), identity)),
            counts: Vec::new(),
        });
        group.counts.push((words.returned(count), count.delta));
    }
    let mut groups: Vec<CountGroup<'a>> = groups.into_values().collect();
    // Those of the host come first.
    if let [host, cgroup] = groups.as_mut_slice()
        && host.of_host
        && host.counts == cgroup.counts
    {
        cgroup.of_host = true;
        groups.remove(0);
    }
    groups
}

fn add_counts(rows: &mut CopyRows, item: &Item, snapshot: &Snapshot, group: &CountGroup<'_>) {
    const OF_HOST: Identity = Identity {
        job_id: None,
        requeue: 0,
        restart: 0,
        source: 0,
    };
    let row = begin(rows, item, snapshot.ended_at)
        .boolean(group.of_host)
        .text_or_null(group.cgroup.map(|(path, _)| path));
    let of = group.cgroup.map_or(&OF_HOST, |(_, identity)| identity);
    let returns: Vec<i64> = group.counts.iter().map(|(id, _)| *id).collect();
    identity(row, of).array(&returns);
    let deltas = group.counts.iter().map(|(_, delta)| *delta);
    Numbers::of(deltas.collect()).add(row);
}
