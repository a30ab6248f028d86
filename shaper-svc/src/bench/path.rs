//! The whole data path between two `net_null` devices: receive, classify, engine,
//! transmit, on one core.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::Figure;
use crate::datapath::{DataPath, Pacing, PoolPlan, RouteConfig, WireLink};
use crate::dpdk::{
    Device, DeviceOptions, DpdkError, DpdkPort, Eal, EalOptions, HeldMbuf, Pool, TscClock,
    WorkerThread,
};
use crate::engine::{Speed, WireConfig};
use crate::port::{BURST, Port};
use crate::rate::{LineRate, MAX_RATE_BPS};

const ROUNDS: usize = 301;

/// Turns of a round: 8,192 frames, some 200 µs, shorter than the time slice of a
/// scheduler, so that most rounds have the core to themselves.
const TURNS: usize = 256;

/// Buffers of the pool: they stay in the second-level cache, as few frames are on
/// their way.
const MBUFS: u32 = 4095;

/// Length of the frames that `net_null` makes, bytes.
const FRAME_BYTES: usize = 64;

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// Its name.
    pub name: &'static str,
    /// Destination QPs written into the frames; 0: frames of zeros.
    keys: u32,
    /// Frames go straight from port to port: what the devices themselves cost.
    bare: bool,
    at_least: Option<f64>,
}

/// All of them.
pub const LOADS: [Load; 3] = [
    Load {
        name: "shaper.null.mpps",
        keys: 0,
        bare: false,
        at_least: Some(45.0),
    },
    Load {
        name: "shaper.null.roce64.mpps",
        keys: 64,
        bare: false,
        at_least: Some(25.0),
    },
    Load {
        name: "shaper.null.devices.mpps",
        keys: 0,
        bare: true,
        at_least: None,
    },
];

impl Load {
    /// Measures it. A machine on which DPDK does not start gives no figure but 0.
    #[must_use]
    pub fn measure(&self) -> Figure {
        let load = *self;
        // A thread of its own: it registers with DPDK and keeps the ports.
        let measured = std::thread::spawn(move || load.rounds()).join();
        let rounds = match measured {
            Ok(Ok(rounds)) => rounds,
            Ok(Err(error)) => {
                tracing::error!(%error, "not measured");
                vec![0.0]
            }
            Err(_) => vec![0.0],
        };
        let figure = Figure::median_of(self.name.to_owned(), "Mframes/s", rounds);
        Figure {
            at_least: self.at_least,
            ..figure
        }
    }

    fn rounds(self) -> Result<Vec<f64>, DpdkError> {
        let eal = eal()?;
        let _worker = WorkerThread::register(&eal)?;
        let ports = ports(&eal, self)?;
        let mut rounds = Vec::new();
        if self.bare {
            let [mut from, mut to] = ports;
            for _ in 0..ROUNDS {
                rounds.push(round(|| pass(&mut from, &mut to)));
            }
            return Ok(rounds);
        }
        let route = RouteConfig {
            in_port: 0,
            out_port: 1,
            wire: WireConfig {
                queue_frames: 1024,
                ..WireConfig::new(fastest(), 1500)
            },
            marking: None,
            bypass: false,
            key_seed: 1,
        };
        let pacing = Pacing {
            window: Duration::from_secs(1),
            yields: false,
            drain: Duration::ZERO,
        };
        let routes = [(route, Arc::new(WireLink::default()))];
        let made = DataPath::new(Vec::from(ports), &routes, TscClock::new(&eal), pacing);
        let Ok(mut path) = made else {
            return Ok(vec![0.0]);
        };
        for _ in 0..ROUNDS {
            // A frame counts when it comes and when it goes.
            rounds.push(round(|| path.turn()) / 2.0);
        }
        path.drain();
        Ok(rounds)
    }
}

fn fastest() -> Speed {
    LineRate::new(MAX_RATE_BPS).map_or(Speed::Unshaped, Speed::Rate)
}

/// Millions of what `turn` returns, per second.
fn round(mut turn: impl FnMut() -> usize) -> f64 {
    let began = Instant::now();
    let frames: u64 = (0..TURNS).map(|_| turn() as u64).sum();
    let seconds = began.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "millions")]
    let frames = frames as f64;
    frames / seconds / 1e6
}

fn pass(from: &mut DpdkPort, to: &mut DpdkPort) -> usize {
    let mut frames: [HeldMbuf; BURST] = std::array::from_fn(|_| HeldMbuf::default());
    let mut places = frames.iter_mut();
    let hold = |frame, ()| {
        if let Some(place) = places.next() {
            *place = frame;
        }
    };
    let received = from.receive(BURST, |_, _| (), hold);
    to.transmit(&mut frames[..received])
}

fn eal() -> Result<Arc<Eal>, DpdkError> {
    static STARTED: OnceLock<Option<Arc<Eal>>> = OnceLock::new();
    let start = || {
        let options = EalOptions {
            huge_pages: false,
            memory_mb: 128,
            pci_devices: Vec::new(),
            file_prefix: format!("rdmesh-bench-{}", std::process::id()),
        };
        Eal::start(&options)
            .map_err(|error| tracing::error!(%error, "DPDK"))
            .ok()
    };
    STARTED
        .get_or_init(start)
        .clone()
        .ok_or(DpdkError::StartedBefore)
}

fn ports(eal: &Arc<Eal>, load: Load) -> Result<[DpdkPort; 2], DpdkError> {
    let tag = load.keys * 10 + u32::from(load.bare);
    let plan = PoolPlan {
        mbufs: MBUFS,
        buffer_bytes: 2048,
    };
    let pool = Pool::new(eal, &format!("bench-{tag}"), plan)?;
    let options = DeviceOptions {
        rx_descriptors: 512,
        tx_descriptors: 512,
        mtu: 1500,
        rx_low_percent: 0,
    };
    let make = |end: u32| {
        let name = format!("net_null{}", 100 + 2 * tag + end);
        eal.probe(&format!("{name},size={FRAME_BYTES}"))?;
        Device::start(eal, &name, options, &pool)?.port()
    };
    let mut ports = [make(0)?, make(1)?];
    // The device leaves the bytes of its buffers as they are: each keeps this header.
    let mut made = Vec::new();
    while let Some(frame) = ports[0].frame_from(&header(load.keys, made.len()), 2048) {
        made.push(frame);
    }
    ports[0].discard(&mut made);
    Ok(ports)
}

/// Ethernet, IPv4, UDP to port 4791, BTH with one of `keys` destination QPs; zeros
/// for no key.
fn header(keys: u32, number: usize) -> [u8; FRAME_BYTES] {
    let mut frame = [0; FRAME_BYTES];
    if keys == 0 {
        return frame;
    }
    let number = u32::try_from(number).unwrap_or(0);
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    frame[14..26].copy_from_slice(&[0x45, 0, 0, 50, 0, 0, 0x40, 0, 64, 17, 0, 0]);
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    // 4791 in both bytes of the port.
    frame[34..42].copy_from_slice(&[0xc0, 0, 0x12, 0xb7, 0, 30, 0, 0]);
    // RC SEND only.
    frame[42] = 0x04;
    frame[46..50].copy_from_slice(&(0x100 + number % keys).to_be_bytes());
    frame
}
