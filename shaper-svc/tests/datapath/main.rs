//! The data path on ports in memory, in virtual time.
#![allow(clippy::unwrap_used)]

mod windows;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rdmesh_shaper::datapath::{
    Clock, DataPath, DataPathError, ManualClock, Marking, Order, Pacing, RouteConfig, ThreadLink,
    WireLink,
};
use rdmesh_shaper::engine::{Speed, WireConfig};
use rdmesh_shaper::port::memory::{Frames, MemoryPort};
use rdmesh_shaper::rate::LineRate;

const PS_PER_MS: u64 = 1_000_000_000;

const PACING: Pacing = Pacing {
    window: Duration::from_millis(10),
    yields: true,
    drain: Duration::from_secs(1),
};

fn gbit(rate: u64) -> Speed {
    Speed::Rate(LineRate::new(rate * 1_000_000_000).unwrap())
}

fn wire(speed: Speed, queue_frames: u32) -> WireConfig {
    WireConfig {
        queue_frames,
        ..WireConfig::new(speed, 1500)
    }
}

fn route(in_port: usize, out_port: usize, wire: WireConfig) -> (RouteConfig, Arc<WireLink>) {
    (
        RouteConfig {
            in_port,
            out_port,
            wire,
            marking: None,
            bypass: false,
            key_seed: 1,
        },
        Arc::default(),
    )
}

struct Bench {
    path: DataPath<MemoryPort, ManualClock>,
    clock: ManualClock,
    link: Arc<WireLink>,
    frames: Frames,
}

impl Bench {
    fn new(speed: Speed, queue_frames: u32) -> Self {
        Self::marking(speed, queue_frames, None)
    }

    fn marking(speed: Speed, queue_frames: u32, marking: Option<Marking>) -> Self {
        let frames = Frames::default();
        let ports = vec![MemoryPort::new(&frames), MemoryPort::new(&frames)];
        let clock = ManualClock::default();
        let (mut config, link) = route(0, 1, wire(speed, queue_frames));
        config.marking = marking;
        let routes = [(config, Arc::clone(&link))];
        let path = DataPath::new(ports, &routes, clock.clone(), PACING).unwrap();
        Self {
            path,
            clock,
            link,
            frames,
        }
    }

    fn arrive(&mut self, frame: Vec<u8>) {
        self.path.ports_mut()[0].arrive(frame);
    }

    fn sent(&mut self) -> Vec<Vec<u8>> {
        self.path.ports_mut()[1].sent()
    }
}

fn numbered(number: u16, len: usize) -> Vec<u8> {
    let mut frame = vec![0; len];
    frame[len - 2..].copy_from_slice(&number.to_be_bytes());
    frame
}

fn numbers(frames: &[Vec<u8>]) -> Vec<u16> {
    frames
        .iter()
        .map(|f| u16::from_be_bytes([f[f.len() - 2], f[f.len() - 1]]))
        .collect()
}

#[test]
fn frames_leave_in_order_and_never_before_the_wire_could() {
    let mut bench = Bench::new(gbit(10), 1024);
    for number in 0..100 {
        bench.arrive(numbered(number, 1226));
    }
    // 1,226 bytes are 1,000 ns at 10 Gbit/s.
    let mut sent = Vec::new();
    for step in 0..400_u64 {
        bench.clock.set_ps(step * 250_000);
        bench.path.turn();
        sent.extend(bench.sent());
        let could_have_started = usize::try_from(step / 4 + 1).unwrap();
        assert!(
            sent.len() <= could_have_started,
            "{} at step {step}",
            sent.len()
        );
    }
    assert_eq!(numbers(&sent), (0..100).collect::<Vec<_>>());
    assert_eq!(bench.frames.held(), 0);
}

#[test]
fn nothing_is_lost_when_the_port_takes_little_and_the_wire_is_full() {
    let mut bench = Bench::new(gbit(100), 16);
    for number in 0..500 {
        bench.arrive(numbered(number, 60));
    }
    let mut sent = Vec::new();
    for turn in 0..2000 {
        // A turn asks the port once or twice.
        bench.path.ports_mut()[1].take_at_most(turn % 3);
        bench.path.ports_mut()[1].take_at_most(0);
        bench.clock.advance_ps(100_000);
        bench.path.turn();
        assert!(bench.frames.held() <= 16);
        sent.extend(bench.sent());
    }
    assert_eq!(numbers(&sent), (0..500).collect::<Vec<_>>());
    bench.clock.advance_ps(11 * PS_PER_MS);
    bench.path.turn();
    let window = bench.link.take_window().expect("a window was closed");
    assert!(
        window.full_polls > 0 && window.tx_not_accepted > 0,
        "{window:?}"
    );
    assert_eq!(window.discarded_frames, 0);
}

