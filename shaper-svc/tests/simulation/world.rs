//! What happens when. A heap of events and nothing else that moves.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::qp::{Answer, FarEnd, Qp};
use crate::shapers::{Shaper, wire_ps};

/// A microsecond.
pub(crate) const US: u64 = 1_000_000;

/// A millisecond.
pub(crate) const MS: u64 = 1000 * US;

/// A RoCE frame of 1 KiB without FCS: Ethernet 14, IPv4 20, UDP 8, BTH 12, ICRC 4.
pub(crate) const DATA_LEN: u16 = 1024 + 58;

/// An acknowledgement: the same with an AETH of 4 in place of the payload.
pub(crate) const ACK_LEN: u16 = 62;

/// Every so many packets there is a probe of the round trip.
const PROBE_EVERY: u32 = 16;

/// Frames that one turn of the poll loop receives at the most.
const RECEIVE: usize = 32;

/// Draws numbers: splitmix64 (Steele, Lea, Flood, OOPSLA 2014).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `below`.
    pub(crate) fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below.max(1)
    }
}

/// The seed of this run: chosen, or new. Printed, so that a failure can be run again.
pub(crate) fn seed() -> u64 {
    let chosen = std::env::var("SIMULATION_SEED").ok();
    let seed = chosen
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(|| {
            let now = std::time::SystemTime::now();
            let since = now.duration_since(std::time::UNIX_EPOCH).unwrap();
            u64::from(since.subsec_nanos()) ^ since.as_secs()
        });
    println!("SIMULATION_SEED={seed}");
    seed
}

/// A packet on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    /// Index of its queue pair; none for an acknowledgement of other traffic.
    pub(crate) qp: Option<usize>,
    /// Destination queue pair.
    pub(crate) number: u64,
    pub(crate) psn: u32,
    pub(crate) len: u16,
    pub(crate) sent_ps: u64,
    is_end: bool,
    is_probe: bool,
}

/// How the world is set up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) seed: u64,
    /// What the virtual function lets through.
    pub(crate) valve_bps: u64,
    /// Descriptors of the receive ring.
    pub(crate) ring_frames: usize,
    /// A turn of the poll loop without frames, and what each received one adds.
    pub(crate) turn_ps: u64,
    pub(crate) frame_ps: u64,
    /// A turn is late by up to this, now and then.
    pub(crate) late_ps: u64,
    /// From the shaper to the far end, and the whole way back.
    pub(crate) one_way_ps: u64,
}

impl Setting {
    /// A 100G function in front of Arm cores as fast as the original's: 40 Gbit/s in
    /// total, 221 ns for a frame of 1 KiB.
    pub(crate) const fn of_the_original(seed: u64) -> Self {
        Self {
            seed,
            valve_bps: 100_000_000_000,
            ring_frames: 32_768,
            turn_ps: 200_000,
            frame_ps: 221_000,
            late_ps: 0,
            one_way_ps: US,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// The card may send.
    Send,
    /// The poll loop turns.
    Turn,
    /// A packet has reached the far end.
    Arrive(Packet),
    /// An answer has reached its sender.
    Answer(usize, Answer),
    /// A timer rings, if it was not started anew.
    Ring(usize, u64),
    /// A queue pair is given a message.
    Post(usize, u32),
    /// The host acknowledges what it received on some other queue pair.
    Acknowledge(u64),
}

struct Entry(Reverse<(u64, u64)>, Event);

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}

/// A host, its card, a shaper, and the far end.
pub(crate) struct World<S> {
    pub(crate) setting: Setting,
    pub(crate) shaper: S,
    pub(crate) qps: Vec<Qp>,
    pub(crate) now_ps: u64,
    /// What left the shaper, and when.
    pub(crate) sent: Vec<(u64, Packet)>,
    /// Dropped because the receive ring was full.
    pub(crate) imissed: u64,
    pub(crate) dice: Dice,
    far_ends: Vec<FarEnd>,
    events: BinaryHeap<Entry>,
    happened: u64,
    ring: VecDeque<Packet>,
    acknowledgements: VecDeque<Packet>,
    turn_of: usize,
    card_free_ps: u64,
    send_at_ps: Option<u64>,
    /// Messages and acknowledgements whose time has not come.
    planned: usize,
}

impl<S: Shaper> World<S> {
    pub(crate) fn new(setting: Setting, shaper: S, qps: Vec<Qp>) -> Self {
        let mut world = Self {
            setting,
            shaper,
            far_ends: vec![FarEnd::default(); qps.len()],
            qps,
            now_ps: 0,
            sent: Vec::new(),
            imissed: 0,
            dice: Dice::new(setting.seed),
            events: BinaryHeap::new(),
            happened: 0,
            ring: VecDeque::new(),
            acknowledgements: VecDeque::new(),
            turn_of: 0,
            card_free_ps: 0,
            send_at_ps: None,
            planned: 0,
        };
        world.at(0, Event::Turn);
        world
    }

