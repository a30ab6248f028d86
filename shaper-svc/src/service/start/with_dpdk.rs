//! The data path on DPDK's ports.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::{DRAIN, StartError, wire_bytes};
use crate::config::ShaperConfig;
use crate::datapath::{DataPath, Pacing, RouteConfig, ThreadLink, WireLink};
use crate::dpdk::{
    Device, DeviceOptions, DpdkError, DpdkPort, Eal, EalOptions, HardwareBypass, Pool, TscClock,
    WorkerThread,
};
use crate::engine::Speed;
use crate::service::control::Control;
use crate::service::handle::{DataPathHandle, Gone, PortState, Ports, SharedClock, spawn};

/// Starts DPDK, its devices, and the poll thread.
///
/// # Errors
/// [`StartError`]; what was started is stopped again.
pub fn start_data_path(
    config: &ShaperConfig,
    control: &Control,
) -> Result<DataPathHandle, StartError> {
    let eal = Eal::start(&EalOptions {
        huge_pages: config.dpdk.huge_pages,
        memory_mb: config.dpdk_memory_bytes().div_ceil(1 << 20),
        pci_devices: config.dpdk.pci_devices(),
        file_prefix: config.dpdk.file_prefix.clone(),
    })?;
    let names = config.port_names();
    // Pools first: what does not fit is refused before a port is touched.
    let pools: Vec<_> = names
        .iter()
        .map(|name| Pool::new(&eal, name, config.pool_of(name)))
        .collect::<Result<_, _>>()?;
    for device in config.dpdk.virtual_devices() {
        eal.probe(&device)?;
    }
    let devices: Vec<_> = names
        .iter()
        .zip(&pools)
        .map(|(name, pool)| Device::start(&eal, name, options_of(config, name), pool))
        .collect::<Result<_, _>>()?;

    let index = |name: &str| {
        names
            .iter()
            .position(|port| port == name)
            .unwrap_or_default()
    };
    let mut routes = Vec::new();
    let mut pairs = Vec::new();
    for (section, wire) in config.wires.iter().zip(control.wires()) {
        let speed = if wire.bypass {
            Speed::Unshaped
        } else {
            wire.speed()
        };
        let (in_port, out_port) = (index(&section.in_port), index(&section.out_port));
        let route = RouteConfig {
            in_port,
            out_port,
            wire: section.engine(speed),
            marking: section.marking(),
            bypass: wire.bypass,
            key_seed: uuid::Uuid::new_v4().as_u64_pair().1,
        };
        pairs.push((
            Arc::clone(&devices[in_port]),
            Arc::clone(&devices[out_port]),
        ));
        routes.push((route, Arc::new(WireLink::default())));
    }
    let thread = Arc::new(ThreadLink::default());
    let clock = TscClock::new(&eal);
    let links = routes.iter().map(|(_, link)| Arc::clone(link)).collect();
    let in_ports = routes.iter().map(|(route, _)| route.in_port).collect();
    let out_ports = routes.iter().map(|(route, _)| route.out_port).collect();
    let join = spawn_poll(
        config,
        &eal,
        &thread,
        devices.clone(),
        routes,
        clock.clone(),
    )?;
    Ok(DataPathHandle {
        links,
        in_ports,
        out_ports,
        thread,
        clock: SharedClock::new(move || crate::datapath::Clock::now_ps(&clock)),
        memory_bytes: config.pool_bytes() + wire_bytes(config),
        ports: Arc::new(DpdkPorts {
            devices,
            interfaces: interfaces_of(&config.dpdk.devices),
            rules: pairs.iter().map(|_| Mutex::new(None)).collect(),
            pairs,
        }),
        join: Some(join),
    })
}

fn options_of(config: &ShaperConfig, port: &str) -> DeviceOptions {
    DeviceOptions {
        rx_descriptors: config.dpdk.rx_descriptors,
        tx_descriptors: config.dpdk.tx_descriptors,
        rx_low_percent: config.dpdk.rx_low_percent,
        mtu: config.mtu_of(port),
    }
}

fn spawn_poll(
    config: &ShaperConfig,
    eal: &Arc<Eal>,
    thread: &Arc<ThreadLink>,
    devices: Vec<Arc<Device>>,
    routes: Vec<(RouteConfig, Arc<WireLink>)>,
    clock: TscClock,
) -> Result<std::thread::JoinHandle<()>, StartError> {
    for (section, (route, _)) in config.wires.iter().zip(&routes) {
        let frame = config.frame_bytes_of(&section.in_port);
        if frame > config.dpdk.buffer_bytes {
            let device = &devices[route.in_port];
            tracing::info!(
                port = device.name(),
                frame,
                "frames of this wire take several buffers"
            );
        }
    }
    let eal = Arc::clone(eal);
    let cpu = config.dpdk.cpu;
    let pacing = Pacing {
        window: config.window(),
        yields: cpu.is_none(),
        drain: DRAIN,
    };
    spawn(thread, move || {
        if let Some(cpu) = cpu {
            pin(cpu)?;
        }
        let worker = WorkerThread::register(&eal)?;
        // Stays registered for as long as the thread lives.
        WORKER.with(|place| *place.borrow_mut() = Some(worker));
        let ports: Vec<DpdkPort> = devices.iter().map(Device::port).collect::<Result<_, _>>()?;
        Ok::<_, StartError>(DataPath::new(ports, &routes, clock, pacing)?)
    })
}

thread_local! {
    static WORKER: std::cell::RefCell<Option<WorkerThread>> = const { std::cell::RefCell::new(None) };
}

