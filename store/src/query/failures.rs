//! Failures, joined with their attempts.

use sqlx::types::Uuid;
use sqlx::{Postgres, QueryBuilder, Row};
use time::OffsetDateTime;
use tokio_stream::StreamExt;

use crate::ingest::Step;
use crate::jobs::{AttemptKey, key_of};
use crate::{Store, StoreError};

/// A coalesced failing call, with the attempt that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The host.
    pub host: String,
    /// First call, collector time.
    pub first_at: OffsetDateTime,
    /// Last call, collector time.
    pub last_at: OffsetDateTime,
    /// First call as the host's own clock told it.
    pub host_first_at: OffsetDateTime,
    /// How many calls.
    pub count: i64,
    /// What the application asked for.
    pub verb: i16,
    /// Innermost first.
    pub steps: Vec<Step>,
    /// Module of the RDMA driver.
    pub driver: String,
    /// RDMA device.
    pub device: String,
    /// Its network interface.
    pub netdev: String,
    /// Its PCI address.
    pub pci_address: String,
    /// Process.
    pub tgid: u32,
    /// Thread.
    pub tid: u32,
    /// Name of the thread.
    pub comm: String,
    /// Path of its cgroup.
    pub cgroup_path: String,
    /// RANK.
    pub rank: Option<i32>,
    /// LOCAL_RANK.
    pub local_rank: Option<i32>,
    /// Whose it is; none: no attempt could be named.
    pub attempt: Option<AttemptKey>,
    /// How that is known, as the contract numbers it.
    pub source: i16,
    /// Part of normal work.
    pub expected: bool,
    /// It did not reach user space.
    pub swallowed: bool,
    /// Records were dropped while it grew.
    pub incomplete: bool,
    /// What is odd about the row.
    pub marks: Vec<String>,
    /// Those of them that say why it may be another attempt's.
    pub doubts: Vec<String>,
    /// What the arguments of one such call said, as a JSON object.
    pub arguments: Option<String>,
    /// Its place in lists.
    pub cursor: FailureCursor,
}

impl Failure {
    /// Bytes of its texts, and some for each number: not less than what it has on the wire.
    fn bytes(&self) -> usize {
        /// Numbers, times and tags of a row, and of a step, whose errno has a name besides.
        const NUMBERS: usize = 128;
        /// Its place: the agent's run in text, two numbers, and the host's own time.
        const PLACE: usize = 80;
        let steps = self.steps.iter();
        let texts = [
            &self.host,
            &self.driver,
            &self.device,
            &self.netdev,
            &self.pci_address,
            &self.comm,
            &self.cgroup_path,
        ];
        let marks = self.marks.iter().map(|mark| mark.len() + 8);
        NUMBERS
            + PLACE
            + texts.iter().map(|text| text.len()).sum::<usize>()
            + self.attempt.as_ref().map_or(0, |key| key.job_id.len())
            + self.arguments.as_ref().map_or(0, String::len)
            + marks.sum::<usize>()
            + steps
                .map(|step| step.function.len() + step.module.len() + NUMBERS)
                .sum::<usize>()
    }
}

/// A place in a list of failures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureCursor {
    /// [`Failure::first_at`].
    pub at: OffsetDateTime,
    /// [`Failure::host`].
    pub host: String,
    /// Run of the agent.
    pub run_id: Uuid,
    /// Sequence of the snapshot.
    pub seq: i64,
    /// Place within the snapshot.
    pub ordinal: i32,
}

/// A snapshot with failures, and between which times they lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSnapshot {
    /// The host.
    pub host: String,
    /// Run of the agent.
    pub run_id: Uuid,
    /// Its sequence.
    pub sequence: i64,
    /// First failure in it.
    pub first_at: OffsetDateTime,
    /// Last failure in it.
    pub last_at: OffsetDateTime,
}

