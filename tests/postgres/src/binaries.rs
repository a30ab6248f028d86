//! Where the server's programs are, and the account that runs them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::ClusterError;

/// rdmesh needs Postgres 15 or later.
const OLDEST_MAJOR: u32 = 15;

/// Directories that hold one directory for each major version.
const ROOTS: [(&str, &str); 2] = [("/usr/lib/postgresql", ""), ("/usr", "pgsql-")];

/// The directory of the newest server's programs.
#[derive(Debug)]
pub(crate) struct Binaries(PathBuf);

impl Binaries {
    pub(crate) fn find() -> Result<Self, ClusterError> {
        let mut found: Vec<(u32, PathBuf)> = Vec::new();
        for (root, prefix) in ROOTS {
            for entry in fs::read_dir(root).into_iter().flatten().flatten() {
                let name = entry.file_name();
                let major = name
                    .to_str()
                    .and_then(|n| n.strip_prefix(prefix)?.parse().ok());
                let bin = entry.path().join("bin");
                if let Some(major) = major.filter(|m| *m >= OLDEST_MAJOR)
                    && bin.join("initdb").is_file()
                    && bin.join("postgres").is_file()
                {
                    found.push((major, bin));
                }
            }
        }
        found.sort();
        found
            .pop()
            .map(|(_, bin)| Self(bin))
            .ok_or_else(|| ClusterError::NoBinaries {
                looked: "/usr/lib/postgresql/*/bin and /usr/pgsql-*/bin".into(),
            })
    }

    pub(crate) fn path(&self, program: &str) -> PathBuf {
        self.0.join(program)
    }
}

/// An unprivileged account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl Account {
    /// The account that runs the server: none when we are unprivileged ourselves.
    pub(crate) fn for_server() -> Result<Option<Self>, ClusterError> {
        if !we_are_root() {
            return Ok(None);
        }
        let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
        ["postgres", "nobody"]
            .iter()
            .find_map(|name| Self::named(&passwd, name))
            .map(Some)
            .ok_or(ClusterError::NoAccount)
    }

    fn named(passwd: &str, name: &str) -> Option<Self> {
        let fields = passwd
            .lines()
            .map(|line| line.split(':').collect::<Vec<_>>())
            .find(|fields| fields.first() == Some(&name))?;
        Some(Self {
            uid: fields.get(2)?.parse().ok()?,
            gid: fields.get(3)?.parse().ok()?,
        })
    }
}

/// The owner of our own entry in /proc is our effective user.
fn we_are_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(Path::new("/proc/self")).is_ok_and(|m| m.uid() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_read_from_passwd() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\npostgres:x:104:110::/var/lib:/bin/sh\n";
        assert_eq!(
            Account::named(passwd, "postgres"),
            Some(Account { uid: 104, gid: 110 })
        );
        assert_eq!(Account::named(passwd, "post"), None);
    }
}
