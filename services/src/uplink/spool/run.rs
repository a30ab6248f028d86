//! The directory of one run: its Hello and its segments.

use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rdmesh_proto::collector::v1::Hello;

use super::notes::{self, ACKED_FILE, HELLO_FILE, HELLO_MAX_BYTES};
use super::record::{self, Key, Record, Records, Stamp, kind_number, kind_of};
use crate::uplink::backlog::Entry;
use crate::uplink::item::Kind;

/// How the name of a segment ends; before it stands its first sequence in 20 digits.
const SEGMENT_SUFFIX: &str = ".seg";

/// When the next segment is begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentLimits {
    /// Bytes from which on it takes no more records.
    pub(crate) bytes: u64,
    /// Records that it takes at most.
    pub(crate) items: usize,
    /// Time between its first and its last record.
    pub(crate) age: Duration,
}

#[derive(Debug)]
struct Segment {
    path: PathBuf,
    first: u64,
    last: u64,
    bytes: u64,
    items: usize,
    oldest: Stamp,
    newest: Stamp,
    /// Whether it holds anything but states.
    has_reports: bool,
}

/// What is in a run's directory, or is being written into it.
#[derive(Debug)]
pub(super) struct Run {
    directory: PathBuf,
    key: Key,
    limits: SegmentLimits,
    segments: VecDeque<Segment>,
    /// The last segment, while it is appended to.
    active: Option<Arc<File>>,
    acked: u64,
}

/// What a run that was opened again still holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) items: u64,
    pub(super) snapshots: u64,
    pub(super) bytes: u64,
    /// Highest sequence.
    pub(super) last: u64,
    /// Items whose records are damaged, at least.
    pub(super) lost: u64,
    pub(super) damaged_bytes: u64,
    /// Clocks of the newest record.
    pub(super) newest: Stamp,
}

/// Items that were read back.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) entries: Vec<Entry>,
    /// Nothing up to this sequence is left to be read.
    pub(super) reached: u64,
    pub(super) damaged_bytes: u64,
}

/// An item that was dropped.
pub(super) type Dropped = (u64, Kind);

