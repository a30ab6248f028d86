//! What is said to NCCL where this host's jobs can see it: the environment, and files that NCCL
//! reads (NCCL's documentation, "Environment Variables": the environment wins, then the user's
//! file, then the machine's).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::files::{SMALL_BYTES, bytes, names, under};
use crate::doctor::facts::{Looked, Nccl, NcclSetting};

/// What names the user's file in place of ~/.nccl.conf.
const FILE_VARIABLE: &str = "NCCL_CONF_FILE";

/// The machine's file.
const MACHINE_FILE: &str = "/etc/nccl.conf";

pub(super) fn look(
    root: &Path,
    environment: &[(String, String)],
    home: Option<&Path>,
    shaped: Option<bool>,
) -> Nccl {
    let mut found: BTreeMap<String, NcclSetting> = BTreeMap::new();
    let mut keep = |name: &str, value: &str, from: &str| {
        let setting = || NcclSetting {
            name: name.to_owned(),
            value: value.to_owned(),
            from: from.to_owned(),
        };
        found.entry(name.to_owned()).or_insert_with(setting);
    };
    let ours = environment
        .iter()
        .filter(|(name, _)| name.starts_with("NCCL_"));
    for (name, value) in ours.clone() {
        keep(name, value, "the environment");
    }
    let named = ours.clone().find(|(name, _)| name == FILE_VARIABLE);
    let user_file = named
        .map(|(_, path)| PathBuf::from(path))
        .or_else(|| home.map(|home| home.join(".nccl.conf")));
    let mut unread = Vec::new();
    for file in user_file.into_iter().chain([PathBuf::from(MACHINE_FILE)]) {
        match bytes(&under(root, &file), SMALL_BYTES) {
            Looked::Found(text) => {
                for (name, value) in lines(&String::from_utf8_lossy(&text)) {
                    keep(name, value, &file.display().to_string());
                }
            }
            Looked::Absent => {}
            Looked::Unknown(why) => unread.push(why),
        }
    }
    Nccl {
        settings: found.into_values().collect(),
        unread,
        shaped,
        interfaces: names(&under(root, "sys/class/net")).found().cloned(),
    }
}

/// `NAME=VALUE`, one a line; what begins with `#` is none.
fn lines(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'));
    lines.filter_map(|line| {
        let (name, value) = line.split_once('=')?;
        Some((name.trim(), value.trim()))
    })
}
