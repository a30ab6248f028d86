//! Tells the collector of drills as agents, schedulers and shapers do.

use std::sync::Arc;

use rdmesh_proto::collector::v1::report_request::Item;
use rdmesh_proto::collector::v1::submit_job_log_request::Item as LogItem;
use rdmesh_proto::collector::v1::{
    DiagnoseRequest, EndJobRequest, JobLogSource, JobState, SubmitJobLogRequest, Verdict,
};
use rdmesh_proto::common::v1::{AgentKind, Layer, Verb};
use rdmesh_proto::tracer::v1::{MissingReason, Probe, ProbeReport, ProbeState};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::snapshot::{MINUTE, snapshot};
use super::{Drill, Told};
use crate::made::{Host, attempt, seconds_ago, start};
use crate::running::Running;

/// Streams at once: a collector takes thousands, a test machine with two processors is
/// not faster with more.
const STREAMS: usize = 64;

pub(super) fn prefix(number: usize) -> String {
    format!("d{number:02}-")
}

pub(super) fn job(number: usize) -> String {
    format!("drill-{number:02}")
}

/// All of them at the same time, each to its end.
pub(super) async fn tell_all(collector: &Running, drills: &[Drill]) {
    let mut hosts = Vec::new();
    for (number, drill) in drills.iter().enumerate() {
        let (prefix, job) = (prefix(number), job(number));
        let names: Vec<String> = drill
            .hosts
            .iter()
            .map(|told| format!("{prefix}{}", told.name))
            .collect();
        begin(collector, &job, 0, &names).await;
        let watched = drill
            .hosts
            .iter()
            .zip(names)
            .filter(|(told, _)| !told.silent);
        hosts.extend(watched.map(|(told, name)| (told.clone(), name, job.clone(), 0)));
        shape(collector, drill, &prefix).await;
    }
    report(collector, hosts).await;
    for (number, drill) in drills.iter().enumerate() {
        let job = job(number);
        end(collector, &job, 0, drill.state).await;
        if let Some(log) = drill.log {
            submit(collector, &job, log).await;
        }
    }
}

/// An attempt of the last minute, with a rank on each of its hosts.
pub(super) async fn begin(collector: &Running, job: &str, requeue: u32, hosts: &[String]) {
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    let mut request = start(job, MINUTE, &hosts);
    request.attempt = attempt(job, requeue);
    collector.jobs().start_job(request).await.unwrap();
}

pub(super) async fn end(collector: &Running, job: &str, requeue: u32, state: JobState) {
    let request = EndJobRequest {
        attempt: attempt(job, requeue),
        state: state.into(),
        ended_at: Some(seconds_ago(0)),
        exit_code: Some(1),
        exit_reason: String::new(),
    };
    collector.jobs().end_job(request).await.unwrap();
}

/// What each host saw, under its name, of an attempt of that job.
pub(super) async fn report(collector: &Running, hosts: Vec<(Told, String, String, u32)>) {
    let places = Arc::new(Semaphore::new(STREAMS));
    let mut telling = JoinSet::new();
    for (told, name, job, requeue) in hosts {
        let place = Arc::clone(&places).acquire_owned().await.unwrap();
        let mut host = Host::new(&name);
        host.offset_ns = told.clock_off_ns;
        let mut agent = collector.agent(host.hello()).await;
        telling.spawn(async move {
            let mut sequence = 0;
            for inventory in told.earlier.into_iter().chain([told.inventory]) {
                sequence += 1;
                agent.send(sequence, Item::Inventory(inventory)).await;
            }
            agent.send(sequence + 1, probes(told.without)).await;
            let seen = snapshot(&host, (&job, requeue), &told.fails, &told.signs, told.drops);
            agent.send(sequence + 2, Item::Snapshot(seen)).await;
            agent.acknowledged(sequence + 2).await;
            assert!(agent.rejected.is_empty(), "{name}: {:?}", agent.rejected);
            drop(place);
        });
    }
    telling.join_all().await;
}

