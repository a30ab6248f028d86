//! PyTorch Flight Recorder dumps: which ranks never entered which collective.
//!
//! Formats: pytorch/pytorch `torch/csrc/distributed/c10d/FlightRecorder.hpp` and
//! `NCCLUtils`, from the list without a version (2.2) to 2.10. A dump is written
//! by every rank, as a pickle or as JSON.

mod analysis;
mod dump;
mod json;
mod pickle;
mod runs;
mod value;

use serde::Serialize;

pub use analysis::{FlightReport, GroupFinding, Verdict, analyse};
pub use dump::{Dump, Entry, GroupConfig, State};

/// Largest dump that is read. A recorder of 20,000 entries with stacks takes
/// about 100 MiB.
pub const MAX_DUMP_BYTES: usize = 256 << 20;

/// How a dump is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// Python's pickle, protocol 2 and newer.
    Pickle,
    /// JSON.
    Json,
}

/// Why a dump was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DumpError {
    /// Longer than [`MAX_DUMP_BYTES`].
    #[error(
        "the dump has {0} bytes; at most {MAX_DUMP_BYTES} are read: lower TORCH_NCCL_TRACE_BUFFER_SIZE"
    )]
    TooLong(usize),
    /// A pickle that would call something, or is broken.
    #[error("the pickle is refused at byte {at}: {reason}")]
    Pickle {
        /// Where.
        at: usize,
        /// What.
        reason: String,
    },
    /// JSON that cannot be read.
    #[error("the JSON is refused: {0}")]
    Json(String),
    /// It is no dump of the Flight Recorder.
    #[error("this is no Flight Recorder dump: {0}")]
    Shape(&'static str),
}

/// Whether the beginning of a file looks like a dump.
pub fn sniff(start: &[u8]) -> Option<Format> {
    // PROTO, then a version: what torch's pickler and Python's write first.
    if let [0x80, 2..=5, ..] = start {
        return Some(Format::Pickle);
    }
    let text = start.trim_ascii_start();
    let window = &text[..text.len().min(SNIFF_BYTES)];
    let holds = |key: &[u8]| memchr::memmem::find(window, key).is_some();
    let keys: [&[u8]; 4] = [
        b"\"pg_config\"",
        b"\"entries\"",
        b"\"pg_status\"",
        b"\"nccl_comm_state\"",
    ];
    let version = holds(b"\"version\"") && holds(b"\"nccl_version\"");
    (text.starts_with(b"{") && (version || keys.iter().any(|key| holds(key))))
        .then_some(Format::Json)
}

/// How far the keys of a JSON dump are looked for.
pub const SNIFF_BYTES: usize = 4_096;

/// Reads one rank's dump. `rank` is what the file's name says, if anything.
///
/// # Errors
///
/// A dump that is too long, broken, no dump, or that would call something.
pub fn read(bytes: &[u8], rank: Option<u32>) -> Result<Dump, DumpError> {
    if bytes.len() > MAX_DUMP_BYTES {
        return Err(DumpError::TooLong(bytes.len()));
    }
    let mut dump = match sniff(bytes) {
        Some(Format::Pickle) => dump::from_values(&pickle::read(bytes)?)?,
        _ => json::read(bytes)?,
    };
    dump.rank = rank;
    Ok(dump)
}

/// The rank at the end of a dump's file name (`nccl_trace_rank_7`,
/// `nccl_trace_rank_7.json`), which is where PyTorch writes it.
pub fn rank_of_name(name: &str) -> Option<u32> {
    let stem = name
        .trim_end_matches(".json")
        .trim_end_matches(".pickle")
        .trim_end_matches(".pkl");
    let digits: String = stem
        .chars()
        .rev()
        .take_while(char::is_ascii_digit)
        .collect();
    digits.chars().rev().collect::<String>().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_names() {
        assert_eq!(rank_of_name("nccl_trace_rank_17"), Some(17));
        assert_eq!(rank_of_name("/tmp/nccl_trace_rank_0.json"), Some(0));
        assert_eq!(rank_of_name("trace"), None);
        assert_eq!(rank_of_name("x99999999999"), None);
    }

    #[test]
    fn dumps_are_told_from_logs() {
        assert_eq!(sniff(b"\x80\x02}q\x00"), Some(Format::Pickle));
        assert_eq!(sniff(b" {\"entries\": []}"), Some(Format::Json));
        assert_eq!(sniff(b"HOST:1:2 [0] NCCL WARN \"entries\""), None);
        assert_eq!(sniff(b"{\"level\": \"info\"}"), None);
        assert_eq!(sniff(b""), None);
    }
}
