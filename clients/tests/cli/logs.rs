//! Logs handed in, shares, and advice.

use std::io::Write;
use std::process::Stdio;

use rdmesh_proto::collector::v1 as wire;

use crate::fake::Fake;
use crate::run::{ask, code, json, rdmesh, stderr, stdout};

#[test]
fn a_log_goes_to_the_collector_byte_for_byte() {
    let fake = Fake::start();
    ask(&fake, &["job", "start", "4711/1"]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("slurm-4711.out");
    let log: Vec<u8> = (0..700_000_u32).flat_map(u32::to_le_bytes).collect();
    std::fs::write(&path, &log).unwrap();
    let path = path.to_str().unwrap();
    let output = ask(
        &fake,
        &[
            "job", "log", "4711", path, "--rank", "7", "--host", "gpu-02",
        ],
    );
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(stdout(&output).starts_with("4711/1: No line tells a cause"));
    let (source, bytes) = fake.state().last_log.take().unwrap();
    assert_eq!(bytes, log);
    assert_eq!(
        (source.name.as_str(), source.host.as_str(), source.rank),
        ("slurm-4711.out", "gpu-02", Some(7))
    );
    assert_eq!(source.attempt.unwrap().requeue, 1);
}

#[test]
fn a_log_comes_by_standard_input() {
    let fake = Fake::start();
    let mut child = rdmesh(&["job", "log", "late/2", "-", "-o", "json"])
        .env("RDMESH_COLLECTOR", &fake.address)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"a line\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let answer = json(&stdout(&output));
    assert_eq!(
        (&answer["bytes"], &answer["repeated"]),
        (&7.into(), &false.into())
    );
    assert_eq!(answer["attempt"]["id"], "late/2");
    let (source, bytes) = fake.state().last_log.take().unwrap();
    assert_eq!(
        (source.name.as_str(), bytes.as_slice()),
        ("", b"a line\n".as_slice())
    );
}

#[test]
fn what_is_no_log_is_refused_before_it_is_sent() {
    let fake = Fake::start();
    let folder = tempfile::tempdir().unwrap();
    let refused = |name: &str, bytes: &[u8], says: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let output = ask(&fake, &["job", "log", "7", path.to_str().unwrap()]);
        assert_eq!(code(&output), 1, "{name}");
        assert!(stderr(&output).contains(says), "{}", stderr(&output));
    };
    refused("job.log.gz", b"\x1f\x8b\x08\0", "zcat");
    for path in [folder.path().to_str().unwrap(), "/nonexistent/job.log"] {
        assert_eq!(code(&ask(&fake, &["job", "log", "7", path])), 1, "{path}");
    }
    assert!(fake.state().last_log.is_none());
}

#[test]
fn a_dump_is_handed_in_with_the_rank_of_its_name() {
    let fake = Fake::start();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nccl_trace_rank_17");
    std::fs::write(&path, b"\x80\x02}q\0.").unwrap();
    let output = ask(&fake, &["job", "log", "7", path.to_str().unwrap()]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let state = fake.state();
    let (source, bytes) = state.last_log.as_ref().unwrap();
    assert_eq!((source.rank, bytes.len()), (Some(17), 6));
}

#[test]
fn a_job_is_shown_with_its_logs() {
    let fake = Fake::start();
    let job = crate::fake::failed_job("7");
    fake.state().logs = vec![wire::JobLog {
        attempt: job.attempt.clone(),
        name: "slurm-7.out".into(),
        class: wire::LogClass::Network.into(),
        ..wire::JobLog::default()
    }];
    fake.state().jobs = vec![job];
    let text = stdout(&ask(&fake, &["job", "show", "7"]));
    assert!(
        text.contains("slurm-7.out") && text.contains("network"),
        "{text}"
    );
    let json = json(&stdout(&ask(&fake, &["job", "show", "7", "-o", "json"])));
    assert_eq!(json["logs"][0]["name"], "slurm-7.out");
    assert_eq!(json["logs_total"], 1);
}

#[test]
fn shares_are_asked_for_a_time() {
    let fake = Fake::start();
    for (command, says) in [
        ("misattribution", "filed under the network"),
        ("coverage", "Probes cover 1 of 1"),
        ("silent", "no other signal"),
        ("lost-hours", "8.0 GPU hours were lost"),
    ] {
        let output = ask(&fake, &[command, "--since", "@1769868000"]);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        let text = stdout(&output)
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        assert!(text.contains(says), "{text}");
        let asked = fake.state().last_ended.take().unwrap();
        assert_eq!(
            (asked.from.unwrap().seconds, asked.to),
            (1_769_868_000, None)
        );
        let output = ask(&fake, &[command, "-o", "json"]);
        assert!(json(&stdout(&output))["rows"].is_array());
        let output = ask(&fake, &[command, "--since", "1h", "--until", "2h"]);
        assert_eq!(code(&output), 2);
    }
}

#[test]
fn the_fleets_past_is_asked_for_a_time() {
    let fake = Fake::start();
    for (command, says, rows) in [
        ("classes", "Rising: driver", "trends"),
        ("incidents", "EFAULT on 2000 hosts", "incidents"),
        ("precursors", "No failure was foretold", "precursors"),
    ] {
        let output = ask(&fake, &[command, "--since", "@1769868000"]);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        let text = stdout(&output);
        assert!(text.contains(says), "{text}");
        let asked = fake.state().last_ended.take().unwrap();
        assert_eq!(asked.from.unwrap().seconds, 1_769_868_000);
        let output = ask(&fake, &[command, "-o", "json"]);
        assert!(json(&stdout(&output))[rows].is_array(), "{command}");
    }
}

#[test]
fn advice_names_the_hosts_to_leave_out() {
    let fake = Fake::start();
    ask(&fake, &["job", "start", "4711"]);
    let output = ask(&fake, &["advise-retry", "4711"]);
    assert!(
        stdout(&output).starts_with("4711/0: retry without gpu-01"),
        "{}",
        stdout(&output)
    );
    let answer = json(&stdout(&ask(
        &fake,
        &["advise-retry", "4711", "-o", "json"],
    )));
    assert_eq!(answer["advice"], "retry_without_hosts");
    assert_eq!(answer["hosts"][0], "gpu-01");
    assert_eq!(code(&ask(&fake, &["advise-retry", "nobody"])), 4);
}
