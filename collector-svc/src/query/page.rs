//! Pages: how many rows, and where the next page begins.
//!
//! A token is the place of the last row in the order of the list, so that rows that
//! come meanwhile neither repeat nor hide others.

use rdmesh_store::jobs::{Attempt, AttemptKey, JobCursor};
use rdmesh_store::query::FailureCursor;
use uuid::Uuid;

use crate::attempt::BadRequest;
use crate::times;

/// Rows of a page unless asked for otherwise.
pub(crate) const ROWS_DEFAULT: u32 = 100;
/// Rows of a page at most: some 2 MB of failures.
pub(crate) const ROWS_MAX: u32 = 1_000;

/// Separates the parts of a token; no name holds it.
const SEPARATOR: char = '\u{1f}';
/// Bytes of a token: a host, a job id, numbers, in hexadecimal.
const TOKEN_MAX_BYTES: usize = 2_048;

/// The size of a page: 0 is the default.
pub(crate) fn size(asked: u32, default: u32, most: u32) -> Result<u32, BadRequest> {
    match asked {
        0 => Ok(default),
        size if size <= most => Ok(size),
        size => Err(BadRequest::new(
            "page_size",
            format!("is {size}; at most {most} is allowed"),
        )),
    }
}

/// As many of `rows` as fit into `max_bytes` of a message.
pub(crate) fn fitting<T: prost::Message>(
    rows: impl Iterator<Item = T>,
    max_bytes: usize,
) -> Vec<T> {
    let mut left = max_bytes;
    rows.map_while(|row| {
        left = left.checked_sub(row.encoded_len())?;
        Some(row)
    })
    .collect()
}

/// Cuts what was read down to the page; `limit` is one more than its size. Returns
/// whether there is more.
pub(crate) fn cut<T>(rows: &mut Vec<T>, limit: u32) -> bool {
    let more = u32::try_from(rows.len()).is_ok_and(|read| read >= limit);
    if more {
        rows.pop();
    }
    more
}

fn write(parts: &[String]) -> String {
    let text = parts.join(&SEPARATOR.to_string());
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// The parts of a token of a list with `count` parts.
fn read(token: &str, count: usize) -> Result<Vec<String>, BadRequest> {
    let bad = || {
        BadRequest::new(
            "page_token",
            "is none of this list; use the one of the last answer, unchanged",
        )
    };
    if token.len() > TOKEN_MAX_BYTES || !token.len().is_multiple_of(2) || !token.is_ascii() {
        return Err(bad());
    }
    let bytes: Vec<u8> = (0..token.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&token[at..at + 2], 16).map_err(|_| bad()))
        .collect::<Result<_, _>>()?;
    let text = String::from_utf8(bytes).map_err(|_| bad())?;
    let parts: Vec<String> = text.split(SEPARATOR).map(str::to_owned).collect();
    if parts.len() != count || text.contains('\0') {
        return Err(bad());
    }
    Ok(parts)
}

fn number<T: std::str::FromStr>(part: &str) -> Result<T, BadRequest> {
    part.parse()
        .map_err(|_| BadRequest::new("page_token", "is none of this list"))
}

fn time(part: &str) -> Result<time::OffsetDateTime, BadRequest> {
    times::from_unix_ns(number(part)?)
        .ok_or_else(|| BadRequest::new("page_token", "is none of this list"))
}

/// Where the page after `last` begins.
pub(crate) fn jobs_token(last: &Attempt) -> String {
    write(&[
        times::to_unix_ns(last.listed_at).to_string(),
        last.key.job_id.clone(),
        last.key.requeue.to_string(),
        last.key.restart.to_string(),
    ])
}

pub(crate) fn read_jobs_token(token: &str) -> Result<Option<JobCursor>, BadRequest> {
    if token.is_empty() {
        return Ok(None);
    }
    let parts = read(token, 4)?;
    let key = AttemptKey {
        job_id: parts[1].clone(),
        requeue: number(&parts[2])?,
        restart: number(&parts[3])?,
    };
    Ok(Some(JobCursor {
        listed_at: time(&parts[0])?,
        key,
    }))
}

/// Where the page after `last` begins.
pub(crate) fn failures_token(last: &FailureCursor) -> String {
    write(&[
        times::to_unix_ns(last.at).to_string(),
        last.host.clone(),
        last.run_id.to_string(),
        last.seq.to_string(),
        last.ordinal.to_string(),
    ])
}

pub(crate) fn read_failures_token(token: &str) -> Result<Option<FailureCursor>, BadRequest> {
    if token.is_empty() {
        return Ok(None);
    }
    let parts = read(token, 5)?;
    Ok(Some(FailureCursor {
        at: time(&parts[0])?,
        host: parts[1].clone(),
        run_id: number::<Uuid>(&parts[2])?,
        seq: number(&parts[3])?,
        ordinal: number(&parts[4])?,
    }))
}

/// An offset into a list that is computed as a whole.
pub(crate) fn offset_token(offset: usize) -> String {
    write(&[offset.to_string()])
}

pub(crate) fn read_offset_token(token: &str) -> Result<usize, BadRequest> {
    if token.is_empty() {
        return Ok(0);
    }
    number(&read(token, 1)?[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use time::macros::datetime;

    #[test]
    fn tokens_are_read_back() {
        let cursor = FailureCursor {
            at: datetime!(2026-11-25 12:00:00.123456 UTC),
            host: "gpu-ä".into(),
            run_id: Uuid::from_u128(7),
            seq: 9,
            ordinal: 3,
        };
        assert_eq!(
            read_failures_token(&failures_token(&cursor)).unwrap(),
            Some(cursor)
        );
        assert_eq!(read_offset_token(&offset_token(5)).unwrap(), 5);
        assert_eq!(read_jobs_token("").unwrap(), None);
    }

    #[test]
    fn rows_fit_into_their_bytes() {
        let rows = vec!["0123456789".to_owned(); 5];
        // Each has its ten bytes, a tag and a length.
        assert_eq!(fitting(rows.clone().into_iter(), 36).len(), 3);
        assert_eq!(fitting(rows.into_iter(), usize::MAX).len(), 5);
    }

    #[test]
    fn sizes_are_bounded() {
        assert_eq!(size(0, 100, 1_000).unwrap(), 100);
        assert!(
            size(1_001, 100, 1_000)
                .unwrap_err()
                .to_string()
                .starts_with("page_size is 1001")
        );
    }

    proptest! {
        #[test]
        fn any_token_is_read_or_refused(token in "\\PC{0,80}") {
            let _ = read_failures_token(&token);
            let _ = read_jobs_token(&token);
            let _ = read_offset_token(&token);
        }

        #[test]
        fn any_hexadecimal_token_is_read_or_refused(token in "([0-9a-f]{2}){0,60}") {
            let _ = read_failures_token(&token);
            let _ = read_jobs_token(&token);
        }
    }
}
