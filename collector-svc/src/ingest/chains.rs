//! Failing calls of a snapshot.

use rdmesh_proto::tracer::v1::{ChainColumns, ChainMark, Snapshot};
use rdmesh_store::ingest::{Chain, Interval};

use crate::ingest::columns::{Refusal, Table};
use crate::ingest::limits::ROWS_MAX;
use crate::ingest::marks::{MOVED, Marks};
use crate::ingest::samples;
use crate::ingest::tables::Tables;
use crate::ingest::timeline::Timeline;

/// Bits of ChainColumns.marks that this collector knows.
const KNOWN_BITS: u32 =
    ChainMark::Expected as u32 | ChainMark::Swallowed as u32 | ChainMark::Incomplete as u32;

/// A neighbour did not answer (include/uapi/asm-generic/errno.h).
const ETIMEDOUT: i32 = 110;

/// What the chains of a snapshot share.
pub(crate) struct Around<'a> {
    pub(crate) tables: &'a Tables,
    pub(crate) timeline: &'a Timeline,
    pub(crate) interval: Interval,
    /// What is odd about the whole snapshot.
    pub(crate) marks: &'a Marks,
}

/// The chains, in the order in which they were sent.
pub(crate) fn chains(snapshot: &Snapshot, around: &Around<'_>) -> Result<Vec<Chain>, Refusal> {
    let empty = ChainColumns::default();
    let columns = snapshot.chains.as_ref().unwrap_or(&empty);
    let table = Table::new("chains", ROWS_MAX, columns.signature.len())?;
    table.columns(
        "signature",
        &[
            ("task", columns.task.len()),
            ("device_plus_one", columns.device_plus_one.len()),
            ("count", columns.count.len()),
            ("first_after_start_ns", columns.first_after_start_ns.len()),
            ("span_ns", columns.span_ns.len()),
            ("marks", columns.marks.len()),
        ],
    )?;
    let mut chains = (0..table.rows())
        .map(|row| chain(&table, columns, row, around))
        .collect::<Result<Vec<_>, Refusal>>()?;
    samples::attach(snapshot, around.tables, &mut chains)?;
    Ok(chains)
}

/// First and last call of a row of an interval that begins at `start_ns`, nanoseconds of the
/// boot clock.
fn span(columns: &ChainColumns, row: usize, start_ns: i64) -> Result<(i64, i64), Refusal> {
    let (after, span) = (columns.first_after_start_ns[row], columns.span_ns[row]);
    let first = start_ns.checked_add(after).filter(|first| *first >= 0);
    let Some(first_ns) = first else {
        let field = format!("chains.first_after_start_ns[{row}]");
        let allowed = "a time from the boot of the host on";
        return Err(Refusal::value(field, after, allowed));
    };
    let Some(last_ns) = first_ns.checked_add_unsigned(span) else {
        let field = format!("chains.span_ns[{row}]");
        let allowed = "a last call that is at most 9223372036854775807 ns after the boot";
        return Err(Refusal::value(field, span, allowed));
    };
    Ok((first_ns, last_ns))
}

fn chain(
    table: &Table<'_>,
    columns: &ChainColumns,
    row: usize,
    around: &Around<'_>,
) -> Result<Chain, Refusal> {
    let Around {
        tables, timeline, ..
    } = around;
    let target = ("signatures", tables.signatures.len());
    let signature =
        &tables.signatures[table.index("signature", row, columns.signature[row], target)?];
    let target = ("tasks", tables.tasks.len());
    let task = &tables.tasks[table.index("task", row, columns.task[row], target)?];
    let target = ("devices", tables.devices.len());
    let device = table
        .index_plus_one("device_plus_one", row, columns.device_plus_one[row], target)?
        .map(|index| &tables.devices[index]);
    let calls = table.positive("count", row, columns.count[row])?;
    let (first_ns, last_ns) = span(columns, row, around.interval.from_boot_ns)?;
    let (first, last) = (timeline.place(first_ns), timeline.place(last_ns));
    let cgroup = &tables.cgroups[task.cgroup];
    let mut marks = around.marks.clone();
    if first.moved || last.moved {
        marks.add(MOVED);
    }
    let interval = (around.interval.from_boot_ns, around.interval.to_boot_ns);
    marks.interval((first_ns, last_ns), interval);
    if calls == 1 {
        let waited = signature.steps.iter().any(|step| step.errno == ETIMEDOUT);
        marks.one_call((first_ns, last_ns), waited);
    }
    let odd = [&signature.odd, &task.odd, &cgroup.odd];
    odd.into_iter().for_each(|odd| marks.add_all(odd));
    if let Some(device) = device {
        marks.add_all(&device.odd);
    }
    let bits = columns.marks[row];
    if bits & !KNOWN_BITS != 0 {
        marks.unknown("mark", bits & !KNOWN_BITS);
    }
    let has = |mark: ChainMark| bits & mark as u32 != 0;
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
        comm: task.comm.clone(),
        cgroup_path: cgroup.path.text.clone(),
        identity: task.identity.clone(),
        rank: task.rank,
        local_rank: task.local_rank,
        expected: has(ChainMark::Expected),
        swallowed: has(ChainMark::Swallowed),
        incomplete: has(ChainMark::Incomplete),
        marks: marks.into_vec(),
        arguments: None,
    })
}
