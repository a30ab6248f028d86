//! What holds of any wire, whatever the engine does inside.

use crate::model::rates;
use crate::naive::{ps, time_of};
use num_rational::BigRational;
use proptest::prelude::*;
use rdmesh_shaper::engine::{Frame, Speed, Wire, WireConfig, line_bytes};
use rdmesh_shaper::rate::LineRate;

/// Frames by arrival, and how long after one poll the next one comes, in thousandths
/// of the catch-up.
#[derive(Debug, Clone)]
struct Load {
    rate: LineRate,
    mtu_bytes: u16,
    frames: Vec<Frame>,
    poll_gaps: Vec<u64>,
}

fn loads(longest_gap: u64) -> impl Strategy<Value = Load> {
    // Gaps between arrivals in hundredths of the wire time of a frame of 1,500 bytes,
    // so that bursts, an even load and idle wires all occur at every rate.
    let gap = prop_oneof![3 => Just(0_u64), 3 => 0_u64..200, 1 => 0_u64..20_000];
    let frames = prop::collection::vec((gap, 0_u64..12, 46_u16..=1500), 1..400);
    (
        rates(),
        500_u16..=1500,
        frames,
        prop::collection::vec(0..=longest_gap, 1..200),
    )
        .prop_map(|(rate, mtu_bytes, frames, poll_gaps)| {
            let unit_ps = 1_524 * 8 * 10_000_000_000 / rate.bps();
            let mut arrived_ps = 0;
            let frames = frames
                .into_iter()
                .zip(0..)
                .map(|((gap, key, len), handle)| {
                    arrived_ps += gap * unit_ps;
                    let len = len.min(mtu_bytes) + 14;
                    Frame {
                        handle,
                        key,
                        arrived_ps,
                        len,
                        is_cnp: key == 11,
                    }
                });
            Load {
                rate,
                mtu_bytes,
                frames: frames.collect(),
                poll_gaps,
            }
        })
}

/// A frame as it left: `handed_ps` is the poll that gave it to the port.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sent {
    handle: u64,
    depart_at_ps: u64,
    handed_ps: u64,
    line_bytes: u64,
}

fn wire_of(load: &Load) -> Wire {
    let config = WireConfig {
        queue_frames: 512,
        sub_queues: 8,
        ..WireConfig::new(Speed::Rate(load.rate), load.mtu_bytes)
    };
    Wire::new(&config, 0).expect("valid configuration")
}

fn poll_all(wire: &mut Wire, now_ps: u64, sent: &mut Vec<Sent>) {
    loop {
        let burst = wire.peek(now_ps);
        if burst.departures().is_empty() {
            return;
        }
        let offered = burst.departures().iter().zip(burst.handles());
        sent.extend(offered.map(|(departure, handle)| Sent {
            handle: *handle,
            depart_at_ps: departure.depart_at_ps,
            handed_ps: now_ps,
            line_bytes: line_bytes(departure.len),
        }));
        let all = burst.departures().len();
        burst.commit(all);
    }
}

/// Polls at its own times; before each poll, everything that has arrived is pushed.
fn run_polled(load: &Load) -> Vec<Sent> {
    let mut wire = wire_of(load);
    let mut sent = Vec::new();
    let mut frames = load.frames.as_slice();
    let mut now_ps = 0;
    for gap in load.poll_gaps.iter().cycle() {
        now_ps += gap * wire.catch_up_ps() / 1000 + 1;
        let arrived = frames.partition_point(|frame| frame.arrived_ps <= now_ps);
        let taken = wire.push(&frames[..arrived]);
        frames = &frames[taken..];
        poll_all(&mut wire, now_ps, &mut sent);
        if frames.is_empty() && wire.queued_frames() == 0 {
            return sent;
        }
    }
    sent
}

