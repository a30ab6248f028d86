//! A snapshot, validated and turned into rows.

use rdmesh_proto::tracer::v1::{CoSignalColumns, CoSignalKind, Snapshot};
use rdmesh_store::ingest::{CoSignal, Snapshot as Stored};

use crate::ingest::chains::{self, Around};
use crate::ingest::columns::{Refusal, Table, count};
use crate::ingest::counters;
use crate::ingest::limits::{INVENTORY_ID_MAX_BYTES, ROWS_MAX};
use crate::ingest::marks::{MOVED, Marks};
use crate::ingest::tables::Tables;
use crate::ingest::timeline::{Timeline, interval, reading, watched};

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

/// Validates a snapshot and makes its rows, without the exact message. `marks` go onto each of
/// them.
pub(crate) fn rows(
    snapshot: &Snapshot,
    timeline: &Timeline,
    marks: &[String],
) -> Result<Stored, Refusal> {
    let interval = interval(
        snapshot.interval_start_boot_ns,
        snapshot.interval_end_boot_ns,
    )?;
    let read_at_boot_ns = reading(snapshot.clock.as_ref())?.boot_ns;
    let tables = Tables::try_from(snapshot)?;
    let started = timeline.place(interval.from_boot_ns);
    let ended = timeline.place(interval.to_boot_ns);
    let mut marks = Marks::new(marks);
    if started.moved || ended.moved {
        marks.add(MOVED);
    }
    let (watched, odd) = watched(interval, read_at_boot_ns);
    odd.into_iter().for_each(|mark| marks.add(mark));
    let around = Around {
        tables: &tables,
        timeline,
        interval,
        marks: &marks,
    };
    let chains = chains::chains(snapshot, &around)?;
    let (co_signals, odd_signals) =
        co_signals(snapshot.co_signals.as_ref(), &tables, timeline, &marks)?;
    // Rows of counters have no marks of their own; the snapshot's row says what is odd about
    // anything in it.
    let mut of_all = marks;
    of_all.add_all(&tables.odd());
    of_all.add_all(&odd_signals);
    Ok(Stored {
        interval: watched,
        started_at: started.at,
        ended_at: ended.at,
        inventory_id: inventory_id("inventory_id", &snapshot.inventory_id)?,
        given_up: count("snapshots_given_up", snapshot.snapshots_given_up)?,
        chains_left_out: count("chains_left_out", snapshot.chains_left_out)?,
        chains,
        counts: counters::counts(snapshot, &tables)?,
        drops: counters::losses(snapshot, &tables)?,
        co_signals,
        marks: of_all.into_vec(),
        body: Vec::new(),
        reference_seq: None,
    })
}

fn co_signals(
    columns: Option<&CoSignalColumns>,
    tables: &Tables,
    timeline: &Timeline,
    of_snapshot: &Marks,
) -> Result<(Vec<CoSignal>, Marks), Refusal> {
    let mut odd = Marks::default();
    let Some(columns) = columns else {
        return Ok((Vec::new(), odd));
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
    // Tracers that know of no task leave the column out.
    let of_tasks = &columns.task_plus_one;
    if !of_tasks.is_empty() {
        table.columns("boot_ns", &[("task_plus_one", of_tasks.len())])?;
    }
    let signals = (0..table.rows())
        .map(|row| {
            let mut marks = of_snapshot.clone();
            let strings = ("strings", tables.strings.len());
            let mut text = |column: &str, value: u32| -> Result<String, Refusal> {
                let index = table.index(column, row, value, strings)?;
                let text = &tables.strings[index];
                marks.text(&format!("co-signal {column}"), text);
                Ok(text.text.clone())
            };
            let name = text("name", columns.name[row])?;
            let detail = text("detail", columns.detail[row])?;
            let devices = ("devices", tables.devices.len());
            let device = table
                .index_plus_one(
                    "device_plus_one",
                    row,
                    columns.device_plus_one[row],
                    devices,
                )?
                .map(|index| {
                    let device = &tables.devices[index];
                    marks.add_all(&device.odd);
                    device.name.clone()
                });
            let place = of_tasks.get(row).copied().unwrap_or(0);
            let tasks = ("tasks", tables.tasks.len());
            let task = table
                .index_plus_one("task_plus_one", row, place, tasks)?
                .map(|index| {
                    let task = &tables.tasks[index];
                    marks.add_all(&task.odd);
                    (task.tgid, task.identity.clone())
                });
            let boot_ns = table.long("boot_ns", row, columns.boot_ns[row])?;
            let placed = timeline.place(boot_ns);
            if placed.moved {
                marks.add(MOVED);
            }
            let kind = marks.known::<CoSignalKind>("co-signal kind", columns.kind[row]);
            odd.add_all(&marks);
            Ok(CoSignal {
                at: placed.at,
                kind,
                independent: columns.independent[row],
                name,
                detail,
                device: device.unwrap_or_default(),
                task,
                marks: marks.into_vec(),
            })
        })
        .collect::<Result<_, Refusal>>()?;
    Ok((signals, odd))
}
