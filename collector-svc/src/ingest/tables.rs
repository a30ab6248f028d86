//! The tables of a snapshot that its chains and counters point into, validated.

use rdmesh_proto::common::v1::{IdentitySource, Layer, Verb};
use rdmesh_proto::tracer::v1::{
    CgroupColumns, DeviceColumns, ProbeColumns, SignatureColumns, Snapshot, TaskColumns,
};
use rdmesh_store::ingest::{Identity, Step};

use crate::attempt;
use crate::ingest::columns::{Refusal, Table, Text};
use crate::ingest::limits::{PROBES_MAX, ROWS_MAX, STEPS_MAX, STRINGS_MAX};
use crate::ingest::marks::{Marks, NAMED_JOB};

/// A hooked function.
#[derive(Debug, Clone)]
pub(crate) struct Probe {
    pub(crate) function: Text,
    pub(crate) module: Text,
    pub(crate) layer: i16,
    pub(crate) verb: i16,
    /// What is odd about it.
    pub(crate) odd: Marks,
}

/// A chain without its times and task.
#[derive(Debug, Clone)]
pub(crate) struct Signature {
    pub(crate) driver: String,
    pub(crate) verb: i16,
    pub(crate) steps: Vec<Step>,
    /// What is odd about it and its probes.
    pub(crate) odd: Marks,
}

#[derive(Debug, Clone)]
pub(crate) struct Cgroup {
    pub(crate) path: Text,
    pub(crate) identity: Identity,
    /// What is odd about its path.
    pub(crate) odd: Marks,
    /// What is odd about the job that it names.
    odd_job: Marks,
}

#[derive(Debug, Clone)]
pub(crate) struct Task {
    pub(crate) tgid: u32,
    pub(crate) tid: u32,
    pub(crate) comm: String,
    pub(crate) cgroup: usize,
    pub(crate) identity: Identity,
    /// What is odd about it and the job that it names.
    pub(crate) odd: Marks,
    pub(crate) rank: Option<i32>,
    pub(crate) local_rank: Option<i32>,
}

#[derive(Debug, Clone)]
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) netdev: String,
    pub(crate) pci: String,
    /// What is odd about it.
    pub(crate) odd: Marks,
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

impl Tables {
    /// What is odd about anything in them.
    pub(crate) fn odd(&self) -> Marks {
        let mut all = Marks::default();
        self.probes.iter().for_each(|probe| all.add_all(&probe.odd));
        self.signatures.iter().for_each(|s| all.add_all(&s.odd));
        for cgroup in &self.cgroups {
            all.add_all(&cgroup.odd);
            all.add_all(&cgroup.odd_job);
        }
        self.tasks.iter().for_each(|task| all.add_all(&task.odd));
        self.devices.iter().for_each(|d| all.add_all(&d.odd));
        all
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
            let module = string(&table, "module", row, columns.module[row], strings)?;
            let mut odd = Marks::default();
            odd.text("function", function);
            odd.text("module", module);
            Ok(Probe {
                function: function.clone(),
                module: module.clone(),
                layer: odd.known::<Layer>("layer", columns.layer[row]),
                verb: odd.known::<Verb>("verb", columns.verb[row]),
                odd,
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
        let mut odd = Marks::default();
        let own: Vec<Step> = (next..end)
            .map(|step| {
                let index = columns.step_probe[step];
                let target = ("probes", probes.len());
                let probe = &probes[table.index("step_probe", step, index, target)?];
                odd.add_all(&probe.odd);
                Ok(Step {
                    function: probe.function.text.clone(),
                    module: probe.module.text.clone(),
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
        let driver = string(&table, "driver", row, columns.driver[row], strings)?;
        odd.text("driver", driver);
        signatures.push(Signature {
            driver: driver.text.clone(),
            verb,
            steps: own,
            odd,
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
fn identity(job_id: &Text, attempt: (u32, u32), source: i32, odd: &mut Marks) -> Identity {
    let nobody = Identity {
        job_id: None,
        requeue: 0,
        restart: 0,
        source: odd.known::<IdentitySource>("identity source", source),
    };
    if job_id.text.is_empty() {
        return nobody;
    }
    if job_id.changed {
        odd.add(
            "the job id that its task names was not storable: not UTF-8, control characters, or \
             too long",
        );
        return nobody;
    }
    match attempt::job_id(NAMED_JOB, &job_id.text) {
        Ok(job_id) => Identity {
            job_id: Some(job_id),
            requeue: i64::from(attempt.0),
            restart: i64::from(attempt.1),
            ..nobody
        },
        Err(bad) => {
            odd.add(&bad.to_string());
            nobody
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
            let path = string(&table, "path", row, columns.path[row], strings)?;
            let (mut odd, mut odd_job) = (Marks::default(), Marks::default());
            odd.text("cgroup path", path);
            let attempt = (columns.requeue[row], columns.restart[row]);
            let identity = identity(job, attempt, columns.source[row], &mut odd_job);
            Ok(Cgroup {
                path: path.clone(),
                identity,
                odd,
                odd_job,
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
    (0..table.rows())
        .map(|row| {
            let cgroup = table.index(
                "cgroup",
                row,
                columns.cgroup[row],
                ("cgroups", cgroups.len()),
            )?;
            let job = string(&table, "job_id", row, columns.job_id[row], strings)?;
            let comm = string(&table, "comm", row, columns.comm[row], strings)?;
            let mut odd = Marks::default();
            odd.text("comm", comm);
            let rank = odd.rank("rank", columns.rank[row]);
            let local_rank = odd.rank("local rank", columns.local_rank[row]);
            let attempt = (columns.requeue[row], columns.restart[row]);
            let mut odd_job = Marks::default();
            let own = identity(job, attempt, columns.source[row], &mut odd_job);
            // What the cgroup tells serves the task that tells nothing itself.
            let of_cgroup = &cgroups[cgroup];
            let identity = match own.job_id {
                Some(_) => own,
                None => of_cgroup.identity.clone(),
            };
            if identity.job_id.is_none() && odd_job == Marks::default() {
                odd_job = of_cgroup.odd_job.clone();
            }
            odd.add_all(&odd_job);
            Ok(Task {
                tgid: columns.tgid[row],
                tid: columns.tid[row],
                comm: comm.text.clone(),
                cgroup,
                identity,
                odd,
                rank,
                local_rank,
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
            let mut odd = Marks::default();
            let mut text = |column: &str, what: &str, value: u32| -> Result<String, Refusal> {
                let text = string(&table, column, row, value, strings)?;
                odd.text(what, text);
                Ok(text.text.clone())
            };
            let name = text("name", "device", columns.name[row])?;
            let netdev = text("netdev", "network interface", columns.netdev[row])?;
            let pci = text("pci", "PCI address", columns.pci[row])?;
            text("driver", "driver", columns.driver[row])?;
            Ok(Device {
                name,
                netdev,
                pci,
                odd,
            })
        })
        .collect()
}
