//! Push, peek and commit in bursts of 32, per frame.

use super::Figure;
use crate::engine::{BURST, Frame, Speed, Wire, WireConfig, line_bytes};
use crate::rate::LineRate;
use std::hint::black_box;
use std::time::Instant;

/// Frames of one round: below a millisecond, so that most rounds are not interrupted.
const ROUND_FRAMES: usize = 20_000;

/// Rounds of one figure.
const ROUNDS: usize = 301;

/// The rate of the measured wire. Not a round number, so that fractions of a
/// picosecond are carried: the dearest case.
const RATE_BPS: u64 = 99_999_999_937;

/// A cable that people shape to: each byte takes whole picoseconds, as at all rates of
/// real Ethernet.
const CABLE_BPS: u64 = 25_000_000_000;

/// Backlog that stays in the inner caches, frames.
const SHALLOW: usize = 1_000;

/// Backlog that does not, frames.
const DEEP: usize = 200_000;

/// Bursts of arriving frames before they repeat: a multiple of every number of keys
/// divides their frames, so that keys in turn stay in turn.
const ARRIVING_BURSTS: usize = 50;

/// A RoCE frame of 1 KiB of payload without FCS, bytes.
const FRAME_BYTES: u16 = 1_082;

/// In which order the keys of arriving frames follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// One after the other, as a NIC serves its queue pairs: backlogs stay even.
    InTurn,
    /// Without pattern: some backlogs grow, most run empty time and again.
    AtRandom,
}

/// Whether a turn of the poll loop takes frames in after or before it sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Intake {
    /// What is due leaves first: arriving frames compete at once.
    AfterSending,
    /// Frames that arrive before a late poll has sent what was due wait aside.
    BeforeSending,
}

/// Keys and standing backlog of one measurement.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    name: &'static str,
    keys: u64,
    order: Order,
    backlog: usize,
    intake: Intake,
    rate_bps: u64,
    at_most_ns: Option<f64>,
}

const fn load(
    name: &'static str,
    (keys, order): (u64, Order),
    backlog: usize,
    at_most_ns: Option<f64>,
) -> Load {
    Load {
        name,
        keys,
        order,
        backlog,
        intake: Intake::AfterSending,
        rate_bps: RATE_BPS,
        at_most_ns,
    }
}

/// All loads, with what the project promises for each.
pub static LOADS: [Load; 11] = [
    load("k1", (1, Order::InTurn), SHALLOW, Some(12.0)),
    load("k64", (64, Order::InTurn), SHALLOW, Some(12.0)),
    Load {
        rate_bps: CABLE_BPS,
        ..load("k64.cable", (64, Order::InTurn), SHALLOW, Some(12.0))
    },
    load("k200", (200, Order::InTurn), SHALLOW, None),
    load("k64.random", (64, Order::AtRandom), SHALLOW, None),
    Load {
        intake: Intake::BeforeSending,
        ..load("k64.late", (64, Order::InTurn), SHALLOW, None)
    },
    load("deep.k1", (1, Order::InTurn), DEEP, Some(18.0)),
    load("deep.k64", (64, Order::InTurn), DEEP, Some(30.0)),
    load("deep.k64.random", (64, Order::AtRandom), DEEP, Some(30.0)),
    // Far more keys than sub-queues: what a scan of ports would do to the wire.
    load("k50000.random", (50_000, Order::AtRandom), SHALLOW, None),
    load("deep.k50000.random", (50_000, Order::AtRandom), DEEP, None),
];

/// Keys of arriving frames.
#[derive(Debug)]
struct Keys {
    state: u64,
    count: u64,
    order: Order,
}

