//! The rules: one test each, and goldens of whole verdicts.

#![allow(clippy::unwrap_used)]

mod co_signals;
mod doubts;
mod goldens;
mod logs;
mod made;
mod memory;
mod outcome;
mod rails;
mod retry;
mod rules;
mod unwatched;
