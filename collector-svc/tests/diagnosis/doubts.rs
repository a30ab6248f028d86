//! Rows whose times, or whose attempt, may be wrong.

use std::time::Duration;

use rdmesh_collector::diagnosis::{Case, Chain, Verdict, diagnose};
use rdmesh_proto::collector::v1::Confidence;

use crate::made::{T0, after, case, modify_qp, reg_mr};

const LONG_BEFORE: &str = "it ended more than 10 seconds before its snapshot's interval began";

/// The failure, said to be of 17 minutes before all others.
fn too_early(mut chain: Chain) -> Chain {
    chain.host = "gpu-09".into();
    chain.first_at = T0 - Duration::from_secs(1_020);
    chain.last_at = chain.first_at;
    chain.time_doubts = vec![LONG_BEFORE.into()];
    chain
}

fn says(lines: &[String], text: &str) -> bool {
    lines.iter().any(|line| line.contains(text))
}

#[test]
fn a_row_without_doubts_sets_time_and_first_host() {
    let sure = diagnose(&case(vec![reg_mr(14)]));
    let verdict = diagnose(&case(vec![too_early(reg_mr(14)), reg_mr(14)]));
    assert_eq!(verdict.first_at, Some(T0));
    assert_eq!(verdict.hosts, ["gpu-01", "gpu-09"]);
    assert_eq!(verdict.confidence, sure.confidence);
    assert_eq!(
        verdict.against[0],
        format!(
            "a row of the same failure is in doubt and sets neither time nor first host: \
             2026-11-25 11:43:00.250Z rank 3 on gpu-09: {LONG_BEFORE}"
        )
    );
    assert!(
        verdict
            .summary
            .starts_with("rank 3 on gpu-01, and one more host,")
    );
}

#[test]
fn an_attempt_in_doubt_weighs_like_a_time_in_doubt() {
    let mut other = too_early(reg_mr(14));
    other.doubts = std::mem::take(&mut other.time_doubts);
    let verdict = diagnose(&case(vec![other, reg_mr(14)]));
    assert_eq!(verdict.first_at, Some(T0));
    assert_eq!(verdict.hosts[0], "gpu-01");
}

#[test]
fn where_only_rows_in_doubt_decide_the_verdict_is_less_sure() {
    let early = diagnose(&case(vec![too_early(reg_mr(14))]));
    assert_eq!(early.confidence, Confidence::Medium);
    assert_eq!(
        early.against[0],
        format!("the time of the deciding failure may be wrong: {LONG_BEFORE}")
    );
    let mut later = modify_qp(22, "mlx5_ib_modify_qp");
    later.first_at = after(10);
    let verdict = diagnose(&case(vec![too_early(reg_mr(14)), later]));
    assert_eq!(verdict.function, "ib_umem_get");
    assert_eq!(verdict.confidence, Confidence::Medium);
    assert!(
        says(
            &verdict.against,
            "the first failure that nothing speaks against is another: 2026-11-25 12:00:00.260Z"
        ),
        "{:?}",
        verdict.against
    );
}

#[test]
fn the_time_of_a_failure_is_that_of_its_row_without_doubts() {
    let mut sure = reg_mr(14);
    sure.first_at = after(5_000);
    let verdict = diagnose(&case(vec![
        too_early(reg_mr(14)),
        modify_qp(22, "mlx5_ib_modify_qp"),
        sure,
    ]));
    assert_eq!(verdict.function, "mlx5_ib_modify_qp");
    assert!(
        says(&verdict.evidence, "another failure 5.000 s later"),
        "{:?}",
        verdict.evidence
    );
}

#[test]
fn an_odd_clock_whose_times_hold_is_told_alone() {
    let mut jumped = reg_mr(14);
    jumped.clock_notes = vec!["the host's clock jumped by +3600.000 s".into()];
    let verdict = diagnose(&case(vec![jumped]));
    assert_eq!(verdict.confidence, Confidence::High);
    assert!(says(&verdict.against, "jumped by +3600.000 s"));
}

fn ended_before_it_started(chains: Vec<Chain>) -> Verdict {
    let case = case(chains);
    let (started_at, ended_at) = (case.ended_at, case.started_at);
    diagnose(&Case {
        started_at,
        ended_at,
        ..case
    })
}

#[test]
fn times_that_contradict_each_other_speak_against_any_verdict() {
    let line = "the times told of the attempt contradict each other: it ended at 2026-11-25 \
                11:59:30.250Z, before it started at 2026-11-25 12:00:30.250Z; when it ran is not \
                known";
    let decided = ended_before_it_started(vec![reg_mr(14)]);
    assert_eq!(decided.confidence, Confidence::Medium);
    let nothing = ended_before_it_started(vec![]);
    for verdict in [decided, nothing] {
        assert!(says(&verdict.against, line), "{:?}", verdict.against);
        assert_eq!(
            verdict.unwatched,
            [
                "when the attempt ran is not known: failures on its hosts whose tasks named no job \
                 were looked at only between 2026-11-25 11:59:30.250Z and 2026-11-25 12:00:30.250Z"
            ]
        );
    }
    let usual = diagnose(&case(vec![reg_mr(14)]));
    assert!(!says(&usual.against, "contradict"));
}

#[test]
fn one_process_is_named_by_its_number_and_several_are_not() {
    let mut alone = reg_mr(14);
    alone.rank = None;
    let mut other = alone.clone();
    other.host = "gpu-02".into();
    other.tgid = 7_000;
    let one = diagnose(&case(vec![alone.clone(), alone.clone()]));
    assert!(
        one.summary
            .starts_with("python (pid 100) on gpu-01 failed in")
    );
    let many = diagnose(&case(vec![alone.clone(), other.clone()]));
    assert!(
        many.summary
            .starts_with("python on gpu-01, and one more host, failed in")
    );
    other.host = "gpu-01".into();
    let same_host = diagnose(&case(vec![alone, other]));
    assert!(same_host.summary.starts_with("python on gpu-01 failed in"));
}
