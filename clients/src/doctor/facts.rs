//! What was found on a machine. Data alone: rules are tested with facts that are made up.

use std::path::PathBuf;

use rdmesh_tls::inspect::Inspection;

use crate::client::CONNECT_TIMEOUT;
use crate::endpoint::DEFAULT_PORT;
use crate::shaper::SHAPER_PORT;
use crate::tracer::TRACER_PORT;

/// Something that was looked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Looked<T> {
    /// It is there.
    Found(T),
    /// It is not there.
    #[default]
    Absent,
    /// It could not be told, and why.
    Unknown(String),
}

impl<T> Looked<T> {
    /// What was found.
    #[must_use]
    pub fn found(&self) -> Option<&T> {
        match self {
            Looked::Found(found) => Some(found),
            Looked::Absent | Looked::Unknown(_) => None,
        }
    }

    /// The same with what was found changed.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Looked<U> {
        match self {
            Looked::Found(found) => Looked::Found(change(found)),
            Looked::Absent => Looked::Absent,
            Looked::Unknown(why) => Looked::Unknown(why),
        }
    }
}

/// A service of rdmesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// On a GPU host.
    Tracer,
    /// On a DPU.
    Shaper,
    /// What they report to.
    Collector,
}

impl Service {
    /// All of them.
    pub const ALL: [Service; 3] = [Service::Tracer, Service::Shaper, Service::Collector];

    /// Its name in file names and variables.
    #[must_use]
    pub fn short(self) -> &'static str {
        match self {
            Service::Tracer => "tracer",
            Service::Shaper => "shaper",
            Service::Collector => "collector",
        }
    }

    /// Its program.
    #[must_use]
    pub fn program(self) -> &'static str {
        match self {
            Service::Tracer => "tracer-svc",
            Service::Shaper => "shaper-svc",
            Service::Collector => "collector-svc",
        }
    }

    /// Its unit, as the packages install it.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Service::Tracer => "rdmesh-tracer",
            Service::Shaper => "rdmesh-shaper",
            Service::Collector => "rdmesh-collector",
        }
    }

    /// The user of that unit.
    #[must_use]
    pub fn user(self) -> &'static str {
        match self {
            Service::Tracer | Service::Collector => "rdmesh",
            Service::Shaper => "root",
        }
    }

    /// Where it listens unless told otherwise.
    #[must_use]
    pub fn port(self) -> u16 {
        match self {
            Service::Tracer => TRACER_PORT,
            Service::Shaper => SHAPER_PORT,
            Service::Collector => DEFAULT_PORT,
        }
    }

    /// Whether it reports to a collector.
    #[must_use]
    pub fn reports(self) -> bool {
        self != Service::Collector
    }
}

/// All that was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The machine's name, as the kernel has it; empty: not told.
    pub host: String,
    /// Seconds since 1970, by this machine's clock.
    pub now: i64,
    /// The kernel.
    pub kernel: Looked<Kernel>,
    /// The process that looks, whose rights and limits are those of the shell.
    pub shell: Looked<Process>,
    /// Services that are set up or run here.
    pub services: Looked<Vec<ServiceFacts>>,
    /// RDMA devices, by name; absent: the kernel has none registered.
    pub devices: Looked<Vec<Device>>,
    /// Programs from which jobs get their limits.
    pub launchers: Looked<Vec<Process>>,
    /// What is said to NCCL.
    pub nccl: Nccl,
    /// The clock.
    pub clock: Clock,
    /// The certificate of who looks; absent: there is none.
    pub own: Option<Certificate>,
    /// Settings of who looks that cannot be used, and why.
    pub unusable: Option<String>,
    /// Addresses that were dialled.
    pub dials: Vec<Dial>,
}

impl Facts {
    /// The services that are here.
    pub fn here(&self) -> impl Iterator<Item = &ServiceFacts> {
        self.services.found().into_iter().flatten()
    }

    /// Whether a service is here.
    #[must_use]
    pub fn has(&self, service: Service) -> bool {
        self.here().any(|here| here.service == service)
    }

    /// Whether the machine is to be fit for a tracer: it has one, or nothing of rdmesh yet.
    #[must_use]
    pub fn traces(&self) -> bool {
        self.has(Service::Tracer) || self.here().next().is_none()
    }
}

