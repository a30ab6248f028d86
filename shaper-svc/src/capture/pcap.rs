//! The format of libpcap (`pcap-savefile(5)`).

use super::source::{Order, Source};
use super::{CaptureError, Record, check_captured, check_link_type, finish};
use std::io::Read;

/// First word of a file with microseconds, in the byte order of the file.
const MAGIC_MICROSECONDS: u32 = 0xa1b2_c3d4;

/// First word of a file with nanoseconds.
pub(super) const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;

/// Bytes of the file header behind the magic.
const HEADER_BYTES: usize = 20;

/// Bit of the link type that says that the next four bits up there are the length of
/// the FCS in words of 16 bits.
const FCS_IS_KNOWN: u32 = 1 << 26;

/// What the header of a file says.
#[derive(Debug)]
pub(super) struct PcapFile {
    order: Order,
    parts_per_second: u32,
    fcs_bytes: u32,
}

impl PcapFile {
    pub(super) fn open<R: Read>(
        magic: [u8; 4],
        source: &mut Source<R>,
    ) -> Result<Self, CaptureError> {
        let (order, parts_per_second) = match (u32::from_le_bytes(magic), u32::from_be_bytes(magic))
        {
            (MAGIC_MICROSECONDS, _) => (Order::Little, 1_000_000),
            (_, MAGIC_MICROSECONDS) => (Order::Big, 1_000_000),
            (MAGIC_NANOSECONDS, _) => (Order::Little, 1_000_000_000),
            (_, MAGIC_NANOSECONDS) => (Order::Big, 1_000_000_000),
            (_, magic) => return Err(unknown(magic)),
        };
        let mut header = [0; HEADER_BYTES];
        if source.fill(&mut header)? < HEADER_BYTES {
            return Err(CaptureError::CutHeader);
        }
        let [m0, m1, n0, n1, .., l0, l1, l2, l3] = header;
        let (major, minor) = (order.u16([m0, m1]), order.u16([n0, n1]));
        if major != 2 {
            return Err(CaptureError::Version {
                format: "pcap",
                major,
                minor,
            });
        }
        let link = order.u32([l0, l1, l2, l3]);
        check_link_type(link & 0xffff)?;
        let fcs_bytes = if link & FCS_IS_KNOWN == 0 {
            0
        } else {
            (link >> 28) * 2
        };
        Ok(Self {
            order,
            parts_per_second,
            fcs_bytes,
        })
    }

    pub(super) fn resolution_ps(&self) -> u64 {
        1_000_000_000_000 / u64::from(self.parts_per_second)
    }

    pub(super) fn next_record<R: Read>(
        &mut self,
        number: u64,
        source: &mut Source<R>,
    ) -> Result<Option<Record>, CaptureError> {
        let mut header = [0; 16];
        let begun = source.fill(&mut header[..1])?;
        if begun == 0 {
            return Ok(None);
        }
        source.fill_all(number, &mut header[1..])?;
        let word = |at: usize| self.order.u32_at(&header, at).unwrap_or_default();
        let (seconds, fraction, captured, wire_len) = (word(0), word(4), word(8), word(12));
        check_captured(number, captured)?;
        if fraction >= self.parts_per_second {
            return Err(CaptureError::Fraction {
                number,
                fraction,
                per_second: self.parts_per_second,
            });
        }
        let mut bytes = vec![0; captured as usize];
        source.fill_all(number, &mut bytes)?;
        let at_ps = u128::from(seconds) * 1_000_000_000_000
            + u128::from(fraction) * u128::from(self.resolution_ps());
        finish(number, at_ps, wire_len, self.fcs_bytes, bytes).map(Some)
    }
}

/// Something else, as helpful as can be.
fn unknown(magic: u32) -> CaptureError {
    match magic {
        0x1f8b_0000..=0x1f8b_ffff => CaptureError::Compressed { tool: "gunzip" },
        0x28b5_2ffd => CaptureError::Compressed { tool: "unzstd" },
        0xfd37_7a58 => CaptureError::Compressed { tool: "unxz" },
        0x425a_6830..=0x425a_6839 => CaptureError::Compressed { tool: "bunzip2" },
        _ => CaptureError::NotACapture { magic },
    }
}
