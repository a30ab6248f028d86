//! What is odd about hosts and jobs is told or marked; nothing is lost and nothing is
//! stored twice.

use crate::{co_signals, reload};
use anyhow::{Context, Result};
use rdmesh_client::AttemptId;
use rdmesh_client::jobs::{JobEnd, JobStart};
use rdmesh_client::model::job::JobState;
use rdmesh_client::model::verdict::VerdictClass;
use rdmesh_guest::{Command, Exec, Text};
use rdmesh_lab::chains;
use rdmesh_lab::host::HostPlan;
use rdmesh_lab::kernels::Kernel;
use rdmesh_lab::lab::{Lab, Task, TracedHost};
use rdmesh_lab::progress::Progress;
use rdmesh_lab::rows::{FailureRow, TotalRow};
use rdmesh_lab::until;
use rdmesh_lab::verbs::{Report, Verbs};
use std::collections::BTreeMap;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
const SEEN: Duration = Duration::from_secs(60);
const SIGTERM: i32 = 15;

pub(crate) fn start(job: &str, host: &str) -> Result<JobStart> {
    Ok(JobStart {
        attempt: AttemptId::new(job, 0, 0)?,
        name: String::new(),
        user: "alice".to_owned(),
        scheduler: "slurm".to_owned(),
        cluster: String::new(),
        job_class: String::new(),
        started_at: None,
        placements: vec![host.parse()?],
        labels: BTreeMap::new(),
    })
}

async fn rows(lab: &Lab, condition: &str) -> Result<Vec<FailureRow>> {
    let query = FailureRow::query(condition);
    until::some(&format!("rows where {condition}"), SEEN, || async {
        let rows: Vec<FailureRow> = lab.sql().rows(&query).await?;
        Ok((!rows.is_empty()).then_some(rows))
    })
    .await
}

async fn fail(host: &TracedHost, task: &Task, verbs: Verbs) -> Result<Report> {
    Report::parse(&host.run_task(task, verbs.exec(), LIMIT).await?)
}

#[tokio::test]
async fn oddities_are_marked() -> Result<()> {
    let lab = Lab::start(Progress::Quiet).await?;
    let host = lab.host("gpu-01", Kernel::V6_12).await?;
    println!(
        "kernel {} ({})",
        host.kernel_version(),
        host.ready().release
    );
    let result = async {
        not_utf8(&lab, &host)
            .await
            .context("names that are not UTF-8")?;
        no_identity(&lab, &host).await.context("no identity")?;
        late_scheduler(&lab, &host)
            .await
            .context("late scheduler")?;
        jobs_that_make_no_sense(&lab).await.context("odd jobs")?;
        many_ranks(&lab, &host).await.context("many ranks")?;
        co_signals::a_rank_crashes(&lab, &host)
            .await
            .context("a crash")?;
        co_signals::a_task_is_killed_for_memory(&lab, &host)
            .await
            .context("out of memory")?;
        co_signals::a_link_goes_down(&lab, &host)
            .await
            .context("a link")?;
        clock_jump(&lab, &host).await.context("clock jump")
    }
    .await;
    if result.is_err() {
        println!(
            "{}\ntracer-svc says:\n{}",
            lab.collector().log_tail(),
            host.tracer_log().await?
        );
    }
    result
}

async fn not_utf8(lab: &Lab, host: &TracedHost) -> Result<()> {
    let task = Task {
        cgroup: Some(Text::from(b"jobs/\xff\xfe7".to_vec())),
        ..Task::of("raw")
    };
    // "rank\xff0"
    fail(
        host,
        &task,
        Verbs::new("reg-mr-efault")
            .arg("--name-hex")
            .arg("72616e6bff30"),
    )
    .await?;
    let rows = rows(lab, "job_id = 'raw'").await?;
    assert_eq!(rows[0].comm, "rank\u{fffd}0");
    let group = rows[0].cgroup_path.as_deref().unwrap_or_default();
    assert!(
        group.starts_with("/jobs/") && group.ends_with('7'),
        "{group:?}"
    );
    let marks = rows[0].marks.join("; ");
    assert!(
        marks.contains("comm") && marks.contains("cgroup"),
        "{marks:?}"
    );
    Ok(())
}

/// Nothing names a job: counted all the same, attributed to nobody.
async fn no_identity(lab: &Lab, host: &TracedHost) -> Result<()> {
    let task = Task {
        cgroup: Some(Text::from("system/cron")),
        ..Task::default()
    };
    let report = fail(host, &task, Verbs::new("reg-mr-efault")).await?;
    let rows = rows(lab, &format!("tgid = {}", report.pid)).await?;
    assert_eq!(
        (rows[0].job_id.as_deref(), rows[0].source.as_str()),
        (None, "none")
    );
    Ok(())
}