/// The kernel and what it allows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// `6.12.48+deb13-amd64`.
    pub release: String,
    /// `x86_64`.
    pub machine: String,
    /// Bytes of its own types.
    pub btf: Looked<u64>,
    /// RDMA modules that are loaded, by name.
    pub modules: Vec<Module>,
    /// Whether RDMA is there at all, loaded or built in.
    pub has_rdma_core: bool,
    /// `none`, `integrity` or `confidentiality`; absent: the kernel has no lockdown.
    pub lockdown: Looked<String>,
    /// kernel.kptr_restrict: 2 hides addresses from everybody.
    pub kptr_restrict: Option<u32>,
}

/// A loaded module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// `mlx5_ib`.
    pub name: String,
    /// Whether the kernel has its types.
    pub has_btf: bool,
}

/// A limit of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// None.
    Unlimited,
    /// So many bytes, or files.
    At(u64),
}

/// A process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its program, as the kernel has it (15 bytes at most).
    pub name: String,
    /// Its systemd unit; empty: none is told.
    pub unit: String,
    /// Effective user.
    pub uid: u32,
    /// Effective group, then the others.
    pub gids: Vec<u32>,
    /// Capabilities that it has, by bit; absent: not told.
    pub effective: Option<u64>,
    /// Capabilities that it and its children can ever have.
    pub bounding: Option<u64>,
    /// Memory that it may lock, bytes (soft).
    pub memlock: Option<Limit>,
    /// Files that it may have open (soft).
    pub open_files: Option<Limit>,
}

/// A service that is set up or runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceFacts {
    /// Which.
    pub service: Service,
    /// Its configuration file.
    pub file: PathBuf,
    /// Whether there is one.
    pub has_file: bool,
    /// What that file, and the variables and flags of the process, say.
    pub settings: Looked<Settings>,
    /// What the program itself says of the file; absent: the program is not found.
    pub verdict: Looked<Verdict>,
    /// What the shaper's own look at the machine says, where it does not run.
    pub preflight: Vec<Preflight>,
    /// Processes of it.
    pub running: Vec<Process>,
    /// The user that runs it, or would: number and groups; absent: there is none of that name.
    pub user: Looked<(u32, Vec<u32>)>,
    /// Its certificate; absent: there is none.
    pub certificate: Option<Certificate>,
    /// Its spool; absent: it keeps nothing on disk.
    pub spool: Option<Spool>,
}

/// What a program says of its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is taken.
    Valid,
    /// It is refused, in the program's words.
    Refused(String),
}

/// A line of `shaper-svc check`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preflight {
    /// Whether the service would not start.
    pub is_refused: bool,
    /// Its words.
    pub text: String,
}

/// What a service is told, as far as the checks ask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Hosts of which it reports: a tracer one, a shaper itself and the host that it shapes.
    pub reports_of: Vec<String>,
    /// `IP:PORT` or `unix:/path`.
    pub listen: String,
    /// Whether it listens for others without TLS.
    pub insecure_listen: bool,
    /// Whether it dials others without TLS.
    pub insecure_dial: bool,
    /// Collectors.
    pub collectors: Vec<String>,
    /// ca, certificate and key; absent: none is named.
    pub tls: Option<[PathBuf; 3]>,
    /// Where its spool would be; empty: it has none.
    pub spool: PathBuf,
    /// Whether somebody named that directory, or it is the default.
    pub spool_is_named: bool,
    /// Mebibytes that it may take.
    pub spool_max_mib: u64,
    /// Wires that a shaper has.
    pub wires: usize,
}

/// A file of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFile {
    /// Where.
    pub path: PathBuf,
    /// Whose it is, and who may read it.
    pub owner: Looked<Owner>,
    /// Why who looks cannot read it.
    pub unreadable: Option<String>,
}

/// Whose a file is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Permission bits.
    pub mode: u32,
}

impl Owner {
    /// Whether a user has the right `bit` (4: read, 2: write), by the mode alone.
    #[must_use]
    pub fn allows(self, (uid, gids): &(u32, Vec<u32>), bit: u32) -> bool {
        if *uid == 0 {
            return true;
        }
        let shift = if self.uid == *uid {
            6
        } else if gids.contains(&self.gid) {
            3
        } else {
            0
        };
        self.mode >> shift & bit == bit
    }
}