#[test]
fn an_order_is_in_force_at_the_next_turn() {
    let mut bench = Bench::new(gbit(1), 1024);
    bench.path.turn();
    assert_eq!(bench.link.generation_in_force(), 0);
    bench.link.order(Order::constant(7, gbit(25), false));
    bench.path.turn();
    assert_eq!(bench.link.generation_in_force(), 7);
    bench.clock.advance_ps(11 * PS_PER_MS);
    bench.path.turn();
    let window = bench.link.take_window().unwrap();
    assert_eq!((window.generation, window.rate_bps), (7, 25_000_000_000));
}

/// 1,000-byte IPv4 frames whose sender can be told, numbered.
fn capable(number: u16) -> Vec<u8> {
    let mut frame = numbered(number, 1000);
    frame[12..16].copy_from_slice(&[0x08, 0x00, 0x45, 0x02]);
    frame[16..18].copy_from_slice(&986_u16.to_be_bytes());
    frame[23] = 17;
    frame
}

#[test]
fn frames_that_leave_a_deep_queue_are_marked_and_counted() {
    let step = Marking {
        kmin_bytes: 39_999,
        kmax_bytes: 40_000,
        pmax_permille: 0,
    };
    for marking in [Some(step), None] {
        let mut bench = Bench::marking(gbit(10), 1024, marking);
        (0..100).for_each(|number| bench.arrive(capable(number)));
        let mut sent = Vec::new();
        for turn in 0..400 {
            // The port takes nothing every other time: what is offered twice is marked
            // and counted once.
            if turn % 2 == 0 {
                bench.path.ports_mut()[1].take_at_most(0);
            }
            bench.clock.advance_ps(1_000_000);
            bench.path.turn();
            sent.extend(bench.sent());
        }
        assert_eq!(numbers(&sent), (0..100).collect::<Vec<_>>());
        let is_marked = |frame: &Vec<u8>| frame[15] & 3 == 3;
        let marked = sent.iter().filter(|frame| is_marked(frame)).count();
        bench.clock.advance_ps(11 * PS_PER_MS);
        bench.path.turn();
        let window = bench.link.take_window().unwrap();
        assert_eq!(window.ce_marks, marked as u64);
        if marking.is_none() {
            assert_eq!(marked, 0);
            continue;
        }
        // Those that left while 40 or more waited, themselves included.
        assert!(sent[..50].iter().all(is_marked), "{marked}");
        assert!(!sent[61..].iter().any(is_marked), "{marked}");
        // What an ICRC covers is as it was.
        assert!(
            sent.iter()
                .zip(0..)
                .all(|(frame, number)| frame[26..] == capable(number)[26..])
        );
    }
}

#[test]
fn windows_that_nobody_takes_grow_and_lose_nothing() {
    let mut bench = Bench::new(gbit(10), 1024);
    let mut seen = 0;
    let mut last_to = 0;
    for number in 0..300_u16 {
        bench.arrive(numbered(number, 60));
        bench.clock.advance_ps(PS_PER_MS);
        bench.path.turn();
        // Taken rarely, and then quickly.
        if !(40..=250).contains(&number)
            && let Some(window) = bench.link.take_window()
        {
            assert_eq!(window.from_ps, last_to, "windows join");
            last_to = window.to_ps;
            seen += window.sent_frames;
            assert_eq!(window.sent_line_bytes, window.sent_frames * 84);
            assert!(window.longest_gap_ns <= 1_000_000);
        }
    }
    bench.clock.advance_ps(20 * PS_PER_MS);
    bench.path.turn();
    seen += bench.link.take_window().unwrap().sent_frames;
    assert_eq!(seen, 300);
}

#[test]
fn a_stop_lets_waiting_frames_out() {
    let frames = Frames::default();
    let mut ports = vec![MemoryPort::new(&frames), MemoryPort::new(&frames)];
    (0..32).for_each(|number| ports[0].arrive(numbered(number, 1000)));
    // At 1 Mbit/s the 32 frames would take 262 ms.
    let slow = wire(Speed::Rate(LineRate::new(1_000_000).unwrap()), 1024);
    let now_ps = Rc::new(Cell::new(0));
    let clock = TickingClock(Rc::clone(&now_ps));
    let mut path = DataPath::new(ports, &[route(0, 1, slow)], clock, PACING).unwrap();
    path.turn();
    assert!(path.queued_frames() > 0);
    assert_eq!(path.drain(), 0);
    assert_eq!(
        numbers(&path.ports_mut()[1].sent()),
        (0..32).collect::<Vec<_>>()
    );
    assert!(
        now_ps.get() < 50 * PS_PER_MS,
        "what waits leaves at the port's speed"
    );
}

/// A clock that goes on by a microsecond at each reading.
struct TickingClock(Rc<Cell<u64>>);

impl Clock for TickingClock {
    fn now_ps(&self) -> u64 {
        self.0.set(self.0.get() + 1_000_000);
        self.0.get()
    }
}

/// A clock that fails after some readings.
struct FailingClock(Cell<u32>);

