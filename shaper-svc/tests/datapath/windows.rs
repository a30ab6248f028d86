//! Where windows begin and end: a window has one rate.

use proptest::prelude::*;
use rdmesh_shaper::datapath::WindowCounts;
use rdmesh_shaper::engine::{Expiry, Match, Policy, Rule};

use super::*;

/// 1,226 bytes occupy 1,250 bytes of the wire: 10,000 bits.
const FRAME: usize = 1226;

impl Bench {
    fn windows(&self) -> Vec<WindowCounts> {
        std::iter::from_fn(|| self.link.take_window()).collect()
    }

    fn arrive_many(&mut self, frames: u16) {
        (0..frames).for_each(|number| self.arrive(numbered(number, FRAME)));
    }

    /// Ends the loop once the frame on the wire has left, since time stands still then.
    fn stop(&mut self, after_ps: u64) {
        self.clock.advance_ps(after_ps);
        let thread = ThreadLink::default();
        thread.stop();
        self.path.run(&thread);
    }

    /// A turn each `step_ps` until `until_ps`; the windows of that time.
    fn run_until(&mut self, until_ps: u64, step_ps: u64) -> Vec<WindowCounts> {
        let mut windows = Vec::new();
        while self.clock.now_ps() < until_ps {
            self.clock.advance_ps(step_ps);
            self.path.turn();
            windows.extend(self.windows());
        }
        windows
    }
}

fn mbit(rate: u64) -> Speed {
    Speed::Rate(LineRate::new(rate * 1_000_000).unwrap())
}

fn told(windows: &[WindowCounts]) -> Vec<(u64, u64, u64, u64)> {
    let ms = |ps: u64| ps / PS_PER_MS;
    windows
        .iter()
        .map(|w| (ms(w.from_ps), ms(w.to_ps), w.rate_bps, w.sent_frames))
        .collect()
}

#[test]
fn a_change_of_rate_ends_the_window() {
    let mut bench = Bench::new(mbit(10), 1024);
    bench.arrive_many(100);
    bench.run_until(4 * PS_PER_MS, PS_PER_MS / 2);
    bench.link.order(Order::constant(7, mbit(50), false));
    let windows = bench.run_until(15 * PS_PER_MS, PS_PER_MS / 10);
    // From 0.5 on a frame each millisecond; the fourth is on the wire when the rate
    // changes, and ends as it began. From 4.5 to 14.1 one each 0.2 ms.

    assert_eq!(
        told(&windows),
        [(0, 4, 10_000_000, 4), (4, 14, 50_000_000, 49)],
        "{windows:?}"
    );
    assert_eq!((windows[0].generation, windows[1].generation), (0, 7));
}

#[test]
fn the_same_rate_again_is_no_change() {
    let mut bench = Bench::new(mbit(10), 1024);
    bench.run_until(4 * PS_PER_MS, PS_PER_MS);
    bench.link.order(Order::constant(7, mbit(10), false));
    let windows = bench.run_until(10 * PS_PER_MS, PS_PER_MS);
    assert_eq!(told(&windows), [(0, 10, 10_000_000, 0)]);
    assert_eq!(bench.link.generation_in_force(), 7);
}

#[test]
fn a_bypass_ends_the_window_although_the_rate_stays() {
    let mut bench = Bench::new(Speed::Unshaped, 1024);
    bench.run_until(4 * PS_PER_MS, PS_PER_MS);
    let order = Order::constant(7, Speed::Unshaped, true);
    bench.link.order(order);
    let windows = bench.run_until(16 * PS_PER_MS, PS_PER_MS);

    assert_eq!(told(&windows), [(0, 5, 0, 0), (5, 15, 0, 0)]);
    assert!(!windows[0].bypass && windows[1].bypass);
}

#[test]
fn a_rate_that_ends_by_itself_ends_its_window_at_that_instant() {
    for frames in [0, 100] {
        let mut bench = Bench::new(mbit(50), 1024);
        let expiry = Expiry {
            after_ps: 4 * PS_PER_MS,
            then: mbit(50),
        };
        bench.link.order(Order {
            policy: policy(3, mbit(10), Some(expiry)),
            bypass: false,
        });
        bench.arrive_many(frames);
        bench.path.turn();
        // Polls that do not meet the instant.
        let windows = bench.run_until(15 * PS_PER_MS, 3 * PS_PER_MS / 10);

        // At 0, 1, 2, 3; then from 4 to 14.1 each 0.2 ms.
        let sent = if frames == 0 { (0, 0) } else { (4, 51) };
        assert_eq!(
            told(&windows),
            [(0, 4, 10_000_000, sent.0), (4, 14, 50_000_000, sent.1)],
            "{windows:?}"
        );
        assert_eq!(windows[0].to_ps, 4 * PS_PER_MS, "to the picosecond");
        assert_eq!(windows[0].expires_after_ps, 0);
    }
}

