//! One wire: frames wait by key, leave in turn, and never before a real wire could
//! have sent them.

use super::backlog::{Backlog, NONE, Slot};
use super::clock::{Clock, Pace, line_bytes};
use super::keys::{KeyEntry, KeyTable};
use super::policy::{Policy, Speed};
use super::stats::WireStats;
use super::time::{is_after, later};
use super::turns::Turns;
use super::{ConfigError, Departure, Frame, WireConfig};

/// Frames that one [`Wire::peek`] offers at most: the burst of the poll loop, which
/// is what network drivers are tuned for.
pub const BURST: usize = 32;

/// Frames of the largest size whose wire time a late poll may catch up on. Two were
/// too few for polls of a busy core (92 % of the wire), 64 keep 98 %.
pub const CATCH_UP_FRAMES: u64 = 64;

/// One frame offered, with what is needed to take the offer back.
#[derive(Debug, Clone, Copy)]
struct Pick {
    before: Clock,
    cursor_before: u32,
    list: u32,
    slot: u32,
}

/// A wire and everything that waits for it.
///
/// Arrival stamps decide what a frame competes with: the wire chooses, at each
/// instant at which it becomes free, among the frames that had arrived by then. A
/// frame that arrived later waits in arrival order outside of the sub-queues, so the
/// result does not depend on when the engine was polled (within the catch-up).
#[derive(Debug)]
pub struct Wire {
    clock: Clock,
    pace: Pace,
    speed: Speed,
    generation: u64,
    line_bytes_of_mtu: u64,
    catch_up_ps: u64,
    /// When the rule ends by itself, and the speed from then on.
    expiry: Option<(u64, Speed)>,
    backlog: Backlog,
    keys: KeyTable,
    /// Sub-queues with a frame to offer.
    active: Turns,
    /// Sub-queues that no key uses.
    unused: Turns,
    queues: u32,
    cnps: u32,
    staged: u32,
    cursor: u32,
    /// A frame that arrived by this instant competes at once.
    admitted_until_ps: u64,
    picks: [Pick; BURST],
    departures: [Departure; BURST],
    picked: usize,
    now_ps: u64,
    /// Wire time lost before the first pick, ps.
    lost_ps: u64,
    stats: WireStats,
}

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
    pub fn departures(&self) -> &[Departure] {
        &self.wire.departures[..self.wire.picked]
    }

    /// The port took the first `taken` frames (no more than were offered); the rest
    /// stays at the head and the clock does not move for it.
    pub fn commit(self, taken: usize) {
        let taken = taken.min(self.wire.picked);
        self.wire.commit(taken);
    }
}

impl Drop for Burst<'_> {
    fn drop(&mut self) {
        self.wire.take_back(0);
    }
}

impl Wire {
    /// A wire that stands idle at `now_ps`. Takes all memory that it will ever need.
    ///
    /// # Errors
    /// [`ConfigError`] when the configuration is out of its limits.
    pub fn new(config: &WireConfig, now_ps: u64) -> Result<Self, ConfigError> {
        config.check()?;
        let queues = config.sub_queues;
        let no_pick = Pick {
            before: Clock::at(now_ps),
            cursor_before: 0,
            list: NONE,
            slot: NONE,
        };
        let mut wire = Self {
            clock: Clock::at(now_ps),
            pace: Pace::UNSHAPED,
            speed: Speed::Unshaped,
            generation: 0,
            line_bytes_of_mtu: line_bytes(config.max_frame_bytes()),
            catch_up_ps: 0,
            expiry: None,
            backlog: Backlog::new(config.queue_frames, queues + 2),
            keys: KeyTable::with_room_for(config.queue_frames),
            active: Turns::empty(),
            unused: Turns::first(queues),
            queues,
            cnps: queues,
            staged: queues + 1,
            cursor: queues - 1,
            admitted_until_ps: now_ps,
            picks: [no_pick; BURST],
            departures: [Departure::default(); BURST],
            picked: 0,
            now_ps,
            lost_ps: 0,
            stats: WireStats::default(),
        };
        wire.set_speed(config.speed);
        Ok(wire)
    }

