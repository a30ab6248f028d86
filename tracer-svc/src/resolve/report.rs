//! What the tracer says about its hooks.

use crate::catalogue::Hook;
use crate::record::ProbeId;

use super::{Missing, Probe};

/// State of one logical hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookState {
    /// Every function that the hook means is attached.
    Attached,
    /// Served by another function than the catalogue's first choice.
    Replaced {
        /// `module:function` of the substitutes.
        by: Vec<String>,
    },
    /// Nothing serves it.
    Missing(Vec<Missing>),
}

/// One logical hook, what serves it and what is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookReport {
    /// The hook.
    pub hook: Hook,
    /// Attached, replaced or missing.
    pub state: HookState,
    /// Its probes, attached or not.
    pub probes: Vec<ProbeId>,
    /// What is missing although the hook as a whole is served: a second driver
    /// without the operation, a method that the kernel refused.
    pub gaps: Vec<Missing>,
}

/// All hooks, in catalogue order, and all probes by [`ProbeId::index`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Logical hooks.
    pub hooks: Vec<HookReport>,
    /// Probes.
    pub probes: Vec<Probe>,
}

impl Report {
    /// The probe of a record; none only for a record of another run.
    #[must_use]
    pub fn probe(&self, id: ProbeId) -> Option<&Probe> {
        self.probes.get(id.index())
    }
}
