//! What else goes wrong on a host, where no call fails: a link, a crash, too little memory.

use crate::odd::start;
use anyhow::{Context, Result};
use rdmesh_client::AttemptId;
use rdmesh_client::jobs::JobEnd;
use rdmesh_client::model::job::JobState;
use rdmesh_client::model::verdict::{Verdict, VerdictClass};
use rdmesh_guest::{Command, Text};
use rdmesh_lab::lab::{Lab, Task, TracedHost};
use rdmesh_lab::until;
use rdmesh_lab::verbs::Verbs;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
const SEEN: Duration = Duration::from_secs(60);
const SIGKILL: i32 = 9;
const SIGSEGV: i32 = 11;

/// No call fails, and the job ends badly: what else went wrong on its host decides.
async fn verdict_without_a_failing_call(lab: &Lab, job: &str, signal: &str) -> Result<Verdict> {
    #[derive(serde::Deserialize)]
    struct Signal {
        detail: String,
    }
    let query = format!("SELECT detail FROM rdmesh.co_signals WHERE name = '{signal}'");
    let found = until::some(signal, SEEN, || async {
        Ok(lab.sql().rows::<Signal>(&query).await?.into_iter().next())
    });
    println!("{signal}: {}", found.await?.detail);
    let end = JobEnd {
        attempt: AttemptId::new(job, 0, 0)?,
        state: JobState::Failed,
        ended_at: None,
        exit_code: Some(1),
        exit_reason: String::new(),
    };
    lab.client().end_job(end).await?;
    Ok(lab.client().diagnose(&job.parse()?).await?.verdict)
}

/// The port of an RDMA device goes down.
pub(crate) async fn a_link_goes_down(lab: &Lab, host: &TracedHost) -> Result<()> {
    lab.client().start_job(start("link", "gpu-01")?).await?;
    let link = |up| Command::Link {
        name: "dummy0".into(),
        up,
    };
    host.done(link(false)).await?;
    let verdict = verdict_without_a_failing_call(lab, "link", "port_state").await?;
    host.done(link(true)).await?;
    assert_eq!(verdict.class, VerdictClass::Network, "{verdict:#?}");
    assert_eq!(verdict.devices, ["rxe0"]);
    let summary = verdict.summary.clone().unwrap_or_default();
    assert!(summary.contains("ACTIVE to DOWN"), "{verdict:#?}");
    Ok(())
}

/// A rank crashes: one end of a process is told, however many threads it has, with its job
/// and rank. Nobody's process is told of.
pub(crate) async fn a_rank_crashes(lab: &Lab, host: &TracedHost) -> Result<()> {
    #[derive(serde::Deserialize)]
    struct End {
        name: String,
        detail: String,
        job_id: Option<String>,
        requeue: Option<i64>,
    }
    lab.client().start_job(start("crashed", "gpu-01")?).await?;
    let crash = || Verbs::new("crash").exec();
    let nobodys = host.run(crash(), LIMIT).await?;
    let task = Task {
        rank: Some(5),
        ..Task::of("crashed")
    };
    let exit = host.run_task(&task, crash(), LIMIT).await?;
    assert_eq!(
        (nobodys.signal, exit.signal),
        (Some(SIGSEGV), Some(SIGSEGV))
    );
    let verdict = verdict_without_a_failing_call(lab, "crashed", "SIGSEGV").await?;
    assert_eq!(verdict.class, VerdictClass::Process, "{verdict:#?}");
    let summary = verdict.summary.clone().unwrap_or_default();
    assert!(
        summary.contains("SIGSEGV") && summary.contains("of rank 5"),
        "{verdict:#?}"
    );
    let query = "SELECT name, detail, job_id, requeue FROM rdmesh.co_signals
                 WHERE tgid IS NOT NULL AND job_id = 'crashed' OR name = 'SIGSEGV'";
    let ends: Vec<End> = lab.sql().rows(query).await?;
    let [end] = &ends[..] else {
        anyhow::bail!("{} ends are told", ends.len());
    };
    assert_eq!(
        (end.name.as_str(), end.job_id.as_deref(), end.requeue),
        ("SIGSEGV", Some("crashed"), Some(0))
    );
    assert!(end.detail.contains("(rdmesh-verbs)"), "{}", end.detail);
    Ok(())
}

/// A task asks for more memory than its control group has.
pub(crate) async fn a_task_is_killed_for_memory(lab: &Lab, host: &TracedHost) -> Result<()> {
    let task = Task::of("hungry");
    let groups = "/sys/fs/cgroup";
    for (file, text) in [
        ("cgroup.subtree_control", "+memory"),
        ("jobs/cgroup.subtree_control", "+memory"),
        ("jobs/hungry/memory.max", "16M"),
    ] {
        host.write_file(&format!("{groups}/{file}"), Text::from(text), 0o644)
            .await
            .context(file)?;
    }
    lab.client().start_job(start("hungry", "gpu-01")?).await?;
    let hungry = Verbs::new("hungry").exec();
    let exit = host.run_task(&task, hungry, LIMIT).await?;
    assert_eq!(exit.signal, Some(SIGKILL), "{exit:?}");
    let verdict = verdict_without_a_failing_call(lab, "hungry", "oom_kill").await?;
    assert_eq!(verdict.class, VerdictClass::Host, "{verdict:#?}");
    let summary = verdict.summary.clone().unwrap_or_default();
    assert!(summary.contains("hungry"), "{verdict:#?}");
    Ok(())
}
