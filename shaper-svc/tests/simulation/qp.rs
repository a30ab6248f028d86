//! One queue pair: go-back-N, an acknowledgement timeout, and, where it is on,
//! congestion control by round-trip time.

use crate::world::US;

/// What a card that measures round-trip times does with them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RttControl {
    pub(crate) rate_bps: u64,
    /// Above this round trip there is congestion.
    target_ps: u64,
    min_bps: u64,
    max_bps: u64,
    step_bps: u64,
}

impl RttControl {
    /// A card on a fabric of switches: 10 µs are congestion there. Its slowest rate is
    /// what the original's figure says, 64 KiB in 137.6 ms; it comes back by 5 Mbit/s
    /// a sample, as DCQCN does (SIGCOMM 2015, table 2: `R_AI`).
    pub(crate) const fn of_a_fabric(line_bps: u64) -> Self {
        Self {
            rate_bps: line_bps,
            target_ps: 10 * US,
            min_bps: 4_000_000,
            max_bps: line_bps,
            step_bps: 5_000_000,
        }
    }

    fn sample(&mut self, rtt_ps: u64) {
        self.rate_bps = if rtt_ps > self.target_ps {
            (self.rate_bps / 2).max(self.min_bps)
        } else {
            (self.rate_bps + self.step_bps).min(self.max_bps)
        };
    }
}

/// What comes back from the far end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The far end has everything before this packet.
    pub(crate) acked: u32,
    /// A packet was missing.
    pub(crate) is_nak: bool,
    /// When the packet that it answers left its sender.
    pub(crate) sent_ps: u64,
    /// The packet was a probe.
    pub(crate) is_probe: bool,
}

/// A sending queue pair.
#[derive(Clone, Debug)]
pub(crate) struct Qp {
    /// Its number at the far end.
    pub(crate) number: u64,
    pub(crate) timeout_ps: u64,
    pub(crate) control: Option<RttControl>,
    /// Packets whose acknowledgement is asked for: the last of each message.
    ends: Vec<u32>,
    posted: u32,
    next: u32,
    acked: u32,
    highest: u32,
    /// Not before this, by its rate.
    pub(crate) ready_ps: u64,
    /// Counts restarts of the timer; an older one that rings means nothing.
    pub(crate) timer: u64,
    pub(crate) sent: u64,
    pub(crate) resent: u64,
    pub(crate) timeouts: u64,
    pub(crate) naks: u64,
}

impl Qp {
    pub(crate) fn new(number: u64, timeout_ps: u64) -> Self {
        Self {
            number,
            timeout_ps,
            control: None,
            ends: Vec::new(),
            posted: 0,
            next: 0,
            acked: 0,
            highest: 0,
            ready_ps: 0,
            timer: 0,
            sent: 0,
            resent: 0,
            timeouts: 0,
            naks: 0,
        }
    }

    pub(crate) fn post(&mut self, packets: u32) {
        self.posted += packets;
        self.ends.push(self.posted - 1);
    }

    pub(crate) fn has_work(&self) -> bool {
        self.next < self.posted
    }

    pub(crate) fn is_done(&self) -> bool {
        self.acked == self.posted
    }

    pub(crate) fn is_end(&self, psn: u32) -> bool {
        self.ends.binary_search(&psn).is_ok()
    }

    /// The next packet, and whether the timer has to be started for it.
    pub(crate) fn send(&mut self) -> (u32, bool) {
        let psn = self.next;
        self.next += 1;
        self.sent += 1;
        if psn < self.highest {
            self.resent += 1;
        }
        self.highest = self.highest.max(self.next);
        let starts = psn == self.acked;
        if starts {
            self.timer += 1;
        }
        (psn, starts)
    }

    /// Takes an answer; whether the timer has to be started anew.
    pub(crate) fn answer(&mut self, answer: Answer, now_ps: u64) -> bool {
        if answer.is_probe
            && let Some(control) = &mut self.control
        {
            control.sample(now_ps - answer.sent_ps);
        }
        let is_progress = answer.acked > self.acked;
        self.acked = self.acked.max(answer.acked);
        self.next = self.next.max(self.acked);
        if answer.is_nak {
            self.naks += 1;
            self.next = self.acked;
        }
        if is_progress {
            self.timer += 1;
        }
        is_progress && self.next > self.acked
    }

    /// The acknowledgement did not come in time: everything again.
    pub(crate) fn time_out(&mut self) {
        self.timeouts += 1;
        self.next = self.acked;
    }
}

/// The far end of a queue pair.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FarEnd {
    expected: u32,
    has_refused: bool,
}

impl FarEnd {
    /// What it answers to a packet, if anything: the ends of messages, probes,
    /// repeats and the first packet after a gap.
    pub(crate) fn take(&mut self, psn: u32, is_end: bool, is_probe: bool) -> Option<(u32, bool)> {
        if psn == self.expected {
            self.expected += 1;
            self.has_refused = false;
            return (is_end || is_probe).then_some((self.expected, false));
        }
        if psn < self.expected {
            return is_end.then_some((self.expected, false));
        }
        let is_first = !std::mem::replace(&mut self.has_refused, true);
        is_first.then_some((self.expected, true))
    }
}
