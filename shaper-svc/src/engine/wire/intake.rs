//! The way in: frames get a slot, and compete from their arrival on.

use super::{BURST, Wire};
use crate::engine::Frame;
use crate::engine::backlog::{NONE, Slot};
use crate::engine::keys::KeyEntry;
use crate::engine::time::{is_after, later};

/// The frame that was appended last to a sub-queue of its key alone, and those that
/// followed it: frames often come in trains of one key and one arrival, and a sub-queue
/// need not learn of each. It does before anything else looks at it.
#[derive(Debug, Clone, Copy)]
struct Train {
    key: u64,
    arrived_ps: u64,
    /// [`NONE`]: there is no train.
    queue: u32,
    last: u32,
    /// Frames linked behind the end that the sub-queue knows.
    followers: u32,
}

const NO_TRAIN: Train = Train {
    key: 0,
    arrived_ps: 0,
    queue: NONE,
    last: NONE,
    followers: 0,
};

impl<H: Default> Wire<H> {
    /// Takes frames in, in order, until the queue is full; gives back how many. The
    /// rest stays with the caller, whose port must hold them.
    #[inline]
    pub fn push(&mut self, frames: &[Frame<H>]) -> usize
    where
        H: Copy,
    {
        let taken = self.begin_push(frames.len());
        for burst in frames[..taken].chunks(BURST) {
            self.take_in(burst.iter().copied());
        }
        taken
    }

    /// The same for handles that cannot be copied: one for each of `frames`, moved out of
    /// its place when its frame is taken in.
    #[inline]
    pub fn push_held(&mut self, frames: &[Frame<()>], handles: &mut [H]) -> usize {
        let taken = self.begin_push(frames.len().min(handles.len()));
        let bursts = frames[..taken].chunks(BURST);
        for (burst, handles) in bursts.zip(handles.chunks_mut(BURST)) {
            let held = burst.iter().zip(handles);
            self.take_in(held.map(|(frame, handle)| frame.with_handle(std::mem::take(handle))));
        }
        taken
    }

    /// How many of so many frames will be taken in.
    #[inline]
    fn begin_push(&mut self, frames: usize) -> usize {
        self.take_back(0);
        let taken = frames.min(self.backlog.free_frames());
        self.stats.pushed_frames += taken as u64;
        self.stats.refused_pushes += (frames - taken) as u64;
        taken
    }

    /// Takes in a burst for which there is room.
    #[inline]
    fn take_in(&mut self, frames: impl ExactSizeIterator<Item = Frame<H>>) {
        let mut nothing_waits = self.backlog.waiting_frames() == 0;
        let mut slots = [NONE; BURST];
        let slots = &mut slots[..frames.len()];
        self.backlog.take_slots(slots);
        let mut train = NO_TRAIN;
        for (&mut slot, frame) in slots.iter_mut().zip(frames) {
            let Frame {
                key,
                arrived_ps,
                is_cnp,
                ..
            } = frame;
            self.backlog.store(slot, frame);
            let follows = key == train.key && arrived_ps == train.arrived_ps && !is_cnp;
            if follows && train.queue != NONE {
                self.backlog.link(train.last, slot);
                train.last = slot;
                train.followers = train.followers.wrapping_add(1);
            } else {
                self.end_train(train);
                train = if self.has_staged || is_after(arrived_ps, self.admitted_until_ps) {
                    self.push_early(slot, arrived_ps, nothing_waits);
                    NO_TRAIN
                } else {
                    self.admit(slot, key, arrived_ps, is_cnp)
                };
            }
            nothing_waits = false;
        }
        self.end_train(train);
    }

    #[inline]
    fn end_train(&mut self, train: Train) {
        if train.followers > 0 {
            let list = self.backlog.list_mut(train.queue);
            list.extend(train.last, train.followers);
        }
    }

    /// A frame that arrived after the instant at which the wire becomes free.
    #[cold]
    fn push_early(&mut self, slot: u32, arrived_ps: u64, is_alone: bool) {
        if is_alone {
            // The wire idles until this frame arrives.
            self.admitted_until_ps = later(self.admitted_until_ps, arrived_ps);
            let Slot { key, is_cnp, .. } = *self.backlog.slot(slot);
            self.admit(slot, key, arrived_ps, is_cnp);
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
            let Slot {
                key,
                arrived_ps,
                is_cnp,
                ..
            } = *front;
            self.backlog.unstage(self.staged, slot);
            self.admit(slot, key, arrived_ps, is_cnp);
        }
        self.has_staged = false;
    }

    /// Lets a frame compete; gives the train that it begins.
    #[inline]
    fn admit(&mut self, slot: u32, key: u64, arrived_ps: u64, is_cnp: bool) -> Train {
        let queue = self.keys.queue_of(key);
        match self.backlog.lists.get(queue as usize) {
            Some(list) if !list.shared && !is_cnp => {
                self.append(queue, slot);
                Train {
                    key,
                    arrived_ps,
                    queue,
                    last: slot,
                    followers: 0,
                }
            }
            _ => {
                self.admit_uncommon(slot, key, is_cnp);
                NO_TRAIN
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
        (key % u64::from(self.queues)) as u32
    }
}
