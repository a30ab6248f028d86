//! From events to messages: everything that happens between two waits.

use std::collections::{BTreeMap, BTreeSet};

use rdmesh_proto::common::v1::{AttemptId, ClockPair};
use rdmesh_proto::errno as errnos;
use rdmesh_proto::tracer::v1::{ChainStep, ObservedFailure};
use rdmesh_services::uplink::{Item, UplinkHandle};

use super::feed::Feed;
use super::figures::Figures;
use super::kernel::Kernel;
use crate::automatic::Offers;
use crate::catalogue::{ExpectedRules, Layer};
use crate::chain::{Assembler, Chain, Places};
use crate::config::CostConfig;
use crate::cost::{Meter, Reading};
use crate::counters::Counters;
use crate::host::{Devices, Inventories, Roots, driver_names, scan};
use crate::identity::{Cgroups, Hierarchy, ProcessReader, Registry, Who};
use crate::record::{ArgsKind, Event, ProbeId, Record};
use crate::resolve::{ProbeState, Report};
use crate::signals::{Rules, Signals};
use crate::snapshot::{
    self, Aggregate, CoSignal, Made, Maker, Surroundings, co_signal, exit_signal,
};

/// Events that are taken in one go, a millisecond's work: between two goes the
/// tracer answers, and those who watch take their share.
const EVENTS_AT_ONCE: usize = 1024;

/// Goes before a snapshot, at most: what came before the interval's end is in the
/// ring by then, and a storm that refills it while it is read must not keep the
/// snapshot from leaving. A ring of the largest size holds 190 goes.
const GOES_BEFORE_SNAPSHOT: usize = 256;

/// Time after which the report is sent again although nothing changed: its counts
/// and its cost grow old at the collector. Ten kilobytes in ten minutes.
const REPORT_AGAIN_NS: u64 = 600_000_000_000;

/// Where messages go.
pub trait Outputs: Send {
    /// Sends an item; never waits.
    fn push(&mut self, item: Item);
    /// Snapshots that were given up since the run began.
    fn given_up(&self) -> u64;
}

impl Outputs for UplinkHandle {
    fn push(&mut self, item: Item) {
        if let Err(error) = UplinkHandle::push(self, item) {
            tracing::warn!(%error, "a message was not queued");
        }
    }

    fn given_up(&self) -> u64 {
        UplinkHandle::given_up(self)
    }
}

/// What a pipeline takes from its surroundings.
pub struct Settings {
    /// Where /proc and /sys are.
    pub roots: Roots,
    /// Reads both clocks.
    pub clock: Box<dyn Fn() -> ClockPair + Send>,
    /// Rules for failures that are part of normal work.
    pub rules: ExpectedRules,
    /// Which counters and lines of the kernel's log are co-signals.
    pub signal_rules: Rules,
    /// Live failures.
    pub feed: Feed,
    /// Kinds of failing calls for automatic mode.
    pub offers: Offers,
    /// Metrics, and what the gRPC service answers.
    pub figures: Figures,
    /// What the tracer may cost.
    pub cost: CostConfig,
    /// Reads the CPU time of this process, nanoseconds.
    pub process_ns: Box<dyn Fn() -> u64 + Send>,
}

/// The state between events and messages.
pub struct Pipeline<K, O> {
    pub(super) kernel: K,
    outputs: O,
    roots: Roots,
    clock: Box<dyn Fn() -> ClockPair + Send>,
    feed: Feed,
    pub(super) offers: Offers,
    pub(super) figures: Figures,
    pub(super) meter: Meter,
    pub(super) process_ns: Box<dyn Fn() -> u64 + Send>,
    pub(super) statistics_refused: bool,
    /// When the report is sent again although nothing changed, on the boot clock.
    report_again_ns: u64,
    registry: Registry,
    places: Places,
    assembler: Assembler,
    aggregate: Aggregate,
    maker: Maker,
    devices: Devices,
    inventories: Inventories,
    signals: Signals,
    pub(super) counters: Counters,
    /// Hooks that were logged, and what was said of them.
    hooks_logged: BTreeMap<String, String>,
    /// A record named a device that the last scan did not see.
    unknown_device: bool,
    /// Processes with a refused job id that were told already.
    refusals_told: u64,
    /// Ends of processes that the kernel side left out.
    exits_left_out: u64,
}

