//! `rdmesh.collector.v1.StatisticsService`: shares over the attempts that ended badly.

use rdmesh_proto::collector::v1::statistics_service_server::StatisticsService;
use rdmesh_proto::collector::v1::{
    CoverageRow, GetClassesRequest, GetClassesResponse, GetCoverageRequest, GetCoverageResponse,
    GetIncidentsRequest, GetIncidentsResponse, GetLostHoursRequest, GetLostHoursResponse,
    GetMisattributionRequest, GetMisattributionResponse, GetPrecursorsRequest,
    GetPrecursorsResponse, GetSilentFailuresRequest, GetSilentFailuresResponse, LogClass,
    LogCoverage, LostHoursRow, MisattributionRow, Share, SilentRow, ToldBy,
};
use rdmesh_proto::common::v1::TimeRange;
use rdmesh_store::statistics::{Ended, Share as StoredShare};
use rdmesh_store::{Store, StoreError};
use tonic::{Request, Response, Status};

use crate::backing::Backing;
use crate::query::fleet;
use crate::{attempt, status};

/// Shares, with the numbers of the SQL views.
#[derive(Debug)]
pub struct Statistics {
    backing: Backing,
}

impl Statistics {
    /// The service.
    #[must_use]
    pub fn new(backing: Backing) -> Self {
        Self { backing }
    }

    fn asked(&self, time: Option<&TimeRange>) -> Result<(&Store, Ended), Status> {
        let (from, to) = attempt::range(time).map_err(|e| status::from_bad_request(&e))?;
        Ok((self.backing.store()?, Ended { from, to }))
    }
}

/// Attempts that have no verdict.
async fn undiagnosed(store: &Store, ended: Ended) -> Result<u64, StoreError> {
    Ok(count(store.undiagnosed_in(ended).await?))
}

#[tonic::async_trait]
impl StatisticsService for Statistics {
    async fn get_misattribution(
        &self,
        request: Request<GetMisattributionRequest>,
    ) -> Result<Response<GetMisattributionResponse>, Status> {
        let (store, ended) = self.asked(request.get_ref().time.as_ref())?;
        let stored = store
            .misattribution(ended)
            .await
            .map_err(|e| status::from_store(&e))?;
        let logged = || stored.iter().filter(|row| !row.filed_as.is_empty());
        let with_log = sum(logged().map(|row| row.share));
        let misattributed = sum(logged()
            .filter(|row| row.misattributed)
            .map(|row| row.share));
        let rows = stored.iter().map(|row| MisattributionRow {
            filed_as: log_class(&row.filed_as).into(),
            misattributed: row.misattributed,
            share: Some(share(row.share)),
        });
        Ok(Response::new(GetMisattributionResponse {
            rows: rows.collect(),
            with_log: Some(of(with_log, with_log)),
            misattributed: Some(of(misattributed, with_log)),
            undiagnosed: undiagnosed(store, ended)
                .await
                .map_err(|e| status::from_store(&e))?,
        }))
    }

    async fn get_coverage(
        &self,
        request: Request<GetCoverageRequest>,
    ) -> Result<Response<GetCoverageResponse>, Status> {
        let (store, ended) = self.asked(request.get_ref().time.as_ref())?;
        let stored = store
            .coverage(ended)
            .await
            .map_err(|e| status::from_store(&e))?;
        let counted = || stored.iter().filter(|row| !row.excluded);
        let all = sum(counted().map(|row| row.share));
        let covered = sum(counted()
            .filter(|row| row.coverage == COVERED)
            .map(|row| row.share));
        let rows = stored.iter().map(|row| CoverageRow {
            coverage: coverage(&row.coverage).into(),
            excluded: row.excluded,
            share: Some(share(row.share)),
        });
        Ok(Response::new(GetCoverageResponse {
            rows: rows.collect(),
            counted: Some(of(all, all)),
            covered: Some(of(covered, all)),
            undiagnosed: undiagnosed(store, ended)
                .await
                .map_err(|e| status::from_store(&e))?,
        }))
    }

    async fn get_silent_failures(
        &self,
        request: Request<GetSilentFailuresRequest>,
    ) -> Result<Response<GetSilentFailuresResponse>, Status> {
        let (store, ended) = self.asked(request.get_ref().time.as_ref())?;
        let stored = store
            .silent(ended)
            .await
            .map_err(|e| status::from_store(&e))?;
        let all = sum(stored.iter().map(|row| row.share));
        let silent = sum(stored.iter().filter(|row| row.silent).map(|row| row.share));
        let rows = stored.iter().map(|row| SilentRow {
            silent: row.silent,
            share: Some(share(row.share)),
        });
        Ok(Response::new(GetSilentFailuresResponse {
            rows: rows.collect(),
            counted: Some(of(all, all)),
            silent: Some(of(silent, all)),
            undiagnosed: undiagnosed(store, ended)
                .await
                .map_err(|e| status::from_store(&e))?,
        }))
    }

    async fn get_lost_hours(
        &self,
        request: Request<GetLostHoursRequest>,
    ) -> Result<Response<GetLostHoursResponse>, Status> {
        let (store, ended) = self.asked(request.get_ref().time.as_ref())?;
        let stored = store
            .lost_hours(ended)
            .await
            .map_err(|e| status::from_store(&e))?;
        let all = sum(stored.iter().map(|row| row.share));
        let covered = stored.iter().filter(|row| row.coverage == COVERED);
        let covered = sum(covered.map(|row| row.share));
        let excluded = sum(stored
            .iter()
            .filter(|row| row.excluded)
            .map(|row| row.share));
        let rows = stored.iter().map(|row| LostHoursRow {
            class: row.class.clone(),
            told_by: told_by(&row.told_by).into(),
            coverage: coverage(&row.coverage).into(),
            excluded: row.excluded,
            share: Some(share(row.share)),
        });
        Ok(Response::new(GetLostHoursResponse {
            rows: rows.collect(),
            counted: Some(of(all, all)),
            covered: Some(of(covered, all)),
            excluded: Some(of(excluded, all)),
            undiagnosed: undiagnosed(store, ended)
                .await
                .map_err(|e| status::from_store(&e))?,
        }))
    }