    /// Memory that [`Wire::new`] takes for this configuration, bytes.
    #[must_use]
    pub fn memory_bytes(config: &WireConfig) -> u64 {
        Backlog::memory_bytes(config.queue_frames, config.sub_queues + 2)
            + KeyTable::memory_bytes(config.queue_frames)
            + size_of::<Self>() as u64
    }

    /// Takes frames in, in order, until the queue is full; gives back how many. The
    /// rest stays with the caller, whose port must hold them.
    #[inline]
    pub fn push(&mut self, frames: &[Frame]) -> usize {
        self.take_back(0);
        let room = self.backlog.free_frames();
        let taken = frames.len().min(room);
        for frame in &frames[..taken] {
            self.push_one(frame);
        }
        self.stats.pushed_frames += taken as u64;
        self.stats.refused_pushes += (frames.len() - taken) as u64;
        taken
    }

    #[inline]
    fn push_one(&mut self, frame: &Frame) {
        let Some(slot) = self.backlog.store(Slot {
            handle: frame.handle,
            key: frame.key,
            arrived_ps: frame.arrived_ps,
            next: NONE,
            len: frame.len,
            is_cnp: frame.is_cnp,
        }) else {
            return;
        };
        if is_after(frame.arrived_ps, self.admitted_until_ps) || self.has_staged() {
            self.push_early(slot, frame.arrived_ps);
        } else {
            self.admit(slot, frame.key, frame.is_cnp);
        }
    }

    #[inline]
    fn has_staged(&self) -> bool {
        !self.backlog.list(self.staged).is_empty()
    }

    /// A frame that arrived after the instant at which the wire becomes free.
    fn push_early(&mut self, slot: u32, arrived_ps: u64) {
        let alone = self.backlog.waiting_frames() == 1;
        if alone {
            // The wire idles until this frame arrives.
            self.admitted_until_ps = later(self.admitted_until_ps, arrived_ps);
            let Slot { key, is_cnp, .. } = *self.backlog.slot(slot);
            self.admit(slot, key, is_cnp);
        } else {
            self.backlog.append(self.staged, slot);
        }
    }

    /// Lets a frame compete.
    #[inline]
    fn admit(&mut self, slot: u32, key: u64, is_cnp: bool) {
        if is_cnp {
            self.backlog.append(self.cnps, slot);
            return;
        }
        let place = self.keys.place_of(key);
        let queue = match self.keys.at(place) {
            Some(entry) => {
                let queue = entry.queue;
                let list = self.backlog.list(queue);
                if list.shared {
                    entry.shared_frames += 1;
                    self.stats.shared_frames += 1;
                }
                queue
            }
            None => self.assign_queue(place, key),
        };
        if self.backlog.append(queue, slot) {
            self.active.set(queue);
        }
    }

