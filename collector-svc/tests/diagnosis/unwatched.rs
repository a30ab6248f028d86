//! What was not watched is said, hosts with the same gap together.

use rdmesh_collector::diagnosis::{Case, HostWatch, ProbeState, Total, diagnose};
use rdmesh_proto::common::v1::Layer;
use rdmesh_proto::tracer::v1::MissingReason;

use crate::made::{UMEM, case, reg_mr, watched};

#[test]
fn each_gap_is_a_line_of_its_own() {
    let mut dropped = watched("gpu-02");
    dropped.drops = 90_000;
    dropped.counter_overflow = 3;
    dropped.unseen = 1;
    let mut silent = watched("gpu-03");
    silent.watched_seconds = 20.0;
    let mut mute = watched("gpu-04");
    mute.watched_seconds = 0.0;
    mute.probes = None;
    let mut partly = watched("gpu-05");
    partly.probes.as_mut().unwrap().probes[0].state = ProbeState::Missing;
    partly.probes.as_mut().unwrap().probes[2].state = ProbeState::Detached;
    partly.probes.as_mut().unwrap().probes[3].state = ProbeState::Replaced;
    let mut blocked = watched("gpu-06");
    blocked.probes.as_mut().unwrap().obstacle = "the kernel has no BTF".into();
    let never = HostWatch {
        host: "gpu-07".into(),
        ..HostWatch::default()
    };
    let case = Case {
        hosts: vec![
            watched("gpu-01"),
            dropped,
            silent,
            mute,
            partly,
            blocked,
            never,
        ],
        chains_left_out: 40,
        started_at: None,
        ..case(vec![])
    };
    assert_eq!(
        diagnose(&case).unwatched,
        [
            "gpu-07: never reported; nothing of it was watched",
            "gpu-04: its tracer reported nothing while the attempt ran",
            "gpu-03: its tracer was silent for 40 of the attempt's 60 seconds",
            "gpu-06: no hook watches: the kernel has no BTF",
            "gpu-04: no probe report came; which hooks watch is not known",
            "gpu-05: hooks without a probe: memory.umem, driver.reg_mr",
            "gpu-02: the details of 90000 records were dropped (the ring was full)",
            "gpu-02: 3 failing returns were counted without errno or cgroup (the counter map was \
             full); the counts by job miss them",
            "gpu-02: 1 call was not shown to the probes (the kernel had preempted another task \
             inside them); no count has those that failed, so that totals are lower bounds",
            "40 later failures of the attempt were not looked at",
            "when the attempt started is not known; earlier failures are not joined",
        ]
    );
}

/// The interval in which a tracer died never comes.
#[test]
fn a_short_silence_counts_once_nothing_more_can_come() {
    let mut died = watched("gpu-01");
    died.watched_seconds = 53.4;
    let mut of = case(vec![]);
    of.hosts = vec![died];
    assert_eq!(
        diagnose(&of).unwatched,
        ["gpu-01: its tracer was silent for 7 of the attempt's 60 seconds"]
    );
    of.hosts[0].settled = false;
    assert_eq!(diagnose(&of).unwatched, Vec::<String>::new());
    of.hosts[0].settled = true;
    of.hosts[0].watched_seconds = 59.0;
    assert_eq!(diagnose(&of).unwatched, Vec::<String>::new());
}

#[test]
fn many_hosts_with_one_gap_are_one_line() {
    let hosts = (1..=9)
        .map(|n| HostWatch {
            host: format!("gpu-{n:02}"),
            ..HostWatch::default()
        })
        .collect();
    let case = Case {
        hosts,
        ..case(vec![])
    };
    assert_eq!(
        diagnose(&case).unwatched,
        [
            "gpu-01, gpu-02, gpu-03, gpu-04, gpu-05 and 4 more hosts: never reported; nothing of it was watched"
        ]
    );
}

#[test]
fn an_attempt_on_no_host_says_so_and_a_watched_one_says_nothing() {
    let nowhere = Case {
        hosts: vec![],
        ..case(vec![])
    };
    assert!(diagnose(&nowhere).unwatched[0].starts_with("the attempt was placed on no host"));
    assert!(diagnose(&case(vec![reg_mr(14)])).unwatched.is_empty());
}

