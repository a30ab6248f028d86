//! The way in: frames get a slot, and compete from their arrival on.

use super::{BURST, Wire};
use crate::engine::Frame;
use crate::engine::backlog::{NONE, Slot};
use crate::engine::keys::KeyEntry;
use crate::engine::time::{is_after, later};

/// Takes frames in, one by one, as many as there is room for.
#[derive(Debug)]
pub struct Intake<'a, H: Default> {
    wire: &'a mut Wire<H>,
    /// Place of the first slot taken for this.
    first: usize,
    room: usize,
    taken: usize,
    /// Frames that waited before.
    waiting: usize,
    train: Train,
}

/// The last key that was looked up and has a sub-queue to itself, or no sub-queue: frames
/// often come in trains of one key. It has a frame waiting, so it keeps its sub-queue,
/// which may become shared.
#[derive(Debug, Clone, Copy)]
struct Train {
    key: u64,
    queue: u32,
}

const NO_TRAIN: Train = Train {
    key: 0,
    queue: NONE,
};

impl<H: Default> Intake<'_, H> {
    /// Frames that [`Intake::push`] takes, those taken included.
    #[must_use]
    pub const fn room(&self) -> usize {
        self.room
    }

    /// Takes a frame in, or gives it back when there is no room left.
    ///
    /// # Errors
    /// The frame, which stays with the caller.
    #[inline]
    pub fn push(&mut self, frame: Frame<H>) -> Result<(), Frame<H>> {
        if self.taken == self.room {
            return Err(frame);
        }
        let Frame {
            key,
            arrived_ps,
            is_cnp,
            ..
        } = frame;
        let slot = self.wire.backlog.store(self.first + self.taken, frame);
        if self.wire.has_staged || is_after(arrived_ps, self.wire.admitted_until_ps) {
            let is_alone = self.waiting + self.taken == 0;
            self.wire.push_early(slot, arrived_ps, is_alone);
        } else {
            self.train = self.wire.admit(slot, key, is_cnp, self.train);
        }
        self.taken += 1;
        Ok(())
    }
}

impl<H: Default> Drop for Intake<'_, H> {
    #[inline]
    fn drop(&mut self) {
        let wire = &mut self.wire;
        wire.backlog.return_slots(self.first, self.taken, self.room);
        wire.stats.pushed_frames += self.taken as u64;
    }
}

impl<H: Default> Wire<H> {
    /// Begins to take in a burst of at most [`BURST`] frames.
    #[inline]
    pub fn intake(&mut self) -> Intake<'_, H> {
        self.intake_of(BURST)
    }

    #[inline]
    fn intake_of(&mut self, frames: usize) -> Intake<'_, H> {
        self.take_back(0);
        let room = frames.min(self.backlog.free_frames());
        let waiting = self.backlog.waiting_frames();
        let first = self.backlog.take_slots(room);
        Intake {
            wire: self,
            first,
            room,
            taken: 0,
            waiting,
            train: NO_TRAIN,
        }
    }

    /// Takes frames in, in order, until the queue is full; gives back how many. The
    /// rest stays with the caller, whose port must hold them.
    #[inline]
    pub fn push(&mut self, frames: &[Frame<H>]) -> usize
    where
        H: Copy,
    {
        let mut intake = self.intake_of(frames.len());
        let taken = intake.room();
        for frame in &frames[..taken] {
            let pushed = intake.push(*frame);
            debug_assert!(pushed.is_ok(), "there is room for as many");
        }
        drop(intake);
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
            self.admit(slot, key, is_cnp, NO_TRAIN);
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
            self.admit(slot, key, is_cnp, NO_TRAIN);
        }
        self.has_staged = false;
    }

    /// Lets a frame compete; gives the train that it ends.
    #[inline]
    fn admit(&mut self, slot: u32, key: u64, is_cnp: bool, train: Train) -> Train {
        let queue = if key == train.key && train.queue != NONE {
            train.queue
        } else {
            self.keys.queue_of(key)
        };
        match self.backlog.lists.get(queue as usize) {
            Some(list) if !list.shared && !is_cnp => {
                self.append(queue, slot);
                Train { key, queue }
            }
            _ => {
                self.admit_uncommon(slot, key, is_cnp);
                train
            }
        }
    }

    #[inline]
    fn append(&mut self, queue: u32, slot: u32) {
        if self.backlog.append(queue, slot) {
            self.active.set(queue);
        }
    }

    /// A CNP, a frame of a key without sub-queue, or one of a key that shares.
    #[inline(never)]
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

    /// Gives an unknown key the next sub-queue in the circle that is empty, whoever
    /// had it, or else a share of the one at its value modulo their number.
    fn assign_queue(&mut self, key: u64) -> u32 {
        if let Some(queue) = self.active.next_vacant_after(self.assigned, self.queues) {
            self.assigned = queue;
            self.forget_owner(queue);
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
            self.shared_queues += 1;
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

    /// An empty sub-queue goes to another key. Once it was shared, its owner may have
    /// another one.
    fn forget_owner(&mut self, queue: u32) {
        let owner = self.backlog.list(queue).key;
        if self.keys.queue_of(owner) == queue {
            self.keys.remove(owner);
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "the number of sub-queues is a u32"
    )]
    fn shared_queue_of(&self, key: u64) -> u32 {
        self.sharing.split(key).1 as u32
    }
}