/// Takes each event at its very instant.
fn run_exactly(load: &Load) -> Vec<Sent> {
    let mut wire = wire_of(load);
    let mut sent = Vec::new();
    let mut frames = load.frames.as_slice();
    loop {
        match (frames.split_first(), wire.due_at_ps()) {
            (Some((frame, rest)), due) if due.is_none_or(|due_ps| frame.arrived_ps <= due_ps) => {
                assert_eq!(wire.push(&[*frame]), 1);
                frames = rest;
            }
            (_, Some(due_ps)) => poll_all(&mut wire, due_ps, &mut sent),
            (_, None) => return sent,
        }
    }
}

/// Bytes that an ideal wire has sent of these arrivals up to each of `instants`,
/// all sorted.
fn ideal_bytes(load: &Load, instants: &[u64]) -> Vec<BigRational> {
    let speed = Speed::Rate(load.rate);
    let byte_time = time_of(1, speed);
    let mut free = ps(0);
    let spans: Vec<(BigRational, u64)> = load
        .frames
        .iter()
        .map(|frame| {
            let start = free.clone().max(ps(frame.arrived_ps.into()));
            free = start.clone() + time_of(line_bytes(frame.len), speed);
            (start, line_bytes(frame.len))
        })
        .collect();
    let mut done = ps(0);
    let mut spans = spans.into_iter().peekable();
    instants
        .iter()
        .map(|instant| {
            let now = ps((*instant).into());
            while let Some((_, bytes)) = spans.next_if(|(start, bytes)| {
                start.clone() + byte_time.clone() * ps((*bytes).into()) <= now
            }) {
                done += ps(bytes.into());
            }
            let partial = spans.peek().map_or_else(
                || ps(0),
                |(start, _)| ((now - start) / byte_time.clone()).max(ps(0)),
            );
            done.clone() + partial
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Up to any instant no more has gone to the port than an ideal wire would have
    /// sent, but for the frame that it has just begun.
    #[test]
    fn never_ahead_of_an_ideal_wire(load in loads(3000)) {
        let sent = run_polled(&load);
        prop_assert_eq!(sent.len(), load.frames.len());
        for instant_of in [|sent: &Sent| sent.handed_ps, |sent: &Sent| sent.depart_at_ps] {
            let instants: Vec<u64> = sent.iter().map(instant_of).collect();
            let mut total = 0;
            for (frame, ideal) in sent.iter().zip(ideal_bytes(&load, &instants)) {
                prop_assert!(ps(total.into()) <= ideal, "{total} bytes of {ideal}");
                total += i64::try_from(frame.line_bytes).expect("small");
            }
        }
    }

    /// Within any window, at most the catch-up and one frame more than rate × window.
    #[test]
    fn a_late_poll_catches_up_on_64_frames_at_most(load in loads(5000)) {
        let sent = run_polled(&load);
        let speed = Speed::Rate(load.rate);
        let catch_up = ps(wire_of(&load).catch_up_ps().into());
        // For all pairs at once: what is ahead never exceeds its least value before by
        // more than the catch-up.
        let mut least_ahead: Option<BigRational> = None;
        let mut bytes = 0;
        for frame in &sent {
            let ahead = time_of(bytes, speed) - ps(frame.handed_ps.into());
            let least = least_ahead.map_or(ahead.clone(), |least| least.min(ahead.clone()));
            prop_assert!(ahead - least.clone() <= catch_up);
            least_ahead = Some(least);
            bytes += frame.line_bytes;
        }
    }

    /// As long as no poll comes later than the catch-up forgives, frames leave in the
    /// order and at the virtual instants of a wire that is never polled late.
    #[test]
    fn departures_do_not_depend_on_polls(load in loads(999)) {
        let strip = |sent: Vec<Sent>| -> Vec<(u64, u64)> {
            sent.iter().map(|sent| (sent.handle, sent.depart_at_ps)).collect()
        };
        prop_assert_eq!(strip(run_polled(&load)), strip(run_exactly(&load)));
    }
}
