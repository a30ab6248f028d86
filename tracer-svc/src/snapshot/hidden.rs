//! Chains that may lack a step because the kernel hid calls from a probe.
//!
//! On a preemptible kernel a probe is skipped while another task is preempted inside it
//! on the same CPU (`prog->active` in kernel/bpf/trampoline.c). Which calls is not known:
//! a chain of that time that has no step of such a hook may have lost one.

use crate::catalogue::{Hook, Layer, Verb};
use crate::chain::Marks;
use crate::record::ProbeId;
use crate::resolve::Report;

/// Hooks that calls were hidden from.
#[derive(Debug)]
pub(super) struct Hidden<'a> {
    report: &'a Report,
    hooks: Vec<&'a Hook>,
}

impl<'a> Hidden<'a> {
    pub(super) fn of(report: &'a Report, probes: &[ProbeId]) -> Self {
        let hooks = probes.iter().filter_map(|id| report.probe(*id));
        Self {
            report,
            hooks: hooks.map(|p| &p.hook).collect(),
        }
    }

    /// The marks of a chain, as far as they can still be said.
    pub(super) fn doubt(&self, marks: Marks, steps: &[(ProbeId, u16)]) -> Marks {
        if self.hooks.is_empty() {
            return marks;
        }
        let steps = steps.iter().filter_map(|(id, _)| self.report.probe(*id));
        let steps: Vec<&Hook> = steps.map(|p| &p.hook).collect();
        let verb = steps.iter().map(|h| h.verb).find(|v| *v != Verb::Any);
        let lost = |hook: &&&Hook| {
            may_serve(hook, verb)
                && !steps.iter().any(|s| s.name == hook.name)
                && !(hook.ends_chain() && steps.iter().any(|s| s.ends_chain()))
        };
        let lost: Vec<&&Hook> = self.hooks.iter().filter(lost).collect();
        Marks {
            incomplete: marks.incomplete || !lost.is_empty(),
            swallowed: marks.swallowed && !lost.iter().any(|h| h.ends_chain()),
            ..marks
        }
    }
}

/// Whether calls of a verb can pass through a hook.
fn may_serve(hook: &Hook, verb: Option<Verb>) -> bool {
    let registers = !matches!(
        verb,
        Some(Verb::ModifyQp | Verb::AllocPd | Verb::CreateAh | Verb::DevxCreate | Verb::DevxModify)
    );
    match (hook.verb, verb) {
        (Verb::Any, _) => hook.layer != Layer::Memory || registers,
        (_, None) => true,
        (hooks, Some(verb)) => hooks == verb,
    }
}
