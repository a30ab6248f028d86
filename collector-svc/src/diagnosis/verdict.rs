//! What a diagnosis says.

use rdmesh_proto::collector::v1::{Confidence, VerdictClass};
use rdmesh_proto::common::v1::{Layer, Verb};
use time::OffsetDateTime;

use crate::diagnosis::{Chain, LogOpinion, Step};

/// The names are those of gRPC, JSON and SQL.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// Class of the cause.
    pub class: VerdictClass,
    /// Where the error came into being.
    pub layer: Layer,
    /// What the application asked for.
    pub verb: Verb,
    /// The deepest failing function; empty: none decided.
    pub function: String,
    /// Its module.
    pub module: String,
    /// Positive; 0: no errno decided.
    pub errno: i32,
    /// Its name; empty: no errno decided.
    pub errno_name: String,
    /// Hosts concerned, the first to fail first.
    pub hosts: Vec<String>,
    /// Devices concerned.
    pub devices: Vec<String>,
    /// First failure.
    pub first_at: Option<OffsetDateTime>,
    /// How sure that is.
    pub confidence: Confidence,
    /// Whom to call.
    pub route_to: String,
    /// The rule that decided.
    pub rule: &'static str,
    /// What speaks for it.
    pub evidence: Vec<String>,
    /// What speaks against it.
    pub against: Vec<String>,
    /// What could have been seen there and was not watched.
    pub unwatched: Vec<String>,
    /// One sentence for a person.
    pub summary: String,
    /// What it means.
    pub meaning: String,
    /// What to check next.
    pub next_steps: Vec<String>,
    /// The deciding chain, innermost first.
    pub chain: Vec<Step>,
    /// Failures that were looked at: the first of the attempt.
    pub failures_looked_at: u64,
    /// Failures that the attempt has.
    pub failures_total: u64,
    /// What the job's own logs say beside it; none: none came.
    pub log: Option<LogOpinion>,
    /// Earlier attempts of the job with the same failure, oldest first.
    pub same_failure: Vec<String>,
}

impl Verdict {
    /// One step less sure.
    pub(super) fn lower_confidence(&mut self) {
        self.confidence = match self.confidence {
            Confidence::High => Confidence::Medium,
            _ => Confidence::Low,
        };
    }

    /// Where the failure that decided may be another attempt's, or of another time, says so
    /// and is less sure.
    pub(super) fn weigh_doubts(&mut self, deciding: &Chain) {
        if deciding.is_doubted() {
            self.lower_confidence();
        }
        if !deciding.doubts.is_empty() {
            self.against.push(format!(
                "the deciding failure may be another attempt's: {}",
                deciding.doubts.join("; ")
            ));
        }
        if !deciding.time_doubts.is_empty() {
            self.against.push(format!(
                "the time of the deciding failure may be wrong: {}",
                deciding.time_doubts.join("; ")
            ));
        }
        if !deciding.clock_notes.is_empty() {
            self.against.push(format!(
                "the deciding failure was told by an odd clock, though its time, by the boot \
                 clock, holds: {}",
                deciding.clock_notes.join("; ")
            ));
        }
    }
}
