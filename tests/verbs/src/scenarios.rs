//! The failures, one function each.

use crate::mapped::Mapped;
use crate::method::Dmabuf;
use crate::report::Report;
use crate::verbs::{self, Device, LOCAL_WRITE, REMOTE_WRITE, State, UNMAPPED_ADDRESS, Wanted};
use anyhow::{Context, Result};
use serde_json::json;
use std::io;
use std::net::Ipv6Addr;
use std::thread;

/// Size of the region that is registered, where the size does not matter.
const REGION_BYTES: usize = 4096;

/// Over any RLIMIT_MEMLOCK that the lab sets for an unprivileged user (64 KiB).
const OVER_MEMLOCK_BYTES: usize = 1 << 20;

/// A slot of the GID table that stays empty: an interface has three or four.
const EMPTY_GID: u8 = 200;

/// GID of the lab's own address (192.0.2.1), which resolves to the port itself at once.
const OWN_GID: Ipv6Addr = Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0xc000, 0x0201);

/// GID of a peer that does not exist (192.0.2.2).
const PEER_GID: Ipv6Addr = Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0xc000, 0x0202);

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
    /// Move a queue pair from INIT to RTR with a path and without the peer's queue pair:
    /// EINVAL.
    ModifyQpPath,
    /// Move a queue pair from INIT to RTR through an empty slot of the GID table: ENODATA.
    ModifyQpEmptyGid,
    /// Register an address that maps what --mapping says: EFAULT.
    RegMrMapping,
    /// Register with access flags that exclude each other: EINVAL.
    RegMrAccess,
    /// Register more than RLIMIT_MEMLOCK allows.
    RegMrMemlock,
    /// As reg-mr-efault, by the ioctl method of Linux 6.17.
    MethodRegMrEfault,
    /// Register a part of a dmabuf, which soft-RoCE does not know how to: EOPNOTSUPP.
    RegDmabufMr,
    /// As reg-mr-efault, --count calls spread over --threads threads.
    Storm,
    /// Time calls that succeed: a queue pair from INIT to INIT.
    TimedOk,
    /// Time calls that fail: a queue pair from INIT to RTS, EINVAL.
    TimedFailing,
    /// Successful calls only: every verb once, then --count registrations.
    Ok,
    /// Successful calls only: --count queue pairs, each connected with itself: RESET to
    /// INIT to RTR.
    Connect,
    /// Fail as in reg-mr-efault and end in the same instant; the exit code is the errno.
    FailAndExit,
    /// Use memory until the kernel ends the process, 256 MiB at most; no call fails.
    Hungry,
    /// End by SIGSEGV, with other threads around; no call fails.
    Crash,
    /// A rank that sets up its queue pair and regions, fails in reg_mr and exits with 1.
    Rank,
}

/// What the command line says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) scenario: Scenario,
    pub(crate) count: u64,
    pub(crate) threads: u32,
    pub(crate) mapping: Mapped,
}

