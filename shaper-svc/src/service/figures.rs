//! What the shaper says about itself to an exporter of metrics. Without one nothing
//! here runs but additions, one a wire and window.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;
use rdmesh_proto::shaper::v1::{InvalidCause, WireWindow};

/// Causes that a window can have, the unspecified one included.
const CAUSES: usize = 7;

/// Shared between the service and the exporter's thread.
#[derive(Clone, Debug, Default)]
pub struct Figures(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    wires: Vec<Wire>,
    is_down: bool,
    has_state_fault: bool,
    given_up: u64,
}

/// The last window of a wire, and sums since the start.
#[derive(Debug, Default)]
struct Wire {
    last: WireWindow,
    sent_bits: u64,
    sent_frames: u64,
    not_accepted: u64,
    imissed: u64,
    rx_nombuf: u64,
    ce_marks: u64,
    repeated_frames: u64,
    lost_ns: u64,
    windows: u64,
    invalid: [u64; CAUSES],
}

/// What is told to an observer: a value, and what it is of.
type Tell<'a> = &'a mut dyn FnMut(u64, &[KeyValue]);

/// How a figure moves.
#[derive(Clone, Copy, Debug)]
enum Moves {
    /// Up alone.
    Up,
    /// Both ways.
    Freely,
}

struct Instrument {
    name: &'static str,
    unit: &'static str,
    about: &'static str,
    moves: Moves,
    tell: fn(&State, Tell<'_>),
}

/// Every figure: names and units by the conventions of OpenTelemetry (units in UCUM).
const INSTRUMENTS: [Instrument; 14] = [
    Instrument {
        name: "rdmesh.shaper.wire.rate",
        unit: "bit/s",
        about: "Line rate asked of the wire; 0: not shaped",
        moves: Moves::Freely,
        tell: |state, tell| each(state, tell, |wire| wire.last.rate_bps),
    },
    Instrument {
        name: "rdmesh.shaper.wire.sent",
        unit: "bit",
        about: "What sent frames occupied on the wire, overhead included",
        moves: Moves::Up,
        tell: |state, tell| each(state, tell, |wire| wire.sent_bits),
    },
    Instrument {
        name: "rdmesh.shaper.wire.frames",
        unit: "{frame}",
        about: "Frames sent",
        moves: Moves::Up,
        tell: |state, tell| each(state, tell, |wire| wire.sent_frames),
    },
    Instrument {
        name: "rdmesh.shaper.wire.queue",
        unit: "{frame}",
        about: "Frames that waited in the last window",
        moves: Moves::Freely,
        tell: tell_queue,
    },
    Instrument {
        name: "rdmesh.shaper.wire.dropped",
        unit: "{frame}",
        about: "Frames that the port dropped before the shaper saw them, by counter",
        moves: Moves::Up,
        tell: |state, tell| {
            for wire in &state.wires {
                tell(
                    wire.imissed,
                    &[wire.name(), KeyValue::new("counter", "imissed")],
                );
                let counter = KeyValue::new("counter", "rx_nombuf");
                tell(wire.rx_nombuf, &[wire.name(), counter]);
            }
        },
    },
    Instrument {
        name: "rdmesh.shaper.wire.not_accepted",
        unit: "{frame}",
        about: "Frames offered to the port and not taken; they stayed",
        moves: Moves::Up,
        tell: |state, tell| each(state, tell, |wire| wire.not_accepted),
    },
    Instrument {
        name: "rdmesh.shaper.wire.ce_marks",
        unit: "{frame}",
        about: "Frames marked as having met congestion",
        moves: Moves::Up,
        tell: |state, tell| each(state, tell, |wire| wire.ce_marks),
    },
    Instrument {
        name: "rdmesh.shaper.wire.repeated",
        unit: "{frame}",
        about: "Frames with a PSN that had been sent before",
        moves: Moves::Up,
        tell: |state, tell| each(state, tell, |wire| wire.repeated_frames),
    },
    Instrument {
        name: "rdmesh.shaper.wire.lost_time",
        unit: "ns",
        about: "Wire time lost to polls that came later than the catch-up forgives",
        moves: Moves::Up,
        tell: |state, tell| each(state, tell, |wire| wire.lost_ns),
    },
    Instrument {
        name: "rdmesh.shaper.poll.gap",
        unit: "ns",
        about: "Longest time between two polls of the wire in the last window",
        moves: Moves::Freely,
        tell: |state, tell| each(state, tell, |wire| wire.last.longest_poll_gap_ns),
    },
    Instrument {
        name: "rdmesh.shaper.windows",
        unit: "{window}",
        about: "Windows made, by state: of all, and of the invalid ones by cause",
        moves: Moves::Up,
        tell: tell_windows,
    },
    Instrument {
        name: "rdmesh.shaper.windows.given_up",
        unit: "{window}",
        about: "Windows that fell out of memory while the collector was away",
        moves: Moves::Up,
        tell: |state, tell| tell(state.given_up, &[]),
    },
    Instrument {
        name: "rdmesh.shaper.data_path.up",
        unit: "1",
        about: "1 while the data path shapes",
        moves: Moves::Freely,
        tell: |state, tell| tell(u64::from(!state.is_down), &[]),
    },
    Instrument {
        name: "rdmesh.shaper.state.kept",
        unit: "1",
        about: "0 while rates of before are lost, or are not kept over a restart",
        moves: Moves::Freely,
        tell: |state, tell| tell(u64::from(!state.has_state_fault), &[]),
    },
];

fn each(state: &State, tell: Tell<'_>, value: fn(&Wire) -> u64) {
    for wire in &state.wires {
        tell(value(wire), &[wire.name()]);
    }
}

fn tell_queue(state: &State, tell: Tell<'_>) {
    for wire in &state.wires {
        let last = &wire.last;
        for (statistic, frames) in [
            ("now", last.queue_frames_now),
            ("p50", last.queue_frames_p50),
            ("p99", last.queue_frames_p99),
            ("max", last.queue_frames_max),
        ] {
            tell(
                frames,
                &[wire.name(), KeyValue::new("statistic", statistic)],
            );
        }
    }
}

fn tell_windows(state: &State, tell: Tell<'_>) {
    for wire in &state.wires {
        tell(wire.windows, &[wire.name(), KeyValue::new("state", "any")]);
        for (cause, &count) in wire.invalid.iter().enumerate() {
            if count > 0 {
                tell(
                    count,
                    &[wire.name(), KeyValue::new("state", cause_name(cause))],
                );
            }
        }
    }
}

/// `poll_gap` of `INVALID_CAUSE_POLL_GAP`.
fn cause_name(cause: usize) -> String {
    let cause = i32::try_from(cause).ok();
    let cause = cause.and_then(|cause| InvalidCause::try_from(cause).ok());
    let name = cause.unwrap_or_default().as_str_name();
    let name = name.strip_prefix("INVALID_CAUSE_").unwrap_or(name);
    name.to_ascii_lowercase()
}

impl Wire {
    fn name(&self) -> KeyValue {
        KeyValue::new("wire", self.last.wire.clone())
    }

