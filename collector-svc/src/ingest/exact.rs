//! Snapshots as they came, compressed for the store: against an earlier snapshot of the same
//! run where one is stored, because a host's functions, stacks, devices and jobs are the same
//! from one snapshot to the next.

use std::collections::HashMap;
use std::sync::Arc;

use rdmesh_store::ingest::RunKey;
use zstd::zstd_safe::{CCtx, CParameter, DCtx, ErrorCode, compress_bound, get_error_name};

/// Level of zstd: higher ones cost more than they save.
const LEVEL: i32 = 3;

/// Larger snapshots are no reference: what is compared with them costs as much as they do.
const REFERENCE_MAX_BYTES: usize = 64 << 10;
/// References of a writer, together: those of some thousand hosts. Beyond, all are forgotten,
/// and the next snapshots become references.
const REFERENCES_MAX_BYTES: usize = 32 << 20;
/// What a snapshot may be as it came; the contract's bound is lower.
const MESSAGE_MAX_BYTES: u64 = 64 << 20;

/// A compressed snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Exact {
    /// A frame of zstd.
    pub(crate) body: Vec<u8>,
    /// The sequence of the snapshot of the same run that it is compressed against.
    pub(crate) reference: Option<i64>,
}

#[derive(Debug)]
struct Reference {
    week: i32,
    sequence: i64,
    message: Vec<u8>,
}

/// Stored snapshots that others are compressed against, one for each run: complete in
/// themselves, and of the same week, so that retention drops both together.
#[derive(Debug, Default)]
pub(crate) struct References {
    by_run: HashMap<Arc<RunKey>, Reference>,
    bytes: usize,
}

impl References {
    fn of(&self, run: &Arc<RunKey>, week: i32) -> Option<&Reference> {
        let reference = self.by_run.get(run);
        reference.filter(|reference| reference.week == week)
    }

    /// Compresses a snapshot of that run and week.
    ///
    /// # Errors
    /// When zstd has no memory.
    pub(crate) fn compress(
        &self,
        run: &Arc<RunKey>,
        week: i32,
        message: &[u8],
    ) -> Result<Exact, &'static str> {
        let reference = self.of(run, week);
        let prefix = reference.map(|reference| reference.message.as_slice());
        Ok(Exact {
            body: compressed(message, prefix).map_err(get_error_name)?,
            reference: reference.map(|reference| reference.sequence),
        })
    }

    /// Takes a snapshot that is stored, and was compressed by itself, as reference for those
    /// of its run and week that follow.
    pub(crate) fn keep(&mut self, run: &Arc<RunKey>, week: i32, sequence: i64, message: Vec<u8>) {
        if message.len() > REFERENCE_MAX_BYTES || self.of(run, week).is_some() {
            return;
        }
        if self.bytes + message.len() > REFERENCES_MAX_BYTES {
            self.by_run.clear();
            self.bytes = 0;
        }
        self.bytes += message.len();
        let reference = Reference {
            week,
            sequence,
            message,
        };
        if let Some(earlier) = self.by_run.insert(run.clone(), reference) {
            self.bytes -= earlier.message.len();
        }
    }
}

fn compressed(message: &[u8], prefix: Option<&[u8]>) -> Result<Vec<u8>, ErrorCode> {
    let mut context = CCtx::create();
    context.set_parameter(CParameter::CompressionLevel(LEVEL))?;
    if let Some(prefix) = prefix {
        context.ref_prefix(prefix)?;
    }
    let mut body = Vec::with_capacity(compress_bound(message.len()));
    context.compress2(&mut body, message)?;
    body.shrink_to_fit();
    Ok(body)
}

/// A snapshot as it came, of what the store keeps of it: `reference` is the body of the
/// snapshot that it was compressed against, which stands by itself.
///
/// # Errors
/// When one of the two is no frame of zstd, or the reference is not the right one.
pub fn restore(body: &[u8], reference: Option<&[u8]>) -> Result<Vec<u8>, &'static str> {
    let prefix = reference.map(|body| decompressed(body, None)).transpose()?;
    decompressed(body, prefix.as_deref())
}

