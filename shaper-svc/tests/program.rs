//! `shaper-svc` as a program: where options may stand, what it says, how it exits.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn shaper(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_shaper-svc"))
        .args(args)
        // What a developer has set must not bury the message.
        .env("RUST_BACKTRACE", "1")
        .env_remove("RUST_LIB_BACKTRACE")
        .output()
        .unwrap()
}

fn written(directory: &Path, text: &str) -> PathBuf {
    let file = directory.join("shaper.toml");
    // Whoever runs the tests may not write where services keep their state, and a check beside
    // this one has the name and the address in use for as long as it looks at them.
    let state = directory.join("state");
    let name = name_of(directory);
    let listen = format!("unix:{}", directory.join("s.sock").display());
    let own = format!("name = {name:?}\nstate_directory = {state:?}\nserver.listen = {listen:?}");
    std::fs::write(&file, format!("{own}\n{text}")).unwrap();
    file
}

/// A shaper's name that no test beside this one uses.
fn name_of(directory: &Path) -> String {
    let last = directory.file_name().unwrap().to_str().unwrap();
    format!("dpu{}", last.replace('.', "-"))
}

const CONFIG: &str = r#"
    [dpdk]
    huge_pages = false
    rx_descriptors = 64
    devices = ["net_null0", "net_null1"]
    [[wires]]
    name = "w0"
    in_port = "net_null0"
    out_port = "net_null1"
    rate = "20mbit"
    queue_frames = 512
"#;

#[test]
fn check_takes_its_options_on_either_side() {
    let directory = tempfile::tempdir().unwrap();
    let file = written(directory.path(), CONFIG);
    let file = file.to_str().unwrap();
    let mut said = Vec::new();
    for args in [["--config", file, "check"], ["check", "--config", file]] {
        let output = shaper(&args);
        assert!(output.status.success(), "{args:?}: {output:?}");
        said.push(String::from_utf8(output.stdout).unwrap());
    }
    let name = format!("ok     reports as {}\n", name_of(directory.path()));
    assert!(said[0].contains(&name), "{}", said[0]);
    assert_eq!(said[0], said[1]);
    // And refuses what would not start, without a word too many.
    let wire = "wires=[]";
    let output = shaper(&["--config", file, "--set", wire, "check"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "shaper-svc: the service would not start; see the lines that begin with `fail`\n"
    );
}

#[test]
fn check_refuses_what_would_not_start() {
    let directory = tempfile::tempdir().unwrap();
    let file = written(directory.path(), CONFIG);
    let file = file.to_str().unwrap();
    for (set, words) in [
        (
            r#"wires=[{name="w0",in_port="net_null0",out_port="nope"}]"#,
            "makes port nope",
        ),
        (
            r#"dpdk.devices=["net_nul0","net_null0","net_null1"]"#,
            "net_nul0: DPDK has no driver",
        ),
        (
            r#"dpdk.devices=["net_null0,foo=1","net_null1"]"#,
            "no argument `foo=1`",
        ),
        ("dpdk.memory_mb=1", "memory_mb = 1"),
        (r#"state_directory="/proc/x""#, "/proc/x cannot be made"),
        (
            r#"state_directory="/dev/null""#,
            "/dev/null is no directory",
        ),
        (
            r#"server.listen="unix:/nosuch/s.sock""#,
            "no directory /nosuch",
        ),
    ] {
        let output = shaper(&["--config", file, "--set", set, "check"]);
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(1), "{set}: {said}");
        let fails = said.lines().filter(|line| line.starts_with("fail"));
        let fails: Vec<&str> = fails.collect();
        assert_eq!(fails.len(), 1, "{set}: {said}");
        assert!(fails[0].contains(words), "{set}: {said}");
    }
    let output = shaper(&["--config", file, "--set", "state_directory=", "check"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn a_reader_that_goes_away_is_no_failure_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let file = written(directory.path(), CONFIG);
    // Both ends of what it says go to a pipe that nobody reads.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = Command::new(env!("CARGO_BIN_EXE_shaper-svc"))
        .args(["--config", file.to_str().unwrap(), "check"])
        .stdout(writer.try_clone().unwrap())
        .stderr(writer)
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(1), "{status}");
}

#[test]
fn a_figure_that_there_is_not_is_told() {
    let output = shaper(&["bench", "--only", "zzz"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("no figure has `zzz`") && said.contains("shaper.engine.k1.ns"),
        "{said}"
    );
}

#[test]
fn a_mistake_is_one_line_and_an_exit_code() {
    let directory = tempfile::tempdir().unwrap();
    let file = written(directory.path(), "[uplnk]\n");
    let missing = directory.path().join("nothing.pcap");
    let (file, missing) = (file.to_str().unwrap(), missing.to_str().unwrap());
    let out = directory.path().join("o.pcap");
    let replay = [
        "replay",
        missing,
        "--rate",
        "1gbit",
        "--out",
        out.to_str().unwrap(),
    ];
    for (args, code, words) in [
        (&["--config", file][..], 2, "did you mean `uplink`?"),
        (&["--config", "/nonexistent/x.toml"], 2, "cannot read"),
        (
            &["--set", "wires=[]", "run"],
            2,
            "the configuration has no wires",
        ),
        (&["--set", "window_ms=1"], 2, "`window_ms` is 1"),
        (&replay, 1, "nothing.pcap"),
    ] {
        let output = shaper(args);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        let own: Vec<&str> = said.lines().filter(|line| !line.starts_with('{')).collect();
        assert_eq!(own.len(), 1, "{args:?}: {said}");
        assert!(own[0].starts_with("shaper-svc: "), "{said}");
        assert!(own[0].contains(words), "{args:?}: {said}");
    }
}

#[test]
fn a_tool_refuses_options_that_it_would_not_read() {
    let output = shaper(&["--set", "host=a", "bench"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("`bench` reads no configuration"), "{said}");
}
