//! From evidence to a verdict: what broke an attempt, at which layer, whom to call, and
//! how sure that is.
//!
//! Pure: no clock, no I/O, no logging. [`diagnose`] takes a [`Case`] and gives a
//! [`Verdict`]. Rules stand in `rules/`, one file for each kind of evidence, in the
//! order of the table in [`rules::TABLE`]; what an errno at a layer means to a person
//! is data (`meanings.toml`).
//!
//! ```text
//! Case ─▶ select: which chain decides ─▶ rules: the first that applies ─▶ describe
//!                                                                           │
//!                    watch: what was not watched ───────────────────────────┴─▶ Verdict
//! ```

mod arguments;
mod case;
mod counted;
mod describe;
mod flight;
mod history;
mod log;
mod meanings;
mod outline;
mod retry;
mod rules;
mod select;
mod shaping;
mod transition;
mod undecided;
mod verdict;
mod watch;
mod words;

pub use arguments::{Arguments, CreateSizes, FirmwareAnswer, Mapping};
pub use case::{
    Ambiguous, Case, Chain, ChainFlags, HostWatch, HostWorld, Owner, ProbeState, Probes, Shaping,
    Signal, Step, Total, WatchedProbe,
};
pub use counted::told_by;
pub use describe::verdict as diagnose;
pub use flight::FlightEvidence;
pub use history::{Incident, SharedFact};
pub use log::{LogEvidence, LogOpinion, LoggedLine, kernel_verb};
pub(crate) use meanings::class_name;
pub use meanings::{Meaning, Meanings};
pub use retry::{Advice, Past, advise};
pub use verdict::Verdict;
pub(crate) use watch::aged_out;

/// The failing call that decides, before any rule is asked: for whoever gathers what else
/// is known of it.
pub(crate) fn deciding_chain(case: &Case) -> Option<&Chain> {
    select::deciding(case).map(|deciding| deciding.chain)
}
