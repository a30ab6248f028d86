//! Engine and naive engine, side by side, through anything that can happen.

use crate::naive::{Naive, NaiveFrame};
use proptest::prelude::*;
use rdmesh_shaper::engine::{
    Departure, Expiry, Frame, MAX_EXPIRY_PS, Match, Policy, Rule, Speed, Wire, WireConfig,
    line_bytes,
};
use rdmesh_shaper::rate::{LineRate, MAX_RATE_BPS, MIN_RATE_BPS};
use std::collections::BTreeMap;

#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Frames that arrive together, so long before or after the present.
    Push {
        frames: Vec<(u64, u16, bool)>,
        arrived_ps: i64,
    },
    /// Time passes, then polls until nothing is due, of which the port takes so
    /// many frames of each burst.
    Poll { after_ps: u64, accepts: Vec<usize> },
    /// A burst is offered and forgotten without an answer.
    Abandon { after_ps: u64 },
    /// A change of speed, and perhaps its end.
    Policy {
        speed: Speed,
        expiry: Option<(u64, Speed)>,
    },
}

/// Rates: the usual ones, and any at all, whose fractions are long.
pub(crate) fn rates() -> impl Strategy<Value = LineRate> {
    prop_oneof![
        prop::sample::select(vec![1, 7, 50, 10_000, 25_000, 100_000, 200_000])
            .prop_map(|mbit: u64| mbit * 1_000_000),
        MIN_RATE_BPS..=MAX_RATE_BPS,
    ]
    .prop_map(|bps| LineRate::new(bps).expect("in range"))
}

fn speeds() -> impl Strategy<Value = Speed> {
    prop_oneof![9 => rates().prop_map(Speed::Rate), 1 => Just(Speed::Unshaped)]
}

fn lens() -> impl Strategy<Value = u16> {
    prop_oneof![Just(64), Just(60), Just(1500), Just(9216), 1_u16..=u16::MAX]
}

/// Times of all magnitudes from a picosecond to a second.
fn spans() -> impl Strategy<Value = u64> {
    (0_u32..40).prop_flat_map(|power| 0..=(1_u64 << power))
}

fn steps(keys: u64) -> impl Strategy<Value = Step> {
    let frame = (0..keys, lens(), prop::bool::weighted(0.05));
    prop_oneof![
        6 => (prop::collection::vec(frame, 1..40), spans(), prop::bool::weighted(0.3)).prop_map(
            |(frames, span, later)| {
                let span = i64::try_from(span).expect("below 2^40");
                Step::Push { frames, arrived_ps: if later { span } else { -span } }
            }
        ),
        6 => (spans(), prop::collection::vec(0_usize..=32, 0..4))
            .prop_map(|(after_ps, accepts)| Step::Poll { after_ps, accepts }),
        1 => spans().prop_map(|after_ps| Step::Abandon { after_ps }),
        1 => (speeds(), prop::option::of((1..=MAX_EXPIRY_PS, speeds()))).prop_map(
            |(speed, expiry)| Step::Policy { speed, expiry }
        ),
        1 => (speeds(), prop::option::of((1..=1_u64 << 36, speeds()))).prop_map(
            |(speed, expiry)| Step::Policy { speed, expiry }
        ),
    ]
}

#[derive(Debug, Clone)]
struct Case {
    config: WireConfig,
    from_ps: u64,
    steps: Vec<Step>,
}

fn cases() -> impl Strategy<Value = Case> {
    let config = (speeds(), 68_u16..=9202, 1_u32..300, 1_u32..10).prop_map(
        |(speed, mtu_bytes, queue_frames, sub_queues)| WireConfig {
            speed,
            mtu_bytes,
            queue_frames,
            sub_queues,
        },
    );
    // Half of the cases start shortly before the clock wraps.
    let from_ps = prop_oneof![Just(0_u64), spans().prop_map(|span| u64::MAX - span)];
    (config, from_ps, 1_u64..24)
        .prop_flat_map(|(config, from_ps, keys)| {
            (
                Just(config),
                Just(from_ps),
                prop::collection::vec(steps(keys), 1..40),
            )
        })
        .prop_map(|(config, from_ps, steps)| Case {
            config,
            from_ps,
            steps,
        })
}

/// The two engines and what has happened to them.
struct Pair {
    wire: Wire,
    naive: Naive,
    now_ps: i128,
    pushed: u64,
    sent: Vec<NaiveFrame>,
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the clock wraps"
)]
pub(crate) fn wrapped(ps: i128) -> u64 {
    ps as u64
}

impl Pair {
    fn new(case: &Case) -> Self {
        let now_ps = i128::from(case.from_ps);
        Self {
            wire: Wire::new(&case.config, case.from_ps).expect("valid configuration"),
            naive: Naive::new(&case.config, now_ps),
            now_ps,
            pushed: 0,
            sent: Vec::new(),
        }
    }

