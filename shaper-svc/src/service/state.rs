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

/// Version of the file's format. A file without one is of the first.
const VERSION: u64 = 1;

/// Largest generation that is believed. A change each nanosecond reaches it in a century.
pub const MAX_GENERATION: u64 = 1 << 62;

/// What is remembered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Wires by name.
    pub wires: Vec<SavedWire>,
    /// Requests by id, oldest first.
    pub requests: Vec<Remembered>,
    /// Times without data path, oldest first.
    pub outages: Vec<SavedOutage>,
    /// First generation of wires that nothing is remembered of.
    #[serde(skip)]
    pub first_generation: u64,
}

/// The state as it stands in the file.
#[derive(Serialize)]
struct Written<'a> {
    version: u64,
    #[serde(flatten)]
    state: &'a State,
}

/// A wire as it was asked to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedWire {
    /// Its name.
    pub name: String,
    /// The function that it was of; absent in files of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub virtual_function: Option<String>,
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
    #[error(
        "cannot {doing} {path}: {source}; the disk must have room, and the service's user must \
         own `state_directory`"
    )]
    Io {
        /// What was tried.
        doing: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is not ours, or it is damaged.
    #[error("{path} is no state of the shaper: {why}")]
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
    /// The files of a directory, which is left as it is.
    #[must_use]
    pub fn at(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
        }
    }

    /// Makes the directory if it is missing. One that cannot be made because the disk is
    /// full or read-only, or belongs to somebody else, is made when something is saved: a
    /// host is not cut off for its sake.
    ///
    /// # Errors
    /// [`StateError::Io`] where there can be no such directory.
    pub fn open(directory: &Path) -> Result<Self, StateError> {
        match fs::create_dir_all(directory) {
            Err(error) if cannot_be(&error) => Err(fail("make", directory)(error)),
            Err(error) => {
                tracing::error!(path = %directory.display(), %error, "no state directory");
                Ok(Self::at(directory))
            }
            Ok(()) => Ok(Self::at(directory)),
        }
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
            Ok(meta) if !meta.is_file() => {
                let why = "it is no file".to_owned();
                return Err(StateError::Damaged { path, why });
            }
            Ok(meta) if meta.len() > MAX_FILE_BYTES => {
                let why = format!("it has {} bytes", meta.len());
                return Err(StateError::Damaged { path, why });
            }
            Ok(_) => fs::read(&path).map_err(fail("read", &path))?,
        };
        read(&text).map_err(|why| StateError::Damaged { path, why })
    }

    /// The state, or an empty one and why nothing of the old one is in it: a host is not
    /// cut off for the sake of a file. A file that cannot be read is kept under another
    /// name.
    #[must_use]
    pub fn load_or_set_aside(&self, now: SystemTime) -> (State, Option<String>) {
        let error = match self.load() {
            Ok(state) => return (state, None),
            Err(error) => error,
        };
        let aside = self.directory.join(format!("state.json.{}", to_ms(now)));
        let became_of_it = match fs::rename(self.state_path(), &aside) {
            Ok(()) => format!("it is kept as {}", aside.display()),
            Err(why) => format!("it could not be kept as {}: {why}", aside.display()),
        };
        let lost = State {
            // Above what the lost state had, so that nobody takes a window of before for
            // one of now: nobody made a change a second.
            first_generation: to_ms(now) / 1000,
            ..State::default()
        };
        let why = format!(
            "{error}; {became_of_it}, and the wires started at their configured rates: set anew \
             what had been set"
        );
        (lost, Some(why))
    }

    /// Replaces the state: written aside, synced, renamed, and the rename synced. A
    /// power cut leaves the old file or the new one.
    ///
    /// # Errors
    /// [`StateError::Io`]; the old file is still in place.
    pub fn save(&self, state: &State) -> Result<(), StateError> {
        let path = self.state_path();
        let aside = self.directory.join("state.json.new");
        let written = Written {
            version: VERSION,
            state,
        };
        let text = serde_json::to_vec_pretty(&written)
            .map_err(|e| fail("encode", &path)(io::Error::other(e)))?;
        let write = || -> io::Result<()> {
            fs::create_dir_all(&self.directory)?;
            let mut file = File::create(&aside)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&aside, &path)?;
            File::open(&self.directory)?.sync_all()
        };
        write().map_err(|error| {
            // On a full disk half a file takes room that the next one needs.
            let _ = fs::remove_file(&aside);
            fail("write", &path)(error)
        })
    }

    /// Notes that windows are made at `now`: after a power cut or a kill, the next run
    /// knows since when none were.
    ///
    /// # Errors
    /// [`StateError::Io`].
    pub fn note_alive(&self, now: SystemTime) -> Result<(), StateError> {
        let path = self.alive_path();
        let write = || -> io::Result<()> {
            // In place and always as long, so that a disk that is full now has room for it.
            if fs::metadata(&path).is_ok_and(|meta| !meta.is_file()) {
                return Err(io::Error::other("it is no file"));
            }
            let mut file = File::options()
                .create(true)
                .write(true)
                .truncate(false)
                .open(&path)?;
            file.write_all(format!("{:>20}\n", to_ms(now)).as_bytes())
        };
        write().map_err(fail("write", &path))
    }

    /// When windows were last known to be made. `None` when they never were.
    #[must_use]
    pub fn last_alive(&self) -> Option<SystemTime> {
        let path = self.alive_path();
        // Of anything else than a file reading might never end.
        fs::metadata(&path).ok().filter(fs::Metadata::is_file)?;
        let text = fs::read_to_string(path).ok()?;
        text.trim().parse().ok().map(from_ms)
    }
}

