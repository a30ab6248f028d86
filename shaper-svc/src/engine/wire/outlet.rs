//! The way out: what is due is offered, and leaves once the port has taken it.

use super::{BURST, Picks, Wire};
use crate::engine::backlog::{Backlog, List, Slot};
use crate::engine::clock::{Clock, Pace, line_bytes};
use crate::engine::time::{is_after, later};
use crate::engine::{Departure, Speed};
use std::hint::black_box;

/// The frames that may go to the port now, in order. Dropped without
/// [`Burst::commit`], it leaves the wire as it was.
#[derive(Debug)]
pub struct Burst<'a, H: Default = u64> {
    wire: &'a mut Wire<H>,
}

impl<H: Default> Burst<'_, H> {
    /// The frames. Fewer than [`BURST`] does not mean that no more are due: a burst
    /// also ends where frames join that arrived later. Poll until it is empty.
    #[must_use]
    #[inline]
    pub fn departures(&self) -> &[Departure] {
        &self.wire.departures[..self.wire.picked]
    }

    /// What the port calls them, in the same order.
    #[must_use]
    #[inline]
    pub fn handles(&self) -> &[H] {
        &self.wire.handles[..self.wire.picked]
    }

    /// Both, so that the port can take handles out. Those that it did not take have to
    /// be in their places at [`Burst::commit`].
    #[must_use]
    #[inline]
    pub fn offer(&mut self) -> (&[Departure], &mut [H]) {
        let wire = &mut *self.wire;
        let departures = &wire.departures[..wire.picked];
        (departures, &mut wire.handles[..wire.picked])
    }

    /// The speed at which they leave; another than before where a rule has ended by
    /// itself. All frames of a burst have the same.
    #[must_use]
    #[inline]
    pub const fn speed(&self) -> Speed {
        self.wire.speed
    }

    /// The port took the first `taken` frames (no more than were offered); the rest
    /// stays at the head and the clock does not move for it.
    #[inline]
    pub fn commit(self, taken: usize) {
        let taken = taken.min(self.wire.picked);
        self.wire.commit(taken);
    }
}

impl<H: Default> Drop for Burst<'_, H> {
    #[inline]
    fn drop(&mut self) {
        self.wire.take_back(0);
    }
}

/// Waiting frames from which on their slots are not in the inner caches: 512 KiB.
const TOUCH_FROM_FRAMES: usize = 16_384;

/// Reads a word of the frame behind each pick, whose turn comes in a later burst. The
/// reads depend on nothing and follow each other closely, so their cache misses
/// overlap; while picking, where much happens between one frame and the next, few
/// would. A prefetch without `unsafe`.
#[inline]
fn touch_followers<H: Default>(backlog: &Backlog<H>, lists: &[u32]) {
    let followers = lists.iter().filter_map(|list| backlog.front(*list));
    black_box(followers.fold(0, |all, (_, follower)| all | follower.next));
}

/// A burst while it is put together; all of it lives in registers. `WHOLE`: the pace
/// has no fraction. `STAGED`: frames wait that arrived later.
struct Picker<'a, H, const WHOLE: bool, const STAGED: bool> {
    slots: &'a mut [Slot<H>],
    lists: &'a mut [List],
    picks: &'a mut Picks,
    departures: &'a mut [Departure; BURST],
    handles: &'a mut [H; BURST],
    picked: usize,
    line_bytes: u64,
    clock: Clock,
    pace: Pace,
    /// The last instant at which a frame may start: now, or just before a rule ends.
    last_start_ps: u64,
    /// When the wire reaches this arrival, frames join.
    staged_from_ps: u64,
}

impl<H: Default, const WHOLE: bool, const STAGED: bool> Picker<'_, H, WHOLE, STAGED> {
    /// Offers the first frame of a list that is not empty, if it may start within
    /// the bounds; tells whether the list is empty now.
    #[inline]
    fn pick<const IS_CNP: bool>(&mut self, list: u32) -> Option<bool> {
        if STAGED && !is_after(self.staged_from_ps, self.clock.whole_ps) {
            return None;
        }
        let at = self.picked;
        let (departure, handle) = (self.departures.get_mut(at)?, &mut self.handles[at]);
        let queue = self.lists.get_mut(list as usize)?;
        let slot = queue.head();
        let front = self.slots.get_mut(slot as usize)?;
        let start = self.clock.no_earlier_than(front.arrived_ps);
        let start_ps = if WHOLE {
            start.whole_ps
        } else {
            start.start_ps()
        };
        if is_after(start_ps, self.last_start_ps) {
            return None;
        }
        self.picks.lists[at] = list;
        self.picks.slots[at] = slot;
        *handle = std::mem::take(&mut front.handle);
        *departure = Departure {
            depart_at_ps: start_ps,
            waited_ps: start_ps.wrapping_sub(front.arrived_ps),
            len: front.len,
            is_cnp: IS_CNP,
        };
        let bytes = line_bytes(front.len);
        self.line_bytes = self.line_bytes.wrapping_add(bytes);
        self.clock = if WHOLE {
            start.after_whole(bytes, &self.pace)
        } else {
            start.after(bytes, &self.pace)
        };
        queue.detach(front.next);
        self.picked = at.wrapping_add(1);
        Some(queue.is_empty())
    }
}

