//! Exact counters of a snapshot, and what the host could not keep or see.

use rdmesh_proto::tracer::v1::{CgroupCounterColumns, CounterColumns, ProbeCountColumns, Snapshot};
use rdmesh_store::ingest::{Count, DropKind, Dropped};

use crate::ingest::columns::{Refusal, Table};
use crate::ingest::limits::ROWS_MAX;
use crate::ingest::tables::{Probe, Tables};

/// Columns of a table that counts by probe. What a table does not have is `None`.
struct Counters<'a> {
    name: &'a str,
    probe: &'a [u32],
    errno: Option<&'a [u32]>,
    cgroup: Option<&'a [u32]>,
    delta: &'a [u64],
    total: &'a [u64],
}

/// A row of such a table.
struct Row<'a> {
    probe: &'a Probe,
    /// 0 in a table without errnos.
    errno: i32,
    cgroup: Option<usize>,
    delta: i64,
    total: i64,
}

impl<'a> From<&'a CounterColumns> for Counters<'a> {
    fn from(columns: &'a CounterColumns) -> Self {
        Self {
            name: "counters",
            probe: &columns.probe,
            errno: Some(&columns.errno),
            cgroup: None,
            delta: &columns.delta,
            total: &columns.total,
        }
    }
}

impl<'a> From<&'a CgroupCounterColumns> for Counters<'a> {
    fn from(columns: &'a CgroupCounterColumns) -> Self {
        Self {
            name: "cgroup_counters",
            probe: &columns.probe,
            errno: Some(&columns.errno),
            cgroup: Some(&columns.cgroup),
            delta: &columns.delta,
            total: &columns.total,
        }
    }
}

impl<'a> From<(&'a str, &'a ProbeCountColumns)> for Counters<'a> {
    fn from((name, columns): (&'a str, &'a ProbeCountColumns)) -> Self {
        Self {
            name,
            probe: &columns.probe,
            errno: None,
            cgroup: None,
            delta: &columns.delta,
            total: &columns.total,
        }
    }
}

impl<'a> Counters<'a> {
    /// Each row, validated, as `make` wants it.
    fn rows<T>(&self, tables: &'a Tables, make: impl Fn(Row<'a>) -> T) -> Result<Vec<T>, Refusal> {
        let table = Table::new(self.name, ROWS_MAX, self.probe.len())?;
        let mut others = vec![("delta", self.delta.len()), ("total", self.total.len())];
        others.extend(self.errno.map(|column| ("errno", column.len())));
        others.extend(self.cgroup.map(|column| ("cgroup", column.len())));
        table.columns("probe", &others)?;
        (0..table.rows())
            .map(|row| {
                let probes = ("probes", tables.probes.len());
                let cgroups = ("cgroups", tables.cgroups.len());
                let probe = table.index("probe", row, self.probe[row], probes)?;
                let errno = match self.errno {
                    Some(column) => table.errno("errno", row, column[row])?,
                    None => 0,
                };
                let cgroup = match self.cgroup {
                    Some(column) => Some(table.index("cgroup", row, column[row], cgroups)?),
                    None => None,
                };
                Ok(make(Row {
                    probe: &tables.probes[probe],
                    errno,
                    cgroup,
                    delta: table.count("delta", row, self.delta[row])?,
                    total: table.count("total", row, self.total[row])?,
                }))
            })
            .collect()
    }
}

/// The counters of the whole host, then those by cgroup.
pub(crate) fn counts(snapshot: &Snapshot, tables: &Tables) -> Result<Vec<Count>, Refusal> {
    let count = |row: Row<'_>| {
        let cgroup = row.cgroup.map(|index| &tables.cgroups[index]);
        Count {
            function: row.probe.function.text.clone(),
            module: row.probe.module.text.clone(),
            layer: row.probe.layer,
            errno: row.errno,
            cgroup: cgroup.map(|cgroup| (cgroup.path.text.clone(), cgroup.identity.clone())),
            delta: row.delta,
            total: row.total,
        }
    };
    let mut counts = Vec::new();
    if let Some(columns) = &snapshot.counters {
        counts.extend(Counters::from(columns).rows(tables, count)?);
    }
    if let Some(columns) = &snapshot.cgroup_counters {
        counts.extend(Counters::from(columns).rows(tables, count)?);
    }
    Ok(counts)
}

/// Records dropped, failures without room in the finer counters, calls not shown.
pub(crate) fn losses(snapshot: &Snapshot, tables: &Tables) -> Result<Vec<Dropped>, Refusal> {
    let mut losses = Vec::new();
    for (name, kind, columns) in [
        ("drops", DropKind::Ring, &snapshot.drops),
        ("overflow", DropKind::CounterMap, &snapshot.overflow),
        ("unseen", DropKind::Unseen, &snapshot.unseen),
    ] {
        let Some(columns) = columns else { continue };
        losses.extend(Counters::from((name, columns)).rows(tables, |row| Dropped {
            kind,
            function: row.probe.function.text.clone(),
            module: row.probe.module.text.clone(),
            layer: row.probe.layer,
            delta: row.delta,
            total: row.total,
        })?);
    }
    Ok(losses)
}
