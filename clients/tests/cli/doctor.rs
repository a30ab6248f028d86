//! `rdmesh doctor`: the program itself, on a tree of files that is a host, with a collector and a
//! tracer that answer.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use rdmesh_tls::{Files, Role};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::Value;
use tempfile::TempDir;

use crate::fake::Fake;
use crate::fake_tls::{Site, options};
use crate::run::{closed_address, code, json, rdmesh, stderr, stdout};

/// Nothing here takes longer, also on a loaded machine.
const DEADLINE: Duration = Duration::from_secs(60);

const LIMITS: &str = "Limit                     Soft Limit           Hard Limit           Units\n\
                      Max locked memory         unlimited            unlimited            bytes\n";

/// A GPU host whose tracer runs and reports over TLS.
struct Host {
    root: TempDir,
    programs: TempDir,
    site: Site,
    collector: Fake,
    tracer: Fake,
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A program that says what it is told to.
fn script(path: &Path, lines: &str) {
    write(path, &format!("#!/bin/sh\n{lines}\n"));
    fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

impl Host {
    fn new() -> Host {
        let site = Site::new();
        let host = Host {
            collector: Fake::start_secured(site.issue(Role::Collector, "c1")),
            tracer: Fake::start_secured(site.issue(Role::Agent, "gpu-01")),
            root: tempfile::tempdir().unwrap(),
            programs: tempfile::tempdir().unwrap(),
            site,
        };
        let own = fs::metadata(host.root.path()).unwrap();
        let status = format!(
            "Pid:\t812\nUid:\t0\t{}\t0\t0\nGid:\t0\t{}\t0\t0\nCapEff:\t000001ffffffffff\n\
             CapBnd:\t000001ffffffffff\n",
            own.uid(),
            own.gid()
        );
        for (file, text) in [
            ("proc/sys/kernel/hostname", "gpu-01\n"),
            ("proc/sys/kernel/osrelease", "6.12.48+deb13-amd64\n"),
            ("proc/self/status", status.as_str()),
            ("proc/self/limits", LIMITS),
            ("proc/812/comm", "tracer-svc\n"),
            ("proc/812/status", status.as_str()),
            ("proc/812/limits", LIMITS),
            ("sys/kernel/btf/vmlinux", "types"),
            (
                "sys/kernel/security/lockdown",
                "[none] integrity confidentiality\n",
            ),
            ("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n"),
            (
                "sys/class/infiniband/mlx5_0/ports/1/link_layer",
                "InfiniBand\n",
            ),
            ("var/lib/rdmesh/tracer/spool/x", ""),
        ] {
            host.write(file, text);
        }
        let files = host.site.issue(Role::Agent, "gpu-01");
        for (file, at) in [
            (&files.ca, "ca.crt"),
            (&files.certificate, "a.crt"),
            (&files.key, "a.key"),
        ] {
            host.write(
                &format!("etc/rdmesh/{at}"),
                &fs::read_to_string(file).unwrap(),
            );
        }
        let key = host.root.path().join("etc/rdmesh/a.key");
        fs::set_permissions(key, PermissionsExt::from_mode(0o600)).unwrap();
        host.configure(&host.collector.address, &host.tracer.address);
        host.program("timedatectl", "echo yes");
        host.program("tracer-svc", "echo configuration of tracer is valid");
        host
    }

    fn write(&self, file: &str, text: &str) {
        write(&self.root.path().join(file), text);
    }

    fn program(&self, name: &str, lines: &str) {
        script(&self.programs.path().join(name), lines);
    }

    fn configure(&self, collector: &str, listen: &str) {
        let text = format!(
            "[uplink]\ncollector = \"{collector}\"\n[uplink.spool]\nmax_mib = 8\n\
             [server]\nlisten = \"{listen}\"\n[tls]\nca = \"/etc/rdmesh/ca.crt\"\n\
             certificate = \"/etc/rdmesh/a.crt\"\nkey = \"/etc/rdmesh/a.key\"\n"
        );
        self.write("etc/rdmesh/tracer.toml", &text);
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = rdmesh(&["doctor", "--root"]);
        command.arg(self.root.path()).args(arguments);
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.programs.path().display()));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("NCCL_")) {
            command.env_remove(name);
        }
        command
    }

    fn ask(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// The checks, by name; several of one name are one after the other.
    fn checks(&self, arguments: &[&str]) -> (i32, Vec<Value>) {
        let output = self.ask(&[arguments, &["-o", "json"]].concat());
        let answer = json(&stdout(&output));
        (code(&output), answer["checks"].as_array().unwrap().clone())
    }
}

fn problems(checks: &[Value]) -> Vec<(&str, &str)> {
    let problems = checks.iter().filter(|check| check["status"] == "problem");
    problems
        .map(|check| {
            assert!(check["next"].is_string(), "{check}");
            (
                check["name"].as_str().unwrap(),
                check["found"].as_str().unwrap(),
            )
        })
        .collect()
}

