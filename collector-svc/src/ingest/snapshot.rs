//! A snapshot, validated and turned into rows.

use rdmesh_proto::tracer::v1::{
    CgroupCounterColumns, ChainColumns, ChainMark, CoSignalColumns, CounterColumns,
    ProbeCountColumns, Snapshot,
};
use rdmesh_store::ingest::{
    Chain, CoSignal, Count, DropKind, Dropped, Interval, Snapshot as Stored,
};
use time::OffsetDateTime;

use crate::clock::Reading;
use crate::ingest::arguments;
use crate::ingest::columns::{Refusal, Table, Text, count, long, shown};
use crate::ingest::limits::{INVENTORY_ID_MAX_BYTES, RECORDS_MAX, ROWS_MAX};
use crate::ingest::tables::Tables;
use crate::times;

/// When things happened that a host told in its boot clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeline {
    /// Collector time at which the boot clock stood at 0, nanoseconds.
    pub(crate) boot_epoch_ns: i64,
    /// Wall clock minus boot clock of the host, nanoseconds.
    pub(crate) real_minus_boot_ns: i64,
    /// When the item came.
    pub(crate) received_at: OffsetDateTime,
}

/// A time that was placed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placed {
    pub(crate) at: OffsetDateTime,
    /// It was too far from the receipt, and stands at the receipt.
    pub(crate) moved: bool,
}

/// What a row says whose time was too far off.
pub(crate) const MOVED_MARK: &str =
    "its time is more than 35 days before or an hour after its receipt; placed at the receipt";

impl Timeline {
    /// Collector time of a boot clock value. A row too far from its receipt would make
    /// partitions without end: it stands at its receipt instead and says so.
    pub(crate) fn place(&self, boot_ns: i64) -> Placed {
        let told = self
            .boot_epoch_ns
            .checked_add(boot_ns)
            .and_then(times::from_unix_ns);
        self.keep(told)
    }

    /// Collector time of a host's wall clock value.
    pub(crate) fn place_wall(&self, at: OffsetDateTime) -> Placed {
        let boot_ns = times::to_unix_ns(at).saturating_sub(self.real_minus_boot_ns);
        self.place(boot_ns)
    }

    fn keep(&self, told: Option<OffsetDateTime>) -> Placed {
        let earliest = self.received_at - rdmesh_store::FURTHEST_BACK;
        let latest = self.received_at + rdmesh_store::FURTHEST_AHEAD;
        match told.filter(|at| (earliest..=latest).contains(at)) {
            Some(at) => Placed { at, moved: false },
            None => Placed {
                at: self.received_at,
                moved: true,
            },
        }
    }

    /// The host's own time of a boot clock value; the receipt when it is beyond the
    /// calendar.
    fn host_time(&self, boot_ns: i64) -> OffsetDateTime {
        self.real_minus_boot_ns
            .checked_add(boot_ns)
            .and_then(times::from_unix_ns)
            // What Postgres holds ends later, what people mean ends here.
            .filter(|at| at.year() >= 1970)
            .unwrap_or(self.received_at)
    }
}

/// The clocks of an item.
pub(crate) fn reading(
    clock: Option<&rdmesh_proto::common::v1::ClockPair>,
) -> Result<Reading, Refusal> {
    let clock = clock.ok_or_else(|| Refusal::missing("clock"))?;
    Ok(Reading {
        boot_ns: long("clock.boottime_ns", clock.boottime_ns)?,
        real_ns: long("clock.realtime_ns", clock.realtime_ns)?,
    })
}

/// An interval of the boot clock.
pub(crate) fn interval(start: u64, end: u64) -> Result<Interval, Refusal> {
    let from_boot_ns = long("interval_start_boot_ns", start)?;
    let to_boot_ns = long("interval_end_boot_ns", end)?;
    if from_boot_ns > to_boot_ns {
        let allowed = "at most interval_end_boot_ns";
        return Err(Refusal::value("interval_start_boot_ns", start, allowed));
    }
    Ok(Interval {
        from_boot_ns,
        to_boot_ns,
    })
}

/// The id of an inventory.
pub(crate) fn inventory_id(field: &str, id: &str) -> Result<String, Refusal> {
    if id.len() > INVENTORY_ID_MAX_BYTES || id.contains(char::is_control) {
        return Err(Refusal::value(
            field,
            format!("{} bytes", id.len()),
            "at most 128 bytes, a digest in hexadecimal",
        ));
    }
    Ok(id.to_owned())
}

