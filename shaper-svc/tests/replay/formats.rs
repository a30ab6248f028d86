//! What the reader reads, and what it says of what it cannot read.

use crate::files::{Format, Shot, capture, pcap, plain, roce};
use proptest::prelude::*;
use rdmesh_shaper::capture::{CaptureError, Reader, Record, Writer};

fn read(bytes: &[u8]) -> Result<Vec<Record>, CaptureError> {
    let mut reader = Reader::new(bytes)?;
    let mut records = Vec::new();
    while let Some(record) = reader.next_record()? {
        records.push(record);
    }
    Ok(records)
}

fn error(bytes: &[u8]) -> String {
    read(bytes).expect_err("not to be read").to_string()
}

fn shots() -> Vec<Shot> {
    // Whole microseconds, which every format can tell; the second one cut by snaplen.
    let mut cut = roce(1_700_000_000_000_123_000, 2, 1, 4, 1500);
    cut.bytes.truncate(61);
    vec![roce(1_700_000_000_000_000_000, 1, 1, 4, 63), cut]
}

#[test]
fn every_format_gives_the_same_frames() {
    let formats = [(true, false), (true, true), (false, false), (false, true)]
        .map(|(nanoseconds, big)| Format::Pcap { nanoseconds, big });
    let pcapngs = [
        (6, 0),
        (9, 0),
        (9, 1_600_000_000),
        (12, 1_699_999_999),
        (9, -5),
    ]
    .into_iter()
    .flat_map(|(resolution, offset_s)| {
        [false, true].map(|big| Format::Pcapng {
            resolution,
            offset_s,
            big,
        })
    });
    for format in formats.into_iter().chain(pcapngs) {
        let records = read(&capture(format, &shots())).expect("a valid capture");
        assert_eq!(records.len(), 2, "{format:?}");
        for (record, shot) in records.iter().zip(shots()) {
            assert_eq!(record.at_ps, u128::from(shot.at_ns) * 1000, "{format:?}");
            assert_eq!(
                (record.wire_len, &record.bytes),
                (shot.wire_len, &shot.bytes)
            );
        }
    }
}

#[test]
fn time_stamps_in_powers_of_two_are_read() {
    let format = Format::Pcapng {
        resolution: 0x80 | 30,
        offset_s: 0,
        big: false,
    };
    let half = roce(1_500_000_000, 1, 1, 4, 64);
    let records = read(&capture(format, &[half])).expect("a valid capture");
    assert_eq!(records[0].at_ps, 1_500_000_000_000);
}

#[test]
fn a_captured_fcs_is_no_part_of_the_frame() {
    let with_fcs = 1 | 1 << 26 | 2 << 28;
    let shot = roce(1_000_000_000, 1, 1, 4, 104);
    let records = read(&pcap(true, false, with_fcs, &[shot])).expect("a valid capture");
    assert_eq!((records[0].wire_len, records[0].bytes.len()), (100, 100));
}

#[test]
fn what_is_written_is_read_again() {
    let records = read(&plain(&shots())).expect("a valid capture");
    let mut writer = Writer::new(Vec::new()).expect("memory");
    for record in &records {
        writer.write(record).expect("memory");
    }
    let mut between = records[0].clone();
    between.at_ps += 1;
    writer.write(&between).expect("memory");
    let again = read(&writer.finish().expect("memory")).expect("a valid capture");
    assert_eq!(again[..2], records);
    assert_eq!(again[2].at_ps, records[0].at_ps + 1000, "rounded up");
}

#[test]
fn errors_say_what_to_do() {
    let whole = plain(&shots());
    let mut damaged_block = capture(
        Format::Pcapng {
            resolution: 9,
            offset_s: 0,
            big: false,
        },
        &shots(),
    );
    let end = damaged_block.len();
    damaged_block[end - 4] ^= 4;
    let patched = |at: usize, bytes: &[u8]| {
        let mut file = whole.clone();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        error(&file)
    };
    let gzip = error(&[0x1f, 0x8b, 8, 0, 0, 0]);
    let lines = [
        error(&[]),
        error(&whole[..3]),
        error(&whole[..20]),
        error(&whole[..30]),
        error(&whole[..50]),
        error(&whole[..whole.len() - 1]),
        gzip,
        error(b"GET / HTTP/1.1\r\n\r\n"),
        error(&pcap(true, false, 113, &shots())),
        patched(4, &[1]),
        patched(28, &[0, 0xca, 0x9a, 0x3b]),
        patched(32, &[0xff, 0xff, 0xff, 0xff]),
        patched(36, &[10, 0]),
        error(&damaged_block),
    ];
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn a_frame_without_a_time_is_refused() {
    let mut file = capture(
        Format::Pcapng {
            resolution: 9,
            offset_s: 0,
            big: false,
        },
        &[],
    );
    file.extend([3, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0]);
    assert!(matches!(
        read(&file),
        Err(CaptureError::NoTime { number: 1 })
    ));
}

proptest! {
    /// Any damage is told or read over; it never panics, and what is read is bounded.
    #[test]
    fn damaged_files_never_panic(
        format in 0_usize..3,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        cut in any::<prop::sample::Index>(),
        only_damage in any::<bool>(),
    ) {
        let format = [
            Format::Pcap { nanoseconds: true, big: false },
            Format::Pcapng { resolution: 6, offset_s: 0, big: false },
            Format::Pcapng { resolution: 9, offset_s: 3, big: true },
        ][format];
        let mut file = capture(format, &shots());
        for (at, value) in damage {
            let at = at.index(file.len());
            file[at] = value;
        }
        if !only_damage {
            file.truncate(cut.index(file.len() + 1));
        }
        if let Ok(records) = read(&file) {
            prop_assert!(records.len() <= file.len() / 16 + 1);
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for magic in [&[][..], &[0x4d, 0x3c, 0xb2, 0xa1], &[0x0a, 0x0d, 0x0d, 0x0a]] {
            let file = [magic, &bytes].concat();
            if let Ok(records) = read(&file) {
                prop_assert!(records.len() <= file.len());
            }
        }
    }
}
