//! The tables of a snapshot that its chains and counters point into, validated.

use rdmesh_proto::common::v1::{IdentitySource, Layer, Verb};
use rdmesh_proto::tracer::v1::{
    CgroupColumns, DeviceColumns, ProbeColumns, SignatureColumns, Snapshot, TaskColumns,
};
use rdmesh_store::ingest::{Identity, Step};
use rdmesh_store::text::storable;

use crate::attempt;
use crate::ingest::columns::{Refusal, Table, Text};
use crate::ingest::limits::{MARK_MAX_BYTES, PROBES_MAX, ROWS_MAX, STEPS_MAX, STRINGS_MAX};

/// A hooked function.
#[derive(Debug, Clone)]
pub(crate) struct Probe {
    pub(crate) function: String,
    pub(crate) module: String,
    pub(crate) layer: i16,
    pub(crate) verb: i16,
}

/// A chain without its times and task.
#[derive(Debug, Clone)]
pub(crate) struct Signature {
    pub(crate) driver: String,
    pub(crate) verb: i16,
    pub(crate) steps: Vec<Step>,
}

#[derive(Debug, Clone)]
pub(crate) struct Cgroup {
    pub(crate) path: Text,
    pub(crate) identity: Identity,
    /// What is odd about the job that it names.
    pub(crate) mark: Option<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct Task {
    pub(crate) tgid: u32,
    pub(crate) tid: u32,
    pub(crate) comm: Text,
    pub(crate) cgroup: usize,
    pub(crate) identity: Identity,
    /// What is odd about the job that it names.
    pub(crate) mark: Option<String>,
    pub(crate) rank: Option<i32>,
    pub(crate) local_rank: Option<i32>,
}

#[derive(Debug, Clone)]
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) netdev: String,
    pub(crate) pci: String,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) strings: Vec<Text>,
    pub(crate) probes: Vec<Probe>,
    pub(crate) signatures: Vec<Signature>,
    pub(crate) cgroups: Vec<Cgroup>,
    pub(crate) tasks: Vec<Task>,
    pub(crate) devices: Vec<Device>,
}

impl TryFrom<&Snapshot> for Tables {
    type Error = Refusal;

    fn try_from(snapshot: &Snapshot) -> Result<Self, Refusal> {
        Table::new("strings", STRINGS_MAX, snapshot.strings.len())?;
        let strings: Vec<Text> = snapshot
            .strings
            .iter()
            .map(|bytes| Text::new(bytes))
            .collect();
        let empty = Default::default();
        let probes = probes(snapshot.probes.as_ref().unwrap_or(&empty), &strings)?;
        let empty = Default::default();
        let signatures = signatures(
            snapshot.signatures.as_ref().unwrap_or(&empty),
            &strings,
            &probes,
        )?;
        let empty = Default::default();
        let cgroups = cgroups(snapshot.cgroups.as_ref().unwrap_or(&empty), &strings)?;
        let empty = Default::default();
        let tasks = tasks(
            snapshot.tasks.as_ref().unwrap_or(&empty),
            &strings,
            &cgroups,
        )?;
        let empty = Default::default();
        let devices = devices(snapshot.devices.as_ref().unwrap_or(&empty), &strings)?;
        Ok(Self {
            strings,
            probes,
            signatures,
            cgroups,
            tasks,
            devices,
        })
    }
}

/// The text at an index column of a row.
fn string<'a>(
    table: &Table<'_>,
    column: &str,
    row: usize,
    value: u32,
    strings: &'a [Text],
) -> Result<&'a Text, Refusal> {
    Ok(&strings[table.index(column, row, value, ("strings", strings.len()))?])
}

/// Numbers of the contract that a newer agent may know and we do not become 0, "not
/// known": the row is worth more than the number.
fn known<E: TryFrom<i32> + Into<i32>>(value: i32) -> i16 {
    let number = E::try_from(value).map_or(0, Into::into);
    i16::try_from(number).unwrap_or(0)
}