#[test]
fn a_host_that_is_well_has_nothing_to_do() {
    let host = Host::new();
    let output = host.ask(&[]);
    let said = stdout(&output);
    assert_eq!((code(&output), stderr(&output).as_str()), (0, ""), "{said}");
    assert!(said.starts_with("gpu-01: "), "{said}");
    assert!(!said.contains("What to do"), "{said}");
    let (_, checks) = host.checks(&[]);
    let found = |name: &str| {
        let check = checks.iter().find(|check| check["name"] == name);
        let check = check.unwrap_or_else(|| panic!("{name} in {said}"));
        assert_eq!(check["status"], "ok", "{check}");
        check["found"].as_str().unwrap().to_owned()
    };
    assert!(found("collector of tracer-svc").ends_with("answers over TLS"));
    assert!(found("address of tracer-svc").ends_with("answers over TLS"));
    assert!(found("certificate of tracer-svc").starts_with("rdmesh://site-a/agent/gpu-01"));
    // Both are this machine's clock.
    let clock = format!("clock against {}", host.collector.address);
    assert_eq!(found(&clock), "not off by more than 2 s");
    assert_eq!(
        found("configuration of tracer-svc"),
        "/etc/rdmesh/tracer.toml is valid"
    );
}

#[test]
fn what_is_wrong_is_told_with_what_to_do_and_by_the_exit_code() {
    let host = Host::new();
    let closed = closed_address();
    host.configure(&closed, &host.tracer.address);
    host.program(
        "tracer-svc",
        "echo 'tracer-svc: line 1: unknown field' >&2; exit 2",
    );
    fs::remove_file(host.root.path().join("sys/kernel/btf/vmlinux")).unwrap();
    fs::set_permissions(
        host.root.path().join("etc/rdmesh/a.key"),
        PermissionsExt::from_mode(0o644),
    )
    .unwrap();
    let (code_of_it, checks) = host.checks(&["--shaped"]);
    assert_eq!(code_of_it, 6);
    let problems = problems(&checks);
    for (name, words) in [
        ("types of the kernel (BTF)", "there is no"),
        ("configuration of tracer-svc", "unknown field"),
        ("certificate of tracer-svc", "everybody on this machine"),
        ("NCCL_IB_ECE_ENABLE", "is not set"),
    ] {
        let told = problems
            .iter()
            .any(|(of, found)| *of == name && found.contains(words));
        assert!(told, "{name}: {words} in {problems:?}");
    }
    let said = stdout(&host.ask(&[]));
    assert!(said.contains("\nWhat to do\n  1. "), "{said}");
}

#[test]
fn a_collector_that_is_not_there_and_one_without_tls_are_told_apart() {
    let host = Host::new();
    let closed = closed_address();
    host.configure(&closed, &host.tracer.address);
    let (_, checks) = host.checks(&[]);
    let told = problems(&checks);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].1.contains("nobody answers at"), "{told:?}");
    let plain = Fake::start();
    host.configure(&plain.address, &host.tracer.address);
    let (_, checks) = host.checks(&[]);
    let told = problems(&checks);
    assert!(told[0].1.contains("does not speak TLS"), "{told:?}");
}

#[test]
fn the_callers_own_certificate_and_collector_are_looked_at_too() {
    let host = Host::new();
    let operator: Files = host.site.issue(Role::Operator, "ada");
    let output = host
        .command(&["--collector", &host.collector.address, "-o", "json"])
        .args(options(&operator))
        .output()
        .unwrap();
    let said = stdout(&output);
    assert_eq!(code(&output), 0, "{said}");
    for words in [
        "your collector",
        "your certificate",
        "rdmesh://site-a/operator/ada",
    ] {
        assert!(said.contains(words), "{words} in {said}");
    }
    // Wrong usage stays wrong usage.
    let output = host.ask(&["--collector", "a b"]);
    assert_eq!((code(&output), stdout(&output).as_str()), (2, ""));
}

#[test]
fn pipes_endless_files_and_programs_that_hang_end_it_all_the_same() {
    let host = Host::new();
    let port = host.root.path().join("sys/class/infiniband/mlx5_0/ports/1");
    fs::remove_file(port.join("state")).unwrap();
    mknodat(
        CWD,
        port.join("state"),
        FileType::Fifo,
        Mode::RUSR | Mode::WUSR,
        0,
    )
    .unwrap();
    for odd in ["rate", "phys_state"] {
        std::os::unix::fs::symlink("/dev/zero", port.join(odd)).unwrap();
    }
    host.write(
        "sys/class/infiniband/mlx5_\u{1b}[31m/ports/1/state",
        "\u{1b}[2J",
    );
    host.program("timedatectl", "exec sleep 600");
    let begun = Instant::now();
    let output = host.ask(&[]);
    let said = stdout(&output);
    assert!(begun.elapsed() < DEADLINE);
    assert!(!output.stdout.contains(&0x1b), "{said}");
    assert!(said.contains("timedatectl did not end"), "{said}");
    assert!(said.contains("no regular file"), "{said}");
}

/// The machine on which the tests run, whatever it is.
#[test]
fn this_machine_can_be_looked_at() {
    let output = rdmesh(&["doctor", "-o", "json"]).output().unwrap();
    assert!(matches!(code(&output), 0 | 6), "{}", stderr(&output));
    let answer = json(&stdout(&output));
    assert!(answer["checks"].as_array().unwrap().len() > 5);
    assert_eq!(answer["problems"].as_u64() > Some(0), code(&output) == 6);
}
