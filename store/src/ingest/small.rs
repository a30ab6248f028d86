//! Rows of small tables that items bring along.

use std::collections::BTreeMap;

use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::StoreError;
use crate::copy::CopyRows;
use crate::ingest::{Content, InventoryReport, Item, ProbeReport};

const PROBES: &[&str] = &[
    "host",
    "ordinal",
    "run_id",
    "seq",
    "received_at",
    "hook",
    "function",
    "module",
    "layer",
    "verb",
    "logical",
    "state",
    "attached_by",
    "reason",
    "failures",
    "drops",
    "unseen",
    "found_by",
    "missing_because",
];

/// Keeps the report, and makes its probes the host's current ones unless a later
/// report of the same run was stored before.
pub(super) async fn store_probes(
    connection: &mut PgConnection,
    item: &Item,
    report: &ProbeReport,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO rdmesh_store.probe_reports
             (host, received_at, run_id, seq, kernel_release, logical_attached, logical_total,
              obstacle, body, marks)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
    )
    .bind(&item.run.host)
    .bind(item.received_at)
    .bind(item.run.run_id)
    .bind(item.sequence)
    .bind(&report.kernel_release)
    .bind(report.logical_attached)
    .bind(report.logical_total)
    .bind(&report.obstacle)
    .bind(&report.body)
    .bind(&report.marks)
    .execute(&mut *connection)
    .await?;
    let overtaken: bool = sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM rdmesh_store.probes
                        WHERE host = $1 AND run_id = $2 AND seq > $3)",
    )
    .bind(&item.run.host)
    .bind(item.run.run_id)
    .bind(item.sequence)
    .fetch_one(&mut *connection)
    .await?;
    if overtaken {
        return Ok(());
    }
    sqlx::query("DELETE FROM rdmesh_store.probes WHERE host = $1")
        .bind(&item.run.host)
        .execute(&mut *connection)
        .await?;
    let mut rows = CopyRows::new("probes", PROBES);
    for (ordinal, probe) in (0..).zip(&report.probes) {
        rows.row()
            .text(&item.run.host)
            .int4(ordinal)
            .uuid(item.run.run_id)
            .int8(item.sequence)
            .time(item.received_at)
            .text(&probe.hook)
            .text(&probe.function)
            .text(&probe.module)
            .int2(probe.layer)
            .int2(probe.verb)
            .boolean(probe.logical)
            .int2(probe.state)
            .int2(probe.attached_by)
            .text(&probe.reason)
            .int8(probe.failures)
            .int8(probe.drops)
            .int8(probe.unseen)
            .text(&probe.found_by)
            .array(&probe.missing_because);
        rows.send_full(connection).await?;
    }
    rows.send(connection).await
}

pub(super) async fn store_inventory(
    connection: &mut PgConnection,
    item: &Item,
    inventory: &InventoryReport,
) -> Result<(), StoreError> {
    // A run tells its inventory when it begins; the same content since the same time
    // is one row.
    sqlx::query(
        "INSERT INTO rdmesh_store.inventories
             (host, id, seen_at, received_at, kernel_release, ofed_version, gpu_driver, summary,
              body, marks)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8::text::jsonb, $9, $10)
         ON CONFLICT (host, seen_at, id) DO NOTHING",
    )
    .bind(&item.run.host)
    .bind(&inventory.id)
    .bind(inventory.seen_at)
    .bind(item.received_at)
    .bind(&inventory.kernel_release)
    .bind(&inventory.ofed_version)
    .bind(&inventory.gpu_driver)
    .bind(&inventory.summary)
    .bind(&inventory.body)
    .bind(&inventory.marks)
    .execute(&mut *connection)
    .await?;
    store_addresses(connection, &item.run.host, inventory).await
}

/// The addresses of the newest inventory take the place of those before; one that comes late
/// changes nothing.
async fn store_addresses(
    connection: &mut PgConnection,
    host: &str,
    inventory: &InventoryReport,
) -> Result<(), StoreError> {
    let newer: bool = sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM rdmesh_store.inventories WHERE host = $1 AND seen_at > $2)",
    )
    .bind(host)
    .bind(inventory.seen_at)
    .fetch_one(&mut *connection)
    .await?;
    if newer {
        return Ok(());
    }
    sqlx::query("DELETE FROM rdmesh_store.addresses WHERE host = $1")
        .bind(host)
        .execute(&mut *connection)
        .await?;
    let addresses = &inventory.addresses;
    let gids: Vec<&[u8]> = addresses.iter().map(|a| &a.gid[..]).collect();
    let devices: Vec<&str> = addresses.iter().map(|a| a.device.as_str()).collect();
    let ports: Vec<i64> = addresses.iter().map(|a| a.port).collect();
    sqlx::query(
        "INSERT INTO rdmesh_store.addresses (host, gid, device, port, seen_at)
         SELECT $1, gid, device, port, $5
         FROM unnest($2::bytea[], $3::text[], $4::bigint[]) AS a (gid, device, port)
         ON CONFLICT DO NOTHING",
    )
    .bind(host)
    .bind(gids)
    .bind(devices)
    .bind(ports)
    .bind(inventory.seen_at)
    .execute(connection)
    .await?;
    Ok(())
}

/// Gives every attempt that failing tasks named a row, so that it can be asked for
/// although no scheduler told of it.
pub(super) async fn note_attempts(
    connection: &mut PgConnection,
    new: &[&Item],
) -> Result<(), StoreError> {
    // Sorted: two collectors insert the same keys in the same order.
    let mut named: BTreeMap<(&str, i64, i64), OffsetDateTime> = BTreeMap::new();
    for item in new {
        let Content::Snapshot(snapshot) = &item.content else {
            continue;
        };
        for chain in &snapshot.chains {
            let Some(job) = &chain.identity.job_id else {
                continue;
            };
            let key = (job.as_str(), chain.identity.requeue, chain.identity.restart);
            let first = named.entry(key).or_insert(chain.first_at);
            *first = chain.first_at.min(*first);
        }
    }
    if named.is_empty() {
        return Ok(());
    }
    let jobs: Vec<&str> = named.keys().map(|key| key.0).collect();
    let requeues: Vec<i64> = named.keys().map(|key| key.1).collect();
    let restarts: Vec<i64> = named.keys().map(|key| key.2).collect();
    let times: Vec<OffsetDateTime> = named.values().copied().collect();
    sqlx::query(
        "INSERT INTO rdmesh_store.attempts
             (job_id, requeue, restart, told, first_told_at, updated_at)
         SELECT n.job_id, n.requeue, n.restart, false, n.at, n.at
         FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::timestamptz[])
              n (job_id, requeue, restart, at)
         ORDER BY 1, 2, 3
         ON CONFLICT (job_id, requeue, restart) DO NOTHING",
    )
    .bind(jobs)
    .bind(requeues)
    .bind(restarts)
    .bind(times)
    .execute(connection)
    .await?;
    Ok(())
}
