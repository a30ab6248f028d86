//! What is asked of a running tracer: to let a module go, and to come back.
//!
//! The pipeline owns the kernel's side, so that a request travels to it and waits
//! for the answer.

use rdmesh_proto::tracer::v1::ProbeReport;
use tokio::sync::{mpsc, oneshot};

use super::kernel::Kernel;
use super::pipeline::{Outputs, Pipeline};
use crate::resolve::ProbeState;

/// Orders that wait: they come from people and scripts, one after the other.
const WAITING: usize = 8;

/// What is to be done. A module of none means all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Take the probes off.
    Detach(Option<String>),
    /// Put them on again.
    Attach(Option<String>),
}

/// What was done.
#[derive(Clone, Debug, PartialEq)]
pub struct Done {
    /// Probes that were taken off or put on.
    pub probes: usize,
    /// The state afterwards.
    pub report: ProbeReport,
}

/// Why it was not.
#[derive(Debug, thiserror::Error)]
pub enum NotDone {
    /// Nothing is hooked in the module.
    #[error("no probe is in module {module}; {others}")]
    NoProbe {
        /// As it was asked for.
        module: String,
        /// Where there are some.
        others: String,
    },
    /// The kernel's side failed.
    #[error("{0}; the tracer tries again by itself within a minute")]
    Refused(#[from] crate::loader::LoadError),
    /// The tracer ends, or has much to do.
    #[error("the tracer is ending or does not answer; look at its log")]
    Ending,
}

/// One order on its way.
#[derive(Debug)]
pub struct Order {
    wish: Wish,
    answer: oneshot::Sender<Result<Done, NotDone>>,
}

/// The giving end.
#[derive(Clone, Debug)]
pub struct Orders(mpsc::Sender<Order>);

/// A channel for orders.
#[must_use]
pub fn orders() -> (Orders, mpsc::Receiver<Order>) {
    let (sender, receiver) = mpsc::channel(WAITING);
    (Orders(sender), receiver)
}

impl Orders {
    /// Has it done.
    ///
    /// # Errors
    /// [`NotDone`].
    pub async fn give(&self, wish: Wish) -> Result<Done, NotDone> {
        let (answer, done) = oneshot::channel();
        let order = Order { wish, answer };
        self.0.send(order).await.map_err(|_| NotDone::Ending)?;
        done.await.map_err(|_| NotDone::Ending)?
    }
}

impl<K: Kernel, O: Outputs> Pipeline<K, O> {
    /// Does what is asked and answers.
    pub(super) fn obey(&mut self, order: Order) {
        let done = match &order.wish {
            Wish::Detach(module) => self.detach(module.as_deref()),
            Wish::Attach(module) => self.attach(module.as_deref()),
        };
        if let Err(error) = &done {
            tracing::warn!(wish = ?order.wish, %error, "an order was not carried out");
        }
        // Who asked may be gone.
        let _ = order.answer.send(done);
    }

    fn detach(&mut self, module: Option<&str>) -> Result<Done, NotDone> {
        self.is_known(module)?;
        // What the rings hold was seen by these probes.
        self.snapshot();
        let probes = self.change_hooks(|kernel| kernel.detach(module));
        tracing::warn!(
            module = module.unwrap_or("all"),
            probes,
            "detached by request; what fails there now is not seen"
        );
        self.places_changed();
        Ok(self.done(probes))
    }

    fn attach(&mut self, module: Option<&str>) -> Result<Done, NotDone> {
        self.is_known(module)?;
        let before = self.attached();
        self.change_hooks(|kernel| {
            kernel.allow(module);
            kernel.refresh()
        })?;
        self.meter.forget((self.process_ns)());
        let probes = self.attached().saturating_sub(before);
        tracing::info!(
            module = module.unwrap_or("all"),
            probes,
            "attached by request"
        );
        self.places_changed();
        Ok(self.done(probes))
    }

    fn done(&self, probes: usize) -> Done {
        Done {
            probes,
            report: self.figures.probe_report(),
        }
    }

    fn attached(&self) -> usize {
        let report = self.kernel.report();
        let attached = |p: &&crate::resolve::Probe| matches!(p.state, ProbeState::Attached(_));
        report.probes.iter().filter(attached).count()
    }

    /// A name that is nowhere hooked is a slip of the pen.
    fn is_known(&self, module: Option<&str>) -> Result<(), NotDone> {
        let Some(module) = module else { return Ok(()) };
        let probes = &self.kernel.report().probes;
        if probes.iter().any(|p| p.module == module) {
            return Ok(());
        }
        let mut hooked: Vec<&str> = probes.iter().map(|p| p.module.as_str()).collect();
        hooked.sort_unstable();
        hooked.dedup();
        let others = match hooked.as_slice() {
            [] => "no RDMA module has any".to_owned(),
            hooked => format!("there are some in {}", hooked.join(", ")),
        };
        Err(NotDone::NoProbe {
            module: module.to_owned(),
            others,
        })
    }
}