impl<K: Kernel, O: Outputs> Pipeline<K, O> {
    /// Scans the host and sends its inventory and the probe report.
    pub fn start(kernel: K, outputs: O, settings: Settings) -> Self {
        let processes = ProcessReader::at(
            &settings.roots.proc,
            rustix::param::clock_ticks_per_second(),
        );
        let cgroups = Cgroups::new(Hierarchy::mounted(&settings.roots.proc));
        let started = (settings.clock)();
        let reading = Reading {
            boot_ns: started.boottime_ns,
            process_ns: (settings.process_ns)(),
            ..Reading::default()
        };
        let mut pipeline = Self {
            places: Places::of_report(kernel.report()),
            kernel,
            outputs,
            signals: Signals::new(&settings.roots, settings.signal_rules, &started),
            roots: settings.roots,
            clock: settings.clock,
            feed: settings.feed,
            offers: settings.offers,
            figures: settings.figures,
            meter: Meter::new(settings.cost.statistics, settings.cost.budget(), reading),
            process_ns: settings.process_ns,
            statistics_refused: false,
            report_again_ns: started.boottime_ns.saturating_add(REPORT_AGAIN_NS),
            registry: Registry::new(processes, cgroups),
            assembler: Assembler::new(settings.rules),
            aggregate: Aggregate::default(),
            maker: Maker::new(started.boottime_ns),
            devices: Devices::default(),
            inventories: Inventories::default(),
            counters: Counters::default(),
            hooks_logged: BTreeMap::new(),
            unknown_device: false,
            refusals_told: 0,
            exits_left_out: 0,
        };
        // They were put on before.
        pipeline.assembler.hooks_changed(0..=started.boottime_ns);
        pipeline.time_probes(pipeline.meter.is_timed_first());
        pipeline.scan_host();
        pipeline.send_report();
        pipeline
    }

    /// Takes what the rings hold; returns whether more may be waiting.
    pub fn drain(&mut self) -> bool {
        let mut chains = Vec::new();
        for _ in 0..EVENTS_AT_ONCE {
            let Some(event) = self.kernel.next() else {
                self.finish(chains);
                return false;
            };
            match event {
                Ok(Event::Identity(identity)) => self.registry.take(&identity),
                Ok(Event::Record(record)) => self.take_record(record, &mut chains),
                Err(error) => {
                    self.figures.count_undecoded();
                    tracing::warn!(%error, "a record from the kernel was left out");
                }
            }
        }
        self.finish(chains);
        true
    }

    /// Ends the interval and sends its message.
    pub fn snapshot(&mut self) {
        for _ in 0..GOES_BEFORE_SNAPSHOT {
            if !self.drain() {
                break;
            }
        }
        match self.kernel.counters() {
            Ok(counters) => self.counters = counters,
            // The totals of the next reading make up for it.
            Err(error) => tracing::warn!(%error, "counters could not be read"),
        }
        let clock = (self.clock)();
        self.weigh(clock.boottime_ns);
        if clock.boottime_ns >= self.report_again_ns {
            self.report_again_ns = clock.boottime_ns.saturating_add(REPORT_AGAIN_NS);
            self.publish();
            self.outputs.push(self.figures.probe_report().into());
        }
        let mut stale = Vec::new();
        let drops = self.counters.records_dropped();
        self.assembler
            .close_stale(clock.boottime_ns, drops, |chain| stale.push(chain));
        self.look_around(&clock);
        self.send(stale, clock);
    }

    /// What else went wrong on the host in the interval.
    fn look_around(&mut self, clock: &ClockPair) {
        for signal in self.signals.look(&self.devices, clock) {
            self.add_co_signal(signal);
        }
        let left_out = self.signals.take_left_out();
        self.figures.count_co_signals_left_out(left_out);
        match self.kernel.renew_exits() {
            Ok(so_far) => {
                let new = so_far.saturating_sub(self.exits_left_out);
                self.exits_left_out = so_far;
                self.figures.count_co_signals_left_out(new);
            }
            Err(error) => tracing::warn!(%error, "ends of processes may not be told"),
        }
    }

    fn add_co_signal(&mut self, signal: CoSignal) {
        if !self.aggregate.add_co_signal(signal) {
            self.figures.count_co_signals_left_out(1);
        }
    }

    /// Closes what is open and sends the last message of the run.
    pub fn end(&mut self) {
        self.snapshot();
        let mut open = Vec::new();
        let drops = self.counters.records_dropped();
        self.assembler.close_all(drops, |chain| open.push(chain));
        if !open.is_empty() {
            let clock = (self.clock)();
            self.send(open, clock);
        }
    }

    /// Looks for modules and devices that came or went.
    pub fn refresh(&mut self) {
        match self.change_hooks(K::refresh) {
            Ok(true) => {
                self.scan_host();
                self.places_changed();
            }
            Ok(false) => self.scan_host(),
            Err(error) => {
                tracing::warn!(%error, "probes could not be refreshed; trying again with the next scan")
            }
        }
    }

