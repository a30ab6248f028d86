//! What people ask of a filled store, and how long it takes.

use anyhow::{Context, Result, ensure};
use rdmesh_lab::sql::{READER, Sql};
use rdmesh_proto::collector::v1::job_service_client::JobServiceClient;
use rdmesh_proto::collector::v1::query_service_client::QueryServiceClient;
use rdmesh_proto::collector::v1::{
    DiagnoseRequest, EndJobRequest, GetJobRequest, JobState, Placement, StartJobRequest,
};
use rdmesh_proto::common::v1::AttemptId;
use std::time::{Duration, Instant};
use tonic::transport::{Channel, Endpoint};

use super::Filled;
use super::fleet::{DAYS, Fleet, HOSTS_A_JOB, Numbers};
use crate::bench::report::Figure;

/// Questions of each kind: their 99th percentile is not the largest.
const JOBS: u64 = 400;
const DAYS_ASKED: u64 = 200;
const MONTHS_ASKED: u64 = 200;
/// Answers before those that count: connections are made, plans kept.
const WARM: u64 = 20;

const DAY_NS: u64 = 86_400_000_000_000;

/// How long each answer took.
pub(super) struct Answers {
    job: Vec<Duration>,
    known_job: Vec<Duration>,
    day: Vec<Duration>,
    month: Vec<Duration>,
    nothing: Vec<Duration>,
}

fn percentile(times: &[Duration], hundredth: usize) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let place = (sorted.len() * hundredth).div_ceil(100).max(1) - 1;
    sorted
        .get(place)
        .map_or(0.0, |time| time.as_secs_f64() * 1e3)
}

pub(super) fn figures(answers: &Answers) -> Vec<Figure> {
    let p99 = |times: &[Duration]| percentile(times, 99);
    let nothing = p99(&answers.nothing);
    vec![
        Figure::new("query.job.p99_ms", p99(&answers.job), "ms")
            .beside("GetJob of the same jobs", p99(&answers.known_job)),
        Figure::new("query.day.p99_ms", p99(&answers.day), "ms").beside("SELECT 1", nothing),
        Figure::new("query.month.p99_ms", p99(&answers.month), "ms").beside("SELECT 1", nothing),
    ]
}

/// For the terminal.
pub(super) fn told(answers: &Answers, records: u64) {
    for (name, times) in [
        ("a job", &answers.job),
        ("a day", &answers.day),
        ("a month", &answers.month),
    ] {
        eprintln!(
            "{name:<8} of {records} records: {:.1} ms, 99th percentile {:.1} ms",
            percentile(times, 50),
            percentile(times, 99)
        );
    }
}

/// Asks everything, one question at a time.
pub(super) async fn ask(filled: &Filled<'_>) -> Result<Answers> {
    filled.ask("VACUUM ANALYZE")?;
    let address = filled.collector.address();
    let channel = Endpoint::from_shared(format!("http://{address}"))?
        .connect()
        .await?;
    let (job, known_job) = jobs(filled, &channel).await?;
    let sql = Sql::open(&filled.cluster.url_as(&filled.database, READER))?;
    let now = filled.fleet.job_at_ns(filled.fleet.jobs_made());
    let first = filled.fleet.job_at_ns(0);
    let days = (now - first) / DAY_NS;
    let mut numbers = Numbers::new(super::SEED, 0xda);
    let (mut day, mut month, mut nothing) = (Vec::new(), Vec::new(), Vec::new());
    for turn in 0..WARM + DAYS_ASKED {
        let from = first / DAY_NS * DAY_NS + numbers.below(days.max(1)) * DAY_NS;
        let (took, rows) = totals(&sql, from, from + DAY_NS).await?;
        ensure!(rows > 0, "no failure in a day of the fleet");
        if turn >= WARM {
            day.push(took);
        }
    }
    for turn in 0..WARM + MONTHS_ASKED {
        let (took, rows) = totals(&sql, first / DAY_NS * DAY_NS, first + DAYS * DAY_NS).await?;
        ensure!(rows > 0, "no failure in a month of the fleet");
        if turn >= WARM {
            month.push(took);
        }
        let started = Instant::now();
        sql.rows::<serde_json::Value>("SELECT 1").await?;
        nothing.push(started.elapsed());
    }
    Ok(Answers {
        job,
        known_job,
        day,
        month,
        nothing,
    })
}

