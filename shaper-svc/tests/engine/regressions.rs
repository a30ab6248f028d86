//! One named case for each lesson.

use rdmesh_shaper::engine::{
    BURST, ConfigError, Engine, Expiry, Frame, Match, Policy, Rule, Speed, Wire, WireConfig,
    WireStats,
};
use rdmesh_shaper::rate::LineRate;

fn rate_10g() -> Speed {
    Speed::Rate(LineRate::new(10_000_000_000).expect("in range"))
}

/// 1,000 bytes on the wire: 800 ns at 10 Gbit/s.
const LEN: u16 = 976;
const FRAME_PS: u64 = 800_000;

fn small(sub_queues: u32) -> Wire {
    let config = WireConfig {
        queue_frames: 64,
        sub_queues,
        ..WireConfig::new(rate_10g(), 1500)
    };
    Wire::new(&config, 0).expect("valid configuration")
}

fn frame(handle: u64, key: u64, arrived_ps: u64) -> Frame {
    Frame {
        handle,
        key,
        arrived_ps,
        len: LEN,
        is_cnp: false,
    }
}

/// A frame that has left.
struct Taken {
    handle: u64,
    depart_at_ps: u64,
}

fn take(wire: &mut Wire, now_ps: u64, most: usize) -> Vec<Taken> {
    let burst = wire.peek(now_ps);
    let taken = burst.departures().len().min(most);
    let offered = burst.handles().iter().zip(burst.departures());
    let frames = offered.map(|(handle, departure)| Taken {
        handle: *handle,
        depart_at_ps: departure.depart_at_ps,
    });
    let frames = frames.take(taken).collect();
    burst.commit(taken);
    frames
}

fn handles(taken: &[Taken]) -> Vec<u64> {
    taken.iter().map(|taken| taken.handle).collect()
}

/// A key that shared a sub-queue stays there while frames of it wait, though one of
/// its own became free; moved at once, its frames would reorder.
#[test]
fn a_shared_key_keeps_its_order_when_a_sub_queue_becomes_free() {
    let mut wire = small(2);
    // Keys 0 and 1 own the sub-queues; key 3 shares that of key 1.
    assert_eq!(
        wire.push(&[
            frame(0, 0, 0),
            frame(1, 1, 0),
            frame(2, 3, 0),
            frame(3, 1, 0)
        ]),
        4
    );
    assert_eq!(wire.stats().shared_frames, 2);
    // Key 0 leaves and frees its sub-queue.
    assert_eq!(handles(&take(&mut wire, 0, 1)), [0]);
    // Key 3 sends more; a free sub-queue would overtake frame 2.
    assert_eq!(wire.push(&[frame(4, 3, 0)]), 1);
    assert_eq!(
        handles(&take(&mut wire, 10 * FRAME_PS, BURST)),
        [1, 2, 3, 4]
    );
    // Without a backlog it gets one of its own.
    assert_eq!(wire.push(&[frame(5, 3, 0), frame(6, 1, 0)]), 2);
    assert_eq!(wire.stats().shared_frames, 4 - 1);
}

#[test]
fn keys_take_turns_frame_by_frame() {
    let mut wire = small(8);
    let frames: Vec<Frame> = [9, 9, 9, 5, 5, 7]
        .iter()
        .zip(0..)
        .map(|(key, at)| frame(at, *key, 0))
        .collect();
    assert_eq!(wire.push(&frames), 6);
    let sent = take(&mut wire, 6 * FRAME_PS, BURST);
    assert_eq!(handles(&sent), [0, 3, 5, 1, 4, 2]);
    let starts: Vec<u64> = sent
        .iter()
        .map(|departure| departure.depart_at_ps)
        .collect();
    assert_eq!(starts, [0, 1, 2, 3, 4, 5].map(|at| at * FRAME_PS));
}

#[test]
fn a_cnp_goes_ahead_of_data_and_is_charged() {
    let mut wire = small(8);
    let cnp = Frame {
        is_cnp: true,
        ..frame(9, 1, 0)
    };
    assert_eq!(wire.push(&[frame(0, 1, 0), frame(1, 2, 0), cnp]), 3);
    let sent = take(&mut wire, 3 * FRAME_PS, BURST);
    assert_eq!(handles(&sent), [9, 0, 1]);
    assert_eq!(sent[1].depart_at_ps, FRAME_PS);
    assert_eq!(wire.stats().sent_cnps, 1);
}

/// A poll that comes late with new frames at hand: they start after those that had
/// waited, and no wire time is lost to them.
#[test]
fn a_late_arrival_does_not_stop_the_wire_for_those_that_waited() {
    let mut wire = small(8);
    let first: Vec<Frame> = (0..10).map(|at| frame(at, 1, 0)).collect();
    assert_eq!(wire.push(&first), 10);
    let late_ps = 5 * FRAME_PS;
    assert_eq!(wire.push(&[frame(10, 2, late_ps)]), 1);
    let mut sent = take(&mut wire, late_ps, BURST);
    sent.extend(take(&mut wire, late_ps, BURST));
    assert_eq!(handles(&sent), [0, 1, 2, 3, 4, 10]);
    assert_eq!(sent[5].depart_at_ps, late_ps);
}

