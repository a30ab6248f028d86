//! Memory, devices, the poll thread: everything that can be refused is refused before
//! a port is touched.

use std::time::SystemTime;

use rdmesh_services::config::Invalid;
use rdmesh_services::host::{self, HostError};

use super::control::{Control, WireFacts};
use super::handle::DataPathHandle;
use super::ledger::Ledger;
use super::locks::{Lock, LockError, lock_devices, lock_name, lock_state};
use super::shared::Facts;
use super::state::{State, StateError, StateFiles};
use super::windows::Labels;
use crate::config::ShaperConfig;
use crate::datapath::{DataPathError, TooLittleMemory};

/// How long waiting frames may take to leave at a stop: a full queue of 262,144
/// frames of 1,500 bytes leaves a 10 Gbit/s port within 330 ms.
pub const DRAIN: std::time::Duration = std::time::Duration::from_secs(1);

/// Why the service does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration has no wire.
    #[error("the configuration has no wires: write at least one [[wires]] section")]
    NoWires,
    /// The machine has the name that every machine has that was given none.
    #[error(
        "this machine calls itself {0}, as others do: set `name` in the configuration, a name of \
         its own for each shaper, since the collector tells them apart by it"
    )]
    NoName(String),
    /// The machine has no usable name.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A value that validation let pass.
    #[error(transparent)]
    Config(#[from] Invalid),
    /// It does not fit.
    #[error(transparent)]
    Memory(#[from] TooLittleMemory),
    /// Another service has it.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// There is no state directory, and none can be made.
    #[error(transparent)]
    State(#[from] StateError),
    /// The wires do not fit together.
    #[error(transparent)]
    DataPath(#[from] DataPathError),
    /// The system refuses a thread.
    #[error("the poll thread does not start: {0}")]
    Thread(#[from] std::io::Error),
    /// DPDK refuses.
    #[cfg(feature = "dpdk")]
    #[error(transparent)]
    Dpdk(#[from] crate::dpdk::DpdkError),
    /// A build without ports.
    #[error("this build has no ports: build it with the feature `dpdk`")]
    NoPorts,
}

/// What is decided before a port is touched.
#[derive(Debug)]
pub struct Prepared {
    /// The wires with what is remembered of them.
    pub control: Control,
    /// What is remembered.
    pub state: State,
    /// Why nothing of the state of before is in it, if there was one.
    pub lost: Option<String>,
    /// The files.
    pub files: StateFiles,
    /// Held while the service runs.
    pub locks: Vec<Lock>,
}

/// The name under which this shaper reports.
///
/// # Errors
/// [`StartError::NoName`] and [`StartError::Host`] when none is configured and the
/// machine has none of its own.
pub fn agent_name(config: &ShaperConfig) -> Result<String, StartError> {
    let name = host::host_name(&config.name)?;
    // What a system is called before anybody names it.
    let is_unnamed = name == "localhost" || name.starts_with("localhost.");
    if config.name.is_empty() && is_unnamed {
        return Err(StartError::NoName(name));
    }
    Ok(name)
}

/// Checks memory and locks, and loads the state.
///
/// # Errors
/// [`StartError`]; nothing was touched.
pub fn prepare(config: &ShaperConfig, now: SystemTime) -> Result<Prepared, StartError> {
    if config.wires.is_empty() {
        return Err(StartError::NoWires);
    }
    check_memory(config)?;
    let files = StateFiles::open(&config.state_directory)?;
    let mut locks = vec![
        lock_state(&config.state_directory)?,
        lock_name(&agent_name(config)?)?,
    ];
    locks.extend(lock_devices(&config.dpdk.devices)?);
    let (state, lost) = files.load_or_set_aside(now);
    let drain = config
        .measured_drain
        .rate("measured_drain")?
        .map(crate::rate::LineRate::bps);
    // `force` in the configuration lifts the limit of the drain for requests too.
    let drain = drain.filter(|_| !config.force);
    let control = Control::new(facts(config)?, drain, &state, now);
    Ok(Prepared {
        control,
        state,
        lost,
        files,
        locks,
    })
}

/// Begins the ledger once the data path is up; an outage since the last run ends here.
#[must_use]
pub fn begin(prepared: Prepared, path: &DataPathHandle, now: SystemTime) -> (Ledger, Vec<Lock>) {
    let Prepared {
        control,
        state,
        lost,
        files,
        locks,
    } = prepared;
    let last_alive = files.last_alive();
    let mut ledger = Ledger::begin(control, path.links.clone(), state, lost, files, now);
    if let Err(error) = ledger.resume(last_alive, now) {
        tracing::error!(%error, "an outage is not remembered");
    }
    (ledger, locks)
}

/// What reports say of this configuration.
#[must_use]
pub fn report_facts(config: &ShaperConfig, name: &str, host: &str, memory_bytes: u64) -> Facts {
    let ports = config.port_names();
    let index = |name: &String| {
        ports
            .iter()
            .position(|port| port == name)
            .unwrap_or_default()
    };
    let wires = config.wires.iter();
    Facts {
        name: name.to_owned(),
        host: host.to_owned(),
        configuration_hash: config.hash(),
        memory_bytes,
        wire_ports: wires
            .map(|wire| (index(&wire.in_port), index(&wire.out_port)))
            .collect(),
    }
}

/// What windows of each wire are labelled with.
#[must_use]
pub fn labels(config: &ShaperConfig, host: &str) -> Vec<Labels> {
    let label = |wire: &crate::config::WireSection| Labels {
        wire: wire.name.clone(),
        host: host.to_owned(),
        virtual_function: wire.function().to_owned(),
        configuration_hash: config.hash(),
    };
    config.wires.iter().map(label).collect()
}

fn facts(config: &ShaperConfig) -> Result<Vec<WireFacts>, Invalid> {
    let fact = |wire: &crate::config::WireSection| {
        Ok(WireFacts {
            name: wire.name.clone(),
            virtual_function: wire.function().to_owned(),
            configured: wire.speed()?,
            fastest_bps: wire.fastest_bps()?,
        })
    };
    config.wires.iter().map(fact).collect()
}

/// Queues and tables of the wires, bytes.
#[must_use]
pub fn wire_bytes(config: &ShaperConfig) -> u64 {
    let bytes = |wire: &crate::config::WireSection| {
        let speed = crate::engine::Speed::Unshaped;
        crate::datapath::wire_memory_bytes(&wire.engine(speed))
    };
    config.wires.iter().map(bytes).sum()
}

fn check_memory(config: &ShaperConfig) -> Result<(), StartError> {
    // A machine that does not say how much is free is left to find out.
    let Ok(meminfo) = std::fs::read_to_string("/proc/meminfo") else {
        return Ok(());
    };
    let (dpdk, wires) = (config.dpdk_memory_bytes(), wire_bytes(config));
    let (huge, other) = if config.dpdk.huge_pages {
        (dpdk, wires)
    } else {
        (0, dpdk + wires)
    };
    tracing::info!(
        dpdk_mb = dpdk >> 20,
        queues_mb = wires >> 20,
        huge_pages = config.dpdk.huge_pages,
        "memory that the wires take"
    );
    let checked = crate::datapath::check_memory(&meminfo, huge, other);
    checked.map_err(|error| {
        let advice = config.dpdk.memory_advice();
        StartError::Memory(TooLittleMemory { advice, ..error })
    })
}

#[cfg(feature = "dpdk")]
mod with_dpdk;

#[cfg(feature = "dpdk")]
pub use with_dpdk::start_data_path;

/// Without ports there is no data path.
///
/// # Errors
/// Always [`StartError::NoPorts`].
#[cfg(not(feature = "dpdk"))]
pub fn start_data_path(_: &ShaperConfig, _: &Control) -> Result<DataPathHandle, StartError> {
    Err(StartError::NoPorts)
}
