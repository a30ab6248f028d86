//! Congestion marks (ECN, RFC 3168): frames that leave while many wait are marked as
//! having met congestion, as a switch does it.
//!
//! The ICRC of RoCEv2 leaves the bits out that a mark changes, so only the checksum of
//! IPv4 has to follow.

use crate::engine::Departure;
use crate::port::{BURST, Port};

/// When to mark: never below `kmin_bytes`, always from `kmax_bytes` on, in between with
/// a probability that grows to `pmax_permille` (random early detection).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marking {
    /// Bytes that may wait unmarked.
    pub kmin_bytes: u64,
    /// Bytes from which on every frame is marked; above `kmin_bytes`.
    pub kmax_bytes: u64,
    /// Probability just below `kmax_bytes`, thousandths.
    pub pmax_permille: u16,
}

/// Marks the frames of one wire.
#[derive(Debug)]
pub(super) struct Marker {
    marking: Marking,
    /// Of frames that wait, without FCS.
    queued_bytes: u64,
    marks: u64,
    dice: u64,
}

impl Marker {
    pub(super) fn new(marking: Marking, seed: u64) -> Self {
        Self {
            marking,
            queued_bytes: 0,
            marks: 0,
            dice: seed,
        }
    }

    pub(super) fn arrived(&mut self, bytes: u64) {
        self.queued_bytes += bytes;
    }

    /// Frames have left; the depth is what still waits.
    pub(super) fn departed(&mut self, departures: &[Departure]) {
        let bytes: u64 = departures.iter().map(|d| u64::from(d.len)).sum();
        self.queued_bytes = self.queued_bytes.saturating_sub(bytes);
    }

    /// Marks some of the frames that are about to be offered to the port. One that the
    /// port then does not take is drawn for again: a port that takes nothing is
    /// congestion too.
    pub(super) fn mark<P: Port>(
        &mut self,
        port: &mut P,
        departures: &[Departure],
        tokens: &mut [P::Frame],
    ) {
        let mut depth = self.queued_bytes;
        if depth <= self.marking.kmin_bytes {
            return;
        }
        let mut which = 0;
        for (at, departure) in departures.iter().enumerate().take(BURST) {
            if !departure.is_cnp && self.draw(depth) {
                which |= 1 << at;
            }
            depth = depth.saturating_sub(departure.len.into());
        }
        let marks = &mut self.marks;
        port.rewrite(tokens, which, |head| *marks += u64::from(mark_ce(head)));
    }

    /// Marks since the last call.
    pub(super) fn take_marks(&mut self) -> u64 {
        std::mem::take(&mut self.marks)
    }

    fn draw(&mut self, depth: u64) -> bool {
        let Marking {
            kmin_bytes,
            kmax_bytes,
            pmax_permille,
        } = self.marking;
        if depth <= kmin_bytes || depth >= kmax_bytes {
            return depth >= kmax_bytes;
        }
        let share = u128::from(depth - kmin_bytes) * u128::from(pmax_permille);
        let whole = u128::from(kmax_bytes - kmin_bytes) * 1000;
        u128::from(self.roll()) * whole < share << 32
    }

    /// 32 random bits: splitmix64 (Steele, Lea, Flood, OOPSLA 2014).
    fn roll(&mut self) -> u32 {
        self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.dice;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 32) as u32
    }
}

const TYPE_IPV4: [u8; 2] = [0x08, 0x00];
const TYPE_IPV6: [u8; 2] = [0x86, 0xdd];
const TAGS: [[u8; 2]; 3] = [[0x81, 0x00], [0x88, 0xa8], [0x91, 0x00]];

/// Marks the frame that begins like this as having met congestion, if its sender can
/// be told so: ECT(0) or ECT(1). Whether it did.
fn mark_ce(head: &mut [u8]) -> bool {
    let mut at = 12;
    // The frame's own type, behind two tags at the most.
    for _ in 0..2 {
        match head.get(at..at + 2) {
            Some(kind) if TAGS.iter().any(|tag| kind == tag) => at += 4,
            _ => break,
        }
    }
    let Some((kind, packet)) = head
        .get_mut(at..)
        .and_then(|head| head.split_at_mut_checked(2))
    else {
        return false;
    };
    if kind == TYPE_IPV4 {
        packet.first_chunk_mut::<20>().is_some_and(mark_ipv4)
    } else if kind == TYPE_IPV6 {
        packet.first_chunk_mut::<40>().is_some_and(mark_ipv6)
    } else {
        false
    }
}

const fn is_capable(ecn: u8) -> bool {
    matches!(ecn & 3, 1 | 2)
}

fn mark_ipv4(header: &mut [u8; 20]) -> bool {
    if header[0] >> 4 != 4 || !is_capable(header[1]) {
        return false;
    }
    let before = u16::from_be_bytes([header[0], header[1]]);
    header[1] |= 3;
    let after = u16::from_be_bytes([header[0], header[1]]);
    // RFC 1624, equation 3: the sum without the old word and with the new one.
    let sum = u16::from_be_bytes([header[10], header[11]]);
    let mut folded = u32::from(!sum) + u32::from(!before) + u32::from(after);
    while folded > 0xffff {
        folded = (folded & 0xffff) + (folded >> 16);
    }
    let sum = !u16::try_from(folded).unwrap_or_default();
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    true
}

/// The traffic class lies across the first two bytes; its last two bits are those.
fn mark_ipv6(header: &mut [u8; 40]) -> bool {
    if header[0] >> 4 != 6 || !is_capable(header[1] >> 4) {
        return false;
    }
    header[1] |= 0x30;
    true
}

#[cfg(test)]
mod tests;
