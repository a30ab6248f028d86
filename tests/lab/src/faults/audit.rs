//! What must be in the store, by the journals, and what is.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rdmesh_simulated::journal::Reader;
use rdmesh_simulated::snapshot::FUNCTIONS;
use serde::Deserialize;

use super::parts::Parts;

/// How far two intervals of a host may overlap in the collector's time: the estimate of a
/// host's clock is as good as the fastest message of its connection was.
const OVERLAP_MAX_S: f64 = 1.0;

/// How far the estimates of two runs of a host may differ.
const CLOCK_SLACK_S: f64 = 0.3;

/// Items that a killed run may not have kept: the one that it was handing over.
const LOST_MAX: usize = 1;

/// Host and run.
type RunOf = (String, String);

/// Journals of all agents, and which runs were killed.
#[derive(Debug)]
pub(super) struct Audit {
    journals: Vec<(String, Reader)>,
    killed: BTreeSet<RunOf>,
    /// Time that lost snapshots told of, nanoseconds.
    lost_ns: BTreeMap<RunOf, u64>,
}

/// What is stored of runs.
#[derive(Debug, Deserialize)]
struct StoredRun {
    host: String,
    run_id: String,
    rows: u64,
    /// Ranges of sequences, as Postgres writes a multirange.
    sequences: String,
}

impl StoredRun {
    fn ranges(&self) -> Result<Vec<(u64, u64)>> {
        let inner = self.sequences.trim_matches(['{', '}']);
        let mut ranges = Vec::new();
        for range in inner
            .split_inclusive(')')
            .map(|r| r.trim_matches([',', '[', ')']))
        {
            let (from, to) = range.split_once(',').context("no range")?;
            ranges.push((from.parse()?, to.parse()?));
        }
        Ok(ranges)
    }
}

/// Sums of the store, all of one moment.
#[derive(Debug, Deserialize)]
struct Sums {
    runs: Vec<StoredRun>,
    counters: Vec<Counter>,
    calls: Vec<HostSum>,
    agents: Vec<AgentRow>,
    overlap_s: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Counter {
    host: String,
    function: String,
    sum: u64,
}

#[derive(Debug, Deserialize)]
struct HostSum {
    host: String,
    sum: u64,
}

#[derive(Debug, Deserialize)]
struct AgentRow {
    host: String,
    run_id: String,
    snapshots: u64,
    missing: u64,
    rejected: u64,
}

const RUNS: &str = "
    SELECT host, run_id, count(*) AS rows,
           range_agg(int8range(sequence, sequence + 1))::text AS sequences
    FROM rdmesh.snapshots GROUP BY host, run_id";

/// What a check of everything found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    /// Snapshots in the store.
    pub stored: u64,
    /// Snapshots that were made and are not in the store.
    pub lost: u64,
    /// Runs of agents so far.
    pub runs: usize,
}

impl Audit {
    pub(super) fn new(journals: Vec<(String, PathBuf)>) -> Self {
        let readers = journals.into_iter();
        Self {
            journals: readers
                .map(|(host, path)| (host, Reader::new(path)))
                .collect(),
            killed: BTreeSet::new(),
            lost_ns: BTreeMap::new(),
        }
    }

    pub(super) fn refresh(&mut self) -> Result<()> {
        for (_, reader) in &mut self.journals {
            reader.refresh()?;
        }
        Ok(())
    }

    /// The agents of these hosts were killed: what they were writing counts no more.
    pub(super) fn killed(&mut self, hosts: &[String]) -> Result<()> {
        self.refresh()?;
        for (host, reader) in &self.journals {
            if hosts.contains(host)
                && let Some(run) = reader.order.last()
            {
                self.killed.insert((host.clone(), run.clone()));
            }
        }
        Ok(())
    }

    /// Whether every agent has handed something over in the run that it is in.
    pub(super) fn all_report(&self) -> bool {
        self.journals.iter().all(|(_, reader)| {
            let run = reader.order.last().and_then(|id| reader.runs.get(id));
            run.is_some_and(|run| run.kept > 0)
        })
    }

    /// The last sequence of each run that must be in the store by and by.
    pub(super) fn owed(&self) -> BTreeMap<RunOf, u64> {
        let mut owed = BTreeMap::new();
        for (host, reader) in &self.journals {
            for (run_id, run) in &reader.runs {
                let of = (host.clone(), run_id.clone());
                let through = if self.killed.contains(&of) {
                    run.kept
                } else {
                    run.made.keys().next_back().copied().unwrap_or(0)
                };
                if through > 0 {
                    owed.insert(of, through);
                }
            }
        }
        owed
    }

