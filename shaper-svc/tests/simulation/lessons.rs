//! The lessons. The figures in comments are those of the original, on a card.

use rdmesh_shaper::engine::CATCH_UP_FRAMES;

use crate::qp::{Qp, RttControl};
use crate::shapers::{Credit, Engine, Key, Shaper, by_qp, modulo_64, one_fifo, wire_ps};
use crate::world::{DATA_LEN, Dice, MS, Packet, Setting, US, World, seed};

const GBIT: u64 = 1_000_000_000;

/// `NCCL_IB_TIMEOUT` 6 and 14 on that card.
const SHORT_TIMEOUT: u64 = 268 * US;
const LONG_TIMEOUT: u64 = 67 * MS;

fn qps(n: u64) -> Vec<Qp> {
    (0..n).map(|n| Qp::new(1000 + n, LONG_TIMEOUT)).collect()
}

/// Longest time of an acknowledgement from the card to the uplink while eight queue
/// pairs send.
fn acknowledgement_ps(setting: Setting, key: Key) -> u64 {
    let mut world = World::new(setting, Engine::new(10 * GBIT, key), qps(8));
    (0..8).for_each(|qp| world.post(0, qp, 512));
    for at in 1..70 {
        let jitter = world.dice.roll(10 * US);
        world.acknowledge(at * 30 * US + jitter, 7);
    }
    world.run_until(1000 * MS, |world| {
        world.all_done() && world.delays_of(7).len() == 69
    });
    let delays = world.delays_of(7);
    delays.into_iter().max().unwrap()
}

/// 1,187 µs in one FIFO, 7.2 µs with queues of their own (8 frames of 885 ns).
#[test]
fn an_acknowledgement_does_not_wait_behind_megabytes() {
    let setting = Setting {
        // As fast as the wire needs, so that the queue alone is measured.
        frame_ps: 10_000,
        turn_ps: 50_000,
        ..Setting::of_the_original(seed())
    };
    let fifo = acknowledgement_ps(setting, one_fifo);
    let own = acknowledgement_ps(setting, by_qp);
    assert!(fifo > MS, "{fifo} ps in one FIFO");
    assert!((5 * US..9 * US).contains(&own), "{own} ps in turn");
}

/// Drops at the ring, and all packets sent, for a burst of 16 MiB.
fn burst_into(ring_frames: usize, seed: u64) -> (u64, u64) {
    let setting = Setting {
        ring_frames,
        ..Setting::of_the_original(seed)
    };
    let mut world = World::new(setting, Engine::new(10 * GBIT, by_qp), qps(8));
    for qp in 0..8 {
        let at_ps = world.dice.roll(5 * US);
        world.post(at_ps, qp, 2048);
    }
    world.run_until(5000 * MS, World::all_done);
    assert_eq!(world.sum(|qp| qp.naks) > 0, world.imissed > 0);
    (world.imissed, world.sum(|qp| qp.sent))
}

#[test]
fn a_small_ring_overflows_at_the_first_burst() {
    let seed = seed();
    let (small, sent) = burst_into(1024, seed);
    assert!(small > 1000 && sent > 17_384, "{small} dropped of {sent}");
    assert_eq!(burst_into(32_768, seed), (0, 16_384));
}

/// When the first of four queue pairs has moved a MiB, while the others go on.
fn a_mib_of_four(seed: u64, key: Key) -> u64 {
    let setting = Setting {
        late_ps: 2 * US,
        ..Setting::of_the_original(seed)
    };
    // 64 apart: the same place of 64. The other two have places of their own.
    let numbers = [256, 320, 257, 258];
    let qps = numbers.map(|number| Qp::new(number, LONG_TIMEOUT)).to_vec();
    let mut world = World::new(setting, Engine::new(10 * GBIT, key), qps);
    (0..4).for_each(|qp| world.post(0, qp, if qp == 0 { 1024 } else { 4096 }));
    world.run_until(1000 * MS, |world| {
        world.now_ps > US && world.qps[0].is_done()
    });
    world.now_ps
}

/// Up to 1.5 times slower, by chance of the numbers of queue pairs.
#[test]
fn two_queue_pairs_do_not_share_a_place_while_others_are_free() {
    let seed = seed();
    let (shared, own) = (a_mib_of_four(seed, modulo_64), a_mib_of_four(seed, by_qp));
    let slower = shared * 100 / own;
    assert!((140..=155).contains(&slower), "{slower} % of {own} ps");
    // A quarter of the wire, to the frame: 4 × 1,024 frames of 885 ns.
    let fair = 4 * 1024 * wire_ps(DATA_LEN, 10 * GBIT);
    assert!(own.abs_diff(fair) < fair / 100, "{own} of {fair} ps");
}

/// What a 64 KiB all-reduce of two hosts takes after a step of 384 KiB.
fn all_reduce_ps(seed: u64, control: Option<RttControl>) -> u64 {
    let setting = Setting::of_the_original(seed);
    let mut qps = qps(1);
    qps[0].control = control;
    let mut world = World::new(setting, Engine::new(10 * GBIT, by_qp), qps);
    let jitter = world.dice.roll(US);
    world.post(jitter, 0, 384);
    world.run_until(5000 * MS, World::all_done);
    let began_ps = world.now_ps;
    for _ in 0..2 {
        // The second step sends what the first one brought.
        world.post(world.now_ps, 0, 32);
        world.run_until(5000 * MS, World::all_done);
    }
    assert_eq!(world.imissed + world.sum(|qp| qp.resent), 0);
    world.now_ps - began_ps
}

