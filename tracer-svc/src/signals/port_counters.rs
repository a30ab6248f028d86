//! Error counters of each port, told when they rise.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::rules::{CounterRule, Rules};
use crate::host::Roots;
use crate::snapshot::CoSignal;

/// Directories below a port that have counters: those of the specification, and the
/// device's own.
const DIRECTORIES: [&str; 2] = ["counters", "hw_counters"];

/// Counters that are read at most. Each is a system call or two, and on cards a question to
/// the firmware: a host with eight cards of two ports has less.
const COUNTERS: usize = 512;

/// One counter of one port.
#[derive(Debug)]
struct Counter {
    device: String,
    port: String,
    name: String,
    path: PathBuf,
    rule: CounterRule,
    last: Option<u64>,
}

/// The counters that are watched.
#[derive(Debug, Default)]
pub(super) struct PortCounters {
    counters: Vec<Counter>,
}

impl PortCounters {
    /// Looks which counters there are; those that stay keep their last value.
    pub(super) fn find(&mut self, roots: &Roots, rules: &Rules) {
        let mut known: BTreeMap<PathBuf, Option<u64>> = std::mem::take(&mut self.counters)
            .into_iter()
            .map(|counter| (counter.path, counter.last))
            .collect();
        for (device, port, dir) in super::ports_of(roots) {
            for below in DIRECTORIES {
                let dir = dir.join(below);
                for name in crate::host::names(&dir) {
                    let Some(rule) = rules.of_counter(&name) else {
                        continue;
                    };
                    if self.counters.len() == COUNTERS {
                        return;
                    }
                    let path = dir.join(&name);
                    self.counters.push(Counter {
                        device: device.clone(),
                        port: port.clone(),
                        last: known.remove(&path).flatten(),
                        rule: rule.clone(),
                        name,
                        path,
                    });
                }
            }
        }
    }

    /// What rose since the last look, which was at `since`.
    pub(super) fn look(&mut self, since: u64) -> Vec<CoSignal> {
        self.counters
            .iter_mut()
            .filter_map(|counter| counter.look(since))
            .collect()
    }
}

impl Counter {
    fn look(&mut self, since: u64) -> Option<CoSignal> {
        let now = crate::host::number::<u64>(&self.path)?;
        // A counter that fell was cleared: it counts from nought again.
        let rose = match self.last.replace(now)? {
            last if now < last => now,
            last => now - last,
        };
        (rose > 0).then(|| CoSignal {
            boot_ns: since,
            kind: self.rule.kind.into(),
            independent: self.rule.independent,
            name: self.name.clone().into(),
            detail: format!("port {}: {rose} more", self.port),
            device: self.device.clone().into_bytes(),
        })
    }
}