impl Clock for FailingClock {
    fn now_ps(&self) -> u64 {
        let left = self.0.get().checked_sub(1).expect("this clock has stopped");
        self.0.set(left);
        1000
    }
}

#[test]
fn a_data_path_that_fails_lets_frames_pass_and_says_why() {
    let frames = Frames::default();
    let mut ports = vec![MemoryPort::new(&frames), MemoryPort::new(&frames)];
    (0..500).for_each(|number| ports[0].arrive(numbered(number, 60)));
    let clock = FailingClock(Cell::new(3));
    let mut path =
        DataPath::new(ports, &[route(0, 1, wire(gbit(1), 1024))], clock, PACING).unwrap();
    let link = Arc::new(ThreadLink::default());
    let watcher = Arc::clone(&link);
    let watching = std::thread::spawn(move || {
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        // Past the failure and through a thousand more turns.
        while watcher.fault().is_none() || watcher.turns() < 1000 {
            assert!(
                std::time::Instant::now() < deadline,
                "no fault was reported"
            );
            std::thread::yield_now();
        }
        watcher.stop();
    });
    path.run(&link);
    watching.join().unwrap();
    assert!(link.ended());
    assert!(link.fault().unwrap().contains("this clock has stopped"));
    let sent = numbers(&path.ports_mut()[1].sent());
    // What the engine held is lost; what came later passes in order.
    assert!(sent.len() > 400, "{}", sent.len());
    assert_eq!(sent.last(), Some(&499));
    assert!(sent.is_sorted());
    assert_eq!(frames.held(), 0);
}

#[test]
fn wires_do_not_share_ports() {
    let frames = Frames::default();
    let ports = |n: usize| (0..n).map(|_| MemoryPort::new(&frames)).collect::<Vec<_>>();
    let small = wire(gbit(1), 16);
    let make = |n, routes: &[(RouteConfig, Arc<WireLink>)]| {
        DataPath::new(ports(n), routes, ManualClock::default(), PACING)
            .map(|_| ())
            .unwrap_err()
    };
    // Both directions between two ports are fine.
    let both = [route(0, 1, small), route(1, 0, small)];
    assert!(DataPath::new(ports(2), &both, ManualClock::default(), PACING).is_ok());
    let shared = [route(0, 1, small), route(0, 2, small)];
    assert_eq!(make(3, &shared), DataPathError::SharedPort { port: 0 });
    let shared = [route(0, 2, small), route(1, 2, small)];
    assert_eq!(make(3, &shared), DataPathError::SharedPort { port: 2 });
    assert_eq!(
        make(1, &[route(0, 1, small)]),
        DataPathError::NoPort { port: 1, ports: 1 }
    );
    assert!(matches!(make(1, &[]), DataPathError::Wire(_)));
}

/// As many wires as one thread serves, in a circle of ports, with rates from one end of
/// the range to the other. The steps grow with time, so that the slowest wire is seen to
/// its end and the fastest is never polled late.
#[test]
fn sixteen_wires_keep_their_own_rates_on_one_thread() {
    const FRAMES: u16 = 200;
    const MBIT: [u64; 16] = [
        1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 25_000, 100_000, 200_000,
    ];
    let frames = Frames::default();
    let mut ports: Vec<MemoryPort> = MBIT.iter().map(|_| MemoryPort::new(&frames)).collect();
    for port in &mut ports {
        (0..FRAMES).for_each(|number| port.arrive(numbered(number, 1226)));
    }
    let routes: Vec<_> = (0..16)
        .map(|n| {
            let rate = LineRate::new(MBIT[n] * 1_000_000).unwrap();
            route(n, (n + 1) % 16, wire(Speed::Rate(rate), 256))
        })
        .collect();
    let clock = ManualClock::default();
    let mut path = DataPath::new(ports, &routes, clock.clone(), PACING).unwrap();
    // All arrive at once; each turn takes a burst of each wire in.
    for _ in 0..20 {
        path.turn();
    }
    let mut sent = vec![Vec::new(); 16];
    let mut now_ps = 0_u64;
    while sent.iter().any(|sent| sent.len() < FRAMES.into()) {
        clock.set_ps(now_ps);
        path.turn();
        for (n, sent) in sent.iter_mut().enumerate() {
            sent.extend(numbers(&path.ports_mut()[(n + 1) % 16].sent()));
            // 1,226 bytes are 10,000 bits on the wire.
            let frame_ps = 10_000 * 1_000_000 / MBIT[n];
            let expected = (now_ps / frame_ps + 1).min(FRAMES.into());
            assert_eq!(
                sent.len() as u64,
                expected,
                "{} Mbit/s at {now_ps} ps",
                MBIT[n]
            );
        }
        now_ps += 10_000.max(now_ps / 50);
    }
    for sent in sent {
        assert_eq!(sent, (0..FRAMES).collect::<Vec<_>>());
    }
    assert_eq!(frames.held(), 0);
}
