//! The whole lab: database, collector, and hosts that the tracer watches.

use crate::collector::Collector;
use crate::host::{Host, HostPlan, TRACER_PORT};
use crate::kernels::Kernel;
use crate::progress::Progress;
use crate::scratch::Scratch;
use crate::sql::{READER, Sql};
use crate::{children, programs, qemu, until};
use anyhow::{Context, Result};
use rdmesh_client::Client;
use rdmesh_guest::{Exec, Exit, ProcessStat, Text};
use rdmesh_proto::tracer::v1::tracer_service_client::TracerServiceClient;
use rdmesh_proto::tracer::v1::{GetProbeReportRequest, ProbeReport};
use rdmesh_test_postgres::Cluster;
use std::ops::Deref;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

/// Signal numbers of Linux on x86-64 and arm64.
const SIGCONT: i32 = 18;
const SIGSTOP: i32 = 19;

/// Resolving and attaching takes 2 to 5 s under emulation on an idle machine.
const ATTACH_LIMIT: Duration = Duration::from_secs(120);

/// The address at which QEMU's user-mode network shows this machine to a guest.
const THIS_MACHINE: &str = "10.0.2.2";

/// A running lab. Dropping it stops everything.
pub struct Lab {
    // Dropped in this order: the collector before its database.
    collector: Collector,
    sql: Sql,
    client: Client,
    database: String,
    cluster: Cluster,
    scratch: Scratch,
    progress: Progress,
}

impl std::fmt::Debug for Lab {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lab")
            .field("collector", &self.collector.address())
            .finish()
    }
}

impl Lab {
    /// Starts a private Postgres and a collector on it.
    pub async fn start(progress: Progress) -> Result<Self> {
        children::clean_up_on_interrupt()?;
        let scratch = Scratch::new()?;
        let step = progress.step("starting a private Postgres");
        let (cluster, database) = tokio::task::spawn_blocking(|| {
            let cluster = Cluster::start()?;
            let database = cluster.new_database()?;
            anyhow::Ok((cluster, database))
        })
        .await??;
        step.done();
        let step = progress.step("starting the collector");
        let collector = Collector::start(scratch.path(), &cluster.url(&database)).await?;
        step.done();
        let client = collector.client().await?;
        let sql = Sql::open(&cluster.url_as(&database, READER))?;
        Ok(Self {
            collector,
            sql,
            client,
            database,
            cluster,
            scratch,
            progress,
        })
    }

    /// Boots a host, starts the tracer in it and waits until the collector knows
    /// its probes.
    pub async fn host(&self, name: &str, kernel: Kernel) -> Result<TracedHost> {
        self.host_with(name, kernel, HostPlan::default(), "").await
    }

    /// Like [`Lab::host`], with more in the host; `config` is added to the tracer's
    /// configuration file.
    pub async fn host_with(
        &self,
        name: &str,
        kernel: Kernel,
        mut plan: HostPlan,
        config: &str,
    ) -> Result<TracedHost> {
        plan.own_programs.push("tracer-svc".to_owned());
        qemu::wait_for_slot(self.progress).await?;
        let host = Host::boot(name, kernel, &plan, self.progress).await?;
        let collector = format!("{THIS_MACHINE}:{}", self.collector.port());
        // The host's port leads to the guest's own address, not to its loopback.
        // No budget: an emulated processor is so slow that a storm passes the default one.
        let config = format!(
            "host = \"{name}\"\nadvertise = \"{}\"\n\n[uplink]\ncollector = \"{collector}\"\n\n\
             [server]\nlisten = \"0.0.0.0:{TRACER_PORT}\"\ninsecure_listen = true\n\n\
             [tls]\ninsecure_dial = true\n\n[cost]\nbudget_percent = 0\n\n{config}",
            host.tracer_address()
        );
        host.write_file("/etc/rdmesh/tracer.toml", config, 0o644)
            .await?;
        let step = self
            .progress
            .step(format!("attaching the probes on {name}"));
        let tracer = start_tracer(&host).await?;
        let traced = TracedHost { host, tracer };
        until::holds("probes attached", ATTACH_LIMIT, || {
            self.knows_probes_of(&traced)
        })
        .await
        .with_context(|| self.collector.log_tail())?;
        step.done();
        Ok(traced)
    }

    async fn knows_probes_of(&self, host: &TracedHost) -> Result<bool> {
        let output = host
            .read_output(host.tracer)
            .await
            .map(|text| text.to_lossy());
        let stat = host.process_stat(host.tracer).await;
        if stat.is_err() {
            let exit = host.wait(host.tracer, Duration::from_secs(1)).await?;
            anyhow::bail!(
                "tracer-svc ended: {:?}\n{}",
                exit.code,
                exit.stderr.to_lossy()
            );
        }
        match self.client.host_probes(host.name()).await {
            Ok(probes) => Ok(probes.logical_attached > 0),
            Err(rdmesh_client::ClientError::NotFound { .. }) => Ok(false),
            Err(error) => Err(error).with_context(|| format!("tracer-svc says:\n{output:?}")),
        }
    }

    /// The collector's client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The collector.
    pub fn collector(&self) -> &Collector {
        &self.collector
    }

