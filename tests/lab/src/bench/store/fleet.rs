//! A fleet that fails: snapshots as tracers send them, made of a seed.
//!
//! A job fails on [`HOSTS_A_JOB`] hosts at once and goes on failing for [`SNAPSHOTS_A_JOB`]
//! snapshots of about [`RECORDS_A_SNAPSHOT`] records. Each row of a snapshot carries a full
//! sample, up to the tracer's bound, with the stacks and arguments that a tracer reads.

use prost::Message;
use rdmesh_proto::collector::v1::{Hello, ReportRequest, report_request::Item};
use rdmesh_proto::common::v1::{AgentKind, ClockPair, IdentitySource, ObjectType, Verb};
use rdmesh_proto::tracer::v1::{
    CgroupColumns, CgroupCounterColumns, ChainColumns, CounterColumns, DeviceColumns, ProbeColumns,
    RecordArguments, SampleColumns, SignatureColumns, Snapshot, StackColumns, TaskColumns,
};
use std::collections::BTreeMap;

use super::kinds::{KINDS, Kind, Step, arguments};

/// Hosts, each with a stream of its own.
pub(super) const HOSTS: u32 = 256;
/// Hosts on which a job fails.
pub(super) const HOSTS_A_JOB: u32 = 8;
/// Snapshots in which a host reports the failures of one attempt: it fails for as long as
/// its library retries, and is gone.
pub(super) const SNAPSHOTS_A_JOB: u64 = 3;
/// Failing returns in one snapshot of a host, about.
pub(super) const RECORDS_A_SNAPSHOT: u64 = 200;
/// Ranks on a host, each with a device of its own.
const RANKS: u32 = 8;
/// Threads of a rank that call into the kernel where little repeats itself.
const THREADS: u32 = 4;
/// As `tracer-svc/src/snapshot/aggregate.rs` bounds them.
const SAMPLES: usize = 64;
/// Over so many days the failures are spread.
pub(super) const DAYS: u64 = 30;
/// When the hosts began to run, seconds before the present: longer than `DAYS`.
const UP_SECONDS: u64 = 34 * 86_400;
const SECOND_NS: u64 = 1_000_000_000;
const INTERVAL_NS: u64 = 5 * SECOND_NS;

/// Numbers of a seed: SplitMix64 (Steele, Lea, Flood 2014), public domain.
#[derive(Debug, Clone)]
pub(super) struct Numbers(u64);

impl Numbers {
    pub(super) fn new(seed: u64, of: u64) -> Self {
        Self(seed ^ of.wrapping_mul(0xd605_bbb5_8c8a_bbfd))
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to less than `end`.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }
}

/// How much repeats itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repetition {
    /// 14 records in a row of a snapshot: ranks that try again.
    High,
    /// 2.3 records in a row: every call of every thread fails in its own way, once.
    Low,
}

/// What was made, and what it holds.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Made {
    pub(super) records: u64,
    pub(super) rows: u64,
    pub(super) snapshots: u64,
    pub(super) bytes: u64,
}

/// One message of one host.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) host: u32,
    pub(super) message: Vec<u8>,
}

/// A fleet; gives its snapshots in the order of their times.
#[derive(Debug)]
pub(super) struct Fleet {
    seed: u64,
    repetition: Repetition,
    /// Of its whole run, so that they are spread over all of the time.
    jobs: u64,
    next_job: u64,
    sequences: Vec<u64>,
    /// Wall clock of all hosts, nanoseconds since 1970, when the fleet was made.
    now_ns: u64,
}

impl Fleet {
    /// A fleet whose run has about `records` records, at `now_ns` since 1970.
    pub(super) fn new(seed: u64, repetition: Repetition, records: u64, now_ns: u64) -> Self {
        let of_job = RECORDS_A_SNAPSHOT * SNAPSHOTS_A_JOB * u64::from(HOSTS_A_JOB);
        Self {
            seed,
            repetition,
            jobs: records.div_ceil(of_job),
            next_job: 0,
            sequences: vec![0; HOSTS as usize],
            now_ns,
        }
    }

    pub(super) fn host_name(host: u32) -> String {
        format!("gpu-{host:04}")
    }

