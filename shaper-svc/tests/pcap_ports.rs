//! The real data path without privileges: captures in and out through net_pcap, with
//! an injected clock.
#![allow(clippy::unwrap_used)]
#![cfg(feature = "dpdk")]

use std::fs::{self, File};
use std::sync::Arc;
use std::time::Duration;

use rdmesh_shaper::capture::{Reader, Record, Writer};
use rdmesh_shaper::datapath::{DataPath, ManualClock, Pacing, PoolPlan, RouteConfig, WireLink};
use rdmesh_shaper::dpdk::{Device, DeviceOptions, Eal, EalOptions, Pool, WorkerThread};
use rdmesh_shaper::engine::{Speed, WireConfig, line_bytes};
use rdmesh_shaper::port::Port;
use rdmesh_shaper::rate::LineRate;

const FRAMES: u16 = 2000;
const RATE_BPS: u64 = 1_000_000_000;

/// A frame with its number in its last bytes, and sizes from the shortest to the
/// longest.
fn frame(number: u16) -> Vec<u8> {
    let len = 60 + usize::from(number) * 131 % 1455;
    let mut bytes = vec![0x5a; len];
    bytes[12..14].copy_from_slice(&[0x88, 0xb5]);
    bytes[len - 2..].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn capture(frames: u16) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new()).unwrap();
    for number in 0..frames {
        let bytes = frame(number);
        let wire_len = u32::try_from(bytes.len()).unwrap();
        writer
            .write(&Record {
                at_ps: 0,
                wire_len,
                bytes,
            })
            .unwrap();
    }
    writer.finish().unwrap()
}

#[test]
fn captured_frames_leave_in_order_at_the_pace_of_the_wire() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    fs::write(path("in.pcap"), capture(FRAMES)).unwrap();
    // The port that is fed receives nothing; an empty input must have a header.
    fs::write(path("none.pcap"), capture(0)).unwrap();

    let eal = Eal::start(&EalOptions {
        huge_pages: false,
        memory_mb: 128,
        pci_devices: Vec::new(),
        file_prefix: format!("rdmesh-pcap-{}", std::process::id()),
    })
    .unwrap();
    let _worker = WorkerThread::register(&eal).unwrap();
    let rx = format!(
        "net_pcap0,rx_pcap={},tx_pcap={}",
        path("in.pcap"),
        path("unused.pcap")
    );
    let tx = format!(
        "net_pcap1,rx_pcap={},tx_pcap={}",
        path("none.pcap"),
        path("out.pcap")
    );
    let options = DeviceOptions {
        rx_descriptors: 512,
        tx_descriptors: 512,
        mtu: 1500,
        rx_low_percent: 0,
    };
    let mut ports = Vec::new();
    for (name, device) in [("net_pcap0", rx), ("net_pcap1", tx)] {
        eal.probe(&device).unwrap();
        let pool = Pool::new(&eal, name, PoolPlan::for_wire(512, 4096, 512, 2048, 1522)).unwrap();
        ports.push(
            Device::start(&eal, name, options, &pool)
                .unwrap()
                .port()
                .unwrap(),
        );
    }
    let device = Arc::clone(ports[1].device());

    let clock = ManualClock::default();
    let speed = Speed::Rate(LineRate::new(RATE_BPS).unwrap());
    let wire = WireConfig {
        queue_frames: 4096,
        ..WireConfig::new(speed, 1500)
    };
    let link = Arc::new(WireLink::default());
    let route = RouteConfig {
        in_port: 0,
        out_port: 1,
        wire,
        marking: None,
        bypass: false,
        key_seed: 1,
    };
    let pacing = Pacing {
        window: Duration::from_millis(1),
        yields: false,
        drain: Duration::from_secs(1),
    };
    let routes = [(route, Arc::clone(&link))];
    let mut relay = DataPath::new(ports, &routes, clock.clone(), pacing).unwrap();

    // All arrive at once; each may leave when those before have left the wire.
    let mut free_at_ps = vec![0];
    for number in 0..FRAMES {
        let len = u16::try_from(frame(number).len()).unwrap();
        free_at_ps.push(free_at_ps[usize::from(number)] + line_bytes(len) * 8000);
    }
    let mut sent = 0;
    let mut now_ps = 0;
    while sent < usize::from(FRAMES) {
        clock.set_ps(now_ps);
        relay.turn();
        let before = sent;
        sent = usize::try_from(device.counters().unwrap().tx_frames).unwrap();
        assert!(
            sent == 0 || free_at_ps[sent - 1] <= now_ps,
            "{sent} frames at {now_ps} ps"
        );
        let queued = relay.queued_frames();
        assert!(
            sent > before || queued > 0 || sent == usize::from(FRAMES),
            "frames are missing"
        );
        now_ps += 1_000_000;
        assert!(
            now_ps < 2 * free_at_ps[usize::from(FRAMES)],
            "{sent} frames only"
        );
    }
    assert!(now_ps >= free_at_ps[usize::from(FRAMES) - 1]);
    // A frame arrives with the turn that receives it; the wire is never idle.
    assert!(
        now_ps < free_at_ps[usize::from(FRAMES)] + 2_000_000,
        "the wire stood still"
    );
    let window = link.take_window().unwrap();
    assert!(window.sent_frames > 0 && window.catch_up_exhausted == 0);

    assert_eq!(
        relay.ports_mut()[0].receive(1, |_, _| (), |_, ()| ()),
        0,
        "the capture has been read to its end"
    );
    drop(relay);
    drop(device);
    let mut reader = Reader::new(File::open(path("out.pcap")).unwrap()).unwrap();
    for number in 0..FRAMES {
        let record = reader.next_record().unwrap().unwrap();
        assert!(
            record.bytes == frame(number),
            "frame {number} changed or out of order"
        );
    }
    assert!(reader.next_record().unwrap().is_none());
}