/// Failures arrive before the scheduler speaks; they join all the same.
async fn late_scheduler(lab: &Lab, host: &TracedHost) -> Result<()> {
    // No environment: only the placement can tell.
    let task = Task {
        cgroup: Some(Text::from("late/scope")),
        ..Task::default()
    };
    let report = fail(host, &task, Verbs::new("reg-mr-efault")).await?;
    let condition = format!("tgid = {} AND comm = 'rdmesh-verbs'", report.pid);
    let before = rows(lab, &condition).await?;
    assert_eq!(before[0].job_id, None);
    let mut late = start("late", "gpu-01:ranks=0")?;
    late.started_at = Some(rdmesh_client::Moment::parse(
        "1m",
        rdmesh_client::Moment::now(),
    )?);
    lab.client().start_job(late).await?;
    until::holds("the late job's join", SEEN, || async {
        let rows: Vec<FailureRow> = lab.sql().rows(&FailureRow::query(&condition)).await?;
        let joined = rows.iter().all(|row| row.job_id.as_deref() == Some("late"));
        Ok(joined && rows[0].source == "placement")
    })
    .await?;
    let end = JobEnd {
        attempt: AttemptId::new("late", 0, 0)?,
        state: JobState::Failed,
        ended_at: None,
        exit_code: Some(1),
        exit_reason: "NonZeroExitCode".to_owned(),
    };
    lab.client().end_job(end).await?;
    let verdict = lab.client().diagnose(&"late".parse()?).await?.verdict;
    assert_eq!(
        verdict.class,
        VerdictClass::ApplicationArguments,
        "{verdict:#?}"
    );
    Ok(())
}

async fn jobs_that_make_no_sense(lab: &Lab) -> Result<()> {
    lab.client()
        .start_job(start("nowhere", "gpu-99:ranks=0")?)
        .await?;
    let history = lab.client().get_job(&"nowhere".parse()?).await?;
    let marks = history.job.marks.join("; ");
    assert!(
        marks.contains("gpu-99"),
        "a host that never reports is told: {marks:?}"
    );
    let diagnosis = lab.client().diagnose(&"nowhere".parse()?).await?;
    assert_eq!(diagnosis.verdict.class, VerdictClass::CannotTell);
    assert!(
        !diagnosis.verdict.unwatched.is_empty(),
        "{:#?}",
        diagnosis.verdict
    );

    lab.client()
        .start_job(start("backwards", "gpu-01")?)
        .await?;
    let end = JobEnd {
        attempt: AttemptId::new("backwards", 0, 0)?,
        state: JobState::Failed,
        ended_at: Some(rdmesh_client::Moment::parse(
            "2h",
            rdmesh_client::Moment::now(),
        )?),
        exit_code: None,
        exit_reason: String::new(),
    };
    lab.client().end_job(end).await?;
    let history = lab.client().get_job(&"backwards".parse()?).await?;
    assert!(
        !history.job.marks.is_empty(),
        "an end before the start is marked"
    );
    Ok(())
}

/// Ranks of two attempts side by side: each failure belongs to its own.
async fn many_ranks(lab: &Lab, host: &TracedHost) -> Result<()> {
    const RANKS: u32 = 4;
    for attempt in ["0", "1.2"] {
        for rank in 0..RANKS {
            let task = Task {
                attempt: Some(attempt.to_owned()),
                rank: Some(rank),
                ..Task::of("ranks")
            };
            let exit = host
                .run_task(&task, Verbs::new("rank").exec(), LIMIT)
                .await?;
            assert_eq!(exit.code, Some(1));
        }
    }
    let condition = "job_id = 'ranks'";
    until::holds("all ranks of both attempts", SEEN, || async {
        let rows: Vec<FailureRow> = lab.sql().rows(&FailureRow::query(condition)).await?;
        let seen = |requeue, restart| {
            let mut ranks: Vec<_> = rows
                .iter()
                .filter(|row| (row.requeue, row.restart) == (Some(requeue), Some(restart)))
                .filter_map(|row| row.rank)
                .collect();
            ranks.sort_unstable();
            ranks.dedup();
            ranks
        };
        Ok(seen(0, 0) == [0, 1, 2, 3] && seen(1, 2) == [0, 1, 2, 3])
    })
    .await
}

