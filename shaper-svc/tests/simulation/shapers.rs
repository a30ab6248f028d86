//! The engine, and what came before it.

use std::collections::VecDeque;

use rdmesh_shaper::engine::{BURST, Frame, Speed, Wire, WireConfig, line_bytes};
use rdmesh_shaper::rate::LineRate;

use crate::world::Packet;

/// Something that holds packets and lets them go at a rate.
pub(crate) trait Shaper {
    /// How many packets it takes.
    fn room(&self) -> usize;
    /// Takes a packet.
    fn push(&mut self, packet: Packet, now_ps: u64);
    /// Lets the packets go that may go now.
    fn poll(&mut self, now_ps: u64, into: &mut Vec<Packet>);
}

/// Whose turn a packet takes.
pub(crate) type Key = fn(&Packet) -> u64;

/// A turn for each queue pair.
pub(crate) fn by_qp(packet: &Packet) -> u64 {
    packet.number
}

/// All in one line, as in the first version of the original.
pub(crate) fn one_fifo(_: &Packet) -> u64 {
    0
}

/// 64 places, by number, however few are used, as in the original.
pub(crate) fn modulo_64(packet: &Packet) -> u64 {
    packet.number % 64
}

/// The engine with a key of choice.
pub(crate) struct Engine {
    wire: Wire,
    key: Key,
    held: Vec<Packet>,
    free: Vec<u64>,
}

impl Engine {
    pub(crate) fn new(rate_bps: u64, key: Key) -> Self {
        let speed = Speed::Rate(LineRate::new(rate_bps).unwrap());
        Self {
            wire: Wire::new(&WireConfig::new(speed, 1500), 0).unwrap(),
            key,
            held: Vec::new(),
            free: Vec::new(),
        }
    }

    pub(crate) fn wire(&self) -> &Wire {
        &self.wire
    }

    fn hold(&mut self, packet: Packet) -> u64 {
        if let Some(handle) = self.free.pop() {
            self.held[usize::try_from(handle).unwrap()] = packet;
            return handle;
        }
        self.held.push(packet);
        self.held.len() as u64 - 1
    }
}

impl Shaper for Engine {
    fn room(&self) -> usize {
        self.wire.room_frames()
    }

    fn push(&mut self, packet: Packet, now_ps: u64) {
        let handle = self.hold(packet);
        let frame = Frame {
            handle,
            key: (self.key)(&packet),
            arrived_ps: now_ps,
            len: packet.len,
            is_cnp: false,
        };
        assert_eq!(self.wire.push(&[frame]), 1, "room was asked for");
    }

    fn poll(&mut self, now_ps: u64, into: &mut Vec<Packet>) {
        loop {
            let burst = self.wire.peek(now_ps);
            let due = burst.departures().len();
            for handle in burst.handles() {
                into.push(self.held[usize::try_from(*handle).unwrap()]);
                self.free.push(*handle);
            }
            burst.commit(due);
            if due == 0 || into.len() >= 4 * BURST {
                return;
            }
        }
    }
}

/// One line whose clock may lag by so many frames, whether or not a frame was there to
/// use the time: late polls are forgiven, and so is idleness.
pub(crate) struct Credit {
    rate_bps: u64,
    credit_ps: u64,
    free_ps: u64,
    waiting: VecDeque<Packet>,
}

impl Credit {
    pub(crate) fn new(rate_bps: u64, frames: u64, len: u16) -> Self {
        Self {
            rate_bps,
            credit_ps: frames * wire_ps(len, rate_bps),
            free_ps: 0,
            waiting: VecDeque::new(),
        }
    }
}

impl Shaper for Credit {
    fn room(&self) -> usize {
        usize::MAX
    }

    fn push(&mut self, packet: Packet, _: u64) {
        self.waiting.push_back(packet);
    }

    fn poll(&mut self, now_ps: u64, into: &mut Vec<Packet>) {
        while let Some(first) = self.waiting.front() {
            let start_ps = self.free_ps.max(now_ps.saturating_sub(self.credit_ps));
            if start_ps > now_ps {
                return;
            }
            self.free_ps = start_ps + wire_ps(first.len, self.rate_bps);
            into.extend(self.waiting.pop_front());
        }
    }
}

/// What a frame occupies at a rate, ps, rounded up.
pub(crate) fn wire_ps(len: u16, rate_bps: u64) -> u64 {
    let ps = (u128::from(line_bytes(len)) * 8_000_000_000_000).div_ceil(u128::from(rate_bps));
    u64::try_from(ps).unwrap()
}
