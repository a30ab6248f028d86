//! One wire between two ports: frames in, through the engine, frames out.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::gaps::PollGaps;
use super::link::WireLink;
use super::marking::{Marker, Marking};
use super::order::{ORDER_WORDS, Order, speed_word};
use super::repeats::{Repeats, Request};
use super::window::WindowCounts;
use crate::classify::{Classifier, Kind};
use crate::engine::time::{PS_PER_NS, is_after, later};
use crate::engine::{ConfigError, Frame, Policy, Speed, Wire, WireConfig, WireStats};
use crate::port::{BURST, Port};

/// Bursts that a wire sends before the next one is served. A wire that fell behind
/// catches up by at most 64 frames, two bursts; twice that leaves the others their
/// turn.
const BURSTS_A_TURN: usize = 4;

/// A busy system may wake a sleeper late; with an eighth of the catch-up there is enough
/// left for that.
const RESTS_IN_CATCH_UP: u64 = 8;

/// Where a wire lies.
#[derive(Clone, Debug)]
pub struct RouteConfig {
    /// Index of the port that feeds it.
    pub in_port: usize,
    /// Index of the port that it feeds.
    pub out_port: usize,
    /// Size and first speed.
    pub wire: WireConfig,
    /// When to mark frames as having met congestion; never if absent.
    pub marking: Option<Marking>,
    /// Whether it starts bypassed.
    pub bypass: bool,
    /// Seed of the keys; random, so that nobody can choose addresses that collide.
    pub key_seed: u64,
}

/// Memory that a wire takes beside its ports' buffers, bytes.
#[must_use]
pub fn wire_memory_bytes(config: &WireConfig) -> u64 {
    // A token is a pointer at the most.
    Wire::<u64>::memory_bytes(config)
}

/// A wire at work.
#[derive(Debug)]
pub(super) struct Route<F> {
    in_port: usize,
    out_port: usize,
    wire: Wire<F>,
    link: Arc<WireLink>,
    seen: u64,
    bypass: bool,
    /// When the rate ends by itself, and the speed from then on.
    expires: Option<(u64, Speed)>,
    classifier: Classifier,
    repeats: Repeats,
    marker: Option<Marker>,
    polled_ps: u64,
    window_from_ps: u64,
    /// Of the window: where it changes, the window is closed.
    window_speed: Speed,
    /// The loop is stopping, and the wire no longer shapes.
    opened: bool,
    /// The mailbox for the next window.
    outgoing: usize,
    full_polls: u64,
    longest_gap_ps: u64,
    discarded_frames: u64,
    gaps_before: PollGaps,
    stats: Box<WireStats>,
    /// What the engine refused, on its way back to the port.
    refused: Box<[F; BURST]>,
}

impl<F: Default> Route<F> {
    pub(super) fn new(
        config: &RouteConfig,
        link: Arc<WireLink>,
        now_ps: u64,
    ) -> Result<Self, ConfigError> {
        Ok(Self {
            in_port: config.in_port,
            out_port: config.out_port,
            wire: Wire::new(&config.wire, now_ps)?,
            link,
            seen: 0,
            bypass: config.bypass,
            expires: None,
            classifier: Classifier::new(config.key_seed),
            repeats: Repeats::new(),
            marker: config
                .marking
                .map(|marking| Marker::new(marking, config.key_seed)),
            polled_ps: now_ps,
            window_from_ps: now_ps,
            window_speed: config.wire.speed,
            opened: false,
            outgoing: 0,
            full_polls: 0,
            longest_gap_ps: 0,
            discarded_frames: 0,
            gaps_before: PollGaps::new(),
            stats: Box::default(),
            refused: Box::new(std::array::from_fn(|_| F::default())),
        })
    }

    pub(super) fn in_port(&self) -> usize {
        self.in_port
    }

    pub(super) fn out_port(&self) -> usize {
        self.out_port
    }

    /// How long nobody need look after the wire, ps: until its next frame is due, and
    /// no longer than a part of what a late poll may be late.
    pub(super) fn rest_ps(&self, now_ps: u64) -> u64 {
        let catch_up_ps = self.wire.catch_up_ps();
        let part_ps = if catch_up_ps == 0 {
            u64::MAX
        } else {
            catch_up_ps / RESTS_IN_CATCH_UP
        };
        let until_due_ps = self.wire.due_at_ps().map_or(u64::MAX, |due_ps| {
            if is_after(due_ps, now_ps) {
                due_ps.wrapping_sub(now_ps)
            } else {
                0
            }
        });
        part_ps.min(until_due_ps)
    }

    pub(super) fn queued_frames(&self) -> usize {
        self.wire.queued_frames()
    }

