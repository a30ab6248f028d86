//! What good calls do on a host, and where failing ones part from them: asked of its
//! tracer.

use rdmesh_proto::tracer::v1 as wire;
use rdmesh_proto::tracer::v1::{diff_baseline_response, record_baseline_response};
use tonic::Streaming;

use crate::model::baseline::{Baseline, Baselines, Fork, WindowProgress};
use crate::tracer::{TracerClient, TracerError};

/// For how long, of which verbs, with which driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WindowAsked {
    /// As the catalogue names them.
    pub verbs: Vec<String>,
    /// Seconds; 0: as the tracer has it, 10.
    pub seconds: u32,
    /// Empty: the only one.
    pub driver: String,
}

/// What a recording tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// How it stands.
    Progress(WindowProgress),
    /// A baseline as it is kept.
    Baseline(Box<Baseline>),
}

/// What a comparison tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compared {
    /// How it stands.
    Progress(WindowProgress),
    /// A new kind of failing call.
    Fork(Box<Fork>),
}

/// A recording that is under way; dropping it ends it.
#[derive(Debug)]
pub struct Recording {
    client: TracerClient,
    stream: Streaming<wire::RecordBaselineResponse>,
}

/// A comparison that is under way; dropping it ends it.
#[derive(Debug)]
pub struct Comparison {
    client: TracerClient,
    stream: Streaming<wire::DiffBaselineResponse>,
}

fn nothing() -> TracerError {
    TracerError::BadAnswer {
        field: "event",
        reason: "it is missing, or of a newer contract".to_owned(),
    }
}

impl TracerClient {
    /// Watches good calls.
    ///
    /// # Errors
    /// See [`TracerError`].
    pub async fn record_baseline(&self, asked: WindowAsked) -> Result<Recording, TracerError> {
        let request = wire::RecordBaselineRequest {
            verbs: asked.verbs,
            seconds: asked.seconds,
            driver: asked.driver,
        };
        let mut service = self.service();
        Ok(Recording {
            client: self.clone(),
            stream: self.ask(service.record_baseline(request)).await?,
        })
    }

    /// The baselines of a verb with their trees, or the list of all.
    ///
    /// # Errors
    /// See [`TracerError`].
    pub async fn list_baselines(&self, verb: Option<&str>) -> Result<Baselines, TracerError> {
        let request = wire::ListBaselinesRequest {
            verb: verb.unwrap_or_default().to_owned(),
            nodes: verb.is_some(),
        };
        let mut service = self.service();
        let answer: Baselines = self
            .ask(service.list_baselines(request))
            .await?
            .try_into()?;
        match verb {
            Some(verb) if answer.baselines.is_empty() && answer.damaged.is_empty() => {
                Err(TracerError::NoBaseline {
                    address: self.address().to_owned(),
                    verb: verb.to_owned(),
                })
            }
            _ => Ok(answer),
        }
    }

    /// Watches failing calls.
    ///
    /// # Errors
    /// See [`TracerError`].
    pub async fn diff_baseline(&self, asked: WindowAsked) -> Result<Comparison, TracerError> {
        let request = wire::DiffBaselineRequest {
            verbs: asked.verbs,
            seconds: asked.seconds,
            driver: asked.driver,
        };
        let mut service = self.service();
        Ok(Comparison {
            client: self.clone(),
            stream: self.ask(service.diff_baseline(request)).await?,
        })
    }
}

impl Recording {
    /// What comes next; none: it is over.
    ///
    /// # Errors
    /// See [`TracerError`].
    pub async fn next(&mut self) -> Result<Option<Recorded>, TracerError> {
        use record_baseline_response::Event;
        let Some(answer) = self.client.next(&mut self.stream).await? else {
            return Ok(None);
        };
        Ok(Some(match answer.event.ok_or_else(nothing)? {
            Event::Progress(progress) => Recorded::Progress(progress.into()),
            Event::Baseline(baseline) => Recorded::Baseline(Box::new(baseline.try_into()?)),
        }))
    }
}

impl Comparison {
    /// What comes next; none: it is over.
    ///
    /// # Errors
    /// See [`TracerError`].
    pub async fn next(&mut self) -> Result<Option<Compared>, TracerError> {
        use diff_baseline_response::Event;
        let Some(answer) = self.client.next(&mut self.stream).await? else {
            return Ok(None);
        };
        Ok(Some(match answer.event.ok_or_else(nothing)? {
            Event::Progress(progress) => Compared::Progress(progress.into()),
            Event::Fork(fork) => Compared::Fork(Box::new(fork.try_into()?)),
        }))
    }
}