/// Validates a snapshot and makes its rows. `marks` go onto each of them; `body` is
/// the exact message, compressed.
pub(crate) fn rows(
    snapshot: &Snapshot,
    timeline: &Timeline,
    marks: &[String],
    body: Vec<u8>,
) -> Result<Stored, Refusal> {
    let interval = interval(
        snapshot.interval_start_boot_ns,
        snapshot.interval_end_boot_ns,
    )?;
    let tables = Tables::try_from(snapshot)?;
    let started = timeline.place(interval.from_boot_ns);
    let ended = timeline.place(interval.to_boot_ns);
    let mut marks = marks.to_vec();
    if started.moved || ended.moved {
        marks.push(MOVED_MARK.to_owned());
    }
    let empty = ChainColumns::default();
    let columns = snapshot.chains.as_ref().unwrap_or(&empty);
    let mut chains = chains(columns, &tables, timeline, &marks)?;
    attach_samples(snapshot, &tables, &mut chains)?;
    let mut counts = counters(snapshot.counters.as_ref(), &tables)?;
    counts.extend(cgroup_counters(snapshot.cgroup_counters.as_ref(), &tables)?);
    let mut drops = losses("drops", DropKind::Ring, snapshot.drops.as_ref(), &tables)?;
    // Not kept in rows of its own; the exact message is.
    losses("unseen", DropKind::Ring, snapshot.unseen.as_ref(), &tables)?;
    drops.extend(losses(
        "overflow",
        DropKind::CounterMap,
        snapshot.overflow.as_ref(),
        &tables,
    )?);
    Ok(Stored {
        interval,
        started_at: started.at,
        ended_at: ended.at,
        inventory_id: inventory_id("inventory_id", &snapshot.inventory_id)?,
        given_up: count("snapshots_given_up", snapshot.snapshots_given_up)?,
        chains_left_out: count("chains_left_out", snapshot.chains_left_out)?,
        chains,
        counts,
        drops,
        co_signals: co_signals(snapshot.co_signals.as_ref(), &tables, timeline)?,
        marks,
        body,
    })
}

fn chains(
    columns: &ChainColumns,
    tables: &Tables,
    timeline: &Timeline,
    marks: &[String],
) -> Result<Vec<Chain>, Refusal> {
    let table = Table::new("chains", ROWS_MAX, columns.signature.len())?;
    table.columns(
        "signature",
        &[
            ("task", columns.task.len()),
            ("device_plus_one", columns.device_plus_one.len()),
            ("count", columns.count.len()),
            ("first_boot_ns", columns.first_boot_ns.len()),
            ("last_boot_ns", columns.last_boot_ns.len()),
            ("marks", columns.marks.len()),
        ],
    )?;
    (0..table.rows())
        .map(|row| chain(&table, columns, row, tables, timeline, marks))
        .collect()
}

fn chain(
    table: &Table<'_>,
    columns: &ChainColumns,
    row: usize,
    tables: &Tables,
    timeline: &Timeline,
    marks: &[String],
) -> Result<Chain, Refusal> {
    let target = ("signatures", tables.signatures.len());
    let signature =
        &tables.signatures[table.index("signature", row, columns.signature[row], target)?];
    let target = ("tasks", tables.tasks.len());
    let task = &tables.tasks[table.index("task", row, columns.task[row], target)?];
    let target = ("devices", tables.devices.len());
    let device = table
        .index_plus_one("device_plus_one", row, columns.device_plus_one[row], target)?
        .map(|index| &tables.devices[index]);
    let calls = table.count("count", row, columns.count[row])?;
    if calls == 0 {
        return Err(Refusal::value(
            format!("chains.count[{row}]"),
            0,
            "1 or more",
        ));
    }
    let first_ns = table.long("first_boot_ns", row, columns.first_boot_ns[row])?;
    let last_ns = table.long("last_boot_ns", row, columns.last_boot_ns[row])?;
    if first_ns > last_ns {
        let field = format!("chains.first_boot_ns[{row}]");
        return Err(Refusal::value(
            field,
            first_ns,
            "at most last_boot_ns of the same row",
        ));
    }
    let (first, last) = (timeline.place(first_ns), timeline.place(last_ns));
    let cgroup = &tables.cgroups[task.cgroup];
    let mut marks = marks.to_vec();
    if (first.moved || last.moved) && !marks.iter().any(|mark| mark == MOVED_MARK) {
        marks.push(MOVED_MARK.to_owned());
    }
    mark_changed(&mut marks, "comm", &task.comm);
    mark_changed(&mut marks, "cgroup path", &cgroup.path);
    marks.extend(task.mark.clone());
    let has = |mark: ChainMark| columns.marks[row] & mark as u32 != 0;
    Ok(Chain {
        first_at: first.at,
        // A first time that was moved must not stand after the last.
        last_at: last.at.max(first.at),
        host_first_at: timeline.host_time(first_ns),
        host_last_at: timeline.host_time(last_ns),
        count: calls,
        verb: signature.verb,
        steps: signature.steps.clone(),
        driver: signature.driver.clone(),
        device: device.map(|d| d.name.clone()).unwrap_or_default(),
        netdev: device.map(|d| d.netdev.clone()).unwrap_or_default(),
        pci_address: device.map(|d| d.pci.clone()).unwrap_or_default(),
        tgid: task.tgid,
        tid: task.tid,
        comm: task.comm.text.clone(),
        cgroup_path: cgroup.path.text.clone(),
        identity: task.identity.clone(),
        rank: task.rank,
        local_rank: task.local_rank,
        expected: has(ChainMark::Expected),
        swallowed: has(ChainMark::Swallowed),
        incomplete: has(ChainMark::Incomplete),
        marks,
        arguments: None,
    })
}

