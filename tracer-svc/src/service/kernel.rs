//! What the pipeline needs of the kernel side, so that tests can play it.

use std::future::Future;
use std::io;

use crate::counters::Counters;
use crate::loader::{Events, LoadError, Tracer};
use crate::record::{DecodeError, Event};
use crate::resolve::{Missing, Report};

/// Events and counters of the hooked functions.
pub trait Kernel: Send {
    /// Waits until the kernel wakes the reader. Cancel safe.
    fn ready(&mut self) -> impl Future<Output = io::Result<()>> + Send;

    /// The next event, identities before records; never blocks.
    fn next(&mut self) -> Option<Result<Event, DecodeError>>;

    /// All counters.
    ///
    /// # Errors
    /// The kernel refused to read a map.
    fn counters(&self) -> Result<Counters, LoadError>;

    /// Lets ends of processes be told again, for the next interval; returns how many were
    /// not told since the start, because there were too many.
    ///
    /// # Errors
    /// The kernel refused to read or write a map.
    fn renew_exits(&mut self) -> Result<u64, LoadError>;

    /// What is attached and why the rest is not.
    fn report(&self) -> &Report;

    /// Looks again at the loaded modules. Returns whether the report changed.
    ///
    /// # Errors
    /// As when the tracer starts.
    fn refresh(&mut self) -> Result<bool, LoadError>;

    /// Lets the kernel time the programs, or ends that.
    ///
    /// # Errors
    /// The kernel refuses.
    fn time_programs(&mut self, on: bool) -> io::Result<()>;

    /// The kernel times programs now, for us or for somebody else.
    fn are_programs_timed(&self) -> bool;

    /// Takes every probe off until [`Kernel::allow`] without a module.
    fn stop(&mut self, why: &Missing);

    /// Every probe was taken off by [`Kernel::stop`].
    fn is_stopped(&self) -> bool;

    /// Takes the probes off one module, or off all; returns how many.
    fn detach(&mut self, module: Option<&str>) -> usize;

    /// Lets one module, or all, be attached again by the next refresh.
    fn allow(&mut self, module: Option<&str>);
}

/// The running kernel.
#[derive(Debug)]
pub struct LiveKernel {
    tracer: Tracer,
    events: Events,
}

impl LiveKernel {
    /// Of an attached tracer.
    #[must_use]
    pub fn new((tracer, events): (Tracer, Events)) -> Self {
        Self { tracer, events }
    }
}

impl Kernel for LiveKernel {
    async fn ready(&mut self) -> io::Result<()> {
        self.events.ready().await
    }

    fn next(&mut self) -> Option<Result<Event, DecodeError>> {
        self.events.next()
    }

    fn counters(&self) -> Result<Counters, LoadError> {
        self.tracer.counters()
    }

    fn renew_exits(&mut self) -> Result<u64, LoadError> {
        self.tracer.renew_exits()
    }

    fn report(&self) -> &Report {
        self.tracer.report()
    }

    fn refresh(&mut self) -> Result<bool, LoadError> {
        let before = self.tracer.report().clone();
        self.tracer.refresh()?;
        Ok(*self.tracer.report() != before)
    }

    fn time_programs(&mut self, on: bool) -> io::Result<()> {
        self.tracer.time_programs(on)
    }

    fn are_programs_timed(&self) -> bool {
        self.tracer.are_programs_timed()
    }

    fn stop(&mut self, why: &Missing) {
        self.tracer.stop(why);
    }

    fn is_stopped(&self) -> bool {
        self.tracer.is_stopped()
    }

    fn detach(&mut self, module: Option<&str>) -> usize {
        self.tracer.detach(module).len()
    }

    fn allow(&mut self, module: Option<&str>) {
        self.tracer.allow(module);
    }
}
