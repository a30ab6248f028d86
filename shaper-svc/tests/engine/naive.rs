//! The wire a second time, written for clarity alone: exact rational time, plain
//! queues, a copy of everything for each poll. The engine must agree with it to the
//! picosecond.

use num_bigint::BigInt;
use num_rational::BigRational;
use rdmesh_shaper::engine::{BURST, CATCH_UP_FRAMES, Speed, WireConfig, line_bytes};
use std::collections::{BTreeMap, VecDeque};

/// A frame, its time in picoseconds that do not wrap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NaiveFrame {
    pub(crate) handle: u64,
    pub(crate) key: u64,
    pub(crate) arrived_ps: i128,
    pub(crate) len: u16,
    pub(crate) is_cnp: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Naive {
    free: BigRational,
    speed: Speed,
    expiry: Option<(i128, Speed)>,
    mtu_line_bytes: u64,
    capacity: usize,
    queues: Vec<VecDeque<NaiveFrame>>,
    cnps: VecDeque<NaiveFrame>,
    staged: VecDeque<NaiveFrame>,
    /// Sub-queue and waiting frames of each key with a backlog.
    keys: BTreeMap<u64, (usize, usize)>,
    /// The key that had each sub-queue to itself last.
    owners: Vec<Option<u64>>,
    last_assigned: usize,
    last_served: usize,
    competes_until: BigRational,
}

pub(crate) fn ps(value: i128) -> BigRational {
    BigRational::from_integer(BigInt::from(value))
}

/// Exact time of so many bytes on the wire, ps.
pub(crate) fn time_of(bytes: u64, speed: Speed) -> BigRational {
    match speed {
        Speed::Unshaped => ps(0),
        Speed::Rate(rate) => BigRational::new(
            BigInt::from(bytes) * BigInt::from(8_000_000_000_000_u64),
            BigInt::from(rate.bps()),
        ),
    }
}

fn ceil_ps(value: &BigRational) -> i128 {
    value.ceil().to_integer().try_into().expect("time fits")
}

impl Naive {
    pub(crate) fn new(config: &WireConfig, now_ps: i128) -> Self {
        Self {
            free: ps(now_ps),
            speed: config.speed,
            expiry: None,
            mtu_line_bytes: line_bytes(config.mtu_bytes + 14),
            capacity: config.queue_frames as usize,
            queues: vec![VecDeque::new(); config.sub_queues as usize],
            cnps: VecDeque::new(),
            staged: VecDeque::new(),
            keys: BTreeMap::new(),
            owners: vec![None; config.sub_queues as usize],
            last_assigned: config.sub_queues as usize - 1,
            last_served: config.sub_queues as usize - 1,
            competes_until: ps(now_ps),
        }
    }

    pub(crate) fn catch_up(&self) -> BigRational {
        time_of(self.mtu_line_bytes * CATCH_UP_FRAMES, self.speed).ceil()
    }

    pub(crate) fn waiting(&self) -> usize {
        let queued: usize = self.queues.iter().map(VecDeque::len).sum();
        queued + self.cnps.len() + self.staged.len()
    }

    fn nothing_competes(&self) -> bool {
        self.waiting() == self.staged.len()
    }

    pub(crate) fn push(&mut self, frame: NaiveFrame) -> bool {
        if self.waiting() == self.capacity {
            return false;
        }
        let arrived = ps(frame.arrived_ps);
        if self.waiting() == 0 && arrived > self.competes_until {
            self.competes_until = arrived.clone();
        }
        if self.staged.is_empty() && arrived <= self.competes_until {
            self.admit(frame);
        } else {
            self.staged.push_back(frame);
        }
        true
    }

    fn admit(&mut self, frame: NaiveFrame) {
        if frame.is_cnp {
            self.cnps.push_back(frame);
            return;
        }
        let known = self.keys.get(&frame.key).map(|(queue, _)| *queue);
        let queue = known.unwrap_or_else(|| self.assign(frame.key));
        self.keys.entry(frame.key).or_insert((queue, 0)).1 += 1;
        self.queues[queue].push_back(frame);
    }

    /// The sub-queue of a key without backlog: that which it had to itself last, if
    /// nobody has used it since; else the next empty one in the circle; else a share.
    fn assign(&mut self, key: u64) -> usize {
        if let Some(own) = self.owners.iter().position(|owner| *owner == Some(key)) {
            return own;
        }
        let count = self.queues.len();
        let mut circle = (1..=count).map(|step| (self.last_assigned + step) % count);
        if let Some(vacant) = circle.find(|queue| self.queues[*queue].is_empty()) {
            self.last_assigned = vacant;
            self.owners[vacant] = Some(key);
            return vacant;
        }
        let shared = usize::try_from(key % count as u64).expect("small");
        self.owners[shared] = None;
        shared
    }

