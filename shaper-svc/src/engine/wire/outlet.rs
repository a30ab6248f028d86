//! The way out: what is due is offered, and leaves once the port has taken it.

use super::{BURST, Pick, Wire};
use crate::engine::Departure;
use crate::engine::backlog::Backlog;
use crate::engine::clock::{Clock, Pace, line_bytes};
use crate::engine::time::{is_after, later};
use std::hint::black_box;

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

/// Waiting frames from which on their slots are not in the inner caches: 512 KiB.
const TOUCH_FROM_FRAMES: usize = 16_384;

/// Reads a word of the frame behind each pick, whose turn comes in a later burst. The
/// reads depend on nothing and follow each other closely, so their cache misses
/// overlap; while picking, where much happens between one frame and the next, few
/// would. A prefetch without `unsafe`.
#[inline]
fn touch_followers(backlog: &Backlog, picks: &[Pick]) {
    let followers = picks.iter().filter_map(|pick| backlog.front(pick.list));
    black_box(followers.fold(0, |all, (_, follower)| all | follower.next));
}

/// A burst while it is put together; all of it lives in registers.
struct Picker<'a> {
    backlog: &'a mut Backlog,
    picks: &'a mut [Pick; BURST],
    departures: &'a mut [Departure; BURST],
    picked: usize,
    releases: u32,
    clock: Clock,
    pace: Pace,
    /// The last instant at which a frame may start: now, or just before a rule ends.
    last_start_ps: u64,
    /// When the wire reaches this arrival, frames join.
    staged_from_ps: u64,
}

impl Picker<'_> {
    /// Offers the first frame of a list that is not empty, if it may start within
    /// the bounds; tells whether the list is empty now.
    #[inline]
    fn pick<const IS_CNP: bool>(&mut self, list: u32) -> Option<bool> {
        if !is_after(self.staged_from_ps, self.clock.whole_ps) {
            return None;
        }
        let pick = self.picks.get_mut(self.picked)?;
        let departure = self.departures.get_mut(self.picked)?;
        let queue = self.backlog.lists.get_mut(list as usize)?;
        let slot = queue.head();
        let front = self.backlog.slots.get(slot as usize)?;
        let start = self.clock.no_earlier_than(front.arrived_ps);
        let start_ps = start.start_ps();
        if is_after(start_ps, self.last_start_ps) {
            return None;
        }
        *pick = Pick {
            before: self.clock,
            list,
            slot,
        };
        *departure = Departure {
            handle: front.handle,
            depart_at_ps: start_ps,
            waited_ps: start_ps.wrapping_sub(front.arrived_ps),
            len: front.len,
            is_cnp: IS_CNP,
        };
        self.clock = start.after(line_bytes(front.len), &self.pace);
        queue.detach(front.next);
        let is_empty = queue.is_empty();
        if is_empty | queue.shared {
            self.releases |= 1 << self.picked;
        }
        self.picked = self.picked.wrapping_add(1);
        Some(is_empty)
    }
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
    fn pick_burst(&mut self) {
        // Where there is no bound, the present is one.
        let next_ps = self.now_ps.wrapping_add(1);
        let staged = self.backlog.front(self.staged);
        let staged_from_ps = staged.map_or(next_ps, |(_, slot)| slot.arrived_ps);
        let last_start_ps = match self.expiry {
            Some((expires_ps, _)) if !is_after(expires_ps, self.now_ps) => {
                expires_ps.wrapping_sub(1)
            }
            _ => self.now_ps,
        };
        let mut picker = Picker {
            backlog: &mut self.backlog,
            picks: &mut self.picks,
            departures: &mut self.departures,
            picked: 0,
            releases: 0,
            clock: self.clock,
            pace: self.pace,
            last_start_ps,
            staged_from_ps,
        };
        while !picker.backlog.list(self.cnps).is_empty() && picker.pick::<true>(self.cnps).is_some()
        {
        }
        let mut cursor = self.cursor;
        self.cursor_before = cursor;
        if picker.backlog.list(self.cnps).is_empty() {
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
        if picker.backlog.waiting_frames() > TOUCH_FROM_FRAMES {
            touch_followers(picker.backlog, &picker.picks[..picker.picked]);
        }
        self.picked = picker.picked;
        self.releases = picker.releases;
        self.clock = picker.clock;
        self.cursor = cursor;
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
        if taken < offered {
            self.take_back(taken);
            self.stats.not_accepted += (offered - taken) as u64;
        }
        self.picked = 0;
        if taken == 0 {
            return;
        }
        let departures = &self.departures[..taken];
        let waits = departures.iter().map(|departure| departure.waited_ps);
        self.stats.waited_ps.record_all(waits);
        // CNPs go first.
        let cnps = departures.iter().take_while(|departure| departure.is_cnp);
        self.stats.sent_cnps += cnps.count() as u64;
        self.stats.sent_frames += taken as u64;
        let bytes = departures.iter().map(|departure| line_bytes(departure.len));
        self.stats.sent_line_bytes += bytes.fold(0, u64::wrapping_add);
        let slots = self.picks[..taken].iter().map(|pick| pick.slot);
        self.backlog.release(slots);
        while self.releases != 0 {
            let at = self.releases.trailing_zeros();
            self.releases &= self.releases - 1;
            let Pick { list, slot, .. } = self.picks[at as usize];
            self.release_key(list, slot);
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

    /// A frame has left that was the last one of its list, or shared the list.
    fn release_key(&mut self, list: u32, slot: u32) {
        if list == self.cnps {
            return;
        }
        let key = self.backlog.slot(slot).key;
        let queue = self.backlog.list_mut(list);
        if queue.frames == 0 {
            // Whatever was in it leaves with this burst, so all its keys go.
            queue.shared = false;
            self.unused.set(list);
            self.keys.remove(key);
        } else if let Some(entry) = self.keys.get_mut(key) {
            entry.shared_frames -= 1;
            if entry.shared_frames == 0 {
                self.keys.remove(key);
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
            let Pick { before, list, slot } = self.picks[self.picked];
            self.backlog.reattach_front(list, slot);
            self.releases &= !(1 << self.picked);
            if list != self.cnps {
                self.active.set(list);
            }
            self.clock = before;
        }
        let mut kept = self.picks[..keep].iter().rev().map(|pick| pick.list);
        let last_data = kept.find(|list| *list != self.cnps);
        self.cursor = last_data.unwrap_or(self.cursor_before);
    }
}