/// Which failures to list. None does not filter.
#[derive(Debug, Clone, Default)]
pub struct FailureFilter {
    /// Of this job.
    pub job_id: Option<String>,
    /// Of this requeue count; with a job only.
    pub requeue: Option<u32>,
    /// Of this restart count; with a job only.
    pub restart: Option<u32>,
    /// On this host.
    pub host: Option<String>,
    /// On this RDMA device.
    pub device: Option<String>,
    /// With this function anywhere in the chain.
    pub function: Option<String>,
    /// With this errno anywhere in the chain.
    pub errno: Option<i32>,
    /// At or after this.
    pub from: Option<OffsetDateTime>,
    /// Before this.
    pub to: Option<OffsetDateTime>,
    /// Also those that are part of normal work.
    pub include_expected: bool,
    /// Oldest first instead of newest first.
    pub oldest_first: bool,
    /// Continue after this one.
    pub after: Option<FailureCursor>,
    /// Of these snapshots alone; empty: of any.
    pub of_snapshots: Vec<StoredSnapshot>,
    /// At most so many.
    pub limit: u32,
}

const COLUMNS: &str =
    "host, at, run_id, seq, ordinal, last_at, host_first_at, count, verb, functions, modules,
    layers, errnos, driver, device, netdev, pci_address, tgid, tid, comm, cgroup_path, rank,
    local_rank, job_id, requeue, restart, source, expected, swallowed, incomplete,
    marks || doubts AS marks, doubts, arguments::text AS arguments";

/// Rows that are counted at most: a person reads no more of a number than that there are
/// many. Of a job they are counted in a quarter of a second; of a host with 40 placements,
/// where no task names its job, in 3 seconds.
pub const COUNTED_MAX: i64 = 50_000;

/// Rows that a group is taken to have when a page is sought: where they have more, some groups
/// are looked at in vain; where less, the first look does not fill the page and the next takes
/// more groups.
const ROWS_A_GROUP: u32 = 2;
/// By so much.
const GROUPS_GROW: i64 = 4;

/// Failures up to a number and to a size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailurePage {
    /// In the order that was asked for.
    pub failures: Vec<Failure>,
    /// Whether there are others after them.
    pub more: bool,
}

impl Store {
    /// Failures by any of the filters, as many as its limit says and no more than
    /// `max_bytes` of texts hold; at least one where there is any. Of what does not fit
    /// nothing is kept in memory.
    ///
    /// # Errors
    /// When Postgres is away, or the query ran longer than it may.
    pub async fn list_failures(
        &self,
        filter: &FailureFilter,
        max_bytes: usize,
    ) -> Result<FailurePage, StoreError> {
        let mut groups = i64::from(filter.limit / ROWS_A_GROUP) + 1;
        loop {
            let bound = self.nth_group(filter, groups).await?;
            let page = self.page(filter, bound, max_bytes).await?;
            if page.more || bound.is_none() {
                return Ok(page);
            }
            groups = groups.saturating_mul(GROUPS_GROW);
        }
    }

    /// Where the list's group of that number begins; none: it has fewer. Whatever comes no
    /// later in the list than that stands in groups that are found by their times.
    async fn nth_group(
        &self,
        filter: &FailureFilter,
        number: i64,
    ) -> Result<Option<OffsetDateTime>, StoreError> {
        // Those of a job are found first and sorted then: else Postgres may walk all groups there
        // are in the order of their times, since so few of them are asked for.
        let (begin, end) = match filter.job_id {
            Some(_) => (
                "WITH found AS MATERIALIZED (SELECT at FROM rdmesh_store.failure_groups WHERE true",
                ") SELECT at FROM found",
            ),
            None => ("SELECT at FROM rdmesh_store.failure_groups WHERE true", ""),
        };
        let mut query = QueryBuilder::<Postgres>::new(begin);
        if let Some(job_id) = &filter.job_id {
            push_candidates(&mut query, job_id, Columns::OF_GROUPS);
        }
        if let Some(host) = &filter.host {
            query.push(" AND host = ").push_bind(host);
        }
        push_group_times(&mut query, filter, Columns::OF_GROUPS);
        query.push(end).push(if filter.oldest_first {
            " ORDER BY at"
        } else {
            " ORDER BY at DESC"
        });
        query.push(" OFFSET ").push_bind(number).push(" LIMIT 1");
        let mut reading = self.reading(filter.job_id.is_some()).await?;
        let nth = query.build_query_scalar().fetch_optional(&mut *reading);
        Ok(nth.await?)
    }

