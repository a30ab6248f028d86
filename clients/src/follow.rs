//! Failures as the collector stores them.

use std::collections::VecDeque;

use rdmesh_proto::collector::v1 as wire;
use tonic::Streaming;

use crate::client::Client;
use crate::error::{ClientError, Subject, from_status};
use crate::model::failure::Failure;
use crate::queries::FailureFilter;

/// What a follower is told.
#[derive(Clone, Debug, PartialEq)]
pub enum Followed {
    /// A failure. Boxed, because it is far larger than a number.
    Failure(Box<Failure>),
    /// So many failures came faster than they were taken, and were not sent; the lists
    /// have them.
    Missed(u64),
}

/// Failures from now on.
#[derive(Debug)]
pub struct Following {
    client: Client,
    stream: Streaming<wire::WatchFailuresResponse>,
    waiting: VecDeque<Followed>,
}

impl Client {
    /// Follows failures that pass the filter, whose times are not looked at. Returns when
    /// the collector says that the watch has begun.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn follow_failures(&self, filter: &FailureFilter) -> Result<Following, ClientError> {
        let attempt = filter.attempt.as_ref();
        let request = wire::WatchFailuresRequest {
            job_id: attempt.map_or_else(String::new, |a| a.job_id().to_owned()),
            requeue: attempt.and_then(|a| a.requeue),
            restart: attempt.and_then(|a| a.restart),
            host: filter.host.clone(),
            device: filter.device.clone(),
            function: filter.function.clone(),
            errno: filter.errno.map_or(0, crate::errno::Errno::number),
            include_expected: filter.include_expected,
        };
        let mut service = self.query_service();
        let stream = self
            .write(&Subject::watched(), service.watch_failures(request))
            .await?;
        let mut following = Following {
            client: self.clone(),
            stream,
            waiting: VecDeque::new(),
        };
        // The first answer is empty.
        following.receive().await?;
        Ok(following)
    }
}

impl Following {
    /// What comes next; `None`: the collector ends.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn next(&mut self) -> Result<Option<Followed>, ClientError> {
        while self.waiting.is_empty() {
            if !self.receive().await? {
                return Ok(None);
            }
        }
        Ok(self.waiting.pop_front())
    }

    /// Takes an answer; whether there was one.
    async fn receive(&mut self) -> Result<bool, ClientError> {
        let next = self.stream.message().await;
        let next = next
            .map_err(|status| from_status(&status, self.client.address(), &Subject::watched()))?;
        let Some(answer) = next else {
            return Ok(false);
        };
        if answer.missed > 0 {
            self.waiting.push_back(Followed::Missed(answer.missed));
        }
        let failures = answer.failures.into_iter();
        self.waiting
            .extend(failures.map(|f| Followed::Failure(Box::new(f.into()))));
        Ok(true)
    }
}
