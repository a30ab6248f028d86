//! What the job's own logs say beside the verdict.

use rdmesh_collector::diagnosis::{
    Case, LogEvidence, LogOpinion, LoggedLine, ProbeState, Shaping, Signal, diagnose, kernel_verb,
    told_by,
};
use rdmesh_joblog::Class;
use rdmesh_proto::collector::v1::{LogAgreement, LogCoverage, ToldBy, VerdictClass};
use rdmesh_proto::tracer::v1::CoSignalKind;

use crate::made::{T0, case, modify_qp, reg_mr, watched};

fn logged(class: Class, verb: &str, kind: &str, errno: &str) -> LogEvidence {
    let decides = class.is_root();
    LogEvidence {
        logs: 16,
        class: if decides { class } else { Class::CannotTell },
        line: Some(LoggedLine {
            log: "rank3.err".into(),
            line: 7,
            count: 2,
            class,
            verb: verb.into(),
            kind: kind.into(),
            kernel_verb: kernel_verb(verb),
            errno_name: errno.into(),
            status: String::new(),
            device: "mlx5_0".into(),
            peer: String::new(),
            rank: Some(3),
            host: "gpu-01".into(),
            rule: "nccl.verb".into(),
            text: "NCCL WARN …".into(),
        }),
    }
}

fn with(case: Case, log: LogEvidence) -> (Case, LogOpinion) {
    let case = Case {
        log: Some(log),
        ..case
    };
    let opinion = diagnose(&case).log.unwrap();
    (case, opinion)
}

fn agreement(case: Case, class: Class) -> LogAgreement {
    with(case, logged(class, "", "", "")).1.agreement
}

fn signalled(kind: CoSignalKind) -> Case {
    Case {
        signals: vec![Signal {
            host: "gpu-01".into(),
            at: T0,
            kind,
            independent: true,
            name: "n".into(),
            detail: String::new(),
            device: String::new(),
        }],
        ..case(Vec::new())
    }
}

#[test]
fn a_log_that_tells_the_same_call_speaks_for_the_verdict() {
    let log = logged(Class::Syscall, "ibv_reg_mr", "register", "EFAULT");
    let (case, opinion) = with(case(vec![reg_mr(14)]), log);
    assert_eq!(
        (opinion.agreement, opinion.coverage, opinion.misattributed),
        (LogAgreement::Agrees, LogCoverage::Covered, false)
    );
    let verdict = diagnose(&case);
    assert!(verdict.evidence.contains(&opinion.statement));
    assert_eq!(
        opinion.statement,
        "the job's own log tells the same: ibv_reg_mr failed with EFAULT (line 7 of rank3.err, \
         rank 3, on gpu-01, 2 lines say so): \"NCCL WARN …\""
    );
    let bare = diagnose(&Case { log: None, ..case });
    assert_eq!(
        (verdict.class, verdict.confidence),
        (bare.class, bare.confidence)
    );
}

#[test]
fn network_in_the_log_and_a_failing_call_in_the_kernel_is_misattribution() {
    let log = logged(Class::Network, "poll_cq", "data", "");
    let (case, opinion) = with(case(vec![reg_mr(14)]), log);
    assert!(opinion.misattributed);
    assert_eq!(opinion.agreement, LogAgreement::Disagrees);
    assert!(
        opinion.statement.starts_with("misattribution: "),
        "{opinion:?}"
    );
    let verdict = diagnose(&case);
    assert!(verdict.against.contains(&opinion.statement));
    assert_eq!(verdict.class, VerdictClass::ApplicationArguments);
}

#[test]
fn a_peer_that_cannot_be_reached_is_the_networks_after_all() {
    let log = logged(Class::Network, "poll_cq", "data", "");
    let (_, opinion) = with(case(vec![modify_qp(110, "ib_resolve_eth_dmac")]), log);
    assert_eq!(
        (opinion.agreement, opinion.misattributed),
        (LogAgreement::Agrees, false)
    );
}

#[test]
fn what_waits_for_others_is_a_consequence() {
    let failing = || case(vec![reg_mr(14)]);
    assert_eq!(agreement(failing(), Class::Hang), LogAgreement::Consequence);
    assert_eq!(agreement(failing(), Class::FollowOn), LogAgreement::Silent);
    assert_eq!(agreement(failing(), Class::Gpu), LogAgreement::Disagrees);
    let shaped = Case {
        shaping: vec![Shaping {
            host: "gpu-01".into(),
            wire: "w".into(),
            rate_bps: 1_000_000_000,
            windows: 3,
            invalid: 0,
            silent_seconds: 0.0,
        }],
        ..case(Vec::new())
    };
    assert_eq!(agreement(shaped, Class::Network), LogAgreement::Consequence);
}

#[test]
fn co_signals_are_told_by_the_same_name_or_by_what_they_bring_about() {
    use CoSignalKind as K;
    for (kind, class, expected) in [
        (K::Network, Class::Network, LogAgreement::Agrees),
        (K::Device, Class::Device, LogAgreement::Agrees),
        (K::Host, Class::Oom, LogAgreement::Agrees),
        (K::Process, Class::Network, LogAgreement::Consequence),
        (K::Network, Class::Gpu, LogAgreement::Disagrees),
    ] {
        assert_eq!(
            agreement(signalled(kind), class),
            expected,
            "{kind:?} {class}"
        );
    }
}

