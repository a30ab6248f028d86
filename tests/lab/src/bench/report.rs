//! `target/bench/report.json`: one report for all areas.

use anyhow::{Context, Result};
use rdmesh_lab::programs;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// One figure; `peer` names what it is compared with, where there is such a thing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Figure {
    pub(super) name: String,
    pub(super) value: f64,
    pub(super) unit: String,
    pub(super) peer: Option<String>,
    pub(super) peer_value: Option<f64>,
    /// Value over the peer's value.
    pub(super) ratio: Option<f64>,
}

impl Figure {
    pub(super) fn new(name: &str, value: f64, unit: &str) -> Self {
        Self {
            name: name.to_owned(),
            value,
            unit: unit.to_owned(),
            peer: None,
            peer_value: None,
            ratio: None,
        }
    }

    /// The same beside what a peer did in the same run.
    pub(super) fn beside(self, peer: &str, peer_value: f64) -> Self {
        Self {
            peer: Some(peer.to_owned()),
            peer_value: Some(peer_value),
            ratio: (peer_value != 0.0).then(|| self.value / peer_value),
            ..self
        }
    }

    /// The part of the name before the first dot.
    fn area(&self) -> &str {
        self.name.split('.').next().unwrap_or_default()
    }
}

/// Writes the figures in place of those of the same areas; others stay.
pub(super) fn write(figures: &[Figure]) -> Result<PathBuf> {
    let program = programs::find("rdmesh-lab")?;
    let target = program.ancestors().nth(2).context("no target directory")?;
    let directory = target.join("bench");
    std::fs::create_dir_all(&directory)?;
    let path = directory.join("report.json");
    // A report that cannot be read is of another version: it is replaced.
    let earlier = std::fs::read(&path).unwrap_or_default();
    let earlier: Vec<Figure> = serde_json::from_slice(&earlier).unwrap_or_default();
    let mut text = serde_json::to_string_pretty(&merged(earlier, figures))?;
    text.push('\n');
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

fn merged(earlier: Vec<Figure>, figures: &[Figure]) -> Vec<Figure> {
    let is_measured = |area: &str| figures.iter().any(|figure| figure.area() == area);
    let mut all: Vec<Figure> = earlier
        .into_iter()
        .filter(|figure| !is_measured(figure.area()))
        .chain(figures.iter().cloned())
        .collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_replaces_its_own_area_and_keeps_the_others() {
        let figure = |name: &str, value| Figure::new(name, value, "s");
        let earlier = vec![
            figure("lab.demo_s", 1.0),
            figure("tracer.rss_mb", 2.0),
            figure("tracer.gone", 3.0),
        ];
        let now = [
            figure("tracer.rss_mb", 4.0),
            figure("shaper.null.mpps", 45.0).beside("devices", 90.0),
        ];
        let all = merged(earlier, &now);
        let names: Vec<_> = all.iter().map(|f| (f.name.as_str(), f.value)).collect();
        assert_eq!(
            names,
            [
                ("lab.demo_s", 1.0),
                ("shaper.null.mpps", 45.0),
                ("tracer.rss_mb", 4.0)
            ]
        );
        assert_eq!(all[1].ratio, Some(0.5));
    }
}
