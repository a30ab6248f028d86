//! The loop that serves every wire in turn. After start it never allocates, locks,
//! awaits or logs.

use std::any::Any;
use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::clock::Clock;
use super::gaps::PollGaps;
use super::link::{ThreadLink, WireLink};
use super::route::{Route, RouteConfig};
use crate::engine::time::PS_PER_NS;
use crate::engine::{ConfigError, MAX_WIRES};
use crate::port::{BURST, Port};

/// Why a data path cannot be made.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum DataPathError {
    /// A wire is out of its limits.
    #[error(transparent)]
    Wire(#[from] ConfigError),
    /// A wire names a port that is not there.
    #[error("a wire uses port {port}, and there are {ports}")]
    NoPort {
        /// Index that was named.
        port: usize,
        /// How many ports there are.
        ports: usize,
    },
    /// Two wires read from the same port, or write to the same one.
    #[error(
        "two wires share port {port}: each wire has a port that feeds it and a port that it feeds \
         to itself"
    )]
    SharedPort {
        /// Index of the port.
        port: usize,
    },
}

/// Longest sleep after a turn without frames: what a frame may wait on an idle wire.
const LONGEST_REST_PS: u64 = 50_000 * PS_PER_NS;

/// A shorter sleep costs more than it gives.
const SHORTEST_REST_PS: u64 = 5_000 * PS_PER_NS;

/// How much later than asked the system may wake the loop, ns. Unless told, it takes
/// 50 µs, a frame at 250 Mbit/s.
const WAKE_WITHIN: NonZeroU64 = NonZeroU64::MIN;

/// How the loop runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pacing {
    /// Reporting interval.
    pub window: Duration,
    /// Leave the processor to others after a turn without frames: for a core that is
    /// not the loop's own.
    pub yields: bool,
    /// How long waiting frames may take to leave after a stop.
    pub drain: Duration,
}

/// Ports and the wires between them.
#[derive(Debug)]
pub struct DataPath<P: Port, C> {
    ports: Vec<P>,
    routes: Vec<Route<P::Frame>>,
    clock: C,
    gaps: PollGaps,
    turned_ps: u64,
    window_ps: u64,
    pacing: Pacing,
}

impl<P: Port, C: Clock> DataPath<P, C> {
    /// A data path at rest, with a link for each wire.
    ///
    /// # Errors
    /// [`DataPathError`] when a wire's size or ports are wrong.
    pub fn new(
        ports: Vec<P>,
        routes: &[(RouteConfig, Arc<WireLink>)],
        clock: C,
        pacing: Pacing,
    ) -> Result<Self, DataPathError> {
        check_ports(ports.len(), routes)?;
        let now_ps = clock.now_ps();
        let made = routes
            .iter()
            .map(|(config, link)| Route::new(config, Arc::clone(link), now_ps));
        Ok(Self {
            ports,
            routes: made.collect::<Result<_, _>>()?,
            clock,
            gaps: PollGaps::new(),
            turned_ps: now_ps,
            window_ps: picoseconds(pacing.window),
            pacing,
        })
    }

    /// Serves every wire once; returns how many frames moved.
    #[inline]
    pub fn turn(&mut self) -> usize {
        let mut moved = 0;
        let mut closed = false;
        let mut first = true;
        for route in &mut self.routes {
            let now_ps = self.clock.now_ps();
            if first {
                self.gaps
                    .record(now_ps.wrapping_sub(self.turned_ps) / PS_PER_NS);
                self.turned_ps = now_ps;
                first = false;
            }
            moved += route.serve(&mut self.ports, now_ps, &self.gaps);
            // One a turn: closing costs microseconds, and a change closes too.
            if !closed {
                closed = route.obey(now_ps, &self.gaps)
                    || route.close_window(self.window_ps, now_ps, &self.gaps);
            }
        }
        moved
    }

    /// The ports, in the order in which they were given.
    pub fn ports_mut(&mut self) -> &mut [P] {
        &mut self.ports
    }

    /// Frames that wait in all wires.
    #[must_use]
    pub fn queued_frames(&self) -> usize {
        self.routes.iter().map(Route::queued_frames).sum()
    }

