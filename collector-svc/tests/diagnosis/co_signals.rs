//! What else went wrong on a host decides where no call failed.

use std::time::Duration;

use rdmesh_collector::diagnosis::{Case, Signal, diagnose};
use rdmesh_proto::collector::v1::{Confidence, VerdictClass as Class};
use rdmesh_proto::tracer::v1::CoSignalKind;

use crate::made::{T0, case};
use crate::rules::port_down;

#[test]
fn what_was_over_before_the_attempt_started_is_another_ones() {
    let signal = |kind, millis: i64| Signal {
        kind,
        at: T0 - Duration::from_secs(30) + time::Duration::milliseconds(millis),
        ..port_down(true)
    };
    let class = |signals| {
        let verdict = diagnose(&Case {
            signals,
            ..case(vec![])
        });
        (verdict.class, verdict.confidence, verdict.against.len())
    };
    let (killed, link) = (CoSignalKind::Host, CoSignalKind::Network);
    // A process that was killed a second before; a link that was seen to go down.
    let both = vec![signal(killed, -1_000), signal(link, -500)];
    assert_eq!(class(both), (Class::Network, Confidence::Medium, 0));
    assert_eq!(class(vec![signal(killed, -1_000)]).0, Class::CannotTell);
    // Broken before, and nothing tells that it was mended.
    let long_before = vec![signal(link, -20_000)];
    assert_eq!(class(long_before), (Class::Network, Confidence::Low, 1));
    let later = vec![signal(link, -20_000), signal(killed, 1_000)];
    assert_eq!(class(later), (Class::Host, Confidence::Medium, 0));
}

#[test]
fn a_rank_that_somebody_ended_is_where_to_look_and_no_cause() {
    let end = |independent| Signal {
        kind: CoSignalKind::Process,
        independent,
        name: "SIGKILL".into(),
        detail: "ended process 4711 (python) of rank 3".into(),
        device: String::new(),
        ..port_down(true)
    };
    let of = |signal| {
        let signals = vec![signal];
        diagnose(&Case {
            signals,
            ..case(vec![])
        })
    };
    let verdict = of(end(false));
    assert_eq!(
        (verdict.class, verdict.rule),
        (Class::CannotTell, "nothing-decides")
    );
    let evidence = verdict.evidence.join("\n");
    assert!(
        evidence.contains("SIGKILL, ended process 4711 (python) of rank 3"),
        "{evidence}"
    );
    assert_eq!(of(end(true)).class, Class::Process);
}

#[test]
fn a_verdict_by_a_co_signal_speaks_of_it_and_not_of_an_errno() {
    for kind in [
        CoSignalKind::Network,
        CoSignalKind::Device,
        CoSignalKind::Host,
        CoSignalKind::Process,
    ] {
        let mut signal = port_down(true);
        signal.kind = kind;
        let verdict = diagnose(&Case {
            signals: vec![signal],
            ..case(vec![])
        });
        let texts = [vec![verdict.meaning], verdict.next_steps]
            .concat()
            .join("\n");
        assert!(texts.contains("gpu-01"), "{texts}");
        assert!(!texts.contains('{') && !texts.contains("errno"), "{texts}");
    }
}
