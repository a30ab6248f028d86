//! Reads a snapshot back into rows: what a receiver does, for the tests.

use rdmesh_proto::tracer::v1::Snapshot;

/// A row of chains with everything that it points to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ChainRow {
    /// (function, errno), innermost first.
    pub(super) steps: Vec<(String, u32)>,
    pub(super) driver: String,
    pub(super) tid: u32,
    pub(super) comm: Vec<u8>,
    pub(super) job: String,
    pub(super) requeue: u32,
    pub(super) rank: i32,
    pub(super) cgroup_path: Vec<u8>,
    pub(super) device: Option<String>,
    pub(super) count: u64,
    pub(super) first_boot_ns: u64,
    pub(super) last_boot_ns: u64,
    pub(super) marks: u32,
}

/// Every chain; panics when an index points nowhere or columns differ in length.
pub(super) fn chains(snapshot: &Snapshot) -> Vec<ChainRow> {
    check(snapshot);
    let columns = snapshot.chains.as_ref().unwrap();
    let tasks = snapshot.tasks.as_ref().unwrap();
    let cgroups = snapshot.cgroups.as_ref().unwrap();
    (0..columns.signature.len())
        .map(|row| {
            let task = columns.task[row] as usize;
            let (driver, steps) = signature(snapshot, columns.signature[row] as usize);
            let cgroup = tasks.cgroup[task] as usize;
            let device = columns.device_plus_one[row].checked_sub(1);
            ChainRow {
                steps,
                driver,
                tid: tasks.tid[task],
                comm: bytes(snapshot, tasks.comm[task]),
                job: text(snapshot, tasks.job_id[task]),
                requeue: tasks.requeue[task],
                rank: tasks.rank[task],
                cgroup_path: bytes(snapshot, cgroups.path[cgroup]),
                device: device.map(|d| {
                    text(
                        snapshot,
                        snapshot.devices.as_ref().unwrap().name[d as usize],
                    )
                }),
                count: columns.count[row],
                first_boot_ns: first_boot_ns(snapshot, row),
                last_boot_ns: first_boot_ns(snapshot, row) + columns.span_ns[row],
                marks: columns.marks[row],
            }
        })
        .collect()
}

fn first_boot_ns(snapshot: &Snapshot, row: usize) -> u64 {
    let after = snapshot.chains.as_ref().unwrap().first_after_start_ns[row];
    // As it was made: what no clock tells comes back too.
    snapshot.interval_start_boot_ns.wrapping_add_signed(after)
}

/// (function, errno, delta, total)
pub(super) fn counters(snapshot: &Snapshot) -> Vec<(String, u32, u64, u64)> {
    let Some(c) = &snapshot.counters else {
        return Vec::new();
    };
    (0..c.probe.len())
        .map(|i| {
            (
                function(snapshot, c.probe[i]),
                c.errno[i],
                c.delta[i],
                c.total[i],
            )
        })
        .collect()
}

/// (function, errno, cgroup id, delta, total)
pub(super) fn cgroup_counters(snapshot: &Snapshot) -> Vec<(String, u32, u64, u64, u64)> {
    let Some(c) = &snapshot.cgroup_counters else {
        return Vec::new();
    };
    let ids = &snapshot.cgroups.as_ref().unwrap().id;
    (0..c.probe.len())
        .map(|i| {
            (
                function(snapshot, c.probe[i]),
                c.errno[i],
                ids[c.cgroup[i] as usize],
                c.delta[i],
                c.total[i],
            )
        })
        .collect()
}

/// (function, delta, total)
pub(super) fn drops(snapshot: &Snapshot) -> Vec<(String, u64, u64)> {
    let Some(c) = &snapshot.drops else {
        return Vec::new();
    };
    (0..c.probe.len())
        .map(|i| (function(snapshot, c.probe[i]), c.delta[i], c.total[i]))
        .collect()
}

fn signature(snapshot: &Snapshot, place: usize) -> (String, Vec<(String, u32)>) {
    let s = snapshot.signatures.as_ref().unwrap();
    let start: usize = s.steps[..place].iter().map(|n| *n as usize).sum();
    let steps = (start..start + s.steps[place] as usize)
        .map(|i| (function(snapshot, s.step_probe[i]), s.step_errno[i]))
        .collect();
    (text(snapshot, s.driver[place]), steps)
}

fn function(snapshot: &Snapshot, probe: u32) -> String {
    text(
        snapshot,
        snapshot.probes.as_ref().unwrap().function[probe as usize],
    )
}

fn bytes(snapshot: &Snapshot, place: u32) -> Vec<u8> {
    snapshot.strings[place as usize].clone()
}

fn text(snapshot: &Snapshot, place: u32) -> String {
    String::from_utf8(bytes(snapshot, place)).unwrap()
}

fn check(snapshot: &Snapshot) {
    let t = snapshot.tasks.as_ref().unwrap();
    let lengths = [
        t.tid.len(),
        t.start_boot_ns.len(),
        t.comm.len(),
        t.cgroup.len(),
        t.job_id.len(),
        t.requeue.len(),
        t.restart.len(),
        t.rank.len(),
        t.local_rank.len(),
        t.source.len(),
    ];
    assert!(lengths.iter().all(|n| *n == t.tgid.len()), "{lengths:?}");
    let c = snapshot.chains.as_ref().unwrap();
    let lengths = [
        c.task.len(),
        c.device_plus_one.len(),
        c.count.len(),
        c.first_after_start_ns.len(),
        c.span_ns.len(),
        c.marks.len(),
    ];
    assert!(
        lengths.iter().all(|n| *n == c.signature.len()),
        "{lengths:?}"
    );
    let g = snapshot.cgroups.as_ref().unwrap();
    let lengths = [
        g.path.len(),
        g.job_id.len(),
        g.requeue.len(),
        g.restart.len(),
        g.source.len(),
    ];
    assert!(lengths.iter().all(|n| *n == g.id.len()), "{lengths:?}");
    check_samples(snapshot);
}

fn check_samples(snapshot: &Snapshot) {
    let Some(s) = &snapshot.samples else {
        return;
    };
    let chains = snapshot.chains.as_ref().unwrap().signature.len();
    let probes = snapshot.probes.as_ref().unwrap().function.len();
    let stacks = snapshot.stacks.as_ref();
    assert!(s.chain.iter().all(|chain| (*chain as usize) < chains));
    assert!(s.probe.iter().all(|probe| (*probe as usize) < probes));
    assert_eq!(s.chain.len(), s.records.len());
    let records: usize = s.records.iter().map(|n| *n as usize).sum();
    let lengths = [
        s.after_first_ns.len(),
        s.probe.len(),
        s.errno.len(),
        s.stack_plus_one.len(),
        s.arguments_plus_one.len(),
    ];
    assert!(lengths.iter().all(|n| *n == records), "{lengths:?}");
    let most = |places: &[u32]| places.iter().max().map_or(0, |most| *most as usize);
    assert_eq!(most(&s.arguments_plus_one), s.arguments.len());
    assert_eq!(
        most(&s.stack_plus_one),
        stacks.map_or(0, |s| s.frames.len())
    );
    let frames = stacks.map_or(0, |s| s.frames.iter().map(|n| *n as usize).sum());
    assert_eq!(frames, stacks.map_or(0, |s| s.address.len()));
}