#[test]
fn another_call_disagrees_and_the_one_after_a_swallowed_error_follows() {
    let other = || logged(Class::Syscall, "ibv_create_qp", "create", "EINVAL");
    let (_, opinion) = with(case(vec![reg_mr(14)]), other());
    assert_eq!(opinion.agreement, LogAgreement::Disagrees);
    let mut swallowed = reg_mr(12);
    swallowed.flags.swallowed = true;
    let (_, opinion) = with(case(vec![swallowed]), other());
    assert_eq!(opinion.agreement, LogAgreement::Consequence);
}

#[test]
fn a_log_alone_changes_no_verdict_and_is_said() {
    let log = logged(Class::Syscall, "ibv_reg_mr", "register", "EFAULT");
    let (case, opinion) = with(case(Vec::new()), log);
    let verdict = diagnose(&case);
    assert_eq!(verdict.class, VerdictClass::CannotTell);
    assert_eq!(opinion.agreement, LogAgreement::Alone);
    assert!(verdict.evidence.contains(&opinion.statement));
    // The probe was there and saw nothing.
    assert!(
        verdict
            .against
            .iter()
            .any(|line| line.contains("saw no failing call"))
    );
}

#[test]
fn coverage_says_why_a_call_could_not_be_seen() {
    let coverage = |verb, kind, class| {
        let log = logged(class, verb, kind, "");
        with(case(vec![reg_mr(14)]), log).1.coverage
    };
    let syscall = Class::Syscall;
    assert_eq!(
        coverage("ibv_modify_qp", "modify", syscall),
        LogCoverage::Covered
    );
    assert_eq!(
        coverage("ibv_create_srq", "create", syscall),
        LogCoverage::NoHook
    );
    assert_eq!(
        coverage("ibv_post_send", "data", syscall),
        LogCoverage::DataPath
    );
    assert_eq!(
        coverage("ibv_alloc_pd", "create", syscall),
        LogCoverage::NoProbe
    );
    assert_eq!(
        coverage("ibv_dereg_mr", "cleanup", Class::Cleanup),
        LogCoverage::Cleanup
    );
    assert_eq!(
        coverage("poll_cq", "data", Class::Network),
        LogCoverage::Unspecified
    );
    let mut asked = logged(Class::FollowOn, "ibv_query_port", "read_only", "");
    asked.class = Class::CannotTell;
    let (_, opinion) = with(case(Vec::new()), asked);
    assert_eq!(opinion.coverage, LogCoverage::ReadOnly);
}

#[test]
fn coverage_is_that_of_the_host_that_wrote_the_line() {
    let log = || logged(Class::Syscall, "ibv_reg_mr", "register", "EFAULT");
    let mut bare = watched("gpu-02");
    bare.probes = None;
    let two = |bare| Case {
        hosts: vec![watched("gpu-01.west.example"), bare],
        ..case(Vec::new())
    };
    assert_eq!(
        with(two(bare.clone()), log()).1.coverage,
        LogCoverage::Covered
    );
    let nowhere = LogEvidence {
        line: log().line.map(|line| LoggedLine {
            host: String::new(),
            ..line
        }),
        ..log()
    };
    assert_eq!(
        with(two(bare), nowhere.clone()).1.coverage,
        LogCoverage::NotWatched
    );
    let mut missing = watched("gpu-02");
    for probe in &mut missing.probes.as_mut().unwrap().probes {
        probe.state = ProbeState::Missing;
    }
    assert_eq!(with(two(missing), nowhere).1.coverage, LogCoverage::NoProbe);
}

#[test]
fn hours_count_under_what_told_of_them() {
    let told = |case: Case| {
        let verdict = diagnose(&case);
        told_by(&verdict)
    };
    let log = |class, kind| Some(logged(class, "ibv_dereg_mr", kind, ""));
    let of = |log, chains| Case {
        log,
        ..case(chains)
    };
    let kernel = told(of(log(Class::Network, "data"), vec![reg_mr(14)]));
    assert_eq!(kernel, (ToldBy::Kernel, "application_arguments".to_owned()));
    let signal = told(signalled(CoSignalKind::Network));
    assert_eq!(signal, (ToldBy::CoSignal, "network".to_owned()));
    let gpu = told(of(log(Class::Gpu, ""), Vec::new()));
    assert_eq!(gpu, (ToldBy::Log, "gpu".to_owned()));
    let cleanup = told(of(log(Class::Cleanup, "cleanup"), Vec::new()));
    assert_eq!(cleanup, (ToldBy::Log, "cleanup".to_owned()));
    let nothing = told(of(log(Class::FollowOn, ""), Vec::new()));
    assert_eq!(nothing, (ToldBy::Nothing, "cannot_tell".to_owned()));
}
