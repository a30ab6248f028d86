//! What was not watched is said, hosts with the same gap together.

use rdmesh_collector::diagnosis::{Case, HostWatch, ProbeState, diagnose};

use crate::made::{case, reg_mr, watched};

#[test]
fn each_gap_is_a_line_of_its_own() {
    let mut dropped = watched("gpu-02");
    dropped.drops = 90_000;
    dropped.counter_overflow = 3;
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
        chains_cut: true,
        started_at: None,
        ..case(vec![])
    };
    assert_eq!(
        diagnose(&case).unwatched,
        [
            "gpu-07: never reported; nothing of it was watched",
            "gpu-04: its tracer reported nothing while the attempt ran",
            "gpu-03: its tracer was silent for 40 of the attempt's 60 seconds",
            "gpu-04: it sent no probe report; which hooks watch is not known",
            "gpu-06: no hook watches: the kernel has no BTF",
            "gpu-05: hooks without a probe: memory.umem, driver.reg_mr",
            "gpu-02: the details of 90000 records were dropped (the ring was full)",
            "gpu-02: 3 failing calls are missing from the counts by job",
            "the attempt has more failures than were looked at; the first were",
            "when the attempt started is not known; earlier failures are not joined",
        ]
    );
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
