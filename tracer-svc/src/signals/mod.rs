//! Co-signals: what else goes wrong on a host near a failing call. The state and the error
//! counters of ports, and lines of the kernel's log that a rule knows.
//!
//! Everything is read once an interval, when the tracer is awake anyway; nothing here wakes
//! it, and nothing is changed.

mod kernel_log;
mod port_counters;
mod ports;
mod rules;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use rdmesh_proto::common::v1::ClockPair;

pub use rules::{CounterRule, Kind, LogRule, Rules, RulesError};

use self::kernel_log::KernelLog;
use self::port_counters::PortCounters;
use self::ports::Ports;
use crate::host::{Devices, Roots, names};
use crate::snapshot::CoSignal;

/// Looks for co-signals.
#[derive(Debug)]
pub struct Signals {
    roots: Roots,
    rules: Rules,
    ports: Ports,
    counters: PortCounters,
    log: Option<KernelLog>,
    /// Boot clock of the last look.
    looked_at: u64,
    left_out: u64,
}

impl Signals {
    /// Looks from now on. A log that cannot be opened is told once and left out.
    #[must_use]
    pub fn new(roots: &Roots, rules: Rules, clock: &ClockPair) -> Self {
        let path = &roots.kernel_log;
        let log = match KernelLog::open(path) {
            Ok(log) => Some(log),
            Err(error) => {
                tracing::warn!(
                    path = %path.display(),
                    %error,
                    "the kernel's log is not read: OOM kills and lines of drivers will not be told; \
                     it takes CAP_SYSLOG"
                );
                None
            }
        };
        let mut signals = Self {
            roots: roots.clone(),
            rules,
            ports: Ports::default(),
            counters: PortCounters::default(),
            log,
            looked_at: clock.boottime_ns,
            left_out: 0,
        };
        signals.find_devices();
        signals.ports.look(roots, clock.boottime_ns);
        signals.counters.look(clock.boottime_ns);
        signals
    }

    /// Devices came or went.
    pub fn find_devices(&mut self) {
        self.counters.find(&self.roots, &self.rules);
    }

    /// Whether the kernel's log is read.
    #[must_use]
    pub fn reads_log(&self) -> bool {
        self.log.is_some()
    }

    /// What went wrong since the last look, in the order of time.
    pub fn look(&mut self, devices: &Devices, clock: &ClockPair) -> Vec<CoSignal> {
        let since = std::mem::replace(&mut self.looked_at, clock.boottime_ns);
        let mut signals = self.ports.look(&self.roots, since);
        signals.extend(self.counters.look(since));
        if let Some(log) = &mut self.log {
            let now = clock.boottime_ns;
            let found = log.look(&self.rules, devices, suspended_ns(), now);
            self.left_out += found.left_out;
            signals.extend(found.signals);
        }
        signals.sort_by_key(|signal| signal.boot_ns);
        signals
    }

    /// Co-signals that were left out since the last call, because there were too many.
    pub fn take_left_out(&mut self) -> u64 {
        std::mem::take(&mut self.left_out)
    }
}

/// What the boot clock is ahead of the clock that stands still in suspend.
fn suspended_ns() -> u64 {
    use rustix::time::{ClockId, clock_gettime};
    let ns = |id| {
        let at = clock_gettime(id);
        i128::from(at.tv_sec) * 1_000_000_000 + i128::from(at.tv_nsec)
    };
    // Read in this order the difference is never too large.
    let boot = ns(ClockId::Boottime);
    u64::try_from(boot - ns(ClockId::Monotonic)).unwrap_or(0)
}

/// Every port: device, number, directory.
fn ports_of(roots: &Roots) -> Vec<(String, String, PathBuf)> {
    let class = roots.sys.join("class/infiniband");
    let mut ports = Vec::new();
    for device in names(&class) {
        let dir = class.join(&device).join("ports");
        for port in names(&dir) {
            let of_port = dir.join(&port);
            ports.push((device.clone(), port, of_port));
        }
    }
    ports
}
