//! From what the poll loop counted to what is reported.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

use rdmesh_proto::shaper::v1::{InvalidCause, InvalidWindow, RepeatedPsn, WireWindow};

use super::handle::PortState;
use crate::datapath::WindowCounts;

/// Which engine counted: its version, and a number that grows with each change of what
/// a rate means.
pub const ENGINE_VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "+engine.1");

/// Invalid windows that a report shows.
const MAX_INVALID: usize = 64;

const PS_PER_NS: u64 = 1000;

/// What is the same in all windows of a wire.
#[derive(Clone, Debug)]
pub struct Labels {
    /// Wire.
    pub wire: String,
    /// Host.
    pub host: String,
    /// Function.
    pub virtual_function: String,
    /// See [`crate::config::ShaperConfig::hash`].
    pub configuration_hash: String,
}

/// Makes the windows of one wire.
#[derive(Debug)]
pub struct Reporter {
    labels: Labels,
    reported_to: SystemTime,
    imissed: u64,
    rx_nombuf: u64,
    back_pressure_help: u64,
}

/// The moment at which a window is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Wall clock.
    pub now: SystemTime,
    /// The data path's clock, ps.
    pub now_ps: u64,
    /// The data path was down at some time since the last window.
    pub was_down: bool,
    /// Windows that the uplink gave up so far.
    pub given_up: u64,
}

impl Reporter {
    /// A reporter whose first window begins at `now`.
    #[must_use]
    pub fn new(labels: Labels, port: &PortState, now: SystemTime) -> Self {
        Self {
            labels,
            reported_to: now,
            imissed: port.imissed,
            rx_nombuf: port.rx_nombuf,
            back_pressure_help: port.back_pressure_help,
        }
    }

    /// When the last window ended.
    #[must_use]
    pub fn reported_to(&self) -> SystemTime {
        self.reported_to
    }

    /// The window of what the poll loop counted; `port` feeds the wire.
    pub fn window(&mut self, counts: &WindowCounts, port: &PortState, at: Moment) -> WireWindow {
        let ago_ps = at.now_ps.wrapping_sub(counts.to_ps);
        let to = at.now - Duration::from_nanos(ago_ps / PS_PER_NS);
        let mut window = self.empty(to, port, at);
        window.rate_bps = counts.rate_bps;
        window.policy_generation = counts.generation;
        let left = Duration::from_nanos(counts.expires_after_ps / PS_PER_NS);
        window.expires_at = (counts.expires_after_ps > 0).then(|| (to + left).into());
        window.bypass = counts.bypass;
        window.sent_frames = counts.sent_frames;
        window.sent_bits = counts.sent_line_bytes.saturating_mul(8);
        window.queue_frames_now = counts.queue_frames_now;
        window.queue_frames_p50 = counts.queue_frames_p50;
        window.queue_frames_p99 = counts.queue_frames_p99;
        window.queue_frames_max = counts.queue_frames_max;
        window.waited_ns_p50 = counts.waited_p50_ps / PS_PER_NS;
        window.waited_ns_p99 = counts.waited_p99_ps / PS_PER_NS;
        window.waited_ns_max = counts.waited_max_ps / PS_PER_NS;
        window.catch_up_used_ps = counts.catch_up_used_ps;
        window.tx_not_accepted = counts.tx_not_accepted;
        window.full_polls = counts.full_polls;
        window.ce_marks = counts.ce_marks;
        window.lost_ps = counts.lost_ps;
        window.longest_poll_gap_ns = counts.longest_gap_ns;
        let repeated = counts.repeated.iter().filter(|line| line.frames > 0);
        window.repeated_psns = repeated
            .map(|line| RepeatedPsn {
                destination_qp: line.destination_qp,
                frames: line.frames,
                bytes: line.bytes,
            })
            .collect();
        let used = counts
            .poll_gaps
            .iter()
            .rposition(|&count| count > 0)
            .map_or(0, |last| last + 1);
        window.poll_gap_buckets = counts.poll_gaps[..used].to_vec();
        // A wire that is not shaped has no catch-up to use up.
        if counts.catch_up_exhausted > 0 && counts.rate_bps > 0 {
            window.invalid.push(InvalidCause::PollGap.into());
        }
        // Whoever compares rates must not meet what no rate held back.
        if counts.bypass || counts.opened {
            window.invalid.push(InvalidCause::NotShaped.into());
        }
        if !window.repeated_psns.is_empty() {
            window.invalid.push(InvalidCause::Retransmits.into());
        }
        window
    }

    /// The window of a time in which the poll loop did not report.
    pub fn silent(&mut self, port: &PortState, at: Moment) -> WireWindow {
        self.empty(
            at.now,
            port,
            Moment {
                was_down: true,
                ..at
            },
        )
    }

    /// The window of a time before this process, from `since` on.
    pub fn absent(&mut self, since: SystemTime, port: &PortState, at: Moment) -> WireWindow {
        self.reported_to = self.reported_to.min(since);
        self.silent(port, at)
    }

