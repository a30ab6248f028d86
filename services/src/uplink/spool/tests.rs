//! A run's directory, whatever happens to its files.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use rdmesh_proto::collector::v1::Hello;
use tempfile::TempDir;

use super::record::Stamp;
use super::run::{Held, Run, SegmentLimits};
use crate::uplink::backlog::Entry;
use crate::uplink::item::Kind;

const RUN_ID: &str = "6f1f4e4e-8a52-4b53-9c0a-0a0f9a6d7c11";

const LIMITS: SegmentLimits = SegmentLimits {
    bytes: 400,
    items: 4,
    age: Duration::from_secs(100),
};

fn entry(sequence: u64, kind: Kind, bytes: usize) -> Entry {
    let byte = u8::try_from(sequence % 251).unwrap();
    Entry {
        sequence,
        kind,
        bytes: vec![byte; bytes].into(),
    }
}

fn snapshots(sequences: std::ops::RangeInclusive<u64>) -> Vec<Entry> {
    sequences.map(|n| entry(n, Kind::Snapshot, 20)).collect()
}

fn at(seconds: u64) -> Stamp {
    Stamp {
        boot_ns: seconds * 1_000_000_000,
        real_ns: (1_700_000_000 + seconds) * 1_000_000_000,
    }
}

struct Place {
    parent: TempDir,
}

impl Place {
    fn new() -> Self {
        Self {
            parent: tempfile::tempdir().unwrap(),
        }
    }

    fn directory(&self) -> PathBuf {
        self.parent.path().join("run")
    }

    fn create(&self) -> Run {
        let hello = Hello {
            host: "gpu-1".into(),
            run_id: RUN_ID.into(),
            ..Hello::default()
        };
        Run::create(self.directory(), &hello, LIMITS).unwrap()
    }

    fn open(&self) -> (Run, Held) {
        Run::open(self.directory(), RUN_ID, LIMITS).unwrap()
    }

    fn segments(&self) -> Vec<PathBuf> {
        super::run::segment_files(&self.directory()).unwrap()
    }
}