    /// Runs until it is asked to stop, then lets waiting frames out. Should the loop
    /// fail, frames pass unshaped from then on, so that no host is cut off, and the
    /// link says why.
    pub fn run(&mut self, thread: &ThreadLink) {
        if self.pacing.yields {
            // A system that refuses wakes the loop later; that is counted as a poll gap.
            let _ = rustix::thread::set_current_timer_slack(Some(WAKE_WITHIN));
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            while !thread.stop.load(Ordering::Relaxed) {
                let moved = self.turn();
                thread.turns.fetch_add(1, Ordering::Relaxed);
                if moved == 0 && self.pacing.yields {
                    self.rest();
                }
            }
            self.drain();
            let now_ps = self.clock.now_ps();
            for route in &mut self.routes {
                route.close_last(now_ps, &self.gaps);
            }
        }));
        if let Err(panic) = outcome {
            thread.report_fault(words_of(panic.as_ref()).to_owned());
            self.pass_through(thread);
        }
        thread.ended.store(true, Ordering::Release);
    }

    /// Leaves a core that is not the loop's own to others, until a frame is due. A loop
    /// that merely yielded would use up its share of the core with looking at empty
    /// ports, and would then have to wait when frames come; one that has slept is let in
    /// at once.
    fn rest(&self) {
        let now_ps = self.clock.now_ps();
        let rests = self.routes.iter().map(|route| route.rest_ps(now_ps));
        let rest_ps = rests.fold(LONGEST_REST_PS, u64::min);
        if rest_ps < SHORTEST_REST_PS {
            std::thread::yield_now();
        } else {
            std::thread::sleep(Duration::from_nanos(rest_ps / PS_PER_NS));
        }
    }

    /// Lets waiting frames out at the ports' speed, for as long as the pacing allows;
    /// returns how many had to be given up.
    pub fn drain(&mut self) -> usize {
        let began_ps = self.clock.now_ps();
        let limit_ps = picoseconds(self.pacing.drain);
        for route in &mut self.routes {
            route.open_up(began_ps, &self.gaps);
        }
        loop {
            let now_ps = self.clock.now_ps();
            for route in &mut self.routes {
                route.drain(&mut self.ports, now_ps, &self.gaps);
            }
            if self.queued_frames() == 0 || now_ps.wrapping_sub(began_ps) > limit_ps {
                break;
            }
        }
        self.routes
            .iter_mut()
            .map(|route| route.discard_all(&mut self.ports))
            .sum()
    }

    /// Forwards without engine, clock or classifier.
    fn pass_through(&mut self, thread: &ThreadLink) {
        let mut waiting: Vec<VecDeque<P::Frame>> = Vec::new();
        for route in &mut self.routes {
            // Their order is known to the engine alone, which cannot be trusted now.
            route.discard_all(&mut self.ports);
            waiting.push(VecDeque::with_capacity(BURST));
        }
        while !thread.stop.load(Ordering::Relaxed) {
            let mut moved = 0;
            for (route, waiting) in self.routes.iter().zip(&mut waiting) {
                if waiting.is_empty() {
                    let port = &mut self.ports[route.in_port()];
                    port.receive(BURST, |_, _| (), |frame, ()| waiting.push_back(frame));
                }
                let sent = self.ports[route.out_port()].transmit(waiting.make_contiguous());
                waiting.drain(..sent);
                moved += sent;
            }
            thread.turns.fetch_add(1, Ordering::Relaxed);
            if moved == 0 && self.pacing.yields {
                std::thread::sleep(Duration::from_nanos(LONGEST_REST_PS / PS_PER_NS));
            }
        }
        for (route, waiting) in self.routes.iter().zip(&mut waiting) {
            self.ports[route.out_port()].discard(waiting.make_contiguous());
        }
    }
}

fn check_ports(ports: usize, routes: &[(RouteConfig, Arc<WireLink>)]) -> Result<(), DataPathError> {
    if routes.is_empty() || routes.len() > MAX_WIRES {
        return Err(ConfigError::Wires {
            wires: routes.len(),
        }
        .into());
    }
    let (mut fed, mut feeding) = (vec![false; ports], vec![false; ports]);
    for (route, _) in routes {
        for (port, used) in [(route.in_port, &mut feeding), (route.out_port, &mut fed)] {
            let used = used
                .get_mut(port)
                .ok_or(DataPathError::NoPort { port, ports })?;
            if std::mem::replace(used, true) {
                return Err(DataPathError::SharedPort { port });
            }
        }
    }
    Ok(())
}

fn picoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos())
        .unwrap_or(u64::MAX)
        .saturating_mul(PS_PER_NS)
}

fn words_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a failure without words")
}
