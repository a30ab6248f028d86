//! Makes the message of one interval.

use rdmesh_proto::common::v1::ClockPair;
use rdmesh_proto::tracer::v1::{Heartbeat, Snapshot};

use super::aggregate::{Aggregate, Row, Signature, Task};
use super::counters::{Grown, Reported};
use super::hidden::Hidden;
use super::tables::Tables;
use crate::counters::Counters;
use crate::host::Devices;
use crate::identity::Registry;
use crate::record::ProbeId;
use crate::resolve::Report;
use rdmesh_proto::tracer::v1 as wire;

/// Bytes that counters may take in one message. All of (probe, errno) always fit
/// (4,096 rows of at most 30 bytes); of (probe, errno, cgroup) what is left, and
/// the rest goes with the next snapshot.
const COUNTER_BYTES: usize = 512 << 10;
const COUNTER_ROW_BYTES: usize = 35;

/// What a message takes from its surroundings.
#[derive(Debug)]
pub struct Surroundings<'a> {
    /// The probes.
    pub report: &'a Report,
    /// The devices.
    pub devices: &'a Devices,
    /// Tasks and cgroups.
    pub registry: &'a mut Registry,
    /// Id of the inventory in force.
    pub inventory_id: &'a str,
    /// Snapshots that the uplink gave up since the run began.
    pub snapshots_given_up: u64,
}

/// The part of the boot clock that a message is about, nanoseconds, half open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// First nanosecond.
    pub start_boot_ns: u64,
    /// One behind the last.
    pub end_boot_ns: u64,
}

/// The message of one interval.
#[derive(Clone, Debug, PartialEq)]
pub enum Made {
    /// Something failed, or a counter grew.
    Snapshot(Box<Snapshot>),
    /// Nothing failed.
    Heartbeat(Heartbeat),
}

/// Makes the messages of one run: each interval begins where the last one ended.
#[derive(Debug)]
pub struct Maker {
    reported: Reported,
    start_boot_ns: u64,
    /// Probes that the kernel hid calls from in the interval before: a chain may have
    /// waited for its outer record since then.
    hid_before: Vec<ProbeId>,
}

impl Maker {
    /// The first interval begins at `start_boot_ns`.
    #[must_use]
    pub fn new(start_boot_ns: u64) -> Self {
        Self {
            reported: Reported::default(),
            start_boot_ns,
            hid_before: Vec::new(),
        }
    }

    /// Makes the message of the interval that ends at `clock`. Intervals live on
    /// the boot clock alone, so that a jump of the time of day changes only the
    /// pair that is sent with them. Chains that waited for their outer record may
    /// have begun before the interval.
    pub fn make(
        &mut self,
        clock: ClockPair,
        aggregate: &Aggregate,
        counters: &Counters,
        around: &mut Surroundings<'_>,
    ) -> Made {
        let interval = Interval {
            start_boot_ns: self.start_boot_ns,
            end_boot_ns: clock.boottime_ns.max(self.start_boot_ns),
        };
        self.start_boot_ns = interval.end_boot_ns;
        let grown = Growth::of(&self.reported, counters, around.report);
        let hid: Vec<ProbeId> = grown.unseen.iter().map(|g| g.key).collect();
        let mut hidden = hid.clone();
        hidden.append(&mut self.hid_before);
        self.hid_before = hid;
        if aggregate.is_empty() && grown.is_empty() {
            return Made::Heartbeat(Heartbeat {
                clock: Some(clock),
                interval_start_boot_ns: interval.start_boot_ns,
                interval_end_boot_ns: interval.end_boot_ns,
                inventory_id: around.inventory_id.to_owned(),
                snapshots_given_up: around.snapshots_given_up,
            });
        }
        let ids = aggregate
            .cgroup_ids()
            .chain(grown.cgroup.iter().map(|g| g.key.2));
        around.registry.search_cgroups(ids);
        let mut tables = Tables::new(around.report, around.devices, around.registry);
        let mut snapshot = Snapshot {
            clock: Some(clock),
            interval_start_boot_ns: interval.start_boot_ns,
            interval_end_boot_ns: interval.end_boot_ns,
            inventory_id: around.inventory_id.to_owned(),
            snapshots_given_up: around.snapshots_given_up,
            chains_left_out: aggregate.left_out,
            ..Snapshot::default()
        };
        let hidden = Hidden::of(around.report, &hidden);
        chains(&mut snapshot, &mut tables, aggregate, &hidden);
        self.counters(&mut snapshot, &mut tables, &grown);
        tables.finish(&mut snapshot);
        Made::Snapshot(Box::new(snapshot))
    }

