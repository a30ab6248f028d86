//! The commented configuration files: complete, true, and taken.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use rdmesh_packaging::options::{known, names, printed, sections, uncommented};
use rdmesh_packaging::{SERVICES, ask, root, said, text};
use toml::{Table, Value};

/// Options whose line in the file is an example and not a default: nothing that could stand
/// there for every site shapes anything.
const EXAMPLES: [(&str, &[&str]); 3] = [
    ("collector", &[]),
    ("shaper", &["dpdk.cpu", "dpdk.devices", "wires"]),
    ("tracer", &[]),
];

/// Those of a wire.
const EXAMPLES_OF_A_WIRE: [&str; 4] = ["in_port", "marking", "name", "out_port"];

/// A wire with nothing but what it must have.
const PLAIN_WIRE: &str = r#"wires=[{name="vf0", in_port="a", out_port="b"}]"#;

fn path(service: &str) -> String {
    format!("packaging/config/{service}.toml")
}

/// The file with every option in force, as a file and as a table.
fn all(service: &str) -> Result<(tempfile::NamedTempFile, Table)> {
    let text = uncommented(&text(&path(service))?);
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), &text)?;
    let table = text
        .parse()
        .with_context(|| format!("{} uncommented", path(service)))?;
    Ok((file, table))
}

/// Takes the options out whose lines are examples.
fn without_examples(mut table: Table, service: &str) -> Table {
    let examples = EXAMPLES.iter().find(|(name, _)| *name == service);
    for example in examples.map_or(&[][..], |(_, examples)| examples) {
        match example.split_once('.') {
            None => {
                table.remove(*example);
            }
            Some((section, key)) => {
                if let Some(Value::Table(section)) = table.get_mut(section) {
                    section.remove(key);
                }
            }
        }
    }
    table
}

#[test]
fn every_option_in_force_is_accepted() -> Result<()> {
    for service in SERVICES {
        let (file, _) = all(service)?;
        let path = file.path().to_string_lossy().into_owned();
        let answer = said(&ask(service, &["--config", &path, "--check-config"])?)
            .with_context(|| service)?;
        assert_eq!(answer, format!("configuration of {service} is valid\n"));
    }
    Ok(())
}

#[test]
fn every_option_stands_there_with_its_default() -> Result<()> {
    for service in SERVICES {
        let (_file, table) = all(service)?;
        let table = without_examples(table, service);
        let defaults = without_examples(printed(service, &[])?, service);
        assert_eq!(table, defaults, "{}", path(service));
    }
    Ok(())
}

#[test]
fn a_wires_options_stand_there_with_their_defaults() -> Result<()> {
    let wire = |table: &Table| -> Result<Table> {
        let wire = table["wires"].get(0).and_then(Value::as_table).cloned();
        let mut wire = wire.context("a wire")?;
        for example in EXAMPLES_OF_A_WIRE {
            wire.remove(example);
        }
        Ok(wire)
    };
    let (_file, table) = all("shaper")?;
    let defaults = printed("shaper", &["--set", PLAIN_WIRE])?;
    assert_eq!(wire(&table)?, wire(&defaults)?);
    Ok(())
}

#[test]
fn no_option_is_forgotten() -> Result<()> {
    for service in SERVICES {
        let (_file, table) = all(service)?;
        let shown = names(&table);
        let defaults = printed(service, &[])?;
        let mut asked = sections(&defaults);
        if service == "shaper" {
            asked.extend(["wires".to_owned(), "wires.marking".to_owned()]);
        }
        let is_section: BTreeSet<String> = asked.iter().cloned().collect();
        let mut expected = BTreeSet::new();
        for section in asked {
            let keys = known(service, &section)
                .with_context(|| format!("{service}, section [{section}]"))?;
            ensure!(!keys.is_empty(), "{service}, section [{section}]: no keys");
            for key in keys {
                let dot = if section.is_empty() { "" } else { "." };
                let key = format!("{section}{dot}{key}");
                if !is_section.contains(&key) {
                    expected.insert(key);
                }
            }
        }
        assert_eq!(shown, expected, "{}", path(service));
        // And what it prints is among what it knows.
        let missing: Vec<String> = names(&defaults)
            .difference(&expected)
            .filter(|name| *name != "wires")
            .cloned()
            .collect();
        assert!(missing.is_empty(), "{service} prints {missing:?}");
    }
    Ok(())
}

#[test]
fn as_installed_the_files_change_nothing() -> Result<()> {
    for service in SERVICES {
        let file = root().join(path(service));
        let file = file.to_string_lossy();
        let text = said(&ask(service, &["--config", &file, "--print-config"])?)?;
        assert_eq!(text.parse::<Table>()?, printed(service, &[])?, "{service}");
    }
    Ok(())
}

#[test]
fn without_a_wire_the_shapers_file_says_what_is_missing() -> Result<()> {
    let file = root().join(path("shaper"));
    let file = file.to_string_lossy();
    let output = ask("shaper", &["--config", &file, "--check-config"])?;
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("[[wires]]"), "{message}");
    Ok(())
}

#[test]
fn every_option_is_explained() -> Result<()> {
    for service in SERVICES {
        let text = text(&path(service))?;
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let option = line
                .strip_prefix('#')
                .is_some_and(|rest| rest.starts_with(|c: char| c != ' '));
            if option && !line.starts_with("#[[") {
                let above = at.checked_sub(1).map_or("", |above| lines[above]);
                assert!(
                    above.starts_with("# ") && above.ends_with(['.', ':', ')']),
                    "{}:{}: no sentence above {line}",
                    path(service),
                    at + 1
                );
            }
            assert!(line.len() <= 100, "{}:{}: too long", path(service), at + 1);
        }
    }
    Ok(())
}