/// Makes the failures of a plan.
pub(crate) fn run(device: &Device, plan: Plan, mut report: Report) -> Result<Report> {
    let count = plan.count;
    match plan.scenario {
        Scenario::RegMrEfault => reg_mr_efault(device, count, &mut report)?,
        Scenario::ModifyQpBadTransition => {
            let wanted = Wanted::state(State::ReadyToSend);
            modify_qp(device, count, &mut report, &wanted, |qp| qp.modify(&wanted))?;
        }
        Scenario::WriteModifyQpEinval => {
            let wanted = Wanted::state(State::ReadyToSend);
            modify_qp(device, count, &mut report, &wanted, |qp| {
                device.write_modify_qp(qp, State::ReadyToSend)
            })?;
        }
        Scenario::ModifyQpPath => {
            let own = device.gid_index(OWN_GID)?.context("no GID of 192.0.2.1")?;
            let wanted = Wanted::path(own, OWN_GID);
            modify_qp(device, count, &mut report, &wanted, |qp| qp.modify(&wanted))?;
        }
        Scenario::ModifyQpEmptyGid => {
            let wanted = Wanted::path(EMPTY_GID, PEER_GID);
            modify_qp(device, count, &mut report, &wanted, |qp| qp.modify(&wanted))?;
        }
        Scenario::RegMrMapping => reg_mr_mapping(device, count, plan.mapping, &mut report)?,
        Scenario::RegMrAccess => reg_mr_access(device, count, &mut report)?,
        Scenario::CreateQpOverLimits => create_qp_over_limits(device, count, &mut report)?,
        Scenario::CreateCqOverLimits => create_cq_over_limits(device, count, &mut report)?,
        Scenario::CreateAhEmptyGid => create_ah_empty_gid(device, count, &mut report)?,
        Scenario::WriteRegMrEfault => write_reg_mr_efault(device, count, &mut report)?,
        Scenario::RegMrMemlock => reg_mr_memlock(device, count, &mut report)?,
        Scenario::MethodRegMrEfault => method_reg_mr_efault(device, count, &mut report)?,
        Scenario::RegDmabufMr => reg_dmabuf_mr(device, count, &mut report)?,
        Scenario::Storm => storm(device, count, plan.threads, &mut report)?,
        Scenario::TimedOk => timed(device, count, State::Init, &mut report)?,
        Scenario::TimedFailing => timed(device, count, State::ReadyToSend, &mut report)?,
        Scenario::Ok => all_well(device, count, &mut report)?,
        Scenario::Connect => connect(device, count, &mut report)?,
        Scenario::Hungry => hungry(),
        Scenario::Crash => crash()?,
        Scenario::FailAndExit => fail_and_exit(device)?,
        Scenario::Rank => rank(device, &mut report)?,
    }
    Ok(report)
}

/// Memory that is written to, page by page, and kept.
fn hungry() {
    const MIB: usize = 1 << 20;
    let kept: Vec<Vec<u8>> = (0..256).map(|_| vec![1_u8; MIB]).collect();
    std::hint::black_box(kept);
}

/// As a program does that follows a pointer to nowhere.
fn crash() -> Result<()> {
    use rustix::process::{Signal, getpid, kill_process};
    for _ in 0..3 {
        std::thread::spawn(|| {
            loop {
                std::thread::park();
            }
        });
    }
    loop {
        // The first one ends in the handler of Rust's own run time, which looks for an
        // overflow of the stack and then leaves the signal to the kernel.
        kill_process(getpid(), Signal::SEGV).context("kill")?;
    }
}

fn reg_mr_efault(device: &Device, count: u64, report: &mut Report) -> Result<()> {
    let pd = device.alloc_pd().context("alloc_pd")?;
    report.asked = Some(region(UNMAPPED_ADDRESS, REGION_BYTES, LOCAL_WRITE));
    for _ in 0..count {
        report.count(pd.reg_mr(UNMAPPED_ADDRESS, REGION_BYTES));
    }
    Ok(())
}

fn write_reg_mr_efault(device: &Device, count: u64, report: &mut Report) -> Result<()> {
    let pd = device.alloc_pd().context("alloc_pd")?;
    report.asked = Some(region(UNMAPPED_ADDRESS, REGION_BYTES, LOCAL_WRITE));
    for _ in 0..count {
        let bytes = REGION_BYTES as u64;
        report.count(device.write_reg_mr(&pd, UNMAPPED_ADDRESS, bytes, LOCAL_WRITE));
    }
    Ok(())
}

fn method_reg_mr_efault(device: &Device, count: u64, report: &mut Report) -> Result<()> {
    let pd = device.alloc_pd().context("alloc_pd")?;
    report.asked = Some(region(UNMAPPED_ADDRESS, REGION_BYTES, LOCAL_WRITE));
    for _ in 0..count {
        let bytes = REGION_BYTES as u64;
        report.count(device.reg_mr_method(&pd, UNMAPPED_ADDRESS, bytes, LOCAL_WRITE));
    }
    Ok(())
}

