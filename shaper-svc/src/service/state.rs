//! What survives a restart, in a file that is either the old one or the new one.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Outages that are remembered: at one a day, three months.
pub const MAX_OUTAGES: usize = 100;

/// Largest state file, bytes: 1,024 requests and 100 outages have 300 KB.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// What is remembered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    /// Wires by name.
    pub wires: Vec<SavedWire>,
    /// Requests by id, oldest first.
    pub requests: Vec<Remembered>,
    /// Times without data path, oldest first.
    pub outages: Vec<SavedOutage>,
}

/// A wire as it was asked to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedWire {
    /// Its name.
    pub name: String,
    /// A rate in place of the configured one, bit/s.
    pub rate_bps: Option<u64>,
    /// When that ends, ms since 1970.
    pub expires_at_ms: Option<u64>,
    /// Around the shaper.
    pub bypass: bool,
    /// Its last change.
    pub generation: u64,
}

/// A request that was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
    /// Its id.
    pub id: String,
    /// Its content.
    pub what: String,
}

/// A time in which the data path did not run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedOutage {
    /// First instant, ms since 1970.
    pub from_ms: u64,
    /// Last instant; absent while it lasts.
    pub to_ms: Option<u64>,
    /// Why.
    pub cause: String,
}

/// Why the state cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The system refuses.
    #[error("cannot {doing} {path}: {source}; the service's user must own `state_directory`")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is not ours, or it is damaged.
    #[error(
        "{path} is no state of the shaper: {why}; move it away to start with the configured rates"
    )]
    Damaged {
        /// Where.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

/// The files of a state directory.
#[derive(Clone, Debug)]
pub struct StateFiles {
    directory: PathBuf,
}

impl StateFiles {
    /// Makes the directory if it is missing.
    ///
    /// # Errors
    /// [`StateError::Io`].
    pub fn open(directory: &Path) -> Result<Self, StateError> {
        fs::create_dir_all(directory).map_err(fail("make", directory))?;
        Ok(Self {
            directory: directory.to_owned(),
        })
    }

    /// Where the state is.
    #[must_use]
    pub fn state_path(&self) -> PathBuf {
        self.directory.join("state.json")
    }

    /// Where the audit record is.
    #[must_use]
    pub fn audit_path(&self) -> PathBuf {
        self.directory.join("audit.jsonl")
    }

    fn alive_path(&self) -> PathBuf {
        self.directory.join("alive")
    }

    /// The state; an empty one when there is no file.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn load(&self) -> Result<State, StateError> {
        let path = self.state_path();
        let text = match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(State::default()),
            Err(error) => return Err(fail("read", &path)(error)),
            Ok(meta) if meta.len() > MAX_FILE_BYTES => {
                let why = format!("it has {} bytes", meta.len());
                return Err(StateError::Damaged { path, why });
            }
            Ok(_) => fs::read_to_string(&path).map_err(fail("read", &path))?,
        };
        serde_json::from_str(&text).map_err(|e| StateError::Damaged {
            path,
            why: e.to_string(),
        })
    }

    /// Replaces the state: written aside, synced, renamed, and the rename synced. A
    /// power cut leaves the old file or the new one.
    ///
    /// # Errors
    /// [`StateError::Io`]; the old file is still in place.
    pub fn save(&self, state: &State) -> Result<(), StateError> {
        let path = self.state_path();
        let aside = self.directory.join("state.json.new");
        let text = serde_json::to_vec_pretty(state)
            .map_err(|e| fail("encode", &path)(io::Error::other(e)))?;
        let write = || -> io::Result<()> {
            let mut file = File::create(&aside)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&aside, &path)?;
            File::open(&self.directory)?.sync_all()
        };
        write().map_err(fail("write", &path))
    }

    /// Notes that windows are made at `now`: after a power cut or a kill, the next run
    /// knows since when none were.
    ///
    /// # Errors
    /// [`StateError::Io`].
    pub fn note_alive(&self, now: SystemTime) -> Result<(), StateError> {
        let path = self.alive_path();
        fs::write(&path, to_ms(now).to_string()).map_err(fail("write", &path))
    }

    /// When windows were last known to be made. `None` when they never were.
    #[must_use]
    pub fn last_alive(&self) -> Option<SystemTime> {
        let text = fs::read_to_string(self.alive_path()).ok()?;
        text.trim().parse().ok().map(from_ms)
    }
}

fn fail(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StateError {
    let path = path.to_owned();
    move |source| StateError::Io {
        doing,
        path,
        source,
    }
}

/// Milliseconds since 1970; 0 for earlier times.
#[must_use]
pub fn to_ms(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The instant of so many milliseconds since 1970, within the year 9999.
#[must_use]
pub fn from_ms(ms: u64) -> SystemTime {
    const YEAR_9999_MS: u64 = 253_402_300_799_000;
    UNIX_EPOCH + Duration::from_millis(ms.min(YEAR_9999_MS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        State {
            wires: vec![SavedWire {
                name: "vf0".into(),
                rate_bps: Some(10_000_000_000),
                expires_at_ms: Some(1_800_000_000_000),
                bypass: false,
                generation: 7,
            }],
            requests: vec![Remembered {
                id: "a".into(),
                what: "b".into(),
            }],
            outages: vec![SavedOutage {
                from_ms: 1,
                to_ms: None,
                cause: "killed".into(),
            }],
        }
    }

    #[test]
    fn what_is_saved_is_loaded() {
        let directory = tempfile::tempdir().unwrap();
        let files = StateFiles::open(&directory.path().join("a/b")).unwrap();
        assert_eq!(files.load().unwrap(), State::default());
        files.save(&state()).unwrap();
        assert_eq!(files.load().unwrap(), state());
        assert_eq!(files.last_alive(), None);
        files.note_alive(from_ms(1234)).unwrap();
        assert_eq!(files.last_alive(), Some(from_ms(1234)));
    }

    #[test]
    fn a_write_that_was_cut_short_leaves_the_old_state() {
        let directory = tempfile::tempdir().unwrap();
        let files = StateFiles::open(directory.path()).unwrap();
        files.save(&state()).unwrap();
        // What a kill in the middle of a write leaves behind.
        fs::write(
            directory.path().join("state.json.new"),
            "{\"wires\": [{\"na",
        )
        .unwrap();
        assert_eq!(files.load().unwrap(), state());
        files.save(&State::default()).unwrap();
        assert_eq!(files.load().unwrap(), State::default());
    }

    #[test]
    fn a_damaged_file_is_named_and_kept() {
        let directory = tempfile::tempdir().unwrap();
        let files = StateFiles::open(directory.path()).unwrap();
        fs::write(files.state_path(), "not json").unwrap();
        let message = files.load().unwrap_err().to_string();
        assert!(
            message.contains("state.json") && message.contains("move it away"),
            "{message}"
        );
    }

    #[test]
    fn a_state_that_cannot_be_written_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let files = StateFiles::open(directory.path()).unwrap();
        // A directory in the place of the file, since root may write anywhere.
        fs::create_dir_all(files.state_path().join("x")).unwrap();
        assert!(matches!(files.save(&state()), Err(StateError::Io { .. })));
    }
}