impl Run {
    /// Makes the directory of a new run.
    pub(super) fn create(
        directory: PathBuf,
        hello: &Hello,
        limits: SegmentLimits,
    ) -> io::Result<Self> {
        match DirBuilder::new().mode(0o700).create(&directory) {
            // A first try that got no further.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
        let key = Key::of_run(&hello.run_id);
        let mut file = new_file(&directory.join(HELLO_FILE))?;
        file.write_all(&notes::encode_hello(key, hello))?;
        file.sync_all()?;
        Ok(Self {
            directory,
            key,
            limits,
            segments: VecDeque::new(),
            active: None,
            acked: 0,
        })
    }

    /// Opens the directory of a run that has ended, and looks at everything in it.
    pub(super) fn open(
        directory: PathBuf,
        run_id: &str,
        limits: SegmentLimits,
    ) -> io::Result<(Self, Held)> {
        let key = Key::of_run(run_id);
        let acked = fs::read(directory.join(ACKED_FILE)).unwrap_or_default();
        let acked = notes::decode_acked(key, &acked);
        let mut run = Self {
            directory,
            key,
            limits,
            segments: VecDeque::new(),
            active: None,
            acked,
        };
        let mut held = Held::default();
        for path in segment_files(&run.directory)? {
            if let Some(segment) = run.look_at(path, &mut held) {
                run.segments.push_back(segment);
            }
        }
        run.note_acked(acked);
        Ok((run, held))
    }

    /// The Hello of the run, unless it is damaged.
    pub(super) fn hello(&self) -> Option<Hello> {
        let mut bytes = Vec::new();
        let file = File::open(self.directory.join(HELLO_FILE)).ok()?;
        file.take(HELLO_MAX_BYTES).read_to_end(&mut bytes).ok()?;
        notes::decode_hello(self.key, &bytes)
    }

    fn look_at(&self, path: PathBuf, held: &mut Held) -> Option<Segment> {
        let bytes = fs::read(&path)
            .inspect_err(
                |error| tracing::warn!(path = %path.display(), %error, "a spool file cannot be read"),
            )
            .unwrap_or_default();
        let mut segment = Segment {
            path,
            first: 0,
            last: 0,
            bytes: bytes.len() as u64,
            items: 0,
            oldest: Stamp::default(),
            newest: Stamp::default(),
            has_reports: false,
        };
        let mut missing = 0;
        let mut records = Records::new(&bytes, self.key);
        for record in records.by_ref() {
            if record.sequence <= held.last {
                continue;
            }
            if segment.items == 0 {
                segment.first = record.sequence;
                segment.oldest = record.stamp;
            } else {
                missing += record.sequence - segment.last - 1;
            }
            segment.items += 1;
            segment.last = record.sequence;
            segment.newest = record.stamp;
            held.last = record.sequence;
            held.newest = record.stamp;
            let kind = kind_of(record.kind);
            segment.has_reports |= kind != Kind::State;
            if record.sequence > self.acked {
                held.items += 1;
                held.snapshots += u64::from(kind == Kind::Snapshot);
                held.bytes += record.payload.len() as u64;
            }
        }
        let damaged = records.damaged_bytes() as u64;
        if damaged > 0 {
            held.damaged_bytes += damaged;
            held.lost += missing.max(1);
        }
        if segment.items == 0 {
            // Nothing in it can be read.
            remove(&segment.path);
            return None;
        }
        Some(segment)
    }

    /// The sequence up to which the run was acknowledged, as far as that was noted.
    pub(super) fn acked(&self) -> u64 {
        self.acked
    }

    /// Bytes of all segments.
    pub(super) fn bytes(&self) -> u64 {
        self.segments.iter().map(|s| s.bytes).sum()
    }

    /// Appends entries, which are in order and newer than all before. What is not appended
    /// whole is taken back. Returns what is to be synced.
    pub(super) fn append(&mut self, entries: &[Entry], now: Stamp) -> io::Result<Vec<Arc<File>>> {
        let mut to_sync = Vec::new();
        let mut rest = entries;
        while let Some(first) = rest.first() {
            self.ready_segment(first.sequence, now, &mut to_sync)?;
            let (Some(segment), Some(file)) = (self.segments.back_mut(), self.active.clone())
            else {
                return Err(io::Error::other("no segment is open"));
            };
            let mut bytes = Vec::new();
            let mut taken = 0;
            for entry in rest {
                let full = segment.bytes + bytes.len() as u64 >= self.limits.bytes;
                if taken > 0 && full || segment.items + taken >= self.limits.items.max(1) {
                    break;
                }
                let record = Record {
                    sequence: entry.sequence,
                    stamp: now,
                    kind: kind_number(entry.kind),
                    payload: &entry.bytes,
                };
                record::encode(&mut bytes, self.key, &record);
                taken += 1;
            }
            if let Err(error) = (&*file).write_all(&bytes) {
                self.take_back();
                return Err(error);
            }
            let (now_in, later) = rest.split_at(taken);
            segment.bytes += bytes.len() as u64;
            segment.items += taken;
            segment.last = now_in.last().map_or(segment.last, |entry| entry.sequence);
            segment.newest = now;
            segment.has_reports |= now_in.iter().any(|entry| entry.kind != Kind::State);
            if !to_sync.iter().any(|known| Arc::ptr_eq(known, &file)) {
                to_sync.push(file);
            }
            rest = later;
        }
        Ok(to_sync)
    }

    /// Opens a segment unless the last one takes more.
    fn ready_segment(
        &mut self,
        first: u64,
        now: Stamp,
        to_sync: &mut Vec<Arc<File>>,
    ) -> io::Result<()> {
        if let (Some(last), Some(_)) = (self.segments.back(), &self.active) {
            let age = Duration::from_nanos(now.boot_ns.saturating_sub(last.oldest.boot_ns));
            if last.bytes < self.limits.bytes
                && last.items < self.limits.items.max(1)
                && age < self.limits.age
            {
                return Ok(());
            }
        }
        self.active = None;
        let path = self.directory.join(format!("{first:020}{SEGMENT_SUFFIX}"));
        let file = Arc::new(new_file(&path)?);
        // The name must last as long as the content.
        to_sync.push(Arc::new(File::open(&self.directory)?));
        self.active = Some(file);
        self.segments.push_back(Segment {
            path,
            first,
            last: first.saturating_sub(1),
            bytes: 0,
            items: 0,
            oldest: now,
            newest: now,
            has_reports: false,
        });
        Ok(())
    }

    /// Cuts off what a failed write left, and appends nothing more to that file.
    fn take_back(&mut self) {
        let Some(file) = self.active.take() else {
            return;
        };
        let Some(segment) = self.segments.back() else {
            return;
        };
        if segment.items == 0 {
            remove(&segment.path);
            self.segments.pop_back();
        } else if let Err(error) = file.set_len(segment.bytes) {
            // The torn record is stepped over by whoever reads.
            tracing::debug!(%error, "a torn record stays in the spool");
        }
    }

    /// Reads the segment that holds the first item from `from` on.
    pub(super) fn read(&self, from: u64) -> Option<Chunk> {
        let segment = self.segments.iter().find(|s| s.last >= from)?;
        let bytes = fs::read(&segment.path)
            .inspect_err(|error| {
                tracing::warn!(path = %segment.path.display(), %error, "a spool file cannot be read");
            })
            .unwrap_or_default();
        let (mut entries, mut last) = (Vec::new(), from.saturating_sub(1));
        let mut records = Records::new(&bytes, self.key);
        for record in records.by_ref() {
            if record.sequence > last && record.sequence <= segment.last {
                last = record.sequence;
                entries.push(Entry {
                    sequence: record.sequence,
                    kind: kind_of(record.kind),
                    bytes: record.payload.to_vec().into(),
                });
            }
        }
        Some(Chunk {
            entries,
            reached: segment.last,
            damaged_bytes: records.damaged_bytes() as u64,
        })
    }

    /// Notes how far the run is acknowledged, and removes segments that hold no more.
    pub(super) fn note_acked(&mut self, through: u64) {
        if through > self.acked {
            self.acked = through;
            let note = notes::encode_acked(self.key, through);
            // Lost, it costs repeats alone: it is not synced, and may fail.
            let path = self.directory.join(ACKED_FILE);
            let written = private(OpenOptions::new().write(true).create(true)).open(&path);
            if let Err(error) = written.and_then(|mut file| file.write_all(&note)) {
                tracing::debug!(%error, "how far a run is acknowledged was not noted");
            }
        }
        while let Some(front) = self.segments.front()
            && front.last <= self.acked
            && (self.segments.len() > 1 || self.active.is_none())
        {
            remove(&front.path);
            self.segments.pop_front();
        }
    }

    /// Drops the oldest segment, but for its states, which later items refer to; where
    /// nothing but states is left, or `all` is said, those too. Returns the items that are
    /// not acknowledged and gone.
    pub(super) fn drop_oldest(&mut self, all: bool) -> Option<Vec<Dropped>> {
        let with_reports = self.segments.iter().position(|s| s.has_reports);
        let at = if all { 0 } else { with_reports.unwrap_or(0) };
        let whole = all || with_reports.is_none();
        if at + 1 == self.segments.len() {
            self.active = None;
        }
        let segment = self.segments.get_mut(at)?;
        let bytes = fs::read(&segment.path).unwrap_or_default();
        let (mut dropped, mut kept) = (Vec::new(), Vec::new());
        let (mut items, mut last) = (0, 0);
        for record in Records::new(&bytes, self.key).filter(|r| r.sequence > self.acked) {
            let kind = kind_of(record.kind);
            if whole || kind != Kind::State {
                dropped.push((record.sequence, kind));
            } else {
                record::encode(&mut kept, self.key, &record);
                items += 1;
                last = record.sequence;
            }
        }
        let kept_bytes = kept.len() as u64;
        if items > 0 && replace(&segment.path, &kept).is_ok() {
            segment.bytes = kept_bytes;
            segment.items = items;
            segment.last = last;
            segment.has_reports = false;
        } else {
            remove(&segment.path);
            self.segments.remove(at);
        }
        Some(dropped)
    }

    /// How old the newest item of the oldest segment with reports is: by the boot clock
    /// within a boot, by the file's time over boots. A clock that was set back makes
    /// nothing older than it is.
    pub(super) fn oldest_age(&self, now: Stamp, same_boot: bool) -> Option<Duration> {
        let segment = self.segments.iter().find(|s| s.has_reports)?;
        Some(segment.age(segment.newest, now, same_boot))
    }

    /// How old the oldest item that is not acknowledged may be, for people.
    pub(super) fn first_age(&self, now: Stamp, same_boot: bool) -> Option<Duration> {
        let segment = self.segments.iter().find(|s| s.last > self.acked)?;
        Some(segment.age(segment.oldest, now, same_boot))
    }

    /// Removes the directory with all that is ours in it.
    pub(super) fn remove(&mut self) {
        self.active = None;
        for segment in self.segments.drain(..) {
            remove(&segment.path);
        }
        for name in [ACKED_FILE, HELLO_FILE] {
            remove(&self.directory.join(name));
        }
        remove_directory(&self.directory);
    }
}

impl Segment {
    fn age(&self, stamp: Stamp, now: Stamp, same_boot: bool) -> Duration {
        if same_boot {
            return Duration::from_nanos(now.boot_ns.saturating_sub(stamp.boot_ns));
        }
        let written = fs::metadata(&self.path).and_then(|file| file.modified());
        let now = SystemTime::UNIX_EPOCH + Duration::from_nanos(now.real_ns);
        written
            .ok()
            .and_then(|at| now.duration_since(at).ok())
            .unwrap_or_default()
    }
}

/// The segments of a run, oldest first.
pub(super) fn segment_files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let digits = name.to_str().and_then(|n| n.strip_suffix(SEGMENT_SUFFIX));
        let ours = digits.is_some_and(|d| d.len() == 20 && d.bytes().all(|b| b.is_ascii_digit()));
        if ours && entry.file_type()?.is_file() {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths)
}

/// Removes a run's directory when nothing foreign is in it.
pub(super) fn remove_directory(directory: &Path) {
    if let Err(error) = fs::remove_dir(directory)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(
            directory = %directory.display(), %error,
            "a directory of the spool has nothing of ours any more and stays: remove it"
        );
    }
}

/// Only the agent reads what it saw.
fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options.mode(0o600)
}

fn new_file(path: &Path) -> io::Result<File> {
    // A file of that name is what a failed write left.
    private(OpenOptions::new().write(true).create(true).truncate(true)).open(path)
}

/// Puts other content in the place of a file's, or leaves it as it was.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("new");
    let written = new_file(&beside).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_data()?;
        fs::rename(&beside, path)
    });
    if written.is_err() {
        remove(&beside);
    }
    written
}

fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(path = %path.display(), %error, "a spool file cannot be removed");
    }
}
