//! The way out: what is due is offered, and leaves once the port has taken it.

use super::{BURST, Pick, Wire};
use crate::engine::Departure;
use crate::engine::clock::line_bytes;
use crate::engine::time::{is_after, later};

/// The frames that may go to the port now, in order. Dropped without
/// [`Burst::commit`], it leaves the wire as it was.
#[derive(Debug)]
pub struct Burst<'a> {
    wire: &'a mut Wire,
}

impl Burst<'_> {
    /// The frames. Fewer than [`BURST`] does not mean that no more are due: a burst
    /// also ends where frames join that arrived later. Poll until it is empty.
    #[must_use]
    #[inline]
    pub fn departures(&self) -> &[Departure] {
        &self.wire.departures[..self.wire.picked]
    }

    /// The port took the first `taken` frames (no more than were offered); the rest
    /// stays at the head and the clock does not move for it.
    #[inline]
    pub fn commit(self, taken: usize) {
        let taken = taken.min(self.wire.picked);
        self.wire.commit(taken);
    }
}

impl Drop for Burst<'_> {
    #[inline]
    fn drop(&mut self) {
        self.wire.take_back(0);
    }
}

/// How far a burst may go.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    /// The last instant at which a frame may start: now, or just before a rule ends.
    last_start_ps: u64,
    /// When the wire reaches this arrival, frames join.
    staged_from_ps: u64,
}

impl Wire {
    /// The frames due at `now_ps`, at most [`BURST`], without sending them.
    ///
    /// `now_ps` never goes back, and a wire is polled at least once in 100 days.
    #[inline]
    pub fn peek(&mut self, now_ps: u64) -> Burst<'_> {
        self.take_back(0);
        self.begin_poll(now_ps);
        self.pick_burst();
        if self.picked == 0 && self.expire_at_head() {
            self.pick_burst();
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
        self.lost_ps = self.clock.whole_ps.wrapping_sub(free.whole_ps);
        let waiting = self.backlog.waiting_frames();
        self.stats.queue_frames.record(waiting as u64);
        if waiting == 0 {
            self.expire_when_idle();
        } else if self.has_staged {
            self.admit_staged();
        }
    }

    #[inline]
    fn pick_burst(&mut self) {
        // Where there is no bound, the present is one.
        let next_ps = self.now_ps.wrapping_add(1);
        let staged = self.backlog.front(self.staged);
        let last_start_ps = match self.expiry {
            Some((expires_ps, _)) if !is_after(expires_ps, self.now_ps) => {
                expires_ps.wrapping_sub(1)
            }
            _ => self.now_ps,
        };
        let bounds = Bounds {
            last_start_ps,
            staged_from_ps: staged.map_or(next_ps, |(_, slot)| slot.arrived_ps),
        };
        self.cursor_before = self.cursor;
        if !self.backlog.list(self.cnps).is_empty() {
            self.pick_cnps(bounds);
            if !self.backlog.list(self.cnps).is_empty() {
                return;
            }
        }
        self.pick_data(bounds);
    }

    #[cold]
    fn pick_cnps(&mut self, bounds: Bounds) {
        while self.picked < BURST && self.pick(self.cnps, bounds).is_some() {}
    }

    #[inline]
    fn pick_data(&mut self, bounds: Bounds) {
        while self.picked < BURST {
            let Some(queue) = self.active.next_after(self.cursor) else {
                return;
            };
            let Some(is_empty) = self.pick(queue, bounds) else {
                return;
            };
            self.cursor = queue;
            if is_empty {
                self.active.clear(queue);
            }
        }
    }

