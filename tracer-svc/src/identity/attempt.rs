//! The run of a job that a task belongs to, validated.

use std::fmt;

/// Longest job id, bytes: the contract's bound (common.v1.AttemptId). Slurm and
/// LSF ids have at most 20 bytes, `pod:<uid>` has 40, a site's own name fits.
pub const JOB_ID_BYTES: usize = 256;

/// One run of a job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Attempt {
    job_id: Box<str>,
    /// How often the scheduler requeued the job.
    pub requeue: u32,
    /// How often the launcher restarted its workers inside this run.
    pub restart: u32,
}

impl Attempt {
    /// Takes a job id as the environment or a cgroup gives it.
    ///
    /// # Errors
    /// Empty or white space alone, longer than [`JOB_ID_BYTES`], not UTF-8, or with a control
    /// character or '/': such an id could not be written in a command line,
    /// nor told apart from JOB/REQUEUE.
    pub fn new(job_id: &[u8], requeue: u32, restart: u32) -> Result<Self, RefusedValue> {
        if job_id.trim_ascii().is_empty() {
            return Err(RefusedValue::Empty);
        }
        if job_id.len() > JOB_ID_BYTES {
            return Err(RefusedValue::TooLong);
        }
        let text = std::str::from_utf8(job_id).map_err(|_| RefusedValue::NotUtf8)?;
        if text.chars().any(|c| c.is_control() || c == '/') {
            return Err(RefusedValue::Forbidden);
        }
        Ok(Self {
            job_id: text.into(),
            requeue,
            restart,
        })
    }

    /// The scheduler's job id, 1 to [`JOB_ID_BYTES`] bytes.
    #[must_use]
    pub fn job_id(&self) -> &str {
        &self.job_id
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.job_id, self.requeue)?;
        if self.restart > 0 {
            write!(f, ".{}", self.restart)?;
        }
        Ok(())
    }
}

/// How an attempt came to be known, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// A variable of the task's environment.
    Environment,
    /// The task's cgroup path.
    Cgroup,
    /// Nothing says so; the collector may know by placement.
    None,
}

/// Why a value that names a job or an attempt was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum RefusedValue {
    /// A name without a value.
    #[error("the value is empty or white space")]
    Empty,
    /// Longer than the contract allows.
    #[error("the value is longer than {JOB_ID_BYTES} bytes")]
    TooLong,
    /// Not text.
    #[error("the value is not UTF-8")]
    NotUtf8,
    /// A job id with a control character or '/'.
    #[error("the value has a control character or '/'")]
    Forbidden,
    /// `RDMESH_ATTEMPT` is not REQUEUE or REQUEUE.RESTART.
    #[error("the value is not REQUEUE or REQUEUE.RESTART")]
    NotAnAttempt,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn writes_itself_as_the_command_line_takes_it() {
        let text = |requeue, restart| Attempt::new(b"77", requeue, restart).unwrap().to_string();
        assert_eq!(text(0, 0), "77/0");
        assert_eq!(text(2, 1), "77/2.1");
    }

    #[test]
    fn refuses_what_could_not_be_written_or_told_apart() {
        let refused = |id: &[u8]| Attempt::new(id, 0, 0).unwrap_err();
        assert_eq!(refused(b""), RefusedValue::Empty);
        assert_eq!(refused(b" \t"), RefusedValue::Empty);
        assert_eq!(refused(b"a/b"), RefusedValue::Forbidden);
        assert_eq!(refused(b"a\nb"), RefusedValue::Forbidden);
        assert_eq!(refused("a\u{85}b".as_bytes()), RefusedValue::Forbidden);
        assert_eq!(refused(b"a\xffb"), RefusedValue::NotUtf8);
        assert_eq!(refused(&[b'x'; 257]), RefusedValue::TooLong);
        assert!(Attempt::new(&[b'x'; 256], 0, 0).is_ok());
    }

    proptest! {
        #[test]
        fn an_accepted_id_is_what_the_contract_allows(id in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(attempt) = Attempt::new(&id, 0, 0) {
                prop_assert_eq!(attempt.job_id().as_bytes(), &id[..]);
                prop_assert!((1..=JOB_ID_BYTES).contains(&id.len()));
                prop_assert!(!attempt.job_id().contains('/'));
                prop_assert!(!attempt.job_id().chars().any(char::is_control));
            }
        }
    }
}
