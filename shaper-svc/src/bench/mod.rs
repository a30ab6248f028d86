//! `shaper-svc bench`: what the engine costs on this machine.
//!
//! Each figure is the median of short rounds, since a busy machine makes some rounds
//! slow and none fast.

pub mod classify;
pub mod engine;
#[cfg(feature = "dpdk")]
pub mod path;

use serde::Serialize;
use std::io::{self, Write};

/// One figure, as `make bench` collects it: one line of JSON.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// Dotted name, stable across versions.
    pub name: String,
    /// The median.
    pub value: f64,
    /// Unit of the value.
    pub unit: &'static str,
    /// The lowest round.
    pub min: f64,
    /// The highest round.
    pub max: f64,
    /// How many rounds.
    pub rounds: usize,
    /// What the project promises, if it promises something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
    /// The same, where more is better.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
}

impl Figure {
    /// The median of `rounds`.
    ///
    /// # Panics
    /// Without any round.
    #[must_use]
    pub fn median_of(name: String, unit: &'static str, mut rounds: Vec<f64>) -> Self {
        rounds.sort_by(f64::total_cmp);
        Self {
            name,
            value: rounds[rounds.len() / 2],
            unit,
            min: rounds[0],
            max: rounds[rounds.len() - 1],
            rounds: rounds.len(),
            at_most: None,
            at_least: None,
        }
    }
}

/// Runs every benchmark whose name contains `only` and writes a line for each.
///
/// # Errors
/// When no name does, or `out` cannot be written.
pub fn run(only: &str, out: &mut impl Write) -> io::Result<()> {
    let engine = engine::LOADS
        .iter()
        .map(|load| (load.name(), measure_load(load)));
    let classify = classify::HEADS
        .iter()
        .map(|head| (head.name(), measure_head(head)));
    #[cfg(feature = "dpdk")]
    let path = path::LOADS
        .iter()
        .map(|load| (load.name.to_owned(), measure_path(load)));
    #[cfg(not(feature = "dpdk"))]
    let path = std::iter::empty();
    let all: Vec<(String, Measure)> = engine.chain(classify).chain(path).collect();
    if !all.iter().any(|(name, _)| name.contains(only)) {
        let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
        let message = format!(
            "no figure has `{only}` in its name; there are: {}",
            names.join(", ")
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let chosen = all.iter().filter(|(name, _)| name.contains(only));
    for (_, measure) in chosen {
        serde_json::to_writer(&mut *out, &measure())?;
        writeln!(out)?;
        out.flush()?;
    }
    Ok(())
}

type Measure = Box<dyn Fn() -> Figure>;

fn measure_load(load: &'static engine::Load) -> Measure {
    Box::new(|| load.measure())
}

fn measure_head(head: &'static classify::Head) -> Measure {
    Box::new(|| head.measure())
}

#[cfg(feature = "dpdk")]
fn measure_path(load: &'static path::Load) -> Measure {
    Box::new(|| load.measure())
}