/// What failed in the whole fleet, by function and errno, with hosts and calls.
async fn totals(sql: &Sql, from_ns: u64, to_ns: u64) -> Result<(Duration, usize)> {
    let started = Instant::now();
    let rows: Vec<serde_json::Value> = sql
        .rows(&format!(
            "SELECT * FROM rdmesh.signature_totals_in(to_timestamp({}), to_timestamp({}))",
            from_ns / 1_000_000_000,
            to_ns / 1_000_000_000
        ))
        .await?;
    Ok((started.elapsed(), rows.len()))
}

async fn jobs(filled: &Filled<'_>, channel: &Channel) -> Result<(Vec<Duration>, Vec<Duration>)> {
    let mut told = JobServiceClient::new(channel.clone());
    let mut queries = QueryServiceClient::new(channel.clone());
    let made = filled.fleet.jobs_made();
    let mut numbers = Numbers::new(super::SEED, 0x0b);
    let (mut diagnosed, mut known) = (Vec::new(), Vec::new());
    let asked: Vec<u64> = (0..WARM + JOBS).map(|_| numbers.below(made)).collect();
    for job in &asked {
        tell(filled, &mut told, *job).await?;
    }
    for (turn, job) in (0..).zip(&asked) {
        let job_id = Fleet::job_name(*job);
        let started = Instant::now();
        let answer = queries
            .diagnose(DiagnoseRequest {
                job_id: job_id.clone(),
                ..DiagnoseRequest::default()
            })
            .await?
            .into_inner();
        let took = started.elapsed();
        let verdict = answer.verdict.context("no verdict")?;
        ensure!(
            verdict.failures_looked_at > u64::from(HOSTS_A_JOB),
            "job {job_id}: {} failures found",
            verdict.failures_looked_at
        );
        let started = Instant::now();
        told.get_job(GetJobRequest {
            job_id,
            ..GetJobRequest::default()
        })
        .await?;
        if turn >= WARM {
            diagnosed.push(took);
            known.push(started.elapsed());
        }
    }
    Ok((diagnosed, known))
}

fn attempt(job: u64) -> AttemptId {
    AttemptId {
        job_id: Fleet::job_name(job),
        ..AttemptId::default()
    }
}

/// As its scheduler tells of a job: where it ran, and that it failed.
async fn tell(filled: &Filled<'_>, jobs: &mut JobServiceClient<Channel>, job: u64) -> Result<()> {
    let at = |seconds_after: u64| {
        let ns = filled.fleet.job_at_ns(job) + seconds_after * 1_000_000_000;
        let seconds = i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX);
        Some(prost_types::Timestamp { seconds, nanos: 0 })
    };
    let placements = filled
        .fleet
        .hosts_of(job)
        .into_iter()
        .map(|host| Placement {
            host: Fleet::host_name(host),
            ranks: (0..8).collect(),
            ..Placement::default()
        });
    jobs.start_job(StartJobRequest {
        attempt: Some(attempt(job)),
        started_at: at(0),
        placements: placements.collect(),
        ..StartJobRequest::default()
    })
    .await?;
    jobs.end_job(EndJobRequest {
        attempt: Some(attempt(job)),
        state: JobState::Failed.into(),
        // Past the last of it: the host's clock is known to a minute here.
        ended_at: at(300),
        exit_code: Some(1),
        ..EndJobRequest::default()
    })
    .await?;
    Ok(())
}
