//! Bytes to a summary, in constant memory.

use std::convert::Infallible;
use std::io::{self, Read as _};

use rdmesh_joblog::flight::{self, Dump, DumpError, Format};
use rdmesh_joblog::stream::classify_stream;
use rdmesh_joblog::summary::Summarizer;
use rdmesh_joblog::{Classifier, Summary};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;

/// Largest dump of a rank: a recorder of the usual 2,000 entries with stacks takes about
/// 10 MiB. It is held whole, and eight are read at a time.
const DUMP_MAX_BYTES: u64 = 64 << 20;

/// A log that was read.
#[derive(Debug)]
pub(super) struct Read {
    /// It is no log, but a rank's dump of the Flight Recorder.
    pub(super) flight: Option<Dump>,
    pub(super) summary: Summary,
    pub(super) bytes: u64,
    /// SHA-256.
    pub(super) digest: Vec<u8>,
}

/// Reads what `waiting` gives until its sender is gone. Runs on a thread of its own.
///
/// # Errors
/// A dump that is refused, with what to do. What looks like a dump in JSON and is none is
/// read as a log.
pub(super) fn read(
    waiting: mpsc::Receiver<Vec<u8>>,
    classifier: &Classifier,
) -> Result<Read, DumpError> {
    let mut bytes = Bytes {
        waiting,
        current: io::Cursor::default(),
        count: 0,
        digest: Sha256::new(),
    };
    // Neither the reader nor the receiver of the reports fails.
    let mut start = Vec::new();
    let window = u64::try_from(flight::SNIFF_BYTES).unwrap_or(u64::MAX);
    let begun = (&mut bytes).take(window).read_to_end(&mut start);
    debug_assert!(begun.is_ok());
    let mut dump = None;
    if let Some(format) = flight::sniff(&start) {
        let rest = (&mut bytes).take(DUMP_MAX_BYTES).read_to_end(&mut start);
        debug_assert!(rest.is_ok());
        match flight::read(&start, None) {
            Ok(found) => dump = Some(found.reduced()),
            Err(error) if format == Format::Pickle => return Err(error),
            Err(_) => {}
        }
    }
    let mut summarizer = Summarizer::new();
    if dump.is_none() {
        let whole = io::Cursor::new(start).chain(&mut bytes);
        let ended = classify_stream(whole, classifier, |report| {
            summarizer.observe(None, report);
            Ok::<_, Infallible>(())
        });
        debug_assert!(ended.is_ok());
    }
    Ok(Read {
        flight: dump,
        summary: summarizer.finish(classifier.rules().revision()),
        bytes: bytes.count,
        digest: bytes.digest.finalize().to_vec(),
    })
}

/// The messages as one stream of bytes.
struct Bytes {
    waiting: mpsc::Receiver<Vec<u8>>,
    current: io::Cursor<Vec<u8>>,
    count: u64,
    digest: Sha256,
}

impl io::Read for Bytes {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.current.read(to)?;
            if read > 0 || to.is_empty() {
                return Ok(read);
            }
            let Some(next) = self.waiting.blocking_recv() else {
                return Ok(0);
            };
            self.count += u64::try_from(next.len()).unwrap_or(0);
            self.digest.update(&next);
            self.current = io::Cursor::new(next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdmesh_joblog::{Class, RuleSet};

    fn read_all(messages: Vec<Vec<u8>>) -> Read {
        let (to, waiting) = mpsc::channel(messages.len().max(1));
        for message in messages {
            to.try_send(message).unwrap();
        }
        drop(to);
        read(waiting, &Classifier::new(RuleSet::builtin().unwrap())).unwrap()
    }

    #[test]
    fn where_messages_end_does_not_matter() {
        let log = b"ordinary\nnode-1:7:8 [0] NCCL WARN Call to ibv_reg_mr failed with error Bad address\nrest";
        let whole = read_all(vec![log.to_vec()]);
        let torn = read_all(log.chunks(3).map(<[u8]>::to_vec).collect());
        assert_eq!(whole.summary, torn.summary);
        assert_eq!(whole.digest, torn.digest);
        assert_eq!(
            (whole.bytes, torn.summary.lines),
            (u64::try_from(log.len()).unwrap(), 3)
        );
        assert_eq!(whole.summary.class, Class::Syscall);
        let hex: String = read_all(Vec::new())
            .digest
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        assert!(hex.starts_with("e3b0c44298fc1c149afbf4c8996fb924"), "{hex}");
    }

    #[test]
    fn empty_messages_are_no_end() {
        let read = read_all(vec![Vec::new(), b"a\n".to_vec(), Vec::new(), b"b".to_vec()]);
        assert_eq!((read.summary.lines, read.bytes), (2, 3));
    }
}