    fn see(&mut self, window: &WireWindow) {
        self.sent_bits += window.sent_bits;
        self.sent_frames += window.sent_frames;
        self.not_accepted += window.tx_not_accepted;
        self.imissed += window.imissed;
        self.rx_nombuf += window.rx_nombuf;
        self.ce_marks += window.ce_marks;
        self.repeated_frames += window.repeated_psns.iter().map(|q| q.frames).sum::<u64>();
        self.lost_ns += window.lost_ps / 1000;
        self.windows += 1;
        for cause in &window.invalid {
            let place = usize::try_from(*cause).unwrap_or(0);
            if let Some(count) = self.invalid.get_mut(place) {
                *count += 1;
            }
        }
        self.last = window.clone();
    }
}

impl Figures {
    /// Takes a window of wire `wire`.
    pub fn see(&self, wire: usize, window: &WireWindow) {
        let mut state = self.lock();
        if state.wires.len() <= wire {
            state.wires.resize_with(wire + 1, Wire::default);
        }
        state.wires[wire].see(window);
        state.given_up = window.windows_given_up;
    }

    /// The data path went down, or runs again.
    pub fn set_down(&self, is_down: bool) {
        self.lock().is_down = is_down;
    }

    /// Something is wrong with the state directory, or nothing is any more.
    pub fn set_state_fault(&self, has_fault: bool) {
        self.lock().has_state_fault = has_fault;
    }

