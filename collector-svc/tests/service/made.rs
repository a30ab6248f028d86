//! Messages of a made host.

use rdmesh_proto::collector::v1::report_request::Item;
use rdmesh_proto::collector::v1::{Hello, Placement, StartJobRequest};
use rdmesh_proto::common::v1::{
    AgentKind, AttemptId, ClockPair, IdentitySource, Layer, ObjectType, Verb,
};
use rdmesh_proto::tracer::v1::record_arguments::Verb as Read;
use rdmesh_proto::tracer::v1::{
    CgroupColumns, CgroupCounterColumns, ChainColumns, CounterColumns, DeviceColumns, Heartbeat,
    Mapping, Probe, ProbeColumns, ProbeReport, ProbeState, RecordArguments, RegMrArguments,
    SampleColumns, SignatureColumns, Snapshot, TaskColumns,
};
use time::OffsetDateTime;
use uuid::Uuid;

const SECOND: u64 = 1_000_000_000;

/// A host that booted a thousand seconds before it was made.
#[derive(Clone)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) run_id: String,
    booted_ns: u64,
    /// Wall clock minus true time.
    pub(crate) offset_ns: i64,
}

impl Host {
    pub(crate) fn new(name: &str) -> Self {
        let now = u64::try_from(OffsetDateTime::now_utc().unix_timestamp_nanos()).unwrap();
        Self {
            name: name.to_owned(),
            run_id: Uuid::new_v4().to_string(),
            booted_ns: now - 1_000 * SECOND,
            offset_ns: 0,
        }
    }

    pub(crate) fn boot_ns(&self) -> u64 {
        let now = u64::try_from(OffsetDateTime::now_utc().unix_timestamp_nanos()).unwrap();
        now - self.booted_ns
    }

    pub(crate) fn clock(&self) -> ClockPair {
        let boottime_ns = self.boot_ns();
        let realtime_ns = (self.booted_ns + boottime_ns).checked_add_signed(self.offset_ns);
        ClockPair {
            boottime_ns,
            realtime_ns: realtime_ns.unwrap(),
        }
    }

    pub(crate) fn hello(&self) -> Hello {
        Hello {
            agent: AgentKind::Tracer.into(),
            host: self.name.clone(),
            boot_id: "b".into(),
            run_id: self.run_id.clone(),
            version: "0.1.0".into(),
            address: "10.0.0.1:7401".into(),
            started_at: Some(OffsetDateTime::now_utc().into_timestamp()),
            clock: Some(self.clock()),
        }
    }

    pub(crate) fn heartbeat(&self) -> Item {
        let end = self.boot_ns();
        Item::Heartbeat(Heartbeat {
            clock: Some(self.clock()),
            interval_start_boot_ns: end - 5 * SECOND,
            interval_end_boot_ns: end,
            ..Heartbeat::default()
        })
    }

    /// A snapshot with one failing reg_mr of a task of `job` (empty: nobody knows).
    pub(crate) fn snapshot(&self, job: &str) -> Snapshot {
        let end = self.boot_ns();
        let strings: [&[u8]; 11] = [
            b"",
            b"ib_umem_get",
            b"rxe_reg_user_mr",
            b"ib_uverbs_reg_mr",
            b"ib_uverbs",
            b"rdma_rxe",
            b"rank",
            b"/job",
            job.as_bytes(),
            b"rxe0",
            b"eth0",
        ];
        let source = if job.is_empty() {
            IdentitySource::None
        } else {
            IdentitySource::Environment
        };
        Snapshot {
            clock: Some(self.clock()),
            interval_start_boot_ns: end - 5 * SECOND,
            interval_end_boot_ns: end,
            inventory_id: "inv".into(),
            strings: strings.iter().map(|s| s.to_vec()).collect(),
            probes: Some(probes()),
            signatures: Some(SignatureColumns {
                driver: vec![5],
                steps: vec![3],
                step_probe: vec![0, 1, 2],
                step_errno: vec![14, 14, 14],
            }),
            cgroups: Some(CgroupColumns {
                id: vec![77],
                path: vec![7],
                job_id: vec![8],
                requeue: vec![0],
                restart: vec![0],
                source: vec![source.into()],
            }),
            tasks: Some(task(source)),
            devices: Some(DeviceColumns {
                name: vec![9],
                netdev: vec![10],
                pci: vec![0],
                driver: vec![5],
            }),
            chains: Some(one_chain()),
            samples: Some(unmapped()),
            counters: Some(CounterColumns {
                probe: vec![0, 1, 2],
                errno: vec![14, 14, 14],
                delta: vec![2, 2, 2],
                total: vec![2, 2, 2],
            }),
            cgroup_counters: Some(CgroupCounterColumns {
                probe: vec![0, 1, 2],
                errno: vec![14, 14, 14],
                cgroup: vec![0, 0, 0],
                delta: vec![2, 2, 2],
                total: vec![2, 2, 2],
            }),
            ..Snapshot::default()
        }
    }

