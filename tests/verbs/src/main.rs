//! `rdmesh-verbs`: makes real verbs calls that fail, or do not, as asked, and prints
//! what it saw as one JSON line. It never sends a packet: no work request is posted.

mod mapped;
mod method;
mod report;
mod scenarios;
mod sys;
mod verbs;

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use mapped::Mapped;
use report::Report;
use scenarios::{Plan, Scenario};
use std::process::ExitCode;
use std::time::Duration;

/// Makes RDMA verbs calls that fail on purpose.
#[derive(Debug, Parser)]
#[command(name = "rdmesh-verbs", version)]
struct Args {
    /// What to do.
    #[arg(value_enum)]
    scenario: Scenario,
    /// How many calls.
    #[arg(long, default_value_t = 1)]
    count: u64,
    /// How many threads (storm only).
    #[arg(long, default_value_t = 4)]
    threads: u32,
    /// What the address of reg-mr-mapping maps.
    #[arg(long, value_enum, default_value_t = Mapped::Nothing)]
    mapping: Mapped,
    /// RDMA device; the first one by default.
    #[arg(long)]
    device: Option<String>,
    /// Name of the process, as hexadecimal digits; need not be UTF-8.
    #[arg(long, value_name = "HEX")]
    name_hex: Option<String>,
    /// Stay alive for so long afterwards.
    #[arg(long, value_name = "MS", default_value_t = 0)]
    linger_ms: u64,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("rdmesh-verbs: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &Args) -> Result<ExitCode> {
    if let Some(hex) = &args.name_hex {
        set_name(hex)?;
    }
    let device = verbs::Device::open(args.device.as_deref())?;
    let name = args
        .scenario
        .to_possible_value()
        .map(|value| value.get_name().to_owned());
    let plan = Plan {
        scenario: args.scenario,
        count: args.count,
        threads: args.threads,
        mapping: args.mapping,
    };
    let report = scenarios::run(&device, plan, Report::new(&name.unwrap_or_default()))?;
    println!("{}", serde_json::to_string(&report)?);
    std::thread::sleep(Duration::from_millis(args.linger_ms));
    let failed_rank = args.scenario == Scenario::Rank && !report.failures.is_empty();
    Ok(if failed_rank {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Writes the name through proc, which takes any bytes.
fn set_name(hex: &str) -> Result<()> {
    let digit = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let name: Option<Vec<u8>> = hex.as_bytes().chunks(2).map(digit).collect();
    let name = name.context("--name-hex: want pairs of hexadecimal digits")?;
    std::fs::write("/proc/self/comm", name).context("cannot set the process name")
}
