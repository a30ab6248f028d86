//! Loads and attaches the probes.
//!
//! # How probes are loaded
//!
//! 1. `host` and `check` find out what makes loading impossible. `host` lists the
//!    loaded modules that the catalogue names or that use `ib_core`.
//! 2. The BTF of vmlinux and of those modules is read as bytes ([`crate::btf`]).
//!    `memory` copies the data symbols of each driver that are large enough to be a
//!    `struct ib_device_ops`, by running a small program once, and
//!    [`crate::resolve::find_tables`] tells tables from the rest.
//! 3. [`crate::resolve::resolve`] makes the plan: functions, how each was found,
//!    what is missing and why.
//! 4. For each module, `object` cuts the few structs that the program reads out of
//!    the BTF and lets aya-obj fit the program to them (CO-RE), maps included. aya
//!    itself cannot attach to a function in a module: it reads no split BTF.
//! 5. For each function, `entry` writes the first instructions (where the return
//!    value stands, how wide the comparison is, the probe's number), and `sys`
//!    loads the whole for that function's BTF id in that module and attaches it.
//!
//! 6. A function without BTF, or one that the kernel builds no trampoline for, gets
//!    a kretprobe instead (`link`): several at once by a link where the kernel has
//!    such, else a perf event. The report says so.
//!
//! 7. One program more tells which processes a signal ended (`exits`).
//!
//! Nothing is pinned: links, programs and maps are descriptors and end with the
//! process. Everything read from the kernel is freed when the plan is attached.

mod arch;
mod attach;
mod check;
mod choose;
mod counts;
mod entry;
mod error;
mod exits;
mod functions;
mod host;
mod link;
mod memory;
mod object;
mod perf;
pub mod price;
mod reach;
mod rings;
mod sys;
mod wide;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

pub use choose::ByRules;
pub use error::LoadError;
pub use reach::Reach;
pub use rings::Events;
pub use wide::{MOST_ONE_BY_ONE, Place, Way, Wide};

use crate::btf::{Blob, Types};
use crate::catalogue::Catalogue;
use crate::counters::{Counters, RunTime};
use crate::record::ProbeId;
use crate::resolve::{Missing, Probe, ProbeState, Report};

use counts::{CounterMaps, take};
use exits::Exits;
use functions::FunctionTypes;
use host::Modules;
use link::Link;
use object::{MAX_PROBES, Template};

/// Sizes of what the kernel holds for the tracer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of the ring of records; a power of two, at least 64 KiB. 1 MiB holds
    /// about 3,000 records: a rank that retries `modify_qp` 34 times through five
    /// layers leaves 170, so that every rank of a 16-rank host fits.
    pub ring_bytes: u32,
    /// Entries of the map by (probe, errno). 70 probes rarely see more than ten
    /// errnos each.
    pub errno_entries: u32,
    /// Entries of the map by (probe, errno, cgroup).
    pub cgroup_entries: u32,
    /// When the rules of `tracer-svc select` are asked.
    pub by_rules: ByRules,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            ring_bytes: 1 << 20,
            errno_entries: 4096,
            cgroup_entries: 16384,
            by_rules: ByRules::Unchecked,
        }
    }
}

/// The attached probes. Dropping it takes them off; nothing is pinned, so that
/// the kernel takes them off too when the process dies.
///
/// All methods block (loading takes up to seconds on a slow machine): call them
/// off the async threads.
pub struct Tracer {
    catalogue: Catalogue,
    template: Template,
    functions: FunctionTypes,
    map_fds: BTreeMap<String, OwnedFd>,
    counters: CounterMaps,
    exits: Exits,
    /// One for each attached probe; dropping it detaches.
    links: BTreeMap<ProbeId, Link>,
    report: Report,
    /// What the resolver did not find, by index of the hook.
    missing: Vec<(usize, Missing)>,
    /// The modules of the last look.
    modules: Option<Modules>,
    /// Modules that stay detached by request, as they were loaded then.
    held: BTreeMap<String, Option<u64>>,
    /// Why nothing at all is attached.
    stopped: Option<Missing>,
    /// Held while the kernel times programs for us.
    statistics: Option<OwnedFd>,
    by_rules: ByRules,
    /// Drivers that the rules were asked about, and what came of it.
    asked: BTreeSet<String>,
    resolution: String,
}

