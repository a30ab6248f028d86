//! Writes pcap with nanoseconds, little-endian on every machine, so that the same
//! frames always give the same bytes.

use super::pcap::MAGIC_NANOSECONDS;
use super::{LINK_ETHERNET, MAX_CAPTURED_BYTES, Record};
use std::io::{self, Write};

const PS_PER_NS: u128 = 1_000;
const NS_PER_S: u128 = 1_000_000_000;

/// A capture that is being written.
#[derive(Debug)]
pub struct Writer<W> {
    output: W,
}

impl<W: Write> Writer<W> {
    /// Writes the header.
    ///
    /// # Errors
    /// When `output` cannot be written.
    pub fn new(mut output: W) -> io::Result<Self> {
        output.write_all(&MAGIC_NANOSECONDS.to_le_bytes())?;
        for version in [2_u16, 4] {
            output.write_all(&version.to_le_bytes())?;
        }
        for word in [0, 0, MAX_CAPTURED_BYTES, LINK_ETHERNET] {
            output.write_all(&word.to_le_bytes())?;
        }
        Ok(Self { output })
    }

    /// Writes a frame; its time is rounded up to the nanosecond, so that it never
    /// seems earlier than it was.
    ///
    /// # Errors
    /// When `output` cannot be written, and after the year 2106, which the format
    /// cannot tell.
    pub fn write(&mut self, record: &Record) -> io::Result<()> {
        let at_ns = record.at_ps.div_ceil(PS_PER_NS);
        let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_owned());
        let seconds = u32::try_from(at_ns / NS_PER_S)
            .map_err(|_| invalid("a time stamp after 2106, which pcap cannot hold"))?;
        let nanoseconds = u32::try_from(at_ns % NS_PER_S).unwrap_or_default();
        let captured = u32::try_from(record.bytes.len())
            .map_err(|_| invalid("a frame longer than pcap can hold"))?;
        for word in [seconds, nanoseconds, captured, record.wire_len] {
            self.output.write_all(&word.to_le_bytes())?;
        }
        self.output.write_all(&record.bytes)
    }

    /// The output, with everything written.
    ///
    /// # Errors
    /// When `output` cannot be flushed.
    pub fn finish(mut self) -> io::Result<W> {
        self.output.flush()?;
        Ok(self.output)
    }
}