#[test]
fn a_rate_that_ends_at_the_same_rate_is_one_window_and_has_ended() {
    let mut bench = Bench::new(mbit(50), 1024);
    let expiry = Expiry {
        after_ps: 4 * PS_PER_MS,
        then: mbit(50),
    };
    bench.link.order(Order {
        policy: policy(3, mbit(50), Some(expiry)),
        bypass: false,
    });
    bench.path.turn();
    let windows = bench.run_until(20 * PS_PER_MS, PS_PER_MS);

    assert_eq!(told(&windows)[0], (0, 10, 50_000_000, 0));
    assert_eq!(windows[0].expires_after_ps, 0);
}

#[test]
fn a_window_tells_when_its_rate_ends() {
    let mut bench = Bench::new(mbit(50), 1024);
    let expiry = Expiry {
        after_ps: 15 * PS_PER_MS,
        then: Speed::Unshaped,
    };
    bench.link.order(Order {
        policy: policy(3, mbit(10), Some(expiry)),
        bypass: false,
    });
    bench.path.turn();
    let windows = bench.run_until(20 * PS_PER_MS, PS_PER_MS);

    assert_eq!(
        told(&windows)[..2],
        [(0, 10, 10_000_000, 0), (10, 15, 10_000_000, 0)]
    );
    assert_eq!(windows[0].expires_after_ps, 5 * PS_PER_MS);
}

#[test]
fn what_leaves_at_a_stop_is_a_window_of_its_own() {
    let mut bench = Bench::new(mbit(10), 1024);
    bench.arrive_many(50);
    bench.run_until(4 * PS_PER_MS, PS_PER_MS / 2);
    bench.stop(PS_PER_MS / 2);
    let windows = bench.windows();
    let told: Vec<_> = windows
        .iter()
        .map(|w| (w.rate_bps, w.sent_frames))
        .collect();
    assert_eq!(told, [(10_000_000, 4), (0, 46)], "{windows:?}");
}

fn policy(generation: u64, speed: Speed, expiry: Option<Expiry>) -> Policy {
    let rule = Rule {
        applies_to: Match::Every,
        speed,
        expiry,
    };
    Policy::new(generation, &[rule]).unwrap()
}

#[derive(Clone, Debug)]
enum Step {
    Turns { turns: u8, each_us: u16 },
    Frames(u8),
    Order { mbit: u16, ends_after_us: u16 },
    Take,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1..40_u8, 1..2000_u16).prop_map(|(turns, each_us)| Step::Turns { turns, each_us }),
        3 => any::<u8>().prop_map(Step::Frames),
        3 => (1..100_u16, 0..20_000_u16)
            .prop_map(|(mbit, ends_after_us)| Step::Order { mbit, ends_after_us }),
        1 => Just(Step::Take),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    /// However rates change, end by themselves and are told, and however rarely anybody
    /// takes windows: they lie end to end, each has a rate that was asked for, and no
    /// frame is missing.
    #[test]
    fn windows_lie_end_to_end_and_count_every_frame(steps in steps()) {
        let mut bench = Bench::new(mbit(10), 8192);
        let (mut sent, mut windows, mut generation) = (0, Vec::new(), 0);
        for step in steps {
            match step {
                Step::Turns { turns, each_us } => for _ in 0..turns {
                    bench.clock.advance_ps(u64::from(each_us) * 1_000_000);
                    bench.path.turn();
                    sent += bench.sent().len() as u64;
                },
                Step::Frames(frames) => bench.arrive_many(frames.into()),
                Step::Order { mbit: rate, ends_after_us } => {
                    generation += 1;
                    let expiry = (ends_after_us > 0).then(|| Expiry {
                        after_ps: u64::from(ends_after_us) * 1_000_000,
                        then: mbit(10),
                    });
                    let policy = policy(generation, mbit(rate.into()), expiry);
                    bench.link.order(Order { policy, bypass: false });
                }
                Step::Take => windows.extend(bench.windows()),
            }
        }
        // The slowest frame takes 10 ms.
        bench.stop(10 * PS_PER_MS);
        sent += bench.sent().len() as u64;
        windows.extend(bench.windows());
        prop_assert_eq!(windows.iter().map(|w| w.sent_frames).sum::<u64>(), sent);
        prop_assert_eq!(windows[0].from_ps, 0);
        for pair in windows.windows(2) {
            prop_assert_eq!(pair[0].to_ps, pair[1].from_ps);
        }
        let end_ps = windows[windows.len() - 1].to_ps;
        prop_assert_eq!(end_ps, bench.clock.now_ps());
        for window in &windows {
            // What a window shows fits its own rate: no frame of another is in it.
            let length_ps = window.to_ps - window.from_ps;
            let bits = window.sent_line_bytes * 8;
            // 64 frames of catch-up, and the one that the change met.
            let most = u128::from(window.rate_bps) * u128::from(length_ps) / 1_000_000_000_000
                + 65 * 12_304;
            prop_assert!(window.rate_bps == 0 || u128::from(bits) <= most, "{:?}", window);
        }
    }
}
