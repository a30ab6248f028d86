//! What is asked over all attempts that ended badly.

use rdmesh_proto::collector::v1 as wire;
use rdmesh_proto::common::v1 as common;

use crate::attempt::AttemptSelector;
use crate::client::Client;
use crate::error::{ClientError, Subject};
use crate::jobs::time_range;
use crate::model::advice::Advice;
use crate::model::statistics::{Coverage, LostHours, Misattribution, Silent};
use crate::moment::Moment;

/// When attempts ended; absent: open.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ended {
    /// From then on.
    pub since: Option<Moment>,
    /// Before then.
    pub until: Option<Moment>,
}

impl Ended {
    pub(crate) fn range(self) -> Option<common::TimeRange> {
        time_range(self.since, self.until)
    }
}

impl Client {
    /// Under which class logs file attempts for which the kernel shows the failing call.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn misattribution(&self, ended: Ended) -> Result<Misattribution, ClientError> {
        let ask = || {
            let mut service = self.statistics_service();
            let time = ended.range();
            async move {
                let request = wire::GetMisattributionRequest { time };
                service.get_misattribution(request).await
            }
        };
        Ok(self.read(&Subject::none(), ask).await?.into())
    }

    /// Failing calls that logs tell, by whether a probe could show them.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn coverage(&self, ended: Ended) -> Result<Coverage, ClientError> {
        let ask = || {
            let mut service = self.statistics_service();
            let time = ended.range();
            async move {
                service
                    .get_coverage(wire::GetCoverageRequest { time })
                    .await
            }
        };
        Ok(self.read(&Subject::none(), ask).await?.into())
    }

    /// Failing calls near which nothing else was seen.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn silent(&self, ended: Ended) -> Result<Silent, ClientError> {
        let ask = || {
            let mut service = self.statistics_service();
            let time = ended.range();
            async move {
                let request = wire::GetSilentFailuresRequest { time };
                service.get_silent_failures(request).await
            }
        };
        Ok(self.read(&Subject::none(), ask).await?.into())
    }

    /// GPU hours of attempts that ended badly, by class.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn lost_hours(&self, ended: Ended) -> Result<LostHours, ClientError> {
        let ask = || {
            let mut service = self.statistics_service();
            let time = ended.range();
            async move {
                service
                    .get_lost_hours(wire::GetLostHoursRequest { time })
                    .await
            }
        };
        Ok(self.read(&Subject::none(), ask).await?.into())
    }

    /// Whether another attempt is worth it, and without which hosts.
    ///
    /// # Errors
    /// [`ClientError::NotFound`] when the collector never heard of it.
    pub async fn advise_retry(&self, selector: &AttemptSelector) -> Result<Advice, ClientError> {
        let request = wire::AdviseRetryRequest {
            job_id: selector.job_id().to_owned(),
            requeue: selector.requeue,
            restart: selector.restart,
        };
        let ask = || {
            let (mut service, request) = (self.query_service(), request.clone());
            async move { service.advise_retry(request).await }
        };
        self.read(&Subject::job(selector).checked(), ask)
            .await?
            .try_into()
    }
}
