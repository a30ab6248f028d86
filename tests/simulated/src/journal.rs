//! What an agent made, in a file that outlives it.
//!
//! ```text
//! run 6f1f4e4e-8a52-4b53-9c0a-0a0f9a6d7c11
//! made 1 7 1000000000 1500000000        sequence, failures, interval in the boot clock, ns
//! kept 1                                 all up to here is in the spool
//! ```
//!
//! A line is there before what it tells of is handed over (`made`), or after it happened
//! (`kept`). A line that was cut says nothing.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// A snapshot that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    /// Failing calls in it.
    pub failures: u64,
    /// Start of its interval, nanoseconds of the boot clock.
    pub from_boot_ns: u64,
    /// End of its interval.
    pub to_boot_ns: u64,
}

/// Writes a journal.
#[derive(Debug)]
pub struct Journal {
    file: File,
}

impl Journal {
    /// Goes on with a journal, or begins it, for a run.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn begin(path: &Path, run_id: &str) -> io::Result<Self> {
        let mut file = File::options().create(true).append(true).open(path)?;
        // The line before may have been cut by a kill.
        write!(file, "\nrun {run_id}\n")?;
        file.sync_data()?;
        Ok(Self { file })
    }

    /// A snapshot is made and will be handed over. Returns when that is on disk.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn made(&mut self, sequence: u64, made: &Made) -> io::Result<()> {
        let Made {
            failures,
            from_boot_ns,
            to_boot_ns,
        } = made;
        let line = format!("made {sequence} {failures} {from_boot_ns} {to_boot_ns}\n");
        self.file.write_all(line.as_bytes())?;
        self.file.sync_data()
    }

    /// Everything up to `sequence` is in the spool.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn kept(&mut self, sequence: u64) -> io::Result<()> {
        self.file.write_all(format!("kept {sequence}\n").as_bytes())
    }
}

/// One run, as its journal tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// By sequence.
    pub made: BTreeMap<u64, Made>,
    /// All up to here is in the spool.
    pub kept: u64,
}

/// Reads a journal that is still being written.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    read: u64,
    /// Bytes of a line whose end has not come.
    rest: Vec<u8>,
    /// Run ids in the order of their beginnings.
    pub order: Vec<String>,
    /// What each made.
    pub runs: BTreeMap<String, Run>,
}

impl Reader {
    /// A reader of the journal at `path`, which need not be there yet.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self {
            path,
            read: 0,
            rest: Vec::new(),
            order: Vec::new(),
            runs: BTreeMap::new(),
        }
    }

    /// Reads what was written since the last time.
    ///
    /// # Errors
    /// When the file cannot be read, or a whole line is not understood.
    pub fn refresh(&mut self) -> io::Result<()> {
        let mut file = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened?,
        };
        file.seek(SeekFrom::Start(self.read))?;
        self.read += file.read_to_end(&mut self.rest)? as u64;
        let Some(end) = self.rest.iter().rposition(|b| *b == b'\n') else {
            return Ok(());
        };
        let later = self.rest.split_off(end + 1);
        let lines = std::mem::replace(&mut self.rest, later);
        for line in String::from_utf8_lossy(&lines).lines() {
            self.take(line);
        }
        Ok(())
    }

    /// A line that was cut by a kill is followed by the next run's empty line.
    fn take(&mut self, line: &str) {
        let mut words = line.split(' ');
        let kind = words.next().unwrap_or_default();
        if kind == "run" {
            let run_id = words.next().unwrap_or_default().to_owned();
            self.order.push(run_id.clone());
            self.runs.insert(run_id, Run::default());
            return;
        }
        let numbers: Option<Vec<u64>> = words.map(|word| word.parse().ok()).collect();
        let run = self.order.last().and_then(|id| self.runs.get_mut(id));
        match (kind, numbers.as_deref(), run) {
            ("made", Some([sequence, failures, from_boot_ns, to_boot_ns]), Some(run)) => {
                let made = Made {
                    failures: *failures,
                    from_boot_ns: *from_boot_ns,
                    to_boot_ns: *to_boot_ns,
                };
                run.made.insert(*sequence, made);
            }
            ("kept", Some([sequence]), Some(run)) => run.kept = run.kept.max(*sequence),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_is_read_while_it_is_written_and_after_a_kill() {
        let path = std::env::temp_dir().join(format!("rdmesh-journal-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let mut reader = Reader::new(path.clone());
        reader.refresh().unwrap();
        assert!(reader.order.is_empty());
        let made = Made {
            failures: 7,
            from_boot_ns: 1,
            to_boot_ns: 2,
        };
        let mut journal = Journal::begin(&path, "one").unwrap();
        journal.made(1, &made).unwrap();
        reader.refresh().unwrap();
        assert_eq!(reader.runs["one"].made[&1], made);
        journal.kept(1).unwrap();
        // Cut in the middle of a line.
        let mut file = File::options().append(true).open(&path).unwrap();
        file.write_all(b"made 2 9 2").unwrap();
        reader.refresh().unwrap();
        Journal::begin(&path, "two")
            .unwrap()
            .made(1, &made)
            .unwrap();
        reader.refresh().unwrap();
        assert_eq!(reader.order, ["one", "two"]);
        assert_eq!(
            (reader.runs["one"].kept, reader.runs["one"].made.len()),
            (1, 1)
        );
        assert_eq!(reader.runs["two"].made.len(), 1);
        std::fs::remove_file(path).unwrap();
    }
}
