//! What the store takes, what it keeps and how fast it answers: a fleet's snapshots, encoded
//! beforehand, through gRPC into a collector of its own process and a private Postgres that
//! writes as a production one does.
//!
//! A *record* is one failing return of one function, as the tracer's ring carries it. A chain
//! of three functions that failed five times is 15 records, in one row of a snapshot. Stored
//! bytes are all of schema `rdmesh_store` — tables, indexes, TOAST — less what an empty one
//! has. The times of queries are those of a client: the diagnosis over gRPC, the others in
//! SQL as the read-only role.

mod feed;
mod fleet;
mod kinds;
mod questions;

use super::report::Figure;
use anyhow::{Context, Result, ensure};
use rdmesh_lab::collector::Collector;
use rdmesh_lab::progress::Progress;
use rdmesh_lab::scratch::Scratch;
use rdmesh_test_postgres::{Cluster, SUPERUSER};
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use feed::Feed;
use fleet::{Encoded, Fleet, Made, Repetition};

/// Records of the database that is asked, unless told otherwise.
pub(super) const RECORDS: u64 = 20_000_000;
/// Parts in which they are sent; the median of their speeds is reported.
const PARTS: u64 = 5;
/// Records without much repetition, whose size alone is looked at.
const RECORDS_LOW: u64 = 2_000_000;
/// Free bytes that a record may need: the messages of a part in memory do not count; tables
/// of the layout before this one took 130 with their WAL, half of the records stand twice.
const DISK_BYTES_A_RECORD: u64 = 300;
/// Beside that: WAL that waits for a checkpoint, and an empty cluster.
const DISK_BYTES: u64 = 6 << 30;

const SEED: u64 = 14;

/// As a production server writes: the private clusters of tests do not sync.
const SETTINGS: &[&str] = &[
    "fsync=on",
    "full_page_writes=on",
    "shared_buffers=1GB",
    "max_wal_size=4GB",
    "checkpoint_timeout=15min",
    "wal_compression=lz4",
    "effective_cache_size=4GB",
];

pub(super) async fn figures(records: u64) -> Result<Vec<Figure>> {
    let scratch = Scratch::new()?;
    enough_disk(&scratch, records)?;
    let cluster = Cluster::start_with(scratch.path(), SETTINGS)?;
    let mut figures = low_repetition(&scratch, &cluster).await?;
    figures.extend(high_repetition(&scratch, &cluster, records).await?);
    Ok(figures)
}

fn enough_disk(scratch: &Scratch, records: u64) -> Result<()> {
    let stat = rustix::fs::statvfs(scratch.path())?;
    let free = stat.f_bavail * stat.f_frsize;
    let wanted = DISK_BYTES + records * DISK_BYTES_A_RECORD;
    ensure!(
        free >= wanted,
        "{} has {} GB free and {} GB may be needed; name another place by TMPDIR or fewer \
         records by --records",
        scratch.path().display(),
        free >> 30,
        wanted >> 30
    );
    Ok(())
}

async fn low_repetition(scratch: &Scratch, cluster: &Cluster) -> Result<Vec<Figure>> {
    let step = Progress::Lines.step("storing failures that hardly repeat themselves");
    let mut filled = Filled::start(scratch, cluster, Repetition::Low, RECORDS_LOW).await?;
    filled.take(RECORDS_LOW).await?;
    let bytes = filled.bytes_a_record()?;
    step.done();
    filled.tell_tables()?;
    let raw = filled.made.bytes as f64 / filled.made.records as f64;
    let figure = Figure::new("store.bytes_per_record.r2_3", bytes, "B");
    Ok(vec![figure.beside("the messages as they came", raw)])
}

async fn high_repetition(
    scratch: &Scratch,
    cluster: &Cluster,
    records: u64,
) -> Result<Vec<Figure>> {
    let mut filled = Filled::start(scratch, cluster, Repetition::High, records).await?;
    let part = records.div_ceil(PARTS);
    let mut speeds = Vec::new();
    let mut peers = Vec::new();
    for number in 1..=PARTS {
        let step = Progress::Lines.step(format!("storing part {number} of {PARTS}"));
        let (messages, made) = filled.fleet.messages(part);
        peers.push(made.records as f64 / raw_copy(cluster, &messages)?.as_secs_f64());
        let took = filled.send(messages, made).await?;
        speeds.push(made.records as f64 / took.as_secs_f64());
        step.done();
        eprintln!(
            "{:>12.0} records/s, {:.2} bytes a record so far",
            made.records as f64 / took.as_secs_f64(),
            filled.bytes_a_record()?
        );
        if number == PARTS.div_ceil(2) {
            // How the answers grow: what they cost with half of the rows.
            questions::told(&questions::ask(&filled).await?, filled.made.records);
        }
    }
    filled.tell_tables()?;
    let raw = filled.made.bytes as f64 / filled.made.records as f64;
    let mut figures = vec![
        Figure::new("ingest.records_per_s", median(&mut speeds), "1/s").beside(
            "COPY of the same messages into a bare table",
            median(&mut peers),
        ),
        Figure::new("store.bytes_per_record.r14", filled.bytes_a_record()?, "B")
            .beside("the messages as they came", raw),
    ];
    figures.extend(questions::figures(&questions::ask(&filled).await?));
    Ok(figures)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// A collector with its database, and the fleet that fills it.
struct Filled<'a> {
    cluster: &'a Cluster,
    database: String,
    collector: Collector,
    fleet: Fleet,
    feed: Feed,
    empty_bytes: u64,
    made: Made,
}

