//! Who changed what: one line of JSON per change, synced before the change is made.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

/// Size at which the record is put aside as `audit.jsonl.1`, bytes: some 30,000
/// changes. The one put aside before is replaced.
const MAX_BYTES: u64 = 8 << 20;

/// What is read of the record's end at a start, bytes: some 3,000 changes.
const TAIL_BYTES: u64 = 1 << 20;

/// How a change left a wire.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Past {
    /// Which wire.
    pub wire: String,
    /// What happened.
    pub action: String,
    /// Rate afterwards, bit/s; 0: not shaped.
    pub to_rate_bps: u64,
    /// Around the shaper afterwards.
    pub bypass: bool,
    /// Policy generation afterwards.
    pub generation: u64,
}

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

/// The record, opened for each entry: changes are rare, and a disk that was full when the
/// service started may have room by then.
#[derive(Debug)]
pub struct Audit {
    path: PathBuf,
    max_bytes: u64,
}

/// Where the record ended before an entry.
#[derive(Debug)]
pub struct End {
    file: File,
    bytes: u64,
}

impl End {
    /// Takes back what was appended since.
    ///
    /// # Errors
    /// What the system says.
    pub fn restore(&self) -> io::Result<()> {
        self.file.set_len(self.bytes)?;
        self.file.sync_data()
    }
}

impl Audit {
    /// The record at `path`, which need not exist yet.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            max_bytes: MAX_BYTES,
        }
    }

    /// Appends entries and syncs them: all or none. Returns where the record ended before.
    ///
    /// # Errors
    /// What the system says; the change must then not be made.
    pub fn append(&self, entries: &[Entry]) -> io::Result<End> {
        let (mut end, is_torn) = self.end()?;
        let mut lines = Vec::new();
        if is_torn {
            // A kill in the middle of a line spoils that line alone.
            lines.push(b'\n');
        }
        for entry in entries {
            serde_json::to_writer(&mut lines, entry)?;
            lines.push(b'\n');
        }
        let written = end.file.write_all(&lines);
        match written.and_then(|()| end.file.sync_data()) {
            Ok(()) => Ok(end),
            Err(error) => {
                // Half a line, or a line of a change that is not made.
                let _ = end.restore();
                Err(error)
            }
        }
    }

    /// How the record's last entries say that wires were left, a wire each. What cannot be
    /// read is left out: the record is for people first.
    #[must_use]
    pub fn last_of_each(&self) -> BTreeMap<String, Past> {
        let read = || -> io::Result<Vec<u8>> {
            let mut file = File::open(&self.path)?;
            let meta = file.metadata()?;
            if !meta.is_file() {
                return Ok(Vec::new());
            }
            file.seek(SeekFrom::Start(meta.len().saturating_sub(TAIL_BYTES)))?;
            let mut tail = Vec::new();
            file.take(TAIL_BYTES).read_to_end(&mut tail)?;
            Ok(tail)
        };
        let tail = read().unwrap_or_default();
        let lines = tail.split(|&byte| byte == b'\n');
        let entries = lines.filter_map(|line| serde_json::from_slice::<Past>(line).ok());
        entries.map(|past| (past.wire.clone(), past)).collect()
    }

    /// The end of the record, after it was put aside if it is long, and whether its last
    /// line was cut.
    fn end(&self) -> io::Result<(End, bool)> {
        let open = || {
            let mut options = OpenOptions::new();
            options
                .create(true)
                .append(true)
                .read(true)
                .open(&self.path)
        };
        let mut file = open()?;
        let mut bytes = file.metadata()?.len();
        if bytes > self.max_bytes {
            let mut aside = self.path.clone().into_os_string();
            aside.push(".1");
            fs::rename(&self.path, aside)?;
            file = open()?;
            bytes = 0;
        }
        let mut last = [b'\n'];
        if bytes > 0 {
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
        }
        Ok((End { file, bytes }, last != [b'\n']))
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

    fn entry() -> Entry {
        Entry::by_itself(SystemTime::UNIX_EPOCH, "vf0", "expired")
    }

    fn lines(path: &Path) -> Vec<String> {
        let text = fs::read_to_string(path).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn lines_are_appended_over_restarts_and_put_aside_when_there_are_many() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.jsonl");
        Audit::at(&path).append(&[entry()]).unwrap();
        let mut audit = Audit::at(&path);
        audit.append(&[entry(), entry()]).unwrap();
        assert_eq!(lines(&path).len(), 3);
        let line: serde_json::Value = serde_json::from_str(&lines(&path)[0]).unwrap();
        assert_eq!(
            (line["wire"].as_str(), line["action"].as_str()),
            (Some("vf0"), Some("expired"))
        );

        audit.max_bytes = 10;
        audit.append(&[entry()]).unwrap();
        assert_eq!(lines(&path).len(), 1);
        assert_eq!(lines(&directory.path().join("audit.jsonl.1")).len(), 3);
    }

    #[test]
    fn a_line_that_was_cut_spoils_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.jsonl");
        fs::write(&path, "{\"at_ms\": 1, \"pe").unwrap();
        Audit::at(&path).append(&[entry()]).unwrap();
        let lines = lines(&path);
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(serde_json::from_str::<serde_json::Value>(&lines[1]).is_ok());
    }

    #[test]
    fn an_entry_can_be_taken_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.jsonl");
        let audit = Audit::at(&path);
        audit.append(&[entry()]).unwrap();
        let before = fs::read(&path).unwrap();
        audit
            .append(&[entry(), entry()])
            .unwrap()
            .restore()
            .unwrap();
        assert_eq!(fs::read(&path).unwrap(), before);
    }

    #[test]
    fn a_full_disk_leaves_no_half_of_an_entry() {
        // Writing to it fails as on a full disk.
        let error = Audit::at(Path::new("/dev/full"))
            .append(&[entry()])
            .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}
