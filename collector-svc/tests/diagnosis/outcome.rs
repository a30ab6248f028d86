//! What is said beside the cause: how the attempt ended, what was counted, whose it may be.

use rdmesh_collector::diagnosis::{Ambiguous, Case, ProbeState, Total, diagnose};
use rdmesh_proto::collector::v1::{Confidence, JobState};
use rdmesh_proto::common::v1::{Layer, Verb};

use crate::made::{case, probe, reg_mr};

fn total(count: u64) -> Total {
    Total {
        host: "gpu-01".into(),
        function: "ib_umem_get".into(),
        layer: Layer::Memory,
        errno: 14,
        count,
    }
}

#[test]
fn an_attempt_that_completed_speaks_against_its_failure() {
    let failed = diagnose(&case(vec![reg_mr(14)]));
    let completed = Case {
        state: JobState::Completed,
        ..case(vec![reg_mr(14)])
    };
    let verdict = diagnose(&completed);
    let all_the_same = "the attempt completed all the same".to_owned();
    assert!(!failed.against.contains(&all_the_same));
    assert!(verdict.against.contains(&all_the_same));
    let lower = match failed.confidence {
        Confidence::High => Confidence::Medium,
        _ => Confidence::Low,
    };
    assert_eq!(verdict.confidence, lower);
}

#[test]
fn a_failure_that_may_be_another_attempts_says_so() {
    let sure = diagnose(&case(vec![reg_mr(14)]));
    let mut doubted = reg_mr(14);
    doubted.doubts = vec![
        "it came before its attempt started".to_owned(),
        "its attempt was not placed on this host".to_owned(),
    ];
    let mut swallowed = doubted.clone();
    let verdict = diagnose(&case(vec![doubted]));
    let line = "the deciding failure may be another attempt's: it came before its attempt \
                started; its attempt was not placed on this host";
    assert_eq!(verdict.against[0], line);
    assert_eq!(
        (sure.confidence, verdict.confidence),
        (Confidence::High, Confidence::Medium)
    );
    swallowed.flags.swallowed = true;
    assert_eq!(diagnose(&case(vec![swallowed])).against[0], line);
}

#[test]
fn counters_say_why_a_row_that_stands_there_decides_nothing() {
    let mut expected = reg_mr(14);
    expected.flags.expected = true;
    let mut incomplete = reg_mr(14);
    incomplete.flags.incomplete = true;
    for (chains, why) in [
        (vec![expected], "part of normal work"),
        (vec![incomplete], "its chain is incomplete"),
        (vec![], "its details were dropped"),
    ] {
        let counted = Case {
            totals: vec![total(1)],
            ..case(chains)
        };
        let evidence = diagnose(&counted).evidence;
        let last = evidence.last().unwrap();
        assert!(last.contains("failed once with EFAULT"), "{last}");
        assert!(
            last.ends_with(why) || last.contains(&format!("; {why}")),
            "{last}"
        );
        assert_eq!(
            last.contains("were dropped, are still"),
            why.contains("details"),
            "{last}"
        );
    }
}

#[test]
fn what_may_be_another_attempts_is_named() {
    let shared = Case {
        ambiguous: vec![Ambiguous {
            host: "gpu-01".into(),
            calls: 1,
            others: vec!["V11b/0".into()],
        }],
        ..case(vec![])
    };
    assert_eq!(
        diagnose(&shared).unwatched,
        ["1 failing call on gpu-01 may belong to this attempt or to V11b/0; no task named its job"]
    );
}

#[test]
fn a_missing_hook_is_told_where_it_bears_on_the_verb() {
    let lacking = |chains| {
        let mut case = case(chains);
        let probes = case.hosts[0].probes.as_mut().unwrap();
        for (hook, layer, verb) in [
            ("driver.reg_dmabuf_mr", Layer::Driver, Verb::RegDmabufMr),
            ("memory.dmabuf", Layer::Memory, Verb::Unspecified),
        ] {
            probes
                .probes
                .push(probe(hook, layer, verb, ProbeState::Missing));
        }
        diagnose(&case).unwatched
    };
    assert_eq!(lacking(vec![reg_mr(14)]), Vec::<String>::new());
    let both = "gpu-01: hooks without a probe: driver.reg_dmabuf_mr, memory.dmabuf";
    assert_eq!(lacking(vec![]), [both]);
    let mut dmabuf = reg_mr(14);
    dmabuf.verb = Verb::RegDmabufMr;
    assert_eq!(lacking(vec![dmabuf]), [both]);
}

#[test]
fn a_storm_with_dropped_records_is_counted_from_below() {
    let mut many = reg_mr(14);
    many.count = 16_213;
    let mut dropped = case(vec![many.clone()]);
    dropped.hosts[0].drops = 9;
    let same = |case: &Case| {
        let evidence = diagnose(case).evidence;
        evidence
            .into_iter()
            .find(|e| e.starts_with("the same failure"))
            .unwrap()
    };
    assert!(same(&dropped).contains("at least 16213 times"));
    assert!(!same(&case(vec![many])).contains("at least"));
}
