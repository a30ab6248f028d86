//! Reads the repository as text, for the tests that hold its rules: layout,
//! names, lints, the way imports run, the wire contract. It never builds or runs
//! anything.

use std::fs;
use std::path::{Path, PathBuf};

pub mod contract;

/// A workspace member as its manifest tells it.
#[derive(Debug)]
pub struct Member {
    /// Folder, relative to the repository.
    pub folder: PathBuf,
    /// `package.name`.
    pub name: String,
    /// The whole manifest.
    pub manifest: toml::Table,
}

impl Member {
    /// Names of the members of this workspace that it needs to be built (not
    /// those that only its tests need), sorted.
    #[must_use]
    pub fn internal_dependencies(&self) -> Vec<String> {
        let mut names: Vec<String> = self
            .manifest
            .get("dependencies")
            .and_then(toml::Value::as_table)
            .into_iter()
            .flat_map(|table| table.keys())
            .filter(|name| name.starts_with("rdmesh-"))
            .cloned()
            .collect();
        names.sort();
        names
    }
}

/// The repository's top folder.
#[must_use]
pub fn root() -> PathBuf {
    let mut path = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    path.pop();
    path.pop();
    path
}

/// All workspace members.
///
/// # Panics
/// When a manifest cannot be read: the tests that call this have nothing to say
/// then.
#[must_use]
pub fn members() -> Vec<Member> {
    let workspace = table(&root().join("Cargo.toml"));
    let folders = workspace["workspace"]["members"]
        .as_array()
        .expect("members is a list")
        .clone();
    folders
        .into_iter()
        .map(|folder| {
            let folder = PathBuf::from(folder.as_str().expect("a member is a path"));
            let manifest = table(&root().join(&folder).join("Cargo.toml"));
            let name = manifest["package"]["name"]
                .as_str()
                .expect("a package has a name")
                .to_owned();
            Member {
                folder,
                name,
                manifest,
            }
        })
        .collect()
}

/// Every Rust source below `folder`, without what is generated or built.
///
/// # Panics
/// When a folder cannot be read.
#[must_use]
pub fn rust_sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).expect("a folder can be read") {
            let path = entry.expect("an entry can be read").path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if path.is_dir() {
                if name != "target" && !name.starts_with('.') {
                    open.push(path);
                }
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The text of a file of the repository.
///
/// # Panics
/// When it cannot be read.
#[must_use]
pub fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn table(path: &Path) -> toml::Table {
    text(path)
        .parse()
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}