    /// One turn; returns how many frames moved.
    ///
    /// What is due leaves before frames are taken in: those that arrive then compete at
    /// once and need not wait aside, and few wait at a time, so that they are still in
    /// the cache when they leave. A change of speed follows both and meets no frame that
    /// was due before it.
    #[inline]
    pub(super) fn serve<P: Port<Frame = F>>(
        &mut self,
        ports: &mut [P],
        now_ps: u64,
        gaps: &PollGaps,
    ) -> usize {
        let gap_ps = now_ps.wrapping_sub(self.polled_ps);
        self.polled_ps = now_ps;
        self.longest_gap_ps = self.longest_gap_ps.max(gap_ps);
        if let Some((ended_ps, then)) = self.expires
            && !is_after(ended_ps, now_ps)
        {
            self.end_when_idle(ended_ps, then, now_ps, gaps);
        }
        let sent = self.send(&mut ports[self.out_port], now_ps, gaps);
        let received = self.receive(&mut ports[self.in_port], now_ps);
        // A short burst leaves time: what found the wire idle need not wait for a turn.
        let at_once = if (1..BURST).contains(&received) {
            self.send(&mut ports[self.out_port], now_ps, gaps)
        } else {
            0
        };
        sent + received + at_once
    }

    /// Puts a new order in force; true if it closed a window.
    #[inline]
    pub(super) fn obey(&mut self, now_ps: u64, gaps: &PollGaps) -> bool {
        match self.link.orders.read_newer(&mut self.seen) {
            Some(words) => self.obey_words(words, now_ps, gaps),
            None => false,
        }
    }

    #[cold]
    fn obey_words(&mut self, words: [u64; ORDER_WORDS], now_ps: u64, gaps: &PollGaps) -> bool {
        let Some(Order { policy, bypass }) = Order::from_words(words) else {
            return false;
        };
        let [rule] = policy.rules() else {
            return false;
        };
        let changes = rule.speed != self.wire.speed() || bypass != self.bypass;
        let closes = changes && self.close_at_change(now_ps, gaps);
        self.bypass = bypass;
        self.wire.set_policy(&policy, now_ps);
        self.window_speed = rule.speed;
        self.expires = rule
            .expiry
            .map(|expiry| (now_ps.wrapping_add(expiry.after_ps), expiry.then));
        self.link
            .in_force
            .store(policy.generation(), Ordering::Release);
        closes
    }

    /// The rate has ended by itself: what left before is one window, what leaves from
    /// then on another.
    #[cold]
    fn close_at_expiry(&mut self, now_ps: u64, gaps: &PollGaps) {
        let ended_ps = self.expires.take().map_or(now_ps, |(at_ps, _)| at_ps);
        self.close_at_change(ended_ps, gaps);
        self.window_speed = self.wire.speed();
    }

    /// The rate of an idle wire has ended: a frame that comes now starts later. The
    /// engine would wait for one that arrived before.
    #[cold]
    fn end_when_idle(&mut self, ended_ps: u64, then: Speed, now_ps: u64, gaps: &PollGaps) {
        if self.wire.queued_frames() > 0 {
            return;
        }
        self.expires = None;
        if then != self.window_speed {
            self.close_at_change(ended_ps, gaps);
        }
        let policy = Policy::constant(self.wire.generation(), then);
        self.wire.set_policy(&policy, now_ps);
        self.window_speed = then;
    }

    /// Closes the window so that it has one speed alone, unless nothing is in it yet.
    fn close_at_change(&mut self, at_ps: u64, gaps: &PollGaps) -> bool {
        let at_ps = later(at_ps, self.window_from_ps);
        let is_empty = at_ps == self.window_from_ps && self.wire.stats().sent_frames == 0;
        !is_empty && self.hand_over(at_ps, gaps)
    }

    #[inline]
    fn receive<P: Port<Frame = F>>(&mut self, port: &mut P, now_ps: u64) -> usize {
        let mut intake = self.wire.intake();
        let room = intake.room();
        if room == 0 {
            // What waits stays with the port: back-pressure, not loss.
            self.full_polls += 1;
            return 0;
        }
        let (classifier, repeats) = (&self.classifier, &mut self.repeats);
        let read = |head: &[u8], bytes: u32| {
            let verdict = classifier.classify(head);
            if let Kind::Roce(bth) = verdict.kind
                && bth.is_reliable_request()
            {
                repeats.see(Request {
                    key: verdict.key,
                    destination_qp: bth.destination_qp,
                    psn: bth.psn,
                    bytes,
                });
            }
            Frame {
                handle: (),
                key: verdict.key,
                arrived_ps: now_ps,
                len: u16::try_from(bytes).unwrap_or(u16::MAX),
                is_cnp: verdict.is_cnp(),
            }
        };
        let (mut refused, mut bytes) = (0, 0);
        let hold = |handle, frame: Frame<()>| {
            bytes += u64::from(frame.len);
            if let Err(frame) = intake.push(frame.with_handle(handle)) {
                // Cannot be: no more is received than there is room for.
                self.refused[refused % BURST] = frame.handle;
                refused += 1;
            }
        };
        let received = port.receive(room, read, hold);
        drop(intake);
        if let Some(marker) = &mut self.marker {
            marker.arrived(bytes);
        }
        if refused > 0 {
            self.discarded_frames += port.discard(&mut self.refused[..refused.min(BURST)]) as u64;
        }
        received
    }

