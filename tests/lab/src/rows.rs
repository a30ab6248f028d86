//! Rows of the documented views, as the tests and the bench read them.

use serde::Deserialize;

/// A row of `rdmesh.failures`, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct FailureRow {
    /// Host.
    pub host: String,
    /// How many such calls.
    pub count: u64,
    /// The verb.
    pub verb: String,
    /// The chain, innermost first.
    pub functions: Vec<String>,
    /// Layers of the chain.
    pub layers: Vec<String>,
    /// Errnos of the chain.
    pub errnos: Vec<i32>,
    /// Their names.
    pub errno_names: Vec<String>,
    /// Kernel module of the driver.
    pub driver: Option<String>,
    /// RDMA device.
    pub device: Option<String>,
    /// Its network interface.
    pub netdev: Option<String>,
    /// Process.
    pub tgid: u32,
    /// Its name.
    pub comm: String,
    /// Its control group.
    pub cgroup_path: Option<String>,
    /// The job.
    pub job_id: Option<String>,
    /// Its requeue count.
    pub requeue: Option<u32>,
    /// Its restart count.
    pub restart: Option<u32>,
    /// Rank of the process.
    pub rank: Option<i32>,
    /// How the attempt is known.
    pub source: String,
    /// Records were dropped while the chain grew.
    pub incomplete: bool,
    /// What is odd about the row.
    pub marks: Vec<String>,
}

impl FailureRow {
    /// The query whose rows these are; `condition` is SQL.
    pub fn query(condition: &str) -> String {
        format!(
            "SELECT host, count, verb, functions, layers, errnos, errno_names, driver, device, \
             netdev, tgid, comm, cgroup_path, job_id, requeue, restart, rank, source, incomplete, \
             coalesce(marks, '{{}}') AS marks FROM rdmesh.failures WHERE {condition} ORDER BY first_at"
        )
    }
}

/// A row of `rdmesh.failure_totals`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct TotalRow {
    /// The job; none when no attempt could be named.
    pub job_id: Option<String>,
    /// The kernel function.
    pub function: String,
    /// The errno.
    pub errno: i32,
    /// Failing returns.
    pub count: u64,
}

impl TotalRow {
    /// The query whose rows these are; `condition` is SQL.
    pub fn query(condition: &str) -> String {
        format!(
            "SELECT job_id, function, errno, sum(count)::bigint AS count FROM rdmesh.failure_totals \
             WHERE {condition} GROUP BY job_id, function, errno"
        )
    }
}