impl<H: Default> Wire<H> {
    /// The frames due at `now_ps`, at most [`BURST`], without sending them.
    ///
    /// `now_ps` never goes back, and a wire is polled at least once in 100 days.
    #[inline]
    pub fn peek(&mut self, now_ps: u64) -> Burst<'_, H> {
        self.take_back(0);
        self.begin_poll(now_ps);
        self.pick_due();
        if self.picked == 0 && self.expire_at_head() {
            self.pick_due();
        }
        Burst { wire: self }
    }

    #[inline]
    fn begin_poll(&mut self, now_ps: u64) {
        self.now_ps = now_ps;
        let free = self.clock;
        let forgiven_ps = now_ps.wrapping_sub(self.catch_up_ps);
        // Later starts are bounded by later values of the same term, so the clock
        // itself may be lifted even if nothing is sent now.
        self.clock = free.no_earlier_than(forgiven_ps);
        let lifted_ps = self.clock.whole_ps.wrapping_sub(free.whole_ps);
        self.lost_ps = self.lost_ps.saturating_add(lifted_ps);
        let waiting = self.backlog.waiting_frames();
        self.stats.queue_frames.record(waiting as u64);
        if waiting == 0 {
            // Kept near the present, so that it can be compared with it.
            self.admitted_until_ps = later(self.admitted_until_ps, self.clock.whole_ps);
            self.expire_when_idle();
        } else if self.has_staged {
            self.admit_staged();
        }
    }

    #[inline]
    fn pick_due(&mut self) {
        match (self.pace.is_whole(), self.has_staged) {
            (true, false) => self.pick_burst::<true, false>(),
            (true, true) => self.pick_burst::<true, true>(),
            (false, false) => self.pick_burst::<false, false>(),
            (false, true) => self.pick_burst::<false, true>(),
        }
    }

    #[inline(never)]
    fn pick_burst<const WHOLE: bool, const STAGED: bool>(&mut self) {
        // Where there is no bound, the present is one.
        let next_ps = self.now_ps.wrapping_add(1);
        let staged = self.backlog.front(self.staged);
        let staged_from_ps = staged.map_or(next_ps, |(_, slot)| slot.arrived_ps);
        let last_start_ps = match self.ending {
            Some(ending) if !is_after(ending.at_ps, self.now_ps) => ending.at_ps.wrapping_sub(1),
            _ => self.now_ps,
        };
        self.clock_before = self.clock;
        let mut picker = Picker::<H, WHOLE, STAGED> {
            slots: &mut self.backlog.slots,
            lists: &mut self.backlog.lists,
            picks: &mut self.picks,
            departures: &mut self.departures,
            handles: &mut self.handles,
            picked: 0,
            line_bytes: 0,
            clock: self.clock,
            pace: self.pace,
            last_start_ps,
            staged_from_ps,
        };
        let mut has_cnps = !picker.lists[self.cnps as usize].is_empty();
        while has_cnps && let Some(is_empty) = picker.pick::<true>(self.cnps) {
            has_cnps = !is_empty;
        }
        self.picked_cnps = picker.picked;
        let mut cursor = self.cursor;
        self.cursor_before = cursor;
        if !has_cnps {
            if let Some(queue) = self.active.only() {
                // No turns to take: a single flow, or the last one to be emptied.
                let mut is_empty = false;
                while !is_empty && let Some(emptied) = picker.pick::<false>(queue) {
                    (cursor, is_empty) = (queue, emptied);
                }
                if is_empty {
                    self.active.clear(queue);
                }
            } else {
                let mut walk = self.active.walk_after(cursor);
                while let Some(queue) = walk.next(&self.active)
                    && let Some(is_empty) = picker.pick::<false>(queue)
                {
                    cursor = queue;
                    if is_empty {
                        self.active.clear(queue);
                    }
                }
            }
        }
        self.picked = picker.picked;
        self.picked_line_bytes = picker.line_bytes;
        self.clock = picker.clock;
        self.cursor = cursor;
        if self.backlog.waiting_frames() > TOUCH_FROM_FRAMES {
            touch_followers(&self.backlog, &self.picks.lists[..self.picked]);
        }
    }

    /// Whether a rule ended at the frame that is to start next. What has ended stays
    /// so, taken or not: later polls start no earlier.
    fn expire_at_head(&mut self) -> bool {
        let Some(ending) = self.ending else {
            return false;
        };
        let is_reached = self.due_at_ps().is_some_and(|due_ps| {
            !is_after(due_ps, self.now_ps) && !is_after(ending.at_ps, due_ps)
        });
        if is_reached {
            self.expire(ending);
        }
        is_reached
    }

    #[inline]
    fn commit(&mut self, taken: usize) {
        let offered = self.picked;
        if taken < offered {
            self.take_back(taken);
            self.stats.not_accepted += (offered - taken) as u64;
        }
        self.picked = 0;
        if taken == 0 {
            return;
        }
        let waits = self.departures[..taken]
            .iter()
            .map(|departure| departure.waited_ps);
        self.stats.waited_ps.record_all(waits);
        self.stats.sent_cnps += self.picked_cnps as u64;
        self.stats.sent_frames += taken as u64;
        self.stats.sent_line_bytes += self.picked_line_bytes;
        self.backlog.release(&self.picks.slots[..taken]);
        if self.shared_queues > 0 {
            self.release_sharers(taken);
        }
        self.count_lateness();
        self.admitted_until_ps = later(self.admitted_until_ps, self.clock.whole_ps);
    }

    #[inline]
    fn count_lateness(&mut self) {
        let Departure {
            depart_at_ps,
            waited_ps,
            ..
        } = self.departures[0];
        let late_ps = self.now_ps.wrapping_sub(depart_at_ps);
        self.stats.catch_up_used_ps = self.stats.catch_up_used_ps.max(late_ps);
        // Wire time is lost only where a frame was there to use it, and where there is
        // a wire.
        let lost_ps = self.lost_ps.min(waited_ps);
        if lost_ps > 0 && late_ps == self.catch_up_ps && late_ps > 0 {
            self.stats.catch_up_exhausted += 1;
            self.stats.lost_ps += lost_ps;
        }
        self.lost_ps = 0;
    }

    /// Frames have left of which some had shared a sub-queue.
    #[inline(never)]
    fn release_sharers(&mut self, taken: usize) {
        for (list, slot) in self.picks.lists[..taken].iter().zip(&self.picks.slots) {
            if !self.backlog.list(*list).shared {
                continue;
            }
            let key = self.backlog.slot(*slot).key;
            if let Some(entry) = self.keys.get_mut(key) {
                entry.shared_frames -= 1;
                if entry.shared_frames == 0 {
                    self.keys.remove(key);
                }
            }
        }
        for list in &self.picks.lists[..taken] {
            let queue = self.backlog.list_mut(*list);
            if queue.shared && queue.frames == 0 {
                queue.shared = false;
                self.shared_queues -= 1;
            }
        }
    }

    /// Puts all picks from `keep` on back where they were.
    #[inline]
    pub(super) fn take_back(&mut self, keep: usize) {
        if self.picked > keep {
            self.take_back_some(keep);
        }
    }

    #[cold]
    fn take_back_some(&mut self, keep: usize) {
        while self.picked > keep {
            self.picked -= 1;
            let (list, slot) = (self.picks.lists[self.picked], self.picks.slots[self.picked]);
            let handle = std::mem::take(&mut self.handles[self.picked]);
            self.backlog.slots[slot as usize].handle = handle;
            self.backlog.reattach_front(list, slot);
            if list != self.cnps {
                self.active.set(list);
            }
        }
        let kept = &self.picks.lists[..keep];
        let last_data = kept.iter().rev().find(|list| **list != self.cnps);
        self.cursor = last_data.copied().unwrap_or(self.cursor_before);
        self.picked_cnps = self.picked_cnps.min(keep);
        // The way that the clock went for those that are kept, once more.
        self.clock = self.clock_before;
        self.picked_line_bytes = 0;
        for slot in &self.picks.slots[..keep] {
            let Slot {
                arrived_ps, len, ..
            } = *self.backlog.slot(*slot);
            let bytes = line_bytes(len);
            self.clock = self
                .clock
                .no_earlier_than(arrived_ps)
                .after(bytes, &self.pace);
            self.picked_line_bytes += bytes;
        }
    }
}
