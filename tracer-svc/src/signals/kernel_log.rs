//! Lines of the kernel's log that a rule knows.
//!
//! The form of /dev/kmsg: `level,sequence,microseconds,flags;text`, then lines that begin
//! with a space (Documentation/ABI/testing/dev-kmsg).

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rdmesh_proto::tracer::v1::CoSignalKind;

use super::rules::Rules;
use crate::host::Devices;
use crate::snapshot::CoSignal;

/// Records that are read in one look: a kernel that writes more in five seconds repeats
/// itself, and the rest is read with the next look while it is in the kernel's buffer.
const RECORDS_AT_ONCE: usize = 4_096;
/// Co-signals of one rule in one look; beyond, they are counted.
const OF_ONE_RULE: usize = 8;
/// Bytes of one record: the kernel's PRINTKRB_RECORD_MAX and its header are less.
const RECORD_BYTES: usize = 8 << 10;
/// Bytes of a line that are told.
const DETAIL_BYTES: usize = 240;
/// Facility and level share a number: the level is its last three bits.
const LEVEL_BITS: u64 = 7;

/// The log, from the moment at which it was opened.
#[derive(Debug)]
pub(super) struct KernelLog {
    file: File,
}

/// What a look found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) signals: Vec<CoSignal>,
    /// Co-signals beyond [`OF_ONE_RULE`], and records that the kernel overwrote.
    pub(super) left_out: u64,
}

/// A record's head and text.
#[derive(Debug, PartialEq, Eq)]
struct Line<'a> {
    level: u8,
    microseconds: u64,
    text: &'a str,
}

impl KernelLog {
    /// Opens the log behind its last line.
    pub(super) fn open(path: &Path) -> std::io::Result<Self> {
        let mut file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(path)?;
        file.seek(SeekFrom::End(0))?;
        Ok(Self { file })
    }

    /// What came since the last look. `suspended_ns` is what the boot clock is ahead of the
    /// clock that stamps lines, which stands still in suspend; `now` is on the boot clock.
    pub(super) fn look(
        &mut self,
        rules: &Rules,
        devices: &Devices,
        suspended_ns: u64,
        now: u64,
    ) -> Found {
        let mut found = Found::default();
        let mut of_rule = vec![0_usize; rules.log.len()];
        let mut buffer = [0; RECORD_BYTES];
        for _ in 0..RECORDS_AT_ONCE {
            let bytes = match self.file.read(&mut buffer) {
                Ok(0) => break,
                Ok(bytes) => bytes,
                // The kernel overwrote records before they were read.
                Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {
                    found.left_out += 1;
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            let text = String::from_utf8_lossy(&buffer[..bytes]);
            for line in text.lines().filter_map(line) {
                let Some(rule) = rules.of_line(line.level, line.text) else {
                    continue;
                };
                let place = rules.log.iter().position(|r| std::ptr::eq(r, rule));
                let seen = &mut of_rule[place.unwrap_or_default()];
                *seen += 1;
                if *seen > OF_ONE_RULE {
                    found.left_out += 1;
                    continue;
                }
                let at = line.microseconds.saturating_mul(1_000);
                found.signals.push(CoSignal {
                    boot_ns: at.saturating_add(suspended_ns).min(now),
                    kind: CoSignalKind::from(rule.kind),
                    independent: rule.independent,
                    name: rule.name.clone().into(),
                    detail: cut(line.text),
                    device: devices.named_in(line.text).unwrap_or_default().into(),
                });
            }
        }
        found
    }
}

fn line(record: &str) -> Option<Line<'_>> {
    // Lines that go on begin with a space, as SUBSYSTEM= and DEVICE= do.
    let (head, text) = record
        .split_once(';')
        .filter(|_| !record.starts_with(' '))?;
    let mut numbers = head.split(',');
    let level = numbers.next()?.parse::<u64>().ok()? & LEVEL_BITS;
    let microseconds = numbers.nth(1)?.parse().ok()?;
    Some(Line {
        level: u8::try_from(level).unwrap_or(u8::MAX),
        microseconds,
        text,
    })
}

fn cut(text: &str) -> String {
    let mut end = text.len().min(DETAIL_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}
