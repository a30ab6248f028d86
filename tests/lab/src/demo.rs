//! `rdmesh-lab demo`: one host, one job, one failing call, and what rdmesh says.

use crate::fail;
use anyhow::{Context, Result, bail, ensure};
use rdmesh_client::model::verdict::VerdictClass;
use rdmesh_lab::chains;
use rdmesh_lab::kernels::Kernel;
use rdmesh_lab::lab::{Lab, Task, TracedHost};
use rdmesh_lab::programs;
use rdmesh_lab::progress::Progress;
use rdmesh_lab::until;
use rdmesh_lab::verbs::Verbs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tokio::process::Command;

const KERNEL: Kernel = Kernel::V6_12;
const HOST: &str = "gpu-01";
const JOB: &str = "4711";

/// The rank fails at once; a busy machine is given its time.
const RANK_LIMIT: Duration = Duration::from_secs(60);

/// A snapshot leaves every five seconds.
const VERDICT_LIMIT: Duration = Duration::from_secs(60);

/// Lines of the gRPC answer that are shown, from the verdict on.
const SHOWN_LINES: usize = 20;

/// Failures of other layers and other causes than the demo's own.
const FURTHER_SCENARIOS: [&str; 3] = [
    "reg-mr-access",
    "modify-qp-bad-transition",
    "create-qp-over-limits",
];

const FAILURES: &str = "SELECT host, rank, functions, errno_names, layer FROM rdmesh.failures \
                        WHERE job_id = '4711'";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Leave everything running and print how to look around; ends with Ctrl-C.
    #[arg(long)]
    keep: bool,
}

pub(crate) async fn run(args: &Args) -> Result<ExitCode> {
    let began = Instant::now();
    // Needed at the end; whoever lacks it need not wait for that.
    grpcurl_works().await?;
    println!("A rank fails in a real kernel; rdmesh says where and why.\n");
    println!("Setting up: a private Postgres, a collector, and a host with Debian's kernel,");
    println!("soft-RoCE and the tracer.");
    let lab = Lab::start(Progress::Lines).await?;
    let host = lab.host(HOST, KERNEL).await?;
    let shown = told(&lab, &host).await;
    if shown.is_err() {
        eprintln!(
            "{}\ntracer-svc says:\n{}",
            lab.collector().log_tail(),
            host.tracer_log().await?
        );
    }
    shown?;
    println!(
        "\nDone in {} s, on kernel {}.",
        began.elapsed().as_secs(),
        host.ready().release
    );
    if args.keep {
        keep(&lab, &host).await?;
    } else {
        println!("\nNext:");
        println!("  make demo KEEP=1    the same, left running, with the commands to look around");
        println!("  make test           every failure, on three kernels");
        println!("  README.md           how to run rdmesh on a GPU host");
    }
    Ok(ExitCode::SUCCESS)
}

async fn told(lab: &Lab, host: &TracedHost) -> Result<()> {
    heading(1, "A scheduler says that a job starts.");
    let start = [
        "job",
        "start",
        JOB,
        "--name",
        "llama-pretrain",
        "--user",
        "alice",
    ];
    let placed = [
        "--scheduler",
        "slurm",
        "--host",
        "gpu-01:ranks=0:devices=rxe0",
    ];
    rdmesh(lab, &[&start[..], &placed].concat()).await?;

    heading(
        2,
        "Its rank 0 registers memory at an address that is not mapped, and exits.",
    );
    println!("   {HOST}$ RDMESH_JOB_ID={JOB} RANK=0 rdmesh-verbs rank");
    let exit = host
        .run_task(&Task::of(JOB), Verbs::new("rank").exec(), RANK_LIMIT)
        .await?;
    ensure!(exit.code == Some(1), "the rank was meant to fail: {exit:?}");
    println!("   ibv_reg_mr: Bad address; exit code 1");
    rdmesh(lab, &["job", "end", JOB, "--exit-code", "1"]).await?;

    heading(3, "What broke the job?");
    wait_for_verdict(lab).await?;
    rdmesh(lab, &["diagnose", JOB]).await?;

    heading(4, "The same by SQL, as the read-only role.");
    let psql = [
        "-X",
        "-P",
        "pager=off",
        "-d",
        &lab.reader_url(),
        "-c",
        FAILURES,
    ];
    show(Path::new("psql"), &psql, "psql").await?;

    heading(5, "The same by gRPC.");
    let address = lab.collector().address();
    let question = format!("{{\"job_id\": \"{JOB}\"}}");
    let method = "rdmesh.collector.v1.QueryService/Diagnose";
    show_verdict(
        &grpcurl()?,
        &["-plaintext", "-d", &question, &address, method],
        "grpcurl",
    )
    .await
}

fn heading(number: u32, text: &str) {
    println!("\n{number}. {text}");
}