    /// Tells all figures to an exporter.
    pub fn register(&self, meter: &Meter) {
        for instrument in &INSTRUMENTS {
            let figures = self.clone();
            let tell = instrument.tell;
            match instrument.moves {
                Moves::Up => {
                    meter
                        .u64_observable_counter(instrument.name)
                        .with_unit(instrument.unit)
                        .with_description(instrument.about)
                        .with_callback(move |observer| {
                            tell(&figures.lock(), &mut |value, of| {
                                observer.observe(value, of)
                            });
                        })
                        .build();
                }
                Moves::Freely => {
                    meter
                        .u64_observable_gauge(instrument.name)
                        .with_unit(instrument.unit)
                        .with_description(instrument.about)
                        .with_callback(move |observer| {
                            tell(&figures.lock(), &mut |value, of| {
                                observer.observe(value, of)
                            });
                        })
                        .build();
                }
            }
        }
    }

    /// A panic elsewhere leaves sums as they were: nothing here can be half done.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(figures: &Figures) -> Vec<String> {
        let mut lines = Vec::new();
        for instrument in &INSTRUMENTS {
            (instrument.tell)(&figures.lock(), &mut |value, of| {
                let of: Vec<String> = of
                    .iter()
                    .map(|of| format!("{}={}", of.key, of.value))
                    .collect();
                lines.push(format!("{}{{{}}} {value}", instrument.name, of.join(",")));
            });
        }
        lines
    }

    #[test]
    fn sums_and_the_last_window_are_told_by_wire() {
        let figures = Figures::default();
        assert_eq!(told(&figures).len(), 3, "no wire has reported");
        let window = WireWindow {
            wire: "vf0".to_owned(),
            rate_bps: 25,
            sent_bits: 1000,
            sent_frames: 2,
            queue_frames_p99: 7,
            imissed: 3,
            ce_marks: 4,
            longest_poll_gap_ns: 9,
            invalid: vec![
                InvalidCause::PortDropped.into(),
                InvalidCause::BackPressureHelp.into(),
            ],
            ..WireWindow::default()
        };
        figures.see(0, &window);
        let valid = WireWindow {
            rate_bps: 10,
            invalid: Vec::new(),
            windows_given_up: 5,
            ..window
        };
        figures.see(0, &valid);
        figures.set_down(true);
        figures.set_state_fault(true);
        let told = told(&figures);
        for line in [
            "rdmesh.shaper.wire.rate{wire=vf0} 10",
            "rdmesh.shaper.wire.sent{wire=vf0} 2000",
            "rdmesh.shaper.wire.frames{wire=vf0} 4",
            "rdmesh.shaper.wire.queue{wire=vf0,statistic=p99} 7",
            "rdmesh.shaper.wire.dropped{wire=vf0,counter=imissed} 6",
            "rdmesh.shaper.wire.ce_marks{wire=vf0} 8",
            "rdmesh.shaper.poll.gap{wire=vf0} 9",
            "rdmesh.shaper.windows{wire=vf0,state=any} 2",
            "rdmesh.shaper.windows{wire=vf0,state=port_dropped} 1",
            "rdmesh.shaper.windows{wire=vf0,state=back_pressure_help} 1",
            "rdmesh.shaper.windows.given_up{} 5",
            "rdmesh.shaper.data_path.up{} 0",
            "rdmesh.shaper.state.kept{} 0",
        ] {
            assert!(told.iter().any(|told| told == line), "{line} in {told:#?}");
        }
    }

    #[test]
    fn every_cause_has_a_place() {
        let names: Vec<String> = (0..CAUSES).map(cause_name).collect();
        assert_eq!(names.last().map(String::as_str), Some("not_shaped"));
        let beyond = i32::try_from(CAUSES).ok();
        assert!(beyond.is_some_and(|beyond| InvalidCause::try_from(beyond).is_err()));
    }
}
