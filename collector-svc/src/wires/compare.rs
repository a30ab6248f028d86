//! Two stretches of time of one wire.

use rdmesh_proto::collector::v1::wire_stretch::Of;
use rdmesh_proto::collector::v1::{WireStretch, WireSummary};
use rdmesh_store::query::{Span, SpanSummary};
use rdmesh_store::{Store, StoreError};
use time::OffsetDateTime;
use tonic::Status;

use crate::attempt::{self, BadRequest};
use crate::{jobs, status, times};

/// Longest stretch: what a person means by one experiment, and what the query reads in a
/// second.
const STRETCH_MAX: time::Duration = time::Duration::days(31);

/// The stretch that is meant by field `field`.
pub(super) async fn span(
    store: &Store,
    field: &str,
    stretch: Option<&WireStretch>,
    now: OffsetDateTime,
) -> Result<Span, Status> {
    let bad = |problem: &str| status::from_bad_request(&BadRequest::new(field, problem));
    let span = match stretch.and_then(|stretch| stretch.of.as_ref()) {
        None => return Err(bad("is missing; give an attempt or a time")),
        Some(Of::Time(range)) => {
            let (from, to) =
                attempt::range(Some(range)).map_err(|e| status::from_bad_request(&e))?;
            Span {
                from: from.ok_or_else(|| bad("has no begin; give `time.from`"))?,
                to: to.unwrap_or(now),
            }
        }
        Some(Of::Attempt(id)) => {
            let found = jobs::find(store, &id.job_id, Some(id.requeue), Some(id.restart)).await;
            let (found, _) = found?;
            let from = found.started_at.ok_or_else(|| {
                Status::failed_precondition(format!(
                    "nobody told when attempt {} started; give a time instead",
                    attempt::written(&found.key)
                ))
            })?;
            Span {
                from,
                to: found.ended_at.unwrap_or(now).max(from),
            }
        }
    };
    if span.to - span.from > STRETCH_MAX {
        return Err(bad("is longer than 31 days; choose a shorter one"));
    }
    Ok(span)
}

/// A refusal to compare, or trouble with the store.
pub(super) fn refused(error: &StoreError) -> Status {
    match error {
        StoreError::NotComparable(why) => Status::failed_precondition(why.clone()),
        other => status::from_store(other),
    }
}

/// As the contract holds it.
pub(super) fn to_proto(summary: &SpanSummary) -> WireSummary {
    let count = |value: Option<i64>| u64::try_from(value.unwrap_or(0)).unwrap_or(0);
    let micros = summary.gaps.0.max(0).unsigned_abs();
    WireSummary {
        from: Some(times::to_proto(summary.from_at)),
        to: Some(times::to_proto(summary.to_at)),
        windows: count(Some(summary.windows)),
        valid_windows: count(Some(summary.valid_windows)),
        gaps: prost_types::Duration::try_from(std::time::Duration::from_micros(micros)).ok(),
        lowest_rate_bps: count(summary.lowest_rate_bps),
        highest_rate_bps: count(summary.highest_rate_bps),
        mean_sent_bps: count(summary.mean_sent_bps),
        queue_frames_p99: count(summary.queue_frames_p99),
        queue_frames_max: count(summary.queue_frames_max),
        waited_ns_p99: count(summary.waited_ns_p99),
        waited_ns_max: count(summary.waited_ns_max),
        sent_frames: count(summary.sent_frames),
        ce_marks: count(summary.ce_marks),
        lost_ps: count(summary.lost_ps),
        repeated_frames: count(summary.repeated_frames),
    }
}