    /// Puts hooks on or takes them off: what fails meanwhile is marked.
    pub(super) fn change_hooks<T>(&mut self, change: impl FnOnce(&mut K) -> T) -> T {
        let from = (self.clock)().boottime_ns;
        let before = self.hooks_on();
        let done = change(&mut self.kernel);
        if self.hooks_on() != before {
            let until = (self.clock)().boottime_ns;
            self.assembler.hooks_changed(from..=until);
        }
        done
    }

    /// Probes that stand now.
    fn hooks_on(&self) -> BTreeSet<ProbeId> {
        let probes = self.kernel.report().probes.iter();
        let on = probes.filter(|probe| matches!(probe.state, ProbeState::Attached(_)));
        on.map(|probe| probe.id).collect()
    }

    /// The report changed: for the places of records, and for those who read it.
    pub(super) fn places_changed(&mut self) {
        self.places = Places::of_report(self.kernel.report());
        self.send_report();
    }

    /// Reads the host's inventory and sends it when it changed.
    fn scan_host(&mut self) {
        let clock = (self.clock)();
        let scanned = scan(&self.roots, &driver_names(&self.roots), &clock);
        self.devices = Devices::of_inventory(&scanned.devices);
        self.signals.find_devices();
        self.unknown_device = false;
        if let Some(changed) = self.inventories.take(scanned, clock.realtime_ns) {
            tracing::info!(
                id = changed.id,
                devices = changed.devices.len(),
                "inventory"
            );
            let changed = changed.clone();
            self.outputs.push(changed.into());
        }
    }

    fn send_report(&mut self) {
        self.publish();
        let report = self.figures.probe_report();
        log_report(self.kernel.report(), &report, &mut self.hooks_logged);
        self.outputs.push(report.into());
    }

    /// Hands the present state to the gRPC service and the metrics.
    fn publish(&self) {
        self.figures.publish(
            self.kernel.report(),
            &self.counters,
            self.devices.drivers(),
            (self.clock)().realtime_ns,
        );
    }

    fn take_record(&mut self, record: Record, chains: &mut Vec<Chain>) {
        if record.args_kind == ArgsKind::Exit {
            self.take_exit(&record);
            return;
        }
        let is_event = self.places.get(record.probe).is_some_and(|p| p.is_event);
        if is_event {
            if let Some(signal) = co_signal(&record) {
                self.add_co_signal(signal);
            }
            return;
        }
        self.assembler
            .take(record, &self.places, |chain| chains.push(chain));
    }

    /// A process that a signal ended.
    fn take_exit(&mut self, record: &Record) {
        let who = self.registry.who(record);
        let Some(signal) = exit_signal(record, &who) else {
            return;
        };
        if !self.aggregate.add_exit(signal, record, &who) {
            self.figures.count_co_signals_left_out(1);
        }
    }

    fn finish(&mut self, chains: Vec<Chain>) {
        for chain in chains {
            let Some(outer) = chain.records.last() else {
                continue;
            };
            let who = self.registry.who(outer);
            let driver = self.driver(&chain);
            self.aggregate.add(&chain, &who, &driver);
            self.figures.count_chain(chain.marks);
            if self.feed.is_watched() {
                let failure = self.observed(&chain, &who);
                self.feed.publish(failure);
            }
        }
    }

    /// The module that drives the chain's device: sysfs knows it, or the probe of
    /// the driver's layer.
    fn driver(&mut self, chain: &Chain) -> String {
        let device = std::str::from_utf8(chain.device()).unwrap_or_default();
        if let Some(known) = self.devices.get(device)
            && !known.driver.is_empty()
        {
            return known.driver.clone();
        }
        self.unknown_device |= !device.is_empty() && self.devices.get(device).is_none();
        let report = self.kernel.report();
        let of_driver = chain
            .records
            .iter()
            .filter_map(|r| report.probe(r.probe))
            .find(|p| p.hook.layer == Layer::Driver);
        of_driver.map_or_else(String::new, |p| p.module.clone())
    }

    fn send(&mut self, late: Vec<Chain>, clock: ClockPair) {
        self.finish(late);
        if self.unknown_device {
            self.scan_host();
        }
        let aggregate = std::mem::take(&mut self.aggregate);
        self.offer(&aggregate);
        let mut around = Surroundings {
            report: self.kernel.report(),
            devices: &self.devices,
            registry: &mut self.registry,
            inventory_id: self.inventories.id(),
            snapshots_given_up: self.outputs.given_up(),
        };
        let made = self
            .maker
            .make(clock, &aggregate, &self.counters, &mut around);
        self.figures.count_message(&made);
        self.tell_refusals();
        self.outputs.push(match made {
            Made::Snapshot(snapshot) => (*snapshot).into(),
            Made::Heartbeat(heartbeat) => heartbeat.into(),
        });
        self.publish();
    }