    /// A page of what comes no later in the list than `bound`.
    async fn page(
        &self,
        filter: &FailureFilter,
        bound: Option<OffsetDateTime>,
        max_bytes: usize,
    ) -> Result<FailurePage, StoreError> {
        let mut query = QueryBuilder::<Postgres>::new(format!(
            "SELECT {COLUMNS} FROM rdmesh_store.joined_failures WHERE true"
        ));
        if let Some(job_id) = &filter.job_id {
            push_candidates(&mut query, job_id, Columns::OF_ROWS);
        }
        push_filter(&mut query, filter);
        push_group_times(&mut query, filter, Columns::OF_ROWS);
        if let Some(bound) = bound {
            if filter.oldest_first {
                query.push(" AND at <= ").push_bind(bound);
                push_groups_until(&mut query, bound, Columns::OF_ROWS);
            } else {
                query.push(" AND at >= ").push_bind(bound);
                push_groups_from(&mut query, bound, Columns::OF_ROWS);
            }
        }
        query.push(if filter.oldest_first {
            " ORDER BY at, host, run_id, seq, ordinal"
        } else {
            " ORDER BY at DESC, host DESC, run_id DESC, seq DESC, ordinal DESC"
        });
        // One more than asked for tells whether there is more.
        query
            .push(" LIMIT ")
            .push_bind(i64::from(filter.limit).saturating_add(1));
        let mut reading = self.reading(filter.job_id.is_some()).await?;
        let mut rows = query.build().fetch(&mut *reading);
        let mut page = FailurePage {
            failures: Vec::new(),
            more: false,
        };
        let most = usize::try_from(filter.limit).unwrap_or(usize::MAX);
        let mut bytes = 0_usize;
        while let Some(row) = rows.try_next().await? {
            let next = failure(&row)?;
            bytes = bytes.saturating_add(next.bytes());
            let full = page.failures.len() >= most || bytes > max_bytes;
            if full && !page.failures.is_empty() {
                page.more = true;
                break;
            }
            page.failures.push(next);
        }
        Ok(page)
    }

    /// How many rows the filter finds, of [`COUNTED_MAX`] at most; its own limit does not
    /// count.
    ///
    /// # Errors
    /// When Postgres is away, or the query ran longer than it may.
    pub async fn count_failures(&self, filter: &FailureFilter) -> Result<i64, StoreError> {
        // A job's rows are found without the join of each of them.
        let view = match filter.job_id {
            Some(_) => "attempt_failures",
            None => "joined_failures",
        };
        let mut query = QueryBuilder::<Postgres>::new(format!(
            "SELECT count(*) FROM (SELECT FROM rdmesh_store.{view} WHERE true"
        ));
        push_filter(&mut query, filter);
        if filter.job_id.is_none() {
            push_group_times(&mut query, filter, Columns::OF_ROWS);
        }
        query.push(" LIMIT ").push_bind(COUNTED_MAX).push(") f");
        Ok(query.build_query_scalar().fetch_one(&self.pool).await?)
    }
}

