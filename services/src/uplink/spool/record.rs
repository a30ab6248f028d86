//! One record of a segment: an item as it goes over the wire, with what is needed to find
//! it in a damaged file.
//!
//! ```text
//! 0 magic 4 | payload bytes u32 | sequence u64 | boot clock ns u64 | wall clock ns u64 |
//! 32 kind u8, 0 0 0 | CRC-32C of the payload u32 | CRC-32C of bytes 0 to 39 u32 | payload
//! ```
//!
//! Numbers are little-endian. The head has a checksum of its own: with a damaged payload its
//! length is still known, and the next record is found without a search. Both checksums
//! begin from the run's key, so that bytes of another run, or a payload that looks like a
//! record, are no record of this one.

use crc::{CRC_32_ISCSI, Crc, Digest, Table};

use crate::uplink::MAX_ITEM_BYTES;
use crate::uplink::item::Kind;

/// Bytes before the payload.
pub const HEAD_BYTES: usize = 44;

/// How a record begins: a byte that no text has, then letters.
const MAGIC: [u8; 4] = *b"\x9erdR";

/// CRC-32C (Castagnoli), as iSCSI and ext4 use it.
static CRC: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);

/// What the checksums of one run begin from: its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(u32);

impl Key {
    /// The key of a run.
    #[must_use]
    pub fn of_run(run_id: &str) -> Self {
        Self(CRC.checksum(run_id.as_bytes()))
    }

    fn digest(self) -> Digest<'static, u32, Table<16>> {
        let mut digest = CRC.digest();
        digest.update(&self.0.to_le_bytes());
        digest
    }

    /// The checksum of some bytes.
    #[must_use]
    pub fn checksum(self, bytes: &[u8]) -> u32 {
        let mut digest = self.digest();
        digest.update(bytes);
        digest.finalize()
    }
}

/// When something was written: both clocks, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// `CLOCK_BOOTTIME`.
    pub boot_ns: u64,
    /// `CLOCK_REALTIME`, since 1970.
    pub real_ns: u64,
}

/// A record in a file that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The item's number in its run.
    pub sequence: u64,
    /// When it was written.
    pub stamp: Stamp,
    /// What the item is, as a number.
    pub kind: u8,
    /// The encoded `ReportRequest`.
    pub payload: &'a [u8],
}

/// Appends a record to `to`.
pub fn encode(to: &mut Vec<u8>, key: Key, record: &Record<'_>) {
    let from = to.len();
    // An item is bounded by MAX_ITEM_BYTES, far below.
    let payload_bytes = u32::try_from(record.payload.len()).unwrap_or(u32::MAX);
    to.reserve(HEAD_BYTES + record.payload.len());
    to.extend_from_slice(&MAGIC);
    to.extend_from_slice(&payload_bytes.to_le_bytes());
    to.extend_from_slice(&record.sequence.to_le_bytes());
    to.extend_from_slice(&record.stamp.boot_ns.to_le_bytes());
    to.extend_from_slice(&record.stamp.real_ns.to_le_bytes());
    to.extend_from_slice(&[record.kind, 0, 0, 0]);
    to.extend_from_slice(&key.checksum(record.payload).to_le_bytes());
    let head = key.checksum(&to[from..]);
    to.extend_from_slice(&head.to_le_bytes());
    to.extend_from_slice(record.payload);
}

/// Finds the good records of a file, whatever happened to it.
#[derive(Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
    at: usize,
    key: Key,
    damaged_bytes: usize,
}

impl<'a> Records<'a> {
    /// Reads `bytes`, a segment of the run with this key.
    #[must_use]
    pub fn new(bytes: &'a [u8], key: Key) -> Self {
        Self {
            bytes,
            at: 0,
            key,
            damaged_bytes: 0,
        }
    }

    /// Bytes so far that belong to no good record.
    #[must_use]
    pub fn damaged_bytes(&self) -> usize {
        self.damaged_bytes
    }

    fn skip_to(&mut self, at: usize) {
        self.damaged_bytes += at - self.at;
        self.at = at;
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        while self.at < self.bytes.len() {
            let rest = &self.bytes[self.at..];
            let Some(head) = Head::read(rest, self.key) else {
                let next = rest[1..].windows(MAGIC.len()).position(|w| w == MAGIC);
                self.skip_to(next.map_or(self.bytes.len(), |next| self.at + 1 + next));
                continue;
            };
            let Some(payload) = rest.get(HEAD_BYTES..HEAD_BYTES + head.payload_bytes) else {
                // The rest of a write that was cut; something may follow all the same.
                self.skip_to(self.at + MAGIC.len());
                continue;
            };
            let whole = HEAD_BYTES + payload.len();
            if self.key.checksum(payload) != head.payload_crc {
                self.skip_to(self.at + whole);
                continue;
            }
            self.at += whole;
            return Some(Record {
                sequence: head.sequence,
                stamp: head.stamp,
                kind: head.kind,
                payload,
            });
        }
        None
    }
}

struct Head {
    payload_bytes: usize,
    sequence: u64,
    stamp: Stamp,
    kind: u8,
    payload_crc: u32,
}

