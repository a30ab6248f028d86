//! Advice on another attempt: the verdict of this one beside those before it.

use rdmesh_proto::collector::v1::{AdviseRetryResponse, JobState};
use rdmesh_store::jobs::Attempt;
use rdmesh_store::{Store, StoreError};
use time::OffsetDateTime;

use crate::attempt;
use crate::diagnosis::{self, Past};
use crate::query::diagnose::{diagnose_attempt, earlier};
use crate::site::Routes;

/// Earlier attempts that are looked at: a crash loop shows itself in fewer.
const PAST_MAX: u32 = 100;

/// What to do after `found`, by what the store knows at `now`.
pub(crate) async fn on_attempt(
    store: &Store,
    found: &Attempt,
    now: OffsetDateTime,
    routes: &Routes,
) -> Result<AdviseRetryResponse, StoreError> {
    let verdict = diagnose_attempt(store, found, now, routes).await?.verdict;
    let placed_on: Vec<String> = store
        .placements_of(&found.key)
        .await?
        .into_iter()
        .map(|placement| placement.host)
        .collect();
    let past = store.past_verdicts(&found.key, PAST_MAX).await?;
    let past: Vec<Past> = past.into_iter().map(earlier).collect();
    let completed = i32::from(found.state) == i32::from(JobState::Completed);
    let advice = diagnosis::advise(&verdict, &placed_on, completed, &past);
    Ok(AdviseRetryResponse {
        attempt: Some(attempt::to_proto(&found.key)),
        advice: advice.advice.into(),
        hosts: advice.hosts,
        confidence: advice.confidence.into(),
        reason: advice.reason,
        evidence: advice.evidence,
        same_failure: advice.same_failure,
        class: verdict.class.into(),
        route_to: verdict.route_to,
    })
}
