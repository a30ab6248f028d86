//! What can be wrong with a capture file, and what to do about it.

use super::MAX_CAPTURED_BYTES;
use std::io;
use thiserror::Error;

/// Why a capture cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// The file could not be read.
    #[error("cannot read the capture: {0}")]
    Io(#[from] io::Error),
    /// No byte in it.
    #[error(
        "the capture is empty, without even a header: was the capture stopped before it began?"
    )]
    Empty,
    /// Ends within its header.
    #[error("the capture ends within its header: capture again, or copy the file again")]
    CutHeader,
    /// Ends within a frame.
    #[error(
        "the capture ends within frame {number}, at byte {offset}; {whole} frames before it are whole: copy the file again, or use those with --accept-cut"
    )]
    Cut {
        /// The frame, counted from 1.
        number: u64,
        /// Where the file ends.
        offset: u64,
        /// Frames before it.
        whole: u64,
    },
    /// Compressed.
    #[error("the capture is compressed: unpack it first with {tool}")]
    Compressed {
        /// What unpacks it.
        tool: &'static str,
    },
    /// Something else.
    #[error(
        "not a capture: it begins with {magic:#010x}; pcap and pcapng are read, `editcap -F pcap IN OUT` converts other formats"
    )]
    NotACapture {
        /// Its first four bytes.
        magic: u32,
    },
    /// A version of the format that is not read.
    #[error(
        "{format} version {major}.{minor} is not read: convert it with `editcap -F pcap IN OUT`"
    )]
    Version {
        /// pcap or pcapng.
        format: &'static str,
        /// Major version.
        major: u16,
        /// Minor version.
        minor: u16,
    },
    /// Not Ethernet.
    #[error(
        "link type {link_type} is not Ethernet (1): capture on an Ethernet device, not on \"any\" or a tunnel"
    )]
    LinkType {
        /// Its number in the registry of link types.
        link_type: u32,
    },
    /// More than a frame can be.
    #[error(
        "frame {number} claims {captured} captured bytes, more than the {MAX_CAPTURED_BYTES} that a capture can hold: the file is damaged there, repair it with pcapfix or cut it before that frame"
    )]
    TooLong {
        /// The frame, counted from 1.
        number: u64,
        /// What it claims.
        captured: u32,
    },
    /// More captured than there was.
    #[error(
        "frame {number} holds {captured} bytes but says it had {wire_len} on the wire: the file is damaged there, repair it with pcapfix or cut it before that frame"
    )]
    HoldsMore {
        /// The frame, counted from 1.
        number: u64,
        /// Bytes captured.
        captured: usize,
        /// Bytes on the wire.
        wire_len: u32,
    },
    /// A fraction of a second above a second.
    #[error(
        "frame {number} has a time stamp with {fraction} parts of a second of {per_second}: the file is damaged there, repair it with pcapfix or cut it before that frame"
    )]
    Fraction {
        /// The frame, counted from 1.
        number: u64,
        /// Parts.
        fraction: u32,
        /// How many there are.
        per_second: u32,
    },
    /// A block of pcapng that contradicts itself.
    #[error(
        "the block at byte {offset} is damaged ({why}): repair the file with pcapfix or write it anew with `editcap IN OUT`"
    )]
    Block {
        /// Where it begins.
        offset: u64,
        /// What contradicts.
        why: &'static str,
    },
    /// A frame without time.
    #[error(
        "frame {number} has no time stamp (simple packet block): capture again with a tool that writes enhanced packet blocks, such as dumpcap"
    )]
    NoTime {
        /// The frame, counted from 1.
        number: u64,
    },
}
