//! Which kinds of failing calls automatic mode is told of.

use super::kernel::Kernel;
use super::pipeline::{Outputs, Pipeline, step};
use crate::automatic::Failing;
use crate::record::ProbeId;
use crate::snapshot::{self, Aggregate};

impl<K: Kernel, O: Outputs> Pipeline<K, O> {
    /// Offers the kinds of failing calls of an interval. Never waits, and costs nothing
    /// while automatic mode is off.
    pub(super) fn offer(&self, aggregate: &Aggregate) {
        if !self.offers.has_room() {
            return;
        }
        for (driver, steps) in aggregate.kinds() {
            if let Some(failing) = self.failing(driver, steps) {
                self.offers.offer(failing);
            }
        }
    }

    /// None where the driver is not known, or the call of the application is not.
    fn failing(&self, driver: &str, steps: &[(ProbeId, u16)]) -> Option<Failing> {
        let report = self.kernel.report();
        let (outermost, _) = steps.last()?;
        let hook = &report.probe(*outermost)?.hook;
        if driver.is_empty() || hook.depth != 0 {
            return None;
        }
        let chain = steps
            .iter()
            .map(|(probe, errno)| step(*probe, *errno, report));
        Some(Failing {
            driver: driver.to_owned(),
            verb: hook.verb.name().to_owned(),
            number: snapshot::verb(hook),
            chain: chain.collect(),
        })
    }
}