#[test]
fn an_idle_wire_saves_up_nothing() {
    let mut wire = small(8);
    let idle_ps = 1_000 * FRAME_PS;
    assert!(take(&mut wire, idle_ps, BURST).is_empty());
    let frames: Vec<Frame> = (0..10).map(|at| frame(at, at, idle_ps)).collect();
    assert_eq!(wire.push(&frames), 10);
    assert_eq!(handles(&take(&mut wire, idle_ps, BURST)), [0]);
    assert_eq!(wire.due_at_ps(), Some(idle_ps + FRAME_PS));
}

#[test]
fn what_the_port_does_not_take_stays_and_costs_nothing() {
    let mut wire = small(8);
    let frames: Vec<Frame> = (0..4).map(|at| frame(at, at, 0)).collect();
    assert_eq!(wire.push(&frames), 4);
    assert_eq!(handles(&take(&mut wire, 10 * FRAME_PS, 0)), [0; 0]);
    assert_eq!(handles(&take(&mut wire, 10 * FRAME_PS, 2)), [0, 1]);
    let rest = take(&mut wire, 10 * FRAME_PS, BURST);
    assert_eq!(handles(&rest), [2, 3]);
    assert_eq!(rest[0].depart_at_ps, 2 * FRAME_PS);
    assert_eq!(wire.stats().not_accepted, 4 + 2);
}

#[test]
fn a_full_queue_takes_no_more_and_counts_it() {
    let mut wire = small(8);
    let frames: Vec<Frame> = (0..70).map(|at| frame(at, at, 0)).collect();
    assert_eq!(wire.push(&frames), 64);
    assert_eq!(wire.push(&frames[64..]), 0);
    assert_eq!(wire.stats().refused_pushes, 6 + 6);
    assert_eq!(wire.room_frames(), 0);
    assert_eq!(take(&mut wire, 0, BURST).len(), 1);
    assert_eq!(wire.push(&frames[64..]), 1);
}

#[test]
fn a_poll_gap_longer_than_the_catch_up_is_counted() {
    let mut wire = small(8);
    assert_eq!(wire.push(&[frame(0, 0, 0), frame(1, 0, 0)]), 2);
    let gap_ps = wire.catch_up_ps() + 5;
    let sent = take(&mut wire, gap_ps, BURST);
    assert_eq!(sent[0].depart_at_ps, 5);
    let stats = wire.stats();
    assert_eq!((stats.catch_up_exhausted, stats.lost_ps), (1, 5));
    assert_eq!(stats.catch_up_used_ps, wire.catch_up_ps());
    // Time in which nothing waited is not lost.
    assert_eq!(wire.push(&[frame(2, 0, 5 * gap_ps)]), 1);
    take(&mut wire, 5 * gap_ps, BURST);
    assert_eq!(wire.stats().catch_up_exhausted, 1);
}

#[test]
fn a_port_that_takes_nothing_for_long_costs_wire_time() {
    let mut wire = small(8);
    assert_eq!(wire.push(&[frame(0, 0, 0)]), 1);
    let gap_ps = wire.catch_up_ps();
    for polls in 1..=5 {
        assert!(take(&mut wire, polls * gap_ps, 0).is_empty());
    }
    assert_eq!(take(&mut wire, 6 * gap_ps, 1)[0].depart_at_ps, 5 * gap_ps);
    let stats = wire.stats();
    assert_eq!((stats.catch_up_exhausted, stats.lost_ps), (1, 5 * gap_ps));
}

#[test]
fn a_wire_that_is_not_shaped_loses_no_time() {
    let mut wire = small(8);
    wire.set_policy(&Policy::constant(1, Speed::Unshaped), 0);
    let frames: Vec<Frame> = (0..40).map(|at| frame(at, at % 3, 7)).collect();
    assert_eq!(wire.push(&frames), 40);
    let late_ps = 1_000 * FRAME_PS;
    assert_eq!(take(&mut wire, late_ps, BURST).len(), BURST);
    assert_eq!(take(&mut wire, late_ps, BURST).len(), 8);
    let stats = wire.stats();
    assert_eq!((stats.catch_up_exhausted, stats.lost_ps), (0, 0));
}

#[test]
fn a_new_rate_holds_from_the_next_frame_on() {
    let mut wire = small(8);
    let frames: Vec<Frame> = (0..3).map(|at| frame(at, 0, 0)).collect();
    assert_eq!(wire.push(&frames), 3);
    take(&mut wire, 0, BURST);
    let half = Speed::Rate(LineRate::new(5_000_000_000).expect("in range"));
    wire.set_policy(&Policy::constant(2, half), 100);
    assert_eq!((wire.speed(), wire.generation()), (half, 2));
    let sent = take(&mut wire, 10 * FRAME_PS, BURST);
    assert_eq!(
        sent[0].depart_at_ps, FRAME_PS,
        "the frame on the wire ends at its rate"
    );
    assert_eq!(sent[1].depart_at_ps, 3 * FRAME_PS);
}

