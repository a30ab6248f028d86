//! The safe layer over DPDK, on devices that need no hardware. One process can start
//! DPDK once, so one test holds all of it.
#![allow(clippy::unwrap_used)]
#![cfg(feature = "dpdk")]

use std::sync::Arc;

use rdmesh_shaper::datapath::{Clock, PoolPlan};
use rdmesh_shaper::dpdk::{
    Device, DeviceOptions, DpdkError, DpdkPort, Eal, EalOptions, HardwareBypass, HeldMbuf, Pool,
    TscClock, WorkerThread,
};
use rdmesh_shaper::port::{BURST, Port};

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
    let pool = Pool::new(&eal, "frames", PoolPlan::for_wire(1024, 2048, 1024, 2048)).unwrap();
    let all = pool.free_mbufs();
    let _worker = WorkerThread::register(&eal).unwrap();
    frames_cross_a_ring(&eal, &pool);
    a_receive_burst_keeps_count(&eal, &pool);
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

    let huge = PoolPlan::for_wire(32_768, 262_144, 4096, 2048);
    assert!(huge.memory_bytes() > 700 << 20, "{}", huge.memory_bytes());
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
