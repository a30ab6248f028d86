//! `rdmesh wire watch` while its collector comes and goes.

use std::io::{BufRead, BufReader, Lines, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Stdio};

use rdmesh_proto::collector::v1 as wire;
use rdmesh_proto::shaper::v1 as shaper;

use crate::fake::{Fake, State};
use crate::run::{closed_address, code, json, rdmesh, stderr};

/// A window that ended so many seconds after 1970.
fn window(end: i64) -> wire::WatchWiresResponse {
    let at = |seconds| Some(prost_types::Timestamp { seconds, nanos: 0 });
    wire::WatchWiresResponse {
        shaper_host: "gpu-01".into(),
        window: Some(shaper::WireWindow {
            wire: "w0".into(),
            from: at(end - 1),
            to: at(end),
            rate_bps: 10_000_000_000,
            ..shaper::WireWindow::default()
        }),
        marks: Vec::new(),
    }
}

fn knowing(windows: &[i64]) -> State {
    State {
        windows: windows.iter().copied().map(window).collect(),
        ..State::default()
    }
}

struct Watch {
    child: Child,
    windows: Lines<BufReader<ChildStdout>>,
    said: BufReader<ChildStderr>,
}

impl Watch {
    fn start(path: &Path, count: &str) -> Watch {
        let address = format!("unix:{}", path.display());
        let mut child = rdmesh(&["wire", "watch", "-n", count, "-o", "json"])
            .args(["--collector", &address])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Watch {
            windows: BufReader::new(child.stdout.take().unwrap()).lines(),
            said: BufReader::new(child.stderr.take().unwrap()),
            child,
        }
    }

    /// When the next window ended, as it was shown.
    fn next(&mut self) -> String {
        let line = self.windows.next().unwrap().unwrap();
        json(&line)["to"].as_str().unwrap().to_owned()
    }

    fn remark(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        line
    }

    /// The exit code, and what was said besides.
    fn end(mut self) -> (Option<i32>, String) {
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap().code(), rest)
    }
}

#[test]
fn watching_goes_on_when_the_collector_is_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("collector.sock");
    let first = Fake::start_knowing(&path, knowing(&[5, 6]));
    let mut watch = Watch::start(&path, "3");
    assert_eq!(watch.next(), "1970-01-01T00:00:05Z");
    assert_eq!(watch.next(), "1970-01-01T00:00:06Z");
    drop(first);
    std::fs::remove_file(&path).unwrap();
    let remark = watch.remark();
    assert!(remark.contains("asking again until it is back"), "{remark}");
    // It has the window that was shown, and one more.
    let _second = Fake::start_knowing(&path, knowing(&[6, 7]));
    assert_eq!(watch.next(), "1970-01-01T00:00:07Z");
    assert_eq!(watch.end(), (Some(0), String::new()), "said once");
}

#[test]
fn what_waiting_cannot_mend_ends_the_watch() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("collector.sock");
    let first = Fake::start_knowing(&path, knowing(&[5]));
    let mut watch = Watch::start(&path, "9");
    watch.next();
    drop(first);
    std::fs::remove_file(&path).unwrap();
    watch.remark();
    let gone = State {
        no_wire: true,
        ..State::default()
    };
    let _second = Fake::start_knowing(&path, gone);
    let (code, said) = watch.end();
    assert_eq!(code, Some(4), "{said}");
}

#[test]
fn nobody_from_the_start_on_is_an_error() {
    let address = closed_address();
    let output = rdmesh(&["wire", "watch", "--collector", &address])
        .output()
        .unwrap();
    assert_eq!(code(&output), 5, "{}", stderr(&output));
}