    /// Offers the first frame of a list that is not empty, if it may start within
    /// the bounds; tells whether the list is empty now.
    #[inline]
    fn pick(&mut self, list: u32, bounds: Bounds) -> Option<bool> {
        let clock = self.clock;
        if !is_after(bounds.staged_from_ps, clock.whole_ps) {
            return None;
        }
        let queue = self.backlog.lists.get_mut(list as usize)?;
        let slot = queue.head();
        let front = self.backlog.slots.get(slot as usize)?;
        let start = clock.no_earlier_than(front.arrived_ps);
        let start_ps = start.start_ps();
        if is_after(start_ps, bounds.last_start_ps) {
            return None;
        }
        self.picks[self.picked] = Pick {
            before: clock,
            list,
            slot,
        };
        self.departures[self.picked] = Departure {
            handle: front.handle,
            depart_at_ps: start_ps,
            waited_ps: start_ps.wrapping_sub(front.arrived_ps),
            len: front.len,
            is_cnp: front.is_cnp,
        };
        self.picked = self.picked.wrapping_add(1);
        self.clock = start.after(line_bytes(front.len), &self.pace);
        queue.detach(front.next);
        Some(queue.is_empty())
    }

    /// Whether a rule ended at the frame that is to start next. What has ended stays
    /// so, taken or not: later polls start no earlier.
    fn expire_at_head(&mut self) -> bool {
        let Some((expires_ps, then)) = self.expiry else {
            return false;
        };
        let is_reached = self
            .due_at_ps()
            .is_some_and(|due_ps| !is_after(due_ps, self.now_ps) && !is_after(expires_ps, due_ps));
        if is_reached {
            self.expire(expires_ps, then);
        }
        is_reached
    }

    fn commit(&mut self, taken: usize) {
        let offered = self.picked;
        self.take_back(taken);
        self.picked = 0;
        if offered == 0 {
            return;
        }
        self.stats.not_accepted += (offered - taken) as u64;
        if taken == 0 {
            return;
        }
        let departures = &self.departures[..taken];
        let waits = departures.iter().map(|departure| departure.waited_ps);
        self.stats.waited_ps.record_all(waits);
        let lens = departures.iter().map(|departure| line_bytes(departure.len));
        self.stats.sent_line_bytes += lens.fold(0, u64::wrapping_add);
        let cnps = departures.iter().filter(|departure| departure.is_cnp);
        self.stats.sent_cnps += cnps.count() as u64;
        self.stats.sent_frames += taken as u64;
        self.backlog
            .release(self.picks[..taken].iter().map(|pick| pick.slot));
        for at in 0..taken {
            let Pick { list, slot, .. } = self.picks[at];
            let queue = self.backlog.list_mut(list);
            queue.frames = queue.frames.wrapping_sub(1);
            if queue.frames == 0 || queue.shared {
                self.release_key(list, slot);
            }
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
        // Wire time is lost only where a frame was there to use it.
        let lost_ps = self.lost_ps.min(waited_ps);
        if lost_ps > 0 && late_ps == self.catch_up_ps {
            self.stats.catch_up_exhausted += 1;
            self.stats.lost_ps += lost_ps;
        }
        self.lost_ps = 0;
    }

    /// The frame in `slot` has left, the last one of its sub-queue or one of a key
    /// that shares it.
    fn release_key(&mut self, list: u32, slot: u32) {
        if list == self.cnps {
            return;
        }
        let key = self.backlog.slot(slot).key;
        let queue = self.backlog.list_mut(list);
        let is_last_of_key = match self.keys.get_mut(key) {
            Some(entry) if queue.shared => {
                entry.shared_frames -= 1;
                entry.shared_frames == 0
            }
            _ => true,
        };
        if is_last_of_key {
            self.keys.remove(key);
        }
        if queue.frames == 0 {
            queue.shared = false;
            self.unused.set(list);
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
            let Pick { before, list, slot } = self.picks[self.picked];
            self.backlog.reattach_front(list, slot);
            if list != self.cnps {
                self.active.set(list);
            }
            self.clock = before;
        }
        let last = self.picks[..keep].iter().rev().map(|pick| pick.list);
        let last_data = last.filter(|list| *list != self.cnps).next();
        self.cursor = last_data.unwrap_or(self.cursor_before);
    }
}
