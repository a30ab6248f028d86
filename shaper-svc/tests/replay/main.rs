//! Capture files, replay and inspection.

mod files;
mod formats;
mod inspections;
mod odd;
mod replays;
mod tools;
