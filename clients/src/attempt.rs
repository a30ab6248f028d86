//! Names of attempts: `JOB`, `JOB/REQUEUE` and `JOB/REQUEUE.RESTART`.

use std::fmt;
use std::str::FromStr;

use rdmesh_proto::common::v1 as wire;
use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};

/// Longest job id in bytes, as the wire contract has it (`AttemptId.job_id`).
pub const MAX_JOB_ID_BYTES: usize = 256;

/// One run of a job. One that a caller makes keeps the rules of the contract; one
/// that the collector told may break them, see [`AttemptId::told`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptId {
    job_id: String,
    /// How often the scheduler requeued the job.
    pub requeue: u32,
    /// How often the launcher restarted its workers inside this run.
    pub restart: u32,
}

/// A job, or one of its attempts. What is left out means "the latest".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptSelector {
    job_id: String,
    /// Absent: the latest.
    pub requeue: Option<u32>,
    /// Absent: the latest of that requeue.
    pub restart: Option<u32>,
}

/// Why a text names no attempt.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttemptError {
    /// Nothing stands before the slash.
    #[error("the job id is empty; write JOB or JOB/REQUEUE, for example 4711/0")]
    EmptyJob,
    /// Nobody could tell it from another one, or see it in a table.
    #[error("the job id is white space alone; write JOB or JOB/REQUEUE, for example 4711/0")]
    BlankJob,
    /// Longer than [`MAX_JOB_ID_BYTES`].
    #[error("the job id has {0} bytes; {MAX_JOB_ID_BYTES} are allowed")]
    LongJob(usize),
    /// A control character or a second slash.
    #[error("the job id holds {0:?}, which no job id may hold")]
    Character(char),
    /// What follows the slash is not `REQUEUE[.RESTART]`.
    #[error(
        "{0:?} is no attempt; after the slash write REQUEUE or REQUEUE.RESTART, \
         for example 4711/1 or 4711/1.2"
    )]
    Attempt(String),
}

impl AttemptId {
    /// An attempt of `job_id`.
    ///
    /// # Errors
    /// When the job id is empty or white space alone, longer than
    /// [`MAX_JOB_ID_BYTES`], or holds a slash or a control character.
    pub fn new(
        job_id: impl Into<String>,
        requeue: u32,
        restart: u32,
    ) -> Result<AttemptId, AttemptError> {
        let job_id = job_id.into();
        check_job_id(&job_id)?;
        Ok(AttemptId {
            job_id,
            requeue,
            restart,
        })
    }

    /// An attempt as the collector tells it. An id that breaks the rules is kept
    /// as it is, for a person must see which row is odd; `marks` gets the reason.
    /// Who shows it escapes it.
    pub fn told(id: wire::AttemptId, marks: &mut Vec<String>) -> AttemptId {
        if let Err(error) = check_job_id(&id.job_id) {
            marks.push(match error {
                AttemptError::EmptyJob => "the job id is empty".to_owned(),
                AttemptError::BlankJob => "the job id is white space alone".to_owned(),
                error => error.to_string(),
            });
        }
        AttemptId {
            job_id: id.job_id,
            requeue: id.requeue,
            restart: id.restart,
        }
    }

    /// The scheduler's job id.
    pub fn job_id(&self) -> &str {
        &self.job_id
    }
}

impl AttemptSelector {
    /// The scheduler's job id.
    pub fn job_id(&self) -> &str {
        &self.job_id
    }

    /// Whether it names a job alone and leaves the attempt to the collector.
    pub fn is_latest(&self) -> bool {
        self.requeue.is_none()
    }

    /// The attempt that it names when what is left out is read as zero.
    pub fn or_first(&self) -> AttemptId {
        AttemptId {
            job_id: self.job_id.clone(),
            requeue: self.requeue.unwrap_or(0),
            restart: self.restart.unwrap_or(0),
        }
    }
}

fn check_job_id(job_id: &str) -> Result<(), AttemptError> {
    if job_id.is_empty() {
        return Err(AttemptError::EmptyJob);
    }
    if job_id.trim().is_empty() {
        return Err(AttemptError::BlankJob);
    }
    if job_id.len() > MAX_JOB_ID_BYTES {
        return Err(AttemptError::LongJob(job_id.len()));
    }
    match job_id.chars().find(|c| *c == '/' || c.is_control()) {
        Some(c) => Err(AttemptError::Character(c)),
        None => Ok(()),
    }
}

/// Digits alone: `u32::from_str` would also take a sign.
fn number(text: &str) -> Option<u32> {
    if text.bytes().all(|b| b.is_ascii_digit()) {
        text.parse().ok()
    } else {
        None
    }
}

impl FromStr for AttemptSelector {
    type Err = AttemptError;

