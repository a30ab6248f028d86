//! `rdmesh classify-log`: needs no collector, and says the same as text and JSON.

use std::io::Write;
use std::process::Stdio;

use crate::run::{code, json, rdmesh, stderr, stdout};

const LOG: &[u8] = b"n1:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n\
n1:1:2 [0] NCCL WARN NET/IB : Got completion with error 5, opcode 0, len 0, vendor err 249\r\n\
[rank3]:n2:1:2 [0] ibvwrap.cc:1 NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_4:1, curr state INIT\n\
\xff\xfe\0binary \x1b[31m\n\
n1:1:2 [0] NCCL WARN Net : Connection closed by remote peer n2<5>";

fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    folder
}

#[test]
fn an_object_per_line_in_order_then_the_summary() {
    let folder = folder(&[("job.log", LOG)]);
    let path = folder.path().join("job.log");
    let output = rdmesh(&["classify-log", path.to_str().unwrap(), "-o", "json"])
        .output()
        .unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let lines: Vec<serde_json::Value> = stdout(&output).lines().map(json).collect();
    assert_eq!(lines.len(), 6);
    for (place, line) in lines[..5].iter().enumerate() {
        assert_eq!(line["line"], place + 1);
        for key in ["class", "verb", "errno", "status", "device", "rule"] {
            assert!(line.get(key).is_some(), "{key} is missing in {line}");
        }
    }
    assert_eq!(lines[1]["class"], "follow_on");
    assert_eq!(lines[1]["status"], "IBV_WC_WR_FLUSH_ERR");
    assert_eq!(lines[2]["errno"], "ETIMEDOUT");
    assert_eq!(
        (&lines[2]["device"], &lines[2]["rank"]),
        (&"mlx5_4".into(), &3.into())
    );
    let summary = &lines[5];
    assert_eq!(summary["summary"], true);
    assert_eq!(
        (&summary["class"], &summary["line"]),
        (&"syscall".into(), &3.into())
    );
    assert_eq!(summary["decision"]["verb"], "ibv_modify_qp");
    assert_eq!(summary["lines"], 5);
}

#[test]
fn people_read_the_deciding_line_first() {
    let mut child = rdmesh(&["classify-log", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(LOG).unwrap();
    let text = stdout(&child.wait_with_output().unwrap());
    let first = text.lines().next().unwrap();
    assert!(first.contains("(syscall): decided by line 3"), "{text}");
    for part in ["ibv_modify_qp", "ETIMEDOUT", "mlx5_4", "follow_on 2"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
}

#[test]
fn dumps_among_the_files_say_who_never_entered() {
    let waiting = br#"{"version":"2.4","pg_config":{"0":{"desc":"default_pg","ranks":"[0, 1]"}},"entries":[{"process_group":["0","default_pg"],"collective_seq_id":1,"profiling_name":"nccl:all_reduce","state":"started"}]}"#;
    let nothing = br#"{"version":"2.4","pg_config":{"0":{"desc":"default_pg","ranks":"[0, 1]"}},"entries":[]}"#;
    let folder = folder(&[
        ("nccl_trace_rank_0", waiting),
        ("nccl_trace_rank_1", nothing),
        ("nccl_trace_rank_2", b"\x80\x02cposix\nsystem\n."),
    ]);
    let output = rdmesh(&["classify-log", folder.path().to_str().unwrap()])
        .output()
        .unwrap();
    let text = stdout(&output)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    assert!(
        text.contains("ranks 1 never entered it; 0 wait in it"),
        "{text}"
    );
    assert!(text.contains("plain data alone"), "{text}");
    let output = rdmesh(&[
        "classify-log",
        folder.path().to_str().unwrap(),
        "-o",
        "json",
    ])
    .output()
    .unwrap();
    let summary = json(stdout(&output).lines().last().unwrap());
    assert_eq!(summary["class"], "hang");
    assert_eq!(
        summary["flight_recorder"]["groups"][0]["verdict"],
        "not_entered"
    );
    assert_eq!(
        summary["flight_recorder"]["refused"][0]["file"]
            .as_str()
            .unwrap()
            .rsplit('/')
            .next(),
        Some("nccl_trace_rank_2")
    );
}

#[test]
fn what_cannot_be_read_is_said() {
    let output = rdmesh(&["classify-log", "/nonexistent/job.log"])
        .output()
        .unwrap();
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).contains("/nonexistent/job.log could not be read"));
    let folder = folder(&[
        ("job.log.gz", b"\x1f\x8b\x08\0"),
        ("rules.toml", b"revision = \"1\"\n[[rule]]\nid = \"x\"\nany = [\"abc\"]\npattern = '(abc'\nclass = \"gpu\"\n"),
    ]);
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let output = rdmesh(&["classify-log", &path("job.log.gz")])
        .output()
        .unwrap();
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).contains("zcat"), "{}", stderr(&output));
    assert!(stdout(&output).is_empty());
    let output = rdmesh(&["classify-log", "-", "--rules", &path("rules.toml")])
        .output()
        .unwrap();
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("line 5"), "{}", stderr(&output));
}

#[test]
fn what_can_be_read_is_classified_and_the_rest_is_named() {
    let folder = folder(&[
        ("a.log", b"ibv_reg_mr failed: Cannot allocate memory\n"),
        ("b.log.gz", b"\x1f\x8b\x08\0"),
    ]);
    std::fs::create_dir(folder.path().join("older")).unwrap();
    let path = folder.path().to_str().unwrap();
    let output = rdmesh(&["classify-log", path, "-o", "json"])
        .output()
        .unwrap();
    assert_eq!(code(&output), 1);
    let text = stdout(&output);
    let last: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&last["summary"], &last["class"]),
        (&true.into(), &"syscall".into())
    );
    let left_out = last["left_out"].as_array().unwrap();
    let names: Vec<&str> = left_out.iter().filter_map(|l| l["file"].as_str()).collect();
    let name = |file: &str| format!("{path}/{file}");
    assert_eq!(names, [name("older"), name("b.log.gz")]);
    assert!(stderr(&output).contains("is a directory: name it too"));
}