impl Tracer {
    /// Checks what the kernel allows, makes the maps, and attaches what the
    /// loaded modules have. With no RDMA module loaded it succeeds with nothing
    /// attached: call [`Tracer::refresh`] when a module appears.
    ///
    /// # Errors
    /// What the running kernel or this process lacks; see [`LoadError`]. A hook
    /// that cannot be attached is no error: it is in the report.
    pub fn start(catalogue: Catalogue, options: &Options) -> Result<(Self, Events), LoadError> {
        host::check()?;
        let kernel = kernel_types()?;
        check::check_tracing(&Types::whole(&kernel))?;
        let template = Template::parse()?;
        let functions = FunctionTypes::load().map_err(|error| {
            LoadError::Program(format!("the kernel refused the program's own BTF: {error}"))
        })?;
        let mut maps = template.create_maps(options)?;
        let map_fds = object::duplicate(&maps)?;
        let counters = CounterMaps::new(&mut maps)?;
        let (identities, records) = (take(&mut maps, "identities")?, take(&mut maps, "records")?);
        let events = Events::new(identities, records).map_err(|error| LoadError::Map {
            map: "records".to_owned(),
            error: error.to_string(),
        })?;
        let mut tracer = Self {
            report: Report::new(&catalogue, Vec::new(), &[]),
            exits: Exits::new(&map_fds)?,
            catalogue,
            template,
            functions,
            map_fds,
            counters,
            links: BTreeMap::new(),
            missing: Vec::new(),
            modules: None,
            held: BTreeMap::new(),
            stopped: None,
            statistics: None,
            by_rules: options.by_rules,
            asked: BTreeSet::new(),
            resolution: String::new(),
        };
        tracer.look(&kernel)?;
        drop(kernel);
        sys::return_memory();
        Ok((tracer, events))
    }

    /// Looks again at the loaded modules and attaches what is new. Cheap when
    /// nothing has changed.
    ///
    /// # Errors
    /// As [`Tracer::start`].
    pub fn refresh(&mut self) -> Result<Vec<ProbeId>, LoadError> {
        let modules = Modules::read(&self.catalogue)?;
        // Who was detached to be unloaded, and is gone or came back, may be attached
        // again.
        self.held
            .retain(|module, loaded| modules.loaded(module) && modules.identity(module) == *loaded);
        if self.modules.as_ref() == Some(&modules) {
            return Ok(Vec::new());
        }
        let kernel = kernel_types()?;
        let attached = self.look(&kernel)?;
        drop(kernel);
        sys::return_memory();
        Ok(attached)
    }

    /// Takes the probes off one module, or off all with `None`, so that it can
    /// be unloaded. They stay off until the module was gone and came back, or
    /// [`Tracer::allow`]. Returns the probes taken off.
    pub fn detach(&mut self, module: Option<&str>) -> Vec<ProbeId> {
        if module.is_none() {
            self.exits.detach();
        }
        let mut held: Vec<String> = module.map(ToOwned::to_owned).into_iter().collect();
        let off = self.take_off(|probe| {
            if module.is_some_and(|m| m != probe.module) {
                return None;
            }
            held.push(probe.module.clone());
            Some(Missing::Detached(probe.module.clone()))
        });
        let now = Modules::read(&self.catalogue).ok();
        let now = now.as_ref().or(self.modules.as_ref());
        for module in held {
            let loaded = now.and_then(|m| m.identity(&module));
            self.held.insert(module, loaded);
        }
        off
    }