#[test]
fn a_forgotten_experiment_reverts_by_itself() {
    let slow = Speed::Rate(LineRate::new(1_000_000_000).expect("in range"));
    let rule = Rule {
        applies_to: Match::Every,
        speed: slow,
        expiry: Some(Expiry {
            after_ps: 12 * FRAME_PS,
            then: rate_10g(),
        }),
    };
    let policy = Policy::new(3, &[rule]).expect("valid policy");
    let mut busy = small(8);
    busy.set_policy(&policy, 0);
    let frames: Vec<Frame> = (0..4).map(|at| frame(at, 0, 0)).collect();
    assert_eq!(busy.push(&frames), 4);
    let mut starts = Vec::new();
    for now in 0..40 {
        starts.extend(
            take(&mut busy, now * FRAME_PS, BURST)
                .iter()
                .map(|sent| sent.depart_at_ps / FRAME_PS),
        );
    }
    assert_eq!(starts, [0, 10, 20, 21]);
    assert_eq!((busy.speed(), busy.stats().expired_rules), (rate_10g(), 1));

    let mut idle = small(8);
    idle.set_policy(&policy, 0);
    take(&mut idle, 11 * FRAME_PS, BURST);
    assert_eq!(idle.speed(), slow);
    let later_ps = 12 * FRAME_PS + 10 * idle.catch_up_ps();
    take(&mut idle, later_ps, BURST);
    assert_eq!(idle.speed(), rate_10g());
}

/// A wire that was idle for longer than the clock can compare sends at once, and still
/// tells frames that had waited from one that arrived late.
#[test]
fn months_of_idleness_change_nothing() {
    let mut wire = small(8);
    let month_ps = 30 * 24 * 3600 * 1_000_000_000_000;
    let mut now_ps = 0_u64;
    for _ in 0..5 {
        for _ in 0..5 {
            now_ps = now_ps.wrapping_add(month_ps);
            assert!(take(&mut wire, now_ps, BURST).is_empty());
        }
        let late_ps = now_ps.wrapping_add(3 * FRAME_PS);
        let waiting: Vec<Frame> = (0..4).map(|at| frame(at, 1, now_ps)).collect();
        assert_eq!(wire.push(&waiting), 4);
        assert_eq!(wire.push(&[frame(4, 2, late_ps)]), 1);
        let mut sent = Vec::new();
        for _ in 0..5 {
            sent.extend(take(&mut wire, now_ps.wrapping_add(5 * FRAME_PS), BURST));
        }
        assert_eq!(handles(&sent), [0, 1, 2, 4, 3]);
        let starts = sent
            .iter()
            .map(|sent| sent.depart_at_ps.wrapping_sub(now_ps) / FRAME_PS);
        assert_eq!(starts.collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    }
}

#[test]
fn counts_are_handed_on_once() {
    let mut wire = small(8);
    assert_eq!(wire.push(&[frame(0, 0, 0)]), 1);
    take(&mut wire, 0, BURST);
    let mut window = WireStats::default();
    wire.take_stats(&mut window);
    assert_eq!((window.sent_frames, window.sent_line_bytes), (1, 1000));
    assert_eq!(window.waited_ps.total(), 1);
    assert_eq!(*wire.stats(), WireStats::default());
}

#[test]
fn an_engine_has_up_to_sixteen_wires() {
    let config = WireConfig {
        queue_frames: 8,
        ..WireConfig::new(rate_10g(), 1500)
    };
    let mut engine = Engine::new(&[config; 16], 0).expect("sixteen wires");
    for wire in engine.wires_mut() {
        assert_eq!(wire.push(&[frame(1, 1, 0)]), 1);
    }
    assert!(engine.wires().iter().all(|wire| wire.queued_frames() == 1));
    assert_eq!(
        Engine::<u64>::memory_bytes(&[config; 16]),
        16 * Wire::<u64>::memory_bytes(&config)
    );
    for wires in [0, 17] {
        let refused = Engine::<u64>::new(&vec![config; wires], 0).expect_err("out of range");
        assert_eq!(refused, ConfigError::Wires { wires });
    }
    for (broken, text) in [
        (
            WireConfig {
                mtu_bytes: 67,
                ..config
            },
            "mtu is 67 bytes: set 68 to 9202",
        ),
        (
            WireConfig {
                queue_frames: 0,
                ..config
            },
            "queue_frames is 0: set 1 to 16777216",
        ),
        (
            WireConfig {
                sub_queues: 4097,
                ..config
            },
            "sub_queues is 4097: set 1 to 4096",
        ),
    ] {
        assert_eq!(
            Wire::<u64>::new(&broken, 0)
                .expect_err("refused")
                .to_string(),
            text
        );
    }
}
