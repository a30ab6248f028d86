//! `rdmesh-lab shell-run`: one command in a fresh host, for trying things.

use anyhow::Result;
use rdmesh_guest::Exec;
use rdmesh_lab::host::{Host, HostPlan, parse_addition};
use rdmesh_lab::kernels::Kernel;
use rdmesh_lab::progress::Progress;
use rdmesh_lab::qemu;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Exit code when the command ended by a signal or by the time limit.
const NO_CODE: u8 = 125;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Kernel series.
    #[arg(long, value_enum, default_value = "6.12")]
    kernel: Kernel,
    /// A file to copy into the host: FROM (to /usr/bin) or FROM:TO; repeatable.
    /// Programs bring their shared libraries.
    #[arg(long, value_name = "FROM[:TO]", value_parser = parse_addition)]
    add: Vec<(PathBuf, String)>,
    /// A kernel module to have at hand (`--load mlx5_ib` also loads it); repeatable.
    #[arg(long, value_name = "MODULE")]
    load: Vec<String>,
    /// Control groups of version 1 instead of 2.
    #[arg(long)]
    cgroup_v1: bool,
    /// Seconds after which the command is killed.
    #[arg(long, default_value_t = 120)]
    timeout_s: u64,
    /// The command and its arguments. There is no shell in the host.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

pub(crate) async fn run(args: &Args) -> Result<ExitCode> {
    let plan = HostPlan {
        files: args.add.clone(),
        modules: args.load.clone(),
        cgroup_v1: args.cgroup_v1,
        ..HostPlan::default()
    };
    qemu::wait_for_slot(Progress::Lines).await?;
    let host = Host::boot("lab", args.kernel, &plan, Progress::Lines).await?;
    eprintln!(
        "  {} up after {:.1} s, initramfs {:.1} MB, RDMA {}",
        host.ready().release,
        host.boot_time().as_secs_f64(),
        host.initramfs_bytes() as f64 / 1e6,
        host.ready().devices.join(" ")
    );
    for module in &args.load {
        host.done(rdmesh_guest::Command::LoadModule {
            name: module.clone(),
        })
        .await?;
    }
    let exec = Exec {
        argv: args.command.clone(),
        ..Exec::default()
    };
    let exit = host.run(exec, Duration::from_secs(args.timeout_s)).await?;
    print!("{}", exit.stdout.to_lossy());
    eprint!("{}", exit.stderr.to_lossy());
    let serial = host.serial_tail();
    if !serial.is_empty() {
        eprintln!("  serial console:\n{serial}");
    }
    if let Some(signal) = exit.signal {
        let why = if exit.timed_out { " (time limit)" } else { "" };
        eprintln!("  ended by signal {signal}{why}");
    }
    host.power_off().await?;
    Ok(exit
        .code
        .and_then(|code| u8::try_from(code).ok())
        .unwrap_or(NO_CODE)
        .into())
}
