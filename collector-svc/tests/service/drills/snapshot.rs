//! Snapshots of a made host, chain by chain.

use std::collections::BTreeMap;

use rdmesh_proto::common::v1::{IdentitySource, Layer, ObjectType, Verb};
use rdmesh_proto::tracer::v1::record_arguments::Verb as Read;
use rdmesh_proto::tracer::v1::{
    CgroupColumns, CgroupCounterColumns, ChainColumns, CoSignalColumns, CoSignalKind,
    CounterColumns, DeviceColumns, ProbeColumns, ProbeCountColumns, RecordArguments,
    SignatureColumns, Snapshot, TaskColumns,
};

use crate::made::Host;

const SECOND: u64 = 1_000_000_000;

/// Every snapshot tells of the minute before it is sent.
pub(super) const MINUTE: u64 = 60;

/// A step of a chain.
pub(super) type Step = (&'static str, &'static str, Layer, u32);

/// One failing call, or some.
#[derive(Clone)]
pub(super) struct Fail {
    verb: Verb,
    driver: &'static str,
    steps: Vec<Step>,
    seconds_ago: f64,
    lasts: f64,
    count: u64,
    marks: u32,
    tgid: u32,
    rank: i32,
    comm: &'static str,
    device: &'static str,
    arguments: Option<(usize, Read)>,
    named: bool,
}

impl Fail {
    /// Half a minute ago, by rank 3.
    pub(super) fn new(verb: Verb, driver: &'static str, steps: &[Step]) -> Self {
        Self {
            verb,
            driver,
            steps: steps.to_vec(),
            seconds_ago: 30.0,
            lasts: 0.0,
            count: 1,
            marks: 0,
            tgid: 100,
            rank: 3,
            comm: "python3",
            device: "mlx5_0",
            arguments: None,
            named: true,
        }
    }

    pub(super) fn ago(mut self, seconds: f64) -> Self {
        self.seconds_ago = seconds;
        self
    }

    /// So many calls within so many seconds.
    pub(super) fn times(mut self, count: u64, seconds: f64) -> Self {
        (self.count, self.lasts) = (count, seconds);
        self
    }

    pub(super) fn marked(mut self, mark: impl Into<i32>) -> Self {
        self.marks |= u32::try_from(mark.into()).unwrap();
        self
    }

    pub(super) fn rank(mut self, rank: i32) -> Self {
        self.rank = rank;
        self.tgid = 100 + u32::try_from(rank).unwrap();
        self
    }

    pub(super) fn device(mut self, device: &'static str) -> Self {
        self.device = device;
        self
    }

    /// What the arguments say at the step with that place, from the innermost.
    pub(super) fn read(mut self, step: usize, read: Read) -> Self {
        self.arguments = Some((step, read));
        self
    }

    /// A task that names no job.
    pub(super) fn nameless(mut self) -> Self {
        self.named = false;
        self
    }
}

/// Something else that was seen.
#[derive(Clone, Copy)]
pub(super) struct Sign {
    pub(super) seconds_ago: f64,
    pub(super) kind: CoSignalKind,
    pub(super) independent: bool,
    pub(super) name: &'static str,
    pub(super) detail: &'static str,
}

/// Texts, each once.
#[derive(Default)]
struct Texts {
    texts: Vec<Vec<u8>>,
    places: BTreeMap<String, u32>,
}

impl Texts {
    fn of(&mut self, text: &str) -> u32 {
        if let Some(place) = self.places.get(text) {
            return *place;
        }
        let place = u32::try_from(self.texts.len()).unwrap();
        self.texts.push(text.as_bytes().to_vec());
        self.places.insert(text.to_owned(), place);
        place
    }
}

/// A snapshot under construction.
struct Building {
    texts: Texts,
    probes: ProbeColumns,
    known: BTreeMap<(String, String), u32>,
    snapshot: Snapshot,
    end: u64,
    job: String,
    requeue: u32,
}

