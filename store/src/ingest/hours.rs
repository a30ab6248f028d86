//! Failing calls by host, hour and signature: summed up as they come, so that questions
//! about weeks of the whole fleet need not read every failure.

use std::collections::BTreeMap;

use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::StoreError;
use crate::ingest::{Chain, Content, Item};

/// Between the entries of a list: no text that is stored has control characters.
const BETWEEN: &str = "\u{1f}";

/// A chain without its times and task.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Signature<'a> {
    driver: &'a str,
    verb: i16,
    expected: bool,
    /// (function, module, layer, errno), innermost first.
    steps: Vec<(&'a str, &'a str, i16, i32)>,
}

impl<'a> Signature<'a> {
    fn of(chain: &'a Chain) -> Self {
        let steps = chain.steps.iter();
        Self {
            driver: &chain.driver,
            verb: chain.verb,
            expected: chain.expected,
            steps: steps
                .map(|s| (s.function.as_str(), s.module.as_str(), s.layer, s.errno))
                .collect(),
        }
    }

    fn joined(&self, part: impl Fn(&(&str, &str, i16, i32)) -> String) -> String {
        let parts: Vec<String> = self.steps.iter().map(part).collect();
        parts.join(BETWEEN)
    }
}

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

/// Signatures, each with its place, and sums by host, hour and place. Sorted: two
/// collectors write the same rows in the same order.
type Sums<'a> = (
    BTreeMap<Signature<'a>, i64>,
    BTreeMap<(&'a str, OffsetDateTime, i64), Hour>,
);

fn sums<'a>(new: &[&'a Item]) -> Sums<'a> {
    let mut signatures: BTreeMap<Signature<'_>, i64> = BTreeMap::new();
    let mut hours: BTreeMap<(&str, OffsetDateTime, i64), Hour> = BTreeMap::new();
    for item in new {
        let Content::Snapshot(snapshot) = &item.content else {
            continue;
        };
        for chain in &snapshot.chains {
            let next = i64::try_from(signatures.len()).unwrap_or(i64::MAX) + 1;
            let place = *signatures.entry(Signature::of(chain)).or_insert(next);
            let key = (item.run.host.as_str(), hour_of(chain.first_at), place);
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
    (signatures, hours)
}

/// Adds the failures of new items.
pub(super) async fn add_hours(
    connection: &mut PgConnection,
    new: &[&Item],
) -> Result<(), StoreError> {
    let (signatures, hours) = sums(new);
    if signatures.is_empty() {
        return Ok(());
    }
    let signatures: Vec<(&Signature<'_>, i64)> =
        signatures.iter().map(|(s, place)| (s, *place)).collect();
    let of = |part: fn(&(&str, &str, i16, i32)) -> String| -> Vec<String> {
        signatures.iter().map(|(s, _)| s.joined(part)).collect()
    };
    sqlx::query(ADD)
        .bind(
            signatures
                .iter()
                .map(|(_, place)| *place)
                .collect::<Vec<_>>(),
        )
        .bind(signatures.iter().map(|(s, _)| s.driver).collect::<Vec<_>>())
        .bind(signatures.iter().map(|(s, _)| s.verb).collect::<Vec<_>>())
        .bind(
            signatures
                .iter()
                .map(|(s, _)| s.expected)
                .collect::<Vec<_>>(),
        )
        .bind(of(|step| step.0.to_owned()))
        .bind(of(|step| step.1.to_owned()))
        .bind(of(|step| step.2.to_string()))
        .bind(of(|step| step.3.to_string()))
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
    WITH given AS MATERIALIZED (
        SELECT n, driver, verb, expected, functions, modules, layers, errnos,
               rdmesh_store.signature_id(driver, verb, expected, functions, modules, layers,
                                         errnos) AS id
        FROM (SELECT g.n, g.driver, g.verb, g.expected,
                     -- Of an empty text string_to_array makes no entry, and a step has one.
                     COALESCE(NULLIF(string_to_array(g.functions, E'\\x1f'), '{}'), '{\"\"}')
                         AS functions,
                     COALESCE(NULLIF(string_to_array(g.modules, E'\\x1f'), '{}'), '{\"\"}')
                         AS modules,
                     string_to_array(g.layers, E'\\x1f')::smallint[] AS layers,
                     string_to_array(g.errnos, E'\\x1f')::integer[] AS errnos
              FROM unnest($1::bigint[], $2::text[], $3::smallint[], $4::boolean[], $5::text[],
                          $6::text[], $7::text[], $8::text[])
                   g (n, driver, verb, expected, functions, modules, layers, errnos)) g
    ), added AS (
        INSERT INTO rdmesh_store.signatures
            (id, driver, verb, expected, functions, modules, layers, errnos)
        SELECT id, driver, verb, expected, functions, modules, layers, errnos
        FROM given ORDER BY id
        ON CONFLICT (id) DO NOTHING
    )
    INSERT INTO rdmesh_store.signature_hours AS h
        (host, at, signature_id, calls, first_at, last_at)
    SELECT s.host, s.at, g.id, rdmesh_store.bounded(sum(s.calls)), min(s.first_at), max(s.last_at)
    FROM unnest($9::text[], $10::timestamptz[], $11::bigint[], $12::bigint[], $13::timestamptz[],
                $14::timestamptz[]) s (host, at, n, calls, first_at, last_at)
    JOIN given g USING (n)
    GROUP BY s.host, s.at, g.id ORDER BY s.host, s.at, g.id
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