/// What a registration asks for.
fn region(address: u64, bytes: usize, access: u32) -> serde_json::Value {
    json!({ "address": address, "length_bytes": bytes, "access_flags": access })
}

fn reg_mr_mapping(device: &Device, count: u64, mapped: Mapped, report: &mut Report) -> Result<()> {
    let pd = device.alloc_pd().context("alloc_pd")?;
    let made = mapped.make()?;
    let mut asked = region(made.address, made.bytes, LOCAL_WRITE);
    asked["mapping"] = made.first.into();
    asked["mapping_of_end"] = made.last.into();
    report.asked = Some(asked);
    for _ in 0..count {
        report.count(pd.reg_mr(made.address, made.bytes));
    }
    Ok(())
}

/// Writing from afar without writing here: the kernel refuses it before anything else.
fn reg_mr_access(device: &Device, count: u64, report: &mut Report) -> Result<()> {
    let pd = device.alloc_pd().context("alloc_pd")?;
    report.asked = Some(region(UNMAPPED_ADDRESS, REGION_BYTES, REMOTE_WRITE));
    for _ in 0..count {
        let bytes = REGION_BYTES as u64;
        report.count(device.write_reg_mr(&pd, UNMAPPED_ADDRESS, bytes, REMOTE_WRITE));
    }
    Ok(())
}

fn reg_mr_memlock(device: &Device, count: u64, report: &mut Report) -> Result<()> {
    let pd = device.alloc_pd().context("alloc_pd")?;
    let memory = vec![0_u8; OVER_MEMLOCK_BYTES];
    let address = memory.as_ptr().addr() as u64;
    report.asked = Some(region(address, memory.len(), LOCAL_WRITE));
    for _ in 0..count {
        report.count(pd.reg_mr(address, memory.len()));
    }
    Ok(())
}

/// The driver is asked before the descriptor, which is none.
fn reg_dmabuf_mr(device: &Device, count: u64, report: &mut Report) -> Result<()> {
    let pd = device.alloc_pd().context("alloc_pd")?;
    let wanted = Dmabuf {
        fd: 77,
        offset: 0x2000,
        bytes: REGION_BYTES as u64,
        access: LOCAL_WRITE,
    };
    report.asked = Some(json!({
        "dmabuf_fd": wanted.fd,
        "dmabuf_offset_bytes": wanted.offset,
        "length_bytes": wanted.bytes,
        "access_flags": wanted.access,
    }));
    for _ in 0..count {
        report.count(device.reg_dmabuf_mr(&pd, wanted));
    }
    Ok(())
}