    /// Gives a key without backlog the lowest unused sub-queue, or else a share of
    /// the one at its value modulo their number.
    fn assign_queue(&mut self, place: usize, key: u64) -> u32 {
        if let Some(queue) = self.unused.next_after(self.queues - 1) {
            self.unused.clear(queue);
            self.backlog.list_mut(queue).key = key;
            let entry = KeyEntry {
                key,
                queue,
                shared_frames: 0,
            };
            self.keys.insert_at(place, entry);
            return queue;
        }
        let queue = self.shared_queue_of(key);
        let list = self.backlog.list_mut(queue);
        if !list.shared {
            // Its owner's frames are counted one by one from here on.
            list.shared = true;
            let (owner, frames) = (list.key, list.frames);
            let owner_place = self.keys.place_of(owner);
            if let Some(entry) = self.keys.at(owner_place) {
                entry.shared_frames = frames;
            }
        }
        self.stats.shared_frames += 1;
        let entry = KeyEntry {
            key,
            queue,
            shared_frames: 1,
        };
        self.keys.insert_at(place, entry);
        queue
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "the number of sub-queues is a u32"
    )]
    fn shared_queue_of(&self, key: u64) -> u32 {
        (key % u64::from(self.queues)) as u32
    }

    /// Moves frames whose arrival the wire has reached into their sub-queues.
    fn admit_staged(&mut self) {
        let reached_ps = if self.active.is_empty() && self.backlog.list(self.cnps).is_empty() {
            // Nothing competes: the wire idles until the next arrival.
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
                break;
            }
            let Slot { key, is_cnp, .. } = *front;
            self.backlog.unstage(self.staged, slot);
            self.admit(slot, key, is_cnp);
        }
    }

    /// The frames due at `now_ps`, at most [`BURST`], without sending them.
    ///
    /// `now_ps` never goes back, and a wire is polled at least once in 100 days.
    #[inline]
    pub fn peek(&mut self, now_ps: u64) -> Burst<'_> {
        self.take_back(0);
        self.begin_poll(now_ps);
        self.pick_burst();
        Burst { wire: self }
    }

    fn begin_poll(&mut self, now_ps: u64) {
        self.now_ps = now_ps;
        let free = self.clock;
        let forgiven_ps = now_ps.wrapping_sub(self.catch_up_ps);
        // Later starts are bounded by later values of the same term, so the clock
        // itself may be lifted even if nothing is sent now.
        self.clock = free.no_earlier_than(forgiven_ps);
        self.lost_ps = if self.clock == free {
            0
        } else {
            forgiven_ps.wrapping_sub(free.whole_ps)
        };
        let waiting = self.backlog.waiting_frames();
        self.stats.queue_frames.record(waiting as u64);
        if waiting == 0 {
            self.expire_when_idle();
        } else if self.has_staged() {
            self.admit_staged();
        }
    }

    #[inline]
    fn pick_burst(&mut self) {
        let staged_until = self
            .backlog
            .front(self.staged)
            .map(|(_, slot)| slot.arrived_ps);
        let mut clock = self.clock;
        let mut cursor = self.cursor;
        let mut picked = 0;
        while picked < BURST {
            if staged_until.is_some_and(|arrived_ps| !is_after(arrived_ps, clock.whole_ps)) {
                break;
            }
            let (list, cursor_after) = if self.backlog.list(self.cnps).is_empty() {
                let Some(queue) = self.active.next_after(cursor) else {
                    break;
                };
                (queue, queue)
            } else {
                (self.cnps, cursor)
            };
            let Some((slot, front)) = self.backlog.front(list) else {
                break;
            };
            let start = clock.no_earlier_than(front.arrived_ps);
            let start_ps = start.start_ps();
            if is_after(start_ps, self.now_ps) {
                break;
            }
            if let Some((expires_ps, then)) = self.expiry
                && !is_after(expires_ps, start_ps)
            {
                if picked == 0 {
                    self.expire(expires_ps, then);
                    clock = self.clock;
                    continue;
                }
                break;
            }
            self.picks[picked] = Pick {
                before: clock,
                cursor_before: cursor,
                list,
                slot,
            };
            self.departures[picked] = Departure {
                handle: front.handle,
                depart_at_ps: start_ps,
                waited_ps: start_ps.wrapping_sub(front.arrived_ps),
                len: front.len,
                is_cnp: front.is_cnp,
            };
            picked += 1;
            clock = start.after(line_bytes(front.len), &self.pace);
            cursor = cursor_after;
            if self.backlog.detach_front(list, slot) && list != self.cnps {
                self.active.clear(list);
            }
        }
        self.clock = clock;
        self.cursor = cursor;
        self.picked = picked;
    }

    fn commit(&mut self, taken: usize) {
        if self.picked == 0 {
            return;
        }
        let offered = self.picked;
        self.take_back(taken);
        self.picked = 0;
        self.stats.not_accepted += (offered - taken) as u64;
        if taken == 0 {
            return;
        }
        let mut sent_line_bytes = 0;
        for at in 0..taken {
            let Departure {
                len,
                waited_ps,
                is_cnp,
                ..
            } = self.departures[at];
            sent_line_bytes += line_bytes(len);
            self.stats.waited_ps.record(waited_ps);
            self.stats.sent_cnps += u64::from(is_cnp);
            let Pick { list, slot, .. } = self.picks[at];
            self.release(list, slot);
        }
        self.stats.sent_frames += taken as u64;
        self.stats.sent_line_bytes += sent_line_bytes;
        self.count_lateness();
        self.admitted_until_ps = later(self.admitted_until_ps, self.clock.whole_ps);
    }

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

    /// The frame in `slot` has left the sub-queue for good.
    #[inline]
    fn release(&mut self, list: u32, slot: u32) {
        self.backlog.release(slot);
        let queue = self.backlog.list_mut(list);
        queue.frames = queue.frames.wrapping_sub(1);
        if (queue.frames == 0 || queue.shared) && list != self.cnps {
            self.release_key(list, slot);
        }
    }

    fn release_key(&mut self, list: u32, slot: u32) {
        let place = self.keys.place_of(self.backlog.slot(slot).key);
        let queue = self.backlog.list_mut(list);
        let is_last_of_queue = queue.frames == 0;
        let is_last_of_key = match self.keys.at(place) {
            Some(entry) if queue.shared => {
                entry.shared_frames -= 1;
                entry.shared_frames == 0
            }
            _ => true,
        };
        if is_last_of_key {
            self.keys.remove_at(place);
        }
        if is_last_of_queue {
            queue.shared = false;
            self.unused.set(list);
        }
    }

    /// Puts all picks from `keep` on back where they were.
    #[inline]
    fn take_back(&mut self, keep: usize) {
        while self.picked > keep {
            self.picked -= 1;
            let Pick {
                before,
                cursor_before,
                list,
                slot,
            } = self.picks[self.picked];
            self.backlog.reattach_front(list, slot);
            if list != self.cnps {
                self.active.set(list);
            }
            self.clock = before;
            self.cursor = cursor_before;
        }
    }

    /// Puts a policy in force for the next frame to start. A frame that is on the
    /// wire ends at the speed at which it started, and a rule before this one that
    /// has not expired yet never will.
    pub fn set_policy(&mut self, policy: &Policy, now_ps: u64) {
        self.take_back(0);
        self.generation = policy.generation();
        for rule in policy.rules() {
            self.set_speed(rule.speed);
            self.expiry = rule
                .expiry
                .map(|expiry| (now_ps.wrapping_add(expiry.after_ps), expiry.then));
        }
    }

    fn set_speed(&mut self, speed: Speed) {
        let pace = speed.pace();
        if pace != self.pace {
            self.clock = self.clock.rounded_up();
        }
        self.speed = speed;
        self.pace = pace;
        self.catch_up_ps = pace.time_rounded_up_ps(self.line_bytes_of_mtu * CATCH_UP_FRAMES);
    }

    fn expire(&mut self, expires_ps: u64, then: Speed) {
        self.expiry = None;
        self.stats.expired_rules += 1;
        self.set_speed(then);
        self.clock = self.clock.no_earlier_than(expires_ps);
    }

    /// An idle wire reaches its expiry too, once no frame can start before it.
    fn expire_when_idle(&mut self) {
        if let Some((expires_ps, then)) = self.expiry
            && !is_after(expires_ps, self.clock.whole_ps)
        {
            self.expire(expires_ps, then);
        }
    }

    /// The earliest instant at which [`Wire::peek`] offers a frame; none without any.
    #[must_use]
    pub fn due_at_ps(&self) -> Option<u64> {
        if self.picked > 0 {
            // A burst was forgotten without an answer: its first frame is still due.
            return Some(self.departures[0].depart_at_ps);
        }
        let list = if self.backlog.list(self.cnps).is_empty() {
            self.active.next_after(self.cursor).unwrap_or(self.staged)
        } else {
            self.cnps
        };
        let (_, front) = self.backlog.front(list)?;
        Some(self.clock.no_earlier_than(front.arrived_ps).start_ps())
    }

    /// Frames that wait.
    #[must_use]
    pub fn queued_frames(&self) -> usize {
        self.backlog.waiting_frames()
    }

    /// Frames that [`Wire::push`] would take now.
    #[must_use]
    pub fn room_frames(&self) -> usize {
        self.backlog.free_frames()
    }

    /// The speed in force for the next frame.
    #[must_use]
    pub const fn speed(&self) -> Speed {
        self.speed
    }

    /// Generation of the policy in force.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// How late a poll may come without loss of wire time, ps.
    #[must_use]
    pub const fn catch_up_ps(&self) -> u64 {
        self.catch_up_ps
    }

    /// Counts since they were taken last.
    #[must_use]
    pub const fn stats(&self) -> &WireStats {
        &self.stats
    }

    /// Hands the counts on and starts again at zero, without allocation.
    pub fn take_stats(&mut self, into: &mut WireStats) {
        into.clone_from(&self.stats);
        self.stats.clear();
    }
}
