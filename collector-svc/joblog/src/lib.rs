//! What a job's own log says: each line's class, verb, errno or completion
//! status, device, peer and rank, the line that decides, and which ranks of a
//! PyTorch Flight Recorder never entered which collective.
//!
//! Rules are data (`rules/*.toml`), versioned, and a site file can stand before
//! them or replace them. Every rule is matched in time linear in the line.
//!
//! It never opens a file, reads a clock or executes anything that a log or a
//! dump holds: bytes in, typed results out.

pub mod class;
pub mod classify;
mod clean;
mod errno;
mod extract;
pub mod flight;
mod hosts;
pub mod moment;
pub mod parallel;
mod reading;
pub mod rules;
mod search;
pub mod stream;
pub mod summary;

pub use class::{Class, Kind, RuleId, Turn, Weight};
pub use classify::{Classifier, Finding, LineReport};
pub use rules::{RuleSet, RulesError};
pub use summary::{Decision, Summary};
