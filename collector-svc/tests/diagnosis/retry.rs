//! Is another attempt worth it, and on which hosts not?

use rdmesh_collector::diagnosis::{Advice, Chain, Past, Verdict, advise, diagnose};
use rdmesh_proto::collector::v1::{Confidence, RetryAdvice, VerdictClass};
use rdmesh_proto::common::v1::{Layer, Verb};

use crate::made::{case, chain, reg_mr};

fn firmware(host: &str) -> Chain {
    Chain {
        host: host.into(),
        ..chain(
            Verb::CreateQp,
            5,
            &[
                ("mlx5_cmd_exec", "mlx5_core", Layer::Firmware),
                ("mlx5_ib_create_qp", "mlx5_ib", Layer::Driver),
            ],
        )
    }
}

fn hosts(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn past(attempt: &str, verdict: &Verdict, on: &[&str]) -> Past {
    let class = format!("{:?}", verdict.class);
    assert_eq!(class, "Firmware");
    Past {
        attempt: attempt.into(),
        class: "firmware".into(),
        function: verdict.function.clone(),
        errno: verdict.errno,
        hosts: hosts(on),
    }
}

fn advice(verdict: &Verdict, placed_on: &[&str], past: &[Past]) -> Advice {
    advise(verdict, &hosts(placed_on), false, past)
}

const TWO: [&str; 2] = ["gpu-01", "gpu-02"];

#[test]
fn a_cause_on_one_host_is_left_behind() {
    let verdict = diagnose(&case(vec![firmware("gpu-01")]));
    let advice = advice(&verdict, &TWO, &[]);
    assert_eq!(advice.advice, RetryAdvice::RetryWithoutHosts);
    assert_eq!(advice.hosts, ["gpu-01"]);
    assert_eq!(advice.evidence[0], verdict.summary);
}

#[test]
fn a_cause_on_every_host_waits_for_its_team() {
    let verdict = diagnose(&case(vec![firmware("gpu-01"), firmware("gpu-02")]));
    let advice = advice(&verdict, &TWO, &[]);
    assert_eq!(
        (advice.advice, advice.hosts),
        (RetryAdvice::DoNotRetry, vec![])
    );
    assert!(
        advice.reason.contains(&verdict.route_to),
        "{}",
        advice.reason
    );
}

#[test]
fn a_fault_of_the_program_comes_again_on_any_host() {
    let verdict = diagnose(&case(vec![reg_mr(14)]));
    assert_eq!(verdict.class, VerdictClass::ApplicationArguments);
    let advice = advice(&verdict, &TWO, &[]);
    assert_eq!(advice.advice, RetryAdvice::DoNotRetry);
    assert_eq!(advice.confidence, verdict.confidence);
}

#[test]
fn a_failure_that_stays_with_a_host_is_the_hosts() {
    let verdict = diagnose(&case(vec![firmware("gpu-01")]));
    let before = [
        past("7/0", &verdict, &["gpu-01"]),
        past("7/1", &verdict, &["gpu-01", "gpu-05"]),
    ];
    let advice = advice(&verdict, &TWO, &before);
    assert_eq!(
        (advice.advice, advice.confidence),
        (RetryAdvice::RetryWithoutHosts, Confidence::High)
    );
    assert_eq!(advice.hosts, ["gpu-01"]);
    assert_eq!(advice.same_failure, ["7/0", "7/1"]);
    assert!(
        advice
            .reason
            .starts_with("the same failure 3 times, each time on gpu-01")
    );
}

#[test]
fn a_failure_that_follows_the_job_is_the_jobs() {
    let verdict = diagnose(&case(vec![firmware("gpu-01")]));
    let before = [past("7/0", &verdict, &["gpu-09"])];
    let advice = advice(&verdict, &TWO, &before);
    assert_eq!(advice.advice, RetryAdvice::DoNotRetry);
    assert!(
        advice.reason.contains("follows the job"),
        "{}",
        advice.reason
    );
}

#[test]
fn the_third_time_on_the_only_host_is_enough() {
    let verdict = diagnose(&case(vec![firmware("gpu-01")]));
    let before = |count: usize| vec![past("7/0", &verdict, &["gpu-01"]); count];
    let second = advice(&verdict, &["gpu-01"], &before(1));
    assert!(
        second.reason.contains("run it on other hosts"),
        "{}",
        second.reason
    );
    let third = advice(&verdict, &["gpu-01"], &before(2));
    assert!(
        third.reason.contains("3 times on all of its hosts"),
        "{}",
        third.reason
    );
}

#[test]
fn another_failure_before_tells_nothing() {
    let verdict = diagnose(&case(vec![firmware("gpu-01")]));
    let mut other = past("7/0", &verdict, &["gpu-09"]);
    other.errno = 12;
    let advice = advice(&verdict, &TWO, &[other]);
    assert_eq!(advice.advice, RetryAdvice::RetryWithoutHosts);
    assert!(advice.same_failure.is_empty());
}

#[test]
fn what_nobody_can_tell_may_be_tried_and_a_success_may_not() {
    let verdict = diagnose(&case(Vec::new()));
    let unknown = advice(&verdict, &TWO, &[]);
    assert_eq!(
        (unknown.advice, unknown.confidence),
        (RetryAdvice::Retry, Confidence::Low)
    );
    let completed = advise(&verdict, &hosts(&TWO), true, &[]);
    assert_eq!(completed.advice, RetryAdvice::DoNotRetry);
}
