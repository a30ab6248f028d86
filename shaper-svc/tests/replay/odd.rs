//! Captures cut at every byte, and times that no clock shows.

use crate::files::{Format, Shot, capture, roce};
use rdmesh_shaper::capture::{CaptureError, Reader};
use rdmesh_shaper::replay::{Options, ReplayError, replay};

const FORMATS: [Format; 4] = [
    Format::Pcap {
        nanoseconds: true,
        big: false,
    },
    Format::Pcap {
        nanoseconds: false,
        big: true,
    },
    Format::Pcapng {
        resolution: 9,
        offset_s: 0,
        big: false,
    },
    Format::Pcapng {
        resolution: 6,
        offset_s: 0,
        big: true,
    },
];

fn options(accept_cut: bool) -> Options {
    Options {
        accept_cut,
        queue_frames: 64,
        ..Options::new("10gbit".parse().expect("a rate"))
    }
}

fn shots() -> Vec<Shot> {
    (1_u8..4)
        .map(|n| roce(1_000_000_000 * u64::from(n), 9, 1, 4, 60 + usize::from(n)))
        .collect()
}

/// Frames of a file, and how it ended.
fn frames(file: &[u8]) -> (u64, Option<CaptureError>) {
    let mut reader = match Reader::new(file) {
        Ok(reader) => reader,
        Err(error) => return (0, Some(error)),
    };
    let mut whole = 0;
    loop {
        match reader.next_record() {
            Ok(Some(_)) => whole += 1,
            Ok(None) => return (whole, None),
            Err(error) => return (whole, Some(error)),
        }
    }
}

/// What is whole is used, and the cut is told, wherever it is.
#[test]
fn a_capture_cut_at_any_byte_gives_its_whole_frames_and_says_so() {
    for format in FORMATS {
        let file = capture(format, &shots());
        // Where each number of frames is whole.
        let ends: Vec<usize> = (0..=3)
            .map(|n| capture(format, &shots()[..n]).len())
            .collect();
        let header = ends[0];
        for cut in 0..=file.len() {
            let fit = ends.iter().filter(|&&end| end <= cut).count();
            let expected = fit.saturating_sub(1) as u64;
            let (whole, ended) = frames(&file[..cut]);
            assert_eq!(whole, expected, "{format:?} cut at {cut}");
            let replayed = replay(&file[..cut], Vec::new(), &options(true));
            let strict = replay(&file[..cut], Vec::new(), &options(false));
            let Some(ended) = ended else {
                // Between two blocks of pcapng's own head nothing is missing.
                assert!(
                    ends.contains(&cut) || cut < header,
                    "{format:?} cut at {cut}"
                );
                assert!(strict.is_ok());
                continue;
            };
            let message = strict.expect_err("not whole").to_string();
            assert!(message.contains("the capture"), "{message}");
            match ended {
                CaptureError::Cut { whole, offset, .. } => {
                    assert_eq!((whole, offset), (expected, cut as u64));
                    let (summary, _) = replayed.expect("asked for what is whole");
                    assert_eq!((summary.frames, summary.input_was_cut), (expected, true));
                }
                _ => assert!(cut < header, "{format:?} cut at {cut}: {message}"),
            }
        }
    }
}

fn stamped(resolution: u8, offset_s: i64, at_ns: u64) -> Vec<u8> {
    let format = Format::Pcapng {
        resolution,
        offset_s,
        big: false,
    };
    capture(format, &[roce(at_ns, 9, 1, 4, 100)])
}

#[test]
fn times_that_no_clock_shows_are_refused() {
    // Before 1970: an offset larger than the stamp. The stamp itself is patched, since
    // nobody writes such a file.
    let mut before = stamped(9, 0, 0);
    let at = before
        .windows(2)
        .position(|two| two == [14, 0])
        .expect("its offset")
        + 4;
    before[at..at + 8].copy_from_slice(&(-1_i64).to_le_bytes());
    let (_, error) = frames(&before);
    let message = error.expect("before 1970").to_string();
    assert!(message.contains("a time before 1970"), "{message}");

    // After 2106, when the 32 bits of pcap are over.
    let late = stamped(9, 0, 5_000_000_000 * 1_000_000_000);
    assert_eq!(frames(&late).0, 1, "it can be read");
    let error = replay(&*late, Vec::new(), &options(false)).expect_err("it cannot be written");
    assert!(matches!(error, ReplayError::Write(_)), "{error}");
    assert!(error.to_string().contains("2106"), "{error}");
}