impl<'a> Filled<'a> {
    async fn start(
        scratch: &Scratch,
        cluster: &'a Cluster,
        repetition: Repetition,
        records: u64,
    ) -> Result<Self> {
        let database = cluster.new_database()?;
        let collector = Collector::start(scratch.path(), &cluster.url(&database)).await?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let feed = Feed::connect(&collector.address()).await?;
        let mut filled = Self {
            cluster,
            database,
            collector,
            fleet: Fleet::new(SEED, repetition, records, u64::try_from(now.as_nanos())?),
            feed,
            empty_bytes: 0,
            made: Made::default(),
        };
        filled.empty_bytes = filled.bytes()?;
        Ok(filled)
    }

    fn ask(&self, sql: &str) -> Result<String> {
        let answer = self.cluster.psql(&self.database, SUPERUSER, sql)?;
        Ok(answer.trim().to_owned())
    }

    async fn take(&mut self, records: u64) -> Result<Duration> {
        let (messages, made) = self.fleet.messages(records);
        self.send(messages, made).await
    }

    async fn send(&mut self, messages: Vec<Encoded>, made: Made) -> Result<Duration> {
        let sent = self.feed.send(&self.fleet, messages).await;
        let took = sent.with_context(|| self.collector.log_tail())?;
        self.made.records += made.records;
        self.made.rows += made.rows;
        self.made.snapshots += made.snapshots;
        self.made.bytes += made.bytes;
        // Nothing is lost: what is counted in the end is what was sent.
        let stored = self.ask("SELECT sum(snapshots) FROM rdmesh_store.agent_runs")?;
        ensure!(
            stored == self.made.snapshots.to_string(),
            "{stored} snapshots stored of {}",
            self.made.snapshots
        );
        Ok(took)
    }

    fn bytes(&self) -> Result<u64> {
        let bytes = self.ask(
            "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c \
             WHERE c.relnamespace = 'rdmesh_store'::regnamespace AND c.relkind IN ('r', 'm')",
        )?;
        Ok(bytes.parse()?)
    }

    fn bytes_a_record(&self) -> Result<f64> {
        let grown = self.bytes()?.saturating_sub(self.empty_bytes);
        Ok(grown as f64 / self.made.records.max(1) as f64)
    }

    /// Where the bytes are, for whoever looks for them.
    fn tell_tables(&self) -> Result<()> {
        let tables = self.ask(
            "SELECT regexp_replace(relname, '_\\d+$', '') AS name, \
                    sum(pg_relation_size(oid)), sum(pg_indexes_size(oid)), \
                    sum(pg_total_relation_size(oid) - pg_relation_size(oid) - pg_indexes_size(oid)) \
             FROM pg_class WHERE relnamespace = 'rdmesh_store'::regnamespace AND relkind = 'r' \
             GROUP BY 1 ORDER BY sum(pg_total_relation_size(oid)) DESC LIMIT 8",
        )?;
        let a_record = |bytes: &str| {
            bytes.parse::<f64>().unwrap_or_default() / self.made.records.max(1) as f64
        };
        for line in tables.lines() {
            if let [name, heap, indexes, beside] = line.split('|').collect::<Vec<_>>()[..] {
                eprintln!(
                    "{name:<24}{:>8.2} heap{:>8.2} indexes{:>8.2} beside, bytes a record",
                    a_record(heap),
                    a_record(indexes),
                    a_record(beside)
                );
            }
        }
        eprintln!(
            "{} records in {} rows of {} snapshots",
            self.made.records, self.made.rows, self.made.snapshots
        );
        Ok(())
    }
}

/// The same bytes by COPY into a table of one column without an index: what Postgres takes
/// with nothing done to it.
fn raw_copy(cluster: &Cluster, messages: &[Encoded]) -> Result<Duration> {
    let make = "DROP TABLE IF EXISTS bench_raw; CREATE TABLE bench_raw (message bytea)";
    cluster.psql("postgres", SUPERUSER, make)?;
    let started = Instant::now();
    let mut psql = Command::new("psql")
        .args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d"])
        .arg(cluster.url("postgres"))
        .args(["-c", "\\copy bench_raw FROM pstdin (FORMAT binary)"])
        .stdin(Stdio::piped())
        .spawn()
        .context("psql (package postgresql-client)")?;
    let stdin = psql.stdin.take().context("psql has no input")?;
    let mut to = std::io::BufWriter::with_capacity(1 << 20, stdin);
    to.write_all(b"PGCOPY\n\xff\r\n\0")?;
    to.write_all(&[0; 8])?;
    for Encoded { message, .. } in messages {
        to.write_all(&1_i16.to_be_bytes())?;
        to.write_all(&i32::try_from(message.len())?.to_be_bytes())?;
        to.write_all(message)?;
    }
    to.write_all(&(-1_i16).to_be_bytes())?;
    to.flush()?;
    drop(to);
    ensure!(psql.wait()?.success(), "COPY into a bare table failed");
    let took = started.elapsed();
    cluster.psql("postgres", SUPERUSER, "DROP TABLE bench_raw")?;
    Ok(took)
}
