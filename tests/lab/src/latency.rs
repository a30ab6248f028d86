//! How long it takes from a failing call to a row that SQL sees.

use crate::lab::{Lab, Task, TracedHost};
use crate::verbs::{Report, Verbs};
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::{Instant, sleep_until};

/// How often the view is asked. It adds half of that to what is measured.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A failing process may take seconds on a busy machine.
const RUN_LIMIT: Duration = Duration::from_secs(60);

/// After the last failure all rows must come within this.
const LAST_ROW_LIMIT: Duration = Duration::from_secs(60);

#[derive(Deserialize)]
struct Job {
    job_id: String,
}

/// Makes `samples` failures, one every `pace`, each a job of its own named after
/// `prefix`, and gives the time that each took to show up in `rdmesh.failures`,
/// shortest first. The pace should not divide the tracer's interval evenly, so that
/// the failures fall into all of its phases.
pub async fn failure_to_sql(
    lab: &Lab,
    host: &TracedHost,
    prefix: &str,
    samples: usize,
    pace: Duration,
) -> Result<Vec<Duration>> {
    let ahead_ns = clock_ahead_ns(host).await?;
    let (failed, seen) = tokio::try_join!(
        make_failures(host, prefix, samples, pace),
        watch_rows(lab, prefix, samples, pace),
    )?;
    let mut latencies = Vec::new();
    for (job, seen_ns) in seen {
        let failed_ns = failed
            .get(&job)
            .with_context(|| format!("{job} never failed"))?;
        let took_ns = i128::from(seen_ns) - (i128::from(*failed_ns) - ahead_ns);
        latencies.push(Duration::from_nanos(u64::try_from(took_ns.max(0))?));
    }
    latencies.sort();
    Ok(latencies)
}

/// The smallest value that 99 of 100 do not exceed (nearest rank); the largest one of
/// fewer than 100. Zero for none.
pub fn p99(sorted: &[Duration]) -> Duration {
    let rank = (sorted.len() * 99).div_ceil(100);
    sorted
        .get(rank.saturating_sub(1))
        .copied()
        .unwrap_or_default()
}

/// How far the guest's clock is ahead of this machine's, from the quickest of a few
/// questions.
async fn clock_ahead_ns(host: &TracedHost) -> Result<i128> {
    let mut best: Option<(u64, i128)> = None;
    for _ in 0..10 {
        let before = now_ns();
        let guest = host.clocks().await?.realtime_ns;
        let after = now_ns();
        let middle = i128::from(before) + i128::from(after - before) / 2;
        let candidate = (after - before, i128::from(guest) - middle);
        best = Some(best.map_or(candidate, |best| best.min(candidate)));
    }
    Ok(best.context("no answer about the guest's clock")?.1)
}

async fn make_failures(
    host: &TracedHost,
    prefix: &str,
    samples: usize,
    pace: Duration,
) -> Result<BTreeMap<String, u64>> {
    let mut failed = BTreeMap::new();
    let mut next = Instant::now();
    for index in 0..samples {
        sleep_until(next).await;
        next += pace;
        let job = format!("{prefix}{index}");
        let exec = Verbs::new("reg-mr-efault").exec();
        let exit = host.run_task(&Task::of(&job), exec, RUN_LIMIT).await?;
        let at = Report::parse(&exit)?.first_failure_ns;
        failed.insert(job, at.context("rdmesh-verbs did not fail")?);
    }
    Ok(failed)
}

async fn watch_rows(
    lab: &Lab,
    prefix: &str,
    samples: usize,
    pace: Duration,
) -> Result<BTreeMap<String, u64>> {
    let query =
        format!("SELECT DISTINCT job_id FROM rdmesh.failures WHERE job_id LIKE '{prefix}%'");
    let last = Instant::now() + pace * u32::try_from(samples)? + LAST_ROW_LIMIT;
    let mut seen = BTreeMap::new();
    while seen.len() < samples {
        ensure!(
            Instant::now() < last,
            "{} of {samples} failures reached SQL",
            seen.len()
        );
        for Job { job_id } in lab.sql().rows(&query).await? {
            seen.entry(job_id).or_insert_with(now_ns);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(seen)
}

fn now_ns() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_99th_percentile_is_a_measured_value() {
        let ms = |n| Duration::from_millis(n);
        assert_eq!(p99(&[]), Duration::ZERO);
        assert_eq!(p99(&[ms(3)]), ms(3));
        let hundred: Vec<Duration> = (1..=100).map(ms).collect();
        assert_eq!(p99(&hundred), ms(99));
        assert_eq!(p99(&hundred[..60]), ms(60));
    }
}