#[test]
fn counts_are_lower_bounds_where_the_kernel_did_not_show_every_call() {
    let total = Total {
        host: "gpu-01".into(),
        function: UMEM.0.into(),
        layer: Layer::Memory,
        errno: 14,
        count: 7,
    };
    let mut case = Case {
        totals: vec![total],
        ..case(vec![reg_mr(14), reg_mr(14)])
    };
    let told = diagnose(&case).evidence;
    assert!(
        told.contains(
            &"exact counters of the attempt: ib_umem_get failed 7 times with EFAULT".into()
        ),
        "{told:?}"
    );
    case.hosts[0].unseen = 2;
    let told = diagnose(&case).evidence;
    let bound = "counters of the attempt: ib_umem_get failed at least 7 times with EFAULT";
    assert!(told.contains(&bound.into()), "{told:?}");
    assert!(
        told.iter()
            .any(|line| line.contains("the same failure at least 2 times"))
    );
}

#[test]
fn a_verdict_says_how_many_failures_it_looked_at() {
    let whole = diagnose(&case(vec![reg_mr(14)]));
    assert_eq!((whole.failures_looked_at, whole.failures_total), (1, 1));
    assert!(!whole.evidence.iter().any(|line| line.contains("looked at")));
    let cut = Case {
        chains_left_out: 9_000,
        ..case(vec![reg_mr(14)])
    };
    let cut = diagnose(&cut);
    assert_eq!((cut.failures_looked_at, cut.failures_total), (1, 9_001));
    let line = "looked at the first 1 of the attempt's 9001 failures";
    assert!(
        cut.evidence.contains(&line.to_owned()),
        "{:?}",
        cut.evidence
    );
    let uncounted = Case {
        chains_left_out: 49_999,
        more_left_out: true,
        ..case(vec![reg_mr(14)])
    };
    let told = diagnose(&uncounted).evidence;
    let line = "looked at the first 1 of the attempt's 50000 failures or more";
    assert!(told.contains(&line.to_owned()), "{told:?}");
}

#[test]
fn an_operation_that_the_driver_does_not_have_is_no_gap() {
    let mut case = case(vec![]);
    let probe = &mut case.hosts[0].probes.as_mut().unwrap().probes[2];
    probe.state = ProbeState::Missing;
    probe.missing_because = vec![MissingReason::DriverHasNoOperation];
    assert!(diagnose(&case).unwatched.is_empty());
    // Another driver has it, and cannot be hooked.
    let probe = &mut case.hosts[0].probes.as_mut().unwrap().probes[2];
    probe.missing_because.push(MissingReason::NotTraceable);
    assert_eq!(
        diagnose(&case).unwatched,
        ["gpu-01: hooks without a probe: driver.reg_mr"]
    );
}

#[test]
fn where_nothing_was_watched_the_tracers_come_first() {
    let never = |host: &str| HostWatch {
        host: host.into(),
        ..HostWatch::default()
    };
    let mut mute = watched("gpu-02");
    mute.watched_seconds = 0.0;
    let blind = Case {
        hosts: vec![never("gpu-01"), mute.clone()],
        ..case(vec![])
    };
    let verdict = diagnose(&blind);
    assert_eq!(verdict.rule, "nothing-watched");
    assert!(verdict.route_to.starts_with("host team (tracers), then "));
    assert_eq!(
        verdict.next_steps[0],
        "start tracer-svc on gpu-01, gpu-02, or mend it, before the job runs there again"
    );
    let partly = Case {
        hosts: vec![watched("gpu-01"), mute],
        ..case(vec![])
    };
    let verdict = diagnose(&partly);
    assert_eq!(verdict.rule, "nothing-decides");
    assert!(verdict.next_steps[0].starts_with("rdmesh probes gpu-02: "));
}

#[test]
fn what_made_a_chain_incomplete_is_called_by_its_name() {
    let mut fragment = reg_mr(14);
    fragment.flags.incomplete = true;
    let mut host = watched("gpu-01");
    host.unseen = 4;
    let hidden = Case {
        hosts: vec![host.clone()],
        ..case(vec![fragment.clone()])
    };
    let says = |case: &Case| diagnose(case).evidence.join("\n");
    let told = says(&hidden);
    assert!(
        told.contains("the kernel did not show every call"),
        "{told}"
    );
    host.unseen = 0;
    host.drops = 9;
    let dropped = Case {
        hosts: vec![host],
        ..case(vec![fragment])
    };
    let told = says(&dropped);
    assert!(told.starts_with("records were dropped while"), "{told}");
}
