//! Failing calls of a snapshot, with the arguments that their samples tell.

use rdmesh_proto::tracer::v1::record_arguments::Verb as Read;
use rdmesh_proto::tracer::v1::{ChainColumns, ChainMark, Mapping, Sample, Snapshot};
use rdmesh_store::ingest::{Chain, Interval};

use crate::ingest::arguments;
use crate::ingest::columns::{Refusal, Table};
use crate::ingest::limits::{RECORDS_MAX, ROWS_MAX};
use crate::ingest::marks::{MOVED, Marks};
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
            ("first_boot_ns", columns.first_boot_ns.len()),
            ("last_boot_ns", columns.last_boot_ns.len()),
            ("marks", columns.marks.len()),
        ],
    )?;
    let mut chains = (0..table.rows())
        .map(|row| chain(&table, columns, row, around))
        .collect::<Result<Vec<_>, Refusal>>()?;
    attach_samples(snapshot, around.tables, &mut chains)?;
    Ok(chains)
}

/// First and last call of a row, nanoseconds of the boot clock.
fn span(table: &Table<'_>, columns: &ChainColumns, row: usize) -> Result<(i64, i64), Refusal> {
    let first_ns = table.long("first_boot_ns", row, columns.first_boot_ns[row])?;
    let last_ns = table.long("last_boot_ns", row, columns.last_boot_ns[row])?;
    if first_ns > last_ns {
        let field = format!("chains.first_boot_ns[{row}]");
        let allowed = "at most last_boot_ns of the same row";
        return Err(Refusal::value(field, first_ns, allowed));
    }
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
    let (first_ns, last_ns) = span(table, columns, row)?;
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

/// A kind of mapping of a newer tracer is left out of the arguments, and said.
fn mark_unknown_mappings(sample: &Sample, chain: &mut Chain) {
    let mut marks = Marks::new(&chain.marks);
    let arguments = sample.records.iter().filter_map(|r| r.arguments.as_ref());
    for arguments in arguments {
        if let Some(Read::RegMr(read)) = &arguments.verb {
            marks.known::<Mapping>("mapping", read.mapping);
            marks.known::<Mapping>("mapping of the end", read.mapping_of_end);
        }
    }
    chain.marks = marks.into_vec();
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
        mark_unknown_mappings(sample, chain);
        if chain.arguments.is_none() {
            chain.arguments = arguments::merged(sample);
        }
    }
    Ok(())
}
