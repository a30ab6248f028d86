//! The safe layer over DPDK, on devices that need no hardware. One process can start
//! DPDK once, so one test holds all of it.
#![allow(clippy::unwrap_used)]
#![cfg(feature = "dpdk")]

use std::sync::Arc;
use std::time::Duration;

use rdmesh_shaper::classify::{Classifier, Kind};
use rdmesh_shaper::datapath::{
    Clock, DataPath, ManualClock, Marking, Pacing, PoolPlan, RouteConfig,
};
use rdmesh_shaper::dpdk::{
    Device, DeviceOptions, DpdkError, DpdkPort, Eal, EalOptions, HardwareBypass, HeldMbuf, Pool,
    TscClock, WorkerThread,
};
use rdmesh_shaper::engine::{Speed, WireConfig, line_bytes};
use rdmesh_shaper::port::{BURST, Port};
use rdmesh_shaper::rate::LineRate;

const OPTIONS: DeviceOptions = DeviceOptions {
    rx_descriptors: 1024,
    tx_descriptors: 1024,
    mtu: 1500,
    rx_low_percent: 0,
};

fn eal(memory_mb: u64) -> Arc<Eal> {
    Eal::start(&EalOptions {
        huge_pages: false,
        memory_mb,
        pci_devices: Vec::new(),
        file_prefix: format!("rdmesh-test-{}", std::process::id()),
    })
    .expect("DPDK starts without huge pages")
}

fn device(eal: &Arc<Eal>, name: &str, pool: &Arc<Pool>) -> Arc<Device> {
    Device::start(eal, name, OPTIONS, pool).expect(name)
}

#[test]
fn ports_are_found_used_and_given_back() {
    let eal = eal(128);
    assert!(matches!(
        Eal::start(&options_again()),
        Err(DpdkError::StartedBefore)
    ));

    refuses_what_is_not_there(&eal);
    let plan = PoolPlan::for_wire(1024, 2048, 1024, 2048, 1522);
    let pool = Pool::new(&eal, "frames", plan).unwrap();
    let all = pool.free_mbufs();
    let _worker = WorkerThread::register(&eal).unwrap();
    frames_cross_a_ring(&eal, &pool);
    a_receive_burst_keeps_count(&eal, &pool);
    segments_do_not_matter(&eal, &pool);
    let clock = TscClock::new(&eal);
    let first = clock.now_ps();
    assert!(clock.now_ps() >= first);
    drop(_worker);
    assert_eq!(pool.free_mbufs(), all, "every frame came back to its pool");
}

fn options_again() -> EalOptions {
    EalOptions {
        huge_pages: false,
        memory_mb: 64,
        pci_devices: Vec::new(),
        file_prefix: "rdmesh-test-again".to_owned(),
    }
}

fn refuses_what_is_not_there(eal: &Arc<Eal>) {
    let error = eal.probe("net_af_packet7,iface=nosuchveth").unwrap_err();
    assert!(matches!(&error, DpdkError::Probe { device, .. } if device.contains("nosuchveth")));
    let error = eal.probe("net_no_such_driver0").unwrap_err();
    assert!(error.to_string().contains("net_no_such_driver0"), "{error}");

    let huge = PoolPlan::for_wire(32_768, 262_144, 4096, 2048, 1522);
    assert!(huge.memory_bytes(4096) > 700 << 20, "{huge:?}");
    let error = Pool::new(eal, "too-large", huge).unwrap_err();
    assert!(matches!(error, DpdkError::PoolMemory { .. }), "{error}");
    assert!(error.to_string().contains("queue_frames"), "{error}");

    let pool = Pool::new(
        eal,
        "small",
        PoolPlan {
            mbufs: 64,
            buffer_bytes: 2048,
        },
    )
    .unwrap();
    let error = Device::start(eal, "net_null9", OPTIONS, &pool).unwrap_err();
    assert!(matches!(error, DpdkError::NoPort { .. }), "{error}");

    eal.probe("net_null8").unwrap();
    let watched = DeviceOptions {
        rx_low_percent: 30,
        ..OPTIONS
    };
    let error = Device::start(eal, "net_null8", watched, &pool).unwrap_err();
    assert!(error.to_string().contains("rx_low_percent"), "{error}");
}

