//! Full records of failing calls: what the kernel was asked, for the rows of their chains.

use std::ops::Range;

use rdmesh_proto::tracer::v1::record_arguments::Verb as Read;
use rdmesh_proto::tracer::v1::{Mapping, RecordArguments, SampleColumns, Snapshot, StackColumns};
use rdmesh_store::ingest::Chain;

use crate::ingest::arguments;
use crate::ingest::columns::{Refusal, Table};
use crate::ingest::limits::{RECORDS_MAX, ROWS_MAX};
use crate::ingest::marks::Marks;
use crate::ingest::tables::Tables;

/// The first sample of each chain tells its arguments.
pub(crate) fn attach(
    snapshot: &Snapshot,
    tables: &Tables,
    chains: &mut [Chain],
) -> Result<(), Refusal> {
    let stacks = stacks(snapshot.stacks.as_ref(), tables)?;
    let Some(columns) = &snapshot.samples else {
        return Ok(());
    };
    let table = Table::new("samples", ROWS_MAX, columns.chain.len())?;
    table.columns("chain", &[("records", columns.records.len())])?;
    let records = Table::new("samples", ROWS_MAX, columns.after_first_ns.len())?;
    records.columns(
        "after_first_ns",
        &[
            ("probe", columns.probe.len()),
            ("errno", columns.errno.len()),
            ("stack_plus_one", columns.stack_plus_one.len()),
            ("arguments_plus_one", columns.arguments_plus_one.len()),
        ],
    )?;
    for row in 0..records.rows() {
        let probe = columns.probe[row];
        records.index("probe", row, probe, ("probes", tables.probes.len()))?;
        let stack = columns.stack_plus_one[row];
        records.index_plus_one("stack_plus_one", row, stack, ("stacks", stacks))?;
    }
    let mut next = 0;
    for row in 0..table.rows() {
        let chain = columns.chain[row];
        let chain = table.index("chain", row, chain, ("chains", chains.len()))?;
        let own = own_records(columns, row, next)?;
        next = own.end;
        attach_one(columns, own, &records, &mut chains[chain])?;
    }
    if next != records.rows() {
        let allowed = "as many as the samples have together (samples.records)";
        return Err(Refusal::value(
            "samples.after_first_ns",
            records.rows(),
            allowed,
        ));
    }
    Ok(())
}

/// How many stacks there are; each of their frames is looked at.
fn stacks(columns: Option<&StackColumns>, tables: &Tables) -> Result<usize, Refusal> {
    let Some(columns) = columns else {
        return Ok(0);
    };
    let table = Table::new("stacks", ROWS_MAX, columns.frames.len())?;
    let frames: u64 = columns.frames.iter().map(|frames| u64::from(*frames)).sum();
    if usize::try_from(frames) != Ok(columns.address.len()) {
        let allowed = "as many as the stacks have together (stacks.frames)";
        return Err(Refusal::value(
            "stacks.address",
            columns.address.len(),
            allowed,
        ));
    }
    if !columns.symbol.is_empty() {
        let of_frames = Table::new("stacks", usize::MAX, columns.address.len())?;
        of_frames.columns("address", &[("symbol", columns.symbol.len())])?;
        for (row, symbol) in columns.symbol.iter().enumerate() {
            of_frames.index("symbol", row, *symbol, ("strings", tables.strings.len()))?;
        }
    }
    Ok(table.rows())
}

/// The records of a sample, which begin at `first`.
fn own_records(columns: &SampleColumns, row: usize, first: usize) -> Result<Range<usize>, Refusal> {
    let count = columns.records[row];
    let end = usize::try_from(count)
        .ok()
        .filter(|count| *count <= RECORDS_MAX)
        .map(|count| first + count)
        .filter(|end| *end <= columns.after_first_ns.len());
    let Some(end) = end else {
        let field = format!("samples.records[{row}]");
        let allowed = format!("at most {RECORDS_MAX}, and no more than there are records");
        return Err(Refusal::value(field, count, &allowed));
    };
    Ok(first..end)
}

fn attach_one(
    columns: &SampleColumns,
    own: Range<usize>,
    records: &Table<'_>,
    chain: &mut Chain,
) -> Result<(), Refusal> {
    let mut read = Vec::new();
    for row in own {
        let place = columns.arguments_plus_one[row];
        let target = ("arguments", columns.arguments.len());
        let place = records.index_plus_one("arguments_plus_one", row, place, target)?;
        read.extend(place.map(|place| &columns.arguments[place]));
    }
    mark_unknown_mappings(&read, chain);
    if chain.arguments.is_none() {
        chain.arguments = arguments::merged(&read);
    }
    Ok(())
}

/// A kind of mapping of a newer tracer is left out of the arguments, and said.
fn mark_unknown_mappings(read: &[&RecordArguments], chain: &mut Chain) {
    for arguments in read {
        if let Some(Read::RegMr(read)) = &arguments.verb {
            let mut marks = Marks::new(&chain.marks);
            marks.known::<Mapping>("mapping", read.mapping);
            marks.known::<Mapping>("mapping of the end", read.mapping_of_end);
            chain.marks = marks.into_vec();
        }
    }
}