fn mark_changed(marks: &mut Vec<String>, what: &str, text: &Text) {
    if text.changed {
        marks.push(format!(
            "{what} was not storable text (not UTF-8, NUL, or too long); it was changed"
        ));
    }
}

/// The first sample of each chain tells its arguments.
fn attach_samples(
    snapshot: &Snapshot,
    tables: &Tables,
    chains: &mut [Chain],
) -> Result<(), Refusal> {
    let table = Table::new("samples", ROWS_MAX, snapshot.samples.len())?;
    for (row, sample) in snapshot.samples.iter().enumerate() {
        let chain = table.index("chain", row, sample.chain, ("chains", chains.len()))?;
        let records = Table::new("samples.records", RECORDS_MAX, sample.records.len())?;
        for (step, record) in sample.records.iter().enumerate() {
            records.index("probe", step, record.probe, ("probes", tables.probes.len()))?;
            for symbol in &record.stack_symbol {
                records.index(
                    "stack_symbol",
                    step,
                    *symbol,
                    ("strings", tables.strings.len()),
                )?;
            }
        }
        let chain = &mut chains[chain];
        if chain.arguments.is_none() {
            chain.arguments = arguments::merged(sample);
        }
    }
    Ok(())
}

fn counters(columns: Option<&CounterColumns>, tables: &Tables) -> Result<Vec<Count>, Refusal> {
    let Some(columns) = columns else {
        return Ok(Vec::new());
    };
    let table = Table::new("counters", ROWS_MAX, columns.probe.len())?;
    table.columns(
        "probe",
        &[
            ("errno", columns.errno.len()),
            ("delta", columns.delta.len()),
            ("total", columns.total.len()),
        ],
    )?;
    (0..table.rows())
        .map(|row| {
            let target = ("probes", tables.probes.len());
            let probe = &tables.probes[table.index("probe", row, columns.probe[row], target)?];
            Ok(Count {
                function: probe.function.clone(),
                module: probe.module.clone(),
                layer: probe.layer,
                errno: table.errno("errno", row, columns.errno[row])?,
                cgroup: None,
                delta: table.count("delta", row, columns.delta[row])?,
                total: table.count("total", row, columns.total[row])?,
            })
        })
        .collect()
}

fn cgroup_counters(
    columns: Option<&CgroupCounterColumns>,
    tables: &Tables,
) -> Result<Vec<Count>, Refusal> {
    let Some(columns) = columns else {
        return Ok(Vec::new());
    };
    let table = Table::new("cgroup_counters", ROWS_MAX, columns.probe.len())?;
    table.columns(
        "probe",
        &[
            ("errno", columns.errno.len()),
            ("cgroup", columns.cgroup.len()),
            ("delta", columns.delta.len()),
            ("total", columns.total.len()),
        ],
    )?;
    (0..table.rows())
        .map(|row| {
            let target = ("probes", tables.probes.len());
            let probe = &tables.probes[table.index("probe", row, columns.probe[row], target)?];
            let target = ("cgroups", tables.cgroups.len());
            let cgroup =
                &tables.cgroups[table.index("cgroup", row, columns.cgroup[row], target)?];
            Ok(Count {
                function: probe.function.clone(),
                module: probe.module.clone(),
                layer: probe.layer,
                errno: table.errno("errno", row, columns.errno[row])?,
                cgroup: Some((cgroup.path.text.clone(), cgroup.identity.clone())),
                delta: table.count("delta", row, columns.delta[row])?,
                total: table.count("total", row, columns.total[row])?,
            })
        })
        .collect()
}