/// A shaper on the host's DPU, with the wire's windows.
async fn shape(collector: &Running, drill: &Drill, prefix: &str) {
    let Some(first) = drill.windows.first() else {
        return;
    };
    let mut hello = Host::new(&format!("{prefix}dpu-{}", first.host)).hello();
    hello.agent = AgentKind::Shaper.into();
    let mut agent = collector.agent(hello).await;
    let mut last = 0;
    for window in &drill.windows {
        let mut window = window.clone();
        window.host = format!("{prefix}{}", window.host);
        last += 1;
        agent.send(last, Item::WireWindow(window)).await;
    }
    agent.acknowledged(last).await;
}

async fn submit(collector: &Running, job: &str, log: &str) {
    let source = LogItem::Source(JobLogSource {
        attempt: attempt(job, 0),
        host: String::new(),
        rank: None,
        name: "slurm.out".into(),
    });
    let items = [source, LogItem::Data(log.as_bytes().to_vec())];
    let requests = items.map(|item| SubmitJobLogRequest { item: Some(item) });
    let stream = tokio_stream::iter(requests);
    collector.jobs().submit_job_log(stream).await.unwrap();
}

/// The verdict on JOB or JOB/REQUEUE.
pub(super) async fn diagnose(collector: &Running, job: &str) -> Verdict {
    let (job_id, requeue) = match job.split_once('/') {
        Some((job, requeue)) => (job, requeue.parse().ok()),
        None => (job, None),
    };
    let request = DiagnoseRequest {
        job_id: job_id.into(),
        requeue,
        ..DiagnoseRequest::default()
    };
    let answer = collector.queries().diagnose(request).await.unwrap();
    answer.into_inner().verdict.unwrap()
}

/// The thirteen logical hooks and the firmware's; `without`: those that are missing.
fn probes(without: &[&str]) -> Item {
    use Layer as L;
    use Verb as V;
    let hooks = [
        ("uverbs.alloc_pd", L::Uverbs, V::AllocPd),
        ("uverbs.reg_mr", L::Uverbs, V::RegMr),
        ("uverbs.create_cq", L::Uverbs, V::CreateCq),
        ("uverbs.create_qp", L::Uverbs, V::CreateQp),
        ("uverbs.modify_qp", L::Uverbs, V::ModifyQp),
        ("driver.alloc_pd", L::Driver, V::AllocPd),
        ("driver.reg_mr", L::Driver, V::RegMr),
        ("driver.create_cq", L::Driver, V::CreateCq),
        ("driver.create_qp", L::Driver, V::CreateQp),
        ("driver.modify_qp", L::Driver, V::ModifyQp),
        ("driver.reg_dmabuf_mr", L::Driver, V::RegDmabufMr),
        ("memory.umem", L::Memory, V::Unspecified),
        ("memory.dmabuf", L::Memory, V::Unspecified),
        ("firmware.command", L::Firmware, V::FirmwareCommand),
    ];
    let probes = hooks.map(|(hook, layer, verb)| {
        let missing = without.contains(&hook);
        Probe {
            hook: hook.into(),
            function: hook.replace('.', "_"),
            layer: layer.into(),
            verb: verb.into(),
            logical: layer != Layer::Firmware,
            state: match missing {
                true => ProbeState::Missing.into(),
                false => ProbeState::Attached.into(),
            },
            missing_because: match missing {
                true => vec![MissingReason::NoBtf.into()],
                false => Vec::new(),
            },
            ..Probe::default()
        }
    });
    let missing = u32::try_from(without.len()).unwrap();
    Item::ProbeReport(ProbeReport {
        kernel_release: "6.12.0".into(),
        probes: probes.to_vec(),
        logical_attached: 13 - missing,
        logical_total: 13,
        ..ProbeReport::default()
    })
}
