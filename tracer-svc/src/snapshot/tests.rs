use proptest::prelude::*;
use prost::Message;
use rdmesh_proto::common::v1::ClockPair;
use rdmesh_proto::tracer::v1::{RdmaDevice, RdmaPort, Snapshot};
use rdmesh_services::uplink::MAX_ITEM_BYTES;

use super::aggregate::{Aggregate, EXITS};
use super::builder::{Made, Maker, Surroundings};
use super::{CHAIN_BYTES, SAMPLES, co_signal, exit_signal, expand};
use crate::catalogue::{Catalogue, ExpectedRules, Layer, Verb};
use crate::chain::{Chain, Marks};
use crate::counters::{CgroupCount, Counters, ErrorCount, ProbeLosses};
use crate::host::Devices;
use crate::identity::{Attempt, Cgroups, ProcessReader, Registry, Source, Who};
use crate::record::{ARG_WORDS, ArgsKind, COMM_BYTES, DEVICE_BYTES, ProbeId, Record, STACK_DEPTH};
use crate::resolve::{Found, Mechanism, Probe, ProbeState, Report};

fn report() -> Report {
    let catalogue = Catalogue::built_in().unwrap();
    let probes = [
        ("memory.umem", "ib_umem_get"),
        ("driver.reg_mr", "rxe_reg_user_mr"),
        ("uverbs.reg_mr", "ib_uverbs_reg_mr"),
    ]
    .iter()
    .enumerate()
    .map(|(id, (hook, function))| Probe {
        id: ProbeId(u16::try_from(id).unwrap()),
        hook: catalogue
            .hooks
            .iter()
            .find(|h| h.name == *hook)
            .unwrap()
            .clone(),
        module: "ib_uverbs".to_owned(),
        function: (*function).to_owned(),
        role: crate::catalogue::Role::Main,
        found: Found::Name,
        state: ProbeState::Attached(Mechanism::Fexit),
        not_by_fexit: None,
        address_hidden: false,
        arguments: Vec::new(),
    })
    .collect();
    Report {
        resolution: String::new(),
        hooks: Vec::new(),
        probes,
    }
}

fn devices() -> Devices {
    Devices::of_inventory(&[RdmaDevice {
        name: "rxe0".to_owned(),
        driver: "rdma_rxe".to_owned(),
        ports: vec![RdmaPort {
            number: 1,
            netdev: "eth0".to_owned(),
            ..Default::default()
        }],
        ..Default::default()
    }])
}

fn registry() -> Registry {
    Registry::new(
        ProcessReader::at("/nonexistent", 100),
        Cgroups::new(Vec::new()),
    )
}

fn record(tid: u32, probe: u16, boot_ns: u64) -> Record {
    let mut device = [0; DEVICE_BYTES];
    device[..4].copy_from_slice(b"rxe0");
    Record {
        boot_ns,
        probe: ProbeId(probe),
        errno: 14,
        tgid: 100,
        tid,
        start_boot_ns: 5,
        comm: *b"verbs\xff\0\0\0\0\0\0\0\0\0\0",
        cgroup_id: 44,
        device: if probe == 1 {
            device
        } else {
            [0; DEVICE_BYTES]
        },
        object: 0,
        entry: 7,
        sleeps: 0,
        drops_so_far: 0,
        stack: [0; STACK_DEPTH],
        args_kind: ArgsKind::None,
        args: [0; ARG_WORDS],
    }
}

fn chain(tid: u32, at: u64) -> Chain {
    Chain {
        records: vec![
            record(tid, 0, at),
            record(tid, 1, at + 1),
            record(tid, 2, at + 2),
        ],
        verb: Verb::RegMr,
        deepest: Layer::Memory,
        marks: Marks::default(),
    }
}

fn who() -> Who {
    Who {
        attempt: Some(Attempt::new(b"job-7", 2, 0).unwrap()),
        source: Source::Environment,
        rank: Some(3),
        ..Who::default()
    }
}

fn clock(boottime_ns: u64) -> ClockPair {
    ClockPair {
        boottime_ns,
        realtime_ns: 1_000_000,
    }
}

