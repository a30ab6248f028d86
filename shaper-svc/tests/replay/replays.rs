//! Replays: exact, repeatable, and never ahead of the wire.

use crate::files::{Format, Shot, capture, plain, roce};
use proptest::prelude::*;
use rdmesh_shaper::capture::Reader;
use rdmesh_shaper::inspect::{self, inspect};
use rdmesh_shaper::rate::LineRate;
use rdmesh_shaper::replay::{Options, ReplayError, Summary, replay};

const START_NS: u64 = 1_700_000_000_000_000_000;

/// A frame of 1,000 bytes on the wire: 800 ns at 10 Gbit/s.
const LEN: usize = 976;

fn options(rate: &str) -> Options {
    Options::new(rate.parse::<LineRate>().expect("a rate"))
}

fn run(bytes: &[u8], options: &Options) -> (Summary, Vec<u8>) {
    replay(bytes, Vec::new(), options).expect("a valid capture")
}

/// Departure after the start and destination QP of each frame of a capture.
fn departures(bytes: &[u8]) -> Vec<(u128, u8)> {
    let mut reader = Reader::new(bytes).expect("a valid capture");
    let mut departures = Vec::new();
    while let Some(record) = reader.next_record().expect("a whole frame") {
        let qp = record.bytes.get(49).copied().unwrap_or_default();
        departures.push((record.at_ps / 1000 - u128::from(START_NS), qp));
    }
    departures
}

#[test]
fn a_burst_is_spread_over_the_wire_and_keys_take_turns() {
    let burst = [1, 1, 1, 2, 2, 3].map(|qp| roce(START_NS, 9, qp, 4, LEN));
    let (_, output) = run(&plain(&burst), &options("10gbit"));
    assert_eq!(
        departures(&output),
        [(0, 1), (800, 2), (1600, 3), (2400, 1), (3200, 2), (4000, 1)]
    );
}

#[test]
fn an_acknowledgement_does_not_wait_behind_the_data_of_another_qp() {
    let mut shots: Vec<Shot> = (0..1000).map(|_| roce(START_NS, 9, 1, 4, LEN)).collect();
    shots.push(roce(START_NS + 1, 9, 2, 0x11, 62));
    shots.push(roce(START_NS + 2, 9, 1, 0x81, 78));
    let (summary, output) = run(&plain(&shots), &options("10gbit"));
    let order = departures(&output);
    assert_eq!(order[1], (800, 1), "the CNP, after the frame on the wire");
    assert_eq!(order[2], (882, 2), "the acknowledgement");
    assert_eq!((summary.cnps, summary.frames_ahead_of_the_wire), (1, 0));
}

#[test]
fn an_idle_wire_lets_no_burst_through() {
    let mut shots: Vec<Shot> = (0..3).map(|_| roce(START_NS, 9, 1, 4, LEN)).collect();
    shots.extend((0..3).map(|_| roce(START_NS + 1_000_000_000, 9, 1, 4, LEN)));
    let (summary, output) = run(&plain(&shots), &options("10gbit"));
    let times: Vec<u128> = departures(&output).iter().map(|(at, _)| *at).collect();
    let second = 1_000_000_000;
    assert_eq!(times, [0, 800, 1600, second, second + 800, second + 1600]);
    assert_eq!(summary.longest_wait_ns, 1600);
}

#[test]
fn the_summary_reads_well() {
    let shots: Vec<Shot> = (0..5000_u64)
        .map(|at| {
            roce(
                START_NS + at * 400,
                9,
                u8::try_from(at % 7).expect("small"),
                4,
                LEN,
            )
        })
        .collect();
    let (summary, _) = run(&plain(&shots), &options("10gbit"));
    insta::assert_snapshot!(summary.to_string());
    let json = serde_json::to_string_pretty(&summary).expect("JSON");
    insta::assert_snapshot!(json);
}

#[test]
fn the_same_input_gives_the_same_bytes_in_every_format() {
    let shots: Vec<Shot> = (0..200_u64)
        .map(|at| {
            roce(
                START_NS + at * 1000,
                9,
                u8::try_from(at % 5).expect("small"),
                4,
                1000,
            )
        })
        .collect();
    let (_, expected) = run(&plain(&shots), &options("5gbit"));
    for format in [
        Format::Pcap {
            nanoseconds: false,
            big: true,
        },
        Format::Pcapng {
            resolution: 6,
            offset_s: 0,
            big: false,
        },
        Format::Pcapng {
            resolution: 12,
            offset_s: 1_699_999_000,
            big: true,
        },
    ] {
        assert_eq!(
            run(&capture(format, &shots), &options("5gbit")).1,
            expected,
            "{format:?}"
        );
    }
    // These bytes hold for every machine, and change with the rules of arbitration alone.
    let digest = expected.iter().fold(0_u64, |digest, byte| {
        digest.wrapping_mul(0x0100_0000_01b3) ^ u64::from(*byte)
    });
    assert_eq!(digest, 0x1639_6624_30d2_3879, "{digest:#x}");
}

#[test]
fn frames_cut_by_the_snap_length_count_in_full() {
    let mut shot = roce(START_NS, 9, 1, 4, LEN);
    shot.bytes.truncate(64);
    let (summary, output) = run(&plain(&[shot.clone(), shot]), &options("10gbit"));
    assert_eq!(departures(&output), [(0, 1), (800, 1)]);
    assert_eq!(summary.bytes, 2 * LEN as u64);
    let mut no_header = roce(START_NS, 9, 1, 4, LEN);
    no_header.bytes.truncate(20);
    let (summary, _) = run(&plain(&[no_header]), &options("10gbit"));
    assert_eq!(summary.malformed, 1);
}