    /// What of it is not in the store.
    pub(super) fn still_owed(&self, parts: &Parts, owed: &BTreeMap<RunOf, u64>) -> Result<usize> {
        let text = ask(
            parts,
            &format!("SELECT coalesce(json_agg(q), '[]') FROM ({RUNS}) q"),
        )?;
        let stored: Vec<StoredRun> = serde_json::from_str(&text)?;
        let mut through: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for run in &stored {
            // In order but for what is in flight: up to the end of the first range.
            let first = run.ranges()?.first().copied();
            let done = first
                .filter(|(from, _)| *from == 1)
                .map_or(0, |(_, to)| to - 1);
            through.insert((&run.host, &run.run_id), done);
        }
        let missing = owed.iter().filter(|((host, run_id), last)| {
            through
                .get(&(host.as_str(), run_id.as_str()))
                .copied()
                .unwrap_or(0)
                < **last
        });
        Ok(missing.count())
    }

    /// Compares everything with everything.
    pub(super) fn check(&mut self, parts: &Parts) -> Result<Found> {
        let sums = sums(parts)?;
        self.refresh()?;
        let mut found = Found::default();
        let mut lost_ns = BTreeMap::new();
        let mut expected: BTreeMap<&str, u64> = BTreeMap::new();
        let mut stored_runs: BTreeMap<(&str, &str), &StoredRun> = BTreeMap::new();
        for run in &sums.runs {
            stored_runs.insert((&run.host, &run.run_id), run);
        }
        for (host, reader) in &self.journals {
            for (run_id, run) in &reader.runs {
                found.runs += 1;
                let stored = stored_runs.remove(&(host.as_str(), run_id.as_str()));
                let ranges = stored
                    .map(StoredRun::ranges)
                    .transpose()?
                    .unwrap_or_default();
                let held = |n: u64| ranges.iter().any(|(from, to)| (*from..*to).contains(&n));
                let rows: u64 = ranges.iter().map(|(from, to)| to - from).sum();
                let told = stored.map_or(0, |s| s.rows);
                ensure!(
                    rows == told,
                    "{host} {run_id}: {told} rows for {rows} snapshots"
                );
                let mut lost = Vec::new();
                for (sequence, made) in &run.made {
                    if held(*sequence) {
                        *expected.entry(host).or_default() += made.failures;
                        found.stored += 1;
                    } else {
                        lost.push(*sequence);
                    }
                }
                ensure!(
                    rows == (run.made.len() - lost.len()) as u64,
                    "{host} {run_id}: the store has snapshots that nobody made"
                );
                if self.killed.contains(&(host.clone(), run_id.clone())) {
                    let after = lost.iter().all(|n| *n > run.kept);
                    ensure!(
                        after && lost.len() <= LOST_MAX,
                        "{host} {run_id}: {lost:?} are lost, and the spool had all up to {}",
                        run.kept
                    );
                    found.lost += lost.len() as u64;
                    let of_lost = lost.iter().filter_map(|n| run.made.get(n));
                    let ns: u64 = of_lost
                        .map(|made| made.to_boot_ns - made.from_boot_ns)
                        .sum();
                    lost_ns.insert((host.clone(), run_id.clone()), ns);
                } else {
                    // On their way still; nothing is missing before what is there.
                    let last = ranges.last().map_or(0, |(_, to)| to - 1);
                    let skipped = lost.iter().filter(|n| **n < last).count();
                    ensure!(
                        skipped == 0,
                        "{host} {run_id}: {lost:?} are missing before {last}"
                    );
                }
            }
        }
        ensure!(
            stored_runs.is_empty(),
            "runs that nobody began: {stored_runs:?}"
        );
        self.check_sums(&sums, &expected)?;
        self.lost_ns = lost_ns;
        Ok(found)
    }

    fn check_sums(&self, sums: &Sums, expected: &BTreeMap<&str, u64>) -> Result<()> {
        for function in FUNCTIONS {
            let of_function = sums.counters.iter().filter(|c| c.function == function);
            let counted: BTreeMap<&str, u64> =
                of_function.map(|c| (c.host.as_str(), c.sum)).collect();
            ensure!(
                counted == *expected,
                "counters of {function} are not the sum of the snapshots"
            );
        }
        let calls: BTreeMap<&str, u64> = sums
            .calls
            .iter()
            .map(|c| (c.host.as_str(), c.sum))
            .collect();
        ensure!(
            calls == *expected,
            "failing calls are not the sum of the snapshots"
        );
        for agent in &sums.agents {
            let AgentRow { host, run_id, .. } = agent;
            let run = sums
                .runs
                .iter()
                .find(|r| r.host == *host && r.run_id == *run_id);
            let rows = run.map_or(0, |run| run.rows);
            // A record that a kill cut is reported by the run after it.
            let cut = self.killed.iter().filter(|(of, _)| of == host).count() as u64;
            ensure!(
                agent.snapshots == rows && agent.missing <= cut && agent.rejected == 0,
                "{agent:?}: {rows} snapshots are stored"
            );
        }
        if let Some(overlap) = sums.overlap_s {
            ensure!(
                overlap < OVERLAP_MAX_S,
                "intervals of a host overlap by {overlap:.3} s: some stand at a wrong time"
            );
        }
        Ok(())
    }