    pub(super) fn job_name(job: u64) -> String {
        format!("{}", 4_100_000 + job)
    }

    /// Jobs that were made so far.
    pub(super) fn jobs_made(&self) -> u64 {
        self.next_job
    }

    /// Wall clock when the job began to fail, nanoseconds since 1970.
    pub(super) fn job_at_ns(&self, job: u64) -> u64 {
        self.now_ns - UP_SECONDS * SECOND_NS + self.job_boot_ns(job)
    }

    fn job_boot_ns(&self, job: u64) -> u64 {
        let from = (UP_SECONDS - DAYS * 86_400) * SECOND_NS;
        from + job * (DAYS * 86_400 - 600) * SECOND_NS / self.jobs.max(1)
    }

    pub(super) fn hosts_of(&self, job: u64) -> Vec<u32> {
        let first = Numbers::new(self.seed, job).below(u64::from(HOSTS / HOSTS_A_JOB));
        let first = u32::try_from(first).unwrap_or(0) * HOSTS_A_JOB;
        (first..first + HOSTS_A_JOB).collect()
    }

    fn clock(&self) -> ClockPair {
        ClockPair {
            boottime_ns: UP_SECONDS * SECOND_NS,
            realtime_ns: self.now_ns,
        }
    }

    /// The first message of a host.
    pub(super) fn hello(&self, host: u32) -> Vec<u8> {
        let hello = Hello {
            agent: AgentKind::Tracer.into(),
            host: Self::host_name(host),
            boot_id: format!("00000000-0000-4000-8000-{host:012x}"),
            run_id: format!("{:08x}-0000-4000-8000-{host:012x}", self.seed),
            version: "0.1.0".into(),
            address: String::new(),
            started_at: None,
            clock: Some(self.clock()),
        };
        let request = ReportRequest {
            sequence: 0,
            item: Some(Item::Hello(hello)),
        };
        request.encode_to_vec()
    }

    /// The messages of further jobs, until they hold `records`.
    pub(super) fn messages(&mut self, records: u64) -> (Vec<Encoded>, Made) {
        let mut messages = Vec::new();
        let mut made = Made::default();
        while made.records < records {
            let job = self.next_job;
            self.next_job += 1;
            for number in 0..SNAPSHOTS_A_JOB {
                for host in self.hosts_of(job) {
                    let message = self.message(job, host, number, &mut made);
                    made.bytes += message.len() as u64;
                    messages.push(Encoded { host, message });
                }
            }
        }
        (messages, made)
    }

    fn message(&mut self, job: u64, host: u32, number: u64, made: &mut Made) -> Vec<u8> {
        let end = self.job_boot_ns(job) + (number + 1) * INTERVAL_NS;
        let mut snapshot = Building::new(self.seed, self.repetition, (job, host, number), end);
        snapshot.fill();
        made.records += snapshot.records;
        made.rows += snapshot.rows;
        made.snapshots += 1;
        let clock = self.clock();
        let sequence = &mut self.sequences[host as usize];
        *sequence += 1;
        let request = ReportRequest {
            sequence: *sequence,
            item: Some(Item::Snapshot(snapshot.finish(clock))),
        };
        request.encode_to_vec()
    }
}

/// Texts, each once.
#[derive(Default)]
struct Texts {
    places: BTreeMap<Vec<u8>, u32>,
    texts: Vec<Vec<u8>>,
}

impl Texts {
    fn of(&mut self, text: impl AsRef<[u8]>) -> u32 {
        let text = text.as_ref();
        if let Some(place) = self.places.get(text) {
            return *place;
        }
        let place = index(self.texts.len());
        self.texts.push(text.to_vec());
        self.places.insert(text.to_vec(), place);
        place
    }
}

/// A snapshot under construction.
struct Building {
    numbers: Numbers,
    repetition: Repetition,
    host: u32,
    end_ns: u64,
    kinds: Vec<&'static Kind>,
    texts: Texts,
    probes: BTreeMap<&'static str, u32>,
    signatures: BTreeMap<usize, u32>,
    counts: BTreeMap<(u32, u32), u64>,
    samples: SampleColumns,
    stacks: StackColumns,
    stack_places: BTreeMap<Vec<u64>, u32>,
    snapshot: Snapshot,
    records: u64,
    rows: u64,
}