/// The host's clock jumps an hour ahead: the rows keep the collector's time.
async fn clock_jump(lab: &Lab, host: &TracedHost) -> Result<()> {
    host.done(Command::JumpClock { by_ms: 3_600_000 }).await?;
    fail(host, &Task::of("jump"), Verbs::new("reg-mr-efault")).await?;
    let condition = "job_id = 'jump' AND first_at BETWEEN now() - interval '5 minutes' \
                     AND now() + interval '1 minute'";
    let rows = rows(lab, condition).await?;
    assert_eq!(rows.iter().map(|row| row.count).sum::<u64>(), 1);
    host.done(Command::JumpClock { by_ms: -3_600_000 }).await
}

/// The collector is away: the tracer keeps what it saw and sends it once.
#[tokio::test]
async fn an_absent_collector_loses_nothing() -> Result<()> {
    const CALLS: u64 = 500;
    let lab = Lab::start(Progress::Quiet).await?;
    let host = lab.host("gpu-01", Kernel::V6_12).await?;
    fail(
        &host,
        &Task::of("outage"),
        Verbs::new("reg-mr-efault").count(CALLS),
    )
    .await?;
    rows(&lab, "job_id = 'outage'").await?;
    let (lab, report) = lab
        .without_collector(async || {
            fail(
                &host,
                &Task::of("outage"),
                Verbs::new("reg-mr-efault").count(CALLS),
            )
            .await
        })
        .await?;
    assert_eq!(report.failed(), CALLS);
    fail(
        &host,
        &Task::of("outage"),
        Verbs::new("reg-mr-efault").count(CALLS),
    )
    .await?;
    let function = chains::umem(Kernel::V6_12);
    let condition = format!("job_id = 'outage' AND function = '{function}'");
    let query = TotalRow::query(&condition);
    until::holds("all failures of the outage", SEEN * 2, || async {
        let rows: Vec<TotalRow> = lab.sql().rows(&query).await?;
        let count = rows.iter().map(|row| row.count).sum::<u64>();
        anyhow::ensure!(count <= 3 * CALLS, "stored twice: {count}");
        Ok(count == 3 * CALLS)
    })
    .await
    .with_context(|| lab.collector().log_tail())?;
    println!("tracer-svc says:\n{}", host.tracer_log().await?);
    Ok(())
}

/// A tracer that is told to end sends what it holds; another run of it counts anew
/// and nothing is counted twice. Afterwards the RDMA modules are free.
#[tokio::test]
async fn a_tracer_ends_and_begins_again() -> Result<()> {
    let lab = Lab::start(Progress::Quiet).await?;
    let plan = HostPlan {
        modules: vec!["mlx5_ib".into()],
        ..HostPlan::default()
    };
    let mut host = lab.host_with("gpu-01", Kernel::V6_12, plan, "").await?;
    fail(
        &host,
        &Task::of("first"),
        Verbs::new("reg-mr-efault").count(7),
    )
    .await?;
    let exit = host.stop_tracer(SIGTERM, LIMIT).await?;
    assert_eq!(exit.code, Some(0), "{}", exit.stderr.to_lossy());
    let first = rows(&lab, "job_id = 'first'").await?;
    assert_eq!(first.iter().map(|row| row.count).sum::<u64>(), 7);

    ended_while_attaching(&host).await.context("early end")?;
    host.restart_tracer().await?;
    // Modules that come after the tracer are noticed.
    host.done(Command::LoadModule {
        name: "mlx5_ib".into(),
    })
    .await?;
    until::holds("probes of mlx5_ib", LIMIT, || async {
        let Ok(report) = host.probe_report().await else {
            return Ok(false);
        };
        let module = |probe: &rdmesh_proto::tracer::v1::Probe| probe.module == "mlx5_ib";
        Ok(report.probes.iter().filter(|probe| module(probe)).count() > 0)
    })
    .await?;
    fail(
        &host,
        &Task::of("second"),
        Verbs::new("reg-mr-efault").count(5),
    )
    .await?;
    let second = rows(&lab, "job_id = 'second'").await?;
    assert_eq!(second.iter().map(|row| row.count).sum::<u64>(), 5);
    let first = rows(&lab, "job_id = 'first'").await?;
    assert_eq!(first.iter().map(|row| row.count).sum::<u64>(), 7);
    reload::from_afar(&lab, &host).await.context("reload")?;
    budget_passed(&lab, &mut host).await.context("budget")
}

