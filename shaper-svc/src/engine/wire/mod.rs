//! One wire: frames wait by key, leave in turn, and never before a real wire could
//! have sent them.

mod intake;
mod outlet;

pub use intake::Intake;
pub use outlet::Burst;

use super::backlog::{Backlog, NONE};
use super::clock::{Clock, Pace, line_bytes};
use super::divisor::Divisor;
use super::keys::KeyTable;
use super::policy::{Policy, Speed};
use super::stats::WireStats;
use super::time::is_after;
use super::turns::Turns;
use super::{ConfigError, Departure, WireConfig};

/// Frames that one [`Wire::peek`] offers at most: the burst of the poll loop, which
/// is what network drivers are tuned for.
pub const BURST: usize = 32;

/// Frames of the largest size whose wire time a late poll may catch up on. Two were
/// too few for polls of a busy core (92 % of the wire), 64 keep 98 %.
pub const CATCH_UP_FRAMES: u64 = 64;

/// Where the frames on offer come from, one entry each.
#[derive(Debug)]
struct Picks {
    lists: [u32; BURST],
    slots: [u32; BURST],
}

/// How a rule ends by itself. Its pace is made beforehand: making one divides, which
/// nothing may on the way of a frame.
#[derive(Debug, Clone, Copy)]
struct Ending {
    at_ps: u64,
    then: Speed,
    pace: Pace,
}

/// A wire and everything that waits for it.
///
/// Arrival stamps decide what a frame competes with: the wire chooses, at each
/// instant at which it becomes free, among the frames that had arrived by then. A
/// frame that arrived later waits in arrival order outside of the sub-queues, so the
/// result does not depend on when the engine was polled (within the catch-up).
///
/// A poll loop does well to send before it takes in, and to set a policy in between:
/// frames that were due by then have left at the old speed, and those that arrive need
/// not wait aside, which costs half as much again.
#[derive(Debug)]
pub struct Wire<H = u64> {
    clock: Clock,
    /// The same before the burst that is offered.
    clock_before: Clock,
    pace: Pace,
    speed: Speed,
    generation: u64,
    line_bytes_of_mtu: u64,
    catch_up_ps: u64,
    /// When the rule ends by itself, if it does.
    ending: Option<Ending>,
    backlog: Backlog<H>,
    keys: KeyTable,
    /// Sub-queues with a frame to offer; the others are free for any key.
    active: Turns,
    queues: u32,
    /// Their number, to share them by.
    sharing: Divisor,
    /// Sub-queues that are shared.
    shared_queues: u32,
    /// The sub-queue that was given to a key last.
    assigned: u32,
    cnps: u32,
    staged: u32,
    /// The sub-queue that had its turn last.
    cursor: u32,
    /// The same before the burst that is offered.
    cursor_before: u32,
    /// Frames wait that arrived later than those that compete.
    has_staged: bool,
    /// A frame that arrived by this instant competes at once.
    admitted_until_ps: u64,
    picks: Box<Picks>,
    departures: Box<[Departure; BURST]>,
    /// What the port calls them; empty places beyond those that are offered.
    handles: Box<[H; BURST]>,
    picked: usize,
    /// CNPs among them; they come first.
    picked_cnps: usize,
    /// What they occupy on the wire.
    picked_line_bytes: u64,
    now_ps: u64,
    /// Wire time given up since something was sent, ps.
    lost_ps: u64,
    stats: WireStats,
}

impl<H: Default> Wire<H> {
    /// A wire that stands idle at `now_ps`. Takes all memory that it will ever need.
    ///
    /// # Errors
    /// [`ConfigError`] when the configuration is out of its limits.
    pub fn new(config: &WireConfig, now_ps: u64) -> Result<Self, ConfigError> {
        config.check()?;
        let queues = config.sub_queues;
        let picks = Picks {
            lists: [NONE; BURST],
            slots: [NONE; BURST],
        };
        let mut wire = Self {
            clock: Clock::at(now_ps),
            clock_before: Clock::at(now_ps),
            pace: Pace::UNSHAPED,
            speed: Speed::Unshaped,
            generation: 0,
            line_bytes_of_mtu: line_bytes(config.max_frame_bytes()),
            catch_up_ps: 0,
            ending: None,
            backlog: Backlog::new(config.queue_frames, queues + 2),
            keys: KeyTable::with_room_for(config.queue_frames + queues),
            active: Turns::empty(),
            queues,
            sharing: Divisor::new(queues.into()),
            shared_queues: 0,
            assigned: queues - 1,
            cnps: queues,
            staged: queues + 1,
            cursor: queues - 1,
            cursor_before: queues - 1,
            has_staged: false,
            admitted_until_ps: now_ps,
            picks: Box::new(picks),
            departures: Box::new([Departure::default(); BURST]),
            handles: Box::new(std::array::from_fn(|_| H::default())),
            picked: 0,
            picked_cnps: 0,
            picked_line_bytes: 0,
            now_ps,
            lost_ps: 0,
            stats: WireStats::default(),
        };
        wire.set_speed(config.speed, config.speed.pace());
        Ok(wire)
    }

    /// Memory that [`Wire::new`] takes for this configuration, bytes.
    #[must_use]
    pub fn memory_bytes(config: &WireConfig) -> u64 {
        Backlog::<H>::memory_bytes(config.queue_frames, config.sub_queues + 2)
            + KeyTable::memory_bytes(config.queue_frames + config.sub_queues)
            + size_of::<Self>() as u64
    }

    /// Puts a policy in force for the next frame to start. A frame that is on the
    /// wire ends at the speed at which it started, and a rule before this one that
    /// has not expired yet never will.
    pub fn set_policy(&mut self, policy: &Policy, now_ps: u64) {
        self.take_back(0);
        self.generation = policy.generation();
        for rule in policy.rules() {
            self.set_speed(rule.speed, rule.speed.pace());
            self.ending = rule.expiry.map(|expiry| Ending {
                at_ps: now_ps.wrapping_add(expiry.after_ps),
                then: expiry.then,
                pace: expiry.then.pace(),
            });
        }
    }

    fn set_speed(&mut self, speed: Speed, pace: Pace) {
        if pace != self.pace {
            self.clock = self.clock.rounded_up();
        }
        self.speed = speed;
        self.pace = pace;
        self.catch_up_ps = pace.time_rounded_up_ps(self.line_bytes_of_mtu * CATCH_UP_FRAMES);
    }

    fn expire(&mut self, ending: Ending) {
        self.ending = None;
        self.stats.expired_rules += 1;
        self.set_speed(ending.then, ending.pace);
        self.clock = self.clock.no_earlier_than(ending.at_ps);
    }

    /// An idle wire reaches its expiry too, once no frame can start before it.
    fn expire_when_idle(&mut self) {
        if let Some(ending) = self.ending
            && !is_after(ending.at_ps, self.clock.whole_ps)
        {
            self.expire(ending);
        }
    }

    /// Gives up all frames that wait, in no order, whatever state the wire is in; it is
    /// empty then. Takes memory: not for the poll loop.
    pub fn give_up(&mut self) -> Vec<H> {
        let offered = self.handles[..self.picked.min(BURST)].iter_mut();
        let offered: Vec<H> = offered.map(std::mem::take).collect();
        self.picked = 0;
        self.has_staged = false;
        self.shared_queues = 0;
        self.active = Turns::empty();
        self.keys.clear();
        let mut held = self.backlog.take_all();
        held.extend(offered);
        held
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