fn probes(columns: &ProbeColumns, strings: &[Text]) -> Result<Vec<Probe>, Refusal> {
    let table = Table::new("probes", PROBES_MAX, columns.function.len())?;
    table.columns(
        "function",
        &[
            ("module", columns.module.len()),
            ("layer", columns.layer.len()),
            ("verb", columns.verb.len()),
            ("object", columns.object.len()),
        ],
    )?;
    (0..table.rows())
        .map(|row| {
            let function = string(&table, "function", row, columns.function[row], strings)?;
            if function.text.is_empty() {
                let field = format!("probes.function[{row}]");
                return Err(Refusal::value(
                    field,
                    "an empty text",
                    "the name of a function",
                ));
            }
            Ok(Probe {
                function: function.text.clone(),
                module: string(&table, "module", row, columns.module[row], strings)?
                    .text
                    .clone(),
                layer: known::<Layer>(columns.layer[row]),
                verb: known::<Verb>(columns.verb[row]),
            })
        })
        .collect()
}

fn signatures(
    columns: &SignatureColumns,
    strings: &[Text],
    probes: &[Probe],
) -> Result<Vec<Signature>, Refusal> {
    let table = Table::new("signatures", ROWS_MAX, columns.driver.len())?;
    table.columns("driver", &[("steps", columns.steps.len())])?;
    let steps = Table::new("signatures.step_probe", ROWS_MAX, columns.step_probe.len())?;
    Table::new("signatures", ROWS_MAX, columns.step_probe.len())?
        .columns("step_probe", &[("step_errno", columns.step_errno.len())])?;
    let mut next = 0;
    let mut signatures = Vec::with_capacity(table.rows());
    for row in 0..table.rows() {
        let count = columns.steps[row];
        let field = || format!("signatures.steps[{row}]");
        if !(1..=STEPS_MAX).contains(&count) {
            return Err(Refusal::value(field(), count, "1 to 64"));
        }
        let end = next + usize::try_from(count).unwrap_or(usize::MAX);
        if end > steps.rows() {
            let allowed = "no more steps than signatures.step_probe has entries";
            return Err(Refusal::value(field(), count, allowed));
        }
        let own: Vec<Step> = (next..end)
            .map(|step| {
                let index = columns.step_probe[step];
                let target = ("probes", probes.len());
                let probe = &probes[table.index("step_probe", step, index, target)?];
                Ok(Step {
                    function: probe.function.clone(),
                    module: probe.module.clone(),
                    layer: probe.layer,
                    errno: table.errno("step_errno", step, columns.step_errno[step])?,
                })
            })
            .collect::<Result<_, Refusal>>()?;
        // The outermost probe says what the application asked for; helpers serve many.
        let verb = (next..end)
            .rev()
            .filter_map(|step| probes.get(usize::try_from(columns.step_probe[step]).ok()?))
            .map(|probe| probe.verb)
            .find(|verb| *verb != 0)
            .unwrap_or(0);
        let driver = string(&table, "driver", row, columns.driver[row], strings)?
            .text
            .clone();
        signatures.push(Signature {
            driver,
            verb,
            steps: own,
        });
        next = end;
    }
    if next != steps.rows() {
        let field = "signatures.step_probe";
        return Err(Refusal::value(
            field,
            format!("{} entries", steps.rows()),
            "the sum of signatures.steps",
        ));
    }
    Ok(signatures)
}

/// Whose it is; an empty job id says that nobody knows. A text that is no job id (an
/// environment may hold anything) names none, and the row says so.
fn identity(job_id: &Text, requeue: u32, restart: u32, source: i32) -> (Identity, Option<String>) {
    let source = known::<IdentitySource>(source);
    let nobody = Identity {
        job_id: None,
        requeue: 0,
        restart: 0,
        source,
    };
    if job_id.text.is_empty() {
        return (nobody, None);
    }
    if job_id.changed {
        let mark = "the job id that its task names was not storable: not UTF-8, NUL, or too long";
        return (nobody, Some(mark.to_owned()));
    }
    match attempt::job_id("the job id that its task names", &job_id.text) {
        Ok(job_id) => {
            let identity = Identity {
                job_id: Some(job_id),
                requeue: i64::from(requeue),
                restart: i64::from(restart),
                source,
            };
            (identity, None)
        }
        Err(bad) => {
            let mark = storable(bad.to_string().as_bytes(), MARK_MAX_BYTES);
            (nobody, Some(mark.text))
        }
    }
}