impl Building {
    fn new(
        seed: u64,
        repetition: Repetition,
        (job, host, number): (u64, u32, u64),
        end: u64,
    ) -> Self {
        let mut of_job = Numbers::new(seed, job ^ 0x6a6f_6200_0000_0000);
        // A job fails in few ways; where little repeats itself, in many.
        let ways = match repetition {
            Repetition::High => 2 + of_job.below(2),
            Repetition::Low => 6,
        };
        let mut left: Vec<&'static Kind> = KINDS.iter().collect();
        let kinds = (0..ways.min(left.len() as u64))
            .map(|_| {
                let place = of_job.below(left.len() as u64);
                left.swap_remove(usize::try_from(place).unwrap_or(0))
            })
            .collect();
        let of_snapshot = (job << 20) | (u64::from(host) << 4) | number;
        let mut building = Self {
            numbers: Numbers::new(seed, of_snapshot),
            repetition,
            host,
            end_ns: end,
            kinds,
            texts: Texts::default(),
            probes: BTreeMap::new(),
            signatures: BTreeMap::new(),
            counts: BTreeMap::new(),
            samples: SampleColumns::default(),
            stacks: StackColumns::default(),
            stack_places: BTreeMap::new(),
            snapshot: Snapshot {
                interval_start_boot_ns: end - INTERVAL_NS,
                interval_end_boot_ns: end,
                inventory_id: format!("{host:064x}"),
                probes: Some(ProbeColumns::default()),
                signatures: Some(SignatureColumns::default()),
                cgroups: Some(CgroupColumns::default()),
                tasks: Some(TaskColumns::default()),
                devices: Some(DeviceColumns::default()),
                chains: Some(ChainColumns::default()),
                ..Snapshot::default()
            },
            records: 0,
            rows: 0,
        };
        building.texts.of("");
        building.places(seed, job);
        building
    }

    /// The cgroup of the job's step, its ranks with their threads, and their devices.
    fn places(&mut self, seed: u64, job: u64) {
        let name = Fleet::job_name(job);
        let path = format!("/system.slice/slurmstepd.scope/job_{name}/step_0/user/task_0");
        let (path, job_text) = (self.texts.of(path), self.texts.of(&name));
        let mut of_host = Numbers::new(seed, (job << 20) | u64::from(self.host));
        if let Some(cgroups) = &mut self.snapshot.cgroups {
            cgroups.id.push(20_000 + of_host.below(60_000));
            cgroups.path.push(path);
            cgroups.job_id.push(job_text);
            cgroups.requeue.push(0);
            cgroups.restart.push(0);
            cgroups.source.push(IdentitySource::Cgroup.into());
        }
        let threads = match self.repetition {
            Repetition::High => 1,
            Repetition::Low => THREADS,
        };
        let mut tgid = 100_000 + u32::try_from(of_host.below(3_000_000)).unwrap_or(0);
        let node = self.host % HOSTS_A_JOB;
        for rank in 0..RANKS {
            tgid += 1 + u32::try_from(of_host.below(40)).unwrap_or(0);
            let started = self.end_ns - 60 * SECOND_NS + of_host.below(20 * SECOND_NS);
            for thread in 0..threads {
                let comm = if thread == 0 {
                    "python3"
                } else {
                    "pt_nccl_proxy"
                };
                let comm = self.texts.of(comm);
                if let Some(tasks) = &mut self.snapshot.tasks {
                    tasks.tgid.push(tgid);
                    tasks.tid.push(tgid + thread);
                    tasks.start_boot_ns.push(started);
                    tasks.comm.push(comm);
                    tasks.cgroup.push(0);
                    tasks.job_id.push(job_text);
                    tasks.requeue.push(0);
                    tasks.restart.push(0);
                    tasks.rank.push(signed(node * RANKS + rank));
                    tasks.local_rank.push(signed(rank));
                    tasks.source.push(IdentitySource::Environment.into());
                }
            }
            let name = self.texts.of(format!("mlx5_{rank}"));
            let netdev = self.texts.of(format!("ens{}np0", 11 + 2 * rank));
            let pci = self
                .texts
                .of(format!("0000:{:02x}:00.0", 0x18 + 0x12 * rank));
            let driver = self.texts.of("mlx5_ib");
            if let Some(devices) = &mut self.snapshot.devices {
                devices.name.push(name);
                devices.netdev.push(netdev);
                devices.pci.push(pci);
                devices.driver.push(driver);
            }
        }
    }

