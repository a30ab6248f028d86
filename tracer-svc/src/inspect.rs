//! What a person at the host can look at without a collector: which hooks
//! resolve (`tracer-svc probes`), and the failures as they come
//! (`tracer-svc watch`).

use std::io::{self, Write};
use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::catalogue::{Catalogue, CatalogueError};
use crate::loader::{Events, LoadError, Options, Tracer};
use crate::record::{ArgsKind, DecodeError, Event, Identity, Record};
use crate::resolve::Report;

/// How often `watch` takes records that woke nobody.
const WATCH_INTERVAL: Duration = Duration::from_millis(200);

/// Looking at the host failed.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// The probes cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The built-in catalogue is broken.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// The kernel sent something unknown.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The output is closed, or the reactor failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Attaches the catalogue, writes the report, detaches. Blocks.
///
/// # Errors
/// The kernel refused, or the output is closed.
pub fn probes(out: &mut dyn Write) -> Result<(), InspectError> {
    let (tracer, _events) = Tracer::start(Catalogue::built_in()?, &Options::default())?;
    write!(out, "{}", tracer.report())?;
    Ok(())
}

/// Attaches the catalogue and writes a line for each record until `until` is
/// done; then the counters.
///
/// # Errors
/// The kernel refused, or the output is closed.
pub async fn watch(
    out: &mut (dyn Write + Send),
    options: &Options,
    until: impl Future<Output = ()>,
) -> Result<(), InspectError> {
    let (tracer, mut events) = Tracer::start(Catalogue::built_in()?, options)?;
    writeln!(out, "{} probes attached", tracer.report().attached())?;
    out.flush()?;
    let mut tick = interval(WATCH_INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tokio::pin!(until);
    loop {
        let done = tokio::select! {
            () = &mut until => true,
            more = wait(&mut events, &mut tick) => { more?; false }
        };
        while let Some(event) = events.next() {
            write_event(out, tracer.report(), &event?)?;
        }
        out.flush()?;
        if done {
            return write_counters(out, &tracer);
        }
    }
}

async fn wait(events: &mut Events, tick: &mut Interval) -> io::Result<()> {
    tokio::select! {
        woken = events.ready() => woken,
        _ = tick.tick() => Ok(()),
    }
}

fn write_event(out: &mut dyn Write, report: &Report, event: &Event) -> io::Result<()> {
    match event {
        Event::Record(record) => write_record(out, report, record),
        Event::Identity(identity) => write_identity(out, identity),
    }
}

fn write_record(out: &mut dyn Write, report: &Report, record: &Record) -> io::Result<()> {
    let (layer, name) = report.probe(record.probe).map_or(("?", "?"), |probe| {
        (probe.hook.layer.name(), probe.function.as_str())
    });
    let comm = String::from_utf8_lossy(record.comm_name());
    let device = String::from_utf8_lossy(record.device_name());
    write!(
        out,
        "{:>14.6} {:>7} {comm:<15} {device:<8} {layer:<8} {name:<44} ",
        seconds(record.boot_ns),
        record.tid,
    )?;
    match record.args_kind {
        ArgsKind::AsyncEvent => return writeln!(out, "event {}", record.args[0]),
        ArgsKind::Exit => return writeln!(out, "ended by signal {}", record.args[0]),
        _ => {}
    }
    writeln!(
        out,
        "-{:<3} call {:08x} depth {}",
        record.errno,
        record.entry >> 32,
        record.stack.iter().take_while(|a| **a != 0).count(),
    )
}

/// The environment is not shown: it may hold secrets.
fn write_identity(out: &mut dyn Write, identity: &Identity) -> io::Result<()> {
    writeln!(
        out,
        "{:>14.6} {:>7} first failure, cgroup {} ({:#x}), {} bytes of environment{}",
        seconds(identity.boot_ns),
        identity.tgid,
        String::from_utf8_lossy(&identity.cgroup_path),
        identity.cgroup_id,
        identity.environ.len(),
        if identity.environ_cut { ", cut" } else { "" },
    )
}

fn write_counters(out: &mut dyn Write, tracer: &Tracer) -> Result<(), InspectError> {
    let counters = tracer.counters()?;
    for count in &counters.by_errno {
        let name = tracer
            .report()
            .probe(count.probe)
            .map_or("?", |p| p.function.as_str());
        writeln!(out, "{:>10} x {name} -{}", count.count, count.errno)?;
    }
    for count in &counters.by_cgroup {
        let name = tracer
            .report()
            .probe(count.probe)
            .map_or("?", |p| p.function.as_str());
        writeln!(
            out,
            "{:>10} x {name} -{} in cgroup {:#x}",
            count.count, count.errno, count.cgroup_id
        )?;
    }
    writeln!(out, "{} records dropped", counters.records_dropped())?;
    out.flush()?;
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "shown with microseconds")]
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