    #[inline]
    fn send<P: Port<Frame = F>>(&mut self, port: &mut P, now_ps: u64, gaps: &PollGaps) -> usize {
        let mut total = 0;
        for _ in 0..BURSTS_A_TURN {
            let mut burst = self.wire.peek(now_ps);
            if burst.speed() != self.window_speed {
                drop(burst);
                self.close_at_expiry(now_ps, gaps);
                continue;
            }
            let (departures, handles) = burst.offer();
            let offered = departures.len();
            if offered == 0 {
                break;
            }
            if let Some(marker) = &mut self.marker {
                marker.mark(port, departures, handles);
            }
            let sent = port.transmit(handles).min(offered);
            if let Some(marker) = &mut self.marker {
                marker.departed(&departures[..sent]);
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
        due && self.all_are_taken() && self.hand_over(now_ps, gaps)
    }

    fn all_are_taken(&self) -> bool {
        let windows = &self.link.windows;
        windows[(self.outgoing + windows.len() - 1) % windows.len()].is_empty()
    }

    /// Closes the last window before the loop ends.
    pub(super) fn close_last(&mut self, now_ps: u64, gaps: &PollGaps) {
        self.hand_over(now_ps, gaps);
    }

    fn hand_over(&mut self, now_ps: u64, gaps: &PollGaps) -> bool {
        if !self.link.windows[self.outgoing].is_empty() {
            return false;
        }
        self.wire.take_stats(&mut self.stats);
        let mut counts = WindowCounts {
            from_ps: self.window_from_ps,
            to_ps: now_ps,
            generation: self.wire.generation(),
            rate_bps: speed_word(self.window_speed),
            bypass: self.bypass,
            full_polls: self.full_polls,
            queue_frames_now: self.wire.queued_frames() as u64,
            longest_gap_ns: self.longest_gap_ps / PS_PER_NS,
            discarded_frames: self.discarded_frames,
            ce_marks: self.marker.as_mut().map_or(0, Marker::take_marks),
            expires_after_ps: self.expires_after_ps(now_ps),
            opened: self.opened,
            repeated: self.repeats.take(),
            poll_gaps: gaps.since(&mut self.gaps_before),
            ..WindowCounts::default()
        };
        counts.fill_from(&self.stats);
        self.window_from_ps = now_ps;
        self.full_polls = 0;
        self.longest_gap_ps = 0;
        self.discarded_frames = 0;
        let handed_over = self.link.windows[self.outgoing].offer(&counts.to_words());
        self.outgoing = (self.outgoing + 1) % self.link.windows.len();
        handed_over
    }

    /// Until the rate ends by itself, ps; 0 where it does not, or has ended.
    fn expires_after_ps(&self, now_ps: u64) -> u64 {
        let lasting = self.expires.filter(|(at_ps, _)| is_after(*at_ps, now_ps));
        lasting.map_or(0, |(at_ps, _)| at_ps.wrapping_sub(now_ps))
    }

    /// From here on frames leave as fast as the port takes them.
    pub(super) fn open_up(&mut self, now_ps: u64, gaps: &PollGaps) {
        if self.window_speed != Speed::Unshaped {
            self.close_at_change(now_ps, gaps);
            self.opened = true;
        }
        let policy = Policy::constant(self.wire.generation(), Speed::Unshaped);
        self.wire.set_policy(&policy, now_ps);
        self.window_speed = Speed::Unshaped;
        self.expires = None;
    }

    /// Sends without receiving; returns how many frames moved.
    pub(super) fn drain<P: Port<Frame = F>>(
        &mut self,
        ports: &mut [P],
        now_ps: u64,
        gaps: &PollGaps,
    ) -> usize {
        self.send(&mut ports[self.out_port], now_ps, gaps)
    }

    /// Gives every frame that is held back unsent; returns how many.
    pub(super) fn discard_all<P: Port<Frame = F>>(&mut self, ports: &mut [P]) -> usize {
        ports[self.out_port].discard(&mut self.wire.give_up())
    }
}