fn cgroups(columns: &CgroupColumns, strings: &[Text]) -> Result<Vec<Cgroup>, Refusal> {
    let table = Table::new("cgroups", ROWS_MAX, columns.id.len())?;
    table.columns(
        "id",
        &[
            ("path", columns.path.len()),
            ("job_id", columns.job_id.len()),
            ("requeue", columns.requeue.len()),
            ("restart", columns.restart.len()),
            ("source", columns.source.len()),
        ],
    )?;
    (0..table.rows())
        .map(|row| {
            let job = string(&table, "job_id", row, columns.job_id[row], strings)?;
            let (identity, mark) = identity(
                job,
                columns.requeue[row],
                columns.restart[row],
                columns.source[row],
            );
            Ok(Cgroup {
                path: string(&table, "path", row, columns.path[row], strings)?.clone(),
                identity,
                mark,
            })
        })
        .collect()
}

fn tasks(
    columns: &TaskColumns,
    strings: &[Text],
    cgroups: &[Cgroup],
) -> Result<Vec<Task>, Refusal> {
    let table = Table::new("tasks", ROWS_MAX, columns.tgid.len())?;
    table.columns(
        "tgid",
        &[
            ("tid", columns.tid.len()),
            ("start_boot_ns", columns.start_boot_ns.len()),
            ("comm", columns.comm.len()),
            ("cgroup", columns.cgroup.len()),
            ("job_id", columns.job_id.len()),
            ("requeue", columns.requeue.len()),
            ("restart", columns.restart.len()),
            ("rank", columns.rank.len()),
            ("local_rank", columns.local_rank.len()),
            ("source", columns.source.len()),
        ],
    )?;
    // -1 says "not known".
    let rank = |value: i32| (value >= 0).then_some(value);
    (0..table.rows())
        .map(|row| {
            let cgroup = table.index(
                "cgroup",
                row,
                columns.cgroup[row],
                ("cgroups", cgroups.len()),
            )?;
            let job = string(&table, "job_id", row, columns.job_id[row], strings)?;
            let (own, own_mark) = identity(
                job,
                columns.requeue[row],
                columns.restart[row],
                columns.source[row],
            );
            // What the cgroup tells serves the task that tells nothing itself.
            let (identity, mark) = match own.job_id {
                Some(_) => (own, own_mark),
                None => {
                    let of_cgroup = &cgroups[cgroup];
                    (
                        of_cgroup.identity.clone(),
                        own_mark.or_else(|| of_cgroup.mark.clone()),
                    )
                }
            };
            Ok(Task {
                tgid: columns.tgid[row],
                tid: columns.tid[row],
                comm: string(&table, "comm", row, columns.comm[row], strings)?.clone(),
                cgroup,
                identity,
                mark,
                rank: rank(columns.rank[row]),
                local_rank: rank(columns.local_rank[row]),
            })
        })
        .collect()
}

fn devices(columns: &DeviceColumns, strings: &[Text]) -> Result<Vec<Device>, Refusal> {
    let table = Table::new("devices", ROWS_MAX, columns.name.len())?;
    table.columns(
        "name",
        &[
            ("netdev", columns.netdev.len()),
            ("pci", columns.pci.len()),
            ("driver", columns.driver.len()),
        ],
    )?;
    (0..table.rows())
        .map(|row| {
            string(&table, "driver", row, columns.driver[row], strings)?;
            Ok(Device {
                name: string(&table, "name", row, columns.name[row], strings)?
                    .text
                    .clone(),
                netdev: string(&table, "netdev", row, columns.netdev[row], strings)?
                    .text
                    .clone(),
                pci: string(&table, "pci", row, columns.pci[row], strings)?
                    .text
                    .clone(),
            })
        })
        .collect()
}
