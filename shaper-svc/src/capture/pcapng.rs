//! pcapng (IETF draft-ietf-opsawg-pcapng).

use super::source::{Order, Source};
use super::{CaptureError, Record, check_captured, check_link_type, finish};
use std::io::Read;

/// Type of a section header block, the same in both byte orders.
pub(super) const SECTION_HEADER: u32 = 0x0a0d_0d0a;

const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const INTERFACE_DESCRIPTION: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

const OPTION_TIME_RESOLUTION: u16 = 9;
const OPTION_FCS_LENGTH: u16 = 13;
const OPTION_TIME_OFFSET: u16 = 14;

/// Longest block that is read: what Wireshark reads (`MAX_BLOCK_SIZE`), 16 MiB.
const MAX_BLOCK_BYTES: u32 = 16 << 20;

/// Most interfaces in a section: far above what any host has, and a bound on what
/// a damaged file can make us hold.
const MAX_INTERFACES: usize = 65_536;

const PS_PER_S: u128 = 1_000_000_000_000;

/// Time and FCS of one interface.
#[derive(Debug, Clone, Copy)]
struct Interface {
    /// One step of its time stamps is `1 / steps_per_second`.
    steps_per_second: u128,
    offset_s: i64,
    fcs_bytes: u32,
}

/// Where in a file we are.
#[derive(Debug)]
pub(super) struct PcapngFile {
    order: Order,
    interfaces: Vec<Interface>,
    resolution_ps: u64,
}

/// One block, without its lengths.
struct Block {
    kind: u32,
    offset: u64,
    body: Vec<u8>,
}

impl PcapngFile {
    /// Reads the first section header, of which the type has been read.
    pub(super) fn open<R: Read>(source: &mut Source<R>) -> Result<Self, CaptureError> {
        let mut file = Self {
            order: Order::Little,
            interfaces: Vec::new(),
            resolution_ps: 0,
        };
        match file.read_section(0, source) {
            Err(CaptureError::Cut { .. }) => Err(CaptureError::CutHeader),
            read => read.map(|()| file),
        }
    }

    pub(super) fn resolution_ps(&self) -> u64 {
        self.resolution_ps
    }

    pub(super) fn next_record<R: Read>(
        &mut self,
        number: u64,
        source: &mut Source<R>,
    ) -> Result<Option<Record>, CaptureError> {
        while let Some(block) = self.next_block(number, source)? {
            match block.kind {
                INTERFACE_DESCRIPTION => self.read_interface(&block)?,
                ENHANCED_PACKET | OBSOLETE_PACKET => {
                    return self.read_packet(number, &block).map(Some);
                }
                SIMPLE_PACKET => return Err(CaptureError::NoTime { number }),
                // Statistics, names, custom blocks: nothing that a wire carries.
                _ => {}
            }
        }
        Ok(None)
    }

    /// The next block that is no section header.
    fn next_block<R: Read>(
        &mut self,
        number: u64,
        source: &mut Source<R>,
    ) -> Result<Option<Block>, CaptureError> {
        loop {
            let offset = source.offset();
            let mut kind = [0; 4];
            if source.fill(&mut kind[..1])? == 0 {
                return Ok(None);
            }
            source.fill_all(number, &mut kind[1..])?;
            let kind = self.order.u32(kind);
            if kind == SECTION_HEADER {
                self.read_section(number, source)?;
                continue;
            }
            let bytes = self.order.u32(source.array(number)?);
            let body = self.read_body(number, offset, bytes, 8, source)?;
            return Ok(Some(Block { kind, offset, body }));
        }
    }

    /// Reads a section header behind its type; its length can be told only when its
    /// byte order is known.
    fn read_section<R: Read>(
        &mut self,
        number: u64,
        source: &mut Source<R>,
    ) -> Result<(), CaptureError> {
        let number = number.max(1);
        let offset = source.offset() - 4;
        let bytes: [u8; 4] = source.array(number)?;
        let magic: [u8; 4] = source.array(number)?;
        self.order = if u32::from_le_bytes(magic) == BYTE_ORDER_MAGIC {
            Order::Little
        } else if u32::from_be_bytes(magic) == BYTE_ORDER_MAGIC {
            Order::Big
        } else {
            return Err(damaged(offset, "no byte order in its section header"));
        };
        let body = self.read_body(number, offset, self.order.u32(bytes), 12, source)?;
        let version = |at| self.order.u16_at(&body, at).unwrap_or_default();
        let (major, minor) = (version(0), version(2));
        if major != 1 {
            return Err(CaptureError::Version {
                format: "pcapng",
                major,
                minor,
            });
        }
        self.interfaces.clear();
        Ok(())
    }

