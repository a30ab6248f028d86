//! `rdmesh certs`: what it writes, and what it does not overwrite.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

fn certs(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rdmesh"))
        .current_dir(folder)
        .arg("certs")
        .args(arguments)
        .output()
        .unwrap()
}

fn said(folder: &Path, arguments: &[&str]) -> String {
    let output = certs(folder, arguments);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

fn refused(folder: &Path, arguments: &[&str], code: i32) -> String {
    let output = certs(folder, arguments);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}");
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).unwrap()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn an_authority_and_a_certificate_are_made_shown_and_renewed() {
    let scratch = tempfile::tempdir().unwrap();
    let at = scratch.path();
    let made = said(at, &["init", "--site", "site-a", "--days", "100"]);
    assert!(made.contains("rdmesh authority of site-a"), "{made}");
    assert!(
        made.contains("(99 days)") || made.contains("(100 days)"),
        "{made}"
    );
    let issued = said(
        at,
        &[
            "issue",
            "agent",
            "dpu-1",
            "--for",
            "gpu-1",
            "--address",
            "10.0.0.7",
            "--days",
            "9",
        ],
    );
    assert!(
        issued.contains("rdmesh://site-a/agent/dpu-1, also for rdmesh://site-a/agent/gpu-1"),
        "{issued}"
    );
    assert!(issued.contains("addresses 10.0.0.7"), "{issued}");
    for (name, rights) in [
        ("ca.key", 0o600),
        ("ca.crt", 0o644),
        ("agent-dpu-1.key", 0o600),
        ("agent-dpu-1.crt", 0o644),
    ] {
        assert_eq!(mode(&at.join(name)) & !0o022, rights & !0o022, "{name}");
    }
    // Nothing is left beside them.
    assert_eq!(fs::read_dir(at).unwrap().count(), 4);
    // Renewed: another key, the same names.
    let before = fs::read_to_string(at.join("agent-dpu-1.key")).unwrap();
    let renewed = said(at, &["issue", "agent", "dpu-1", "--renew", "--days", "9"]);
    assert!(
        renewed.contains("also for rdmesh://site-a/agent/gpu-1"),
        "{renewed}"
    );
    assert!(renewed.contains("addresses 10.0.0.7"), "{renewed}");
    assert_ne!(
        fs::read_to_string(at.join("agent-dpu-1.key")).unwrap(),
        before
    );
    assert_eq!(mode(&at.join("agent-dpu-1.key")), 0o600);
    let shown = said(at, &["show", "agent-dpu-1.crt", "ca.crt", "-o", "json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let all = shown["certificates"].as_array().unwrap();
    assert_eq!(all.len(), 2);
    assert_eq!(all[0]["state"], "valid");
    assert_eq!(all[0]["identities"][1], "rdmesh://site-a/agent/gpu-1");
    assert_eq!(all[1]["is_authority"], true);
    assert!(!shown.to_string().contains("PRIVATE"));
}

#[test]
fn nothing_is_overwritten_and_no_name_leaves_the_directory() {
    let scratch = tempfile::tempdir().unwrap();
    let at = scratch.path();
    let message = refused(at, &["issue", "agent", "gpu-1"], 1);
    assert!(message.contains("`rdmesh certs init`"), "{message}");
    said(at, &["init", "--site", "s"]);
    let ca = fs::read(at.join("ca.key")).unwrap();
    let message = refused(at, &["init", "--site", "s"], 1);
    assert!(message.contains("is not replaced"), "{message}");
    assert_eq!(fs::read(at.join("ca.key")).unwrap(), ca);
    said(at, &["issue", "agent", "gpu-1"]);
    let key = fs::read(at.join("agent-gpu-1.key")).unwrap();
    refused(at, &["issue", "agent", "gpu-1"], 1);
    assert_eq!(fs::read(at.join("agent-gpu-1.key")).unwrap(), key);
    // Half of a pair is there: the other half is not written.
    fs::remove_file(at.join("agent-gpu-1.crt")).unwrap();
    refused(at, &["issue", "agent", "gpu-1"], 1);
    assert!(!at.join("agent-gpu-1.crt").exists());
    said(at, &["issue", "agent", "gpu-1", "--force"]);
    // A link is not followed.
    std::os::unix::fs::symlink("/nonexistent/x", at.join("agent-gpu-2.key")).unwrap();
    refused(at, &["issue", "agent", "gpu-2"], 1);
    for (arguments, code) in [
        (&["issue", "agent", "../x"][..], 2),
        (&["issue", "agent", "a/b"], 2),
        (&["issue", "agent", ""], 2),
        (&["issue", "root", "x"], 2),
        (&["issue", "reader", "x", "--for", "y"], 2),
        (&["issue", "agent", "x", "--days", "0"], 2),
        (&["issue", "agent", "x", "--days", "7000"], 2),
        (&["issue", "agent", "x", "--address", "a b"], 2),
        (&["init", "--site", "a b", "--force"], 2),
        (&["issue", "agent", "new", "--renew"], 1),
        (&["show", "ca.key"], 1),
        (&["show", "/nonexistent"], 1),
    ] {
        let message = refused(at, arguments, code);
        assert!(message.len() < 600, "{message}");
        assert!(!message.contains("PRIVATE"), "{message}");
    }
    let mut names: Vec<_> = fs::read_dir(at)
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    names.sort();
    let expected = [
        "agent-gpu-1.crt",
        "agent-gpu-1.key",
        "agent-gpu-2.key",
        "ca.crt",
        "ca.key",
    ];
    assert_eq!(names, expected);
}