/// A certificate and its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Authorities, certificate, key.
    pub files: [KeyFile; 3],
    /// What they say; absent where one of them cannot be read.
    pub inspection: Option<Inspection>,
}

impl Certificate {
    /// Why the first of the files that cannot be read cannot.
    #[must_use]
    pub fn unreadable(&self) -> Option<&str> {
        self.files
            .iter()
            .find_map(|file| file.unreadable.as_deref())
    }
}

/// A spool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spool {
    /// Where.
    pub directory: PathBuf,
    /// Mebibytes that it may take; 0: it is switched off.
    pub max_mib: u64,
    /// Whether the directory is named in the configuration.
    pub is_named: bool,
    /// The directory, or the one in which it would be made.
    pub place: Looked<Place>,
}

/// A directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Whether it is the one that was asked for, and not one above it.
    pub is_it: bool,
    /// The directory.
    pub path: PathBuf,
    /// Whose it is.
    pub owner: Owner,
    /// Whether its file system is read-only.
    pub is_read_only: bool,
    /// Bytes that are free for others than root.
    pub free_bytes: u64,
}

/// An RDMA device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// `mlx5_0`.
    pub name: String,
    /// Its ports, by number.
    pub ports: Vec<Port>,
}

/// A port of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Port {
    /// From 1.
    pub number: u32,
    /// `ACTIVE`, `DOWN`, …; a sentence where it could not be read.
    pub state: Looked<String>,
    /// `LinkUp`, `Polling`, …; empty: not told.
    pub physical: String,
    /// `Ethernet` or `InfiniBand`; empty: not told.
    pub link_layer: String,
    /// `400 Gb/sec (4X NDR)`; empty: not told.
    pub rate: String,
    /// Its network device; empty: none.
    pub netdev: String,
    /// Places of the GID table that are in use.
    pub gids: Vec<u32>,
}

/// What is said to NCCL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nccl {
    /// What counts, by name: environment over the user's file over the machine's.
    pub settings: Vec<NcclSetting>,
    /// Files that are there and could not be read.
    pub unread: Vec<String>,
    /// Whether a shaper stands before this host; absent: not known.
    pub shaped: Option<bool>,
    /// Network interfaces of the machine; absent: not told.
    pub interfaces: Option<Vec<String>>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NcclSetting {
    /// `NCCL_IB_TIMEOUT`.
    pub name: String,
    /// Its value.
    pub value: String,
    /// Who says so.
    pub from: String,
}

/// The clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// Whether the kernel's clock is kept in step with another.
    pub synchronized: Looked<bool>,
    /// Programs that keep it, such as chronyd.
    pub daemons: Vec<String>,
}

/// Who was dialled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dialled {
    /// A collector, as a service does it.
    CollectorOf(Service),
    /// A collector, as who looks does it.
    Collector,
    /// A service of this machine, at its own address.
    Own(Service),
}

/// An address that was dialled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dial {
    /// Who.
    pub whom: Dialled,
    /// Where.
    pub address: String,
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of dialling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A service answered.
    Answered(Answer),
    /// Something is there, and there is no answer, and why.
    Refused(String),
    /// Nobody is there, and what the system said.
    Nobody(String),
    /// It was not tried, and why.
    NotTried(String),
}

/// How long a dial may take; what answers in a site does so within milliseconds.
pub const DIAL_WITHIN: std::time::Duration = CONNECT_TIMEOUT;

/// A service's answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Whether it says that it serves.
    pub serves: bool,
    /// Whether the link has TLS.
    pub has_tls: bool,
    /// This machine's clock minus the other's, milliseconds, give or take
    /// [`OFFSET_UNSURE_MS`]; absent: it does not tell its time.
    pub ahead_ms: Option<i64>,
}

/// How far the offset of a clock may be wrong, milliseconds: an answer carries its time in whole
/// seconds (RFC 9110, 6.6.1), and half a round trip is not known.
pub const OFFSET_UNSURE_MS: i64 = 1_000;
