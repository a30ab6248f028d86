//! A collector that is away: what is kept, for how long, and how the gap is told.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, SystemTime};

use rdmesh_proto::shaper::v1::WireWindow;
use rdmesh_services::uplink::{Uplink, UplinkHandle};
use rdmesh_shaper::config::ShaperConfig;
use rdmesh_shaper::datapath::{GAP_BUCKETS, REPEATED_QPS, Repeated, WindowCounts};
use rdmesh_shaper::engine::MAX_WIRES;
use rdmesh_shaper::service::handle::PortState;
use rdmesh_shaper::service::windows::{Labels, Moment, Reporter};

/// Sixteen wires on a clock of their own.
struct Wires {
    reporters: Vec<Reporter>,
    now: SystemTime,
    window: Duration,
}

/// As large as windows get: every line and every bucket is in use.
fn counts() -> WindowCounts {
    let large = 1_u64 << 40;
    WindowCounts {
        rate_bps: 25_000_000_000,
        sent_frames: large,
        sent_line_bytes: large << 10,
        queue_frames_now: large,
        queue_frames_max: large,
        waited_max_ps: large << 10,
        tx_not_accepted: large,
        repeated: std::array::from_fn(|_| Repeated {
            destination_qp: (1 << 24) - 1,
            frames: large,
            bytes: large << 10,
        }),
        poll_gaps: [1 << 20; GAP_BUCKETS],
        ..WindowCounts::default()
    }
}

impl Wires {
    fn new(config: &ShaperConfig) -> Self {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let labels = |wire: usize| Labels {
            wire: format!("a-wire-with-quite-a-long-name-{wire}"),
            host: "gpu-host-0123.rack-17.example.net".to_owned(),
            virtual_function: format!("0000:03:00.{wire}"),
            configuration_hash: "0123456789abcdef".to_owned(),
        };
        let reporter = |wire| Reporter::new(labels(wire), &PortState::default(), now);
        Self {
            reporters: (0..MAX_WIRES).map(reporter).collect(),
            now,
            window: config.window(),
        }
    }

    /// Lets an interval pass; the window of the last wire.
    fn report(&mut self, uplink: &UplinkHandle) -> WireWindow {
        self.now += self.window;
        let mut last = WireWindow::default();
        for reporter in &mut self.reporters {
            let at = Moment {
                now: self.now,
                now_ps: 0,
                was_down: false,
                given_up: uplink.status().items_given_up,
            };
            last = reporter.window(&counts(), &PortState::default(), at);
            assert_eq!(last.repeated_psns.len(), REPEATED_QPS);
            uplink.push(last.clone()).unwrap();
        }
        last
    }
}

#[tokio::test]
async fn an_hour_is_kept_and_what_goes_beyond_the_bound_is_marked() {
    let mut config = ShaperConfig::default();
    config.uplink.collector = "127.0.0.1:1".parse().unwrap();
    let uplink = Uplink::start(&config.uplink, Default::default);
    let handle = uplink.handle();
    let mut wires = Wires::new(&config);

    let an_hour = 3600 / config.window().as_secs();
    for _ in 0..an_hour {
        let window = wires.report(&handle);
        assert_eq!(window.windows_given_up, 0, "an hour is kept whole");
        // It tries to connect meanwhile.
        tokio::task::yield_now().await;
    }
    let kept = usize::try_from(an_hour).unwrap() * MAX_WIRES;
    assert_eq!(handle.status().queued_items, kept);
    assert!(handle.status().connected_since.is_none());

    // Two hours more: memory stays where it is bounded, and each window says how many
    // of those before it will never come.
    for _ in 0..2 * an_hour {
        wires.report(&handle);
    }
    let status = handle.status();
    let made = 3 * kept as u64;
    assert!(status.queued_bytes as u64 <= config.uplink.memory_bytes);
    assert!(status.queued_items <= config.uplink.memory_items as usize);
    assert_eq!(status.items_given_up + status.queued_items as u64, made);
    let before = status.items_given_up;
    let window = wires.report(&handle);
    assert!(window.windows_given_up > before, "{window:?}");
    assert!(window.windows_given_up <= handle.status().items_given_up);
}
