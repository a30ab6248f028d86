//! The latest state of each wire, and its last gap.

use std::collections::BTreeMap;

use sqlx::PgConnection;
use sqlx::types::Uuid;
use time::{Duration, OffsetDateTime};

use crate::StoreError;
use crate::ingest::{Content, Item, WireWindow};

/// Shorter times without a window are no gap: `rdmesh_store.shortest_gap()`.
const SHORTEST_GAP: Duration = Duration::milliseconds(50);

/// What a batch says of one wire.
struct Latest<'a> {
    first_at: OffsetDateTime,
    item: &'a Item,
    window: &'a WireWindow,
    /// The last one within the batch.
    gap: Option<(OffsetDateTime, OffsetDateTime)>,
}

/// Copies each wire's newest window of the batch from the rows just written, unless a
/// later one is there.
const NOTE: &str = "
    INSERT INTO rdmesh_store.wires AS r
        (host, wire, at, to_at, run_id, seq, received_at, shaped_host, virtual_function, rate_bps,
         configured_rate_bps, expires_at, policy_generation, bypass, invalid, sent_bits,
         queue_frames_now, queue_frames_p99, waited_ns_p99, windows_given_up, engine_version,
         configuration_hash, marks, gap_from_at, gap_to_at, body)
    SELECT w.host, w.wire, w.at, w.to_at, w.run_id, w.seq, n.received_at, w.shaped_host,
           w.virtual_function, w.rate_bps, w.configured_rate_bps, w.expires_at,
           w.policy_generation, w.bypass, w.invalid, w.sent_bits, w.queue_frames_now,
           w.queue_frames_p99, w.waited_ns_p99, w.windows_given_up, w.engine_version,
           w.configuration_hash, w.marks,
           CASE WHEN n.gap_from IS NOT NULL THEN n.gap_from
                WHEN n.first_at - old.to_at >= rdmesh_store.shortest_gap() THEN old.to_at
                ELSE old.gap_from_at END,
           CASE WHEN n.gap_from IS NOT NULL THEN n.gap_to
                WHEN n.first_at - old.to_at >= rdmesh_store.shortest_gap() THEN n.first_at
                ELSE old.gap_to_at END,
           w.body
    FROM unnest($1::text[], $2::timestamptz[], $3::uuid[], $4::bigint[], $5::timestamptz[],
                $6::timestamptz[], $7::timestamptz[], $8::timestamptz[])
         n (host, at, run_id, seq, received_at, first_at, gap_from, gap_to)
    JOIN rdmesh_store.wire_windows w USING (host, at, run_id, seq)
    LEFT JOIN rdmesh_store.wires old ON old.host = w.host AND old.wire = w.wire
    -- Two collectors update the same rows in the same order.
    ORDER BY w.host, w.wire
    ON CONFLICT (host, wire) DO UPDATE SET
        at = excluded.at, to_at = excluded.to_at, run_id = excluded.run_id, seq = excluded.seq,
        received_at = excluded.received_at, shaped_host = excluded.shaped_host,
        virtual_function = excluded.virtual_function, rate_bps = excluded.rate_bps,
        configured_rate_bps = excluded.configured_rate_bps, expires_at = excluded.expires_at,
        policy_generation = excluded.policy_generation, bypass = excluded.bypass,
        invalid = excluded.invalid, sent_bits = excluded.sent_bits,
        queue_frames_now = excluded.queue_frames_now,
        queue_frames_p99 = excluded.queue_frames_p99, waited_ns_p99 = excluded.waited_ns_p99,
        windows_given_up = excluded.windows_given_up, engine_version = excluded.engine_version,
        configuration_hash = excluded.configuration_hash, marks = excluded.marks,
        gap_from_at = excluded.gap_from_at, gap_to_at = excluded.gap_to_at, body = excluded.body
    WHERE excluded.at >= r.at";

pub(super) async fn note_wires(
    connection: &mut PgConnection,
    new: &[&Item],
) -> Result<(), StoreError> {
    let latest = latest(new);
    if latest.is_empty() {
        return Ok(());
    }
    let column = |of: fn(&Latest<'_>) -> OffsetDateTime| -> Vec<OffsetDateTime> {
        latest.iter().map(of).collect()
    };
    let gap = |of: fn(&(OffsetDateTime, OffsetDateTime)) -> OffsetDateTime| {
        let ends = latest.iter().map(|latest| latest.gap.as_ref().map(of));
        ends.collect::<Vec<Option<OffsetDateTime>>>()
    };
    let hosts: Vec<&str> = latest.iter().map(|l| l.item.run.host.as_str()).collect();
    let runs: Vec<Uuid> = latest.iter().map(|l| l.item.run.run_id).collect();
    let sequences: Vec<i64> = latest.iter().map(|l| l.item.sequence).collect();
    sqlx::query(NOTE)
        .bind(hosts)
        .bind(column(|l| l.window.from_at))
        .bind(runs)
        .bind(sequences)
        .bind(column(|l| l.item.received_at))
        .bind(column(|l| l.first_at))
        .bind(gap(|ends| ends.0))
        .bind(gap(|ends| ends.1))
        .execute(connection)
        .await?;
    Ok(())
}

/// The newest window of each wire, with what lay before it in the batch.
fn latest<'a>(new: &[&'a Item]) -> Vec<Latest<'a>> {
    let mut windows: Vec<(&Item, &WireWindow)> = new
        .iter()
        .filter_map(|item| match &item.content {
            Content::WireWindow(window) => Some((*item, &**window)),
            _ => None,
        })
        .collect();
    windows.sort_by_key(|(_, window)| window.from_at);
    let mut wires: BTreeMap<(&str, &str), Latest<'a>> = BTreeMap::new();
    for (item, window) in windows {
        let begin = || Latest {
            first_at: window.from_at,
            item,
            window,
            gap: None,
        };
        let wire = wires
            .entry((&item.run.host, &window.wire))
            .or_insert_with(begin);
        let before = wire.window.to_at;
        if window.from_at - before >= SHORTEST_GAP {
            wire.gap = Some((before, window.from_at));
        }
        (wire.item, wire.window) = (item, window);
    }
    wires.into_values().collect()
}
