//! The tracer's own cost: weighed with every snapshot, and the end of all probes
//! when it is too much.

use super::kernel::Kernel;
use super::pipeline::{Outputs, Pipeline};
use crate::cost::Reading;
use crate::resolve::Missing;

impl<K: Kernel, O: Outputs> Pipeline<K, O> {
    /// Ends an interval of the meter; the counters were read just before.
    pub(super) fn weigh(&mut self, boot_ns: u64) {
        let timed = self.kernel.are_programs_timed();
        let weighed = self.meter.take(Reading {
            boot_ns,
            process_ns: (self.process_ns)(),
            probes: self.counters.run_times.clone(),
            timed,
        });
        self.figures.count_cost(weighed.cost);
        if let Some(spent) = weighed.passed
            && !self.kernel.is_stopped()
        {
            tracing::error!(
                spent,
                "detached: budget passed; `tracer-svc attach` puts the probes back, [cost] in the \
                 configuration sets the budget"
            );
            self.change_hooks(|kernel| kernel.stop(&Missing::BudgetPassed(spent)));
            self.places_changed();
            return;
        }
        self.time_probes(weighed.time_next && !self.kernel.is_stopped());
    }

    /// Lets the kernel time the probes in the interval that begins now, or not.
    pub(super) fn time_probes(&mut self, time: bool) {
        if let Err(error) = self.kernel.time_programs(time)
            && !std::mem::replace(&mut self.statistics_refused, true)
        {
            tracing::warn!(%error, "the kernel does not time the probes; the budget covers the process alone");
        }
        self.meter.timed(self.kernel.are_programs_timed());
    }
}
