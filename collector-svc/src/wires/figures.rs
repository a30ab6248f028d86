//! Gauges of every wire that reports to this collector.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;
use rdmesh_store::ingest::{Content, Item};

/// A wire that has said nothing for longer has no figures: a flat line would look like
/// a wire at work. Longer than the longest window of a shaper.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(150);

/// What a wire's last window said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Figures {
    at: Instant,
    rate_bps: u64,
    sent_bps: u64,
    queue_p99: u64,
    is_valid: bool,
}

/// One gauge.
struct Gauge {
    name: &'static str,
    unit: &'static str,
    about: &'static str,
    value: fn(&Figures) -> u64,
}

const GAUGES: [Gauge; 4] = [
    Gauge {
        name: "rdmesh.collector.wire.rate",
        unit: "bit/s",
        about: "Line rate of a wire as its last window says; 0: not shaped",
        value: |figures| figures.rate_bps,
    },
    Gauge {
        name: "rdmesh.collector.wire.sent",
        unit: "bit/s",
        about: "Mean rate sent in a wire's last window, frame overhead included",
        value: |figures| figures.sent_bps,
    },
    Gauge {
        name: "rdmesh.collector.wire.queue.p99",
        unit: "{frame}",
        about: "Frames that waited in a wire's last window, 99th percentile",
        value: |figures| figures.queue_p99,
    },
    Gauge {
        name: "rdmesh.collector.wire.valid",
        unit: "1",
        about: "1 where a wire's last window shows the wire that was asked for",
        value: |figures| u64::from(figures.is_valid),
    },
];

/// Key: the shaper's host and the wire. The function goes along.
type Latest = BTreeMap<(String, String), (String, Figures)>;

/// The last figures of each wire. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct WireFigures {
    latest: Arc<Mutex<Latest>>,
}

impl WireFigures {
    /// Figures that `meter` exports.
    #[must_use]
    pub fn registered(meter: &Meter) -> Self {
        let figures = Self::default();
        for Gauge {
            name,
            unit,
            about,
            value,
        } in GAUGES
        {
            let seen = figures.clone();
            meter
                .u64_observable_gauge(name)
                .with_unit(unit)
                .with_description(about)
                .with_callback(move |observer| {
                    seen.each(Instant::now(), |labels, figures| {
                        observer.observe(value(figures), labels);
                    });
                })
                .build();
        }
        figures
    }

    /// Notes what committed items say of wires.
    pub(crate) fn committed(&self, items: &[&Item]) {
        self.note(items, Instant::now());
    }

    fn note<I: Borrow<Item>>(&self, items: &[I], at: Instant) {
        let items = items.iter().map(Borrow::borrow);
        let windows = items.filter_map(|item: &Item| match &item.content {
            Content::WireWindow(window) => Some((&item.run.host, window)),
            _ => None,
        });
        let mut windows = windows.peekable();
        if windows.peek().is_none() {
            return;
        }
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        for (host, window) in windows {
            let unsigned = |value: i64| u64::try_from(value).unwrap_or(0);
            let nanos = (window.to_at - window.from_at).whole_nanoseconds();
            let bits = i128::from(window.sent_bits) * 1_000_000_000;
            let sent_bps = bits.checked_div(nanos).unwrap_or(0);
            let figures = Figures {
                at,
                rate_bps: unsigned(window.rate_bps),
                sent_bps: u64::try_from(sent_bps).unwrap_or(0),
                queue_p99: unsigned(window.queue_frames_p99),
                is_valid: window.invalid.is_empty(),
            };
            latest.insert(
                (host.clone(), window.wire.clone()),
                (window.virtual_function.clone(), figures),
            );
        }
        latest.retain(|_, (_, figures)| at - figures.at <= FORGOTTEN_AFTER);
    }

    fn each(&self, now: Instant, mut tell: impl FnMut(&[KeyValue], &Figures)) {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        for ((host, wire), (function, figures)) in latest.iter() {
            if now.duration_since(figures.at) <= FORGOTTEN_AFTER {
                let labels = [
                    KeyValue::new("host", host.clone()),
                    KeyValue::new("wire", wire.clone()),
                    KeyValue::new("virtual_function", function.clone()),
                ];
                tell(&labels, figures);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost_types::Timestamp;
    use rdmesh_proto::shaper::v1::WireWindow;
    use rdmesh_store::ingest::RunKey;
    use time::OffsetDateTime;
    use uuid::Uuid;

    fn window(wire: &str, invalid: Vec<i32>) -> Item {
        let stamp = |seconds| Some(Timestamp { seconds, nanos: 0 });
        let sent = WireWindow {
            wire: wire.into(),
            host: "gpu-1".into(),
            virtual_function: "vf0".into(),
            from: stamp(100),
            to: stamp(105),
            rate_bps: 10,
            sent_bits: 35,
            queue_frames_p99: 7,
            invalid,
            ..WireWindow::default()
        };
        let stored = crate::ingest::windows::rows(&sent, None, &[]).unwrap();
        Item {
            run: Arc::new(RunKey {
                host: "dpu-1".into(),
                agent: 2,
                run_id: Uuid::nil(),
            }),
            sequence: 1,
            received_at: OffsetDateTime::UNIX_EPOCH,
            clock: None,
            content: Content::WireWindow(Box::new(stored)),
        }
    }

    fn told(figures: &WireFigures, now: Instant) -> Vec<String> {
        let mut lines = Vec::new();
        figures.each(now, |labels, figures| {
            let labels: Vec<_> = labels.iter().map(|l| l.value.to_string()).collect();
            let values = GAUGES.map(|gauge| (gauge.value)(figures).to_string());
            lines.push(format!("{} {}", labels.join(","), values.join(" ")));
        });
        lines
    }

    #[test]
    fn each_wire_has_its_last_figures_until_it_is_silent() {
        let (figures, start) = (WireFigures::default(), Instant::now());
        figures.note(&[window("w0", vec![]), window("w1", vec![1])], start);
        assert_eq!(
            told(&figures, start),
            ["dpu-1,w0,vf0 10 7 7 1", "dpu-1,w1,vf0 10 7 7 0"]
        );
        let later = start + FORGOTTEN_AFTER + Duration::from_secs(1);
        figures.note(&[window("w0", vec![5])], later);
        assert_eq!(told(&figures, later), ["dpu-1,w0,vf0 10 7 7 0"]);
        assert!(told(&figures, later + FORGOTTEN_AFTER * 2).is_empty());
    }
}
