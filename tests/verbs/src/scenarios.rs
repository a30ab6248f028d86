//! The failures, one function each.

use crate::report::Report;
use crate::verbs::{self, Device, State, UNMAPPED_ADDRESS};
use anyhow::{Context, Result};
use std::io;
use std::thread;

/// Size of the region that is registered, where the size does not matter.
const REGION_BYTES: usize = 4096;

/// Over any RLIMIT_MEMLOCK that the lab sets for an unprivileged user (64 KiB).
const OVER_MEMLOCK_BYTES: usize = 1 << 20;

/// A slot of the GID table that stays empty: an interface has three or four.
const EMPTY_GID: u8 = 200;

/// Entries of queues, where the number does not matter.
const QUEUE_ENTRIES: u16 = 16;

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Scenario {
    /// Register an address that is not mapped: EFAULT.
    RegMrEfault,
    /// Move a queue pair from RESET to RTS: EINVAL.
    ModifyQpBadTransition,
    /// Ask for one work request more than the device has.
    CreateQpOverLimits,
    /// Ask for one completion entry more than the device has.
    CreateCqOverLimits,
    /// Make an address handle through an empty slot of the GID table.
    CreateAhEmptyGid,
    /// As reg-mr-efault, by the old write() ABI.
    WriteRegMrEfault,
    /// As modify-qp-bad-transition, by the old write() ABI.
    WriteModifyQpEinval,
    /// Register more than RLIMIT_MEMLOCK allows.
    RegMrMemlock,
    /// As reg-mr-efault, --count calls spread over --threads threads.
    Storm,
    /// Successful calls only: every verb once, then --count registrations.
    Ok,
    /// Fail as in reg-mr-efault and end in the same instant; the exit code is the errno.
    FailAndExit,
    /// A rank that sets up its queue pair and regions, fails in reg_mr and exits with 1.
    Rank,
}

/// What the command line says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) scenario: Scenario,
    pub(crate) count: u64,
    pub(crate) threads: u32,
}

/// Makes the failures of a plan.
pub(crate) fn run(device: &Device, plan: Plan, mut report: Report) -> Result<Report> {
    let count = plan.count;
    match plan.scenario {
        Scenario::RegMrEfault => reg_mr_efault(device, count, &mut report)?,
        Scenario::ModifyQpBadTransition => modify_qp(device, count, &mut report, |qp| {
            qp.modify(State::ReadyToSend)
        })?,
        Scenario::WriteModifyQpEinval => modify_qp(device, count, &mut report, |qp| {
            device.write_modify_qp(qp, State::ReadyToSend)
        })?,
        Scenario::CreateQpOverLimits => create_qp_over_limits(device, count, &mut report)?,
        Scenario::CreateCqOverLimits => create_cq_over_limits(device, count, &mut report)?,
        Scenario::CreateAhEmptyGid => create_ah_empty_gid(device, count, &mut report)?,
        Scenario::WriteRegMrEfault => write_reg_mr_efault(device, count, &mut report)?,
        Scenario::RegMrMemlock => reg_mr_memlock(device, count, &mut report)?,
        Scenario::Storm => storm(device, count, plan.threads, &mut report)?,
        Scenario::Ok => all_well(device, count, &mut report)?,
        Scenario::FailAndExit => fail_and_exit(device)?,
        Scenario::Rank => rank(device, &mut report)?,
    }
    Ok(report)
}

fn reg_mr_efault(device: &Device, count: u64, report: &mut Report) -> Result<()> {
    let pd = device.alloc_pd().context("alloc_pd")?;
    for _ in 0..count {
        report.count(pd.reg_mr(UNMAPPED_ADDRESS, REGION_BYTES));
    }
    Ok(())
}

fn write_reg_mr_efault(device: &Device, count: u64, report: &mut Report) -> Result<()> {
    let pd = device.alloc_pd().context("alloc_pd")?;
    for _ in 0..count {
        report.count(device.write_reg_mr(&pd, UNMAPPED_ADDRESS, REGION_BYTES as u64));
    }
    Ok(())
}

fn reg_mr_memlock(device: &Device, count: u64, report: &mut Report) -> Result<()> {
    let pd = device.alloc_pd().context("alloc_pd")?;
    let memory = vec![0_u8; OVER_MEMLOCK_BYTES];
    for _ in 0..count {
        report.count(pd.reg_mr(memory.as_ptr().addr() as u64, memory.len()));
    }
    Ok(())
}

