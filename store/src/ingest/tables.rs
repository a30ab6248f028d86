//! Rows of the large tables: table by table, each in as many COPY statements as it takes,
//! so that no more than one of them is held encoded.

use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::StoreError;
use crate::copy::CopyRows;
use crate::ingest::groups::{store_counts, store_failures};
use crate::ingest::words::Words;
use crate::ingest::{CoSignal, Content, DropKind, Dropped, Identity, Item, Snapshot, WireWindow};

/// Columns that every large table begins with; `ordinal` only where a snapshot has
/// several rows.
macro_rules! columns {
    ($($name:literal),* $(,)?) => { &["host", "at", "run_id", "seq", $($name),*] };
}

const SNAPSHOTS: &[&str] = columns![
    "started_at",
    "received_at",
    "inventory_id",
    "chains",
    "failures",
    "drops",
    "unseen",
    "chains_left_out",
    "marks",
    "body",
    "reference_seq",
];

const DROPS: &[&str] = columns![
    "ordinal", "kind", "function", "module", "layer", "delta", "total"
];

const CO_SIGNALS: &[&str] = columns![
    "ordinal",
    "kind",
    "independent",
    "name",
    "detail",
    "device",
    "marks",
    "tgid",
    "job_id",
    "requeue",
    "restart"
];

const WIRE_WINDOWS: &[&str] = columns![
    "to_at",
    "wire",
    "shaped_host",
    "virtual_function",
    "rate_bps",
    "configured_rate_bps",
    "expires_at",
    "policy_generation",
    "sent_frames",
    "sent_bits",
    "queue_frames_now",
    "queue_frames_p50",
    "queue_frames_p99",
    "queue_frames_max",
    "waited_ns_p50",
    "waited_ns_p99",
    "waited_ns_max",
    "catch_up_used_ps",
    "lost_ps",
    "ce_marks",
    "imissed",
    "rx_nombuf",
    "tx_not_accepted",
    "full_polls",
    "longest_poll_gap_ns",
    "poll_gap_buckets",
    "repeated_frames",
    "repeated_bytes",
    "windows_given_up",
    "invalid",
    "bypass",
    "engine_version",
    "configuration_hash",
    "marks",
    "body",
];

/// Kinds of rows in `drops`.
const KIND_RING: i16 = 1;
const KIND_COUNTER_MAP: i16 = 2;
const KIND_UNSEEN: i16 = 3;

/// Failing returns of the interval, by the counters of the whole host.
pub(super) fn failures_of(snapshot: &Snapshot) -> i64 {
    let of_host = snapshot
        .counts
        .iter()
        .filter(|count| count.cgroup.is_none());
    of_host.fold(0, |sum, count| sum.saturating_add(count.delta))
}

/// What the host could not keep or see of `kind`: records without room in the ring, calls
/// that the kernel did not show.
pub(super) fn drops_of(snapshot: &Snapshot, kind: DropKind) -> i64 {
    let of_kind = snapshot.drops.iter().filter(|drop| drop.kind == kind);
    of_kind.fold(0, |sum, drop| sum.saturating_add(drop.delta))
}

/// Stores the rows of the items.
pub(super) async fn store_large(
    connection: &mut PgConnection,
    items: &[&Item],
    words: &Words<'_>,
) -> Result<(), StoreError> {
    let mut snapshots = CopyRows::new("snapshots", SNAPSHOTS);
    let mut windows = CopyRows::new("wire_windows", WIRE_WINDOWS);
    for item in items {
        match &item.content {
            Content::Snapshot(snapshot) => {
                add_snapshot(&mut snapshots, item, snapshot);
                snapshots.send_full(connection).await?;
            }
            Content::WireWindow(window) => {
                add_wire_window(&mut windows, item, window);
                windows.send_full(connection).await?;
            }
            _ => {}
        }
    }
    snapshots.send(connection).await?;
    windows.send(connection).await?;
    let of_snapshots: Vec<(&Item, &Snapshot)> = items
        .iter()
        .filter_map(|item| match &item.content {
            Content::Snapshot(snapshot) => Some((*item, &**snapshot)),
            _ => None,
        })
        .collect();
    store_failures(connection, &of_snapshots, words).await?;
    store_counts(connection, &of_snapshots, words).await?;
    store_others(connection, &of_snapshots).await
}

/// What was dropped, and what else failed.
async fn store_others(
    connection: &mut PgConnection,
    snapshots: &[(&Item, &Snapshot)],
) -> Result<(), StoreError> {
    let mut drops = CopyRows::new("drops", DROPS);
    let mut co_signals = CopyRows::new("co_signals", CO_SIGNALS);
    for (item, snapshot) in snapshots {
        for (index, dropped) in snapshot.drops.iter().enumerate() {
            add_drop(&mut drops, item, snapshot.ended_at, ordinal(index), dropped);
            drops.send_full(connection).await?;
        }
        for (index, signal) in snapshot.co_signals.iter().enumerate() {
            add_co_signal(&mut co_signals, item, ordinal(index), signal);
            co_signals.send_full(connection).await?;
        }
    }
    drops.send(connection).await?;
    co_signals.send(connection).await
}