/// 137.6 ms against 0.26 ms: probes wait in the queue like everything else.
#[test]
fn congestion_control_by_round_trip_collapses_behind_a_queue() {
    let seed = seed();
    let with_ece = all_reduce_ps(seed, Some(RttControl::of_a_fabric(100 * GBIT)));
    let without = all_reduce_ps(seed, None);
    assert!(
        with_ece > 200 * without,
        "{with_ece} ps with ECE, {without} without"
    );
    assert!(without < 260 * US, "{without} ps without");
}

/// Bursts after idle gaps, polled late: the share of the wire in use while there was
/// something to send, and the rate of the first frames of each burst, in thousandths.
fn use_and_burst(seed: u64, burst: u32, late_ps: u64, shaper: impl Shaper) -> (u64, u64) {
    let setting = Setting {
        frame_ps: 10_000,
        late_ps,
        ..Setting::of_the_original(seed)
    };
    let frame_ps = wire_ps(DATA_LEN, 10 * GBIT);
    let mut world = World::new(setting, shaper, qps(1));
    let gap_ps = (u64::from(burst) + 200) * frame_ps;
    for n in 0..40 {
        world.post((n + 1) * gap_ps, 0, burst);
    }
    world.run_until(1000 * MS, World::all_done);
    let (mut fastest, mut busy_ps) = (0, 0);
    for burst in world.sent.chunks(burst as usize) {
        let span_ps = |of: &[(u64, Packet)]| of[of.len() - 1].0 - of[0].0;
        // 32 frames, the last of which has not passed when it is seen to start.
        fastest = fastest.max(32 * frame_ps * 1000 / (span_ps(&burst[..32]) + frame_ps));
        busy_ps += span_ps(burst) + frame_ps;
    }
    let used = world.sent.len() as u64 * frame_ps * 1000 / busy_ps;
    (used, fastest)
}

/// As credit, 16 frames gave 18.9 Gbit/s of 10 after an idle gap.
#[test]
fn an_idle_wire_saves_up_nothing_and_late_polls_cost_nothing() {
    let seed = seed();
    let (_, credit) = use_and_burst(seed, 64, 0, Credit::new(10 * GBIT, 16, DATA_LEN));
    assert!((1700..2100).contains(&credit), "{credit} of 1,000");
    let (_, stamps) = use_and_burst(seed, 64, 0, Engine::new(10 * GBIT, by_qp));
    assert!(stamps <= 1005, "{stamps} of 1,000");

    // Polls up to half the catch-up late: two frames of credit gave 92 % of the wire.
    let late_ps = CATCH_UP_FRAMES / 2 * wire_ps(DATA_LEN, 10 * GBIT);
    let (two, _) = use_and_burst(seed, 4000, late_ps, Credit::new(10 * GBIT, 2, DATA_LEN));
    let (used, _) = use_and_burst(seed, 4000, late_ps, Engine::new(10 * GBIT, by_qp));
    assert!(two < 950, "{two} of 1,000 with a credit of two frames");
    assert!((980..=1005).contains(&used), "{used} of 1,000");
}

/// Messages one after the other on four queue pairs: packets resent for each 100 that
/// were needed.
const QPS: usize = 4;
fn resent_percent(seed: u64, timeout_ps: u64) -> u64 {
    let setting = Setting::of_the_original(seed);
    let qps = (0..QPS as u64)
        .map(|n| Qp::new(1000 + n, timeout_ps))
        .collect();
    let mut world = World::new(setting, Engine::new(10 * GBIT, by_qp), qps);
    let mut sizes = Dice::new(seed);
    let mut left = [120_u32; QPS];
    let mut needed = 0;
    while left.iter().any(|&left| left > 0) {
        for (qp, left) in left.iter_mut().enumerate() {
            if *left > 0 && world.qps[qp].is_done() {
                *left -= 1;
                let packets = 16 + u32::try_from(sizes.roll(64)).unwrap();
                needed += u64::from(packets);
                world.post(world.now_ps, qp, packets);
            }
        }
        world.run_until(5000 * MS, |world| {
            let mut free = world.qps.iter().zip(&left);
            world.planned() == 0 && free.any(|(qp, &left)| left > 0 && qp.is_done())
                || left == [0; QPS]
        });
    }
    world.run_until(5000 * MS, World::all_done);
    // Every counter that a card has stands at zero all the same.
    assert_eq!(world.imissed + world.sum(|qp| qp.naks), 0);
    assert_eq!(
        world.sum(|qp| qp.timeouts) > 0,
        world.sum(|qp| qp.resent) > 0
    );
    assert_eq!(world.shaper.wire().stats().refused_pushes, 0);
    world.sum(|qp| qp.resent) * 100 / needed
}

/// 10 to 38 % more bytes with every error counter at zero.
#[test]
fn a_short_timeout_resends_what_is_only_queued() {
    let seed = seed();
    let short = resent_percent(seed, SHORT_TIMEOUT);
    assert!((10..100).contains(&short), "{short} % resent");
    assert_eq!(resent_percent(seed, LONG_TIMEOUT), 0);
}

#[test]
fn a_seed_gives_the_same_run() {
    let seed = seed();
    let run = |seed| {
        let setting = Setting {
            late_ps: 5 * US,
            ..Setting::of_the_original(seed)
        };
        let mut world = World::new(setting, Engine::new(10 * GBIT, by_qp), qps(4));
        (0..4).for_each(|qp| world.post(0, qp, 200));
        world.run_until(100 * MS, World::all_done);
        world.sent
    };
    assert_eq!(run(seed), run(seed));
    assert_ne!(run(seed), run(seed.wrapping_add(1)));
}