fn make(maker: &mut Maker, at: u64, aggregate: &Aggregate, counters: &Counters) -> Made {
    let (report, devices, mut registry) = (report(), devices(), registry());
    registry.take(&crate::record::Identity {
        boot_ns: 1,
        tgid: 1,
        start_boot_ns: 1,
        comm: [0; COMM_BYTES],
        cgroup_id: 44,
        environ: Vec::new(),
        environ_cut: false,
        cgroup_path: b"/work/\xfe".to_vec(),
        cgroup_cut: false,
    });
    let mut around = Surroundings {
        report: &report,
        devices: &devices,
        registry: &mut registry,
        inventory_id: "inv",
        snapshots_given_up: 4,
    };
    maker.make(clock(at), aggregate, counters, &mut around)
}

fn snapshot(made: Made) -> Snapshot {
    match made {
        // Over the wire and back, as a receiver gets it.
        Made::Snapshot(s) => Snapshot::decode(s.encode_to_vec().as_slice()).unwrap(),
        Made::Heartbeat(_) => panic!("a heartbeat where something failed"),
    }
}

#[test]
fn a_message_says_what_went_in() {
    let mut aggregate = Aggregate::default();
    aggregate.add(&chain(9, 100), &who(), "rdma_rxe");
    aggregate.add(&chain(9, 300), &who(), "rdma_rxe");
    aggregate.add(&chain(9, 200), &who(), "rdma_rxe");
    let message = snapshot(make(
        &mut Maker::new(50),
        1000,
        &aggregate,
        &Counters::default(),
    ));
    insta::assert_debug_snapshot!(expand::chains(&message));
    let samples = message.samples.as_ref().unwrap();
    assert_eq!(samples.records, [3]);
    // The three records of the first call, each after the call's first.
    assert_eq!(samples.after_first_ns[0], 0);
    assert!(samples.after_first_ns.is_sorted());
    assert_eq!(
        (message.interval_start_boot_ns, message.interval_end_boot_ns),
        (50, 1000)
    );
    assert_eq!(message.inventory_id, "inv");
    assert_eq!(message.snapshots_given_up, 4);
    let devices = message.devices.unwrap();
    let text = |place: u32| String::from_utf8(message.strings[place as usize].clone()).unwrap();
    assert_eq!(
        (text(devices.netdev[0]), text(devices.driver[0])),
        ("eth0".to_owned(), "rdma_rxe".to_owned())
    );
}

#[test]
fn marks_keep_chains_apart() {
    let mut aggregate = Aggregate::default();
    aggregate.add(&chain(9, 100), &who(), "");
    let incomplete = Chain {
        marks: Marks {
            incomplete: true,
            ..Marks::default()
        },
        ..chain(9, 200)
    };
    aggregate.add(&incomplete, &who(), "");
    let message = snapshot(make(
        &mut Maker::new(0),
        1000,
        &aggregate,
        &Counters::default(),
    ));
    let marks: Vec<u32> = expand::chains(&message).iter().map(|c| c.marks).collect();
    assert_eq!(marks, [0, 4]);
}

/// Unseen calls of the three probes, since the start.
fn unseen(counts: [u64; 3]) -> Counters {
    Counters {
        losses: counts
            .map(|unseen| ProbeLosses {
                unseen,
                ..ProbeLosses::default()
            })
            .into(),
        ..Counters::default()
    }
}