    pub(crate) fn post(&mut self, at_ps: u64, qp: usize, packets: u32) {
        self.planned += 1;
        self.at(at_ps, Event::Post(qp, packets));
    }

    pub(crate) fn acknowledge(&mut self, at_ps: u64, number: u64) {
        self.planned += 1;
        self.at(at_ps, Event::Acknowledge(number));
    }

    /// Runs until `is_over`, or fails at `limit_ps`.
    pub(crate) fn run_until(&mut self, limit_ps: u64, mut is_over: impl FnMut(&Self) -> bool) {
        while !is_over(self) {
            let Some(Entry(Reverse((at_ps, _)), event)) = self.events.pop() else {
                panic!("the poll loop turns for ever");
            };
            assert!(at_ps <= limit_ps, "not over after {limit_ps} ps");
            self.now_ps = at_ps;
            self.happen(event);
        }
    }

    /// Whether everything that was planned has been posted and acknowledged.
    pub(crate) fn all_done(&self) -> bool {
        self.planned == 0 && self.qps.iter().all(Qp::is_done)
    }

    /// Messages and acknowledgements whose time has not come.
    pub(crate) fn planned(&self) -> usize {
        self.planned
    }

    /// The time from the card to the uplink of the packets of a queue pair.
    pub(crate) fn delays_of(&self, number: u64) -> Vec<u64> {
        let of_it = self.sent.iter().filter(|(_, p)| p.number == number);
        of_it
            .map(|(at_ps, packet)| at_ps - packet.sent_ps)
            .collect()
    }

    pub(crate) fn sum(&self, count: impl Fn(&Qp) -> u64) -> u64 {
        self.qps.iter().map(count).sum()
    }

    fn at(&mut self, at_ps: u64, event: Event) {
        self.happened += 1;
        self.events
            .push(Entry(Reverse((at_ps, self.happened)), event));
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Send => {
                self.send_at_ps = None;
                self.send();
            }
            Event::Turn => self.turn(),
            Event::Arrive(packet) => self.arrive(packet),
            Event::Answer(qp, answer) => {
                if self.qps[qp].answer(answer, self.now_ps) {
                    self.start_timer(qp);
                }
                self.wake_card();
            }
            Event::Ring(qp, timer) => {
                if self.qps[qp].timer == timer && !self.qps[qp].is_done() {
                    self.qps[qp].time_out();
                    self.wake_card();
                }
            }
            Event::Post(qp, packets) => {
                self.planned -= 1;
                self.qps[qp].post(packets);
                self.wake_card();
            }
            Event::Acknowledge(number) => {
                self.planned -= 1;
                self.acknowledgements.push_back(Packet {
                    qp: None,
                    number,
                    psn: 0,
                    len: ACK_LEN,
                    sent_ps: 0,
                    is_end: false,
                    is_probe: false,
                });
                self.wake_card();
            }
        }
    }

    fn start_timer(&mut self, qp: usize) {
        let Qp {
            timeout_ps, timer, ..
        } = self.qps[qp];
        self.at(self.now_ps + timeout_ps, Event::Ring(qp, timer));
    }

