//! Inspections of streams whose excess is known.

use crate::files::{Shot, plain, roce};
use rdmesh_shaper::inspect::{Options, Report, inspect};
use rdmesh_shaper::replay::{self, replay};

/// 1,000 bytes on the wire: 160 µs at 50 Mbit/s.
const LEN: usize = 976;
const FRAME_NS: u64 = 160_000;

fn report(shots: &[Shot]) -> Report {
    let rate = "50mbit".parse().expect("a rate");
    let options = Options {
        rate,
        idle_ns: None,
        accept_cut: false,
    };
    inspect(&*plain(shots), &options).expect("a valid capture")
}

/// What a token bucket of ten frames lets through: after each idle second ten frames
/// at once, then fifty at the rate.
fn token_bucket() -> Vec<Shot> {
    let burst = |start_ns: u64| {
        (0..60_u64).map(move |at| {
            let after = at.saturating_sub(9);
            roce(start_ns + after * FRAME_NS, 9, 1, 4, LEN)
        })
    };
    (1..=4)
        .flat_map(|second| burst(second * 1_000_000_000))
        .collect()
}

#[test]
fn a_token_bucket_shows_what_it_saved_up() {
    let report = report(&token_bucket());
    assert_eq!(
        (
            report.bursts,
            report.ahead_frames_median,
            report.ahead_frames_max
        ),
        (4, 9.0, 9.0)
    );
    let burst = &report.worst[1];
    assert_eq!((burst.first_frame, burst.frames), (61, 60));
    assert_eq!((burst.ahead_bytes, burst.ahead_ns), (9_000, 9 * FRAME_NS));
    insta::assert_snapshot!(report.to_string());
}

#[test]
fn a_wire_shows_nothing() {
    let shots: Vec<Shot> = (0..60)
        .map(|at| roce(at * FRAME_NS, 9, 1, 4, LEN))
        .collect();
    let report = report(&shots);
    assert_eq!((report.frames_early, report.ahead_frames_max), (0, 0.0));
    assert_eq!(report.worst.len(), 1);
    assert!(!report.to_string().contains("worst"));
}

#[test]
fn a_stream_above_the_rate_runs_away() {
    let shots: Vec<Shot> = (0..101)
        .map(|at| roce(at * FRAME_NS / 2, 9, 1, 4, LEN))
        .collect();
    let report = report(&shots);
    assert_eq!(report.ahead_frames_max, 50.0);
    assert_eq!(
        (report.frames_early, report.worst[0].worst_frame),
        (100, 101)
    );
    assert_eq!(report.mean_line_bps, 101_000_000);
}

#[test]
fn a_shorter_idle_time_makes_more_bursts() {
    let shots: Vec<Shot> = (0..10)
        .map(|at| roce(at * 10 * FRAME_NS, 9, 1, 4, LEN))
        .collect();
    assert_eq!(report(&shots).bursts, 1);
    let rate = "50mbit".parse().expect("a rate");
    let options = Options {
        rate,
        idle_ns: Some(9 * FRAME_NS),
        accept_cut: false,
    };
    assert_eq!(
        inspect(&*plain(&shots), &options).expect("valid").bursts,
        10
    );
}

/// At a rate whose frames take no whole nanoseconds, rounded time stamps lie a little
/// early now and then. That is no fault of the stream.
#[test]
fn rounding_of_time_stamps_is_not_held_against_a_stream() {
    let shots: Vec<Shot> = (0..500).map(|_| roce(0, 9, 1, 4, LEN)).collect();
    let rate = "12.345678901gbit".parse().expect("a rate");
    let (_, output) =
        replay(&*plain(&shots), Vec::new(), &replay::Options::new(rate)).expect("valid");
    let options = Options {
        rate,
        idle_ns: None,
        accept_cut: false,
    };
    let report = inspect(&*output, &options).expect("valid");
    assert_eq!((report.frames, report.frames_early), (500, 0));
}
