//! The chains of one interval, coalesced by (signature, task, device, marks).

use std::collections::{BTreeSet, HashMap};

use super::async_event::CoSignal;
use crate::chain::{Chain, Marks};
use crate::identity::Who;
use crate::record::{COMM_BYTES, ProbeId, Record};

/// Bytes that chains, their tasks, signatures, texts and samples may take in one
/// message. Together with the counters' part this stays below the uplink's
/// bound of 2 MiB; it holds about 4,000 distinct failures of one interval.
pub const CHAIN_BYTES: usize = 896 << 10;

/// Full samples in one snapshot: one for each distinct failure of an ordinary
/// bad day, at about a kilobyte each.
pub const SAMPLES: usize = 64;

/// Co-signals in one snapshot: a flapping port tells a few each second.
pub const CO_SIGNALS: usize = 256;

/// Of those, ends of processes: a job has a few dozen ranks on a host, and what happens to
/// ports must not be crowded out by them.
pub(super) const EXITS: usize = 96;

// Upper bounds of what one row adds to the message: five bytes for an index,
// ten for a time or count.
const ROW_BYTES: usize = 50;
const TASK_BYTES: usize = 120;
const SIGNATURE_BYTES: usize = 10;
const STEP_BYTES: usize = 10;
const DEVICE_BYTES: usize = 120;
const SAMPLE_RECORD_BYTES: usize = 410;

/// A thread that failed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Task {
    pub(super) tgid: u32,
    pub(super) tid: u32,
    pub(super) start_boot_ns: u64,
    pub(super) comm: [u8; COMM_BYTES],
    pub(super) cgroup_id: u64,
    pub(super) who: Who,
}

impl Task {
    fn of(record: &Record, who: &Who) -> Self {
        Self {
            tgid: record.tgid,
            tid: record.tid,
            start_boot_ns: record.start_boot_ns,
            comm: record.comm,
            cgroup_id: record.cgroup_id,
            who: who.clone(),
        }
    }
}

/// A chain without its times and task.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Signature {
    pub(super) driver: Box<str>,
    pub(super) steps: Vec<(ProbeId, u16)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct RowKey {
    pub(super) signature: u32,
    pub(super) task: u32,
    pub(super) device_plus_one: u32,
    pub(super) marks: Marks,
}

#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) key: RowKey,
    pub(super) count: u64,
    pub(super) first_boot_ns: u64,
    pub(super) last_boot_ns: u64,
}

/// A table whose entries stand once, in order of first use.
#[derive(Debug)]
pub(super) struct Table<T> {
    places: HashMap<T, u32>,
    pub(super) entries: Vec<T>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            places: HashMap::new(),
            entries: Vec::new(),
        }
    }
}

impl<T: Clone + Eq + std::hash::Hash> Table<T> {
    fn find(&self, entry: &T) -> Option<u32> {
        self.places.get(entry).copied()
    }

    fn add(&mut self, entry: T) -> u32 {
        // The budget of a message keeps this far below 2^32.
        let place = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        self.places.insert(entry.clone(), place);
        self.entries.push(entry);
        place
    }
}

/// All chains of one interval so far.
#[derive(Debug, Default)]
pub struct Aggregate {
    pub(super) rows: Vec<Row>,
    row_places: HashMap<RowKey, usize>,
    pub(super) tasks: Table<Task>,
    pub(super) signatures: Table<Signature>,
    pub(super) devices: Table<Vec<u8>>,
    pub(super) samples: Vec<(usize, Vec<Record>)>,
    /// Each with the place of its task, plus one; 0: no task's.
    pub(super) co_signals: Vec<(CoSignal, u32)>,
    exits: usize,
    pub(super) left_out: u64,
    bytes: usize,
}

impl Aggregate {
    /// Adds a chain. `driver` is the kernel module that drives its device; empty
    /// when it is not known. A new kind of failure that finds no room is counted
    /// as left out; more of a known kind always find room.
    pub fn add(&mut self, chain: &Chain, who: &Who, driver: &str) {
        let Some(outer) = chain.records.last() else {
            return;
        };
        let task = Task::of(outer, who);
        let signature = Signature {
            driver: driver.into(),
            steps: chain.records.iter().map(|r| (r.probe, r.errno)).collect(),
        };
        let device = chain.device().to_vec();
        let Some(key) = self.key(task, signature, device, chain.marks) else {
            self.left_out = self.left_out.saturating_add(1);
            return;
        };
        let (first, last) = (chain.first_boot_ns(), chain.last_boot_ns());
        if let Some(place) = self.row_places.get(&key) {
            let row = &mut self.rows[*place];
            row.count += 1;
            row.first_boot_ns = row.first_boot_ns.min(first);
            row.last_boot_ns = row.last_boot_ns.max(last);
            return;
        }
        let place = self.rows.len();
        self.row_places.insert(key, place);
        self.rows.push(Row {
            key,
            count: 1,
            first_boot_ns: first,
            last_boot_ns: last,
        });
        let sample_bytes = chain.records.len() * SAMPLE_RECORD_BYTES;
        if self.samples.len() < SAMPLES && self.bytes + sample_bytes <= CHAIN_BYTES {
            self.bytes += sample_bytes;
            self.samples.push((place, chain.records.clone()));
        }
    }