    /// One line for an interval, however many processes had such a value: a job
    /// that starts a thousand of them must not fill the log.
    fn tell_refusals(&mut self) {
        let refusals = self.registry.refusals();
        let new = refusals.processes.saturating_sub(self.refusals_told);
        if let (1.., Some((tgid, why))) = (new, refusals.last) {
            self.refusals_told = refusals.processes;
            self.figures.count_refused(new);
            tracing::warn!(processes = new, tgid, %why, "a job id or attempt was not taken");
        }
    }

    fn observed(&mut self, chain: &Chain, who: &Who) -> ObservedFailure {
        let clock = (self.clock)();
        let report = self.kernel.report();
        let steps = chain.records.iter();
        let steps = steps.map(|r| step(r.probe, r.errno, report)).collect();
        let outer = chain.records.last();
        let cgroup = outer.map(|r| r.cgroup_id).unwrap_or_default();
        self.registry.search_cgroups([cgroup]);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        ObservedFailure {
            at: Some(real_time(chain.last_boot_ns(), &clock)),
            steps,
            tgid: outer.map_or(0, |r| r.tgid),
            tid: outer.map_or(0, |r| r.tid),
            comm: outer.map_or_else(String::new, |r| text(r.comm_name())),
            cgroup_path: text(&self.registry.cgroup(cgroup).path),
            device: text(chain.device()),
            attempt: who.attempt.as_ref().map(|a| AttemptId {
                job_id: a.job_id().to_owned(),
                requeue: a.requeue,
                restart: a.restart,
            }),
            source: snapshot::source(who.source).into(),
            expected: chain.marks.expected,
            swallowed: chain.marks.swallowed,
            incomplete: chain.marks.incomplete,
            step_arguments: chain
                .records
                .iter()
                .map(|record| snapshot::arguments(record).unwrap_or_default())
                .collect(),
        }
    }
}

/// A failing return in the words of the contract.
pub(super) fn step(probe: ProbeId, errno: u16, report: &Report) -> ChainStep {
    let number = probe.0;
    let probe = report.probe(probe);
    ChainStep {
        function: probe.map_or_else(|| format!("probe_{number}"), |p| p.function.clone()),
        module: probe.map_or_else(String::new, |p| snapshot::module(&p.module).to_owned()),
        layer: probe.map_or(0, |p| snapshot::layer(p.hook.layer).into()),
        errno: u32::from(errno),
        errno_name: errnos::name(i32::from(errno)),
    }
}

/// A moment of the boot clock as the host's time of day has it now.
fn real_time(boot_ns: u64, clock: &ClockPair) -> prost_types::Timestamp {
    let ago = clock.boottime_ns.saturating_sub(boot_ns);
    let real = clock.realtime_ns.saturating_sub(ago);
    let second = 1_000_000_000;
    prost_types::Timestamp {
        seconds: i64::try_from(real / second).unwrap_or(i64::MAX),
        nanos: i32::try_from(real % second).unwrap_or(0),
    }
}

/// One line for the whole, one for each logical hook that nothing serves; what was logged
/// before and has not changed is not logged again.
fn log_report(
    report: &Report,
    told: &rdmesh_proto::tracer::v1::ProbeReport,
    logged: &mut BTreeMap<String, String>,
) {
    use crate::catalogue::Group;
    use crate::resolve::{HookState, ProbeState};
    let attached = report
        .probes
        .iter()
        .filter(|p| matches!(p.state, ProbeState::Attached(_)))
        .count();
    tracing::info!(
        attached,
        logical = told.logical_attached,
        of = told.logical_total,
        drivers = ?told.drivers,
        kernel = told.kernel_release,
        "probes"
    );
    if !told.obstacle.is_empty() {
        tracing::warn!(obstacle = told.obstacle, "waiting");
        return;
    }
    for hook in report
        .hooks
        .iter()
        .filter(|h| h.hook.group == Group::Thirteen)
    {
        let name = hook.hook.name.as_str();
        let state = match &hook.state {
            HookState::Missing(reasons) => {
                let why: Vec<String> = reasons.iter().map(ToString::to_string).collect();
                why.join("; ")
            }
            HookState::Replaced { by } => by.join(", "),
            HookState::Attached => String::new(),
        };
        if logged.insert(name.to_owned(), state.clone()).as_ref() == Some(&state) {
            continue;
        }
        match &hook.state {
            HookState::Missing(_) => tracing::warn!(hook = name, why = state, "hook missing"),
            HookState::Replaced { .. } => tracing::info!(hook = name, by = state, "hook replaced"),
            HookState::Attached => {}
        }
    }
}
