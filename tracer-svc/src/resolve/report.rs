//! What the tracer says about its hooks.

use std::fmt;

use crate::catalogue::{Catalogue, Group, Hook, Role};
use crate::record::ProbeId;

use super::{Found, Mechanism, Missing, Probe, ProbeState};

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
    /// How the catalogue was fitted to a kernel that it was not checked on; empty:
    /// it was checked on this one.
    pub resolution: String,
}

impl Report {
    /// Puts together what serves each hook. `missing` holds the index of a hook
    /// and what the resolver did not find.
    #[must_use]
    pub fn new(catalogue: &Catalogue, probes: Vec<Probe>, missing: &[(usize, Missing)]) -> Self {
        let hooks = catalogue
            .hooks
            .iter()
            .enumerate()
            .map(|(number, hook)| {
                let own: Vec<&Probe> = probes.iter().filter(|p| p.hook.name == hook.name).collect();
                let mut lacks: Vec<Missing> = missing
                    .iter()
                    .filter(|(of, _)| *of == number)
                    .map(|(_, missing)| missing.clone())
                    .collect();
                lacks.extend(own.iter().filter_map(|p| match &p.state {
                    ProbeState::Missing(missing) => Some(missing.clone()),
                    _ => None,
                }));
                hook_report(hook, &own, lacks)
            })
            .collect();
        Self {
            hooks,
            probes,
            resolution: String::new(),
        }
    }

    /// The probe of a record; none only for a record of another run.
    #[must_use]
    pub fn probe(&self, id: ProbeId) -> Option<&Probe> {
        self.probes.get(id.index())
    }
}

fn hook_report(hook: &Hook, own: &[&Probe], mut lacks: Vec<Missing>) -> HookReport {
    let attached = |main: bool| {
        own.iter().filter(move |p| {
            matches!(p.state, ProbeState::Attached(_)) && (p.role == Role::Main) == main
        })
    };
    let state = if attached(true).next().is_some() {
        HookState::Attached
    } else if attached(false).next().is_some() {
        HookState::Replaced {
            by: attached(false)
                .map(|p| format!("{}:{}", p.module, p.function))
                .collect(),
        }
    } else {
        HookState::Missing(std::mem::take(&mut lacks))
    };
    // Where something serves the hook, another vendor's module is not missed.
    lacks.retain(|l| !matches!(l, Missing::ModuleNotLoaded(_)));
    HookReport {
        hook: hook.clone(),
        state,
        probes: own.iter().map(|p| p.id).collect(),
        gaps: lacks,
    }
}

impl Report {
    /// Of the thirteen logical hooks of the reference system: how many are served.
    #[must_use]
    pub fn thirteen_served(&self) -> usize {
        self.hooks
            .iter()
            .filter(|h| {
                h.hook.group == Group::Thirteen && !matches!(h.state, HookState::Missing(_))
            })
            .count()
    }
}

/// A table for people: one line for each hook, one for each probe under it.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for hook in &self.hooks {
            let name = &hook.hook.name;
            match &hook.state {
                HookState::Attached => writeln!(f, "{name:<24} attached")?,
                HookState::Replaced { .. } => writeln!(f, "{name:<24} replaced")?,
                HookState::Missing(why) => {
                    let why: Vec<String> = why.iter().map(ToString::to_string).collect();
                    writeln!(f, "{name:<24} missing   {}", why.join("; "))?;
                }
            }
            for probe in hook.probes.iter().filter_map(|id| self.probe(*id)) {
                if let ProbeState::Attached(mechanism) = &probe.state {
                    let function = format!("{}:{}", probe.module, probe.function);
                    let how = mechanism_name(*mechanism);
                    let found = found_name(probe.found);
                    writeln!(f, "  {function:<62} {how:<6} {found}")?;
                    if let Some(why) = probe.not_better() {
                        writeln!(f, "    {why}")?;
                    }
                }
            }
            for gap in &hook.gaps {
                writeln!(f, "  not: {gap}")?;
            }
        }
        if !self.resolution.is_empty() {
            writeln!(f, "{}", self.resolution)?;
        }
        writeln!(
            f,
            "{} of {} logical hooks served, {} probes attached",
            self.thirteen_served(),
            self.hooks
                .iter()
                .filter(|h| h.hook.group == Group::Thirteen)
                .count(),
            self.attached()
        )
    }
}

impl Report {
    /// Probes that work.
    #[must_use]
    pub fn attached(&self) -> usize {
        self.probes
            .iter()
            .filter(|p| matches!(p.state, ProbeState::Attached(_)))
            .count()
    }
}

fn mechanism_name(mechanism: Mechanism) -> &'static str {
    match mechanism {
        Mechanism::Fexit => "fexit",
        Mechanism::Kretprobe => "kretprobe",
        Mechanism::KretprobeMulti => "kretprobe.multi",
    }
}

fn found_name(found: Found) -> &'static str {
    match found {
        Found::Name => "by name",
        Found::OpsTable => "from ib_device_ops",
        Found::Prototype => "by prototype and name",
        Found::Symbol => "by name of the symbol",
    }
}
