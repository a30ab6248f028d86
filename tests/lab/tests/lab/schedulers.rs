//! What schedulers run at both ends of a job, with what a real Slurm 22.05 gave them.

use anyhow::{Context, Result};
use rdmesh_lab::lab::Lab;
use rdmesh_lab::programs;
use rdmesh_lab::progress::Progress;
use rdmesh_lab::until;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

const SEEN: Duration = Duration::from_secs(30);

/// A job that waits for its end is seen as one that goes on.
const PLAYED: &str = r#"#!/bin/sh
case "$1 $2" in
"show hostnames") printf 'gpu-01\ngpu-02\n' ;;
"show job") cat "$SLURM_PLAYED/job" ;;
*) printf '%s\n' "${0##*/} $*" >>"$SLURM_PLAYED/updates"; [ ! -e "$SLURM_PLAYED/refuses.${0##*/}" ] ;;
esac
"#;

/// Slurm as far as the hook sees it: its environment and its two commands.
struct Slurm {
    directory: PathBuf,
    collector: String,
}

impl Slurm {
    fn new(lab: &Lab) -> Result<Self> {
        let directory = lab.directory().join("slurm");
        fs::create_dir(&directory)?;
        for command in ["scontrol", "sacctmgr"] {
            let path = directory.join(command);
            fs::write(&path, PLAYED)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        }
        symlink(programs::find("rdmesh")?, directory.join("rdmesh"))?;
        let collector = lab.collector().address();
        Ok(Self {
            directory,
            collector,
        })
    }

    fn sources() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/slurm")
    }

    fn job_is(&self, recorded: &str) -> Result<()> {
        let recorded = Self::sources().join("recorded").join(recorded);
        // Whole at once: the hook may be reading it.
        let next = self.directory.join("job.next");
        fs::copy(recorded, &next)?;
        fs::rename(next, self.directory.join("job"))?;
        Ok(())
    }

    fn updates(&self) -> String {
        fs::read_to_string(self.directory.join("updates")).unwrap_or_default()
    }

    /// What the hook wrote to its log.
    fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// Runs the hook as slurmctld does: in a recorded environment and nothing else, with
    /// a pipe that it waits on.
    async fn runs(&self, recorded: &str) -> Result<()> {
        let recorded = fs::read_to_string(Self::sources().join("recorded").join(recorded))?;
        let environment = recorded.lines().filter_map(|line| line.split_once('='));
        let output = tokio::process::Command::new(Self::sources().join("rdmesh-slurmctld"))
            .env_clear()
            .envs(environment)
            .env("RDMESH_COLLECTOR", &self.collector)
            .env("RDMESH_PATH", &self.directory)
            .env("RDMESH_SLURM_ENV", self.directory.join("no-settings"))
            .env("RDMESH_SLURM_LOG", self.directory.join("log"))
            .env("RDMESH_SETTLE_SECONDS", "0")
            .env("SLURM_PLAYED", &self.directory)
            .stdin(Stdio::null())
            .output();
        let output = tokio::time::timeout(SEEN, output)
            .await
            .context("the hook holds slurmctld's pipe")??;
        anyhow::ensure!(output.status.success(), "it failed: {output:?}");
        anyhow::ensure!(output.stdout.is_empty() && output.stderr.is_empty());
        Ok(())
    }
}

async fn job(lab: &Lab, attempt: &str) -> Result<Option<Value>> {
    let output = lab.rdmesh(&["-o", "json", "job", "show", attempt]).await?;
    if !output.status.success() {
        return Ok(None);
    }
    let told: Value = serde_json::from_slice(&output.stdout)?;
    Ok(Some(told["job"].clone()))
}

async fn job_that(lab: &Lab, attempt: &str, holds: impl Fn(&Value) -> bool) -> Result<Value> {
    let what = format!("{attempt} as the hook should tell it");
    until::some(&what, SEEN, || async {
        Ok(job(lab, attempt).await?.filter(&holds))
    })
    .await
}

#[tokio::test]
async fn slurm_tells_of_a_job_that_fails_and_reads_the_verdict() -> Result<()> {
    let lab = Lab::start(Progress::Quiet).await?;
    let slurm = Slurm::new(&lab)?;
    slurm.runs("prolog.env").await?;
    let began = job_that(&lab, "4711/0", |_| true).await?;
    assert_eq!(began["state"], "running", "{began}");
    assert_eq!(began["name"], "train 7b");
    assert_eq!(began["user"], "ada");
    assert_eq!(began["cluster"], "train");
    assert_eq!(began["labels"]["partition"], "gpu");
    let hosts: Vec<&str> = began["placements"]
        .as_array()
        .context("placements")?
        .iter()
        .filter_map(|placement| placement["host"].as_str())
        .collect();
    assert_eq!(hosts, ["gpu-01", "gpu-02"]);

    slurm.job_is("job-completing.txt")?;
    fs::write(slurm.directory.join("refuses.scontrol"), "")?;
    slurm.runs("epilog-failed.env").await?;
    slurm.job_is("job-failed.txt")?;
    let ended = job_that(&lab, "4711/0", |job| job["state"] == "failed").await?;
    assert_eq!(ended["exit_code"], 3, "{ended}");
    assert!(!ended.to_string().contains("ended before"), "{ended}");
    assert_eq!(ended["exit_reason"], "NonZeroExitCode");
    let updates = until::some("the comment in slurmdbd", SEEN, || async {
        let updates = slurm.updates();
        Ok(updates.contains("sacctmgr").then_some(updates))
    })
    .await
    .with_context(|| slurm.log())?;
    let comment = "AdminComment=rdmesh 4711/0 cannot_tell: ";
    let asked: Vec<&str> = updates.lines().collect();
    assert!(
        asked[0].starts_with(&format!("scontrol update JobId=4711 {comment}")),
        "{updates}"
    );
    assert!(
        asked[1].starts_with(&format!(
            "sacctmgr -i modify job where jobid=4711 set {comment}"
        )),
        "{updates}"
    );
    Ok(())
}

#[tokio::test]
async fn slurm_that_requeues_a_job_ends_the_attempt_that_ran() -> Result<()> {
    let lab = Lab::start(Progress::Quiet).await?;
    let slurm = Slurm::new(&lab)?;
    slurm.runs("prolog.env").await?;
    job_that(&lab, "4711/0", |_| true).await?;
    // Slurm has counted the next attempt already.
    slurm.job_is("job-requeued.txt")?;
    slurm.runs("epilog-requeued.env").await?;
    let ended = job_that(&lab, "4711/0", |job| job["state"] == "cancelled").await?;
    assert_eq!(ended["exit_reason"], "requeued", "{ended}");
    assert!(job(&lab, "4711/1").await?.is_none(), "no attempt is invented");
    Ok(())
}

#[tokio::test]
async fn slurm_never_waits_for_a_collector_that_is_away() -> Result<()> {
    let lab = Lab::start(Progress::Quiet).await?;
    let mut slurm = Slurm::new(&lab)?;
    slurm.collector = "127.0.0.1:1".to_owned();
    slurm.runs("prolog.env").await?;
    until::some("the note of it", SEEN, || async {
        let log = slurm.log();
        Ok(log.contains("127.0.0.1:1").then_some(log))
    })
    .await?;
    Ok(())
}