fn push_filter<'a>(query: &mut QueryBuilder<'a, Postgres>, filter: &'a FailureFilter) {
    push_job(query, filter);
    if let Some(host) = &filter.host {
        query.push(" AND host = ").push_bind(host);
    }
    if let Some(device) = &filter.device {
        query.push(" AND device = ").push_bind(device);
    }
    if let Some(function) = &filter.function {
        query
            .push(" AND ")
            .push_bind(function)
            .push(" = ANY (functions)");
    }
    if let Some(errno) = filter.errno {
        query.push(" AND ").push_bind(errno).push(" = ANY (errnos)");
    }
    if let Some(from) = filter.from {
        query.push(" AND at >= ").push_bind(from);
    }
    if let Some(to) = filter.to {
        query.push(" AND at < ").push_bind(to);
    }
    push_snapshots(query, &filter.of_snapshots);
    if !filter.include_expected {
        query.push(" AND NOT expected");
    }
    if let Some(after) = &filter.after {
        query.push(if filter.oldest_first {
            " AND (at, host, run_id, seq, ordinal) > ("
        } else {
            " AND (at, host, run_id, seq, ordinal) < ("
        });
        query.push_bind(after.at).push(", ").push_bind(&after.host);
        query
            .push(", ")
            .push_bind(after.run_id)
            .push(", ")
            .push_bind(after.seq);
        query.push(", ").push_bind(after.ordinal).push(")");
    }
}

/// How the columns of a group are named.
#[derive(Debug, Clone, Copy)]
struct Columns {
    job_id: &'static str,
    at: &'static str,
    until: &'static str,
}

impl Columns {
    /// In `rdmesh_store.failure_groups`.
    const OF_GROUPS: Self = Self {
        job_id: "job_id",
        at: "at",
        until: "until",
    };
    /// In `rdmesh_store.joined_failures`.
    const OF_ROWS: Self = Self {
        job_id: "named_job_id",
        at: "group_at",
        until: "group_until",
    };
}

/// Groups that can have rows of the filter's times.
fn push_group_times<'a>(
    query: &mut QueryBuilder<'a, Postgres>,
    filter: &'a FailureFilter,
    columns: Columns,
) {
    let of_snapshots = filter.of_snapshots.iter();
    let first = of_snapshots.clone().map(|snapshot| snapshot.first_at).min();
    let last = of_snapshots.map(|snapshot| snapshot.last_at).max();
    let after = filter.after.as_ref().map(|after| after.at);
    let (after, before) = match filter.oldest_first {
        true => (after, None),
        false => (None, after),
    };
    for from in [filter.from, first, after].into_iter().flatten() {
        push_groups_from(query, from, columns);
    }
    for to in [filter.to, last, before].into_iter().flatten() {
        push_groups_until(query, to, columns);
    }
}

/// Groups that have rows at `from` or later. A group lies within one minute, so that they are
/// found by their begin.
fn push_groups_from(
    query: &mut QueryBuilder<'_, Postgres>,
    from: OffsetDateTime,
    columns: Columns,
) {
    let Columns { at, until, .. } = columns;
    query.push(format!(" AND {at} > -interval '1 minute' + "));
    query.push_bind(from);
    query.push(format!(" AND {until} >= ")).push_bind(from);
}

/// Groups that have rows at `to` or earlier.
fn push_groups_until(query: &mut QueryBuilder<'_, Postgres>, to: OffsetDateTime, columns: Columns) {
    query.push(format!(" AND {} <= ", columns.at)).push_bind(to);
}

fn push_snapshots<'a>(query: &mut QueryBuilder<'a, Postgres>, snapshots: &'a [StoredSnapshot]) {
    let first = snapshots.iter().map(|snapshot| snapshot.first_at).min();
    let last = snapshots.iter().map(|snapshot| snapshot.last_at).max();
    let (Some(first), Some(last)) = (first, last) else {
        return;
    };
    let hosts: Vec<&str> = snapshots.iter().map(|s| s.host.as_str()).collect();
    query.push(" AND at >= ").push_bind(first);
    query.push(" AND at <= ").push_bind(last);
    query.push(" AND host = ANY (").push_bind(hosts.clone());
    query.push(") AND (host, run_id, seq) IN (SELECT * FROM unnest(");
    query.push_bind(hosts).push("::text[], ");
    let runs: Vec<Uuid> = snapshots.iter().map(|s| s.run_id).collect();
    query.push_bind(runs).push("::uuid[], ");
    let sequences: Vec<i64> = snapshots.iter().map(|s| s.sequence).collect();
    query.push_bind(sequences).push("::bigint[]))");
}