    pub(crate) fn failing(&self, job: &str) -> Item {
        Item::Snapshot(self.snapshot(job))
    }

    /// All thirteen hooks but `missing` are attached.
    pub(crate) fn probe_report(missing: &[&str]) -> Item {
        let hooks = [
            ("uverbs.reg_mr", Layer::Uverbs, Verb::RegMr),
            ("driver.reg_mr", Layer::Driver, Verb::RegMr),
            ("memory.umem", Layer::Memory, Verb::Unspecified),
            ("driver.modify_qp", Layer::Driver, Verb::ModifyQp),
        ];
        let probes = hooks.map(|(hook, layer, verb)| Probe {
            hook: hook.into(),
            function: hook.replace('.', "_"),
            layer: layer.into(),
            verb: verb.into(),
            logical: true,
            state: if missing.contains(&hook) {
                ProbeState::Missing.into()
            } else {
                ProbeState::Attached.into()
            },
            ..Probe::default()
        });
        Item::ProbeReport(ProbeReport {
            kernel_release: "6.1.0".into(),
            probes: probes.to_vec(),
            logical_attached: u32::try_from(4 - missing.len()).unwrap(),
            logical_total: 4,
            ..ProbeReport::default()
        })
    }
}

fn probes() -> ProbeColumns {
    ProbeColumns {
        function: vec![1, 2, 3],
        module: vec![4, 5, 4],
        layer: vec![
            Layer::Memory.into(),
            Layer::Driver.into(),
            Layer::Uverbs.into(),
        ],
        verb: vec![
            Verb::Unspecified.into(),
            Verb::RegMr.into(),
            Verb::RegMr.into(),
        ],
        object: vec![
            ObjectType::Umem.into(),
            ObjectType::Mr.into(),
            ObjectType::Mr.into(),
        ],
    }
}

/// Two calls within the interval of five seconds: two and three seconds after its begin.
fn one_chain() -> ChainColumns {
    ChainColumns {
        signature: vec![0],
        task: vec![0],
        device_plus_one: vec![1],
        count: vec![2],
        first_after_start_ns: vec![(2 * SECOND).cast_signed()],
        span_ns: vec![SECOND],
        marks: vec![0],
    }
}

/// One task of the only cgroup.
fn task(source: IdentitySource) -> TaskColumns {
    TaskColumns {
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
        source: vec![source.into()],
    }
}

/// The full records of the chain: the address maps nothing.
fn unmapped() -> SampleColumns {
    let arguments = RegMrArguments {
        address: Some(0x7f00_dead_0000),
        length_bytes: Some(4_096),
        access_flags: Some(1),
        mapping: Mapping::None.into(),
        ..RegMrArguments::default()
    };
    let read = RecordArguments {
        verb: Some(Read::RegMr(arguments)),
    };
    SampleColumns {
        chain: vec![0],
        records: vec![3],
        after_first_ns: vec![0; 3],
        probe: vec![0, 1, 2],
        errno: vec![14; 3],
        stack_plus_one: vec![0; 3],
        arguments_plus_one: vec![0, 0, 1],
        arguments: vec![read],
    }
}

pub(crate) trait IntoTimestamp {
    fn into_timestamp(self) -> prost_types::Timestamp;
}

impl IntoTimestamp for OffsetDateTime {
    fn into_timestamp(self) -> prost_types::Timestamp {
        prost_types::Timestamp {
            seconds: self.unix_timestamp(),
            nanos: i32::try_from(self.nanosecond()).unwrap(),
        }
    }
}

pub(crate) fn seconds_ago(seconds: u64) -> prost_types::Timestamp {
    (OffsetDateTime::now_utc() - std::time::Duration::from_secs(seconds)).into_timestamp()
}

pub(crate) fn attempt(job: &str, requeue: u32) -> Option<AttemptId> {
    Some(AttemptId {
        job_id: job.into(),
        requeue,
        restart: 0,
    })
}

pub(crate) fn start(job: &str, seconds: u64, hosts: &[&str]) -> StartJobRequest {
    StartJobRequest {
        attempt: attempt(job, 0),
        user: "ada".into(),
        started_at: Some(seconds_ago(seconds)),
        placements: hosts
            .iter()
            .map(|host| Placement {
                host: (*host).into(),
                ranks: vec![3],
                ..Placement::default()
            })
            .collect(),
        ..StartJobRequest::default()
    }
}
