//! What the handlers and the tasks of one service share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use rdmesh_proto::shaper::v1 as proto;
use tokio::sync::broadcast;

use super::control::WireControl;
use super::figures::Figures;
use super::handle::{DataPathHandle, Ports};
use super::ledger::Ledger;
use super::state::{SavedOutage, from_ms};
use super::windows::{ENGINE_VERSION, InvalidWindows};
use crate::datapath::ThreadLink;
use crate::engine::Speed;

/// Windows that wait for a watcher. At one a wire and interval, a watcher of 16 wires
/// may be 16 intervals behind before it misses some.
const WATCH_WINDOWS: usize = 256;

/// Shared by all.
#[derive(Debug)]
pub struct Shared {
    ledger: Mutex<Ledger>,
    facts: Facts,
    ports: Arc<dyn Ports>,
    thread: Arc<ThreadLink>,
    windows: broadcast::Sender<proto::WireWindow>,
    seen: Mutex<Seen>,
    figures: Figures,
}

/// What does not change while the service runs.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Name under which this shaper reports.
    pub name: String,
    /// Host whose functions are shaped.
    pub host: String,
    /// Of the configuration.
    pub configuration_hash: String,
    /// Memory of the data path, bytes.
    pub memory_bytes: u64,
    /// Index of the port that feeds each wire, and of the one that it feeds.
    pub wire_ports: Vec<(usize, usize)>,
}

#[derive(Debug, Default)]
struct Seen {
    invalid: InvalidWindows,
    in_hardware: Vec<bool>,
    longest_gap_ns: u64,
    not_accepted: Vec<u64>,
    given_up: u64,
}

impl Shared {
    /// Shares a ledger and a data path.
    #[must_use]
    pub fn new(ledger: Ledger, facts: Facts, path: &DataPathHandle) -> Arc<Self> {
        let wires = facts.wire_ports.len();
        Arc::new(Self {
            ledger: Mutex::new(ledger),
            facts,
            ports: Arc::clone(&path.ports),
            thread: Arc::clone(&path.thread),
            windows: broadcast::channel(WATCH_WINDOWS).0,
            seen: Mutex::new(Seen {
                in_hardware: vec![false; wires],
                not_accepted: vec![0; wires],
                ..Seen::default()
            }),
            figures: Figures::default(),
        })
    }

    /// The ledger; whoever holds it does not await.
    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The poll thread.
    #[must_use]
    pub fn thread(&self) -> &ThreadLink {
        &self.thread
    }

    /// What is told to an exporter of metrics.
    #[must_use]
    pub fn figures(&self) -> &Figures {
        &self.figures
    }

    /// Windows from now on.
    #[must_use]
    pub fn watch(&self) -> broadcast::Receiver<proto::WireWindow> {
        self.windows.subscribe()
    }

    /// Says in a window what the wire was told, so that whoever reads windows knows it
    /// without asking.
    pub fn describe(&self, wire: usize, window: &mut proto::WireWindow) {
        let ledger = self.ledger();
        let Some(told) = ledger.wires().get(wire) else {
            return;
        };
        window.configured_rate_bps = bps(told.facts.configured);
        if window.policy_generation == 0 {
            // The poll loop said nothing.
            window.policy_generation = told.generation;
            window.expires_at = expiry(told);
        } else if window.policy_generation == told.generation && window.expires_at.is_some() {
            // The very instant, which the poll loop's clock tells to the microsecond.
            window.expires_at = expiry(told);
        }
    }

    /// Hands a window of wire `wire` to whoever watches, and remembers what reports
    /// say of it.
    pub fn publish(&self, wire: usize, window: &proto::WireWindow) {
        self.figures.see(wire, window);
        let mut seen = self.seen();
        seen.invalid.see(window);
        seen.longest_gap_ns = seen.longest_gap_ns.max(window.longest_poll_gap_ns);
        seen.given_up = window.windows_given_up;
        if let Some(sum) = seen.not_accepted.get_mut(wire) {
            *sum += window.tx_not_accepted;
        }
        drop(seen);
        // Nobody watches: fine.
        let _ = self.windows.send(window.clone());
    }

