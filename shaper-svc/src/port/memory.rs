//! Ports in memory: what is received is put in by a test, what is sent is kept for
//! it, and how much is taken at a time is its choice.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use super::{BURST, Port};

/// The frames of a set of ports: tokens of one are valid at the others.
#[derive(Clone, Debug, Default)]
pub struct Frames(Rc<RefCell<Held>>);

#[derive(Debug, Default)]
struct Held {
    next: u64,
    frames: HashMap<u64, Vec<u8>>,
}

impl Frames {
    /// How many frames are held: taken from a burst and not given back.
    #[must_use]
    pub fn held(&self) -> usize {
        self.0.borrow().frames.len()
    }

    /// The bytes of a held frame.
    #[must_use]
    pub fn bytes_of(&self, frame: MemoryFrame) -> Option<Vec<u8>> {
        self.0.borrow().frames.get(&frame.0).cloned()
    }

    fn hold(&self, bytes: Vec<u8>) -> MemoryFrame {
        let mut held = self.0.borrow_mut();
        held.next += 1;
        let id = held.next;
        held.frames.insert(id, bytes);
        MemoryFrame(id)
    }

    fn give_back(&self, frame: MemoryFrame) -> Option<Vec<u8>> {
        self.0.borrow_mut().frames.remove(&frame.0)
    }
}

/// A frame held from a [`MemoryPort`]. They are numbered from one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MemoryFrame(u64);

/// A port in memory.
#[derive(Debug)]
pub struct MemoryPort {
    frames: Frames,
    arriving: VecDeque<Vec<u8>>,
    sent: Vec<Vec<u8>>,
    /// How many frames the next calls of [`Port::transmit`] take; after the last
    /// entry, all.
    takes: VecDeque<usize>,
}

impl MemoryPort {
    /// A port without frames.
    #[must_use]
    pub fn new(frames: &Frames) -> Self {
        Self {
            frames: frames.clone(),
            arriving: VecDeque::new(),
            sent: Vec::new(),
            takes: VecDeque::new(),
        }
    }

    /// Lets a frame arrive.
    pub fn arrive(&mut self, bytes: Vec<u8>) {
        self.arriving.push_back(bytes);
    }

    /// Frames that arrived and were not received yet.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.arriving.len()
    }

    /// The next call of [`Port::transmit`] without a limit gets this one.
    pub fn take_at_most(&mut self, frames: usize) {
        self.takes.push_back(frames);
    }

    /// What was sent since the last call, in order.
    pub fn sent(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.sent)
    }
}

impl Port for MemoryPort {
    type Frame = MemoryFrame;

    fn receive<R>(
        &mut self,
        max: usize,
        mut read: impl FnMut(&[u8], u32) -> R,
        mut hold: impl FnMut(MemoryFrame, R),
    ) -> usize {
        let n = max.min(BURST).min(self.arriving.len());
        for bytes in self.arriving.drain(..n) {
            let known = read(&bytes, u32::try_from(bytes.len()).unwrap_or(u32::MAX));
            hold(self.frames.hold(bytes), known);
        }
        n
    }

    fn transmit(&mut self, frames: &mut [MemoryFrame]) -> usize {
        if frames.is_empty() {
            return 0;
        }
        let limit = self.takes.pop_front().unwrap_or(BURST).min(BURST);
        let mut taken = 0;
        for &mut frame in frames.iter_mut().take(limit) {
            let Some(bytes) = self.frames.give_back(frame) else {
                break;
            };
            self.sent.push(bytes);
            taken += 1;
        }
        taken
    }

    fn rewrite(
        &mut self,
        frames: &mut [MemoryFrame],
        which: u32,
        mut change: impl FnMut(&mut [u8]),
    ) {
        let mut held = self.frames.0.borrow_mut();
        for (at, frame) in frames.iter().enumerate().take(BURST) {
            if which >> at & 1 == 1
                && let Some(bytes) = held.frames.get_mut(&frame.0)
            {
                change(bytes);
            }
        }
    }

    fn discard(&mut self, frames: &mut [MemoryFrame]) -> usize {
        frames
            .iter()
            .filter(|&&frame| self.frames.give_back(frame).is_some())
            .count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive(port: &mut MemoryPort, max: usize) -> Vec<(MemoryFrame, Vec<u8>)> {
        let mut received = Vec::new();
        let read = |head: &[u8], bytes: u32| {
            assert_eq!(head.len(), bytes as usize);
            head.to_vec()
        };
        let n = port.receive(max, read, |token, head| received.push((token, head)));
        assert_eq!(n, received.len());
        received
    }

    #[test]
    fn a_frame_goes_from_one_port_to_the_other() {
        let frames = Frames::default();
        let (mut a, mut b) = (MemoryPort::new(&frames), MemoryPort::new(&frames));
        a.arrive(vec![7; 60]);
        let received = receive(&mut a, BURST);
        let [(token, head)] = &received[..] else {
            panic!("{received:?}");
        };
        assert_eq!(head, &[7; 60]);
        assert_eq!(b.transmit(&mut [MemoryFrame::default()]), 0, "no frame");
        assert_eq!(b.transmit(&mut [*token]), 1);
        assert_eq!(b.transmit(&mut [*token]), 0, "given back twice");
        assert_eq!(b.sent(), vec![vec![7; 60]]);
        assert_eq!(frames.held(), 0);
    }

    #[test]
    fn what_is_not_taken_is_still_held() {
        let frames = Frames::default();
        let mut port = MemoryPort::new(&frames);
        (0..3).for_each(|i| port.arrive(vec![i; 60]));
        let mut tokens: Vec<_> = receive(&mut port, 2)
            .iter()
            .map(|(token, _)| *token)
            .collect();
        assert_eq!((tokens.len(), port.waiting()), (2, 1));
        port.take_at_most(1);
        assert_eq!(port.transmit(&mut tokens), 1);
        assert_eq!(frames.held(), 1);
        assert_eq!(port.discard(&mut tokens), 1);
    }
}