    fn from_str(text: &str) -> Result<AttemptSelector, AttemptError> {
        let Some((job_id, attempt)) = text.split_once('/') else {
            check_job_id(text)?;
            return Ok(AttemptSelector {
                job_id: text.to_owned(),
                requeue: None,
                restart: None,
            });
        };
        check_job_id(job_id)?;
        let wrong = || AttemptError::Attempt(attempt.to_owned());
        let (requeue, restart) = match attempt.split_once('.') {
            None => (number(attempt).ok_or_else(wrong)?, None),
            Some((requeue, restart)) => {
                let restart = number(restart).ok_or_else(wrong)?;
                (number(requeue).ok_or_else(wrong)?, Some(restart))
            }
        };
        Ok(AttemptSelector {
            job_id: job_id.to_owned(),
            requeue: Some(requeue),
            restart,
        })
    }
}

impl FromStr for AttemptId {
    type Err = AttemptError;

    /// Reads what [`AttemptSelector`] reads; what is left out is zero.
    fn from_str(text: &str) -> Result<AttemptId, AttemptError> {
        text.parse::<AttemptSelector>()
            .map(|selector| selector.or_first())
    }
}

impl fmt::Display for AttemptId {
    /// `JOB/REQUEUE`, or `JOB/REQUEUE.RESTART` after a restart.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.job_id, self.requeue)?;
        if self.restart > 0 {
            write!(f, ".{}", self.restart)?;
        }
        Ok(())
    }
}

impl fmt::Display for AttemptSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.job_id)?;
        if let Some(requeue) = self.requeue {
            write!(f, "/{requeue}")?;
        }
        if let Some(restart) = self.restart {
            write!(f, ".{restart}")?;
        }
        Ok(())
    }
}

impl Serialize for AttemptId {
    /// The wire's fields, and `id`: the text that every command takes.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_struct("AttemptId", 4)?;
        out.serialize_field("id", &self.to_string())?;
        out.serialize_field("job_id", &self.job_id)?;
        out.serialize_field("requeue", &self.requeue)?;
        out.serialize_field("restart", &self.restart)?;
        out.end()
    }
}

impl From<AttemptId> for AttemptSelector {
    /// That attempt and no other.
    fn from(id: AttemptId) -> AttemptSelector {
        AttemptSelector {
            requeue: Some(id.requeue),
            restart: Some(id.restart),
            job_id: id.job_id,
        }
    }
}

impl From<AttemptId> for wire::AttemptId {
    fn from(id: AttemptId) -> wire::AttemptId {
        wire::AttemptId {
            job_id: id.job_id,
            requeue: id.requeue,
            restart: id.restart,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn selector(text: &str) -> AttemptSelector {
        text.parse().unwrap()
    }

    #[test]
    fn reads_job_requeue_and_restart() {
        assert_eq!(selector("4711").requeue, None);
        assert_eq!(selector("4711/2").requeue, Some(2));
        assert_eq!(selector("4711/2").restart, None);
        assert_eq!(selector("ns.pod-a_1/2.3").restart, Some(3));
        assert_eq!(selector("ns.pod-a_1/2.3").job_id(), "ns.pod-a_1");
        assert_eq!("4711".parse::<AttemptId>().unwrap().to_string(), "4711/0");
        assert_eq!(
            "4711/0.2".parse::<AttemptId>().unwrap().to_string(),
            "4711/0.2"
        );
    }

    #[test]
    fn refuses_what_names_no_attempt() {
        for text in [
            "",
            " ",
            "\u{a0}/1",
            "/1",
            "a/",
            "a/x",
            "a/1.",
            "a/.1",
            "a/+1",
            "a/1/2",
            "a/1.2.3",
            "a/4294967296",
        ] {
            assert!(text.parse::<AttemptSelector>().is_err(), "{text}");
        }
        assert_eq!(
            "a\u{1b}b".parse::<AttemptId>(),
            Err(AttemptError::Character('\u{1b}'))
        );
        assert_eq!(
            "x".repeat(257).parse::<AttemptId>(),
            Err(AttemptError::LongJob(257))
        );
    }

    #[test]
    fn what_the_collector_tells_is_kept_and_marked() {
        let told = |job_id: &str| {
            let mut marks = Vec::new();
            let id = wire::AttemptId {
                job_id: job_id.to_owned(),
                requeue: 1,
                restart: 0,
            };
            (AttemptId::told(id, &mut marks).to_string(), marks.len())
        };
        assert_eq!(told("4711"), ("4711/1".to_owned(), 0));
        assert_eq!(told("a/b"), ("a/b/1".to_owned(), 1));
        assert_eq!(told("a\u{1b}b"), ("a\u{1b}b/1".to_owned(), 1));
        assert_eq!(told("").1, 1);
        assert_eq!(told(&"x".repeat(4_096)).1, 1);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(job in "[^/\\p{Cc}\\s][^/\\p{Cc}]{0,59}", requeue: u32, restart: u32) {
            let id = AttemptId::new(job, requeue, restart).unwrap();
            prop_assert_eq!(id.to_string().parse::<AttemptId>().unwrap(), id);
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,300}") {
            if let Ok(read) = text.parse::<AttemptSelector>() {
                prop_assert_eq!(read.to_string().parse::<AttemptSelector>(), Ok(read));
            }
        }
    }
}
