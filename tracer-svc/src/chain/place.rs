//! What assembling needs to know of each probe.

use crate::catalogue::{Hook, Layer, Verb};
use crate::record::ProbeId;
use crate::resolve::Report;

/// Where a probe stands in the catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Distance from user space; a chain moves to smaller ones and ends at 0.
    pub depth: u8,
    /// The verb; [`Verb::Any`] takes that of the records around it.
    pub verb: Verb,
    /// The layer.
    pub layer: Layer,
    /// Every call leaves a record, failed or not: it belongs to no chain.
    pub is_event: bool,
}

impl From<&Hook> for Place {
    fn from(hook: &Hook) -> Self {
        Self {
            depth: hook.depth,
            verb: hook.verb,
            layer: hook.layer,
            is_event: hook.is_event(),
        }
    }
}

/// The places of all probes.
#[derive(Clone, Debug, Default)]
pub struct Places {
    by_probe: Vec<Place>,
}

impl Places {
    /// The probes of a report.
    #[must_use]
    pub fn of_report(report: &Report) -> Self {
        report.probes.iter().map(|p| Place::from(&p.hook)).collect()
    }

    /// The place of a probe; none for a number that the report does not have.
    #[must_use]
    pub fn get(&self, probe: ProbeId) -> Option<Place> {
        self.by_probe.get(probe.index()).copied()
    }
}

impl FromIterator<Place> for Places {
    fn from_iter<I: IntoIterator<Item = Place>>(places: I) -> Self {
        Self {
            by_probe: places.into_iter().collect(),
        }
    }
}
