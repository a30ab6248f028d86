//! Capture files, replay and inspection.

mod files;
mod formats;
mod inspections;
mod replays;
mod tools;
