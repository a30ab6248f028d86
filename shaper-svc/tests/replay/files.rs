//! Captures made by hand, in every format that is read.

/// A frame of a capture.
#[derive(Debug, Clone)]
pub(crate) struct Shot {
    pub(crate) at_ns: u64,
    pub(crate) wire_len: u32,
    pub(crate) bytes: Vec<u8>,
}

/// A whole RoCEv2 frame to `10.0.0.<host>`, of `len` bytes without FCS.
pub(crate) fn roce(at_ns: u64, host: u8, destination_qp: u8, opcode: u8, len: usize) -> Shot {
    let mut bytes = vec![2, 0, 0, 0, 0, host, 2, 0, 0, 0, 0, 1, 0x08, 0x00];
    let total = u16::try_from(len - 14).expect("short").to_be_bytes();
    bytes.extend([0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, 17, 0, 0]);
    bytes.extend([10, 0, 0, 1, 10, 0, 0, host]);
    let udp = u16::try_from(len - 34).expect("short").to_be_bytes();
    bytes.extend([0xc0, 0x01, 0x12, 0xb7, udp[0], udp[1], 0, 0]);
    bytes.extend([opcode, 0, 0xff, 0xff, 0, 0, 0, destination_qp, 0, 0, 0, 0]);
    bytes.resize(len, 0);
    Shot {
        at_ns,
        wire_len: u32::try_from(len).expect("short"),
        bytes,
    }
}

/// A format that is read.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Format {
    Pcap {
        nanoseconds: bool,
        big: bool,
    },
    /// With `if_tsresol` and `if_tsoffset`.
    Pcapng {
        resolution: u8,
        offset_s: i64,
        big: bool,
    },
}

struct Out {
    bytes: Vec<u8>,
    big: bool,
}

impl Out {
    fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes.extend(if self.big {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        });
        self
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes.extend(if self.big {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        });
        self
    }

    fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes.extend(if self.big {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        });
        self
    }

    fn block(&mut self, kind: u32, body: impl FnOnce(&mut Self)) {
        let mut inner = Self {
            bytes: Vec::new(),
            big: self.big,
        };
        body(&mut inner);
        inner.bytes.resize(inner.bytes.len().next_multiple_of(4), 0);
        let bytes = u32::try_from(inner.bytes.len() + 12).expect("short");
        self.u32(kind).u32(bytes).bytes.extend(inner.bytes);
        self.u32(bytes);
    }
}

/// The capture of `shots` in `format`.
pub(crate) fn capture(format: Format, shots: &[Shot]) -> Vec<u8> {
    match format {
        Format::Pcap { nanoseconds, big } => pcap(nanoseconds, big, 1, shots),
        Format::Pcapng {
            resolution,
            offset_s,
            big,
        } => pcapng(resolution, offset_s, big, shots),
    }
}

/// The usual capture: pcap, nanoseconds, little-endian.
pub(crate) fn plain(shots: &[Shot]) -> Vec<u8> {
    pcap(true, false, 1, shots)
}

pub(crate) fn pcap(nanoseconds: bool, big: bool, link: u32, shots: &[Shot]) -> Vec<u8> {
    let mut out = Out {
        bytes: Vec::new(),
        big,
    };
    out.u32(if nanoseconds {
        0xa1b2_3c4d
    } else {
        0xa1b2_c3d4
    });
    out.u16(2).u16(4).u32(0).u32(0).u32(65_535).u32(link);
    for shot in shots {
        let step_ns = if nanoseconds { 1 } else { 1_000 };
        let fraction = shot.at_ns % 1_000_000_000 / step_ns;
        let seconds = shot.at_ns / 1_000_000_000;
        out.u32(u32::try_from(seconds).expect("before 2106"));
        out.u32(u32::try_from(fraction).expect("below a second"));
        out.u32(u32::try_from(shot.bytes.len()).expect("short"));
        out.u32(shot.wire_len).bytes.extend(&shot.bytes);
    }
    out.bytes
}

fn pcapng(resolution: u8, offset_s: i64, big: bool, shots: &[Shot]) -> Vec<u8> {
    let mut out = Out {
        bytes: Vec::new(),
        big,
    };
    out.block(0x0a0d_0d0a, |body| {
        body.u32(0x1a2b_3c4d).u16(1).u16(0).u64(u64::MAX);
    });
    out.block(1, |body| {
        body.u16(1).u16(0).u32(0);
        body.u16(9).u16(1).bytes.extend([resolution, 0, 0, 0]);
        body.u16(14).u16(8).u64(offset_s.cast_unsigned());
        body.u16(0).u16(0);
    });
    // A block that nobody knows, in the way.
    out.block(0x0bad, |body| {
        body.u32(7);
    });
    for shot in shots {
        let steps_per_second: u128 = match resolution {
            binary @ 0x80.. => 1 << (binary & 0x7f),
            decimal => 10_u128.pow(decimal.into()),
        };
        let since_offset_ns = i128::from(shot.at_ns) - i128::from(offset_s) * 1_000_000_000;
        let since_offset_ns = since_offset_ns.cast_unsigned();
        let steps = since_offset_ns * steps_per_second / 1_000_000_000;
        out.block(6, |body| {
            body.u32(0);
            body.u32(u32::try_from(steps >> 32).expect("64 bits"));
            body.u32(u32::try_from(steps & 0xffff_ffff).expect("masked"));
            body.u32(u32::try_from(shot.bytes.len()).expect("short"));
            body.u32(shot.wire_len).bytes.extend(&shot.bytes);
        });
    }
    out.bytes
}
