//! `shaper-svc replay` and `shaper-svc inspect` as they are called.

use crate::files::{Shot, plain, roce};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn shaper(args: &[&str], directory: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_shaper-svc"))
        .args(args)
        .current_dir(directory)
        .output()
        .expect("shaper-svc starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

fn directory_with_capture() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let shots: Vec<Shot> = (0..50)
        .map(|at| roce(1_000_000_000 + at, 9, 1, 4, 976))
        .collect();
    fs::write(directory.path().join("in.pcap"), plain(&shots)).expect("written");
    directory
}

#[test]
fn replay_writes_a_capture_that_inspect_finds_on_time() {
    let directory = directory_with_capture();
    let replayed = shaper(
        &["replay", "in.pcap", "--rate", "25gbit", "--out", "out.pcap"],
        directory.path(),
    );
    assert!(replayed.status.success(), "{}", text(&replayed.stderr));
    assert!(text(&replayed.stdout).contains("frames ahead of the wire  0\n"));
    let names = |pattern: &str| {
        let entries = fs::read_dir(directory.path()).expect("a directory");
        entries
            .filter(|entry| {
                entry
                    .as_ref()
                    .is_ok_and(|entry| entry.file_name() == pattern)
            })
            .count()
    };
    assert_eq!((names("out.pcap"), names("out.pcap.partial")), (1, 0));
    let inspected = shaper(
        &["inspect", "out.pcap", "--rate", "25gbit", "-o", "json"],
        directory.path(),
    );
    let report: serde_json::Value = serde_json::from_slice(&inspected.stdout).expect("JSON");
    assert_eq!(
        (&report["frames"], &report["frames_early"]),
        (&50.into(), &0.into())
    );
    let before = shaper(
        &["inspect", "in.pcap", "--rate", "25gbit"],
        directory.path(),
    );
    assert!(
        text(&before.stdout).contains("frames seen early         49\n"),
        "{}",
        text(&before.stdout)
    );
}

#[test]
fn failures_name_the_file_and_leave_nothing_behind() {
    let directory = directory_with_capture();
    fs::write(directory.path().join("cut.pcap"), [0x4d, 0x3c]).expect("written");
    for (args, expected) in [
        (
            ["replay", "none.pcap", "--rate", "1gbit", "--out", "o"],
            "none.pcap: No such file",
        ),
        (
            ["replay", "cut.pcap", "--rate", "1gbit", "--out", "o"],
            "cut.pcap: the capture ends within its header",
        ),
        (
            ["replay", "in.pcap", "--rate", "0", "--out", "o"],
            "a rate of 0 bit/s is outside of 1mbit to 200gbit",
        ),
        (
            ["replay", "in.pcap", "--rate", "fast", "--out", "o"],
            "'fast' is not a rate",
        ),
        (
            ["replay", "in.pcap", "--rate", "1gbit", "--out", "in.pcap"],
            "is both input and output",
        ),
        (
            ["replay", "in.pcap", "--rate", "1gbit", "--out", "no/o"],
            "no/o.partial: No such file",
        ),
    ] {
        let output = shaper(&args, directory.path());
        let stderr = text(&output.stderr);
        assert!(
            !output.status.success() && stderr.contains(expected),
            "{args:?}: {stderr}"
        );
    }
    let mut left: Vec<String> = fs::read_dir(directory.path())
        .expect("a directory")
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .into_string()
                .expect("a name")
        })
        .collect();
    left.sort();
    assert_eq!(left, ["cut.pcap", "in.pcap"]);
}

#[test]
fn a_device_is_written_and_not_replaced() {
    let directory = directory_with_capture();
    let output = shaper(
        &["replay", "in.pcap", "--rate", "1gbit", "--out", "/dev/null"],
        directory.path(),
    );
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(!fs::metadata("/dev/null").expect("a device").is_file());
}
