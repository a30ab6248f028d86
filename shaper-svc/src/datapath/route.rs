//! One wire between two ports: frames in, through the engine, frames out.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::gaps::PollGaps;
use super::held::HeldFrames;
use super::link::WireLink;
use super::order::{Order, speed_word};
use super::repeats::{Repeats, Request};
use super::window::WindowCounts;
use crate::classify::{Classifier, Kind};
use crate::engine::time::PS_PER_NS;
use crate::engine::{ConfigError, Frame, Policy, Speed, Wire, WireConfig, WireStats};
use crate::port::{BURST, Port};

/// Bursts that a wire sends before the next one is served. A wire that fell behind
/// catches up by at most 64 frames, two bursts; twice that leaves the others their
/// turn.
const BURSTS_A_TURN: usize = 4;

/// Where a wire lies.
#[derive(Clone, Debug)]
pub struct RouteConfig {
    /// Index of the port that feeds it.
    pub in_port: usize,
    /// Index of the port that it feeds.
    pub out_port: usize,
    /// Size and first speed.
    pub wire: WireConfig,
    /// Whether it starts bypassed.
    pub bypass: bool,
    /// Seed of the keys; random, so that nobody can choose addresses that collide.
    pub key_seed: u64,
}

/// Memory that a wire takes beside its ports' buffers, bytes.
#[must_use]
pub fn wire_memory_bytes(config: &WireConfig) -> u64 {
    // A token is a pointer at the most.
    Wire::memory_bytes(config) + HeldFrames::<u64>::memory_bytes(config.queue_frames)
}

/// A wire at work.
#[derive(Debug)]
pub(super) struct Route<F> {
    in_port: usize,
    out_port: usize,
    wire: Wire,
    held: HeldFrames<F>,
    link: Arc<WireLink>,
    seen: u64,
    bypass: bool,
    classifier: Classifier,
    repeats: Repeats,
    polled_ps: u64,
    window_from_ps: u64,
    full_polls: u64,
    longest_gap_ps: u64,
    discarded_frames: u64,
    gaps_before: PollGaps,
    stats: Box<WireStats>,
    /// What is received, on its way to the engine.
    frames: Box<[Frame; BURST]>,
    /// What is sent, on its way to the port; never grows.
    tokens: Vec<F>,
}

const NO_FRAME: Frame = Frame {
    handle: 0,
    key: 0,
    arrived_ps: 0,
    len: 0,
    is_cnp: false,
};

impl<F: Copy> Route<F> {
    pub(super) fn new(
        config: &RouteConfig,
        link: Arc<WireLink>,
        now_ps: u64,
    ) -> Result<Self, ConfigError> {
        Ok(Self {
            in_port: config.in_port,
            out_port: config.out_port,
            wire: Wire::new(&config.wire, now_ps)?,
            held: HeldFrames::with_capacity(config.wire.queue_frames),
            link,
            seen: 0,
            bypass: config.bypass,
            classifier: Classifier::new(config.key_seed),
            repeats: Repeats::new(),
            polled_ps: now_ps,
            window_from_ps: now_ps,
            full_polls: 0,
            longest_gap_ps: 0,
            discarded_frames: 0,
            gaps_before: PollGaps::new(),
            stats: Box::default(),
            frames: Box::new([NO_FRAME; BURST]),
            tokens: Vec::with_capacity(BURST),
        })
    }

    pub(super) fn in_port(&self) -> usize {
        self.in_port
    }

    pub(super) fn out_port(&self) -> usize {
        self.out_port
    }

    pub(super) fn queued_frames(&self) -> usize {
        self.wire.queued_frames()
    }

    /// One turn; returns how many frames moved.
    #[inline]
    pub(super) fn serve<P: Port<Frame = F>>(&mut self, ports: &mut [P], now_ps: u64) -> usize {
        self.obey(now_ps);
        let gap_ps = now_ps.wrapping_sub(self.polled_ps);
        self.polled_ps = now_ps;
        self.longest_gap_ps = self.longest_gap_ps.max(gap_ps);
        self.receive(&mut ports[self.in_port], now_ps)
            + self.send(&mut ports[self.out_port], now_ps)
    }

    #[inline]
    fn obey(&mut self, now_ps: u64) {
        if let Some(words) = self.link.orders.read_newer(&mut self.seen)
            && let Some(order) = Order::from_words(words)
        {
            self.bypass = order.bypass;
            self.wire.set_policy(&order.policy, now_ps);
            self.link
                .in_force
                .store(order.policy.generation(), Ordering::Release);
        }
    }