/// Everything from `from` on, as the keeper reads it.
fn read_all(run: &Run, mut from: u64) -> Vec<u64> {
    let mut sequences = Vec::new();
    while let Some(chunk) = run.read(from) {
        for entry in &chunk.entries {
            assert!(entry.sequence >= from);
            let expected = entry
                .bytes
                .iter()
                .all(|b| u64::from(*b) == entry.sequence % 251);
            assert!(expected, "item {} has another content", entry.sequence);
        }
        sequences.extend(chunk.entries.iter().map(|e| e.sequence));
        from = chunk.reached + 1;
    }
    sequences
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

#[test]
fn what_is_appended_is_read_back_also_by_the_next_process() {
    let place = Place::new();
    let mut run = place.create();
    run.append(&snapshots(1..=3), at(1)).unwrap();
    run.append(&[entry(4, Kind::State, 900)], at(2)).unwrap();
    run.append(&snapshots(6..=11), at(3)).unwrap();
    assert_eq!(read_all(&run, 1), [1, 2, 3, 4, 6, 7, 8, 9, 10, 11]);
    assert_eq!(read_all(&run, 7), [7, 8, 9, 10, 11]);
    assert!(place.segments().len() >= 3);
    run.note_acked(2);
    drop(run);
    let (run, held) = place.open();
    assert_eq!(run.hello().unwrap().host, "gpu-1");
    assert_eq!((held.items, held.snapshots, held.last), (8, 7, 11));
    assert_eq!((held.lost, held.damaged_bytes, held.newest), (0, 0, at(3)));
    assert_eq!(read_all(&run, 3), [3, 4, 6, 7, 8, 9, 10, 11]);
}

#[test]
fn acknowledged_segments_go_and_a_run_that_is_done_leaves_nothing() {
    let place = Place::new();
    let mut run = place.create();
    run.append(&snapshots(1..=10), at(1)).unwrap();
    let before = place.segments().len();
    run.note_acked(8);
    assert!(place.segments().len() < before);
    run.note_acked(10);
    // The one that is appended to stays.
    assert_eq!(place.segments().len(), 1);
    run.append(&snapshots(11..=11), at(2)).unwrap();
    assert_eq!(read_all(&run, 11), [11]);
    run.remove();
    assert!(!place.directory().exists());
}

#[test]
fn the_last_file_may_end_anywhere() {
    let place = Place::new();
    let mut run = place.create();
    run.append(&snapshots(1..=7), at(1)).unwrap();
    let whole = place.segments();
    let last = whole.last().unwrap();
    let kept = read_all(&run, 1);
    let bytes = fs::read(last).unwrap();
    for cut in 0..bytes.len() {
        let other = Place::new();
        copy(&place.directory(), &other.directory());
        fs::write(
            other.directory().join(last.file_name().unwrap()),
            &bytes[..cut],
        )
        .unwrap();
        let (run, held) = other.open();
        let found = read_all(&run, 1);
        assert_eq!(found, kept[..found.len()], "cut at {cut}");
        assert_eq!(held.items, found.len() as u64, "cut at {cut}");
        // Four are in the segment before, which nothing happened to.
        assert!(found.len() >= 4 && found.len() < 7, "cut at {cut}");
        let whole_records = cut % (super::record::HEAD_BYTES + 20) == 0;
        assert_eq!(held.lost == 0, whole_records, "cut at {cut}");
    }
}

#[test]
fn a_damaged_middle_costs_what_is_damaged_and_is_reported() {
    let place = Place::new();
    place.create().append(&snapshots(1..=8), at(1)).unwrap();
    let first = &place.segments()[0];
    let mut bytes = fs::read(first).unwrap();
    // In the payload of the second, and in the head of the third.
    for at in [64 + 50, 128 + 9] {
        bytes[at] ^= 0x40;
    }
    fs::write(first, bytes).unwrap();
    let (run, held) = place.open();
    assert_eq!(read_all(&run, 1), [1, 4, 5, 6, 7, 8]);
    assert_eq!((held.items, held.lost, held.damaged_bytes), (6, 2, 128));
}

#[test]
fn empty_and_foreign_files_change_nothing() {
    let place = Place::new();
    place.create().append(&snapshots(1..=4), at(1)).unwrap();
    let directory = place.directory();
    fs::write(directory.join("00000000000000000005.seg"), "").unwrap();
    fs::write(
        directory.join("00000000000000000006.seg"),
        b"garbage\x9erdR more",
    )
    .unwrap();
    fs::write(directory.join("core"), "x").unwrap();
    fs::write(directory.join("5.seg"), "x").unwrap();
    fs::create_dir(directory.join("00000000000000000009.seg")).unwrap();
    let (mut run, held) = place.open();
    assert_eq!((read_all(&run, 1), held.items), (vec![1, 2, 3, 4], 4));
    assert!(!directory.join("00000000000000000006.seg").exists());
    // Not ours: the directory stays for whoever put it there.
    run.remove();
    assert!(directory.join("core").exists() && directory.join("5.seg").exists());
    assert!(!directory.join("hello").exists());
}

#[test]
fn a_hello_that_is_damaged_or_gone_is_none() {
    let place = Place::new();
    let mut run = place.create();
    run.append(&snapshots(1..=1), at(1)).unwrap();
    let hello = place.directory().join("hello");
    let mut bytes = fs::read(&hello).unwrap();
    bytes[14] ^= 1;
    fs::write(&hello, bytes).unwrap();
    assert!(place.open().0.hello().is_none());
    fs::remove_file(&hello).unwrap();
    assert!(place.open().0.hello().is_none());
    fs::write(&hello, vec![0; 1 << 20]).unwrap();
    assert!(place.open().0.hello().is_none());
}

#[test]
fn the_oldest_reports_are_dropped_first_and_states_stay() {
    let place = Place::new();
    let mut run = place.create();
    run.append(&[entry(1, Kind::State, 9)], at(1)).unwrap();
    run.append(&snapshots(2..=8), at(1)).unwrap();
    run.note_acked(2);
    let dropped = run.drop_oldest(false).unwrap();
    assert_eq!(dropped, [(3, Kind::Snapshot), (4, Kind::Snapshot)]);
    // The state was acknowledged; a later one is not.
    assert_eq!(read_all(&run, 1), [5, 6, 7, 8]);
    run.append(
        &[entry(9, Kind::State, 9), entry(10, Kind::Interval, 9)],
        at(2),
    )
    .unwrap();
    let mut gone = Vec::new();
    while read_all(&run, 1) != [9] {
        gone.extend(run.drop_oldest(false).unwrap());
    }
    assert_eq!(
        gone.iter().map(|(n, _)| *n).collect::<Vec<_>>(),
        [5, 6, 7, 8, 10]
    );
    // With states alone the oldest state goes.
    run.append(&[entry(11, Kind::State, 9)], at(3)).unwrap();
    assert_eq!(run.drop_oldest(false).unwrap(), [(9, Kind::State)]);
    drop(run);
    let (mut run, held) = place.open();
    assert_eq!((read_all(&run, 1), held.items), (vec![11], 1));
    assert_eq!(run.drop_oldest(true).unwrap(), [(11, Kind::State)]);
    assert_eq!(run.drop_oldest(true), None);
}

#[test]
fn age_goes_by_the_boot_clock_and_over_boots_by_the_files() {
    let place = Place::new();
    let mut run = place.create();
    run.append(&snapshots(1..=2), at(100)).unwrap();
    let minute = Duration::from_secs(60);
    assert_eq!(run.oldest_age(at(160), true), Some(minute));
    // The wall clock was set back by a year: no matter.
    let mut set_back = at(160);
    set_back.real_ns -= 31_536_000_000_000_000;
    assert_eq!(run.oldest_age(set_back, true), Some(minute));
    assert_eq!(run.oldest_age(at(50), true), Some(Duration::ZERO));
    let written = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_500);
    File::options()
        .write(true)
        .open(&place.segments()[0])
        .unwrap()
        .set_modified(written)
        .unwrap();
    assert_eq!(run.oldest_age(at(560), false), Some(minute));
    assert_eq!(run.oldest_age(at(10), false), Some(Duration::ZERO));
    assert_eq!(run.first_age(at(560), false), Some(minute));
}

