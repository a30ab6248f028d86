//! A snapshot that is made up: one kind of failing call, so and so often.

use rdmesh_proto::common::v1::{ClockPair, IdentitySource, Layer, ObjectType, Verb};
use rdmesh_proto::tracer::v1::{
    CgroupColumns, CgroupCounterColumns, ChainColumns, CounterColumns, DeviceColumns, ProbeColumns,
    SignatureColumns, Snapshot, TaskColumns,
};

use crate::journal::Made;

/// EFAULT: the address of a memory region maps nothing.
const ERRNO: u32 = 14;

/// The functions that each failing call passes, innermost first.
pub const FUNCTIONS: [&str; 3] = ["ib_umem_get", "rxe_reg_user_mr", "ib_uverbs_reg_mr"];

/// The snapshot of an interval in which `made.failures` calls failed; `total` counts those
/// of the run so far.
#[must_use]
pub fn of(made: &Made, total: u64, given_up: u64, clock: ClockPair) -> Snapshot {
    let strings: [&str; 11] = [
        "",
        FUNCTIONS[0],
        FUNCTIONS[1],
        FUNCTIONS[2],
        "ib_uverbs",
        "rdma_rxe",
        "rank",
        "/job",
        "simulated",
        "rxe0",
        "eth0",
    ];
    let source = i32::from(IdentitySource::Environment);
    Snapshot {
        clock: Some(clock),
        interval_start_boot_ns: made.from_boot_ns,
        interval_end_boot_ns: made.to_boot_ns,
        snapshots_given_up: given_up,
        strings: strings.iter().map(|s| s.as_bytes().to_vec()).collect(),
        probes: Some(probes()),
        signatures: Some(SignatureColumns {
            driver: vec![5],
            steps: vec![3],
            step_probe: vec![0, 1, 2],
            step_errno: vec![ERRNO; 3],
        }),
        cgroups: Some(CgroupColumns {
            id: vec![77],
            path: vec![7],
            job_id: vec![8],
            requeue: vec![0],
            restart: vec![0],
            source: vec![source],
        }),
        tasks: Some(TaskColumns {
            tgid: vec![100],
            tid: vec![101],
            start_boot_ns: vec![5],
            comm: vec![6],
            cgroup: vec![0],
            job_id: vec![8],
            requeue: vec![0],
            restart: vec![0],
            rank: vec![3],
            local_rank: vec![-1],
            source: vec![source],
        }),
        devices: Some(DeviceColumns {
            name: vec![9],
            netdev: vec![10],
            pci: vec![0],
            driver: vec![5],
        }),
        chains: Some(ChainColumns {
            signature: vec![0],
            task: vec![0],
            device_plus_one: vec![1],
            count: vec![made.failures],
            first_after_start_ns: vec![0],
            span_ns: vec![made.to_boot_ns - made.from_boot_ns],
            marks: vec![0],
        }),
        counters: Some(CounterColumns {
            probe: vec![0, 1, 2],
            errno: vec![ERRNO; 3],
            delta: vec![made.failures; 3],
            total: vec![total; 3],
        }),
        cgroup_counters: Some(CgroupCounterColumns {
            probe: vec![0, 1, 2],
            errno: vec![ERRNO; 3],
            cgroup: vec![0; 3],
            delta: vec![made.failures; 3],
            total: vec![total; 3],
        }),
        ..Snapshot::default()
    }
}

fn probes() -> ProbeColumns {
    ProbeColumns {
        function: vec![1, 2, 3],
        module: vec![4, 5, 4],
        layer: [Layer::Memory, Layer::Driver, Layer::Uverbs]
            .map(i32::from)
            .to_vec(),
        verb: [Verb::Unspecified, Verb::RegMr, Verb::RegMr]
            .map(i32::from)
            .to_vec(),
        object: [ObjectType::Umem, ObjectType::Mr, ObjectType::Mr]
            .map(i32::from)
            .to_vec(),
    }
}