/// The snapshot of `host` about what failed and was seen there in the last minute.
pub(super) fn snapshot(
    host: &Host,
    (job, requeue): (&str, u32),
    fails: &[Fail],
    signs: &[Sign],
    drops: u64,
) -> Snapshot {
    let end = host.boot_ns();
    let mut building = Building {
        texts: Texts::default(),
        probes: ProbeColumns::default(),
        known: BTreeMap::new(),
        snapshot: Snapshot {
            clock: Some(host.clock()),
            interval_start_boot_ns: end - MINUTE * SECOND,
            interval_end_boot_ns: end,
            inventory_id: "inv".into(),
            signatures: Some(SignatureColumns::default()),
            tasks: Some(TaskColumns::default()),
            devices: Some(DeviceColumns::default()),
            chains: Some(ChainColumns::default()),
            counters: Some(CounterColumns::default()),
            cgroup_counters: Some(CgroupCounterColumns::default()),
            co_signals: Some(CoSignalColumns::default()),
            ..Snapshot::default()
        },
        end,
        job: job.to_owned(),
        requeue,
    };
    building.texts.of("");
    building.cgroup();
    for fail in fails {
        building.fail(fail);
    }
    for sign in signs {
        building.sign(sign);
    }
    building.finish(drops)
}

impl Building {
    /// The one cgroup, which names no job: tasks do.
    fn cgroup(&mut self) {
        let path = self.texts.of("/slurm/step");
        self.snapshot.cgroups = Some(CgroupColumns {
            id: vec![77],
            path: vec![path],
            job_id: vec![0],
            requeue: vec![0],
            restart: vec![0],
            source: vec![IdentitySource::None.into()],
        });
    }

    fn probe(&mut self, step: &Step, verb: Verb) -> u32 {
        let (function, module, layer, _) = step;
        let key = ((*function).to_owned(), (*module).to_owned());
        if let Some(probe) = self.known.get(&key) {
            return *probe;
        }
        let probe = u32::try_from(self.probes.function.len()).unwrap();
        self.probes.function.push(self.texts.of(function));
        self.probes.module.push(self.texts.of(module));
        self.probes.layer.push((*layer).into());
        // Helpers serve many verbs.
        let verb = match layer {
            Layer::Memory | Layer::Firmware => Verb::Unspecified,
            _ => verb,
        };
        self.probes.verb.push(verb.into());
        self.probes.object.push(ObjectType::Mr.into());
        self.known.insert(key, probe);
        probe
    }

    fn fail(&mut self, fail: &Fail) {
        let probes: Vec<u32> = fail
            .steps
            .iter()
            .map(|step| self.probe(step, fail.verb))
            .collect();
        let signature = self.signature(fail, &probes);
        let task = self.task(fail);
        let device = self.device(fail);
        let first = self.end - nanoseconds(fail.seconds_ago);
        let after = first.wrapping_sub(self.snapshot.interval_start_boot_ns);
        let chains = self.snapshot.chains.as_mut().unwrap();
        let chain = u32::try_from(chains.signature.len()).unwrap();
        chains.signature.push(signature);
        chains.task.push(task);
        chains.device_plus_one.push(device + 1);
        chains.count.push(fail.count);
        chains.first_after_start_ns.push(after.cast_signed());
        chains.span_ns.push(nanoseconds(fail.lasts));
        chains.marks.push(fail.marks);
        self.count(fail, &probes);
        if let Some((at, read)) = &fail.arguments {
            let samples = self.snapshot.samples.get_or_insert_default();
            samples.chain.push(chain);
            samples
                .records
                .push(u32::try_from(fail.steps.len()).unwrap());
            samples.arguments.push(RecordArguments {
                verb: Some(read.clone()),
            });
            let place = u32::try_from(samples.arguments.len()).unwrap();
            for (step, probe) in probes.iter().enumerate() {
                samples.after_first_ns.push(0);
                samples.probe.push(*probe);
                samples.errno.push(fail.steps[step].3);
                samples.stack_plus_one.push(0);
                samples
                    .arguments_plus_one
                    .push(if step == *at { place } else { 0 });
            }
        }
    }