/// Waits until the collector names the cause, and checks that it is the right one.
async fn wait_for_verdict(lab: &Lab) -> Result<()> {
    let verdict = until::some("a verdict", VERDICT_LIMIT, || async {
        let verdict = lab.client().diagnose(&JOB.parse()?).await?.verdict;
        Ok((verdict.class != VerdictClass::CannotTell).then_some(verdict))
    })
    .await?;
    let found = (verdict.function.as_deref(), verdict.errno);
    if found != (Some(chains::umem(KERNEL)), Some(14)) {
        bail!(
            "the verdict should name {}, EFAULT (14), not {found:?}",
            chains::umem(KERNEL)
        );
    }
    Ok(())
}

async fn rdmesh(lab: &Lab, args: &[&str]) -> Result<()> {
    let address = lab.collector().address();
    let all = [&["--collector", &address], args].concat();
    show(&programs::find("rdmesh")?, &all, "rdmesh").await
}

/// Shows a command and what it answers; anything but exit code 0 is an error.
async fn show(program: &Path, args: &[&str], name: &str) -> Result<()> {
    for line in answer(program, args, name).await?.trim_end().lines() {
        println!("   {line}");
    }
    Ok(())
}

/// Like [`show`], of a long JSON answer the verdict alone.
async fn show_verdict(program: &Path, args: &[&str], name: &str) -> Result<()> {
    let text = answer(program, args, name).await?;
    let verdict = text
        .lines()
        .skip_while(|line| !line.contains("\"verdict\""));
    let lines: Vec<&str> = verdict.take(SHOWN_LINES).collect();
    ensure!(
        !lines.is_empty(),
        "{name}: no verdict in the answer: {text}"
    );
    println!("   …");
    for line in lines {
        println!("   {line}");
    }
    println!("   …");
    Ok(())
}

async fn answer(program: &Path, args: &[&str], name: &str) -> Result<String> {
    println!(
        "   $ {name} {}",
        args.iter()
            .map(|arg| quoted(arg))
            .collect::<Vec<_>>()
            .join(" ")
    );
    let output = Command::new(program)
        .args(args)
        .output()
        .await
        .context(name.to_owned())?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{name}: {}: {}",
        output.status,
        said.trim_end()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// As a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:=,@".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn grpcurl() -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let own = rdmesh_lab::cache::directory()?.join("tools/bin");
    let found = std::env::split_paths(&path)
        .chain([own])
        .map(|at| at.join("grpcurl"));
    let mut found = found.filter(|path| path.is_file());
    found
        .next()
        .context("no grpcurl: run tests/setup.sh, which installs it")
}

/// That grpcurl is there and runs.
async fn grpcurl_works() -> Result<()> {
    let path = grpcurl()?;
    runs(&path)
        .await
        .with_context(|| format!("{}: run tests/setup.sh, which installs it", path.display()))
}

async fn runs(program: &Path) -> Result<()> {
    let output = Command::new(program).arg("--version").output().await;
    let output = output.context("it does not start")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "--version: {}: {}",
        output.status,
        said.trim_end()
    );
    Ok(())
}

async fn keep(lab: &Lab, host: &TracedHost) -> Result<()> {
    let address = lab.collector().address();
    println!("\nLeft running. In another terminal:\n");
    println!(
        "  export RDMESH_COLLECTOR={address} PATH=$PATH:{}",
        directories()?
    );
    println!("  rdmesh diagnose {JOB}");
    println!("  rdmesh failures");
    println!("  rdmesh probes {HOST}");
    println!("  rdmesh fleet");
    println!("  psql {}", quoted(&lab.reader_url()));
    println!("  grpcurl -plaintext {address} list");
    println!(
        "  grpcurl -plaintext {} list      # the tracer itself",
        host.tracer_address()
    );
    println!("\nAnother failure, with a job of its own (any scenario of rdmesh-verbs):\n");
    let directory = lab.directory().display();
    for scenario in FURTHER_SCENARIOS {
        println!("  rdmesh-lab fail --lab {directory} {scenario}");
    }
    println!("\nCtrl-C ends it and removes everything.");
    // The interrupt handler of the lab ends the process.
    fail::serve(lab, host, JOB.parse()?).await
}

/// Directories of the programs that are named, as `PATH` takes them.
fn directories() -> Result<String> {
    let programs = [programs::find("rdmesh")?, grpcurl()?];
    let parents = programs.iter().filter_map(|program| program.parent());
    Ok(parents
        .map(|path| path.display().to_string())
        .collect::<Vec<_>>()
        .join(":"))
}

#[cfg(test)]
mod tests {
    use super::{quoted, runs};
    use std::path::Path;

    #[tokio::test]
    async fn regression_a_broken_program_is_found_before_it_is_needed() {
        runs(Path::new("/bin/true")).await.unwrap();
        assert!(runs(Path::new("/bin/false")).await.is_err());
        assert!(runs(Path::new("/nonexistent/grpcurl")).await.is_err());
    }

    #[test]
    fn words_are_quoted_where_a_shell_needs_it() {
        assert_eq!(quoted("--host"), "--host");
        assert_eq!(quoted("{\"a\": 1}"), "'{\"a\": 1}'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