    fn counters(&mut self, snapshot: &mut Snapshot, tables: &mut Tables<'_>, grown: &Growth) {
        let mut room = COUNTER_BYTES;
        let mut take = |tables: &Tables<'_>| {
            let fits = room >= COUNTER_ROW_BYTES && tables.has_room();
            room = room.saturating_sub(COUNTER_ROW_BYTES);
            fits
        };
        let mut columns = wire::CounterColumns::default();
        for row in &grown.errno {
            if !take(tables) {
                break;
            }
            columns.probe.push(tables.probe(row.key.0));
            columns.errno.push(u32::from(row.key.1));
            columns.delta.push(row.delta);
            columns.total.push(row.total);
            self.reported.note_errno(row);
        }
        snapshot.counters = Some(columns);
        let losses = |tables: &mut Tables<'_>, rows: &[Grown<ProbeId>]| {
            let mut columns = wire::ProbeCountColumns::default();
            for row in rows {
                columns.probe.push(tables.probe(row.key));
                columns.delta.push(row.delta);
                columns.total.push(row.total);
            }
            Some(columns).filter(|c| !c.probe.is_empty())
        };
        snapshot.overflow = losses(tables, &grown.overflow);
        snapshot.drops = losses(tables, &grown.drops);
        snapshot.unseen = losses(tables, &grown.unseen);
        grown
            .overflow
            .iter()
            .for_each(|row| self.reported.note_overflow(row));
        grown
            .drops
            .iter()
            .for_each(|row| self.reported.note_drops(row));
        grown
            .unseen
            .iter()
            .for_each(|row| self.reported.note_unseen(row));
        let mut columns = wire::CgroupCounterColumns::default();
        for row in &grown.cgroup {
            if !take(tables) {
                break;
            }
            columns.probe.push(tables.probe(row.key.0));
            columns.errno.push(u32::from(row.key.1));
            columns.cgroup.push(tables.cgroup(row.key.2));
            columns.delta.push(row.delta);
            columns.total.push(row.total);
            self.reported.note_cgroup(row);
        }
        snapshot.cgroup_counters = Some(columns);
    }
}

/// Counters that grew since they were last reported.
struct Growth {
    errno: Vec<Grown<(ProbeId, u16)>>,
    cgroup: Vec<Grown<(ProbeId, u16, u64)>>,
    overflow: Vec<Grown<ProbeId>>,
    drops: Vec<Grown<ProbeId>>,
    unseen: Vec<Grown<ProbeId>>,
}

impl Growth {
    /// Events are no failures: they are told as co-signals and not counted here.
    fn of(reported: &Reported, counters: &Counters, report: &Report) -> Self {
        let fails = |probe: ProbeId| report.probe(probe).is_none_or(|p| !p.hook.is_event());
        let mut growth = Self {
            errno: reported.errno(counters),
            cgroup: reported.cgroup(counters),
            overflow: reported.overflow(counters),
            drops: reported.drops(counters),
            unseen: reported.unseen(counters),
        };
        growth.errno.retain(|g| g.key.1 != 0 && fails(g.key.0));
        growth.cgroup.retain(|g| g.key.1 != 0 && fails(g.key.0));
        growth
    }

    fn is_empty(&self) -> bool {
        self.errno.is_empty()
            && self.cgroup.is_empty()
            && self.overflow.is_empty()
            && self.drops.is_empty()
            && self.unseen.is_empty()
    }
}

