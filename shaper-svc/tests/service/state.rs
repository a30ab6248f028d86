//! A state directory that is damaged, full, or of before: the wires shape all the same.

use std::fs;

use super::*;

/// Lines of the audit record.
fn audit(state: &Path) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(state.join("audit.jsonl")).unwrap_or_default();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

fn actions(state: &Path) -> Vec<String> {
    let of = |line: &serde_json::Value| format!("{} {}", line["wire"], line["action"]);
    audit(state)
        .iter()
        .map(|line| of(line).replace('"', ""))
        .collect()
}

/// Makes every write of the state fail, as a full disk does, for root as well.
fn block(state: &Path) {
    fs::create_dir_all(state.join("state.json.new/full")).unwrap();
}

#[test]
fn a_damaged_state_is_set_aside_and_the_wires_shape_as_configured() {
    let damage = "{\"wires\": [{\"na";
    let state = tempfile::tempdir().unwrap();
    fs::write(state.path().join("state.json"), damage).unwrap();
    block_on(async {
        let mut service = Running::start(config(state.path())).await;
        assert_eq!(service.wire("vf0").await.rate_bps, 25_000_000_000);
        let fault = service.report().await.state_fault;
        for words in ["state.json is no state", "kept as", "configured rates"] {
            assert!(fault.contains(words), "{damage}: {fault}");
        }
        // What is set from now on is kept.
        service.set(rate("vf0", 5_000_000_000)).await.unwrap();
        service.stop().await;
        let mut service = Running::start(config(state.path())).await;
        assert_eq!(service.wire("vf0").await.rate_bps, 5_000_000_000);
        assert_eq!(service.report().await.state_fault, "");
        service.stop().await;
    });
    let kept = fs::read_dir(state.path())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let aside = kept
        .filter(|path| path.display().to_string().contains("state.json."))
        .map(|path| fs::read_to_string(path).unwrap());
    assert_eq!(aside.collect::<Vec<_>>(), [damage]);
    assert_eq!(
        actions(state.path()),
        ["vf0 state_lost", "vf1 state_lost", "vf0 set_rate"]
    );
}

#[test]
fn a_state_that_cannot_be_written_is_told_and_no_change_is_made() {
    let state = tempfile::tempdir().unwrap();
    block(state.path());
    block_on(async {
        let mut service = Running::start(config(state.path())).await;
        assert_eq!(service.wire("vf0").await.rate_bps, 25_000_000_000);
        let fault = service.report().await.state_fault;
        assert!(fault.contains("cannot write"), "{fault}");

        let refused = service.set(rate("vf0", 5_000_000_000)).await.unwrap_err();
        assert!(refused.message().contains("taken back"), "{refused}");
        assert_eq!(service.wire("vf0").await.rate_bps, 25_000_000_000);
        let told = actions(state.path());
        assert!(!told.contains(&"vf0 set_rate".to_owned()), "{told:?}");

        // Room again: nobody has to restart anything.
        fs::remove_dir_all(state.path().join("state.json.new")).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while service.report().await.state_fault.contains("cannot write") {
            assert!(Instant::now() < deadline, "the state is not written again");
            tokio::task::yield_now().await;
        }
        service.set(rate("vf0", 5_000_000_000)).await.unwrap();
        service.stop().await;
    });
    let last = actions(state.path()).pop();
    assert_eq!(last.as_deref(), Some("vf0 set_rate"));
}

#[test]
fn what_ended_while_no_service_ran_is_recorded() {
    let state = tempfile::tempdir().unwrap();
    let saved = r#"{"wires": [
        {"name": "vf0", "rate_bps": 5000000000, "expires_at_ms": 1, "bypass": false,
         "generation": 7},
        {"name": "vf1", "rate_bps": 90000000000, "expires_at_ms": null, "bypass": false,
         "generation": 3},
        {"name": "vf9", "rate_bps": 2000000000, "expires_at_ms": null, "bypass": false,
         "generation": 5},
        {"name": "vf8", "rate_bps": null, "expires_at_ms": null, "bypass": false,
         "generation": 1}
    ], "requests": [], "outages": []}"#;
    fs::write(state.path().join("state.json"), saved).unwrap();
    block_on(async {
        let mut service = Running::start(config(state.path())).await;
        assert_eq!(service.wire("vf0").await.rate_bps, 25_000_000_000);
        assert_eq!(service.wire("vf1").await.rate_bps, 10_000_000_000);
        assert_eq!(service.report().await.state_fault, "");
        service.stop().await;
    });
    let told = audit(state.path());
    let actions = actions(state.path());
    assert_eq!(actions, ["vf0 expired", "vf1 reverted", "vf9 gone"]);
    assert_eq!(told[0]["from_rate_bps"], 5_000_000_000_u64);
    assert_eq!(told[0]["to_rate_bps"], 25_000_000_000_u64);
    assert_eq!(told[0]["generation"], 8);
    let reason = told[1]["reason"].as_str().unwrap();
    assert!(reason.contains("50000000000"), "{reason}");
}

#[test]
fn a_wire_that_is_bypassed_does_not_show_its_rate() {
    let state = tempfile::tempdir().unwrap();
    block_on(async {
        let mut service = Running::start(config(state.path())).await;
        service.window(|window| window.invalid.is_empty()).await;
        let around = |bypass| proto::SetBypassRequest {
            wire: "vf0".to_owned(),
            bypass,
            ..Default::default()
        };
        service.client.set_bypass(around(true)).await.unwrap();
        let window = service.window(|window| window.bypass).await;
        let causes: Vec<_> = window.invalid().collect();
        assert_eq!(causes, [proto::InvalidCause::NotShaped]);
        service.client.set_bypass(around(false)).await.unwrap();
        service.window(|window| window.invalid.is_empty()).await;
        service.stop().await;
    });
}