impl Head {
    fn read(bytes: &[u8], key: Key) -> Option<Self> {
        let head = bytes.first_chunk::<HEAD_BYTES>()?;
        let (covered, crc) = head.split_last_chunk::<4>()?;
        if covered[..4] != MAGIC || key.checksum(covered) != u32::from_le_bytes(*crc) {
            return None;
        }
        let payload_bytes = usize::try_from(word(covered, 4)?).ok()?;
        (payload_bytes <= MAX_ITEM_BYTES).then_some(Self {
            payload_bytes,
            sequence: long(covered, 8)?,
            stamp: Stamp {
                boot_ns: long(covered, 16)?,
                real_ns: long(covered, 24)?,
            },
            kind: covered[32],
            payload_crc: word(covered, 36)?,
        })
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*four))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    let eight = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*eight))
}

/// A kind as a record tells it.
pub(super) fn kind_number(kind: Kind) -> u8 {
    match kind {
        Kind::Snapshot => 1,
        Kind::Interval => 2,
        Kind::State => 3,
    }
}

/// What a later version wrote and this one does not know is kept as long as anything.
pub(super) fn kind_of(number: u8) -> Kind {
    match number {
        1 => Kind::Snapshot,
        2 => Kind::Interval,
        _ => Kind::State,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(sequence: u64, payload: &[u8]) -> Record<'_> {
        Record {
            sequence,
            stamp: Stamp {
                boot_ns: sequence * 5,
                real_ns: sequence * 7,
            },
            kind: 1,
            payload,
        }
    }

    fn file(key: Key, payloads: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (sequence, payload) in (1..).zip(payloads) {
            encode(&mut bytes, key, &record(sequence, payload));
        }
        bytes
    }

    fn sequences(bytes: &[u8], key: Key) -> Vec<u64> {
        Records::new(bytes, key).map(|r| r.sequence).collect()
    }

    #[test]
    fn the_layout_is_the_one_that_is_written_down() {
        let mut bytes = Vec::new();
        encode(&mut bytes, Key::of_run("r"), &record(3, b"abc"));
        assert_eq!(bytes.len(), HEAD_BYTES + 3);
        assert_eq!(bytes[..16], *b"\x9erdR\x03\0\0\0\x03\0\0\0\0\0\0\0");
        assert_eq!(
            bytes[16..36],
            *b"\x0f\0\0\0\0\0\0\0\x15\0\0\0\0\0\0\0\x01\0\0\0"
        );
        // RFC 3720, B.4: the checksum of 32 zero bytes.
        assert_eq!(CRC.checksum(&[0; 32]), 0x8a91_36aa);
    }

    #[test]
    fn records_of_another_run_are_none() {
        let bytes = file(Key::of_run("one"), &[vec![1; 9], vec![2; 9]]);
        assert!(sequences(&bytes, Key::of_run("two")).is_empty());
        assert_eq!(sequences(&bytes, Key::of_run("one")), [1, 2]);
    }

    #[test]
    fn a_record_inside_a_payload_is_none_where_its_key_is_not_known() {
        let mut inner = Vec::new();
        encode(&mut inner, Key::of_run("guessed"), &record(9, b"evil"));
        let key = Key::of_run("real");
        let mut bytes = file(key, &[inner, vec![7; 3]]);
        bytes[5] ^= 1;
        assert_eq!(sequences(&bytes, key), [2]);
    }

    #[test]
    fn a_file_that_ends_anywhere_gives_what_was_whole() {
        let key = Key::of_run("r");
        let payloads = [vec![1; 30], vec![], vec![3; 200]];
        let bytes = file(key, &payloads);
        let ends = [HEAD_BYTES + 30, 2 * HEAD_BYTES + 30, bytes.len()];
        for cut in 0..=bytes.len() {
            let whole = ends.iter().filter(|end| **end <= cut).count() as u64;
            let expected: Vec<u64> = (1..=whole).collect();
            let mut records = Records::new(&bytes[..cut], key);
            let found: Vec<u64> = records.by_ref().map(|r| r.sequence).collect();
            assert_eq!(found, expected, "cut at {cut}");
            let good = whole
                .checked_sub(1)
                .map_or(0, |last| ends[usize::try_from(last).unwrap()]);
            assert_eq!(records.damaged_bytes(), cut - good, "cut at {cut}");
        }
    }

    #[test]
    fn one_flipped_bit_anywhere_costs_one_record() {
        let key = Key::of_run("r");
        let payloads = [vec![1; 20], vec![2; 20], vec![3; 20]];
        let bytes = file(key, &payloads);
        let each = HEAD_BYTES + 20;
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let hit = (bit / 8 / each) as u64 + 1;
            let expected: Vec<u64> = (1..=3).filter(|n| *n != hit).collect();
            assert_eq!(sequences(&bytes, key), expected, "bit {bit}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_done_to_a_file_nothing_is_found_that_was_not_written(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 1..12),
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
            cut in any::<prop::sample::Index>(),
            insert in prop::collection::vec(any::<u8>(), 0..60),
        ) {
            let key = Key::of_run("r");
            let mut bytes = file(key, &payloads);
            for (at, value) in damage {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            let at = cut.index(bytes.len());
            bytes.splice(at..at, insert);
            let mut last = 0;
            for found in Records::new(&bytes, key) {
                prop_assert!(found.sequence > last);
                last = found.sequence;
                let written = &payloads[usize::try_from(found.sequence).unwrap() - 1];
                prop_assert_eq!(found.payload, written.as_slice());
            }
        }
    }
}
