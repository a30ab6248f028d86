//! Automatic mode, end to end: a host whose collector leases windows records by itself what
//! good calls do, captures a failure that comes again and again, and `rdmesh diagnose` says
//! where it leaves the good ones.

use anyhow::{Context, Result, ensure};
use rdmesh_client::AttemptId;
use rdmesh_client::jobs::JobStart;
use rdmesh_lab::chains::umem;
use rdmesh_lab::forks::good_calls;
use rdmesh_lab::host::HostPlan;
use rdmesh_lab::kernels::Kernel;
use rdmesh_lab::lab::{Lab, Task};
use rdmesh_lab::progress::Progress;
use rdmesh_lab::until;
use rdmesh_lab::verbs::Verbs;
use std::collections::BTreeMap;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);
/// A tracer looks after 30 to 90 s, and each minute then; a window takes half of one here.
const BY_ITSELF: Duration = Duration::from_secs(400);
const JOB: &str = "forked";

async fn start_job(lab: &Lab) -> Result<()> {
    let start = JobStart {
        attempt: AttemptId::new(JOB, 0, 0)?,
        name: JOB.to_owned(),
        user: "alice".to_owned(),
        scheduler: "slurm".to_owned(),
        cluster: "lab".to_owned(),
        job_class: "training".to_owned(),
        started_at: None,
        placements: vec!["gpu-01:ranks=0".parse()?],
        labels: BTreeMap::new(),
    };
    lab.client().start_job(start).await?;
    Ok(())
}

#[derive(serde::Deserialize)]
struct Count {
    count: u64,
}

async fn count(lab: &Lab, of: &str) -> Result<u64> {
    let query = format!("SELECT count(*) AS count FROM rdmesh.{of}");
    Ok(lab.sql().row::<Count>(&query).await?.count)
}

async fn by_itself(kernel: Kernel) -> Result<()> {
    let lab = Lab::start(Progress::Quiet).await?;
    let config = "[baseline]\nautomatic = true\n";
    let host = lab
        .host_with("gpu-01", kernel, HostPlan::default(), config)
        .await?;
    let programs = host.bpf_programs().await?.len();
    let result = async {
        until::holds("a baseline that nobody asked for", BY_ITSELF, || async {
            good_calls(&host).await?;
            Ok(count(&lab, "baselines WHERE verb = 'reg_mr'").await? > 0)
        })
        .await?;
        start_job(&lab).await?;
        until::holds("a failing call is captured", BY_ITSELF, || async {
            let exec = Verbs::new("reg-mr-efault").exec();
            host.run_task(&Task::of(JOB), exec, LIMIT).await?;
            Ok(count(&lab, "forks").await? > 0)
        })
        .await?;
        let shown = lab.rdmesh(&["diagnose", JOB]).await?;
        let text = String::from_utf8_lossy(&shown.stdout).into_owned();
        println!("{text}");
        let words: Vec<&str> = text.split_whitespace().collect();
        let text = words.join(" ");
        let function = umem(kernel);
        ensure!(
            text.contains(&format!("good calls left at {function} (depth"))
                && text.contains("returned EFAULT, usually good")
                && text.contains("beside the reg_mr baseline of gpu-01 (rdma_rxe on"),
            "{text}"
        );
        until::holds("its windows are closed", LIMIT, || async {
            Ok(host.bpf_programs().await?.len() == programs)
        })
        .await
    }
    .await;
    if result.is_err() {
        println!("tracer-svc says:\n{}", host.tracer_log().await?);
    }
    result.with_context(|| lab.collector().log_tail())
}

#[tokio::test]
async fn a_failure_is_captured_by_itself_on_6_12() -> Result<()> {
    by_itself(Kernel::V6_12).await
}