fn modify_qp(
    device: &Device,
    count: u64,
    report: &mut Report,
    wanted: &Wanted,
    modify: impl Fn(&verbs::Qp<'_>) -> io::Result<()>,
) -> Result<()> {
    let pd = device.alloc_pd().context("alloc_pd")?;
    let cq = device
        .create_cq(i32::from(QUEUE_ENTRIES))
        .context("create_cq")?;
    let qp = pd
        .create_qp(&cq, u32::from(QUEUE_ENTRIES))
        .context("create_qp")?;
    let from = match wanted.path {
        Some(_) => State::Init,
        None => State::Reset,
    };
    if wanted.path.is_some() {
        qp.modify(&Wanted::state(State::Init)).context("INIT")?;
    }
    let mut asked = json!({
        "qp_number": qp.number(),
        "current_state": from.number(),
        "asked_state": wanted.state.number(),
        "attribute_mask": wanted.mask(),
    });
    if let Some((index, gid)) = wanted.path {
        asked["port"] = 1.into();
        asked["gid_index"] = index.into();
        asked["destination_gid"] = gid.to_string().into();
    }
    report.asked = Some(asked);
    for _ in 0..count {
        report.count(modify(&qp));
    }
    Ok(())
}

/// The least is what the call itself takes: interrupts and cold caches only add.
fn timed(device: &Device, count: u64, state: State, report: &mut Report) -> Result<()> {
    let pd = device.alloc_pd().context("alloc_pd")?;
    let cq = device
        .create_cq(i32::from(QUEUE_ENTRIES))
        .context("create_cq")?;
    let qp = pd
        .create_qp(&cq, u32::from(QUEUE_ENTRIES))
        .context("create_qp")?;
    qp.modify(&Wanted::state(State::Init)).context("INIT")?;
    let wanted = Wanted::state(state);
    for _ in 0..count {
        let before = verbs::ticks();
        let result = qp.modify(&wanted);
        let took = verbs::ticks().wrapping_sub(before);
        report.count(result);
        report.least_ticks = Some(report.least_ticks.map_or(took, |least| least.min(took)));
    }
    Ok(())
}

fn create_qp_over_limits(device: &Device, count: u64, report: &mut Report) -> Result<()> {
    let pd = device.alloc_pd().context("alloc_pd")?;
    let cq = device
        .create_cq(i32::from(QUEUE_ENTRIES))
        .context("create_cq")?;
    let over = device.limits()?.max_qp_wr + 1;
    report.asked = Some(json!({
        "max_send_wr": over,
        "max_recv_wr": 1,
        "max_send_sge": 1,
        "max_recv_sge": 1,
        "max_inline_data_bytes": 0,
        // IB_QPT_RC
        "qp_type": 2,
    }));
    for _ in 0..count {
        report.count(pd.create_qp(&cq, over));
    }
    Ok(())
}

fn create_cq_over_limits(device: &Device, count: u64, report: &mut Report) -> Result<()> {
    let over = device.limits()?.max_cqe + 1;
    report.asked = Some(json!({ "cqe": over, "completion_vector": 0 }));
    for _ in 0..count {
        report.count(device.create_cq(over));
    }
    Ok(())
}

fn create_ah_empty_gid(device: &Device, count: u64, report: &mut Report) -> Result<()> {
    let pd = device.alloc_pd().context("alloc_pd")?;
    report.asked = Some(json!({
        "port": 1,
        "gid_index": EMPTY_GID,
        "destination_gid": PEER_GID.to_string(),
    }));
    for _ in 0..count {
        report.count(pd.create_ah(EMPTY_GID, PEER_GID));
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
    report
        .count(qp.modify(&Wanted::state(State::Init)))
        .context("modify_qp")?;
    let memory = vec![0_u8; REGION_BYTES];
    for _ in 0..count {
        report.count(pd.reg_mr(memory.as_ptr().addr() as u64, memory.len()));
    }
    Ok(())
}

fn connect(device: &Device, count: u64, report: &mut Report) -> Result<()> {
    let own = device.gid_index(OWN_GID)?.context("no GID of 192.0.2.1")?;
    let pd = device.alloc_pd().context("alloc_pd")?;
    let cq = device
        .create_cq(i32::from(QUEUE_ENTRIES))
        .context("create_cq")?;
    for _ in 0..count {
        let qp = pd
            .create_qp(&cq, u32::from(QUEUE_ENTRIES))
            .context("create_qp")?;
        qp.modify(&Wanted::state(State::Init)).context("INIT")?;
        let wanted = Wanted::connected(own, OWN_GID, qp.number());
        report.count(qp.modify(&wanted)).context("RTR")?;
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
    report
        .count(qp.modify(&Wanted::state(State::Init)))
        .context("modify_qp")?;
    let control = vec![0_u8; REGION_BYTES];
    let address = control.as_ptr().addr() as u64;
    let _control = report
        .count(pd.reg_mr(address, control.len()))
        .context("reg_mr")?;
    report.count(pd.reg_mr(UNMAPPED_ADDRESS, REGION_BYTES));
    Ok(())
}