/// Tokens, first bytes and lengths of a burst.
fn receive(port: &mut DpdkPort) -> Vec<(HeldMbuf, Vec<u8>, u32)> {
    let mut received = Vec::new();
    let read = |head: &[u8], bytes| (head.to_vec(), bytes);
    port.receive(BURST, read, |token, (head, bytes)| {
        received.push((token, head, bytes))
    });
    received
}

fn frames_cross_a_ring(eal: &Arc<Eal>, pool: &Arc<Pool>) {
    // A ring device gives back what it is sent.
    eal.probe("net_ring0").unwrap();
    let ring = device(eal, "net_ring0", pool);
    let mut port = ring.port().unwrap();
    assert!(matches!(ring.port(), Err(DpdkError::PortInUse { .. })));

    let long: Vec<u8> = (0..9000_u32)
        .map(|i| u8::try_from(i % 251).unwrap())
        .collect();
    let mut frames = [
        port.frame_from(&[1; 60], 2048).unwrap(),
        port.frame_from(&long, 2048).unwrap(),
        // Headers in five segments.
        port.frame_from(&long[..200], 40).unwrap(),
    ];
    assert_eq!(port.transmit(&mut frames), 3);
    assert_eq!(
        port.transmit(&mut frames),
        0,
        "frames that were sent are no longer ours"
    );
    assert_eq!(port.discard(&mut frames), 0);

    let mut received = receive(&mut port);
    let lengths: Vec<u32> = received.iter().map(|(_, _, bytes)| *bytes).collect();
    assert_eq!(lengths, [60, 9000, 200]);
    assert_eq!(received[0].1, [1; 60]);
    let head = &received[1].1;
    assert!(head.len() >= 128 && long.starts_with(head));
    assert_eq!(received[2].1, &long[..128], "gathered from short segments");

    let mut copy = vec![0; 9000];
    assert_eq!(port.read(&received[1].0, &mut copy), 9000);
    assert_eq!(copy, long);
    let mut tokens: Vec<HeldMbuf> = received.drain(..).map(|(token, _, _)| token).collect();
    assert_eq!(port.transmit(&mut [HeldMbuf::default()]), 0, "no frame");
    assert_eq!(port.transmit(&mut tokens[1..2]), 1);
    assert_eq!(
        port.read(&tokens[1], &mut copy),
        0,
        "a sent frame is no longer ours"
    );
    assert_eq!(port.discard(&mut tokens), 2, "the other two");
    assert_eq!(port.discard(&mut tokens), 0);
    let mut again = receive(&mut port);
    assert_eq!(again.len(), 1);
    assert_eq!(port.discard(&mut [std::mem::take(&mut again[0].0)]), 1);

    let error = HardwareBypass::new(&ring, &ring).unwrap_err();
    assert!(error.to_string().contains("in software"), "{error}");
    assert!(ring.counters().unwrap().tx_frames >= 4);
}

fn a_receive_burst_keeps_count(eal: &Arc<Eal>, pool: &Arc<Pool>) {
    eal.probe("net_null0,size=64").unwrap();
    let null = device(eal, "net_null0", pool);
    let mut port = null.port().unwrap();
    let mut sent = 0;
    while sent < 10_000 {
        let mut frames = Vec::with_capacity(BURST);
        let received = port.receive(BURST, |_, _| (), |frame, ()| frames.push(frame));
        assert_eq!((received, frames.len()), (BURST, BURST));
        sent += port.transmit(&mut frames);
    }
    assert_eq!(
        null.counters().unwrap().tx_frames,
        u64::try_from(sent).unwrap()
    );
    drop(port);
    assert!(null.port().is_ok(), "a port given back can be taken again");
}

/// RoCEv2 to one QP, ECT(0), with every byte of its payload in its place.
fn roce(len: u16) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
    frame[12..16].copy_from_slice(&[0x08, 0x00, 0x45, 0x02]);
    frame[16..18].copy_from_slice(&(len - 14).to_be_bytes());
    frame[18..26].copy_from_slice(&[0, 0, 0x40, 0, 64, 17, 0, 0]);
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    let checksum = !header_sum(&frame);
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    frame[36..38].copy_from_slice(&4791_u16.to_be_bytes());
    frame[42] = 0x04;
    frame[46..50].copy_from_slice(&99_u32.to_be_bytes());
    frame
}

