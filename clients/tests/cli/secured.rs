//! TLS on one side alone, on both, and what is said of it.

use rdmesh_tls::Role;

use crate::fake::Fake;
use crate::fake_tls::{Site, options};
use crate::run::{code, json, rdmesh, stderr, words};

#[test]
fn who_has_no_certificate_is_told_that_the_collector_wants_one() {
    let site = Site::new();
    let fake = Fake::start_secured(site.issue(Role::Collector, "c1"));
    let output = rdmesh(&["fleet", "--collector", &fake.address])
        .output()
        .unwrap();
    assert_eq!(code(&output), 5);
    let said = words(&output);
    for part in [
        "speaks TLS",
        "--tls-ca, --tls-certificate and --tls-key",
        "RDMESH_TLS_CA",
        "[tls] of cli.toml",
    ] {
        assert!(said.contains(part), "{part} is missing in {said}");
    }
    // What is said of a collector that does not run has nothing to do with it.
    assert!(!said.contains("is it running there"), "{said}");
    assert!(!said.contains("frame with invalid size"), "{said}");
    let output = rdmesh(&["fleet", "--collector", &fake.address, "-o", "json"])
        .output()
        .unwrap();
    let error = &json(&stderr(&output))["error"];
    assert_eq!(
        (error["kind"].as_str(), error["next"].is_null()),
        (Some("unreachable"), true)
    );
}

#[test]
fn agents_that_are_dialled_themselves_are_told_of_as_well() {
    let site = Site::new();
    let fake = Fake::start_secured(site.issue(Role::Agent, "gpu-01"));
    for arguments in [
        &["wire", "list", "--shaper", &fake.address][..],
        &["baseline", "show", &fake.address],
    ] {
        let output = rdmesh(arguments).output().unwrap();
        let said = words(&output);
        assert_eq!(code(&output), 5, "{arguments:?}: {said}");
        assert!(said.contains("speaks TLS"), "{arguments:?}: {said}");
        assert!(!said.contains("run there"), "{arguments:?}: {said}");
    }
}

#[test]
fn who_has_a_certificate_is_told_that_the_collector_has_none() {
    let site = Site::new();
    let files = site.issue(Role::Operator, "ada");
    let fake = Fake::start();
    let output = rdmesh(&["fleet", "--collector", &fake.address])
        .args(options(&files))
        .output()
        .unwrap();
    assert_eq!(code(&output), 5);
    let said = words(&output);
    for part in ["does not speak TLS", "[tls] section", "--insecure"] {
        assert!(said.contains(part), "{part} is missing in {said}");
    }
    assert!(!said.contains("is it running there"), "{said}");
}

#[test]
fn with_certificates_on_both_sides_it_is_asked() {
    let site = Site::new();
    let fake = Fake::start_secured(site.issue(Role::Collector, "c1"));
    let files = site.issue(Role::Operator, "ada");
    let output = rdmesh(&["fleet", "--collector", &fake.address])
        .args(options(&files))
        .output()
        .unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert_eq!(fake.state().calls, 1);
}