    /// The rest of a block of `bytes` bytes of which `read` are read, without its
    /// second length.
    fn read_body<R: Read>(
        &self,
        number: u64,
        offset: u64,
        bytes: u32,
        read: u32,
        source: &mut Source<R>,
    ) -> Result<Vec<u8>, CaptureError> {
        if bytes < read + 4 || !bytes.is_multiple_of(4) || bytes > MAX_BLOCK_BYTES {
            return Err(damaged(offset, "its length is no length of a block"));
        }
        let mut body = vec![0; (bytes - read - 4) as usize];
        source.fill_all(number, &mut body)?;
        if self.order.u32(source.array(number)?) != bytes {
            return Err(damaged(offset, "its two lengths differ"));
        }
        Ok(body)
    }

    fn read_interface(&mut self, block: &Block) -> Result<(), CaptureError> {
        if self.interfaces.len() == MAX_INTERFACES {
            return Err(damaged(block.offset, "too many interfaces"));
        }
        let link_type = self.order.u16_at(&block.body, 0);
        let Some((link_type, options)) = link_type.zip(block.body.get(8..)) else {
            return Err(damaged(block.offset, "too short for an interface"));
        };
        check_link_type(link_type.into())?;
        let mut interface = Interface {
            steps_per_second: 1_000_000,
            offset_s: 0,
            fcs_bytes: 0,
        };
        self.read_options(options, &mut interface)
            .map_err(|why| damaged(block.offset, why))?;
        let step_ps = (PS_PER_S / interface.steps_per_second).max(1);
        let step_ps = u64::try_from(step_ps).unwrap_or(u64::MAX);
        self.resolution_ps = self.resolution_ps.max(step_ps);
        self.interfaces.push(interface);
        Ok(())
    }

    fn read_options(&self, options: &[u8], interface: &mut Interface) -> Result<(), &'static str> {
        let mut rest = options;
        while let (Some(code), Some(bytes)) =
            (self.order.u16_at(rest, 0), self.order.u16_at(rest, 2))
        {
            let bytes = usize::from(bytes);
            let value = rest
                .get(4..4 + bytes)
                .ok_or("an option longer than its block")?;
            match (code, value) {
                (0, _) => break,
                (OPTION_TIME_RESOLUTION, [resolution]) => {
                    interface.steps_per_second = steps_per_second(*resolution)?;
                }
                // The draft says bits, its example and many files say bytes.
                (OPTION_FCS_LENGTH, [4 | 32]) => interface.fcs_bytes = 4,
                (OPTION_TIME_OFFSET, value) => {
                    let seconds = value
                        .first_chunk()
                        .ok_or("a time offset of another length")?;
                    interface.offset_s = self.order.i64(*seconds);
                }
                _ => {}
            }
            rest = rest
                .get(4 + bytes.next_multiple_of(4)..)
                .unwrap_or_default();
        }
        Ok(())
    }

    fn read_packet(&self, number: u64, block: &Block) -> Result<Record, CaptureError> {
        let damaged = |why| damaged(block.offset, why);
        let word = |at| {
            self.order
                .u32_at(&block.body, at)
                .ok_or(damaged("too short for a frame"))
        };
        let index = if block.kind == ENHANCED_PACKET {
            word(0)?
        } else {
            self.order.u16_at(&block.body, 0).unwrap_or_default().into()
        };
        let interface = self
            .interfaces
            .get(index as usize)
            .ok_or(damaged("a frame of an interface that is not described"))?;
        let steps = u128::from(word(4)?) << 32 | u128::from(word(8)?);
        let (captured, wire_len) = (word(12)?, word(16)?);
        check_captured(number, captured)?;
        let data = block.body.get(20..).unwrap_or_default();
        let bytes = data
            .get(..captured as usize)
            .ok_or(damaged("a frame longer than its block"))?;
        let since_offset_ps = steps / interface.steps_per_second * PS_PER_S
            + steps % interface.steps_per_second * PS_PER_S / interface.steps_per_second;
        let offset_ps = i128::from(interface.offset_s) * PS_PER_S.cast_signed();
        let at_ps = since_offset_ps
            .checked_add_signed(offset_ps)
            .ok_or(damaged("a time before 1970"))?;
        finish(number, at_ps, wire_len, interface.fcs_bytes, bytes.to_vec())
    }
}

/// `if_tsresol`: a negative power of ten, or of two with the highest bit set.
fn steps_per_second(resolution: u8) -> Result<u128, &'static str> {
    let (base, power) = if resolution & 0x80 == 0 {
        (10_u128, u32::from(resolution))
    } else {
        (2_u128, u32::from(resolution & 0x7f))
    };
    // Beyond 10^-19 and 2^-64 a time stamp of 64 bits does not span a second.
    let most = if base == 10 { 19 } else { 64 };
    if power > most {
        return Err("a time resolution that is no resolution");
    }
    Ok(base.pow(power))
}

fn damaged(offset: u64, why: &'static str) -> CaptureError {
    CaptureError::Block { offset, why }
}