#[test]
fn a_segment_ends_with_its_time() {
    let place = Place::new();
    let mut run = place.create();
    run.append(&snapshots(1..=1), at(1)).unwrap();
    run.append(&snapshots(2..=2), at(90)).unwrap();
    assert_eq!(place.segments().len(), 1);
    run.append(&snapshots(3..=3), at(102)).unwrap();
    assert_eq!(place.segments().len(), 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn whatever_is_appended_dropped_and_damaged_books_hold(
        batches in prop::collection::vec(
            prop::collection::vec((0_usize..3, 0_usize..150), 1..9), 1..12),
        acked in 0_u64..30,
        drops in 0_usize..3,
        damage in prop::collection::vec(
            (any::<prop::sample::Index>(), any::<prop::sample::Index>(), 1_u8..), 0..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let place = Place::new();
        let mut run = place.create();
        let mut next = 1;
        let mut expected = Vec::new();
        for batch in batches {
            let mut entries = Vec::new();
            for (kind, bytes) in batch {
                let kind = [Kind::Snapshot, Kind::Interval, Kind::State][kind];
                entries.push(entry(next, kind, bytes));
                expected.push(next);
                next += 1;
            }
            run.append(&entries, at(next)).unwrap();
        }
        let acked = acked.min(next - 1);
        run.note_acked(acked);
        expected.retain(|n| *n > acked);
        for _ in 0..drops {
            let gone = run.drop_oldest(false).unwrap_or_default();
            expected.retain(|n| gone.iter().all(|(g, _)| g != n));
        }
        prop_assert_eq!(&read_all(&run, acked + 1), &expected);
        drop(run);
        let segments = place.segments();
        let is_damaged = !segments.is_empty() && (!damage.is_empty() || cut.is_some());
        if is_damaged {
            for (which, at, flip) in &damage {
                let path = &segments[which.index(segments.len())];
                let mut bytes = fs::read(path).unwrap();
                if bytes.is_empty() { continue; }
                let at = at.index(bytes.len());
                bytes[at] ^= flip;
                fs::write(path, bytes).unwrap();
            }
            if let Some(cut) = cut {
                let path = segments.last().unwrap();
                let bytes = fs::read(path).unwrap();
                fs::write(path, &bytes[..cut.index(bytes.len() + 1)]).unwrap();
            }
        }
        let (mut run, held) = place.open();
        let found = read_all(&run, acked + 1);
        prop_assert_eq!(held.items, found.len() as u64);
        if is_damaged {
            prop_assert!(found.iter().all(|n| expected.contains(n)));
            prop_assert!(found.is_sorted_by(|a, b| a < b));
        } else {
            prop_assert_eq!(&found, &expected);
            prop_assert_eq!(held.lost, 0);
        }
        run.note_acked(next);
        prop_assert_eq!(run.bytes(), 0);
        run.remove();
        prop_assert!(!place.directory().exists());
    }
}