/// The sum over the IPv4 header, all ones where its checksum is right (RFC 1071).
fn header_sum(frame: &[u8]) -> u16 {
    let words = frame[14..34].chunks(2);
    let sum: u32 = words
        .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
        .sum();
    u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap()
}

/// Lengths of frames, and of the segments in which they lie: as a card cuts long ones, and
/// as nobody does, through every header.
const CUT: [(u16, u16); 5] = [(9000, 2048), (1082, 64), (300, 34), (150, 13), (60, 60)];

/// What waits is charged with its whole length, keyed by its headers, marked where they
/// lie in one piece, and leaves with every byte, however it is cut.
fn segments_do_not_matter(eal: &Arc<Eal>, pool: &Arc<Pool>) {
    const BIT_PS: u64 = 1000;
    let mut ports: Vec<DpdkPort> = Vec::new();
    for name in ["net_ring1", "net_ring2"] {
        eal.probe(name).unwrap();
        ports.push(device(eal, name, pool).port().unwrap());
    }
    let made = CUT.map(|(len, segment)| ports[0].frame_from(&roce(len), segment).unwrap());
    let mut frames = Vec::from(made);
    assert_eq!(ports[0].transmit(&mut frames), CUT.len());
    frames.clear();
    let classifier = Classifier::new(1);
    let whole = classifier.classify(&roce(1082));
    assert!(matches!(whole.kind, Kind::Roce(bth) if bth.destination_qp == 99));
    let read = |head: &[u8], bytes: u32| (classifier.classify(head), bytes);
    let mut lengths = Vec::new();
    ports[0].receive(BURST, read, |frame, (verdict, bytes)| {
        assert_eq!(verdict, whole, "{bytes} bytes");
        lengths.push(u16::try_from(bytes).unwrap());
        frames.push(frame);
    });
    assert_eq!(lengths, CUT.map(|(len, _)| len));
    assert_eq!(ports[0].transmit(&mut frames), CUT.len());

    let route = RouteConfig {
        in_port: 0,
        out_port: 1,
        wire: WireConfig {
            queue_frames: 64,
            ..WireConfig::new(Speed::Rate(LineRate::new(1_000_000_000).unwrap()), 9000)
        },
        marking: Some(Marking {
            kmin_bytes: 0,
            kmax_bytes: 1,
            pmax_permille: 1000,
        }),
        bypass: false,
        key_seed: 1,
    };
    let pacing = Pacing {
        window: Duration::from_secs(1),
        yields: false,
        drain: Duration::ZERO,
    };
    let clock = ManualClock::default();
    let routes = [(route, Arc::default())];
    let mut path = DataPath::new(ports, &routes, clock.clone(), pacing).unwrap();
    let mut due_ps = 0;
    for (len, segment) in CUT {
        if due_ps > 0 {
            clock.set_ps(due_ps - 1);
            path.turn();
            assert!(receive(&mut path.ports_mut()[1]).is_empty(), "{len} early");
        }
        clock.set_ps(due_ps);
        path.turn();
        due_ps += line_bytes(len) * 8 * BIT_PS;
        let port = &mut path.ports_mut()[1];
        let mut sent = receive(port);
        assert_eq!(sent.len(), 1, "{len} at its time");
        let mut bytes = vec![0; len.into()];
        assert_eq!(port.read(&sent[0].0, &mut bytes), bytes.len());
        let mut expected = roce(len);
        if segment >= 34 {
            expected[15] = 0x03;
            expected[24..26].copy_from_slice(&bytes[24..26]);
        }
        assert_eq!(bytes, expected, "{len} in segments of {segment}");
        assert_eq!(header_sum(&bytes), 0xffff);
        assert_eq!(port.discard(&mut [std::mem::take(&mut sent[0].0)]), 1);
    }
    assert_eq!(path.queued_frames(), 0);
}