    async fn get_classes(
        &self,
        request: Request<GetClassesRequest>,
    ) -> Result<Response<GetClassesResponse>, Status> {
        Ok(Response::new(self.classes(request.get_ref()).await?))
    }

    async fn get_incidents(
        &self,
        request: Request<GetIncidentsRequest>,
    ) -> Result<Response<GetIncidentsResponse>, Status> {
        let time = request.get_ref().time.as_ref();
        Ok(Response::new(self.incidents(time).await?))
    }

    async fn get_precursors(
        &self,
        request: Request<GetPrecursorsRequest>,
    ) -> Result<Response<GetPrecursorsResponse>, Status> {
        let time = request.get_ref().time.as_ref();
        Ok(Response::new(self.precursors(time).await?))
    }
}

/// The three about the past of the fleet, in the words of the trait below.
impl Statistics {
    async fn classes(&self, request: &GetClassesRequest) -> Result<GetClassesResponse, Status> {
        let (store, ended) = self.asked(request.time.as_ref())?;
        let step = fleet::step(request.step());
        let failed = |error: StoreError| status::from_store(&error);
        let rows = store.classes(ended, step).await.map_err(failed)?;
        let trends = store.class_trends(ended, step).await.map_err(failed)?;
        Ok(GetClassesResponse {
            rows: rows.into_iter().map(fleet::class_row).collect(),
            trends: trends.into_iter().map(fleet::class_trend).collect(),
            undiagnosed: undiagnosed(store, ended).await.map_err(failed)?,
        })
    }

    async fn incidents(&self, time: Option<&TimeRange>) -> Result<GetIncidentsResponse, Status> {
        let (store, ended) = self.asked(time)?;
        let rows = store.incidents(ended).await;
        let rows = rows.map_err(|e| status::from_store(&e))?;
        Ok(GetIncidentsResponse {
            incidents: rows.into_iter().map(fleet::incident).collect(),
        })
    }

    async fn precursors(&self, time: Option<&TimeRange>) -> Result<GetPrecursorsResponse, Status> {
        let (store, ended) = self.asked(time)?;
        let rows = store.precursors(ended).await;
        let rows = rows.map_err(|e| status::from_store(&e))?;
        Ok(GetPrecursorsResponse {
            precursors: rows.into_iter().map(fleet::precursor).collect(),
        })
    }
}

const COVERED: &str = "covered";

pub(super) fn count(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

pub(super) fn share(share: StoredShare) -> Share {
    Share {
        attempts: count(share.attempts),
        gpu_hours: share.gpu_hours,
        of_attempts: share.of_attempts,
        of_gpu_hours: share.of_gpu_hours,
        unmeasured: count(share.unmeasured),
    }
}

fn sum(shares: impl Iterator<Item = StoredShare>) -> StoredShare {
    shares.fold(StoredShare::default(), |sum, share| StoredShare {
        attempts: sum.attempts.saturating_add(share.attempts),
        gpu_hours: sum.gpu_hours + share.gpu_hours,
        unmeasured: sum.unmeasured.saturating_add(share.unmeasured),
        ..sum
    })
}

/// A part as a share of the whole; of nothing there is none.
fn of(part: StoredShare, whole: StoredShare) -> Share {
    // Counts of attempts stay far below 2^53.
    let ratio = |part: i64, whole: i64| (whole > 0).then(|| part as f64 / whole as f64);
    Share {
        of_attempts: ratio(part.attempts, whole.attempts),
        of_gpu_hours: (whole.gpu_hours > 0.0).then(|| part.gpu_hours / whole.gpu_hours),
        ..share(part)
    }
}

/// Names of the store are those of the contract in lower case; one that a later version
/// wrote is unspecified.
fn log_class(name: &str) -> LogClass {
    LogClass::from_str_name(&format!("LOG_CLASS_{}", name.to_ascii_uppercase())).unwrap_or_default()
}

fn coverage(name: &str) -> LogCoverage {
    let name = format!("LOG_COVERAGE_{}", name.to_ascii_uppercase());
    LogCoverage::from_str_name(&name).unwrap_or_default()
}

fn told_by(name: &str) -> ToldBy {
    ToldBy::from_str_name(&format!("TOLD_BY_{}", name.to_ascii_uppercase())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_store_are_those_of_the_contract() {
        assert_eq!(log_class("memory_access"), LogClass::MemoryAccess);
        assert_eq!(coverage("no_probe"), LogCoverage::NoProbe);
        assert_eq!(told_by("co_signal"), ToldBy::CoSignal);
        assert_eq!(log_class(""), LogClass::Unspecified);
        assert_eq!(coverage("of a later version"), LogCoverage::Unspecified);
    }

    #[test]
    fn a_share_of_nothing_is_none() {
        let nothing = of(StoredShare::default(), StoredShare::default());
        assert_eq!((nothing.of_attempts, nothing.of_gpu_hours), (None, None));
        let part = StoredShare {
            attempts: 1,
            gpu_hours: 3.0,
            ..StoredShare::default()
        };
        let whole = StoredShare {
            attempts: 4,
            gpu_hours: 12.0,
            ..part
        };
        let quarter = of(part, whole);
        assert_eq!(
            (quarter.of_attempts, quarter.of_gpu_hours),
            (Some(0.25), Some(0.25))
        );
    }
}