    /// After everything was handed over: all that was made is stored, but for what killed
    /// runs lost, and that is a gap.
    pub(super) fn check_end(&mut self, parts: &Parts) -> Result<Found> {
        let owed = {
            self.refresh()?;
            self.owed()
        };
        let left = self.still_owed(parts, &owed)?;
        ensure!(
            left == 0,
            "{left} runs have snapshots that are not in the store"
        );
        let found = self.check(parts)?;
        self.check_gaps(parts)?;
        self.check_shaper(parts)?;
        for spools in parts.spools() {
            for spool in fs::read_dir(spools)? {
                let runs = fs::read_dir(spool?.path())?.count();
                // The lock alone.
                ensure!(runs == 1, "a spool still holds {} runs", runs - 1);
            }
        }
        Ok(found)
    }

    /// What a killed run lost shows as time between its last snapshot and the first of the
    /// next run that no snapshot covers.
    fn check_gaps(&self, parts: &Parts) -> Result<()> {
        #[derive(Deserialize)]
        struct Gap {
            host: String,
            run_id: String,
            seconds: f64,
        }
        let text = ask(
            parts,
            "SELECT coalesce(json_agg(q), '[]') FROM (
                 SELECT host, run_id,
                        extract(epoch FROM lead(first_at) OVER w - last_at)::float8 AS seconds
                 FROM (SELECT host, run_id, min(started_at) AS first_at, max(ended_at) AS last_at
                       FROM rdmesh.snapshots GROUP BY host, run_id) r
                 WINDOW w AS (PARTITION BY host ORDER BY first_at)) q
             WHERE seconds IS NOT NULL",
        )?;
        let gaps: Vec<Gap> = serde_json::from_str(&text)?;
        let gaps: BTreeMap<(&str, &str), f64> = gaps
            .iter()
            .map(|gap| ((gap.host.as_str(), gap.run_id.as_str()), gap.seconds))
            .collect();
        for ((host, run_id), lost_ns) in &self.lost_ns {
            // Nothing of the run was kept, or no other run came after it: no gap within.
            let Some(seconds) = gaps.get(&(host.as_str(), run_id.as_str())) else {
                continue;
            };
            let lost_s = Duration::from_nanos(*lost_ns).as_secs_f64();
            ensure!(
                *seconds > lost_s - CLOCK_SLACK_S,
                "{host} {run_id}: {lost_s:.3} s were lost by a kill and the gap after it has \
                 {seconds:.3} s"
            );
        }
        Ok(())
    }

    /// Every run of the shaper has all its windows, once.
    fn check_shaper(&self, parts: &Parts) -> Result<()> {
        let holes = ask(
            parts,
            "SELECT count(*) FROM (
                 SELECT run_id, count(*) AS rows, count(DISTINCT sequence) AS windows,
                        max(sequence) AS last
                 FROM rdmesh.wire_windows GROUP BY run_id) r
             WHERE rows <> windows OR windows <> last",
        )?;
        ensure!(
            holes == "0",
            "{holes} runs of the shaper have holes or repeats"
        );
        let windows: u64 = ask(parts, "SELECT count(*) FROM rdmesh.wire_windows")?.parse()?;
        ensure!(windows > 0, "the shaper reported nothing");
        Ok(())
    }
}

fn sums(parts: &Parts) -> Result<Sums> {
    let sql = format!(
        "SELECT json_build_object(
             'runs', (SELECT coalesce(json_agg(q), '[]') FROM ({RUNS}) q),
             'counters', (SELECT coalesce(json_agg(q), '[]') FROM (
                 SELECT host, function, sum(count)::bigint AS sum
                 FROM rdmesh.host_failure_totals GROUP BY host, function) q),
             'calls', (SELECT coalesce(json_agg(q), '[]') FROM (
                 SELECT host, sum(count)::bigint AS sum FROM rdmesh.failures GROUP BY host) q),
             'agents', (SELECT coalesce(json_agg(q), '[]') FROM (
                 SELECT host, run_id, snapshots, missing, rejected
                 FROM rdmesh.agents WHERE agent = 'tracer') q),
             'overlap_s', (SELECT max(extract(epoch FROM overlap))::float8 FROM (
                 SELECT ended_at - lead(started_at) OVER
                            (PARTITION BY host ORDER BY started_at, ended_at) AS overlap
                 FROM rdmesh.snapshots) q))"
    );
    let text = ask(parts, &sql)?;
    serde_json::from_str(&text).with_context(|| text)
}

/// As a reader of the documented views.
fn ask(parts: &Parts, sql: &str) -> Result<String> {
    let answer = parts.cluster.psql(&parts.database, "rdmesh_reader", sql)?;
    Ok(answer.trim().to_owned())
}