    fn signature(&mut self, fail: &Fail, probes: &[u32]) -> u32 {
        let driver = self.texts.of(fail.driver);
        let signatures = self.snapshot.signatures.as_mut().unwrap();
        let place = u32::try_from(signatures.driver.len()).unwrap();
        signatures.driver.push(driver);
        signatures.steps.push(u32::try_from(probes.len()).unwrap());
        signatures.step_probe.extend(probes);
        signatures.step_errno.extend(fail.steps.iter().map(|s| s.3));
        place
    }

    fn task(&mut self, fail: &Fail) -> u32 {
        let comm = self.texts.of(fail.comm);
        let (job, source) = match fail.named {
            true => (self.job.clone(), IdentitySource::Environment),
            false => (String::new(), IdentitySource::None),
        };
        let job = self.texts.of(&job);
        let tasks = self.snapshot.tasks.as_mut().unwrap();
        let place = u32::try_from(tasks.tgid.len()).unwrap();
        tasks.tgid.push(fail.tgid);
        tasks.tid.push(fail.tgid);
        tasks.start_boot_ns.push(5);
        tasks.comm.push(comm);
        tasks.cgroup.push(0);
        tasks.job_id.push(job);
        tasks
            .requeue
            .push(if fail.named { self.requeue } else { 0 });
        tasks.restart.push(0);
        tasks.rank.push(if fail.named { fail.rank } else { -1 });
        tasks.local_rank.push(-1);
        tasks.source.push(source.into());
        place
    }

    fn device(&mut self, fail: &Fail) -> u32 {
        let (name, driver) = (self.texts.of(fail.device), self.texts.of(fail.driver));
        let devices = self.snapshot.devices.as_mut().unwrap();
        devices.name.push(name);
        devices.netdev.push(0);
        devices.pci.push(0);
        devices.driver.push(driver);
        u32::try_from(devices.name.len() - 1).unwrap()
    }

    /// The counters see what the records tell.
    fn count(&mut self, fail: &Fail, probes: &[u32]) {
        let counters = self.snapshot.counters.as_mut().unwrap();
        let of_cgroup = self.snapshot.cgroup_counters.as_mut().unwrap();
        for (probe, step) in probes.iter().zip(&fail.steps) {
            counters.probe.push(*probe);
            counters.errno.push(step.3);
            counters.delta.push(fail.count);
            counters.total.push(fail.count);
            of_cgroup.probe.push(*probe);
            of_cgroup.errno.push(step.3);
            of_cgroup.cgroup.push(0);
            of_cgroup.delta.push(fail.count);
            of_cgroup.total.push(fail.count);
        }
    }

    fn sign(&mut self, sign: &Sign) {
        let (name, detail) = (self.texts.of(sign.name), self.texts.of(sign.detail));
        let signals = self.snapshot.co_signals.as_mut().unwrap();
        signals
            .boot_ns
            .push(self.end - nanoseconds(sign.seconds_ago));
        signals.kind.push(sign.kind.into());
        signals.independent.push(sign.independent);
        signals.name.push(name);
        signals.detail.push(detail);
        signals.device_plus_one.push(0);
        signals.task_plus_one.push(0);
    }

    fn finish(mut self, drops: u64) -> Snapshot {
        if drops > 0 {
            self.snapshot.drops = Some(ProbeCountColumns {
                probe: vec![0],
                delta: vec![drops],
                total: vec![drops],
            });
        }
        self.snapshot.probes = Some(self.probes);
        self.snapshot.strings = self.texts.texts;
        self.snapshot
    }
}

fn nanoseconds(seconds: f64) -> u64 {
    std::time::Duration::from_secs_f64(seconds)
        .as_nanos()
        .try_into()
        .unwrap()
}
