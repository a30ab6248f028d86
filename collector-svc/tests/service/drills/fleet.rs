//! Drills over more than one attempt: a crash loop, and an incident of the fleet.

use rdmesh_proto::collector::v1::{JobState, Verdict, VerdictClass as Class};
use rdmesh_proto::common::v1::{Layer, Verb};
use rdmesh_proto::tracer::v1::Inventory;

use super::memory::four_levels;
use super::snapshot::{Fail, Step};
use super::{Told, run, usual};
use crate::made::seconds_ago;
use crate::running::Running;

const EIO: u32 = 5;
const EFAULT: u32 = 14;

/// A driver that no other drill has, so that no other has its signature.
const BNXT: (&str, &str) = ("bnxt_re", "bnxt_re_reg_user_mr");

/// Hosts of the incident that fail, and hosts that are well.
pub(super) const FAILING: usize = 2_000;
pub(super) const HEALTHY: usize = 40;
/// Jobs over which the failing hosts are spread.
const JOBS: usize = 4;

/// The requeues that fail in the same way on the same host, and the one that is asked for.
const LOOP: std::ops::RangeInclusive<u32> = 3..=7;
const ASKED: u32 = 8;

/// The verdict on the attempt after the loop.
pub(super) async fn crash_loop(collector: &Running) -> Verdict {
    let lose = |errno| {
        let steps: [Step; 2] = [
            ("mlx5_ib_create_qp", "mlx5_ib", Layer::Driver, errno),
            ("ib_create_qp_user", "ib_core", Layer::Core, errno),
        ];
        Fail::new(Verb::CreateQp, "mlx5_ib", &steps)
    };
    let bad = || vec![Told::new("a").fails(lose(EIO)), Told::new("b")];
    for requeue in 1..=ASKED {
        let told = if LOOP.contains(&requeue) || requeue == ASKED {
            bad()
        } else {
            vec![Told::new("a"), Told::new("b").fails(lose(EFAULT))]
        };
        let name = |told: &Told| format!("loop-{}", told.name);
        let names: Vec<String> = told.iter().map(name).collect();
        run::begin(collector, "loop", requeue, &names).await;
        let hosts = told.into_iter().zip(names);
        let hosts = hosts.map(|(told, name)| (told, name, "loop".to_owned(), requeue));
        run::report(collector, hosts.collect()).await;
        run::end(collector, "loop", requeue, JobState::Failed).await;
        run::diagnose(collector, &format!("loop/{requeue}")).await;
    }
    run::diagnose(collector, &format!("loop/{ASKED}")).await
}

/// The new driver, ten minutes ago; the one before since a day.
fn updated(inventory: &mut Inventory) {
    inventory.devices[0].driver = "bnxt_re".into();
    inventory.devices[0].driver_version = "25.01".into();
    inventory.id = "new".into();
    inventory.seen_at = Some(seconds_ago(600));
}

fn before(inventory: &mut Inventory) {
    inventory.devices[0].driver = "bnxt_re".into();
    inventory.seen_at = Some(seconds_ago(86_400));
}

/// Four levels of EFAULT on thousands of hosts after an update of the driver.
pub(super) async fn incident(collector: &Running) -> Verdict {
    let name = |number: usize| format!("rack-{number:04}");
    let mut hosts = Vec::new();
    for job in 0..JOBS {
        let names: Vec<String> = (0..FAILING)
            .filter(|number| number % JOBS == job)
            .map(name)
            .collect();
        let job = format!("fleet-{job}");
        run::begin(collector, &job, 0, &names).await;
        let failing = Told {
            earlier: Some({
                let mut inventory = usual();
                before(&mut inventory);
                inventory
            }),
            ..Told::new("").is(updated).fails(four_levels(BNXT))
        };
        hosts.extend(
            names
                .into_iter()
                .map(|name| (failing.clone(), name, job.clone(), 0)),
        );
    }
    let well = Told::new("").is(before);
    let healthy = (FAILING..FAILING + HEALTHY).map(name);
    hosts.extend(healthy.map(|name| (well.clone(), name, String::new(), 0)));
    run::report(collector, hosts).await;
    run::end(collector, "fleet-1", 0, JobState::Failed).await;
    run::diagnose(collector, "fleet-1").await
}

/// What is wrong with the two verdicts.
pub(super) fn wrong(looped: &Verdict, incident: &Verdict) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut must = |what: &str, verdict: &Verdict, class: Class, says: &[&str]| {
        if verdict.class() != class {
            wrong.push(format!("{what}: class is {:?}", verdict.class()));
        }
        let said = [
            verdict.evidence.as_slice(),
            std::slice::from_ref(&verdict.summary),
        ];
        let said = said.concat().join("\n");
        for says in says {
            if !said.contains(says) {
                wrong.push(format!("{what}: nothing says {says:?}:\n{said}"));
            }
        }
    };
    must(
        "crash loop",
        looped,
        Class::Device,
        &["the same failure as attempts 3 to 7 on the same host, loop-a"],
    );
    must(
        "incident",
        incident,
        Class::GpuPeerMemory,
        &[
            "2000 hosts and 4 attempts",
            "driver of bnxt_re 25.01 since ",
            "(2000 of 2000 failing hosts, 0 of ",
        ],
    );
    wrong
}
