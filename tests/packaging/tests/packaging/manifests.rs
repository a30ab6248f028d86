//! The manifests for Kubernetes: each field is one that Kubernetes knows, and what they ask
//! for is what the units ask for.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result};
use rdmesh_packaging::unit::words;
use rdmesh_packaging::{root, said, text};

const MANIFESTS: [&str; 3] = [
    "packaging/kubernetes/collector.yaml",
    "packaging/kubernetes/tracer.yaml",
    "clients/kubernetes/watcher.yaml",
];

/// The oldest version that has every field in use, and the newest.
const VERSIONS: [&str; 2] = ["v1.30.0", "v1.37.0"];

fn schemas(version: &str) -> PathBuf {
    let cache = std::env::var_os("RDMESH_CACHE").map(PathBuf::from);
    let cache = cache.unwrap_or_else(|| {
        let home = std::env::var_os("HOME").unwrap_or_default();
        Path::new(&home).join(".cache/rdmesh")
    });
    cache.join(format!("kubernetes-schemas/{version}-local-strict"))
}

fn check(version: &str, files: &[PathBuf]) -> Result<Output> {
    // The system's own interpreter: Debian's modules are its.
    Command::new("/usr/bin/python3")
        .arg(root().join("packaging/kubernetes/check.py"))
        .arg(schemas(version))
        .args(files)
        .output()
        .context("/usr/bin/python3")
}

#[test]
fn every_object_fits_its_schema() -> Result<()> {
    let files: Vec<PathBuf> = MANIFESTS.iter().map(|path| root().join(path)).collect();
    for version in VERSIONS {
        let output = check(version, &files)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        said(&output).with_context(|| format!("{version} (tests/setup.sh test): {text}"))?;
        assert!(text.ends_with("13 objects, 0 faults\n"), "{text}");
    }
    Ok(())
}

/// A manifest with one thing changed, and what the check says.
fn spoilt(from: &str, to: &str) -> Result<String> {
    let manifest = text("packaging/kubernetes/tracer.yaml")?;
    assert!(manifest.contains(from), "{from}");
    let file = tempfile::Builder::new().suffix(".yaml").tempfile()?;
    std::fs::write(file.path(), manifest.replacen(from, to, 1))?;
    let output = check(VERSIONS[1], &[file.path().to_owned()])?;
    assert_eq!(output.status.code(), Some(1), "{to} was taken");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn a_wrong_field_would_be_found() -> Result<()> {
    for (from, to, complaint) in [
        ("hostPID: true", "hostPid: true", "'hostPid' was unexpected"),
        ("drop: [ALL]", "drops: [ALL]", "'drops' was unexpected"),
        ("runAsUser: 0", "runAsUser: root", "'root' is not of type"),
        (
            "      containers:",
            "      containerz:",
            "'containerz' was unexpected",
        ),
        ("kind: DaemonSet", "kind: Daemonset2", "no schema for"),
        (
            "apiVersion: apps/v1",
            "apiVersion: apps/v9",
            "no schema for",
        ),
    ] {
        let said = spoilt(from, to)?;
        assert!(said.contains(complaint), "{to}: {said}");
    }
    Ok(())
}

/// The words of `KEY: [A, B]`.
fn list(manifest: &str, key: &str) -> Vec<Vec<String>> {
    let prefix = format!("{key}: [");
    let lines = manifest
        .lines()
        .filter_map(|line| line.trim().strip_prefix(prefix.as_str())?.strip_suffix(']'));
    lines
        .map(|words| words.split(", ").map(str::to_owned).collect())
        .collect()
}

#[test]
fn the_tracer_gets_the_units_capabilities_and_no_others() -> Result<()> {
    let manifest = text("packaging/kubernetes/tracer.yaml")?;
    assert_eq!(list(&manifest, "drop"), [["ALL"]]);
    let added: BTreeSet<String> = list(&manifest, "add").concat().into_iter().collect();
    let unit: BTreeSet<String> = words("tracer", "CapabilityBoundingSet")?
        .iter()
        .map(|name| name.trim_start_matches("CAP_").to_owned())
        .collect();
    assert_eq!(added, unit);
    assert!(manifest.contains("privileged: false"));
    let collector = text("packaging/kubernetes/collector.yaml")?;
    assert_eq!(list(&collector, "drop"), [["ALL"]]);
    assert!(list(&collector, "add").is_empty());
    Ok(())
}

#[test]
fn images_have_the_version_of_this_tree() -> Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    for (path, image) in [
        ("packaging/kubernetes/collector.yaml", "rdmesh-collector"),
        ("packaging/kubernetes/tracer.yaml", "rdmesh-tracer"),
        ("compose/compose.yaml", "rdmesh-collector"),
        ("compose/env.example", "rdmesh-collector"),
    ] {
        let wanted = format!("{image}:{version}");
        assert!(
            text(path)?.contains(&wanted),
            "{path} does not name {wanted}"
        );
    }
    Ok(())
}

/// The configuration inside a ConfigMap is taken by its service.
#[test]
fn configurations_in_them_are_accepted() -> Result<()> {
    for (path, service) in [
        ("packaging/kubernetes/collector.yaml", "collector"),
        ("packaging/kubernetes/tracer.yaml", "tracer"),
    ] {
        let manifest = text(path)?;
        let (_, block) = manifest
            .split_once(&format!("  {service}.toml: |\n"))
            .context("no configuration")?;
        let (block, _) = block.split_once("---").context("no end")?;
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), block)?;
        let path = file.path().to_string_lossy().into_owned();
        let words = ["--config", &path, "--check-config"];
        said(&rdmesh_packaging::ask(service, &words)?).with_context(|| service)?;
    }
    Ok(())
}
