//! Failing calls by host, hour and signature: summed up as they come, so that questions
//! about weeks of the whole fleet need not read every failure.

use std::collections::BTreeMap;

use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::StoreError;
use crate::ingest::words::Words;
use crate::ingest::{Content, Item};

/// Calls of a host in an hour.
#[derive(Debug)]
struct Hour {
    calls: i64,
    first_at: OffsetDateTime,
    last_at: OffsetDateTime,
}

/// The start of the hour of `at`, UTC.
pub(crate) fn hour_of(at: OffsetDateTime) -> OffsetDateTime {
    let within = at.unix_timestamp().rem_euclid(3_600);
    let start = at.unix_timestamp() - within;
    OffsetDateTime::from_unix_timestamp(start).unwrap_or(at)
}

/// Sums by host, hour and signature. Sorted: two collectors write the same rows in the same
/// order.
type Hours<'a> = BTreeMap<(&'a str, OffsetDateTime, i64), Hour>;

fn sums<'a>(new: &[&'a Item], words: &Words<'_>) -> Hours<'a> {
    let mut hours: Hours<'_> = BTreeMap::new();
    for item in new {
        let Content::Snapshot(snapshot) = &item.content else {
            continue;
        };
        for chain in &snapshot.chains {
            let key = (
                item.run.host.as_str(),
                hour_of(chain.first_at),
                words.signature(chain),
            );
            let hour = hours.entry(key).or_insert(Hour {
                calls: 0,
                first_at: chain.first_at,
                last_at: chain.last_at,
            });
            hour.calls = hour.calls.saturating_add(chain.count);
            hour.first_at = hour.first_at.min(chain.first_at);
            hour.last_at = hour.last_at.max(chain.last_at);
        }
    }
    hours
}

/// Adds the failures of new items.
pub(super) async fn add_hours(
    connection: &mut PgConnection,
    new: &[&Item],
    words: &Words<'_>,
) -> Result<(), StoreError> {
    let hours = sums(new, words);
    if hours.is_empty() {
        return Ok(());
    }
    sqlx::query(ADD)
        .bind(hours.keys().map(|key| key.0).collect::<Vec<_>>())
        .bind(hours.keys().map(|key| key.1).collect::<Vec<_>>())
        .bind(hours.keys().map(|key| key.2).collect::<Vec<_>>())
        .bind(hours.values().map(|hour| hour.calls).collect::<Vec<_>>())
        .bind(hours.values().map(|hour| hour.first_at).collect::<Vec<_>>())
        .bind(hours.values().map(|hour| hour.last_at).collect::<Vec<_>>())
        .execute(connection)
        .await?;
    Ok(())
}

const ADD: &str = "
    INSERT INTO rdmesh_store.signature_hours AS h
        (host, at, signature_id, calls, first_at, last_at)
    SELECT * FROM unnest($1::text[], $2::timestamptz[], $3::bigint[], $4::bigint[],
                         $5::timestamptz[], $6::timestamptz[]) s
    ON CONFLICT (host, at, signature_id) DO UPDATE SET
        calls = rdmesh_store.bounded(h.calls::numeric + excluded.calls),
        first_at = LEAST(h.first_at, excluded.first_at),
        last_at = GREATEST(h.last_at, excluded.last_at)";

#[cfg(test)]
mod tests {
    use super::*;
    use time::macros::datetime;

    #[test]
    fn hours_begin_on_the_hour_also_before_1970() {
        let hour = hour_of(datetime!(2026-11-30 23:59:59.9 UTC));
        assert_eq!(hour, datetime!(2026-11-30 23:00 UTC));
        let hour = hour_of(datetime!(1969-12-31 23:59 UTC));
        assert_eq!(hour, datetime!(1969-12-31 23:00 UTC));
    }
}
