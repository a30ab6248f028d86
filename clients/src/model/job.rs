//! Jobs.

use std::collections::BTreeMap;
use std::str::FromStr;

use rdmesh_proto::collector::v1 as wire;
use serde::Serialize;

use super::{moment_or_mark, text, wire_enum};
use crate::attempt::AttemptId;
use crate::moment::Moment;
use crate::placement::Placement;

wire_enum! {
    /// How an attempt stands.
    JobState from rdmesh_proto::collector::v1::JobState {
        Unknown => "unknown",
        Running => "running",
        Completed => "completed",
        Failed => "failed",
        Cancelled => "cancelled",
        Timeout => "timeout",
        OutOfMemory => "out_of_memory",
        NodeFail => "node_fail",
    }
}

/// Why a text is no state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no job state; write running, completed, failed, cancelled, timeout, out_of_memory, \
     node_fail or unknown"
)]
pub struct JobStateError(String);

impl FromStr for JobState {
    type Err = JobStateError;

    /// Reads the names above in any case, with `-` or `_`.
    fn from_str(text: &str) -> Result<JobState, JobStateError> {
        let wanted = text.to_ascii_lowercase().replace('-', "_");
        JobState::ALL
            .iter()
            .find(|state| state.name() == wanted)
            .copied()
            .ok_or_else(|| JobStateError(text.to_owned()))
    }
}

impl From<JobState> for wire::JobState {
    fn from(state: JobState) -> wire::JobState {
        match state {
            JobState::Unspecified | JobState::Newer(_) => wire::JobState::Unspecified,
            JobState::Unknown => wire::JobState::Unknown,
            JobState::Running => wire::JobState::Running,
            JobState::Completed => wire::JobState::Completed,
            JobState::Failed => wire::JobState::Failed,
            JobState::Cancelled => wire::JobState::Cancelled,
            JobState::Timeout => wire::JobState::Timeout,
            JobState::OutOfMemory => wire::JobState::OutOfMemory,
            JobState::NodeFail => wire::JobState::NodeFail,
        }
    }
}

/// One attempt of a job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Job {
    /// Which attempt.
    pub attempt: AttemptId,
    /// Its name, for people.
    pub name: Option<String>,
    /// Who owns it.
    pub user: Option<String>,
    /// "slurm", "kubernetes", …
    pub scheduler: Option<String>,
    /// The cluster that it runs in.
    pub cluster: Option<String>,
    /// A class of the site's own.
    pub job_class: Option<String>,
    /// How it stands.
    pub state: JobState,
    /// When it began, if anybody said so.
    pub started_at: Option<Moment>,
    /// When it ended, if it did.
    pub ended_at: Option<Moment>,
    /// Exit code, if it has one.
    pub exit_code: Option<i32>,
    /// The scheduler's words.
    pub exit_reason: Option<String>,
    /// On how many hosts it ran.
    pub hosts_total: u32,
    /// The first of them by name, at most four: lists have no placements.
    pub first_hosts: Vec<String>,
    /// Where it ran; empty in lists.
    pub placements: Vec<Placement>,
    /// What is odd about what was said.
    pub marks: Vec<String>,
    /// Anything else.
    pub labels: BTreeMap<String, String>,
}

impl From<wire::Job> for Job {
    /// A field that breaks the contract leaves a mark on this row and keeps no
    /// other row from being shown.
    fn from(job: wire::Job) -> Job {
        let mut marks = job.marks;
        let attempt = AttemptId::told(job.attempt.unwrap_or_default(), &mut marks);
        Job {
            attempt,
            name: text(job.name),
            user: text(job.user),
            scheduler: text(job.scheduler),
            cluster: text(job.cluster),
            job_class: text(job.job_class),
            state: job.state.into(),
            started_at: moment_or_mark(&mut marks, "started_at", job.started_at),
            ended_at: moment_or_mark(&mut marks, "ended_at", job.ended_at),
            exit_code: job.exit_code,
            exit_reason: text(job.exit_reason),
            hosts_total: job.hosts_total,
            first_hosts: job.first_hosts,
            placements: job.placements.into_iter().map(Into::into).collect(),
            marks,
            labels: job.labels.into_iter().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_read_as_schedulers_write_them() {
        assert_eq!("OUT_OF_MEMORY".parse(), Ok(JobState::OutOfMemory));
        assert_eq!("node-fail".parse(), Ok(JobState::NodeFail));
        assert!("dead".parse::<JobState>().is_err());
    }

    #[test]
    fn every_state_goes_over_the_wire_and_back() {
        for state in JobState::ALL {
            assert_eq!(
                JobState::from(i32::from(wire::JobState::from(*state))),
                *state
            );
        }
        assert_eq!(JobState::from(99), JobState::Newer(99));
    }

    #[test]
    fn a_job_without_attempt_or_with_an_odd_time_is_marked() {
        let job = Job::from(wire::Job {
            started_at: Some(prost_types::Timestamp {
                seconds: i64::MAX,
                nanos: 0,
            }),
            ..wire::Job::default()
        });
        assert_eq!((job.started_at, job.marks.len()), (None, 2), "{job:?}");
    }
}
