//! What the tracer costs its host, and when that is more than it may: CPU time of
//! its own process and of its programs in the kernel.
//!
//! The kernel times programs only when it is told to, and then all of the host's:
//! each run costs two readings of a clock more. So it is told for one interval of
//! some, and for longer when what was seen comes near the budget. What was not
//! timed counts as nothing: the budget is never passed by an estimate.
//!
//! Pure: readings in, decisions out.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::counters::RunTime;

/// Of so many intervals one is timed: at five seconds each, one in a minute.
const SAMPLED_OF: u32 = 12;

/// When the kernel times the programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Statistics {
    /// One interval in twelve, and while the cost comes near the budget.
    #[default]
    Sampled,
    /// Always. It slows every BPF program of the host a little.
    Always,
    /// Only while somebody else has told the kernel to
    /// (`kernel.bpf_stats_enabled`): the budget then covers the process alone.
    Never,
}

/// What the tracer may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Share of one CPU, percent; 0: no limit.
    pub percent: u32,
    /// Time over which it is taken together, nanoseconds.
    pub window_ns: u64,
}

/// At the end of an interval.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Boot clock.
    pub boot_ns: u64,
    /// CPU time of this process since its start.
    pub process_ns: u64,
    /// Of each probe, as far as it was timed.
    pub probes: Vec<RunTime>,
    /// The kernel times programs now.
    pub timed: bool,
}

/// What the tracer costs, as shares of one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Of the process, over the budget's window or as much of it as has passed.
    pub process: f64,
    /// Of the programs, in the last interval that was timed; none before.
    pub probes: Option<f64>,
}

/// What follows from a reading.
#[derive(Clone, Debug, PartialEq)]
pub struct Weighed {
    /// The cost now.
    pub cost: Cost,
    /// The kernel is to time the next interval.
    pub time_next: bool,
    /// The budget is passed: by how much, in words.
    pub passed: Option<String>,
}

/// One interval.
#[derive(Clone, Copy, Debug)]
struct Slice {
    wall_ns: u64,
    process_ns: u64,
    probes_ns: Option<u64>,
}

impl Slice {
    fn cpu_ns(&self) -> u64 {
        self.process_ns.saturating_add(self.probes_ns.unwrap_or(0))
    }
}

/// Adds intervals up.
#[derive(Clone, Debug)]
pub struct Meter {
    statistics: Statistics,
    budget: Budget,
    last: Reading,
    slices: VecDeque<Slice>,
    untimed: u32,
    cost: Cost,
}

impl Meter {
    /// Begins with the first reading.
    #[must_use]
    pub fn new(statistics: Statistics, budget: Budget, first: Reading) -> Self {
        Self {
            statistics,
            budget,
            last: first,
            slices: VecDeque::new(),
            // The first interval is timed, so that figures are there early.
            untimed: SAMPLED_OF,
            cost: Cost::default(),
        }
    }

    /// Whether the interval that begins with the start is timed: a storm may come with it.
    #[must_use]
    pub fn is_timed_first(&self) -> bool {
        self.statistics == Statistics::Always
    }

    /// Forgets what was spent until now: after the probes were put back, which is no
    /// cost of their work.
    pub fn forget(&mut self, process_ns: u64) {
        self.slices.clear();
        self.last.process_ns = process_ns;
    }

    /// Whether the kernel times the interval that begins now.
    pub fn timed(&mut self, timed: bool) {
        self.last.timed = timed;
    }

    /// Takes the end of an interval.
    pub fn take(&mut self, reading: Reading) -> Weighed {
        let last = std::mem::replace(&mut self.last, reading);
        let slice = Slice {
            wall_ns: self.last.boot_ns.saturating_sub(last.boot_ns),
            process_ns: self.last.process_ns.saturating_sub(last.process_ns),
            probes_ns: (last.timed && self.last.timed)
                .then(|| spent(&last.probes, &self.last.probes)),
        };
        self.slices.push_back(slice);
        let wall = |slices: &VecDeque<Slice>| slices.iter().map(|s| s.wall_ns).sum::<u64>();
        while self.slices.len() > 1 && wall(&self.slices) > self.budget.window_ns {
            self.slices.pop_front();
        }
        self.untimed = match slice.probes_ns {
            Some(_) => 0,
            None => self.untimed.saturating_add(1),
        };
        let process = self.slices.iter().map(|s| s.process_ns).sum();
        self.cost.process = share(process, wall(&self.slices));
        if let Some(ns) = slice.probes_ns {
            self.cost.probes = Some(share(ns, slice.wall_ns));
        }
        Weighed {
            cost: self.cost,
            time_next: self.is_timed_next(&slice),
            passed: self.passed(),
        }
    }

    fn is_timed_next(&self, slice: &Slice) -> bool {
        match self.statistics {
            Statistics::Always => true,
            Statistics::Never => false,
            Statistics::Sampled => {
                // From half of the budget on the whole window must be known.
                let near = self.allowed_ns(slice.wall_ns) / 2;
                let is_near = self.budget.percent > 0 && slice.cpu_ns() > near;
                is_near || self.untimed >= SAMPLED_OF - 1
            }
        }
    }

    fn allowed_ns(&self, wall_ns: u64) -> u64 {
        let allowed = u128::from(wall_ns) * u128::from(self.budget.percent) / 100;
        u64::try_from(allowed).unwrap_or(u64::MAX)
    }

