//! After start the poll loop takes no memory, whatever comes: more keys than sub-queues,
//! CNPs, ports that take little, changes of rate, rates that end, windows.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use rdmesh_shaper::datapath::{
    DataPath, ManualClock, Marking, Order, Pacing, RouteConfig, WireLink,
};
use rdmesh_shaper::engine::{Expiry, Match, Policy, Rule, Speed, WireConfig};
use rdmesh_shaper::port::{BURST, Port};
use rdmesh_shaper::rate::LineRate;

const FRAME_BYTES: u32 = 1082;

/// A port that makes frames without end and takes them with pauses, without memory.
#[derive(Debug)]
struct EndlessPort {
    heads: Vec<[u8; 128]>,
    next: usize,
    calls: usize,
    sent: usize,
}

impl EndlessPort {
    fn new(heads: Vec<[u8; 128]>) -> Self {
        Self {
            heads,
            next: 0,
            calls: 0,
            sent: 0,
        }
    }
}

impl Port for EndlessPort {
    /// Any number but zero, which is none.
    type Frame = u32;

    fn receive<R>(
        &mut self,
        max: usize,
        mut read: impl FnMut(&[u8], u32) -> R,
        mut hold: impl FnMut(u32, R),
    ) -> usize {
        for _ in 0..max.min(BURST) {
            let known = read(&self.heads[self.next], FRAME_BYTES);
            hold(1, known);
            self.next = (self.next + 1) % self.heads.len();
        }
        max.min(BURST)
    }

    fn transmit(&mut self, frames: &mut [u32]) -> usize {
        self.calls += 1;
        let taken = frames.len().min(self.calls % (BURST + 1));
        frames[..taken].fill(0);
        self.sent += taken;
        taken
    }

    fn rewrite(&mut self, frames: &mut [u32], which: u32, mut change: impl FnMut(&mut [u8])) {
        for at in (0..frames.len()).filter(|at| which >> at & 1 == 1) {
            change(&mut self.heads[at]);
        }
    }

    fn discard(&mut self, frames: &mut [u32]) -> usize {
        frames.fill(0);
        frames.len()
    }
}

/// RoCEv2 to one of many QPs, ECT(0); every hundredth is a CNP, every tenth another flow.
fn head(number: u16) -> [u8; 128] {
    let mut head = [0; 128];
    head[12..16].copy_from_slice(&[0x08, 0x00, 0x45, 0x02]);
    head[16..18].copy_from_slice(&1068_u16.to_be_bytes());
    head[22..24].copy_from_slice(&[64, 17]);
    head[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    let port = if number % 10 == 9 {
        5000 + number
    } else {
        4791
    };
    head[36..38].copy_from_slice(&port.to_be_bytes());
    head[42] = if number % 100 == 50 { 0x81 } else { 0x04 };
    head[46..50].copy_from_slice(&u32::from(number % 3000).to_be_bytes());
    head
}

fn order(generation: u64, gbit: u64) -> Order {
    let speed = |gbit: u64| Speed::Rate(LineRate::new(gbit * 1_000_000_000).unwrap());
    let rule = Rule {
        applies_to: Match::Every,
        speed: speed(gbit),
        expiry: Some(Expiry {
            after_ps: 50_000_000,
            then: speed(100),
        }),
    };
    Order {
        policy: Policy::new(generation, &[rule]).unwrap(),
        bypass: false,
    }
}

#[test]
fn the_poll_loop_takes_no_memory() {
    let heads = || (0..12_000).map(head).collect();
    let ports = vec![EndlessPort::new(heads()), EndlessPort::new(heads())];
    let link = Arc::<WireLink>::default();
    let route = RouteConfig {
        in_port: 0,
        out_port: 1,
        wire: WireConfig {
            queue_frames: 4096,
            sub_queues: 1024,
            ..WireConfig::new(Speed::Unshaped, 1500)
        },
        marking: Some(Marking {
            kmin_bytes: 1000,
            kmax_bytes: 1_000_000,
            pmax_permille: 200,
        }),
        bypass: false,
        key_seed: 1,
    };
    let clock = ManualClock::default();
    let pacing = Pacing {
        window: Duration::from_micros(100),
        yields: false,
        drain: Duration::ZERO,
    };
    let routes = [(route, Arc::clone(&link))];
    let mut path = DataPath::new(ports, &routes, clock.clone(), pacing).unwrap();

    let (mut windows, mut shared, mut marks) = (0, 0, 0);
    for round in 0..400 {
        link.order(order(round + 1, 10 + round % 90));
        let taken = allocation_counter::measure(|| {
            for _ in 0..100 {
                clock.advance_ps(2_000_000);
                path.turn();
            }
        });
        assert_eq!(taken.count_total, 0, "round {round}: {taken:?}");
        while let Some(window) = link.take_window() {
            windows += 1;
            shared += window.shared_frames;
            marks += window.ce_marks;
        }
    }
    // All of it did happen.
    assert!(path.ports_mut()[1].sent > 100_000);
    assert!(
        windows >= 800 && shared > 0 && marks > 0,
        "{windows} {shared} {marks}"
    );
}