impl Keys {
    fn next(&mut self) -> u64 {
        let number = match self.order {
            Order::InTurn => {
                self.state = (self.state + 1) % self.count;
                self.state
            }
            Order::AtRandom => {
                // A linear congruential generator (Knuth's MMIX); its high bits are good.
                self.state = self
                    .state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (self.state >> 33) % self.count
            }
        };
        // What the classifier gives is spread over all bits.
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// A wire under load. Time goes on by just what 32 frames take, so that each poll
/// sends 32 and the backlog stands.
struct Bench {
    wire: Wire,
    intake: Intake,
    now_ps: u64,
    step_ps: u64,
    frames: Vec<[Frame; BURST]>,
    next: usize,
}

impl Load {
    /// The name of its figure.
    #[must_use]
    pub fn name(&self) -> String {
        format!("shaper.engine.{}.ns", self.name)
    }

    /// Nanoseconds per frame.
    #[must_use]
    pub fn measure(&self) -> Figure {
        let mut bench = Bench::new(self);
        bench.round();
        let rounds = (0..ROUNDS).map(|_| bench.round()).collect();
        Figure {
            at_most: self.at_most_ns,
            ..Figure::median_of(self.name(), "ns", rounds)
        }
    }
}

impl Bench {
    fn new(load: &Load) -> Self {
        let rate = LineRate::new(load.rate_bps).unwrap_or_else(|_| unreachable!("a rate in range"));
        let config = WireConfig::new(Speed::Rate(rate), 1_500);
        let mut wire =
            Wire::new(&config, 0).unwrap_or_else(|_| unreachable!("the default configuration"));
        let mut keys = Keys {
            state: 1,
            count: load.keys,
            order: load.order,
        };
        let mut frame = |handle| Frame {
            handle,
            key: keys.next(),
            arrived_ps: 0,
            len: FRAME_BYTES,
            is_cnp: false,
        };
        for handle in 0..load.backlog as u64 {
            wire.push(&[frame(handle)]);
        }
        let frames = (0..ARRIVING_BURSTS)
            .map(|_| std::array::from_fn(|at| frame(at as u64)))
            .collect();
        let burst_bytes = line_bytes(FRAME_BYTES) * BURST as u64;
        Self {
            wire,
            intake: load.intake,
            now_ps: 0,
            step_ps: burst_bytes * 8_000_000_000_000 / load.rate_bps,
            frames,
            next: 0,
        }
    }

    /// Nanoseconds per frame of one round.
    #[expect(clippy::cast_precision_loss, reason = "a count of frames")]
    fn round(&mut self) -> f64 {
        let mut sent = 0;
        let from = Instant::now();
        while sent < ROUND_FRAMES {
            sent += self.turn();
        }
        from.elapsed().as_secs_f64() * 1e9 / sent as f64
    }

    /// One turn of the poll loop: what is due goes out, as many come in.
    fn turn(&mut self) -> usize {
        self.now_ps += self.step_ps;
        if self.intake == Intake::BeforeSending {
            self.take_in(BURST);
            let sent = self.send();
            return sent + self.send();
        }
        let sent = self.send();
        self.take_in(sent);
        sent
    }

    fn send(&mut self) -> usize {
        let burst = self.wire.peek(self.now_ps);
        let due = black_box(burst.departures()).len();
        burst.commit(due);
        due
    }

    fn take_in(&mut self, count: usize) {
        self.next = (self.next + 1) % self.frames.len();
        let arriving = &mut self.frames[self.next];
        for frame in arriving.iter_mut() {
            frame.arrived_ps = self.now_ps;
        }
        self.wire.push(&arriving[..count]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_backlog_stands_and_each_poll_sends_a_burst() {
        for load in LOADS {
            let mut bench = Bench::new(&load);
            for _ in 0..1000 {
                assert!((BURST - 1..=BURST).contains(&bench.turn()), "{load:?}");
                let backlog = bench.wire.queued_frames();
                assert!(
                    backlog.abs_diff(load.backlog) <= BURST,
                    "{backlog}: {load:?}"
                );
            }
            assert_eq!(bench.wire.stats().catch_up_exhausted, 0);
        }
    }
}