/// A file stands in the way, or a file system in which nobody makes anything.
fn cannot_be(error: &io::Error) -> bool {
    use io::ErrorKind::{AlreadyExists, NotADirectory, NotFound};
    matches!(error.kind(), AlreadyExists | NotADirectory | NotFound)
}

fn read(text: &[u8]) -> Result<State, String> {
    let value: serde_json::Value = serde_json::from_slice(text).map_err(|e| e.to_string())?;
    let serde_json::Value::Object(mut fields) = value else {
        return Err("it holds no object".to_owned());
    };
    let version = fields.remove("version");
    if let Some(version) = version.filter(|version| version.as_u64() != Some(VERSION)) {
        return Err(format!(
            "it is of version {version}, and this shaper reads version {VERSION}"
        ));
    }
    let state: State = serde_json::from_value(fields.into()).map_err(|e| e.to_string())?;
    match state.wires.iter().find(|w| w.generation > MAX_GENERATION) {
        Some(wire) => Err(format!("the generation of wire {} is none", wire.name)),
        None => Ok(state),
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
                virtual_function: Some("vf0".into()),
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
            ..State::default()
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
        assert!(message.contains("state.json is no state"), "{message}");
        let (state, why) = files.load_or_set_aside(from_ms(1_800_000_000_000));
        assert_eq!(state.first_generation, 1_800_000_000);
        assert!(state.wires.is_empty() && state.requests.is_empty());
        let aside = directory.path().join("state.json.1800000000000");
        assert_eq!(fs::read_to_string(&aside).unwrap(), "not json");
        let why = why.unwrap();
        for words in [
            "state.json is no state",
            "state.json.18",
            "configured rates",
        ] {
            assert!(why.contains(words), "{why}");
        }
        assert_eq!(
            files.load_or_set_aside(from_ms(1)),
            (State::default(), None)
        );
    }

    #[test]
    fn what_is_no_state_is_not_taken_for_an_empty_one() {
        let whole = serde_json::to_value(state()).unwrap();
        assert_eq!(read(whole.to_string().as_bytes()).unwrap(), state());
        let with = |field: &str, value: serde_json::Value| {
            let mut changed = whole.clone();
            changed[field] = value;
            changed.to_string()
        };
        let mut wire = whole["wires"][0].clone();
        wire["generation"] = u64::MAX.into();
        for (text, words) in [
            (String::new(), "EOF"),
            ("[]".to_owned(), "no object"),
            ("[[], [], []]".to_owned(), "no object"),
            ("{}".to_owned(), "wires"),
            (with("version", 99.into()), "version 99"),
            (with("colour", 1.into()), "colour"),
            (with("wires", [wire].into_iter().collect()), "generation"),
            (whole.to_string()[..50].to_owned(), "EOF"),
            ("\u{0}\u{1}".to_owned(), "expected value"),
        ] {
            let why = read(text.as_bytes()).unwrap_err();
            assert!(why.contains(words), "{text}: {why}");
        }
        assert!(read(&[0xff, 0xfe]).is_err());
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
