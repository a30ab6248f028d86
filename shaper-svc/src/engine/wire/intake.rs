//! The way in: frames get a slot, and compete from their arrival on.

use super::Wire;
use crate::engine::Frame;
use crate::engine::backlog::Slot;
use crate::engine::keys::KeyEntry;
use crate::engine::time::{is_after, later};

impl Wire {
    /// Takes frames in, in order, until the queue is full; gives back how many. The
    /// rest stays with the caller, whose port must hold them.
    #[inline]
    pub fn push(&mut self, frames: &[Frame]) -> usize {
        self.take_back(0);
        let taken = frames.len().min(self.backlog.free_frames());
        let waiting = self.backlog.waiting_frames();
        let first_place = self.backlog.take_slots(taken);
        for (at, frame) in frames[..taken].iter().enumerate() {
            let slot = self.backlog.store(first_place + at, frame);
            if self.has_staged || is_after(frame.arrived_ps, self.admitted_until_ps) {
                self.push_early(slot, frame.arrived_ps, waiting + at == 0);
            } else {
                self.admit(slot, frame.key, frame.is_cnp);
            }
        }
        self.stats.pushed_frames += taken as u64;
        self.stats.refused_pushes += (frames.len() - taken) as u64;
        taken
    }

    /// A frame that arrived after the instant at which the wire becomes free.
    #[cold]
    fn push_early(&mut self, slot: u32, arrived_ps: u64, is_alone: bool) {
        if is_alone {
            // The wire idles until this frame arrives.
            self.admitted_until_ps = later(self.admitted_until_ps, arrived_ps);
            let Slot { key, is_cnp, .. } = *self.backlog.slot(slot);
            self.admit(slot, key, is_cnp);
        } else {
            self.backlog.append(self.staged, slot);
            self.has_staged = true;
        }
    }

    /// Moves frames whose arrival the wire has reached into their sub-queues.
    pub(super) fn admit_staged(&mut self) {
        let nothing_competes = self.active.is_empty() && self.backlog.list(self.cnps).is_empty();
        let reached_ps = if nothing_competes {
            // The wire idles until the next arrival.
            let Some((_, front)) = self.backlog.front(self.staged) else {
                return;
            };
            if is_after(front.arrived_ps, self.now_ps) {
                return;
            }
            later(self.clock.whole_ps, front.arrived_ps)
        } else {
            self.clock.whole_ps
        };
        self.admitted_until_ps = later(self.admitted_until_ps, reached_ps);
        while let Some((slot, front)) = self.backlog.front(self.staged) {
            if is_after(front.arrived_ps, reached_ps) {
                return;
            }
            let Slot { key, is_cnp, .. } = *front;
            self.backlog.unstage(self.staged, slot);
            self.admit(slot, key, is_cnp);
        }
        self.has_staged = false;
    }

    /// Lets a frame compete.
    #[inline]
    fn admit(&mut self, slot: u32, key: u64, is_cnp: bool) {
        let queue = self.keys.queue_of(key);
        match self.backlog.lists.get(queue as usize) {
            Some(list) if !list.shared && !is_cnp => self.append(queue, slot),
            _ => self.admit_uncommon(slot, key, is_cnp),
        }
    }

    #[inline]
    fn append(&mut self, queue: u32, slot: u32) {
        if self.backlog.append(queue, slot) {
            self.active.set(queue);
        }
    }

    /// A CNP, a frame of a key without backlog, or one of a key that shares.
    fn admit_uncommon(&mut self, slot: u32, key: u64, is_cnp: bool) {
        if is_cnp {
            self.backlog.append(self.cnps, slot);
            return;
        }
        let queue = match self.keys.get_mut(key) {
            Some(entry) => {
                // A key that is known here shares its sub-queue.
                entry.shared_frames += 1;
                self.stats.shared_frames += 1;
                entry.queue
            }
            None => self.assign_queue(key),
        };
        self.append(queue, slot);
    }

    /// Gives a key without backlog the lowest unused sub-queue, or else a share of
    /// the one at its value modulo their number.
    fn assign_queue(&mut self, key: u64) -> u32 {
        if let Some(queue) = self.unused.next_after(self.queues - 1) {
            self.unused.clear(queue);
            self.backlog.list_mut(queue).key = key;
            self.keys.insert(KeyEntry {
                key,
                queue,
                shared_frames: 0,
            });
            return queue;
        }
        let queue = self.shared_queue_of(key);
        let list = self.backlog.list_mut(queue);
        if !list.shared {
            // Its owner's frames are counted one by one from here on.
            list.shared = true;
            let (owner, frames) = (list.key, list.frames);
            if let Some(entry) = self.keys.get_mut(owner) {
                entry.shared_frames = frames;
            }
        }
        self.stats.shared_frames += 1;
        self.keys.insert(KeyEntry {
            key,
            queue,
            shared_frames: 1,
        });
        queue
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "the number of sub-queues is a u32"
    )]
    fn shared_queue_of(&self, key: u64) -> u32 {
        (key % u64::from(self.queues)) as u32
    }
}
