//! `rdmesh failures --follow`.

use rdmesh_proto::collector::v1 as wire;

use crate::fake::{Fake, failure};
use crate::run::{ask, code, json, stderr, stdout};

fn knowing() -> Fake {
    let fake = Fake::start();
    let told = |sequence, missed| wire::WatchFailuresResponse {
        failures: vec![wire::Failure {
            run_id: "r".into(),
            sequence,
            ..failure(0)
        }],
        missed,
    };
    // The second comes twice.
    fake.state().followed = vec![told(1, 0), told(2, 0), told(2, 0), told(3, 7)];
    fake
}

#[test]
fn each_failure_is_a_line_and_what_was_missed_is_said() {
    let fake = knowing();
    let output = ask(&fake, &["failures", "--follow", "--limit", "3"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let text = stdout(&output);
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(text.contains("gpu-01") && text.contains("EFAULT"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text:?}");
    assert!(
        stderr(&output).contains("7 failures came faster than they were shown"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_program_gets_an_object_for_each() {
    let fake = knowing();
    let output = ask(
        &fake,
        &["failures", "--follow", "--limit", "3", "-o", "json"],
    );
    let lines: Vec<serde_json::Value> = stdout(&output).lines().map(json).collect();
    let sequences: Vec<u64> = lines
        .iter()
        .filter_map(|l| l["sequence"].as_u64())
        .collect();
    assert_eq!(sequences, [1, 2, 3]);
    assert!(lines.iter().any(|line| line["missed"] == 7), "{lines:?}");
}

#[test]
fn those_since_then_come_first() {
    let fake = knowing();
    fake.state().failures = 2;
    let arguments = [
        "failures", "--follow", "--since", "1h", "--limit", "4", "-o", "json",
    ];
    let output = ask(&fake, &arguments);
    let lines: Vec<serde_json::Value> = stdout(&output).lines().map(json).collect();
    // The fake's own are all of one place: the first of them is shown.
    assert_eq!(lines[0]["sequence"], 0, "{lines:?}");
    assert!(fake.state().last_failures.as_ref().unwrap().time.is_some());
}