#[test]
fn a_chain_without_a_step_that_the_kernel_may_have_hidden_is_incomplete() {
    let swallowed = Marks {
        swallowed: true,
        ..Marks::default()
    };
    let part = |from: usize, to: usize, marks: Marks| Chain {
        records: chain(9, 100).records[from..to].to_vec(),
        marks,
        ..chain(9, 100)
    };
    let mut aggregate = Aggregate::default();
    aggregate.add(&chain(9, 100), &who(), "");
    aggregate.add(&part(1, 3, Marks::default()), &who(), "");
    aggregate.add(&part(0, 2, swallowed), &who(), "");
    let mut maker = Maker::new(0);
    let mut marks = |at: u64, counters: &Counters| -> Vec<u32> {
        let message = snapshot(make(&mut maker, at, &aggregate, counters));
        expand::chains(&message).iter().map(|c| c.marks).collect()
    };
    let (none, swallowed, incomplete) = (0, 2, 4);
    assert_eq!(marks(1, &unseen([0, 0, 0])), [none, none, swallowed]);
    // ib_umem_get was hidden: only what lacks it is in doubt.
    assert_eq!(marks(2, &unseen([1, 0, 0])), [none, incomplete, swallowed]);
    // A chain may have waited since the interval before.
    assert_eq!(marks(3, &unseen([1, 0, 0])), [none, incomplete, swallowed]);
    assert_eq!(marks(4, &unseen([1, 0, 0])), [none, none, swallowed]);
    // The system call's function was hidden: nobody knows whether it failed.
    assert_eq!(marks(5, &unseen([1, 0, 7])), [none, none, incomplete]);
}

#[test]
fn nothing_failed_is_a_heartbeat() {
    let mut maker = Maker::new(10);
    let made = make(&mut maker, 20, &Aggregate::default(), &Counters::default());
    let Made::Heartbeat(beat) = made else {
        panic!("no heartbeat")
    };
    assert_eq!(
        (beat.interval_start_boot_ns, beat.interval_end_boot_ns),
        (10, 20)
    );
    // The boot clock cannot go back; a wrong reading must not make a wrong interval.
    let Made::Heartbeat(beat) = make(&mut maker, 15, &Aggregate::default(), &Counters::default())
    else {
        panic!("no heartbeat")
    };
    assert_eq!(
        (beat.interval_start_boot_ns, beat.interval_end_boot_ns),
        (20, 20)
    );
}

fn counters(errno: u64, cgroup: u64, drops: u64) -> Counters {
    let none = ProbeLosses::default();
    Counters {
        run_times: Vec::new(),
        by_errno: vec![ErrorCount {
            probe: ProbeId(2),
            errno: 14,
            count: errno,
        }],
        by_cgroup: vec![CgroupCount {
            probe: ProbeId(2),
            errno: 14,
            cgroup_id: 44,
            count: cgroup,
        }],
        losses: vec![
            none,
            none,
            ProbeLosses {
                records_dropped: drops,
                ..none
            },
        ],
    }
}

#[test]
fn counters_are_told_as_growth_and_total() {
    let mut maker = Maker::new(0);
    let first = snapshot(make(
        &mut maker,
        1,
        &Aggregate::default(),
        &counters(5, 5, 0),
    ));
    assert_eq!(
        expand::counters(&first),
        [("ib_uverbs_reg_mr".to_owned(), 14, 5, 5)]
    );
    assert!(matches!(
        make(&mut maker, 2, &Aggregate::default(), &counters(5, 5, 0)),
        Made::Heartbeat(_)
    ));
    let third = snapshot(make(
        &mut maker,
        3,
        &Aggregate::default(),
        &counters(9, 8, 2),
    ));
    assert_eq!(
        expand::counters(&third),
        [("ib_uverbs_reg_mr".to_owned(), 14, 4, 9)]
    );
    assert_eq!(
        expand::cgroup_counters(&third),
        [("ib_uverbs_reg_mr".to_owned(), 14, 44, 3, 8)]
    );
    assert_eq!(
        expand::drops(&third),
        [("ib_uverbs_reg_mr".to_owned(), 2, 2)]
    );
}

#[test]
fn counters_that_find_no_room_come_with_the_next_message() {
    let rows = 40_000u64;
    let many = Counters {
        by_cgroup: (0..rows)
            .map(|id| CgroupCount {
                probe: ProbeId(2),
                errno: 14,
                cgroup_id: id,
                count: 3,
            })
            .collect(),
        ..Counters::default()
    };
    let mut maker = Maker::new(0);
    let mut told = 0;
    let mut messages = 0;
    while let Made::Snapshot(message) = make(&mut maker, 1, &Aggregate::default(), &many) {
        assert!(message.encoded_len() <= MAX_ITEM_BYTES);
        told += expand::cgroup_counters(&message)
            .iter()
            .map(|c| c.3)
            .sum::<u64>();
        messages += 1;
        assert!(messages < 100, "each message must bring some further");
    }
    assert_eq!(told, rows * 3);
}

