//! Is another attempt worth it, and on which hosts not?
//!
//! Where the cause sits on some hosts of the attempt, it goes on without them. Where it
//! lies in the program or its configuration, it comes again on any host. The job's other
//! attempts tell which: a failure that follows the job across hosts is the job's, one that
//! stays with a host is the host's.

use rdmesh_joblog::Class;
use rdmesh_proto::collector::v1::{Confidence, RetryAdvice, VerdictClass};

use crate::diagnosis::Verdict;
use crate::diagnosis::history::is_same;
use crate::diagnosis::select::distinct;
use crate::diagnosis::watch::listed;

/// Attempts with the same failure in a row after which nobody hopes for luck.
const IN_A_ROW: usize = 3;

/// Another attempt of the same job, by its last verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Past {
    /// JOB/REQUEUE.
    pub attempt: String,
    /// Class of its verdict.
    pub class: String,
    /// Deepest failing function; empty: none decided.
    pub function: String,
    /// Positive; 0: none.
    pub errno: i32,
    /// Hosts of the failure.
    pub hosts: Vec<String>,
}

/// What to do, and why. The names are those of gRPC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    /// What.
    pub advice: RetryAdvice,
    /// Hosts to leave out.
    pub hosts: Vec<String>,
    /// How sure that is.
    pub confidence: Confidence,
    /// Why, in a sentence.
    pub reason: String,
    /// What speaks for it.
    pub evidence: Vec<String>,
    /// Other attempts with the same failure.
    pub same_failure: Vec<String>,
}

/// How a cause behaves when the job runs again.
enum Nature {
    /// It lies in the program, its configuration or its size.
    Job,
    /// It sits on a host.
    Host,
    /// It passes by itself.
    Passing,
    /// Nothing is known of it.
    Unknown,
}

/// Advises on an attempt that was placed on `placed_on`. `completed`: it ended well;
/// `past`: the job's other attempts, oldest first.
pub fn advise(verdict: &Verdict, placed_on: &[String], completed: bool, past: &[Past]) -> Advice {
    if completed {
        return Advice {
            advice: RetryAdvice::DoNotRetry,
            hosts: Vec::new(),
            confidence: Confidence::High,
            reason: "the attempt completed".to_owned(),
            evidence: Vec::new(),
            same_failure: Vec::new(),
        };
    }
    let same: Vec<&Past> = past.iter().filter(|past| is_same(past, verdict)).collect();
    let mut advice =
        by_history(verdict, placed_on, &same).unwrap_or_else(|| by_nature(verdict, placed_on));
    advice.same_failure = same.iter().map(|past| past.attempt.clone()).collect();
    advice.evidence.push(verdict.summary.clone());
    if let Some(log) = &verdict.log {
        advice.evidence.push(log.statement.clone());
    }
    advice
}

/// What the other attempts with the same failure tell.
fn by_history(verdict: &Verdict, placed_on: &[String], same: &[&Past]) -> Option<Advice> {
    let last = same.last()?;
    let shared: Vec<String> = verdict
        .hosts
        .iter()
        .filter(|host| same.iter().all(|past| past.hosts.contains(host)))
        .cloned()
        .collect();
    let times = same.len() + 1;
    if shared.is_empty() {
        return Some(Advice::new(
            RetryAdvice::DoNotRetry,
            Confidence::High,
            format!(
                "the same failure {times} times on different hosts, the last time in {}: it \
                 follows the job and not a host",
                last.attempt
            ),
        ));
    }
    if let Some(hosts) = part_of(&shared, placed_on) {
        let confidence = match nature(verdict) {
            Nature::Job => Confidence::Medium,
            _ => Confidence::High,
        };
        return Some(
            Advice::new(
                RetryAdvice::RetryWithoutHosts,
                confidence,
                format!(
                    "the same failure {times} times, each time on {}, and other hosts of the \
                     attempt did not fail so",
                    named(&hosts)
                ),
            )
            .without(hosts),
        );
    }
    (times >= IN_A_ROW).then(|| {
        Advice::new(
            RetryAdvice::DoNotRetry,
            Confidence::High,
            format!(
                "the same failure {times} times on all of its hosts: running again changes nothing"
            ),
        )
    })
}

/// The first attempt that fails so.
fn by_nature(verdict: &Verdict, placed_on: &[String]) -> Advice {
    match nature(verdict) {
        Nature::Job => Advice::new(
            RetryAdvice::DoNotRetry,
            verdict.confidence,
            format!(
                "the cause lies in the job and comes again on any host; {} first",
                verdict.route_to
            ),
        ),
        Nature::Host => match part_of(&verdict.hosts, placed_on) {
            Some(hosts) => Advice::new(
                RetryAdvice::RetryWithoutHosts,
                verdict.confidence,
                format!(
                    "the cause sits on {}, where the others did not fail so",
                    named(&hosts)
                ),
            )
            .without(hosts),
            None => Advice::new(
                RetryAdvice::DoNotRetry,
                less(verdict.confidence),
                format!(
                    "every host of the attempt that is known failed so; {} first, or run it on \
                     other hosts",
                    verdict.route_to
                ),
            ),
        },
        Nature::Passing => Advice::new(
            RetryAdvice::Retry,
            less(verdict.confidence),
            "such a cause passes by itself".to_owned(),
        ),
        Nature::Unknown => Advice::new(
            RetryAdvice::Retry,
            Confidence::Low,
            "nothing is known that would come again".to_owned(),
        ),
    }
}

fn nature(verdict: &Verdict) -> Nature {
    use VerdictClass as V;
    match verdict.class {
        V::ApplicationArguments | V::Configuration => Nature::Job,
        V::GpuPeerMemory
        | V::MemoryLimits
        | V::MemoryPinning
        | V::Driver
        | V::Firmware
        | V::SwallowedError
        | V::Device
        | V::Reachability
        | V::Host => Nature::Host,
        V::Network | V::Process | V::InjectedStraggler => Nature::Passing,
        V::CannotTell | V::Unspecified => {
            match verdict.log.as_ref().map(|log| log.evidence.class) {
                Some(Class::Config | Class::Oom) => Nature::Job,
                Some(Class::Network | Class::Hang) => Nature::Passing,
                _ => Nature::Unknown,
            }
        }
    }
}

/// The hosts, where the attempt has others besides.
fn part_of(hosts: &[String], placed_on: &[String]) -> Option<Vec<String>> {
    let hosts = distinct(hosts.iter().map(String::as_str));
    let others = placed_on.iter().any(|host| !hosts.contains(host));
    (!hosts.is_empty() && others).then_some(hosts)
}

fn named(hosts: &[String]) -> String {
    listed(&hosts.iter().map(String::as_str).collect::<Vec<_>>())
}

fn less(confidence: Confidence) -> Confidence {
    match confidence {
        Confidence::High => Confidence::Medium,
        _ => Confidence::Low,
    }
}

impl Advice {
    fn new(advice: RetryAdvice, confidence: Confidence, reason: String) -> Self {
        Self {
            advice,
            hosts: Vec::new(),
            confidence,
            reason,
            evidence: Vec::new(),
            same_failure: Vec::new(),
        }
    }

    fn without(mut self, hosts: Vec<String>) -> Self {
        self.hosts = hosts;
        self
    }
}