    fn empty(&mut self, to: SystemTime, port: &PortState, at: Moment) -> WireWindow {
        // Clocks may be set back; windows do not run backwards.
        let to = to.max(self.reported_to);
        let from = std::mem::replace(&mut self.reported_to, to);
        let imissed = port.imissed.saturating_sub(self.imissed);
        let rx_nombuf = port.rx_nombuf.saturating_sub(self.rx_nombuf);
        (self.imissed, self.rx_nombuf) = (port.imissed, port.rx_nombuf);
        let helped = port.back_pressure_help > self.back_pressure_help;
        self.back_pressure_help = port.back_pressure_help;
        let mut invalid = Vec::new();
        if imissed + rx_nombuf > 0 {
            invalid.push(InvalidCause::PortDropped.into());
        }
        if helped {
            invalid.push(InvalidCause::BackPressureHelp.into());
        }
        if at.was_down {
            invalid.push(InvalidCause::DataPathDown.into());
        }
        WireWindow {
            wire: self.labels.wire.clone(),
            host: self.labels.host.clone(),
            virtual_function: self.labels.virtual_function.clone(),
            from: Some(from.into()),
            to: Some(to.into()),
            imissed,
            rx_nombuf,
            invalid,
            engine_version: ENGINE_VERSION.to_owned(),
            configuration_hash: self.labels.configuration_hash.clone(),
            windows_given_up: at.given_up,
            ..WireWindow::default()
        }
    }
}

/// The latest invalid windows.
#[derive(Debug, Default)]
pub struct InvalidWindows(VecDeque<InvalidWindow>);

impl InvalidWindows {
    /// Remembers the window if it is invalid.
    pub fn see(&mut self, window: &WireWindow) {
        if window.invalid.is_empty() {
            return;
        }
        if self.0.len() >= MAX_INVALID {
            self.0.pop_front();
        }
        self.0.push_back(InvalidWindow {
            wire: window.wire.clone(),
            from: window.from,
            to: window.to,
            causes: window.invalid.clone(),
        });
    }

    /// Oldest first.
    #[must_use]
    pub fn list(&self) -> Vec<InvalidWindow> {
        self.0.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datapath::Repeated;

    fn labels() -> Labels {
        Labels {
            wire: "vf0".into(),
            host: "gpu-1".into(),
            virtual_function: "vf0".into(),
            configuration_hash: "1".into(),
        }
    }

    fn at(second: u64) -> Moment {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(second);
        Moment {
            now,
            now_ps: second * 1_000_000_000_000,
            was_down: false,
            given_up: 0,
        }
    }

    fn reporter() -> Reporter {
        Reporter::new(labels(), &PortState::default(), at(10).now)
    }

    fn shaped() -> WindowCounts {
        let to_ps = 14_500_000_000_000;
        WindowCounts {
            rate_bps: 1_000_000_000,
            to_ps,
            sent_line_bytes: 10,
            ..Default::default()
        }
    }

    fn causes(window: &WireWindow) -> Vec<InvalidCause> {
        window.invalid().collect()
    }

    #[test]
    fn a_window_ends_when_the_poll_loop_closed_it() {
        let mut reporter = reporter();
        let window = reporter.window(&shaped(), &PortState::default(), at(15));
        let seconds = |stamp: Option<prost_types::Timestamp>| {
            let stamp = stamp.unwrap();
            (stamp.seconds, stamp.nanos)
        };
        assert_eq!(seconds(window.from), (10, 0));
        assert_eq!(seconds(window.to), (14, 500_000_000));
        assert_eq!(window.sent_bits, 80);
        assert!(window.invalid.is_empty(), "{window:?}");
    }

    #[test]
    fn each_cause_makes_a_window_invalid() {
        let mut reporter = reporter();
        let port = PortState {
            imissed: 3,
            rx_nombuf: 4,
            ..PortState::default()
        };
        let window = reporter.window(&shaped(), &port, at(15));
        assert_eq!((window.imissed, window.rx_nombuf), (3, 4));
        assert_eq!(causes(&window), [InvalidCause::PortDropped]);
        // Counters stand still: the next window is valid again.
        assert!(reporter.window(&shaped(), &port, at(16)).invalid.is_empty());

        // Help lost no frame, and still the sender was held back by something else than
        // the wire.
        let helped = PortState {
            back_pressure_help: 1,
            ..port.clone()
        };
        let window = reporter.window(&shaped(), &helped, at(16));
        assert_eq!(causes(&window), [InvalidCause::BackPressureHelp]);
        assert!(
            reporter
                .window(&shaped(), &helped, at(16))
                .invalid
                .is_empty()
        );
        let port = helped;

        let gap = WindowCounts {
            catch_up_exhausted: 1,
            lost_ps: 5,
            ..shaped()
        };
        assert_eq!(
            causes(&reporter.window(&gap, &port, at(17))),
            [InvalidCause::PollGap]
        );
        // A wire that is configured without a rate shows what was asked for.
        let unshaped = WindowCounts { rate_bps: 0, ..gap };
        assert!(reporter.window(&unshaped, &port, at(18)).invalid.is_empty());
        let bypassed = WindowCounts {
            bypass: true,
            ..unshaped.clone()
        };
        let opened = WindowCounts {
            opened: true,
            ..unshaped
        };
        for counts in [bypassed, opened] {
            let window = reporter.window(&counts, &port, at(18));
            assert_eq!(causes(&window), [InvalidCause::NotShaped], "{counts:?}");
        }

        let mut again = shaped();
        again.repeated[2] = Repeated {
            destination_qp: 7,
            frames: 2,
            bytes: 2000,
        };
        let window = reporter.window(&again, &port, at(19));
        assert_eq!(causes(&window), [InvalidCause::Retransmits]);
        assert_eq!(window.repeated_psns[0].destination_qp, 7);

        let silent = reporter.silent(&port, at(25));
        assert_eq!(causes(&silent), [InvalidCause::DataPathDown]);
        let mut seen = InvalidWindows::default();
        (0..100).for_each(|_| seen.see(&silent));
        assert_eq!(seen.list().len(), MAX_INVALID);
    }
}
