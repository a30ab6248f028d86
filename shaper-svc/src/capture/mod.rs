//! Capture files: pcap with micro- and nanoseconds in both byte orders, and pcapng.
//!
//! Written here and not taken from a crate because the one at hand (`pcap-file` 2)
//! reads every pcapng time stamp as nanoseconds, whatever the interface says, and
//! the time stamps are all that matters.

mod error;
mod pcap;
mod pcapng;
mod source;
mod write;

pub use error::CaptureError;
pub use write::Writer;

use pcap::PcapFile;
use pcapng::PcapngFile;
use source::Source;
use std::io::Read;

/// Most bytes of one frame that are read: libpcap's own limit (`MAXIMUM_SNAPLEN`).
pub const MAX_CAPTURED_BYTES: u32 = 262_144;

/// Link type of Ethernet (`LINKTYPE_ETHERNET`).
const LINK_ETHERNET: u32 = 1;

/// One captured frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// When it was captured, ps since 1970.
    pub at_ps: u128,
    /// Its length on the wire without FCS, bytes.
    pub wire_len: u32,
    /// What was captured of it; shorter than the frame if the capture had a limit.
    pub bytes: Vec<u8>,
}

/// Reads a capture from beginning to end.
#[derive(Debug)]
pub struct Reader<R> {
    source: Source<R>,
    format: Format,
    records: u64,
}

#[derive(Debug)]
enum Format {
    Pcap(PcapFile),
    Pcapng(PcapngFile),
}

impl<R: Read> Reader<R> {
    /// Reads the header of a capture.
    ///
    /// # Errors
    /// When it is no capture of Ethernet frames, empty, or cut in its header.
    pub fn new(input: R) -> Result<Self, CaptureError> {
        let mut source = Source::new(input);
        let mut magic = [0; 4];
        match source.fill(&mut magic)? {
            0 => return Err(CaptureError::Empty),
            4 => {}
            _ => return Err(CaptureError::CutHeader),
        }
        let format = if magic == pcapng::SECTION_HEADER.to_be_bytes() {
            Format::Pcapng(PcapngFile::open(&mut source)?)
        } else {
            Format::Pcap(PcapFile::open(magic, &mut source)?)
        };
        Ok(Self {
            source,
            format,
            records: 0,
        })
    }

    /// The next frame, or none at the end of the file.
    ///
    /// # Errors
    /// [`CaptureError`] names the frame, counted from 1.
    pub fn next_record(&mut self) -> Result<Option<Record>, CaptureError> {
        let number = self.records + 1;
        let record = match &mut self.format {
            Format::Pcap(file) => file.next_record(number, &mut self.source)?,
            Format::Pcapng(file) => file.next_record(number, &mut self.source)?,
        };
        if record.is_some() {
            self.records = number;
        }
        Ok(record)
    }

    /// Frames read so far.
    #[must_use]
    pub const fn records(&self) -> u64 {
        self.records
    }

    /// The coarsest step of a time stamp seen so far, ps.
    #[must_use]
    pub fn resolution_ps(&self) -> u64 {
        match &self.format {
            Format::Pcap(file) => file.resolution_ps(),
            Format::Pcapng(file) => file.resolution_ps(),
        }
    }
}

/// Ethernet without FCS, from what the file says.
fn finish(
    number: u64,
    at_ps: u128,
    wire_len: u32,
    fcs_bytes: u32,
    mut bytes: Vec<u8>,
) -> Result<Record, CaptureError> {
    if (bytes.len() as u64) > u64::from(wire_len) {
        return Err(CaptureError::HoldsMore {
            number,
            captured: bytes.len(),
            wire_len,
        });
    }
    let wire_len = wire_len.saturating_sub(fcs_bytes);
    bytes.truncate(wire_len as usize);
    Ok(Record {
        at_ps,
        wire_len,
        bytes,
    })
}

fn check_captured(number: u64, captured: u32) -> Result<(), CaptureError> {
    if captured > MAX_CAPTURED_BYTES {
        return Err(CaptureError::TooLong { number, captured });
    }
    Ok(())
}

fn check_link_type(link_type: u32) -> Result<(), CaptureError> {
    if link_type == LINK_ETHERNET {
        return Ok(());
    }
    Err(CaptureError::LinkType { link_type })
}
