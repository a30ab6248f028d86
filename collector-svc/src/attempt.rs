//! Names that requests carry, validated.

use rdmesh_proto::common::v1::{AttemptId, TimeRange};
use rdmesh_store::jobs::AttemptKey;
use time::OffsetDateTime;

use crate::times::{self, BadTime};

/// Bytes of a job id. Slurm's have 20, Kubernetes names up to 253.
const JOB_ID_MAX_BYTES: usize = 256;
/// Bytes of a host name (RFC 1035).
pub(crate) const HOST_MAX_BYTES: usize = 253;

/// What is wrong with a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {problem}")]
pub(crate) struct BadRequest {
    field: String,
    problem: String,
}

impl BadRequest {
    pub(crate) fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            problem: problem.into(),
        }
    }
}

impl From<BadTime> for BadRequest {
    fn from(error: BadTime) -> Self {
        let text = error.to_string();
        let (field, problem) = text.split_once(' ').unwrap_or((&text, ""));
        Self::new(field, problem)
    }
}

/// A job id: 1 to 256 bytes, not white space alone, no control characters, no `/`.
pub(crate) fn job_id(field: &str, text: &str) -> Result<String, BadRequest> {
    if text.trim().is_empty() {
        let what = if text.is_empty() {
            "empty"
        } else {
            "white space alone"
        };
        return Err(BadRequest::new(
            field,
            format!("is {what}; write the scheduler's job id"),
        ));
    }
    let allowed = "allowed are 1 to 256 bytes without control characters and without '/'";
    if text.len() > JOB_ID_MAX_BYTES {
        return Err(BadRequest::new(
            field,
            format!("has {} bytes; {allowed}", text.len()),
        ));
    }
    if text.contains('/') || text.contains(char::is_control) {
        return Err(BadRequest::new(field, format!("is {text:?}; {allowed}")));
    }
    Ok(text.to_owned())
}

/// The attempt that a request is about.
pub(crate) fn attempt(id: Option<&AttemptId>) -> Result<AttemptKey, BadRequest> {
    let id = id.ok_or_else(|| BadRequest::new("attempt", "is missing; name the job"))?;
    Ok(AttemptKey {
        job_id: job_id("attempt.job_id", &id.job_id)?,
        requeue: id.requeue,
        restart: id.restart,
    })
}

/// As the contract holds it.
pub(crate) fn to_proto(key: &AttemptKey) -> AttemptId {
    AttemptId {
        job_id: key.job_id.clone(),
        requeue: key.requeue,
        restart: key.restart,
    }
}

/// JOB/REQUEUE or JOB/REQUEUE.RESTART.
pub(crate) fn written(key: &AttemptKey) -> String {
    match key.restart {
        0 => format!("{}/{}", key.job_id, key.requeue),
        restart => format!("{}/{}.{restart}", key.job_id, key.requeue),
    }
}

/// A host name: 1 to 253 bytes, no control characters, no white space, no `/`.
pub(crate) fn host(field: &str, text: &str) -> Result<String, BadRequest> {
    let bad = |problem: String| {
        let allowed = "a host name has 1 to 253 bytes without white space, control characters \
                       and '/'";
        BadRequest::new(field, format!("{problem}; {allowed}"))
    };
    if text.is_empty() {
        return Err(bad("is empty".to_owned()));
    }
    if text.len() > HOST_MAX_BYTES {
        return Err(bad(format!("has {} bytes", text.len())));
    }
    if text.contains(|c: char| c.is_whitespace() || c.is_control() || c == '/') {
        return Err(bad(format!("is {text:?}")));
    }
    Ok(text.to_owned())
}

/// A text of at most `max_bytes` bytes without control characters.
pub(crate) fn text(field: &str, text: &str, max_bytes: usize) -> Result<String, BadRequest> {
    if text.len() > max_bytes {
        let problem = format!("has {} bytes; at most {max_bytes} are allowed", text.len());
        return Err(BadRequest::new(field, problem));
    }
    if text.contains(|c: char| c.is_control() && c != '\n' && c != '\t') {
        return Err(BadRequest::new(field, "holds control characters"));
    }
    Ok(text.to_owned())
}

/// Both ends of a time range, where told.
pub(crate) fn range(
    range: Option<&TimeRange>,
) -> Result<(Option<OffsetDateTime>, Option<OffsetDateTime>), BadRequest> {
    let Some(range) = range else {
        return Ok((None, None));
    };
    let from = times::optional("time.from", range.from.as_ref())?;
    let to = times::optional("time.to", range.to.as_ref())?;
    if let (Some(from), Some(to)) = (from, to)
        && from > to
    {
        return Err(BadRequest::new(
            "time.from",
            "is after time.to; the earlier one comes first",
        ));
    }
    Ok((from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_ids() {
        assert_eq!(job_id("job_id", "4711_3").unwrap(), "4711_3");
        for bad in ["", " ", "\u{a0}\u{2003}", "a/b", "a\nb", &"x".repeat(257)] {
            let refused = job_id("attempt.job_id", bad).unwrap_err().to_string();
            assert!(refused.starts_with("attempt.job_id "), "{refused}");
        }
    }

    #[test]
    fn hosts() {
        assert_eq!(
            host("host", "gpu-01.example.org").unwrap(),
            "gpu-01.example.org"
        );
        for bad in ["", "a b", "../etc", "x\0", &"h".repeat(254)] {
            assert!(host("host", bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn attempts_are_written_as_the_contract_says() {
        let key = |requeue, restart| AttemptKey {
            job_id: "7".into(),
            requeue,
            restart,
        };
        assert_eq!(written(&key(2, 0)), "7/2");
        assert_eq!(written(&key(2, 1)), "7/2.1");
    }
}