/// The collector marks the row; without it the failure would be anybody's on that host.
#[test]
fn a_job_id_that_was_not_taken_is_told_as_it_was() {
    let mut aggregate = Aggregate::default();
    let who = Who {
        attempt: None,
        source: Source::None,
        refused_job: b"a/b".to_vec(),
        ..who()
    };
    aggregate.add(&chain(1, 10), &who, "rdma_rxe");
    let Made::Snapshot(message) = make(&mut Maker::new(0), 20, &aggregate, &Counters::default())
    else {
        panic!("no snapshot")
    };
    assert_eq!(expand::chains(&message)[0].job, "a/b");
}

#[test]
fn a_flood_of_distinct_failures_fits_the_message_and_is_counted() {
    let mut aggregate = Aggregate::default();
    let tasks = 40_000u32;
    for tid in 0..tasks {
        let mut long = chain(tid, u64::MAX - 10);
        for record in &mut long.records {
            record.cgroup_id = u64::MAX - u64::from(tid);
            record.stack = [u64::MAX; STACK_DEPTH];
        }
        let job = format!("{:0>250}", tid);
        let who = Who {
            attempt: Some(Attempt::new(job.as_bytes(), u32::MAX, u32::MAX).unwrap()),
            ..who()
        };
        aggregate.add(&long, &who, "rdma_rxe");
    }
    let left_out = aggregate.left_out;
    let Made::Snapshot(message) = make(
        &mut Maker::new(0),
        u64::MAX,
        &aggregate,
        &Counters::default(),
    ) else {
        panic!("no snapshot")
    };
    let size = message.encoded_len();
    assert!(size <= MAX_ITEM_BYTES, "{size}");
    assert!(
        size <= CHAIN_BYTES + (384 << 10),
        "the estimate is an upper bound: {size}"
    );
    let kept = expand::chains(&message).len() as u64;
    assert_eq!(kept + left_out, u64::from(tasks));
    assert_eq!(message.chains_left_out, left_out);
    assert!(kept > 1500 && left_out > 0);
    assert_eq!(message.samples.as_ref().unwrap().chain.len(), SAMPLES);
}

#[test]
fn more_of_a_known_failure_is_never_left_out() {
    let mut aggregate = Aggregate::default();
    aggregate.add(&chain(1, 1), &who(), "");
    for tid in 0..30_000 {
        aggregate.add(&chain(tid, 1), &who(), "");
    }
    let left_out = aggregate.left_out;
    assert!(left_out > 0);
    aggregate.add(&chain(1, 2), &who(), "");
    assert_eq!(aggregate.left_out, left_out);
}

#[test]
fn an_event_is_a_co_signal_and_no_failure() {
    let mut event = record(1, 1, 77);
    event.errno = 0;
    event.args_kind = ArgsKind::AsyncEvent;
    event.args[..2].copy_from_slice(&[10, 1]);
    let mut aggregate = Aggregate::default();
    assert!(aggregate.add_co_signal(co_signal(&event).unwrap()));
    let message = snapshot(make(
        &mut Maker::new(0),
        100,
        &aggregate,
        &Counters::default(),
    ));
    let signals = message.co_signals.unwrap();
    let text = |place: u32| String::from_utf8(message.strings[place as usize].clone()).unwrap();
    assert_eq!(
        (text(signals.name[0]), text(signals.detail[0])),
        ("PORT_ERR".to_owned(), "port 1".to_owned())
    );
    assert_eq!(
        (signals.independent[0], signals.device_plus_one[0]),
        (true, 1)
    );
    // The last element of a queue is part of normal work.
    event.args[0] = 16;
    assert_eq!(co_signal(&event), None);
    // A pointer is never told.
    event.args[..2].copy_from_slice(&[1, 0xffff_8880_0000_1000]);
    assert_eq!(co_signal(&event).unwrap().detail, "");
}