    fn wake_card(&mut self) {
        let at_ps = self.now_ps.max(self.card_free_ps);
        self.wake_card_at(at_ps);
    }

    fn wake_card_at(&mut self, at_ps: u64) {
        if self.send_at_ps.is_none_or(|planned_ps| at_ps < planned_ps) {
            self.send_at_ps = Some(at_ps);
            self.at(at_ps, Event::Send);
        }
    }

    /// The card sends one packet: acknowledgements first, then queue pairs in turn.
    fn send(&mut self) {
        if self.now_ps < self.card_free_ps {
            return self.wake_card();
        }
        let packet = match self.acknowledgements.pop_front() {
            Some(packet) => packet,
            None => match self.next_data() {
                Some(packet) => packet,
                None => {
                    // Those that wait are held back by their rate.
                    let waiting = self.qps.iter().filter(|qp| qp.has_work());
                    if let Some(ready_ps) = waiting.map(|qp| qp.ready_ps).min() {
                        self.wake_card_at(ready_ps);
                    }
                    return;
                }
            },
        };
        self.card_free_ps = self.now_ps + wire_ps(packet.len, self.setting.valve_bps);
        let packet = Packet {
            sent_ps: self.now_ps,
            ..packet
        };
        if self.ring.len() < self.setting.ring_frames {
            self.ring.push_back(packet);
        } else {
            self.imissed += 1;
        }
        self.wake_card_at(self.card_free_ps);
    }

    fn next_data(&mut self) -> Option<Packet> {
        let qps = self.qps.len();
        let now_ps = self.now_ps;
        let in_turn = (1..=qps).map(|step| (self.turn_of + step) % qps);
        let qp = in_turn
            .into_iter()
            .find(|&qp| self.qps[qp].has_work() && self.qps[qp].ready_ps <= now_ps)?;
        self.turn_of = qp;
        let (psn, starts_timer) = self.qps[qp].send();
        if starts_timer {
            self.start_timer(qp);
        }
        let sender = &mut self.qps[qp];
        if let Some(control) = sender.control {
            sender.ready_ps = now_ps + wire_ps(DATA_LEN, control.rate_bps);
        }
        Some(Packet {
            qp: Some(qp),
            number: sender.number,
            psn,
            len: DATA_LEN,
            sent_ps: 0,
            is_end: sender.is_end(psn),
            is_probe: sender.control.is_some() && psn % PROBE_EVERY == 0,
        })
    }

    /// One turn of the poll loop: in, through, out.
    fn turn(&mut self) {
        let received = self.ring.len().min(RECEIVE).min(self.shaper.room());
        for packet in self.ring.drain(..received) {
            self.shaper.push(packet, self.now_ps);
        }
        let mut out = Vec::new();
        self.shaper.poll(self.now_ps, &mut out);
        for packet in out {
            self.sent.push((self.now_ps, packet));
            self.at(self.now_ps + self.setting.one_way_ps, Event::Arrive(packet));
        }
        let Setting {
            turn_ps,
            frame_ps,
            late_ps,
            ..
        } = self.setting;
        let late_ps = if late_ps > 0 && self.dice.roll(16) == 0 {
            self.dice.roll(late_ps)
        } else {
            0
        };
        let took_ps = turn_ps + frame_ps * received as u64 + late_ps;
        self.at(self.now_ps + took_ps, Event::Turn);
    }

    fn arrive(&mut self, packet: Packet) {
        let Packet {
            qp: Some(qp),
            psn,
            is_end,
            is_probe,
            sent_ps,
            ..
        } = packet
        else {
            return;
        };
        if let Some((acked, is_nak)) = self.far_ends[qp].take(psn, is_end, is_probe) {
            let answer = Answer {
                acked,
                is_nak,
                sent_ps,
                is_probe,
            };
            let at_ps = self.now_ps + self.setting.one_way_ps;
            self.at(at_ps, Event::Answer(qp, answer));
        }
    }
}