fn losses(
    name: &str,
    kind: DropKind,
    columns: Option<&ProbeCountColumns>,
    tables: &Tables,
) -> Result<Vec<Dropped>, Refusal> {
    let Some(columns) = columns else {
        return Ok(Vec::new());
    };
    let table = Table::new(name, ROWS_MAX, columns.probe.len())?;
    table.columns(
        "probe",
        &[
            ("delta", columns.delta.len()),
            ("total", columns.total.len()),
        ],
    )?;
    (0..table.rows())
        .map(|row| {
            let target = ("probes", tables.probes.len());
            let probe = &tables.probes[table.index("probe", row, columns.probe[row], target)?];
            Ok(Dropped {
                kind,
                function: probe.function.clone(),
                module: probe.module.clone(),
                layer: probe.layer,
                delta: table.count("delta", row, columns.delta[row])?,
                total: table.count("total", row, columns.total[row])?,
            })
        })
        .collect()
}

fn co_signals(
    columns: Option<&CoSignalColumns>,
    tables: &Tables,
    timeline: &Timeline,
) -> Result<Vec<CoSignal>, Refusal> {
    let Some(columns) = columns else {
        return Ok(Vec::new());
    };
    let table = Table::new("co_signals", ROWS_MAX, columns.boot_ns.len())?;
    table.columns(
        "boot_ns",
        &[
            ("kind", columns.kind.len()),
            ("independent", columns.independent.len()),
            ("name", columns.name.len()),
            ("detail", columns.detail.len()),
            ("device_plus_one", columns.device_plus_one.len()),
        ],
    )?;
    (0..table.rows())
        .map(|row| {
            let strings = ("strings", tables.strings.len());
            let text = |column: &str, value: u32| -> Result<String, Refusal> {
                let index = table.index(column, row, value, strings)?;
                Ok(shown(&tables.strings[index].text))
            };
            let devices = ("devices", tables.devices.len());
            let device = table
                .index_plus_one(
                    "device_plus_one",
                    row,
                    columns.device_plus_one[row],
                    devices,
                )?
                .map(|index| tables.devices[index].name.clone());
            let boot_ns = table.long("boot_ns", row, columns.boot_ns[row])?;
            Ok(CoSignal {
                at: timeline.place(boot_ns).at,
                kind: i16::try_from(columns.kind[row]).unwrap_or(0),
                independent: columns.independent[row],
                name: text("name", columns.name[row])?,
                detail: text("detail", columns.detail[row])?,
                device: device.unwrap_or_default(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdmesh_store::FURTHEST_AHEAD;
    use std::time::Duration;
    use time::macros::datetime;

    const RECEIVED: OffsetDateTime = datetime!(2026-11-25 12:00 UTC);

    fn timeline() -> Timeline {
        let received_ns = times::to_unix_ns(RECEIVED);
        Timeline {
            boot_epoch_ns: received_ns - 1_000_000_000_000,
            real_minus_boot_ns: received_ns - 1_000_000_000_000 + 3_600_000_000_000,
            received_at: RECEIVED,
        }
    }

    #[test]
    fn events_stand_where_the_boot_clock_puts_them_whatever_the_wall_clock_says() {
        let placed = timeline().place(999_000_000_000);
        assert_eq!(
            (placed.at, placed.moved),
            (RECEIVED - Duration::from_secs(1), false)
        );
        let hour = Duration::from_secs(3600);
        assert_eq!(timeline().host_time(1_000_000_000_000), RECEIVED + hour);
        assert_eq!(timeline().place_wall(RECEIVED + hour).at, RECEIVED);
    }

    #[test]
    fn what_is_too_far_off_stands_at_its_receipt() {
        let ahead_ns = i64::try_from(FURTHEST_AHEAD.as_nanos()).unwrap();
        let inside = timeline().place(1_000_000_000_000 + ahead_ns);
        assert!(!inside.moved);
        for boot_ns in [
            1_000_000_000_000 + ahead_ns + 1,
            i64::MAX,
            -4_000_000_000_000_000,
        ] {
            let placed = timeline().place(boot_ns);
            assert_eq!((placed.at, placed.moved), (RECEIVED, true), "{boot_ns}");
        }
    }
}