/// A tracer that is told to end while it puts its probes on ends as one that is told later.
async fn ended_while_attaching(host: &TracedHost) -> Result<()> {
    let argv = vec!["/usr/bin/tracer-svc".to_owned()];
    let tracer = host
        .spawn(Exec {
            argv,
            ..Exec::default()
        })
        .await?;
    let path = format!("/proc/{tracer}/status");
    until::holds("signals are heard", LIMIT, || async {
        let status = host.read_file(&path).await?.to_lossy();
        let caught = status
            .lines()
            .find_map(|line| line.strip_prefix("SigCgt:"))
            .context("no SigCgt in the status")?;
        let caught = u64::from_str_radix(caught.trim(), 16)?;
        Ok(caught & 1 << (SIGTERM - 1) != 0)
    })
    .await?;
    host.kill(tracer, SIGTERM).await?;
    let exit = host.wait(tracer, LIMIT).await?;
    assert_eq!(exit.code, Some(0), "{}", exit.stderr.to_lossy());
    assert!(host.bpf_programs().await?.is_empty());
    Ok(())
}

/// A tracer that costs more than it may takes its probes off, says so where people
/// look, and comes back when it is told to.
async fn budget_passed(lab: &Lab, host: &mut TracedHost) -> Result<()> {
    let exit = host.stop_tracer(SIGTERM, LIMIT).await?;
    assert_eq!(exit.code, Some(0), "{}", exit.stderr.to_lossy());
    let path = "/etc/rdmesh/tracer.toml";
    let before = host.read_file(path).await?.to_lossy();
    // The least that there is: attaching alone does not count, a storm does.
    let budget = "statistics = \"always\"\nbudget_percent = 1\nbudget_seconds = 5";
    let config = before.replace("budget_percent = 0", budget);
    assert_ne!(config, before, "the lab sets no budget");
    host.write_file(path, config, 0o644).await?;
    host.restart_tracer().await?;
    let report = until::some("the budget passed", LIMIT, || async {
        let storm = Verbs::new("reg-mr-efault").count(2_000);
        fail(host, &Task::of("storm"), storm).await?;
        let report = host.probe_report().await.unwrap_or_default();
        Ok(report.obstacle.contains("budget").then_some(report))
    })
    .await?;
    assert!(
        report.obstacle.starts_with("detached: budget passed ("),
        "{}",
        report.obstacle
    );
    assert_eq!(report.logical_attached, 0);
    assert!(report.cost.is_some_and(|cost| cost.process_cpu_share > 0.0));
    let log = host.tracer_log().await?;
    assert!(log.contains("detached: budget passed"), "{log}");
    until::holds("rdmesh probes tells it", SEEN, || async {
        let shown = lab.rdmesh(&["probes", host.name()]).await?;
        Ok(String::from_utf8_lossy(&shown.stdout).contains("detached: budget passed"))
    })
    .await?;
    until::holds("no program is left", LIMIT, || async {
        Ok(host.bpf_programs().await?.is_empty())
    })
    .await?;
    // It lives on, and puts them back when it is told to.
    let told = host.exec(&["/usr/bin/tracer-svc", "attach"]).await?;
    let told = told.stdout.to_lossy();
    assert!(told.contains("logical hooks are served"), "{told}");
    assert!(!host.bpf_programs().await?.is_empty());
    Ok(())
}

/// Version 1 control groups: the job is known by the group's path.
#[tokio::test]
async fn version_1_control_groups_name_the_job() -> Result<()> {
    let lab = Lab::start(Progress::Quiet).await?;
    let plan = HostPlan {
        cgroup_v1: true,
        ..HostPlan::default()
    };
    let host = lab.host_with("gpu-01", Kernel::V6_1, plan, "").await?;
    let group = "slurm/uid_1000/job_4242/step_0/task_0";
    let task = Task {
        cgroup: Some(Text::from(group)),
        ..Task::default()
    };
    let report = fail(&host, &task, Verbs::new("reg-mr-efault").count(4)).await?;
    let rows = rows(&lab, &format!("tgid = {}", report.pid)).await?;
    assert_eq!(
        (rows[0].job_id.as_deref(), rows[0].source.as_str()),
        (Some("4242"), "cgroup")
    );
    assert_eq!(
        rows[0].cgroup_path.as_deref(),
        Some("/slurm/uid_1000/job_4242/step_0/task_0")
    );
    let query = TotalRow::query("job_id = '4242' AND function = 'ib_uverbs_reg_mr'");
    until::holds("exact totals by version 1 group", SEEN, || async {
        let totals: Vec<TotalRow> = lab.sql().rows(&query).await?;
        Ok(totals.iter().map(|row| row.count).sum::<u64>() == 4)
    })
    .await
}