#[test]
fn the_end_of_a_task_names_its_job() {
    let mut end = record(77, 1, 77);
    end.errno = 0;
    end.args_kind = ArgsKind::Exit;
    end.args[..2].copy_from_slice(&[11, 1]);
    let mut aggregate = Aggregate::default();
    let signal = exit_signal(&end, &who()).unwrap();
    assert!(aggregate.add_exit(signal, &end, &who()));
    // Who belongs to no job, and who failed only, ended for nobody here.
    assert_eq!(exit_signal(&end, &Who::default()), None);
    assert_eq!(exit_signal(&record(77, 1, 77), &who()), None);
    let message = snapshot(make(
        &mut Maker::new(0),
        100,
        &aggregate,
        &Counters::default(),
    ));
    let signals = message.co_signals.unwrap();
    let text = |place: u32| String::from_utf8(message.strings[place as usize].clone()).unwrap();
    let detail = text(signals.detail[0]);
    assert_eq!(text(signals.name[0]), "SIGSEGV");
    assert!(detail.ends_with("of rank 3, core dumped"), "{detail}");
    assert_eq!(
        (signals.independent[0], signals.task_plus_one[0]),
        (true, 1)
    );
    let tasks = message.tasks.unwrap();
    assert_eq!(
        (text(tasks.job_id[0]), tasks.requeue[0]),
        ("job-7".to_owned(), 2)
    );
    // What others send is an echo; a number without a name has one all the same.
    end.args[..2].copy_from_slice(&[9, 0]);
    assert!(!exit_signal(&end, &who()).unwrap().independent);
    end.args[0] = 40;
    assert_eq!(exit_signal(&end, &who()).unwrap().name, "signal 40");
}

#[test]
fn ends_of_tasks_leave_room_for_other_co_signals() {
    let mut aggregate = Aggregate::default();
    let mut end = record(77, 1, 77);
    end.args_kind = ArgsKind::Exit;
    end.args[0] = 9;
    let signal = exit_signal(&end, &who()).unwrap();
    for _ in 0..EXITS {
        assert!(aggregate.add_exit(signal.clone(), &end, &who()));
    }
    assert!(!aggregate.add_exit(signal.clone(), &end, &who()));
    assert!(aggregate.add_co_signal(signal));
}

#[test]
fn expected_rules_are_the_assemblers_and_only_marked_here() {
    let rules = ExpectedRules::built_in().unwrap();
    assert!(rules.find(Verb::RegMr, 14, Layer::Memory).is_none());
    let mut aggregate = Aggregate::default();
    let expected = Chain {
        marks: Marks {
            expected: true,
            ..Marks::default()
        },
        ..chain(1, 1)
    };
    aggregate.add(&expected, &who(), "");
    let message = snapshot(make(
        &mut Maker::new(0),
        9,
        &aggregate,
        &Counters::default(),
    ));
    assert_eq!(expand::chains(&message)[0].marks, 1);
}

proptest! {
    #[test]
    fn no_chain_is_lost_or_counted_twice(calls in proptest::collection::vec((1u32..6, 0u64..1000), 1..60)) {
        let mut aggregate = Aggregate::default();
        for (tid, at) in &calls {
            aggregate.add(&chain(*tid, *at), &who(), "rdma_rxe");
        }
        let message = snapshot(make(&mut Maker::new(0), 2000, &aggregate, &Counters::default()));
        let rows = expand::chains(&message);
        for row in &rows {
            let of_tid: Vec<u64> = calls.iter().filter(|c| c.0 == row.tid).map(|c| c.1).collect();
            prop_assert_eq!(row.count, of_tid.len() as u64);
            prop_assert_eq!(row.first_boot_ns, *of_tid.iter().min().unwrap());
            prop_assert_eq!(row.last_boot_ns, of_tid.iter().max().unwrap() + 2);
        }
        prop_assert_eq!(rows.iter().map(|r| r.count).sum::<u64>(), calls.len() as u64);
    }
}