#[test]
fn a_full_queue_makes_the_sender_wait_and_loses_nothing() {
    let shots: Vec<Shot> = (0..500_u64)
        .map(|at| roce(START_NS + at, 9, 1, 4, LEN))
        .collect();
    let small = Options {
        queue_frames: 16,
        ..options("10gbit")
    };
    let (summary, output) = run(&plain(&shots), &small);
    assert_eq!((summary.frames, summary.queue_frames_max), (500, 16));
    assert_eq!(departures(&output)[499].0, 499 * 800);
}

#[test]
fn months_between_frames_are_no_trouble_until_a_gap_of_one() {
    let day_ns = 24 * 3600 * 1_000_000_000;
    let shots: Vec<Shot> = (0..20)
        .map(|at| roce(START_NS + at * 29 * day_ns, 9, 1, 4, LEN))
        .collect();
    let (summary, output) = run(&plain(&shots), &options("1mbit"));
    assert_eq!((summary.frames, summary.longest_wait_ns), (20, 0));
    assert_eq!(departures(&output)[19].0, u128::from(19 * 29 * day_ns));
    let gap = [
        roce(START_NS, 9, 1, 4, LEN),
        roce(START_NS + 31 * day_ns, 9, 1, 4, LEN),
    ];
    let error = replay(&*plain(&gap), Vec::new(), &options("1mbit")).expect_err("a gap");
    assert!(matches!(error, ReplayError::Gap { number: 2 }));
}

#[test]
fn bad_input_is_refused_with_advice() {
    let error = |shots: &[Shot]| {
        replay(&*plain(shots), Vec::new(), &options("10gbit"))
            .expect_err("refused")
            .to_string()
    };
    let unordered = [
        roce(START_NS, 9, 1, 4, LEN),
        roce(START_NS - 5, 9, 1, 4, LEN),
    ];
    let mut offloaded = roce(START_NS, 9, 1, 4, 9000);
    offloaded.wire_len = 64_000;
    let no_room = Options {
        queue_frames: 0,
        ..options("10gbit")
    };
    let no_room = replay(&*plain(&[]), Vec::new(), &no_room)
        .expect_err("refused")
        .to_string();
    insta::assert_snapshot!([error(&unordered), error(&[offloaded]), no_room].join("\n"));
}

#[test]
fn a_cut_capture_is_used_only_when_asked() {
    let mut file = plain(&[roce(START_NS, 9, 1, 4, LEN), roce(START_NS, 9, 1, 4, LEN)]);
    file.truncate(file.len() - 100);
    assert!(replay(&*file, Vec::new(), &options("10gbit")).is_err());
    let (summary, _) = run(
        &file,
        &Options {
            accept_cut: true,
            ..options("10gbit")
        },
    );
    assert_eq!((summary.frames, summary.input_was_cut), (1, true));
    assert!(summary.to_string().contains("the capture was cut"));
}

#[test]
fn a_capture_without_frames_is_one_still() {
    let (summary, output) = run(&plain(&[]), &options("10gbit"));
    assert_eq!((summary.frames, summary.goodput_bps), (0, 0));
    assert_eq!(output.len(), 24);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Whatever comes in, all of it comes out, in order within a QP, and an ideal wire
    /// finds nothing early in the file but for its rounding to nanoseconds.
    #[test]
    fn nothing_is_lost_early_or_out_of_order(
        frames in prop::collection::vec((0_u64..5_000, 1_u8..5, 60_usize..9216), 1..300),
        rate_bps in 1_000_000_u64..=200_000_000_000,
        queue_frames in 1_u32..64,
    ) {
        let mut at_ns = START_NS;
        let shots: Vec<Shot> = frames
            .into_iter()
            .zip(0_u32..)
            .map(|((gap_ns, qp, len), number)| {
                at_ns += gap_ns;
                let mut shot = roce(at_ns, 9, qp, 4, len);
                // The PSN tells one frame of a QP from another.
                shot.bytes[51..54].copy_from_slice(&number.to_be_bytes()[1..]);
                shot.bytes.truncate(60);
                shot
            })
            .collect();
        let rate = LineRate::new(rate_bps).expect("in range");
        let options = Options { queue_frames, sub_queues: 2, ..Options::new(rate) };
        let (summary, output) = run(&plain(&shots), &options);
        prop_assert_eq!(summary.frames, shots.len() as u64);
        prop_assert_eq!(summary.frames_ahead_of_the_wire, 0);
        let mut seen = Vec::new();
        let mut reader = Reader::new(&*output).expect("a valid capture");
        while let Some(record) = reader.next_record().expect("a whole frame") {
            seen.push((record.bytes[49], record.bytes[51..54].to_vec()));
        }
        let mut by_qp = seen.clone();
        by_qp.sort();
        seen.sort_by_key(|(qp, _)| *qp);
        prop_assert_eq!(&seen, &by_qp, "order within a QP");
        let options = inspect::Options { rate, idle_ns: None, accept_cut: false };
        let report = inspect(&*output, &options).expect("a valid capture");
        prop_assert!(report.worst.iter().all(|burst| burst.ahead_ns <= 1), "{report:?}");
    }
}
