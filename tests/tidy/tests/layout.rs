//! Layout, names, lints and the way imports run.

use std::path::Path;

use rdmesh_tidy::{members, root, rust_sources, text};

/// A file or folder with such a name becomes an attic.
const NAMES_THAT_SAY_NOTHING: [&str; 7] = [
    "utils", "common", "helpers", "misc", "manager", "core", "base",
];

/// A longer file is telling of a missing name.
const LONGEST_FILE_LINES: usize = 600;

#[test]
fn every_member_inherits_the_lints() {
    for member in members() {
        let inherits = member
            .manifest
            .get("lints")
            .and_then(|lints| lints.get("workspace"))
            .and_then(toml::Value::as_bool);
        assert_eq!(
            inherits,
            Some(true),
            "{} does not inherit the lints",
            member.name
        );
    }
}

#[test]
fn every_member_shares_edition_licence_and_rust_version() {
    for member in members() {
        for key in ["edition", "license", "rust-version", "version"] {
            let inherited = member.manifest["package"]
                .get(key)
                .and_then(|value| value.get("workspace"))
                .and_then(toml::Value::as_bool);
            assert_eq!(
                inherited,
                Some(true),
                "{}: package.{key} is not inherited",
                member.name
            );
        }
    }
}

/// What each member may import of the workspace. Anything else is refused, so
/// that a new arrow is drawn on purpose.
fn allowed(member: &str) -> &'static [&'static str] {
    match member {
        "rdmesh-store" | "rdmesh-joblog" | "rdmesh-tidy" | "rdmesh-tls" => &["rdmesh-proto"],
        "rdmesh-services" => &["rdmesh-proto", "rdmesh-tls"],
        "rdmesh-client" => &["rdmesh-joblog", "rdmesh-proto", "rdmesh-tls"],
        "rdmesh-tracer" => &["rdmesh-proto", "rdmesh-services"],
        "rdmesh-shaper" => &["rdmesh-proto", "rdmesh-services", "rdmesh-dpdk-sys"],
        "rdmesh-collector" => &[
            "rdmesh-joblog",
            "rdmesh-proto",
            "rdmesh-services",
            "rdmesh-store",
            // Its tests make certificates.
            "rdmesh-tls",
        ],
        // What drives the lab stands above everything and is imported by nothing.
        "rdmesh-lab" => &[
            "rdmesh-client",
            "rdmesh-guest",
            "rdmesh-proto",
            "rdmesh-simulated",
            "rdmesh-test-postgres",
        ],
        // The real uplink, and nothing else of an agent.
        "rdmesh-simulated" => &["rdmesh-proto", "rdmesh-services"],
        _ => &[],
    }
}

#[test]
fn imports_run_one_way() {
    for member in members() {
        for dependency in member.internal_dependencies() {
            assert!(
                allowed(&member.name).contains(&dependency.as_str()),
                "{} imports {dependency}; ARCHITECTURE.md and this table do not draw that arrow",
                member.name
            );
        }
    }
}

#[test]
fn names_say_something() {
    for member in members() {
        for source in rust_sources(&root().join(&member.folder)) {
            let inside = source.strip_prefix(root()).expect("inside the repository");
            for part in inside
                .iter()
                .map(|part| part.to_string_lossy().into_owned())
            {
                let name = part.trim_end_matches(".rs");
                assert!(
                    !NAMES_THAT_SAY_NOTHING.contains(&name),
                    "{}",
                    inside.display()
                );
            }
        }
    }
}

#[test]
fn files_stay_short() {
    let mut long = Vec::new();
    for member in members() {
        for source in rust_sources(&root().join(&member.folder)) {
            let lines = text(&source).lines().count();
            if lines > LONGEST_FILE_LINES {
                long.push(format!("{} ({lines})", source.display()));
            }
        }
    }
    assert!(long.is_empty(), "past {LONGEST_FILE_LINES} lines: {long:?}");
}

#[test]
fn every_library_says_what_it_never_does() {
    for member in members() {
        let lib = root().join(&member.folder).join("src/lib.rs");
        if !lib.exists() {
            continue;
        }
        let opening: String = text(&lib)
            .lines()
            .take_while(|line| line.starts_with("//!"))
            .collect::<Vec<_>>()
            .join(" ");
        assert!(
            opening.contains("never"),
            "{}: lib.rs does not open with what the crate does and never does",
            member.name
        );
    }
}

#[test]
fn sql_stands_in_the_store_alone() {
    for member in members() {
        if member.name == "rdmesh-store" || member.name == "rdmesh-tidy" {
            continue;
        }
        let depends = member
            .manifest
            .get("dependencies")
            .and_then(toml::Value::as_table);
        assert!(
            depends.is_none_or(|table| !table.contains_key("sqlx")),
            "{} imports sqlx: SQL belongs to store/",
            member.name
        );
    }
}

/// Where `unsafe` may stand: the BPF and DPDK bindings, the layer right above
/// them, and the lab's programs that make system calls of their own.
const UNSAFE_FOLDERS: [&str; 5] = [
    "tracer-svc/src/loader",
    "shaper-svc/dpdk-sys",
    "shaper-svc/src/dpdk",
    "tests/verbs",
    "tests/guest",
];

#[test]
fn unsafe_stands_where_it_may_and_says_why_it_is_sound() {
    for member in members() {
        for source in rust_sources(&root().join(&member.folder)) {
            let inside = source.strip_prefix(root()).expect("inside the repository");
            if inside.starts_with("tests/tidy") {
                continue;
            }
            check_unsafe(inside, &text(&source));
        }
    }
}

fn check_unsafe(path: &Path, source: &str) {
    let mut said_why = false;
    for (number, line) in source.lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        if line.contains("SAFETY") {
            said_why = true;
        }
        if code.contains("unsafe {") || code.contains("unsafe{") {
            let place = format!("{}:{}", path.display(), number + 1);
            assert!(said_why, "{place}: no SAFETY line right above");
            assert!(
                UNSAFE_FOLDERS.iter().any(|folder| path.starts_with(folder)),
                "{place}: unsafe stands outside {UNSAFE_FOLDERS:?}"
            );
        }
        if !code.trim().is_empty() {
            said_why = false;
        }
    }
}

#[test]
fn bpf_sources_name_their_licence() {
    let folder = root().join("tracer-svc/bpf");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).expect("the BPF sources are there") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|e| e == "c" || e == "h") {
            let first = text(&path).lines().next().unwrap_or_default().to_owned();
            assert!(
                first.contains("SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)"),
                "{}: {first}",
                path.display()
            );
            seen += 1;
        }
    }
    assert!(seen > 0);
}

#[test]
fn ci_runs_the_commands_of_the_readme() {
    let ci = text(&root().join(".ci/run"));
    assert!(ci.contains("make test"), ".ci/run does not call make test");
    let readme = text(&root().join("README.md"));
    for command in ["make demo", "make test"] {
        assert!(
            readme.contains(command),
            "README.md does not name `{command}`"
        );
    }
}
