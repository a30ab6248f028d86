//! Several threads say what one says, in the same order.
#![allow(clippy::unwrap_used)]

use std::convert::Infallible;
use std::io::{self, Read};
use std::num::NonZeroUsize;
use std::sync::LazyLock;

use rdmesh_joblog::parallel::classify_parallel;
use rdmesh_joblog::stream::{StreamEnd, StreamError, classify_stream};
use rdmesh_joblog::{Classifier, LineReport, RuleSet};

static CLASSIFIER: LazyLock<Classifier> =
    LazyLock::new(|| Classifier::new(RuleSet::builtin().unwrap()));

const HELD_OUT: &str = include_str!("held_out_third.tsv");

fn workers(count: usize) -> NonZeroUsize {
    NonZeroUsize::new(count).unwrap()
}

fn by_one(log: &[u8]) -> (Vec<LineReport>, StreamEnd) {
    let mut reports = Vec::new();
    let end = classify_stream(log, &CLASSIFIER, |report| {
        reports.push(report.clone());
        Ok::<(), Infallible>(())
    });
    (reports, end.unwrap())
}

fn by_several(log: &[u8], count: usize) -> (Vec<LineReport>, StreamEnd) {
    let mut reports = Vec::new();
    let end = classify_parallel(log, &CLASSIFIER, workers(count), |report| {
        reports.push(report.clone());
        Ok::<(), Infallible>(())
    });
    (reports, end.unwrap())
}

/// Labelled lines many times over, with lines that no block holds among them.
fn log() -> Vec<u8> {
    let lines: Vec<&str> = HELD_OUT
        .lines()
        .filter_map(|row| row.split('\t').nth(1))
        .collect();
    let mut log = Vec::new();
    for round in 0..12 {
        for line in &lines {
            log.extend_from_slice(line.as_bytes());
            log.push(b'\n');
        }
        log.extend(std::iter::repeat_n(b'x', 400_000 * round));
        log.extend_from_slice(b" Call to ibv_create_cq failed\n\n");
    }
    log.extend_from_slice(b"NCCL WARN Call to ibv_reg_mr failed with error Bad address");
    log
}

#[test]
fn several_threads_say_what_one_says() {
    let log = log();
    let expected = by_one(&log);
    assert!(expected.0.len() > 4_000);
    for count in [1, 2, 3, 7, 100] {
        assert!(by_several(&log, count) == expected, "{count} workers");
    }
    assert_eq!(by_several(b"", 3).1, StreamEnd::default());
    assert_eq!(by_several(b"\n", 3).1.lines, 1);
}

#[test]
fn whoever_wants_no_more_is_asked_no_more() {
    let log = log();
    let mut taken = 0;
    let ended = classify_parallel(log.as_slice(), &CLASSIFIER, workers(3), |report| {
        taken += 1;
        if report.line == 700 {
            Err("enough")
        } else {
            Ok(())
        }
    });
    assert!(
        matches!(ended, Err(StreamError::Sink("enough"))),
        "{ended:?}"
    );
    assert_eq!(taken, 700);
}

/// Some lines, then an error.
struct Broken<'a>(&'a [u8]);

impl Read for Broken<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer)? {
            0 => Err(io::Error::other("the disk is gone")),
            count => Ok(count),
        }
    }
}

#[test]
fn what_was_read_before_an_error_is_reported() {
    let log = b"a\nCall to ibv_create_cq failed\nb";
    for count in [1, 4] {
        let mut lines = Vec::new();
        let ended = classify_parallel(Broken(log), &CLASSIFIER, workers(count), |report| {
            lines.push(report.line);
            Ok::<(), Infallible>(())
        });
        assert!(
            matches!(ended, Err(StreamError::Read { line: 3, .. })),
            "{ended:?}"
        );
        assert_eq!(lines, [1, 2]);
    }
}