fn push_job<'a>(query: &mut QueryBuilder<'a, Postgres>, filter: &'a FailureFilter) {
    let Some(job_id) = &filter.job_id else { return };
    query.push(" AND job_id = ").push_bind(job_id);
    if let Some(requeue) = filter.requeue {
        query.push(" AND requeue = ").push_bind(i64::from(requeue));
    }
    if let Some(restart) = filter.restart {
        query.push(" AND restart = ").push_bind(i64::from(restart));
    }
}

/// Rows that can belong to `job_id` at all. The join gives the attempt; this condition
/// beside it lets Postgres find the candidates by index: rows that name the job, and rows
/// that name none on hosts and at times where the job was placed.
fn push_candidates<'a>(query: &mut QueryBuilder<'a, Postgres>, job_id: &'a str, columns: Columns) {
    let Columns {
        job_id: named, at, ..
    } = columns;
    query.push(format!(" AND ({named} = ")).push_bind(job_id);
    query.push(format!(" OR ({named} IS NULL AND host = ANY (ARRAY("));
    query.push("SELECT p.host FROM rdmesh_store.placements p WHERE p.job_id = ");
    query.push_bind(job_id).push("))");
    for (comparison, bound) in [
        (">", "min(w.from_at) - interval '1 minute'"),
        ("<", "max(w.to_at)"),
    ] {
        query.push(format!(
            " AND {at} {comparison} (SELECT {bound} FROM rdmesh_store.attempt_windows w
               WHERE w.job_id = "
        ));
        query.push_bind(job_id).push(")");
    }
    query.push("))");
}

fn failure(row: &sqlx::postgres::PgRow) -> Result<Failure, StoreError> {
    let functions: Vec<String> = row.try_get("functions")?;
    let modules: Vec<String> = row.try_get("modules")?;
    let layers: Vec<i16> = row.try_get("layers")?;
    let errnos: Vec<i32> = row.try_get("errnos")?;
    let steps = functions
        .into_iter()
        .zip(modules)
        .zip(layers.into_iter().zip(errnos))
        .map(|((function, module), (layer, errno))| Step {
            function,
            module,
            layer,
            errno,
        })
        .collect();
    let attempt = match row.try_get::<Option<String>, _>("job_id")? {
        Some(job) => Some(key_of(
            job,
            row.try_get("requeue")?,
            row.try_get("restart")?,
        )),
        None => None,
    };
    let host: String = row.try_get("host")?;
    let at = row.try_get("at")?;
    Ok(Failure {
        first_at: at,
        last_at: row.try_get("last_at")?,
        host_first_at: row.try_get("host_first_at")?,
        count: row.try_get("count")?,
        verb: row.try_get("verb")?,
        steps,
        driver: row.try_get("driver")?,
        device: row.try_get("device")?,
        netdev: row.try_get("netdev")?,
        pci_address: row.try_get("pci_address")?,
        tgid: u32::try_from(row.try_get::<i64, _>("tgid")?).unwrap_or_default(),
        tid: u32::try_from(row.try_get::<i64, _>("tid")?).unwrap_or_default(),
        comm: row.try_get("comm")?,
        cgroup_path: row.try_get("cgroup_path")?,
        rank: row.try_get("rank")?,
        local_rank: row.try_get("local_rank")?,
        attempt,
        source: row.try_get("source")?,
        expected: row.try_get("expected")?,
        swallowed: row.try_get("swallowed")?,
        incomplete: row.try_get("incomplete")?,
        marks: row.try_get("marks")?,
        doubts: row.try_get("doubts")?,
        arguments: row.try_get("arguments")?,
        cursor: FailureCursor {
            at,
            host: host.clone(),
            run_id: row.try_get("run_id")?,
            seq: row.try_get("seq")?,
            ordinal: row.try_get("ordinal")?,
        },
        host,
    })
}