    #[inline]
    fn receive<P: Port<Frame = F>>(&mut self, port: &mut P, now_ps: u64) -> usize {
        let room = self.wire.room_frames().min(BURST);
        if room == 0 {
            // What waits stays with the port: back-pressure, not loss.
            self.full_polls += 1;
            return 0;
        }
        let received = port.receive(room);
        if received == 0 {
            return 0;
        }
        let mut kept = 0;
        for index in 0..received {
            let verdict = self.classifier.classify(port.head(index));
            let bytes = port.bytes(index);
            if let Kind::Roce(bth) = verdict.kind
                && bth.is_reliable_request()
            {
                self.repeats.see(Request {
                    key: verdict.key,
                    destination_qp: bth.destination_qp,
                    psn: bth.psn,
                    bytes,
                });
            }
            let Some(token) = port.take(index) else {
                continue;
            };
            let Some(handle) = self.held.keep(token) else {
                // Cannot be: there are as many places as the wire has room for.
                self.discarded_frames += port.discard(&[token]) as u64;
                continue;
            };
            self.frames[kept] = Frame {
                handle,
                key: verdict.key,
                arrived_ps: now_ps,
                len: u16::try_from(bytes).unwrap_or(u16::MAX),
                is_cnp: verdict.is_cnp(),
            };
            kept += 1;
        }
        let pushed = self.wire.push(&self.frames[..kept]);
        debug_assert_eq!(pushed, kept, "no more was received than there was room for");
        received
    }

    #[inline]
    fn send<P: Port<Frame = F>>(&mut self, port: &mut P, now_ps: u64) -> usize {
        let mut total = 0;
        for _ in 0..BURSTS_A_TURN {
            let burst = self.wire.peek(now_ps);
            let departures = burst.departures();
            if departures.is_empty() {
                break;
            }
            self.tokens.clear();
            self.tokens
                .extend(departures.iter().map_while(|d| self.held.get(d.handle)));
            let offered = departures.len();
            let sent = port.transmit(&self.tokens);
            for departure in &departures[..sent] {
                self.held.release(departure.handle);
            }
            burst.commit(sent);
            total += sent;
            if sent < offered || self.wire.queued_frames() == 0 {
                break;
            }
        }
        total
    }

    /// Closes the window if its time has come and the one before was taken; else it
    /// goes on and nothing is lost. True if it was closed.
    #[inline]
    pub(super) fn close_window(&mut self, interval_ps: u64, now_ps: u64, gaps: &PollGaps) -> bool {
        let due = now_ps.wrapping_sub(self.window_from_ps) >= interval_ps;
        due && self.link.windows.is_empty() && self.hand_over(now_ps, gaps)
    }

    fn hand_over(&mut self, now_ps: u64, gaps: &PollGaps) -> bool {
        self.wire.take_stats(&mut self.stats);
        let mut counts = WindowCounts {
            from_ps: self.window_from_ps,
            to_ps: now_ps,
            generation: self.wire.generation(),
            rate_bps: speed_word(self.wire.speed()),
            bypass: self.bypass,
            full_polls: self.full_polls,
            queue_frames_now: self.wire.queued_frames() as u64,
            longest_gap_ns: self.longest_gap_ps / PS_PER_NS,
            discarded_frames: self.discarded_frames,
            repeated: self.repeats.take(),
            poll_gaps: gaps.since(&mut self.gaps_before),
            ..WindowCounts::default()
        };
        counts.fill_from(&self.stats);
        self.window_from_ps = now_ps;
        self.full_polls = 0;
        self.longest_gap_ps = 0;
        self.discarded_frames = 0;
        self.link.windows.offer(&counts.to_words())
    }

    /// From here on frames leave as fast as the port takes them.
    pub(super) fn open_up(&mut self, now_ps: u64) {
        let policy = Policy::constant(self.wire.generation(), Speed::Unshaped);
        self.wire.set_policy(&policy, now_ps);
    }

    /// Sends without receiving; returns how many frames moved.
    pub(super) fn drain<P: Port<Frame = F>>(&mut self, ports: &mut [P], now_ps: u64) -> usize {
        self.send(&mut ports[self.out_port], now_ps)
    }

    /// Gives every frame that is held back unsent; returns how many.
    pub(super) fn discard_all<P: Port<Frame = F>>(&mut self, ports: &mut [P]) -> usize {
        ports[self.out_port].discard(&self.held.drain())
    }
}
