//! What is asked of the fleet's past.

use rdmesh_proto::collector::v1 as wire;

use crate::client::Client;
use crate::error::{ClientError, Subject};
use crate::model::incidents::{Classes, Incidents, Precursors, TimeStep};
use crate::statistics::Ended;

impl Client {
    /// The share of each class over time, and whether it rises.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn classes(&self, ended: Ended, step: TimeStep) -> Result<Classes, ClientError> {
        let ask = || {
            let mut service = self.statistics_service();
            let request = wire::GetClassesRequest {
                time: ended.range(),
                step: wire::TimeStep::from(step).into(),
            };
            async move { service.get_classes(request).await }
        };
        Ok(self.read(&Subject::none(), ask).await?.into())
    }

    /// The same failure on many hosts, those on most first.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn incidents(&self, time: Ended) -> Result<Incidents, ClientError> {
        let ask = || {
            let mut service = self.statistics_service();
            let request = wire::GetIncidentsRequest { time: time.range() };
            async move { service.get_incidents(request).await }
        };
        Ok(self.read(&Subject::none(), ask).await?.into())
    }

    /// Signatures that rose on a host before its attempts failed of them.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn precursors(&self, ended: Ended) -> Result<Precursors, ClientError> {
        let ask = || {
            let mut service = self.statistics_service();
            let time = ended.range();
            async move {
                let request = wire::GetPrecursorsRequest { time };
                service.get_precursors(request).await
            }
        };
        Ok(self.read(&Subject::none(), ask).await?.into())
    }
}
