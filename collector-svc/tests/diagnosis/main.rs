//! The rules: one test each, and goldens of whole verdicts.

#![allow(clippy::unwrap_used)]

mod doubts;
mod goldens;
mod made;
mod memory;
mod outcome;
mod rules;
mod unwatched;