    /// What is due at `now_ps`; `commit` then takes the first of it.
    pub(crate) fn peek(&mut self, now_ps: i128) -> Vec<(NaiveFrame, i128)> {
        let floor = ps(now_ps) - self.catch_up();
        self.free = self.free.clone().max(floor);
        self.begin(now_ps);
        let mut copy = self.clone();
        let mut due = Vec::new();
        while due.len() < BURST {
            let Some(pick) = copy.pick(now_ps, due.is_empty()) else {
                break;
            };
            due.push(pick);
        }
        // A rule that ends at the first frame has ended for good.
        if self.expiry.is_some() && self.expires_at_first(now_ps) {
            self.expire();
        }
        due
    }

    pub(crate) fn commit(&mut self, now_ps: i128, taken: usize) {
        for at in 0..taken {
            let picked = self.pick(now_ps, at == 0);
            assert!(picked.is_some(), "what was offered can be taken");
        }
        if taken > 0 {
            self.competes_until = self.competes_until.clone().max(self.free.clone());
        }
    }

    fn begin(&mut self, now_ps: i128) {
        if self.waiting() == 0 {
            if let Some((at_ps, _)) = self.expiry
                && self.free.floor() >= ps(at_ps)
            {
                self.expire();
            }
            return;
        }
        let Some(first) = self.staged.front() else {
            return;
        };
        let mut reached = self.free.clone();
        if self.nothing_competes() {
            if first.arrived_ps > now_ps {
                return;
            }
            reached = reached.max(ps(first.arrived_ps));
        }
        self.competes_until = self.competes_until.clone().max(reached.clone());
        while let Some(frame) = self.staged.front().copied()
            && ps(frame.arrived_ps) <= reached
        {
            self.staged.pop_front();
            self.admit(frame);
        }
    }

    fn expire(&mut self) {
        let (at_ps, then) = self.expiry.take().expect("a rule that expires");
        self.change_speed(then);
        self.free = self.free.clone().max(ps(at_ps));
    }

    fn change_speed(&mut self, speed: Speed) {
        if speed != self.speed {
            self.free = self.free.ceil();
        }
        self.speed = speed;
    }

    pub(crate) fn set_speed(&mut self, now_ps: i128, speed: Speed, expiry: Option<(i128, Speed)>) {
        self.change_speed(speed);
        self.expiry = expiry.map(|(after_ps, then)| (now_ps + after_ps, then));
    }

    /// The frame whose turn it is, and its queue; none for the CNPs.
    fn next(&self) -> Option<(Option<usize>, NaiveFrame)> {
        if let Some(cnp) = self.cnps.front() {
            return Some((None, *cnp));
        }
        let count = self.queues.len();
        (1..=count)
            .map(|step| (self.last_served + step) % count)
            .find_map(|queue| {
                self.queues[queue]
                    .front()
                    .map(|frame| (Some(queue), *frame))
            })
    }

    fn start_of(&self, frame: &NaiveFrame) -> BigRational {
        self.free.clone().max(ps(frame.arrived_ps))
    }

    fn expires_at_first(&self, now_ps: i128) -> bool {
        let (Some((at_ps, _)), Some((_, frame))) = (self.expiry, self.next()) else {
            return false;
        };
        let start_ps = ceil_ps(&self.start_of(&frame));
        start_ps <= now_ps && start_ps >= at_ps
    }

    fn pick(&mut self, now_ps: i128, is_first: bool) -> Option<(NaiveFrame, i128)> {
        if let Some(staged) = self.staged.front()
            && ps(staged.arrived_ps) <= self.free
        {
            return None;
        }
        let (queue, frame) = self.next()?;
        if ceil_ps(&self.start_of(&frame)) > now_ps {
            return None;
        }
        if self
            .expiry
            .is_some_and(|(at_ps, _)| ceil_ps(&self.start_of(&frame)) >= at_ps)
        {
            if !is_first {
                return None;
            }
            self.expire();
        }
        let start = self.start_of(&frame);
        self.free = start.clone() + time_of(line_bytes(frame.len), self.speed);
        if let Some(queue) = queue {
            self.queues[queue].pop_front();
            self.last_served = queue;
            let entry = self.keys.get_mut(&frame.key).expect("a key with a backlog");
            entry.1 -= 1;
            if entry.1 == 0 {
                self.keys.remove(&frame.key);
            }
        } else {
            self.cnps.pop_front();
        }
        Some((frame, ceil_ps(&start)))
    }
}