    /// Adds a co-signal; false when there was no room.
    pub fn add_co_signal(&mut self, signal: CoSignal) -> bool {
        let room = self.co_signals.len() < CO_SIGNALS;
        if room {
            if !signal.device.is_empty() && self.devices.find(&signal.device).is_none() {
                self.devices.add(signal.device.clone());
            }
            self.co_signals.push((signal, 0));
        }
        room
    }

    /// Adds the end of a task; false when there was no room.
    pub fn add_exit(&mut self, signal: CoSignal, record: &Record, who: &Who) -> bool {
        let task = Task::of(record, who);
        let known = self.tasks.find(&task);
        let bytes = known.map_or(TASK_BYTES + COMM_BYTES + who.told_job().len(), |_| 0);
        let room = self.exits < EXITS
            && self.co_signals.len() < CO_SIGNALS
            && self.bytes + bytes <= CHAIN_BYTES;
        if room {
            self.bytes += bytes;
            self.exits += 1;
            let place = known.unwrap_or_else(|| self.tasks.add(task));
            self.co_signals.push((signal, place.saturating_add(1)));
        }
        room
    }

    /// Kinds of failing calls that came whole to their application and are no part of
    /// normal work: driver and steps of each, once.
    pub fn kinds(&self) -> impl Iterator<Item = (&str, &[(ProbeId, u16)])> {
        let plain = self
            .rows
            .iter()
            .filter(|row| row.key.marks == Marks::default());
        let places: BTreeSet<u32> = plain.map(|row| row.key.signature).collect();
        places.into_iter().filter_map(|place| {
            let place = usize::try_from(place).ok()?;
            let signature = self.signatures.entries.get(place)?;
            Some((&*signature.driver, signature.steps.as_slice()))
        })
    }

    /// cgroups of the tasks, each once or more.
    pub fn cgroup_ids(&self) -> impl Iterator<Item = u64> + '_ {
        self.tasks.entries.iter().map(|t| t.cgroup_id)
    }

    /// Whether nothing failed and nothing was left out.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.co_signals.is_empty() && self.left_out == 0
    }

    pub(super) fn device_plus_one(&self, name: &[u8]) -> u32 {
        self.devices
            .find(&name.to_vec())
            .map_or(0, |place| place + 1)
    }

    /// The row's key with its tables' entries made; none without room for them.
    fn key(
        &mut self,
        task: Task,
        signature: Signature,
        device: Vec<u8>,
        marks: Marks,
    ) -> Option<RowKey> {
        let known_task = self.tasks.find(&task);
        let known_signature = self.signatures.find(&signature);
        let known_device = if device.is_empty() {
            Some(0)
        } else {
            self.devices.find(&device).map(|p| p + 1)
        };
        let known = match (known_signature, known_task, known_device) {
            (Some(signature), Some(task), Some(device_plus_one)) => {
                let key = RowKey {
                    signature,
                    task,
                    device_plus_one,
                    marks,
                };
                if self.row_places.contains_key(&key) {
                    return Some(key);
                }
                0
            }
            _ => cost(
                known_task.is_none(),
                &task,
                known_signature.is_none(),
                &signature,
                known_device.is_none(),
            ),
        };
        let added = ROW_BYTES + known;
        if self.bytes + added > CHAIN_BYTES {
            return None;
        }
        self.bytes += added;
        Some(RowKey {
            task: known_task.unwrap_or_else(|| self.tasks.add(task)),
            signature: known_signature.unwrap_or_else(|| self.signatures.add(signature)),
            device_plus_one: known_device.unwrap_or_else(|| self.devices.add(device) + 1),
            marks,
        })
    }
}

fn cost(
    new_task: bool,
    task: &Task,
    new_signature: bool,
    signature: &Signature,
    new_device: bool,
) -> usize {
    let job_id = task.who.told_job().len();
    let mut bytes = 0;
    if new_task {
        bytes += TASK_BYTES + COMM_BYTES + job_id;
    }
    if new_signature {
        bytes += SIGNATURE_BYTES + signature.driver.len() + signature.steps.len() * STEP_BYTES;
    }
    if new_device {
        bytes += DEVICE_BYTES;
    }
    bytes
}