fn add_snapshot(rows: &mut CopyRows, item: &Item, snapshot: &Snapshot) {
    let ended_at = snapshot.ended_at;
    begin(rows, item, ended_at)
        .time(snapshot.started_at)
        .time(item.received_at)
        .text(&snapshot.inventory_id)
        .int4(ordinal(snapshot.chains.len()))
        .int8(failures_of(snapshot))
        .int8(drops_of(snapshot, DropKind::Ring))
        .int8(drops_of(snapshot, DropKind::Unseen))
        .int8(snapshot.chains_left_out)
        .array(&snapshot.marks)
        .bytes(&snapshot.body)
        .int8_or_null(snapshot.reference_seq);
}

fn add_drop(rows: &mut CopyRows, item: &Item, at: OffsetDateTime, ordinal: i32, dropped: &Dropped) {
    begin(rows, item, at)
        .int4(ordinal)
        .int2(match dropped.kind {
            DropKind::Ring => KIND_RING,
            DropKind::CounterMap => KIND_COUNTER_MAP,
            DropKind::Unseen => KIND_UNSEEN,
        })
        .text(&dropped.function)
        .text(&dropped.module)
        .int2(dropped.layer)
        .int8(dropped.delta)
        .int8(dropped.total);
}

fn add_co_signal(rows: &mut CopyRows, item: &Item, ordinal: i32, signal: &CoSignal) {
    begin(rows, item, signal.at)
        .int4(ordinal)
        .int2(signal.kind)
        .boolean(signal.independent)
        .text(&signal.name)
        .text(&signal.detail)
        .text(&signal.device)
        .array(&signal.marks);
    let (tgid, identity) = signal
        .task
        .as_ref()
        .map_or((None, None), |(tgid, identity)| {
            (Some(i64::from(*tgid)), Some(identity))
        });
    let named = identity.filter(|identity| identity.job_id.is_some());
    rows.int8_or_null(tgid)
        .text_or_null(named.and_then(|identity| identity.job_id.as_deref()))
        .int8_or_null(named.map(|identity| identity.requeue))
        .int8_or_null(named.map(|identity| identity.restart));
}

fn add_wire_window(rows: &mut CopyRows, item: &Item, window: &WireWindow) {
    begin(rows, item, window.from_at)
        .time(window.to_at)
        .text(&window.wire)
        .text(&window.shaped_host)
        .text(&window.virtual_function)
        .int8(window.rate_bps)
        .int8(window.configured_rate_bps)
        .time_or_null(window.expires_at)
        .int8(window.policy_generation)
        .int8(window.sent_frames)
        .int8(window.sent_bits)
        .int8(window.queue_frames_now)
        .int8(window.queue_frames_p50)
        .int8(window.queue_frames_p99)
        .int8(window.queue_frames_max)
        .int8(window.waited_ns_p50)
        .int8(window.waited_ns_p99)
        .int8(window.waited_ns_max)
        .int8(window.catch_up_used_ps)
        .int8(window.lost_ps)
        .int8(window.ce_marks)
        .int8(window.imissed)
        .int8(window.rx_nombuf)
        .int8(window.tx_not_accepted)
        .int8(window.full_polls)
        .int8(window.longest_poll_gap_ns)
        .array(&window.poll_gap_buckets)
        .int8(window.repeated_frames)
        .int8(window.repeated_bytes)
        .int8(window.windows_given_up)
        .array(&window.invalid)
        .boolean(window.bypass)
        .text(&window.engine_version)
        .text(&window.configuration_hash)
        .array(&window.marks)
        .bytes(&window.body);
}

pub(super) fn begin<'a>(
    rows: &'a mut CopyRows,
    item: &Item,
    at: OffsetDateTime,
) -> &'a mut CopyRows {
    rows.row()
        .text(&item.run.host)
        .time(at)
        .uuid(item.run.run_id)
        .int8(item.sequence)
}

pub(super) fn identity<'a>(row: &'a mut CopyRows, identity: &Identity) -> &'a mut CopyRows {
    row.text_or_null(identity.job_id.as_deref())
        .int8(identity.requeue)
        .int8(identity.restart)
        .int2(identity.source)
}

/// Positions within a snapshot; its arrays are bounded to far less on receipt.
pub(super) fn ordinal(index: usize) -> i32 {
    i32::try_from(index).unwrap_or(i32::MAX)
}