    /// More CPU time than the whole window allows, however little of it has passed.
    fn passed(&self) -> Option<String> {
        let process: u64 = self.slices.iter().map(|s| s.process_ns).sum();
        let probes: u64 = self.slices.iter().filter_map(|s| s.probes_ns).sum();
        let allowed = self.allowed_ns(self.budget.window_ns);
        if self.budget.percent == 0 || process.saturating_add(probes) <= allowed {
            return None;
        }
        Some(format!(
            "{:.2} s of CPU time in {:.0} s: {:.2} s of the probes, {:.2} s of tracer-svc; \
             {:.2} s are allowed",
            seconds(process + probes),
            seconds(self.budget.window_ns),
            seconds(probes),
            seconds(process),
            seconds(allowed),
        ))
    }
}

/// A probe that was attached anew began at zero.
fn spent(before: &[RunTime], after: &[RunTime]) -> u64 {
    let before = before
        .iter()
        .chain(std::iter::repeat(&RunTime { runs: 0, ns: 0 }));
    after
        .iter()
        .zip(before)
        .map(|(after, before)| after.ns.checked_sub(before.ns).unwrap_or(after.ns))
        .sum()
}

#[expect(clippy::cast_precision_loss, reason = "a share, for people")]
fn share(cpu_ns: u64, wall_ns: u64) -> f64 {
    match wall_ns {
        0 => 0.0,
        wall_ns => cpu_ns as f64 / wall_ns as f64,
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown with two digits")]
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const BUDGET: Budget = Budget {
        percent: 50,
        window_ns: 60 * SECOND,
    };

    /// Readings every five seconds, of a host that costs so many milliseconds in each.
    struct Host {
        meter: Meter,
        reading: Reading,
    }

    impl Host {
        fn new(statistics: Statistics, budget: Budget) -> Self {
            let reading = Reading {
                boot_ns: 7 * SECOND,
                probes: vec![RunTime::default()],
                ..Reading::default()
            };
            let meter = Meter::new(statistics, budget, reading.clone());
            Self { meter, reading }
        }

        fn interval(&mut self, process_ms: u64, probes_ms: u64) -> Weighed {
            self.reading.boot_ns += 5 * SECOND;
            self.reading.process_ns += process_ms * 1_000_000;
            if self.reading.timed {
                self.reading.probes[0].runs += 1;
                self.reading.probes[0].ns += probes_ms * 1_000_000;
            }
            let weighed = self.meter.take(self.reading.clone());
            self.reading.timed = weighed.time_next;
            self.meter.timed(weighed.time_next);
            weighed
        }
    }

    #[test]
    fn one_interval_in_twelve_is_timed() {
        let mut host = Host::new(Statistics::Sampled, BUDGET);
        let timed: Vec<bool> = (0..26).map(|_| host.interval(1, 1).time_next).collect();
        let at: Vec<usize> = (0..26).filter(|i| timed[*i]).collect();
        assert_eq!(at, [0, 12, 24]);
        let mut never = Host::new(Statistics::Never, BUDGET);
        assert!((0..30).all(|_| !never.interval(2_400, 9).time_next));
        let mut always = Host::new(Statistics::Always, BUDGET);
        assert!((0..30).all(|_| always.interval(1, 1).time_next));
    }

    #[test]
    fn shares_are_of_one_cpu() {
        let mut host = Host::new(Statistics::Always, BUDGET);
        assert_eq!(
            host.interval(500, 0).cost,
            Cost {
                process: 0.1,
                probes: None
            }
        );
        let cost = host.interval(0, 1_000).cost;
        assert_eq!(
            cost,
            Cost {
                process: 0.05,
                probes: Some(0.2)
            }
        );
    }

    #[test]
    fn a_burst_does_not_pass_the_budget_and_a_storm_does() {
        let mut host = Host::new(Statistics::Sampled, BUDGET);
        // Ten seconds at more than a whole CPU.
        for _ in 0..2 {
            assert_eq!(host.interval(4_000, 4_000).passed, None);
        }
        for _ in 0..12 {
            assert_eq!(host.interval(10, 10).passed, None);
        }
        // A storm that the first look saw is looked at without a pause.
        let mut passed = (0..12).map(|_| host.interval(1_500, 3_000));
        let passed = passed.find_map(|w| {
            assert!(w.time_next);
            w.passed
        });
        let text = passed.expect("a storm passes the budget");
        assert!(text.contains("30.00 s are allowed"), "{text}");
        assert!(text.contains(" in 60 s: "), "{text}");
    }

    #[test]
    fn without_a_limit_nothing_is_passed() {
        let unlimited = Budget {
            percent: 0,
            ..BUDGET
        };
        let mut host = Host::new(Statistics::Sampled, unlimited);
        for _ in 0..24 {
            assert_eq!(host.interval(5_000, 5_000).passed, None);
        }
    }

    #[test]
    fn what_was_spent_is_forgotten_and_a_new_probe_begins_at_zero() {
        let mut host = Host::new(Statistics::Always, BUDGET);
        host.interval(0, 0);
        while host.interval(2_000, 2_000).passed.is_none() {}
        host.meter.forget(host.reading.process_ns);
        host.reading.probes[0] = RunTime::default();
        let weighed = host.interval(100, 250);
        assert_eq!(weighed.passed, None);
        assert_eq!(
            weighed.cost,
            Cost {
                process: 0.02,
                probes: Some(0.05)
            }
        );
    }
}
