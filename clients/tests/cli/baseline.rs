//! `rdmesh baseline` asks a tracer and no collector.

use crate::fake::Fake;
use crate::run::{closed_address, code, json, rdmesh, stderr, stdout};

fn baseline(fake: &Fake, words: &[&str], more: &[&str]) -> std::process::Output {
    let (verb, rest) = words.split_first().unwrap();
    let arguments = [&["baseline", verb, fake.address.as_str()], rest, more].concat();
    rdmesh(&arguments).output().unwrap()
}

/// What it says beside the answer, wherever lines break.
fn said(output: &std::process::Output) -> String {
    let text = stderr(output);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_recording_says_what_it_does_and_ends_with_what_is_kept() {
    let fake = Fake::start();
    let words = ["record", "reg_mr", "create_cq", "--seconds", "1"];
    let output = baseline(&fake, &words, &[]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let said = stdout(&output);
    assert!(
        said.starts_with("reg_mr with rdma_rxe on 6.12: 2 good calls\ncreate_cq with"),
        "{said}"
    );
    assert!(stderr(&output).contains("watching 3 functions"));
    let output = baseline(&fake, &words, &["-o", "json"]);
    let told = json(&stdout(&output));
    assert_eq!(told["baselines"][0]["verb"], "reg_mr");
    assert_eq!(told["window"]["phase"], "ended");
    assert_eq!(stderr(&output), "");
}

#[test]
fn what_is_kept_is_listed_and_shown() {
    let fake = Fake::start();
    let output = baseline(&fake, &["show"], &[]);
    assert!(stdout(&output).contains("rdma_rxe"), "{}", stdout(&output));
    let output = baseline(&fake, &["show", "reg_mr"], &[]);
    assert!(
        stdout(&output).contains("\nib_uverbs_reg_mr  in 2\n"),
        "{}",
        stdout(&output)
    );
    let output = baseline(&fake, &["show", "create_ah"], &[]);
    assert_eq!((code(&output), stdout(&output).as_str()), (4, ""));
    assert!(said(&output).contains("rdmesh baseline record HOST create_ah"));
}

#[test]
fn each_kind_of_failing_call_is_a_line_for_programs() {
    let fake = Fake::start();
    let output = baseline(&fake, &["diff"], &[]);
    let said = stdout(&output);
    assert!(
        said.contains("leaves good calls at ib_umem_get (depth 1): returned EFAULT"),
        "{said}"
    );
    assert!(said.ends_with("1 calls failed, in 1 ways; 2 succeeded, 0 could not be followed.\n"));
    let output = baseline(&fake, &["diff", "reg_mr"], &["-o", "json"]);
    let lines: Vec<_> = stdout(&output).lines().map(json).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0]["fork"]["function"], "ib_umem_get");
    assert_eq!(lines[1]["window"]["kinds"], 1);
}

#[test]
fn what_the_tracer_refuses_has_its_exit_code() {
    let fake = Fake::start();
    let cases: [(&[&str], i32, &str); 4] = [
        (&["record", "reg_mrs"], 2, "no entry point serves reg_mrs"),
        (&["diff", "create_cq"], 4, "no baseline of it"),
        (&["record", "cut"], 1, "ended without its sums"),
        (&["diff", "nowhere"], 1, "fork.path"),
    ];
    for (words, exit, part) in cases {
        let output = baseline(&fake, words, &[]);
        assert_eq!(code(&output), exit, "{words:?}: {}", stderr(&output));
        assert!(said(&output).contains(part), "{}", said(&output));
    }
    let output = rdmesh(&["baseline", "show", &closed_address()])
        .output()
        .unwrap();
    assert_eq!(code(&output), 5);
    assert!(said(&output).contains("does tracer-svc run there"));
    let usage: [&[&str]; 4] = [
        &["record", "gpu-01"],
        &["record", "gpu-01", "reg_mr", "--seconds", "301"],
        &["show", "a b"],
        &["diff", ""],
    ];
    for words in usage {
        let output = rdmesh(&[&["baseline"], words].concat()).output().unwrap();
        assert_eq!(code(&output), 2, "{words:?}: {}", stderr(&output));
    }
}