fn saved(wires: &str) -> String {
    format!(r#"{{"wires": [{wires}], "requests": [], "outages": []}}"#)
}

/// One start and stop with what a state directory holds.
fn runs(state: &Path) -> u64 {
    let mut rate_bps = 0;
    block_on(async {
        let mut service = Running::start(config(state)).await;
        rate_bps = service.wire("vf0").await.rate_bps;
        service.stop().await;
    });
    rate_bps
}

#[test]
fn a_kill_between_record_and_state_is_told_at_the_next_start() {
    let state = tempfile::tempdir().unwrap();
    block_on(async {
        let mut service = Running::start(config(state.path())).await;
        service.set(rate("vf0", 5_000_000_000)).await.unwrap();
        service.stop().await;
    });
    // The record is written first; then the kill came.
    let last = fs::read_to_string(state.path().join("audit.jsonl")).unwrap();
    let unkept = last
        .replace("\"to_rate_bps\":5000000000", "\"to_rate_bps\":7000000000")
        .replace("\"generation\":2", "\"generation\":9");
    assert_ne!(last, unkept);
    fs::write(state.path().join("audit.jsonl"), last + &unkept).unwrap();
    assert_eq!(runs(state.path()), 5_000_000_000);
    let told = audit(state.path()).pop().unwrap();
    assert_eq!(told["action"], "restarted", "{told}");
    assert_eq!(told["from_rate_bps"], 7_000_000_000_u64, "{told}");
    assert_eq!(told["to_rate_bps"], 5_000_000_000_u64, "{told}");
    assert_eq!(told["generation"], 10, "above what the record has: {told}");
    // Once: the record says how it stands now.
    let entries = audit(state.path()).len();
    assert_eq!(runs(state.path()), 5_000_000_000);
    assert_eq!(audit(state.path()).len(), entries);
}

#[test]
fn a_state_that_was_deleted_is_told_by_the_record() {
    let state = tempfile::tempdir().unwrap();
    block_on(async {
        let mut service = Running::start(config(state.path())).await;
        service.set(rate("vf0", 5_000_000_000)).await.unwrap();
        service.stop().await;
    });
    fs::remove_file(state.path().join("state.json")).unwrap();
    assert_eq!(runs(state.path()), 25_000_000_000);
    assert_eq!(actions(state.path()), ["vf0 set_rate", "vf0 restarted"]);
}

#[test]
fn what_was_set_for_a_function_is_not_handed_to_another() {
    let state = tempfile::tempdir().unwrap();
    let wire = r#"{"name": "vf0", "virtual_function": "vf7", "rate_bps": 5000000000,
        "expires_at_ms": null, "bypass": true, "generation": 3}"#;
    fs::write(state.path().join("state.json"), saved(wire)).unwrap();
    assert_eq!(runs(state.path()), 25_000_000_000);
    let told = audit(state.path()).pop().unwrap();
    assert_eq!(told["action"], "reverted", "{told}");
    assert_eq!(told["bypass"], false, "{told}");
    let reason = told["reason"].as_str().unwrap();
    assert!(reason.contains("vf7") && reason.contains("vf0"), "{reason}");
}

#[test]
fn a_pipe_in_the_place_of_a_file_does_not_hold_the_start() {
    let state = tempfile::tempdir().unwrap();
    for name in ["state.json", "alive"] {
        let made = std::process::Command::new("mkfifo")
            .arg(state.path().join(name))
            .status()
            .unwrap();
        assert!(made.success());
    }
    assert_eq!(runs(state.path()), 25_000_000_000);
}

#[test]
fn a_record_that_cannot_be_written_is_told_until_it_can() {
    let state = tempfile::tempdir().unwrap();
    block_on(async {
        let mut service = Running::start(config(state.path())).await;
        fs::create_dir(state.path().join("audit.jsonl")).unwrap();
        let refused = service.set(rate("vf0", 5_000_000_000)).await.unwrap_err();
        assert!(refused.message().contains("taken back"), "{refused}");
        let fault = service.report().await.state_fault;
        assert!(fault.contains("audit record"), "{fault}");
        fs::remove_dir(state.path().join("audit.jsonl")).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while !service.report().await.state_fault.is_empty() {
            assert!(Instant::now() < deadline, "it is told for ever");
            tokio::task::yield_now().await;
        }
        service.set(rate("vf0", 5_000_000_000)).await.unwrap();
        service.stop().await;
    });
}

#[test]
fn a_clock_that_was_set_back_makes_no_outage_that_ends_before_it_begins() {
    let state = tempfile::tempdir().unwrap();
    fs::write(
        state.path().join("alive"),
        format!("{:>20}\n", 4_000_000_000_000_u64),
    )
    .unwrap();
    block_on(async {
        let mut service = Running::start(config(state.path())).await;
        let outage = service.report().await.outages.pop().unwrap();
        let seconds = |at: Option<prost_types::Timestamp>| at.unwrap().seconds;
        assert!(seconds(outage.from) <= seconds(outage.to), "{outage:?}");
        service.stop().await;
    });
}
