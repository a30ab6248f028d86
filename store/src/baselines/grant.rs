//! Whose turn it is.

use sqlx::PgConnection;
use sqlx::types::Uuid;
use time::{Duration, OffsetDateTime};

use super::{
    HOST_WINDOWS_AN_HOUR, Lease, LeaseAsk, LeaseBounds, NoLease, Purpose, StoredBaseline, TRIES,
};
use crate::StoreError;
use crate::fleet::Signature;

/// Grants a window or says why there is none; the caller holds the lock.
pub(super) async fn grant(
    connection: &mut PgConnection,
    ask: &LeaseAsk,
    bounds: LeaseBounds,
    now: OffsetDateTime,
) -> Result<Result<Lease, NoLease>, StoreError> {
    let (open, of_host): (i64, i64) = sqlx::query_as(
        "SELECT (SELECT count(*) FROM rdmesh_store.window_leases
                 WHERE ended_at IS NULL AND expires_at > $1),
                (SELECT count(*) FROM rdmesh_store.window_leases
                 WHERE host = $2 AND granted_at > $3)",
    )
    .bind(now)
    .bind(&ask.host)
    .bind(now - Duration::HOUR)
    .fetch_one(&mut *connection)
    .await?;
    if of_host >= HOST_WINDOWS_AN_HOUR {
        return Ok(Err(NoLease::HostBusy));
    }
    // What is there already is told before the wait for a turn: it needs none.
    let wanted = match &ask.purpose {
        Purpose::Record { verbs } => to_record(connection, ask, verbs, now).await?,
        Purpose::Capture {
            verb,
            signature,
            has_baseline,
        } => to_capture(connection, ask, (verb, signature, *has_baseline), now).await?,
    };
    let wanted = match wanted {
        Ok(wanted) => wanted,
        Err(why) => return Ok(Err(why)),
    };
    if open >= i64::from(bounds.hosts_at_once) {
        return Ok(Err(NoLease::FleetBusy));
    }
    let lease = Lease {
        id: Uuid::new_v4(),
        expires_at: now + bounds.lasts,
        verbs: wanted.verbs,
        baseline: wanted.baseline,
    };
    let purpose: i16 = match ask.purpose {
        Purpose::Record { .. } => 1,
        Purpose::Capture { .. } => 2,
    };
    sqlx::query(
        "INSERT INTO rdmesh_store.window_leases
             (host, lease_id, run_id, purpose, kernel_release, driver, verbs, signature_id,
              granted_at, expires_at, outcome)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, '')",
    )
    .bind(&ask.host)
    .bind(lease.id)
    .bind(ask.run_id)
    .bind(purpose)
    .bind(&ask.kernel_release)
    .bind(&ask.driver)
    .bind(&lease.verbs)
    .bind(wanted.signature_id)
    .bind(now)
    .bind(lease.expires_at)
    .execute(&mut *connection)
    .await?;
    Ok(Ok(lease))
}

/// What a window would watch.
struct Wanted {
    verbs: Vec<String>,
    signature_id: Option<i64>,
    baseline: Option<StoredBaseline>,
}

/// The verbs of which the fleet neither has a baseline nor records one now.
async fn to_record(
    connection: &mut PgConnection,
    ask: &LeaseAsk,
    verbs: &[String],
    now: OffsetDateTime,
) -> Result<Result<Wanted, NoLease>, StoreError> {
    let verbs: Vec<String> = sqlx::query_scalar(
        "SELECT w.verb FROM unnest($1::text[]) WITH ORDINALITY w (verb, place)
         WHERE NOT EXISTS (SELECT FROM rdmesh_store.baselines b
                           WHERE b.kernel_release = $2 AND b.driver = $3 AND b.verb = w.verb)
           AND NOT EXISTS (SELECT FROM rdmesh_store.window_leases l
                           WHERE l.ended_at IS NULL AND l.expires_at > $4
                             AND l.signature_id IS NULL AND l.kernel_release = $2
                             AND l.driver = $3 AND w.verb = ANY (l.verbs))
         ORDER BY w.place",
    )
    .bind(verbs)
    .bind(&ask.kernel_release)
    .bind(&ask.driver)
    .bind(now)
    .fetch_all(connection)
    .await?;
    if verbs.is_empty() {
        return Ok(Err(NoLease::Recorded));
    }
    Ok(Ok(Wanted {
        verbs,
        signature_id: None,
        baseline: None,
    }))
}

async fn to_capture(
    connection: &mut PgConnection,
    ask: &LeaseAsk,
    (verb, signature, has_baseline): (&str, &Signature, bool),
    now: OffsetDateTime,
) -> Result<Result<Wanted, NoLease>, StoreError> {
    let id = signature.id();
    let (captured, tried): (bool, i64) = sqlx::query_as(
        "SELECT EXISTS (SELECT FROM rdmesh_store.forks WHERE signature_id = $1)
                OR EXISTS (SELECT FROM rdmesh_store.window_leases
                           WHERE signature_id = $1 AND ended_at IS NULL AND expires_at > $2),
                (SELECT count(*) FROM rdmesh_store.window_leases WHERE signature_id = $1)",
    )
    .bind(id)
    .bind(now)
    .fetch_one(&mut *connection)
    .await?;
    if captured {
        return Ok(Err(NoLease::Captured));
    }
    if tried >= TRIES {
        return Ok(Err(NoLease::NotSeen));
    }
    let baseline = match has_baseline {
        true => None,
        false => match baseline_of(connection, ask, verb).await? {
            None => return Ok(Err(NoLease::NoBaseline)),
            found => found,
        },
    };
    Ok(Ok(Wanted {
        verbs: vec![verb.to_owned()],
        signature_id: Some(id),
        baseline,
    }))
}

/// The one with most calls: it knows most of what good ones do.
async fn baseline_of(
    connection: &mut PgConnection,
    ask: &LeaseAsk,
    verb: &str,
) -> Result<Option<StoredBaseline>, StoreError> {
    let found = sqlx::query_as(
        "SELECT host, kernel_release, driver, verb, recorded_at, good_calls, functions, body
         FROM rdmesh_store.baselines
         WHERE kernel_release = $1 AND driver = $2 AND verb = $3
         ORDER BY good_calls DESC, recorded_at DESC LIMIT 1",
    )
    .bind(&ask.kernel_release)
    .bind(&ask.driver)
    .bind(verb)
    .fetch_optional(connection)
    .await?;
    Ok(found)
}