    /// Rows until the snapshot has its records: each thread fails in one way after another.
    fn fill(&mut self) {
        let tasks = self.snapshot.tasks.as_ref().map_or(1, |t| t.tgid.len());
        let per_rank = tasks / RANKS as usize;
        let ways = self.kinds.len();
        for turn in 0..tasks * ways {
            if self.records >= RECORDS_A_SNAPSHOT {
                return;
            }
            let (way, task) = (turn / tasks, turn % tasks);
            let kind = self.kinds[way];
            let place = KINDS
                .iter()
                .position(|k| std::ptr::eq(k, kind))
                .unwrap_or(0);
            self.row(place, kind, task, task / per_rank);
        }
    }

    fn row(&mut self, place: usize, kind: &'static Kind, task: usize, device: usize) {
        let steps = kind.steps.len() as u64;
        let count = match self.repetition {
            // 14 records in the mean, between half and one and a half of it.
            Repetition::High => ((7 + self.numbers.below(15) + steps / 2) / steps).max(1),
            Repetition::Low => 1,
        };
        let signature = self.signature(place, kind);
        let first = self.end_ns - 1 - self.numbers.below(INTERVAL_NS - SECOND_NS);
        let lasts = match count {
            1 => 2_000 + self.numbers.below(60_000),
            many => many * (1_000_000 + self.numbers.below(100_000_000)),
        };
        let last = (first + lasts).min(self.end_ns - 1).max(first);
        let chain = index(usize::try_from(self.rows).unwrap_or(usize::MAX));
        if let Some(chains) = &mut self.snapshot.chains {
            chains.signature.push(signature);
            chains.task.push(index(task));
            chains.device_plus_one.push(index(device) + 1);
            chains.count.push(count);
            let after = first.wrapping_sub(self.end_ns - INTERVAL_NS);
            chains.first_after_start_ns.push(after.cast_signed());
            chains.span_ns.push(last - first);
            chains.marks.push(0);
        }
        for step in kind.steps {
            let probe = self.probe(step, kind.verb);
            *self.counts.entry((probe, step.errno)).or_default() += count;
        }
        if self.samples.chain.len() < SAMPLES {
            self.sample(chain, kind);
        }
        self.records += steps * count;
        self.rows += 1;
    }

    fn probe(&mut self, step: &'static Step, verb: Verb) -> u32 {
        if let Some(probe) = self.probes.get(step.function) {
            return *probe;
        }
        let place = index(self.probes.len());
        let (function, module) = (self.texts.of(step.function), self.texts.of(step.module));
        if let Some(probes) = &mut self.snapshot.probes {
            probes.function.push(function);
            probes.module.push(module);
            probes.layer.push(step.layer.into());
            probes.verb.push(verb.into());
            probes.object.push(ObjectType::Unspecified.into());
        }
        self.probes.insert(step.function, place);
        place
    }

    fn signature(&mut self, place: usize, kind: &'static Kind) -> u32 {
        if let Some(known) = self.signatures.get(&place) {
            return *known;
        }
        let probes: Vec<u32> = kind
            .steps
            .iter()
            .map(|s| self.probe(s, kind.verb))
            .collect();
        let driver = self.texts.of("mlx5_ib");
        let next = index(self.signatures.len());
        if let Some(signatures) = &mut self.snapshot.signatures {
            signatures.driver.push(driver);
            signatures.steps.push(index(kind.steps.len()));
            signatures.step_probe.extend(probes);
            signatures
                .step_errno
                .extend(kind.steps.iter().map(|s| s.errno));
        }
        self.signatures.insert(place, next);
        next
    }