fn chains(
    snapshot: &mut Snapshot,
    tables: &mut Tables<'_>,
    aggregate: &Aggregate,
    hidden: &Hidden<'_>,
) {
    let mut signatures = wire::SignatureColumns::default();
    for Signature { driver, steps } in &aggregate.signatures.entries {
        signatures.driver.push(tables.string(driver.as_bytes()));
        signatures
            .steps
            .push(u32::try_from(steps.len()).unwrap_or(u32::MAX));
        for (probe, errno) in steps {
            signatures.step_probe.push(tables.probe(*probe));
            signatures.step_errno.push(u32::from(*errno));
        }
    }
    snapshot.signatures = Some(signatures);
    let mut tasks = wire::TaskColumns::default();
    for task in &aggregate.tasks.entries {
        push_task(&mut tasks, tables, task);
    }
    snapshot.tasks = Some(tasks);
    let mut devices = wire::DeviceColumns::default();
    for name in &aggregate.devices.entries {
        tables.push_device(&mut devices, name);
    }
    snapshot.devices = Some(devices);
    let mut chains = wire::ChainColumns::default();
    for Row {
        key,
        count,
        first_boot_ns,
        last_boot_ns,
    } in &aggregate.rows
    {
        chains.signature.push(key.signature);
        chains.task.push(key.task);
        chains.device_plus_one.push(key.device_plus_one);
        chains.count.push(*count);
        // Of the same clock, well below 2^63.
        let after = first_boot_ns.wrapping_sub(snapshot.interval_start_boot_ns);
        chains.first_after_start_ns.push(after.cast_signed());
        chains
            .span_ns
            .push(last_boot_ns.saturating_sub(*first_boot_ns));
        let steps = aggregate.signatures.entries.get(key.signature as usize);
        let marks = hidden.doubt(key.marks, steps.map_or(&[][..], |s| &s.steps));
        chains.marks.push(super::words::mark_bits(marks));
    }
    snapshot.chains = Some(chains);
    let mut samples = wire::SampleColumns::default();
    for (row, records) in &aggregate.samples {
        samples.chain.push(u32::try_from(*row).unwrap_or(u32::MAX));
        let count = u32::try_from(records.len()).unwrap_or(u32::MAX);
        samples.records.push(count);
        let first = aggregate.rows.get(*row).map_or(0, |row| row.first_boot_ns);
        for record in records {
            tables.push_record(&mut samples, record, first);
        }
    }
    snapshot.samples = Some(samples).filter(|s| !s.chain.is_empty());
    let mut signals = wire::CoSignalColumns::default();
    for (signal, task_plus_one) in &aggregate.co_signals {
        signals.boot_ns.push(signal.boot_ns);
        signals.kind.push(signal.kind.into());
        signals.independent.push(signal.independent);
        signals.name.push(tables.string(signal.name.as_bytes()));
        signals.detail.push(tables.string(signal.detail.as_bytes()));
        signals
            .device_plus_one
            .push(aggregate.device_plus_one(&signal.device));
        signals.task_plus_one.push(*task_plus_one);
    }
    snapshot.co_signals = Some(signals).filter(|s| !s.boot_ns.is_empty());
}

fn push_task(tasks: &mut wire::TaskColumns, tables: &mut Tables<'_>, task: &Task) {
    let end = task
        .comm
        .iter()
        .position(|b| *b == 0)
        .unwrap_or(task.comm.len());
    let attempt = task.who.attempt.as_ref();
    tasks.tgid.push(task.tgid);
    tasks.tid.push(task.tid);
    tasks.start_boot_ns.push(task.start_boot_ns);
    tasks.comm.push(tables.string(&task.comm[..end]));
    tasks.cgroup.push(tables.cgroup(task.cgroup_id));
    tasks.job_id.push(tables.string(task.who.told_job()));
    tasks.requeue.push(attempt.map_or(0, |a| a.requeue));
    tasks.restart.push(attempt.map_or(0, |a| a.restart));
    tasks.rank.push(task.who.rank.unwrap_or(-1));
    tasks.local_rank.push(task.who.local_rank.unwrap_or(-1));
    tasks
        .source
        .push(super::words::source(task.who.source).into());
}