    /// Stops the collector for as long as `meanwhile` takes and starts it again in
    /// the same place.
    pub async fn without_collector<T>(
        self,
        meanwhile: impl AsyncFnOnce() -> Result<T>,
    ) -> Result<(Self, T)> {
        let Self {
            collector,
            sql,
            database,
            cluster,
            scratch,
            progress,
            ..
        } = self;
        let port = collector.port();
        collector.stop();
        let result = meanwhile().await?;
        let url = cluster.url(&database);
        let collector = Collector::start_at(scratch.path(), &url, port).await?;
        let client = collector.client().await?;
        Ok((
            Self {
                collector,
                sql,
                client,
                database,
                cluster,
                scratch,
                progress,
            },
            result,
        ))
    }

    /// The documented views, as the read-only role sees them.
    pub fn sql(&self) -> &Sql {
        &self.sql
    }

    /// Where psql finds the database, as the read-only role.
    pub fn reader_url(&self) -> String {
        self.cluster.url_as(&self.database, READER)
    }

    /// The lab's scratch directory.
    pub fn directory(&self) -> &Path {
        self.scratch.path()
    }

    /// Runs the `rdmesh` command line against the lab's collector.
    pub async fn rdmesh(&self, args: &[&str]) -> Result<Output> {
        let program = programs::find("rdmesh")?;
        let output = tokio::process::Command::new(program)
            .args(["--collector", &self.collector.address()])
            .args(args)
            .env_remove("RDMESH_COLLECTOR")
            .output();
        output.await.context("rdmesh")
    }
}

async fn start_tracer(host: &Host) -> Result<i32> {
    let argv = vec!["/usr/bin/tracer-svc".to_owned()];
    host.spawn(Exec {
        argv,
        ..Exec::default()
    })
    .await
}

/// A host with a running tracer.
#[derive(Debug)]
pub struct TracedHost {
    host: Host,
    tracer: i32,
}

/// A task of a job, as a scheduler would start it.
#[derive(Debug, Clone, Default)]
pub struct Task {
    /// The job's id, set as `RDMESH_JOB_ID`; none leaves the environment bare.
    pub job: Option<String>,
    /// `REQUEUE[.RESTART]`, set as `RDMESH_ATTEMPT`.
    pub attempt: Option<String>,
    /// `RANK` and `LOCAL_RANK`.
    pub rank: Option<u32>,
    /// Control group; made and entered before the program starts.
    pub cgroup: Option<Text>,
}

impl Task {
    /// Rank 0 of a job, in a control group of its own.
    pub fn of(job: &str) -> Self {
        Self {
            job: Some(job.to_owned()),
            attempt: Some("0".to_owned()),
            rank: Some(0),
            cgroup: Some(Text::from(format!("jobs/{job}"))),
        }
    }

    /// The process that runs `exec` as this task.
    pub fn exec(&self, exec: Exec) -> Exec {
        let mut exec = Exec {
            cgroup: self.cgroup.clone(),
            ..exec
        };
        let rank = self.rank.map(|rank| rank.to_string());
        for (name, value) in [
            ("RDMESH_JOB_ID", &self.job),
            ("RDMESH_ATTEMPT", &self.attempt),
            ("RANK", &rank),
            ("LOCAL_RANK", &rank),
        ] {
            if let Some(value) = value {
                exec.env.insert(name.to_owned(), value.clone());
            }
        }
        exec
    }
}

impl TracedHost {
    /// Runs a program as a task of a job, to its end.
    pub async fn run_task(&self, task: &Task, exec: Exec, limit: Duration) -> Result<Exit> {
        self.host.run(task.exec(exec), limit).await
    }

    /// Memory and context switches of the tracer.
    pub async fn tracer_stat(&self) -> Result<ProcessStat> {
        self.host.process_stat(self.tracer).await
    }

    /// What the tracer's own service says about its probes.
    pub async fn probe_report(&self) -> Result<ProbeReport> {
        let address = format!("http://{}", self.host.tracer_address());
        let mut tracer = TracerServiceClient::connect(address)
            .await
            .context("tracer-svc")?;
        let answer = tracer.get_probe_report(GetProbeReportRequest {}).await?;
        answer
            .into_inner()
            .report
            .context("tracer-svc gave no report")
    }

    /// Calls that the kernel hid from the probe of a function.
    pub async fn unseen_calls(&self, function: &str) -> Result<u64> {
        let report = self.probe_report().await?;
        let probes = report
            .probes
            .iter()
            .filter(|probe| probe.function == function);
        Ok(probes.map(|probe| probe.unseen).sum())
    }

    /// What the tracer has logged.
    pub async fn tracer_log(&self) -> Result<String> {
        Ok(self.host.read_output(self.tracer).await?.to_lossy())
    }

    /// Ends the tracer by a signal and gives how it ended.
    pub async fn stop_tracer(&self, signal: i32, limit: Duration) -> Result<Exit> {
        self.host.kill(self.tracer, signal).await?;
        self.host.wait(self.tracer, limit).await
    }

    /// Holds the tracer's process still (`SIGSTOP`): the kernel goes on recording, and
    /// nobody reads the ring.
    pub async fn hold_tracer(&self) -> Result<()> {
        self.host.kill(self.tracer, SIGSTOP).await
    }

    /// Lets it run again (`SIGCONT`).
    pub async fn release_tracer(&self) -> Result<()> {
        self.host.kill(self.tracer, SIGCONT).await
    }

    /// Starts the tracer again after [`TracedHost::stop_tracer`].
    pub async fn restart_tracer(&mut self) -> Result<()> {
        self.tracer = start_tracer(&self.host).await?;
        Ok(())
    }

    /// The host, which powers off when it is dropped.
    pub fn into_host(self) -> Host {
        self.host
    }
}

impl Deref for TracedHost {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.host
    }
}