    /// The records of one call, innermost first, with stacks as this host's kernel has them.
    fn sample(&mut self, chain: u32, kind: &'static Kind) {
        let mut after = 0;
        self.samples.chain.push(chain);
        self.samples.records.push(index(kind.steps.len()));
        for (depth, step) in kind.steps.iter().enumerate() {
            let probe = self.probe(step, kind.verb);
            let stack = self.stack_place(self.stack(kind, depth));
            let mut arguments_place = 0;
            if depth == 0 {
                let read = arguments(kind.verb, &mut self.numbers);
                self.samples
                    .arguments
                    .push(RecordArguments { verb: Some(read) });
                arguments_place = index(self.samples.arguments.len());
            }
            self.samples.after_first_ns.push(after);
            self.samples.probe.push(probe);
            self.samples.errno.push(step.errno);
            self.samples.stack_plus_one.push(stack + 1);
            self.samples.arguments_plus_one.push(arguments_place);
            after += 500 + self.numbers.below(4_000).cast_signed();
        }
    }

    fn stack_place(&mut self, stack: Vec<u64>) -> u32 {
        if let Some(place) = self.stack_places.get(&stack) {
            return *place;
        }
        let place = index(self.stacks.frames.len());
        self.stacks.frames.push(index(stack.len()));
        self.stacks.address.extend(&stack);
        self.stack_places.insert(stack, place);
        place
    }

    /// Return addresses: one for each caller, whose place in the kernel the boot chose.
    fn stack(&self, kind: &'static Kind, depth: usize) -> Vec<u64> {
        /// Frames between the system call's entry and the uverbs function.
        const OUTER: u64 = 9;
        let slide = Numbers::new(u64::from(self.host), 1).below(1 << 9) << 21;
        let modules = Numbers::new(u64::from(self.host), 2).below(1 << 16) << 12;
        let of_steps = kind.steps[depth..].iter().map(|step| {
            let offset = step.function.bytes().fold(7_u64, |hash, byte| {
                hash.wrapping_mul(31).wrapping_add(u64::from(byte))
            });
            0xffff_ffff_c000_0000 + modules + (offset & 0xf_ffff)
        });
        let outer = (0..OUTER).map(|frame| {
            let offset = Numbers::new(frame, 3).below(1 << 24);
            0xffff_ffff_8100_0000 + slide + offset
        });
        of_steps.chain(outer).collect()
    }

    fn finish(mut self, clock: ClockPair) -> Snapshot {
        let mut counters = CounterColumns::default();
        let mut of_cgroup = CgroupCounterColumns::default();
        for ((probe, errno), delta) in &self.counts {
            let total = delta + self.numbers.below(1_000);
            counters.probe.push(*probe);
            counters.errno.push(*errno);
            counters.delta.push(*delta);
            counters.total.push(total);
            of_cgroup.probe.push(*probe);
            of_cgroup.errno.push(*errno);
            of_cgroup.cgroup.push(0);
            of_cgroup.delta.push(*delta);
            of_cgroup.total.push(total);
        }
        Snapshot {
            clock: Some(clock),
            strings: self.texts.texts,
            counters: Some(counters),
            cgroup_counters: Some(of_cgroup),
            samples: Some(self.samples),
            stacks: Some(self.stacks),
            ..self.snapshot
        }
    }
}

fn index(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}

fn signed(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The very messages come again of the same seed, and they repeat as they are to.
    #[test]
    fn a_seed_makes_the_same_fleet_with_the_repetition_asked_for() {
        for (repetition, low, high) in [(Repetition::High, 13.0, 15.0), (Repetition::Low, 2.2, 2.4)]
        {
            let make = || Fleet::new(7, repetition, 1_000_000, 1 << 60).messages(200_000);
            let ((one, made), (other, _)) = (make(), make());
            let per_row = made.records as f64 / made.rows as f64;
            assert!((low..high).contains(&per_row), "{per_row}");
            assert!(one.iter().zip(&other).all(|(a, b)| a.message == b.message));
            let per_snapshot = made.records / made.snapshots;
            assert!((190..230).contains(&per_snapshot), "{per_snapshot}");
        }
    }
}
