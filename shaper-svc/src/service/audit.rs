//! Who changed what: one line of JSON per change, synced before the change is made.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Serialize;

/// Size at which the record is put aside as `audit.jsonl.1`, bytes: some 30,000
/// changes. The one put aside before is replaced.
const MAX_BYTES: u64 = 8 << 20;

/// One change.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// When, ms since 1970.
    pub at_ms: u64,
    /// Peer address, or `shaper` for what happens by itself.
    pub peer: String,
    /// Who, as the client says (metadata `rdmesh-user`).
    pub user: String,
    /// Its request id.
    pub request_id: String,
    /// Why, as the client says.
    pub reason: String,
    /// Which wire.
    pub wire: String,
    /// What.
    pub action: &'static str,
    /// Rate before, bit/s; 0: not shaped.
    pub from_rate_bps: u64,
    /// Rate after, bit/s; 0: not shaped.
    pub to_rate_bps: u64,
    /// When it ends by itself, ms since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at_ms: Option<u64>,
    /// Around the shaper afterwards.
    pub bypass: bool,
    /// Policy generation afterwards.
    pub generation: u64,
}

/// The record, open for appending.
#[derive(Debug)]
pub struct Audit {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl Audit {
    /// Opens or begins the record.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let bytes = file.metadata()?.len();
        Ok(Self {
            path: path.to_owned(),
            file,
            bytes,
        })
    }

    /// Appends entries and syncs them.
    ///
    /// # Errors
    /// What the system says; the change must then not be made.
    pub fn append(&mut self, entries: &[Entry]) -> io::Result<()> {
        if self.bytes > MAX_BYTES {
            let mut aside = self.path.clone().into_os_string();
            aside.push(".1");
            fs::rename(&self.path, aside)?;
            *self = Self::open(&self.path)?;
        }
        let mut lines = Vec::new();
        for entry in entries {
            serde_json::to_writer(&mut lines, entry)?;
            lines.push(b'\n');
        }
        self.file.write_all(&lines)?;
        self.file.sync_data()?;
        self.bytes += lines.len() as u64;
        Ok(())
    }
}

impl Entry {
    /// An entry of what happens by itself.
    #[must_use]
    pub fn by_itself(now: SystemTime, wire: &str, action: &'static str) -> Self {
        Self {
            at_ms: super::state::to_ms(now),
            peer: "shaper".to_owned(),
            user: String::new(),
            request_id: String::new(),
            reason: String::new(),
            wire: wire.to_owned(),
            action,
            from_rate_bps: 0,
            to_rate_bps: 0,
            expires_at_ms: None,
            bypass: false,
            generation: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_appended_over_restarts_and_put_aside_when_there_are_many() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.jsonl");
        let entry = Entry::by_itself(SystemTime::UNIX_EPOCH, "vf0", "expired");
        Audit::open(&path)
            .unwrap()
            .append(std::slice::from_ref(&entry))
            .unwrap();
        let mut audit = Audit::open(&path).unwrap();
        audit.append(&[entry.clone(), entry.clone()]).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 3);
        let line: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert_eq!(
            (line["wire"].as_str(), line["action"].as_str()),
            (Some("vf0"), Some("expired"))
        );

        audit.bytes = MAX_BYTES + 1;
        audit.append(&[entry]).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 1);
        let aside = directory.path().join("audit.jsonl.1");
        assert_eq!(fs::read_to_string(aside).unwrap().lines().count(), 3);
    }
}