    /// Takes every probe off, for what is told as the reason, and attaches nothing
    /// until [`Tracer::allow`]. Returns the probes taken off.
    pub fn stop(&mut self, why: &Missing) -> Vec<ProbeId> {
        self.stopped = Some(why.clone());
        self.statistics = None;
        self.exits.detach();
        self.take_off(|_| Some(why.clone()))
    }

    /// For those probes that have a reason.
    fn take_off(&mut self, mut why: impl FnMut(&Probe) -> Option<Missing>) -> Vec<ProbeId> {
        let mut probes = std::mem::take(&mut self.report.probes);
        let mut off = Vec::new();
        for probe in &mut probes {
            let Some(why) = why(probe) else { continue };
            if self.links.remove(&probe.id).is_some() {
                probe.state = ProbeState::Missing(why);
                off.push(probe.id);
            }
        }
        self.tell(probes);
        off
    }

    /// Puts the report together.
    fn tell(&mut self, probes: Vec<Probe>) {
        self.report = Report {
            resolution: self.resolution.clone(),
            ..Report::new(&self.catalogue, probes, &self.missing)
        };
    }

    /// Undoes [`Tracer::detach`] and, for all modules, [`Tracer::stop`]; the next
    /// [`Tracer::refresh`] attaches again.
    pub fn allow(&mut self, module: Option<&str>) {
        match module {
            Some(module) => {
                self.held.remove(module);
            }
            None => {
                self.held.clear();
                self.stopped = None;
                self.exits.allow();
            }
        }
        self.modules = None;
    }

    /// Nothing is attached since [`Tracer::stop`].
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// Lets the kernel time the programs, or ends that. It times *every* program of
    /// the host meanwhile, which costs each run about two readings of a clock.
    ///
    /// # Errors
    /// The kernel refuses (before 5.8, or no `CAP_SYS_ADMIN`).
    pub fn time_programs(&mut self, on: bool) -> io::Result<()> {
        match (on, &self.statistics) {
            (true, None) => self.statistics = Some(sys::enable_statistics()?),
            (true, Some(_)) => {}
            (false, _) => self.statistics = None,
        }
        Ok(())
    }

    /// Whether the kernel times programs now, for us or because somebody set
    /// `kernel.bpf_stats_enabled`.
    #[must_use]
    pub fn are_programs_timed(&self) -> bool {
        self.statistics.is_some() || host::programs_are_timed()
    }

    /// What is attached and why the rest is not.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Lets ends of processes be told again, `EXITS_AT_ONCE` of `bpf/probes.bpf.c`;
    /// returns how many were not since the tracer's start.
    ///
    /// # Errors
    /// The kernel refused to read or write a map.
    pub fn renew_exits(&mut self) -> Result<u64, LoadError> {
        self.exits.give_room()
    }

    /// All counters.
    ///
    /// # Errors
    /// The kernel refused to read a map.
    pub fn counters(&self) -> Result<Counters, LoadError> {
        let mut counters = self.counters.read(self.report.probes.len())?;
        counters.run_times = vec![RunTime::default(); counters.losses.len()];
        for (probe, link) in &self.links {
            // A program that cannot be asked leaves its counts as they are: the other
            // counters are still exact.
            let Ok(figures) = sys::figures_of(link.program.as_fd()) else {
                continue;
            };
            let at = probe.index();
            if let (Some(losses), Some(run_time)) =
                (counters.losses.get_mut(at), counters.run_times.get_mut(at))
            {
                losses.unseen = figures.missed;
                *run_time = figures.run_time;
            }
        }
        Ok(counters)
    }
}

impl std::fmt::Debug for Tracer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tracer")
            .field("attached", &self.links.len())
            .field("held", &self.held)
            .finish_non_exhaustive()
    }
}

fn kernel_types() -> Result<Blob, LoadError> {
    Blob::parse(host::kernel_btf()?, None).map_err(|error| btf_error("vmlinux", error))
}

fn btf_error(module: &str, error: impl std::fmt::Display) -> LoadError {
    LoadError::Btf {
        module: module.to_owned(),
        error: error.to_string(),
    }
}