fn decompressed(body: &[u8], prefix: Option<&[u8]>) -> Result<Vec<u8>, &'static str> {
    // Snapshots of earlier versions do not tell their size.
    let told = zstd::zstd_safe::get_frame_content_size(body).ok().flatten();
    let Some(size) = told else {
        return zstd::decode_all(body).map_err(|_| "no frame of zstd");
    };
    if size > MESSAGE_MAX_BYTES {
        return Err("larger than any snapshot");
    }
    let mut context = DCtx::create();
    if let Some(prefix) = prefix {
        context.ref_prefix(prefix).map_err(get_error_name)?;
    }
    let mut message = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    context
        .decompress(&mut message, body)
        .map_err(get_error_name)?;
    Ok(message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use uuid::Uuid;

    fn run(host: &str) -> Arc<RunKey> {
        Arc::new(RunKey {
            host: host.into(),
            agent: 1,
            run_id: Uuid::nil(),
        })
    }

    #[test]
    fn what_repeats_an_earlier_snapshot_takes_a_few_bytes() {
        let mut references = References::default();
        let first: Vec<u8> = (0..4_000_u32)
            .flat_map(|n| (n * n * 31).to_le_bytes())
            .collect();
        let alone = references.compress(&run("a"), 7, &first).unwrap();
        assert_eq!(alone.reference, None);
        references.keep(&run("a"), 7, 3, first.clone());
        let mut second = first.clone();
        second[9_000] ^= 1;
        let exact = references.compress(&run("a"), 7, &second).unwrap();
        assert_eq!(exact.reference, Some(3));
        assert!(
            exact.body.len() * 20 < alone.body.len(),
            "{}",
            exact.body.len()
        );
        assert_eq!(restore(&exact.body, Some(&alone.body)).unwrap(), second);
        // Not of another run, nor of another week.
        for (host, week) in [("b", 7), ("a", 8)] {
            let other = references.compress(&run(host), week, &second).unwrap();
            assert_eq!(other.reference, None);
            assert_eq!(restore(&other.body, None).unwrap(), second);
        }
        // The first of a week stays its reference.
        references.keep(&run("a"), 7, 4, second);
        assert_eq!(
            references.compress(&run("a"), 7, &first).unwrap().reference,
            Some(3)
        );
    }

    #[test]
    fn references_take_bounded_memory() {
        let mut references = References::default();
        references.keep(&run("large"), 1, 1, vec![0; REFERENCE_MAX_BYTES + 1]);
        assert!(references.of(&run("large"), 1).is_none());
        for host in 0..2_000 {
            let host = run(&format!("gpu-{host}"));
            references.keep(&host, 1, 1, vec![0; REFERENCE_MAX_BYTES / 2]);
            assert!(references.of(&host, 1).is_some());
            assert!(references.bytes <= REFERENCES_MAX_BYTES);
        }
        // A new week takes the place of the one before.
        let mut references = References::default();
        references.keep(&run("a"), 1, 1, vec![0; 100]);
        references.keep(&run("a"), 2, 9, vec![0; 50]);
        assert_eq!(references.bytes, 50);
    }

    proptest! {
        #[test]
        fn any_message_comes_back(
            message in prop::collection::vec(any::<u8>(), 0..300),
            reference in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let alone = compressed(&reference, None).unwrap();
            let body = compressed(&message, Some(&reference)).unwrap();
            prop_assert_eq!(restore(&body, Some(&alone)).unwrap(), message);
        }

        #[test]
        fn any_bytes_are_a_snapshot_or_an_error(
            body in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let _ = restore(&body, Some(&body));
            let _ = restore(&body, None);
        }
    }
}