    fn push(&mut self, frames: &[(u64, u16, bool)], arrived_ps: i64) {
        let arrived_ps = self.now_ps + i128::from(arrived_ps);
        let naive: Vec<NaiveFrame> = frames
            .iter()
            .zip(self.pushed..)
            .map(|(&(key, len, is_cnp), handle)| NaiveFrame {
                handle,
                key,
                arrived_ps,
                len,
                is_cnp,
            })
            .collect();
        let engine: Vec<Frame> = naive.iter().map(engine_frame).collect();
        let taken = self.wire.push(&engine);
        let expected = naive
            .iter()
            .take_while(|frame| self.naive.push(**frame))
            .count();
        assert_eq!(taken, expected);
        self.pushed += taken as u64;
    }

    /// One poll of both, compared; gives back how many frames were offered.
    fn poll(&mut self, accepts: Option<usize>) -> usize {
        let expected = self.naive.peek(self.now_ps);
        let burst = self.wire.peek(wrapped(self.now_ps));
        let offered: Vec<Departure> = expected.iter().map(departure).collect();
        assert_eq!(burst.departures(), offered);
        let expected_handles = expected.iter().map(|(frame, _)| &frame.handle);
        assert!(burst.handles().iter().eq(expected_handles));
        let Some(accepts) = accepts else {
            drop(burst);
            return offered.len();
        };
        let taken = accepts.min(offered.len());
        burst.commit(taken);
        self.naive.commit(self.now_ps, taken);
        self.sent
            .extend(expected[..taken].iter().map(|(frame, _)| frame));
        assert_eq!(self.wire.queued_frames(), self.naive.waiting());
        offered.len()
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Push { frames, arrived_ps } => self.push(frames, *arrived_ps),
            Step::Poll { after_ps, accepts } => {
                self.now_ps += i128::from(*after_ps);
                for accepts in accepts {
                    self.poll(Some(*accepts));
                }
                while self.poll(Some(usize::MAX)) > 0 {}
            }
            Step::Abandon { after_ps } => {
                self.now_ps += i128::from(*after_ps);
                self.poll(None);
                std::mem::forget(self.wire.peek(wrapped(self.now_ps)));
                self.naive.peek(self.now_ps);
            }
            Step::Policy { speed, expiry } => {
                let policy = policy(*speed, *expiry);
                self.wire.set_policy(&policy, wrapped(self.now_ps));
                let expiry = expiry.map(|(after_ps, then)| (i128::from(after_ps), then));
                self.naive.set_speed(self.now_ps, *speed, expiry);
            }
        }
    }

    /// Lets everything out, each frame at the instant that the engine names.
    fn drain(&mut self) {
        while let Some(due_ps) = self.wire.due_at_ps() {
            let ahead_ps = due_ps.wrapping_sub(wrapped(self.now_ps)).cast_signed();
            if ahead_ps > 0 {
                self.now_ps += i128::from(ahead_ps) - 1;
                assert_eq!(self.poll(None), 0, "a frame before its time");
                self.now_ps += 1;
            }
            assert!(self.poll(Some(1)) > 0, "nothing at the time named");
        }
    }

    /// Nothing lost, nothing doubled, order kept within each key.
    fn check_order(&self) {
        assert_eq!(self.sent.len() as u64, self.pushed);
        let mut handles: Vec<u64> = self.sent.iter().map(|frame| frame.handle).collect();
        let mut last = BTreeMap::new();
        for frame in &self.sent {
            let stream = (!frame.is_cnp).then_some(frame.key);
            if let Some(before) = last.insert(stream, frame.handle) {
                assert!(before < frame.handle, "frame {} overtook", frame.handle);
            }
        }
        handles.sort_unstable();
        assert_eq!(handles, (0..self.pushed).collect::<Vec<_>>());
        let bytes: u64 = self.sent.iter().map(|frame| line_bytes(frame.len)).sum();
        assert_eq!(self.wire.stats().sent_line_bytes, bytes);
        let stats = self.wire.stats();
        assert_eq!(
            (stats.pushed_frames, stats.sent_frames),
            (self.pushed, self.pushed)
        );
    }
}

fn engine_frame(frame: &NaiveFrame) -> Frame {
    Frame {
        handle: frame.handle,
        key: frame.key,
        arrived_ps: wrapped(frame.arrived_ps),
        len: frame.len,
        is_cnp: frame.is_cnp,
    }
}

fn departure((frame, start_ps): &(NaiveFrame, i128)) -> Departure {
    Departure {
        depart_at_ps: wrapped(*start_ps),
        waited_ps: wrapped(start_ps - frame.arrived_ps),
        len: frame.len,
        is_cnp: frame.is_cnp,
    }
}

fn policy(speed: Speed, expiry: Option<(u64, Speed)>) -> Policy {
    let rule = Rule {
        applies_to: Match::Every,
        speed,
        expiry: expiry.map(|(after_ps, then)| Expiry { after_ps, then }),
    };
    Policy::new(1, &[rule]).expect("valid policy")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]
    #[test]
    fn departures_equal_those_of_exact_arithmetic(case in cases()) {
        let mut pair = Pair::new(&case);
        for step in &case.steps {
            pair.step(step);
        }
        pair.drain();
        pair.check_order();
    }
}
