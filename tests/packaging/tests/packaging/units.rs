//! The systemd units: correct, confined, and in step with what else speaks of them. That the
//! services run under them is shown on a machine with systemd: `make units-check`.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rdmesh_packaging::unit::{values, words};
use rdmesh_packaging::{SERVICES, program, said, text};

/// What `systemd-analyze security` may say at most, tenths: 0 is nothing to attack, 100
/// everything. What is left is told line by line in docs/install.md. A newer systemd may look
/// at more; then this is raised on purpose.
const EXPOSURE_TENTHS: [(&str, u32); 3] = [("collector", 15), ("shaper", 38), ("tracer", 35)];

/// Options without which a unit is not confined.
const EVERYWHERE: [(&str, &str); 12] = [
    ("Type", "exec"),
    ("NoNewPrivileges", "yes"),
    ("ProtectSystem", "strict"),
    ("ProtectHome", "yes"),
    ("PrivateTmp", "yes"),
    ("ProtectControlGroups", "yes"),
    ("LockPersonality", "yes"),
    ("MemoryDenyWriteExecute", "yes"),
    ("RestrictNamespaces", "yes"),
    ("RestrictSUIDSGID", "yes"),
    ("SystemCallArchitectures", "native"),
    ("UMask", "0077"),
];

/// The capabilities that each service is given, and no others.
const CAPABILITIES: [(&str, &[&str]); 3] = [
    ("collector", &[]),
    (
        "shaper",
        &[
            "CAP_IPC_LOCK",
            "CAP_NET_ADMIN",
            "CAP_NET_RAW",
            "CAP_SYS_RAWIO",
        ],
    ),
    ("tracer", &["CAP_SYSLOG", "CAP_SYS_ADMIN", "CAP_SYS_PTRACE"]),
];

/// A copy of the units that starts the programs of this build.
fn units() -> Result<tempfile::TempDir> {
    let directory = tempfile::tempdir()?;
    for service in SERVICES {
        let name = format!("rdmesh-{service}.service");
        let unit = text(&format!("packaging/systemd/{name}"))?;
        let binary = program(&format!("{service}-svc"))?;
        let unit = unit.replace(
            &format!("/usr/bin/{service}-svc"),
            &binary.display().to_string(),
        );
        std::fs::write(directory.path().join(name), unit)?;
    }
    Ok(directory)
}

#[test]
fn systemd_finds_no_fault_in_them() -> Result<()> {
    let units = units()?;
    for service in SERVICES {
        let path = units.path().join(format!("rdmesh-{service}.service"));
        let output = Command::new("systemd-analyze")
            .args(["verify", "--man=no"])
            .arg(&path)
            .output()
            .context("systemd-analyze (package systemd)")?;
        said(&output)?;
        // An option that it does not know is a warning to systemd, and a hole here.
        let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(complaints, "", "{service}");
    }
    Ok(())
}

#[test]
fn a_fault_in_a_unit_would_be_found() -> Result<()> {
    let units = units()?;
    let path = units.path().join("rdmesh-tracer.service");
    let unit = std::fs::read_to_string(&path)?;
    std::fs::write(&path, unit.replace("ProtectHome=", "ProtectHouse="))?;
    let output = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(&path)
        .output()?;
    let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(complaints.contains("ProtectHouse"), "{complaints}");
    Ok(())
}

#[test]
fn what_is_left_to_attack_is_bounded() -> Result<()> {
    let units = units()?;
    for (service, bound) in EXPOSURE_TENTHS {
        let path = units.path().join(format!("rdmesh-{service}.service"));
        let output = Command::new("systemd-analyze")
            .args([
                "security",
                "--no-pager",
                "--offline=true",
                &format!("--threshold={bound}"),
            ])
            .arg(&path)
            .output()?;
        said(&output).with_context(|| {
            let table = String::from_utf8_lossy(&output.stdout).into_owned();
            let last = table.lines().last().unwrap_or_default().to_owned();
            format!("{service}: more than {bound} tenths: {last}")
        })?;
    }
    Ok(())
}

#[test]
fn every_unit_is_confined() -> Result<()> {
    for service in SERVICES {
        for (key, wanted) in EVERYWHERE {
            assert_eq!(values(service, key)?, [wanted], "{service}: {key}");
        }
        let filters = values(service, "SystemCallFilter")?;
        assert!(
            filters
                .first()
                .is_some_and(|first| first.starts_with("@system-service"))
                && filters.get(1).is_some_and(|second| second.starts_with('~')),
            "{service}: {filters:?}"
        );
    }
    Ok(())
}

#[test]
fn capabilities_are_those_that_are_justified() -> Result<()> {
    let page = text("docs/install.md")?;
    for (service, wanted) in CAPABILITIES {
        let given: BTreeSet<String> = words(service, "CapabilityBoundingSet")?
            .into_iter()
            .collect();
        let wanted: BTreeSet<String> = wanted.iter().map(|&name| name.to_owned()).collect();
        assert_eq!(given, wanted, "{service}");
        // Who is no root has what is bounded, and nothing else.
        if !values(service, "User")?.is_empty() {
            let ambient: BTreeSet<String> =
                words(service, "AmbientCapabilities")?.into_iter().collect();
            assert_eq!(ambient, given, "{service}");
        }
        let unit = text(&format!("packaging/systemd/rdmesh-{service}.service"))?;
        for name in &given {
            assert!(
                unit.contains(&format!("\n# {name} ")),
                "rdmesh-{service}.service says nothing of {name}"
            );
            assert!(page.contains(name.as_str()), "docs/install.md: {name}");
        }
    }
    Ok(())
}

#[test]
fn no_service_waits_for_a_word_that_it_never_gets() -> Result<()> {
    // Type=notify is for programs that call sd_notify; these do not.
    for service in SERVICES {
        ensure!(
            values(service, "WatchdogSec")?.is_empty(),
            "{service} is watched"
        );
        ensure!(
            values(service, "NotifyAccess")?.is_empty(),
            "{service} is to notify"
        );
    }
    Ok(())
}