fn modify_qp(
    device: &Device,
    count: u64,
    report: &mut Report,
    modify: impl Fn(&verbs::Qp<'_>) -> io::Result<()>,
) -> Result<()> {
    let pd = device.alloc_pd().context("alloc_pd")?;
    let cq = device
        .create_cq(i32::from(QUEUE_ENTRIES))
        .context("create_cq")?;
    let qp = pd
        .create_qp(&cq, u32::from(QUEUE_ENTRIES))
        .context("create_qp")?;
    for _ in 0..count {
        report.count(modify(&qp));
    }
    Ok(())
}

fn create_qp_over_limits(device: &Device, count: u64, report: &mut Report) -> Result<()> {
    let pd = device.alloc_pd().context("alloc_pd")?;
    let cq = device
        .create_cq(i32::from(QUEUE_ENTRIES))
        .context("create_cq")?;
    let over = device.limits()?.max_qp_wr + 1;
    for _ in 0..count {
        report.count(pd.create_qp(&cq, over));
    }
    Ok(())
}

fn create_cq_over_limits(device: &Device, count: u64, report: &mut Report) -> Result<()> {
    let over = device.limits()?.max_cqe + 1;
    for _ in 0..count {
        report.count(device.create_cq(over));
    }
    Ok(())
}

fn create_ah_empty_gid(device: &Device, count: u64, report: &mut Report) -> Result<()> {
    let pd = device.alloc_pd().context("alloc_pd")?;
    for _ in 0..count {
        report.count(pd.create_ah(EMPTY_GID));
    }
    Ok(())
}

fn storm(device: &Device, count: u64, threads: u32, report: &mut Report) -> Result<()> {
    let threads = u64::from(threads.max(1));
    let parts = thread::scope(|scope| {
        let share = |index: u64| count / threads + u64::from(index < count % threads);
        let start = |index: u64| {
            scope.spawn(move || {
                let mut part = Report::default();
                reg_mr_efault(device, share(index), &mut part).map(|()| part)
            })
        };
        let running: Vec<_> = (0..threads).map(start).collect();
        running
            .into_iter()
            .map(|thread| thread.join())
            .collect::<Vec<_>>()
    });
    for part in parts {
        let part = part.map_err(|_| anyhow::anyhow!("a thread of the storm panicked"))?;
        report.add(&part?);
    }
    Ok(())
}

fn all_well(device: &Device, count: u64, report: &mut Report) -> Result<()> {
    let pd = report.count(device.alloc_pd()).context("alloc_pd")?;
    let cq = report
        .count(device.create_cq(i32::from(QUEUE_ENTRIES)))
        .context("create_cq")?;
    let qp = report
        .count(pd.create_qp(&cq, u32::from(QUEUE_ENTRIES)))
        .context("create_qp")?;
    report.count(qp.modify(State::Init)).context("modify_qp")?;
    let memory = vec![0_u8; REGION_BYTES];
    for _ in 0..count {
        report.count(pd.reg_mr(memory.as_ptr().addr() as u64, memory.len()));
    }
    Ok(())
}

fn fail_and_exit(device: &Device) -> Result<()> {
    let pd = device.alloc_pd().context("alloc_pd")?;
    match pd.reg_mr(UNMAPPED_ADDRESS, REGION_BYTES) {
        Ok(_) => anyhow::bail!("an unmapped address was registered"),
        Err(error) => verbs::exit_at_once(error.raw_os_error().unwrap_or(0)),
    }
}

/// What NCCL does per connection, up to the registration that fails.
fn rank(device: &Device, report: &mut Report) -> Result<()> {
    let pd = report.count(device.alloc_pd()).context("alloc_pd")?;
    let cq = report
        .count(device.create_cq(i32::from(QUEUE_ENTRIES)))
        .context("create_cq")?;
    let qp = report
        .count(pd.create_qp(&cq, u32::from(QUEUE_ENTRIES)))
        .context("create_qp")?;
    report.count(qp.modify(State::Init)).context("modify_qp")?;
    let control = vec![0_u8; REGION_BYTES];
    let address = control.as_ptr().addr() as u64;
    let _control = report
        .count(pd.reg_mr(address, control.len()))
        .context("reg_mr")?;
    report.count(pd.reg_mr(UNMAPPED_ADDRESS, REGION_BYTES));
    Ok(())
}