fn pin(cpu: u32) -> std::io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu as usize);
    rustix::thread::sched_setaffinity(None, &set)?;
    Ok(())
}

/// Counters and hardware bypasses of the devices.
#[derive(Debug)]
struct DpdkPorts {
    devices: Vec<Arc<Device>>,
    /// The ports of each wire.
    pairs: Vec<(Arc<Device>, Arc<Device>)>,
    /// Interfaces of the kernel that devices sit on.
    interfaces: Vec<Interface>,
    /// A rule for each wire that is bypassed in hardware.
    rules: Vec<Mutex<Option<HardwareBypass>>>,
}

impl Ports for DpdkPorts {
    fn states(&self) -> Vec<PortState> {
        let states = self.devices.iter().map(state);
        let counted = states.map(|mut state| {
            let mut behind = self.interfaces.iter();
            if let Some(interface) = behind.find(|interface| interface.port == state.name) {
                state.imissed += interface.dropped();
            }
            state
        });
        counted.collect()
    }

    fn gone(&self) -> Option<Gone> {
        let gone = self.interfaces.iter().find_map(Interface::gone);
        gone.or_else(|| self.devices.iter().find_map(removed))
    }

    fn without_link(&self) -> Vec<usize> {
        let is_down = |device: &Device| {
            let mut behind = self.interfaces.iter();
            // Drivers that sit on an interface do not look at its link.
            match behind.find(|interface| interface.port == device.name()) {
                Some(interface) => interface.link_is_down(),
                None => device.link_is_down(),
            }
        };
        let devices = self.devices.iter().enumerate();
        devices
            .filter_map(|(index, device)| is_down(device).then_some(index))
            .collect()
    }

    fn bypass_in_hardware(&self, wire: usize, bypass: bool) -> bool {
        let (Some((from, to)), Some(rule)) = (self.pairs.get(wire), self.rules.get(wire)) else {
            return false;
        };
        let mut rule = rule.lock().unwrap_or_else(PoisonError::into_inner);
        if !bypass {
            *rule = None;
        } else if rule.is_none() {
            match HardwareBypass::new(from, to) {
                Ok(made) => *rule = Some(made),
                Err(error) => tracing::debug!(%error, "bypassed in software"),
            }
        }
        rule.is_some()
    }
}

/// A device of a bus that said that it goes. Only a new process finds it again.
fn removed(device: &Arc<Device>) -> Option<Gone> {
    let is_removed = device.is_removed();
    is_removed.then(|| Gone {
        port: device.name().to_owned(),
        what: "the device was removed; restart the service once it is back".to_owned(),
        is_back: false,
    })
}

/// An interface of the kernel behind a device without a bus. DPDK does not notice that
/// it goes: the device then just receives nothing.
#[derive(Debug)]
struct Interface {
    port: String,
    name: String,
    index: u32,
    went: AtomicBool,
    /// Frames that the kernel dropped since the start.
    dropped: AtomicU64,
}

impl Interface {
    /// Frames that found the ring to the driver full, which `net_af_packet` does not count.
    fn dropped(&self) -> u64 {
        let since = Device::kernel_drops(self.index);
        self.dropped.fetch_add(since, Ordering::Relaxed) + since
    }

    /// One that is set down has no carrier to be read.
    fn link_is_down(&self) -> bool {
        let carrier = std::fs::read_to_string(format!("/sys/class/net/{}/carrier", self.name));
        match carrier {
            Ok(carrier) => carrier.trim() == "0",
            // Gone is told for itself.
            Err(error) => error.kind() == std::io::ErrorKind::InvalidInput,
        }
    }

    /// What is at hand of that name now is another interface if its index differs, or
    /// if it was away.
    fn gone(&self) -> Option<Gone> {
        let index = interface_index(&self.name);
        if index != Some(self.index) {
            self.went.store(true, Ordering::Relaxed);
        }
        self.went.load(Ordering::Relaxed).then(|| Gone {
            port: self.port.clone(),
            what: format!("its interface {} has gone", self.name),
            is_back: index.is_some(),
        })
    }
}

fn interfaces_of(devices: &[String]) -> Vec<Interface> {
    let interface = |device: &String| {
        let mut parts = device.split(',');
        let port = parts.next()?.to_owned();
        let name = parts.find_map(|part| part.strip_prefix("iface="))?;
        Some(Interface {
            port,
            name: name.to_owned(),
            index: interface_index(name)?,
            went: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
        })
    };
    devices.iter().filter_map(interface).collect()
}

fn interface_index(name: &str) -> Option<u32> {
    use rustix::net::{AddressFamily, SocketType, netdevice, socket};
    let any = socket(AddressFamily::UNIX, SocketType::DGRAM, None).ok()?;
    netdevice::name_to_index(any, name).ok()
}

fn state(device: &Arc<Device>) -> PortState {
    let counters = device.counters().unwrap_or_else(|error: DpdkError| {
        tracing::warn!(%error, "a port has no counters");
        Default::default()
    });
    let options = device.options();
    PortState {
        name: device.name().to_owned(),
        rx_descriptors: options.rx_descriptors.into(),
        tx_descriptors: options.tx_descriptors.into(),
        rx_frames: counters.rx_frames,
        tx_frames: counters.tx_frames,
        imissed: counters.imissed,
        rx_nombuf: counters.rx_nombuf,
        back_pressure_help: counters.filled_up,
        pool_frames: device.pool().plan().mbufs,
        pool_free_frames: device.pool().free_mbufs(),
    }
}