    /// Puts the wire's bypass into hardware if the device can.
    pub fn bypass_in_hardware(&self, wire: usize, bypass: bool) {
        let in_hardware = self.ports.bypass_in_hardware(wire, bypass);
        if let Some(place) = self.seen().in_hardware.get_mut(wire) {
            *place = in_hardware;
        }
    }

    /// Name under which this shaper reports.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.facts.name
    }

    /// Every wire.
    #[must_use]
    pub fn wires(&self) -> Vec<proto::Wire> {
        let in_hardware = self.seen().in_hardware.clone();
        let ledger = self.ledger();
        let wires = ledger.wires().iter().zip(in_hardware);
        wires
            .map(|(wire, in_hardware)| self.wire(wire, in_hardware))
            .collect()
    }

    fn wire(&self, wire: &WireControl, in_hardware: bool) -> proto::Wire {
        proto::Wire {
            name: wire.facts.name.clone(),
            host: self.facts.host.clone(),
            virtual_function: wire.facts.virtual_function.clone(),
            rate_bps: bps(wire.speed()),
            configured_rate_bps: bps(wire.facts.configured),
            expires_at: expiry(wire),
            bypass: wire.bypass,
            policy_generation: wire.generation,
            bypass_in_hardware: wire.bypass && in_hardware,
        }
    }

    /// The data path's report. Asks the devices; some ask the kernel.
    #[must_use]
    pub fn report(&self) -> proto::GetDataPathReportResponse {
        let states = self.ports.states();
        let (outages, state_fault) = {
            let ledger = self.ledger();
            let outages = ledger.outages().iter().map(outage).collect();
            (outages, ledger.fault().unwrap_or_default())
        };
        let seen = self.seen();
        let ports = states.into_iter().enumerate().map(|(index, state)| {
            let fed = self
                .facts
                .wire_ports
                .iter()
                .position(|(_, out)| *out == index);
            proto::PortReport {
                name: state.name,
                rx_descriptors: state.rx_descriptors,
                tx_descriptors: state.tx_descriptors,
                imissed: state.imissed,
                rx_nombuf: state.rx_nombuf,
                tx_not_accepted: fed.map_or(0, |wire| seen.not_accepted[wire]),
                longest_poll_gap_ns: seen.longest_gap_ns,
                rx_frames: state.rx_frames,
                tx_frames: state.tx_frames,
                pool_frames: state.pool_frames,
                pool_free_frames: state.pool_free_frames,
                back_pressure_help: state.back_pressure_help,
            }
        });
        proto::GetDataPathReportResponse {
            ports: ports.collect(),
            outages,
            engine_version: ENGINE_VERSION.to_owned(),
            configuration_hash: self.facts.configuration_hash.clone(),
            memory_bytes: self.facts.memory_bytes,
            fault: self.thread.fault().unwrap_or_default(),
            invalid_windows: seen.invalid.list(),
            windows_given_up: seen.given_up,
            state_fault,
        }
    }
}

/// As the contract holds it: 0 is not shaped.
const fn bps(speed: Speed) -> u64 {
    match speed {
        Speed::Unshaped => 0,
        Speed::Rate(rate) => rate.bps(),
    }
}

fn expiry(wire: &WireControl) -> Option<prost_types::Timestamp> {
    wire.changed.and_then(|(_, at)| at).map(Into::into)
}

fn outage(saved: &SavedOutage) -> proto::Outage {
    let stamp = |ms| SystemTime::into(from_ms(ms));
    proto::Outage {
        from: Some(stamp(saved.from_ms)),
        to: saved.to_ms.map(stamp),
        cause: saved.cause.clone(),
    }
}
