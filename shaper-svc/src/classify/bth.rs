//! The base transport header of InfiniBand, which RoCEv2 carries behind UDP
//! (InfiniBand Architecture Specification, volume 1, 9.2, and annex A17).

/// Opcode of a congestion notification packet (annex A17.9.2).
pub const CNP_OPCODE: u8 = 0x81;

/// Bytes of the header.
pub(super) const BTH_BYTES: usize = 12;

/// What the shaper wants to know of the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bth {
    /// Transport in the upper three bits, operation in the lower five.
    pub opcode: u8,
    /// Destination QP, 24 bits.
    pub destination_qp: u32,
    /// Packet sequence number, 24 bits.
    pub psn: u32,
}

impl Bth {
    #[inline]
    pub(super) const fn read(bytes: [u8; BTH_BYTES]) -> Self {
        let [opcode, _, _, _, _, qp0, qp1, qp2, _, psn0, psn1, psn2] = bytes;
        Self {
            opcode,
            destination_qp: u32::from_be_bytes([0, qp0, qp1, qp2]),
            psn: u32::from_be_bytes([0, psn0, psn1, psn2]),
        }
    }

    /// Whether it is a congestion notification packet.
    #[inline]
    #[must_use]
    pub const fn is_cnp(self) -> bool {
        self.opcode == CNP_OPCODE
    }

    /// Whether it is a request of a reliable connection, whose PSN grows by one from
    /// packet to packet (read requests: by the packets of the answer): opcodes 0x00
    /// to 0x0c, and 0x13, 0x14 (atomics), 0x16, 0x17 (send with invalidate).
    #[inline]
    #[must_use]
    pub const fn is_reliable_request(self) -> bool {
        matches!(self.opcode, 0x00..=0x0c | 0x13 | 0x14 | 0x16 | 0x17)
    }
}
