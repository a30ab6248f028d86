//! Bytes of a file, counted.

use super::CaptureError;
use std::io::{ErrorKind, Read};

/// A reader that knows where it is.
#[derive(Debug)]
pub(super) struct Source<R> {
    input: R,
    offset: u64,
}

impl<R: Read> Source<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, offset: 0 }
    }

    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Fills `buffer` as far as the file goes, and tells how far.
    pub(super) fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, CaptureError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.input.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.offset += filled as u64;
        Ok(filled)
    }

    /// Fills all of `buffer`, or tells that the file ends within frame `number`.
    pub(super) fn fill_all(&mut self, number: u64, buffer: &mut [u8]) -> Result<(), CaptureError> {
        if self.fill(buffer)? == buffer.len() {
            return Ok(());
        }
        Err(CaptureError::Cut {
            number,
            offset: self.offset,
            whole: number - 1,
        })
    }

    /// The same for an array of a fixed size.
    pub(super) fn array<const N: usize>(&mut self, number: u64) -> Result<[u8; N], CaptureError> {
        let mut bytes = [0; N];
        self.fill_all(number, &mut bytes)?;
        Ok(bytes)
    }
}

/// Byte order of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Little,
    Big,
}

impl Order {
    pub(super) const fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }

    pub(super) const fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        }
    }

    pub(super) const fn i64(self, bytes: [u8; 8]) -> i64 {
        match self {
            Self::Little => i64::from_le_bytes(bytes),
            Self::Big => i64::from_be_bytes(bytes),
        }
    }

    /// The 32-bit number at `from`, if `bytes` go so far.
    pub(super) fn u32_at(self, bytes: &[u8], from: usize) -> Option<u32> {
        Some(self.u32(*bytes.get(from..)?.first_chunk()?))
    }

    /// The 16-bit number at `from`, if `bytes` go so far.
    pub(super) fn u16_at(self, bytes: &[u8], from: usize) -> Option<u16> {
        Some(self.u16(*bytes.get(from..)?.first_chunk()?))
    }
}
