//! Reports of the real program, and how a real browser takes the page.

use std::process::Command;

use rdmesh_proto::collector::v1 as wire;
use rdmesh_proto::tracer::v1 as tracer;

use crate::fake::{Fake, failed_job};
use crate::run::{ask, code, stderr, stdout};

/// Debian's chromium without its windows.
const BROWSER: &str = "chromium-headless-shell";

/// A screenshot of an empty page of that size has a tenth of it.
const DRAWN_MIN_BYTES: usize = 20_000;

fn at(seconds: i64) -> Option<prost_types::Timestamp> {
    Some(prost_types::Timestamp { seconds, nanos: 0 })
}

fn knowing() -> Fake {
    let fake = Fake::start();
    let mut state = fake.state();
    state.jobs = vec![failed_job("4711")];
    state.timeline = wire::GetTimelineResponse {
        from: at(1_769_864_700),
        to: at(1_769_868_300),
        hosts: vec![wire::HostTimeline {
            host: "gpu-01".into(),
            failures: vec![wire::Failure {
                first_at: at(1_769_868_200),
                last_at: at(1_769_868_290),
                ..crate::fake::failure(33)
            }],
            signals: vec![wire::CoSignal {
                at: at(1_769_868_100),
                kind: tracer::CoSignalKind::Network.into(),
                independent: true,
                name: "port_down".into(),
                detail: "<script>document.title='obeyed'</script>".into(),
                device: "mlx5_0".into(),
            }],
            ..wire::HostTimeline::default()
        }],
        ..wire::GetTimelineResponse::default()
    };
    drop(state);
    fake
}

#[test]
fn a_report_is_markdown_for_a_ticket() {
    let fake = knowing();
    let output = ask(&fake, &["diagnose", "4711", "-o", "md"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let text = stdout(&output);
    for part in [
        "## Attempt 4711/0",
        "| cause | application\\_arguments |",
        "**gpu-01**",
        "port\\_down",
    ] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    assert!(!text.contains("<script"), "{text}");
}

#[test]
fn other_commands_write_no_report() {
    let fake = knowing();
    let output = ask(&fake, &["fleet", "-o", "html"]);
    assert_eq!(code(&output), 2);
    assert!(
        stderr(&output).contains("which diagnose writes"),
        "{}",
        stderr(&output)
    );
}

fn browser(arguments: &[&str]) -> std::process::Output {
    let profile = tempfile::tempdir().unwrap();
    Command::new(BROWSER)
        // Root may not use the sandbox of setuid; the page is our own.
        .args([
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--enable-logging=stderr",
        ])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("{BROWSER}: {error}; apt-get install {BROWSER}"))
}

#[test]
fn a_browser_draws_the_page_and_loads_nothing() {
    let fake = knowing();
    let output = ask(&fake, &["diagnose", "4711", "-o", "html"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let folder = tempfile::tempdir().unwrap();
    let (page, picture) = (folder.path().join("r.html"), folder.path().join("r.png"));
    std::fs::write(&page, &output.stdout).unwrap();
    let address = format!("file://{}", page.display());
    let shot = format!("--screenshot={}", picture.display());
    let drawn = browser(&["--dump-dom", &shot, "--window-size=1000,1400", &address]);
    let (dom, said) = (stdout(&drawn), stderr(&drawn));
    // What the browser made of it: the drawing stands, the hostile text is text.
    for part in [
        "<title>Attempt 4711/0: failed</title>",
        "<circle",
        "class=\"chain decides\"",
        "class=\"signal\"",
        "&lt;script&gt;document.title",
    ] {
        assert!(dom.contains(part), "{part} is missing in {dom}\n{said}");
    }
    assert!(
        !said.contains("Refused to") && !said.contains("CONSOLE"),
        "{said}"
    );
    let bytes = std::fs::read(&picture).map_or(0, |picture| picture.len());
    assert!(bytes > DRAWN_MIN_BYTES, "{bytes} bytes\n{said}");
}
