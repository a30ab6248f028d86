//! Gathers a case from the store, has it diagnosed, keeps the verdict.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;
use std::time::Duration;

use prost::Message;
use rdmesh_proto::collector::v1::{JobState, Verdict as VerdictMessage};
use rdmesh_proto::common::v1::{IdentitySource, Layer, Verb};
use rdmesh_proto::tracer::v1::{CoSignalKind, Inventory, ProbeReport, ProbeState};
use rdmesh_store::baselines::StoredFork;
use rdmesh_store::evidence::{
    HostWatch as StoredWatch, NearSignal, Shaping as StoredShaping, Total as StoredTotal,
};
use rdmesh_store::fleet::{NearIncident, Signature};
use rdmesh_store::ingest::Step as StoredStep;
use rdmesh_store::jobs::Attempt;
use rdmesh_store::query::{Ambiguous as StoredAmbiguous, COUNTED_MAX, Failure, FailureFilter};
use rdmesh_store::verdicts::{KeptVerdict, PastVerdict};
use rdmesh_store::{Store, StoreError};
use time::OffsetDateTime;

use crate::attempt;
use crate::diagnosis::{
    self, Ambiguous, Arguments, Case, Chain, ChainFlags, FlightEvidence, HostWatch, HostWorld,
    Incident, Owner, Past, Probes, Shaping, SharedFact, Signal, Step, Total, Verdict, WatchedProbe,
};
use crate::ingest::marks::{self, Weight};
use crate::query::{counted, flight, log, verdict};
use crate::site::Routes;

/// Failures that a diagnosis looks at, the first by time: what decides comes first, and
/// a storm of one signature is a few rows a snapshot.
const FAILURES_MAX: u32 = 5_000;
/// Bytes of them: some six times what so many usual ones have.
const FAILURES_MAX_BYTES: usize = 32 << 20;
/// Co-signals that a diagnosis looks at.
const SIGNALS_MAX: u32 = 1_000;
/// Owners of addresses that a diagnosis looks at.
const OWNERS_MAX: u32 = 1_000;
/// How long before the start, or the first failure, a co-signal still counts.
const SIGNALS_BEFORE: Duration = Duration::from_secs(60);
/// Why such a failure may be another attempt's where the attempt's end lies before its start.
const TIMES_CONTRADICT: &str =
    "its host and time alone give it to the attempt, whose times contradict each other";
/// Earlier attempts that are looked at: a crash loop shows itself in fewer.
const PAST_MAX: u32 = 100;
/// Snapshots come every five seconds; what an attempt did last is in the one after.
const AFTER_END: Duration = Duration::from_secs(10);

/// A diagnosis with what it looked at.
#[derive(Debug)]
pub struct Diagnosed {
    /// The verdict.
    pub verdict: Verdict,
    /// As it is told, where it is one of a time when the details were there that have aged
    /// out since.
    pub kept: Option<VerdictMessage>,
    /// The failures of the attempt, first to last, bounded.
    pub failures: Vec<Failure>,
    /// Failing returns: exact where `unseen` is 0, else at least so many.
    pub totals: Vec<StoredTotal>,
    /// Calls on its hosts that the kernel did not show to the probes.
    pub unseen: u64,
    /// What the Flight Recorder's dumps say.
    pub flight: Vec<FlightEvidence>,
    /// Where such a call as decided leaves good ones.
    pub fork: Option<StoredFork>,
}

/// Diagnoses an attempt by what the store knows at `now`, and keeps the verdict. Where
/// failures of the attempt have aged out since it was diagnosed, the verdict is the earlier
/// one. Whom to call the site says, where it does.
///
/// # Errors
/// When Postgres is away.
pub async fn diagnose_attempt(
    store: &Store,
    attempt: &Attempt,
    now: OffsetDateTime,
    routes: &Routes,
) -> Result<Diagnosed, StoreError> {
    let key = &attempt.key;
    let filter = FailureFilter {
        job_id: Some(key.job_id.clone()),
        requeue: Some(key.requeue),
        restart: Some(key.restart),
        include_expected: true,
        oldest_first: true,
        limit: FAILURES_MAX,
        ..FailureFilter::default()
    };
    let found = store.list_failures(&filter, FAILURES_MAX_BYTES).await?;
    let failures = found.failures;
    let looked_at = u64::try_from(failures.len()).unwrap_or(u64::MAX);
    let counted = if found.more {
        store.count_failures(&filter).await?
    } else {
        0
    };
    // Half of a diagnosis is waiting for one answer after the other.
    let (totals, gathered) = tokio::try_join!(
        store.totals_of(key),
        gathered(store, attempt, &failures, now)
    )?;
    let case = Case {
        chains_left_out: unsigned(counted).saturating_sub(looked_at),
        more_left_out: counted >= COUNTED_MAX,
        totals: totals.iter().map(total).collect(),
        ..gathered
    };
    let unseen = case
        .hosts
        .iter()
        .fold(0_u64, |sum, watch| sum.saturating_add(watch.unseen));
    let mut verdict = diagnosis::diagnose(&case);
    if let Some(team) = routes.team(verdict.class) {
        team.clone_into(&mut verdict.route_to);
    }
    // Of a failing call that did not decide a fork would be read as the cause.
    let decided = deciding_signature(&case).filter(|_| !verdict.chain.is_empty());
    let mut signature_id = decided.map(|(signature, _)| signature.id());
    let earlier = match case.kept_from {
        Some(_) => store.kept_verdict(key).await?,
        None => None,
    };
    // What was decided while all of it was there is not made worse by its age.
    if earlier.is_none() {
        let counted = counted::of(&verdict, &case.signals);
        let stored = verdict::stored(&verdict, signature_id, counted);
        store.keep_verdict(key, &stored, now).await?;
    }
    let kept = earlier.and_then(|earlier| stands(&earlier, case.kept_from));
    if let Some((told, of_call)) = &kept {
        verdict = verdict::as_decided(told, verdict.log.take());
        signature_id = *of_call;
    }
    let fork = match signature_id {
        Some(id) => store.fork_of(id, &verdict.hosts).await?,
        None => None,
    };
    Ok(Diagnosed {
        verdict,
        kept: kept.map(|(told, _)| told),
        failures,
        totals,
        unseen,
        flight: case.flight,
        fork,
    })
}

/// An earlier verdict that stands though its details have aged out, with the failing call
/// that decided.
fn stands(
    earlier: &KeptVerdict,
    kept_from: Option<OffsetDateTime>,
) -> Option<(VerdictMessage, Option<i64>)> {
    let mut told = verdict::kept(earlier)?;
    told.unwatched.extend(kept_from.map(diagnosis::aged_out));
    Some((told, earlier.signature_id))
}

/// All that the store knows around the failures of an attempt.
async fn gathered(
    store: &Store,
    attempt: &Attempt,
    failures: &[Failure],
    now: OffsetDateTime,
) -> Result<Case, StoreError> {
    let key = &attempt.key;
    let placements = store.placements_of(key).await?;
    let placed_on: Vec<String> = placements.iter().map(|p| p.host.clone()).collect();
    let mut hosts = placed_on.clone();
    for failure in failures {
        if !hosts.contains(&failure.host) {
            hosts.push(failure.host.clone());
        }
    }
    let (from, to) = window(attempt, failures, now);
    let unclear = contradicts(attempt);
    let chains: Vec<Chain> = failures.iter().map(|f| chain(f, unclear)).collect();
    let (before, after) = (from - SIGNALS_BEFORE, to + AFTER_END);
    let (watch, signals, ambiguous, owners, shaping, logs, past, ages, flight) = tokio::try_join!(
        store.watch_of(&hosts, from, to),
        store.signals_of(key, &hosts, before, after, SIGNALS_MAX),
        store.ambiguous_of(key),
        owners(store, &chains),
        store.shaping_of(key, &hosts, from, to),
        store.logs_of(key),
        store.past_verdicts(key, PAST_MAX),
        store.ages(),
        flight::evidence(store, key, &placements),
    )?;
    let kept_from = ages.detail.filter(|kept| *kept > from);
    let mut case = Case {
        attempt: attempt::written(key),
        state: JobState::try_from(i32::from(attempt.state)).unwrap_or_default(),
        told: attempt.told,
        started_at: attempt.started_at,
        ended_at: attempt.ended_at,
        placed_on,
        chains,
        owners,
        hosts: watch.into_iter().map(|w| host_watch(w, unclear)).collect(),
        ambiguous: ambiguous.into_iter().map(shared).collect(),
        signals: signals.into_iter().map(signal).collect(),
        shaping: shaping.into_iter().map(|s| shaped(s, unclear)).collect(),
        log: log::evidence(&logs),
        flight,
        past: past.into_iter().map(earlier).collect(),
        kept_from,
        ..Case::default()
    };
    if let Some((signature, at)) = deciding_signature(&case) {
        case.incident = store.incident_of(&signature, at).await?.map(incident);
    }
    Ok(case)
}

/// An earlier attempt of the job.
pub(super) fn earlier(past: PastVerdict) -> Past {
    Past {
        attempt: attempt::written(&past.key),
        class: past.class,
        function: past.function,
        errno: past.errno,
        hosts: past.hosts,
    }
}

/// The failure that will decide, for a look at which other hosts have it.
fn deciding_signature(case: &Case) -> Option<(Signature, OffsetDateTime)> {
    let chain = diagnosis::deciding_chain(case)?;
    let small = |number: i32| i16::try_from(number).unwrap_or(0);
    let steps = chain.steps.iter().map(|step| StoredStep {
        function: step.function.clone(),
        module: step.module.clone(),
        layer: small(step.layer.into()),
        errno: step.errno,
    });
    let signature = Signature {
        driver: chain.driver.clone(),
        verb: small(chain.verb.into()),
        steps: steps.collect(),
    };
    Some((signature, chain.first_at))
}

fn incident(near: NearIncident) -> Incident {
    let shared = near.shared.into_iter().map(|fact| SharedFact {
        fact: fact.fact,
        value: fact.value,
        since: fact.since,
        failing: unsigned(fact.failing),
        failing_of: unsigned(fact.failing_of),
        healthy: unsigned(fact.healthy),
        healthy_of: unsigned(fact.healthy_of),
    });
    Incident {
        hosts: unsigned(near.hosts),
        attempts: unsigned(near.attempts),
        first_at: near.first_at,
        last_at: near.last_at,
        shared: shared.collect(),
    }
}

/// Whose the addresses are that failing connections were to reach.
async fn owners(
    store: &Store,
    chains: &[Chain],
) -> Result<BTreeMap<Ipv6Addr, Vec<Owner>>, StoreError> {
    let gids: BTreeSet<Ipv6Addr> = chains.iter().filter_map(Chain::destination).collect();
    let mut owners: BTreeMap<Ipv6Addr, Vec<Owner>> = BTreeMap::new();
    if gids.is_empty() {
        return Ok(owners);
    }
    let gids: Vec<Vec<u8>> = gids.iter().map(|gid| gid.octets().to_vec()).collect();
    for found in store.owners_of(&gids, OWNERS_MAX).await? {
        if let Ok(gid) = <[u8; 16]>::try_from(found.gid.as_slice()) {
            owners.entry(gid.into()).or_default().push(Owner {
                host: found.host,
                device: found.device,
            });
        }
    }
    Ok(owners)
}

fn signal(signal: NearSignal) -> Signal {
    Signal {
        host: signal.host,
        at: signal.at,
        kind: CoSignalKind::try_from(i32::from(signal.kind)).unwrap_or_default(),
        independent: signal.independent,
        name: signal.name,
        detail: signal.detail,
        device: signal.device,
    }
}

/// Whether the attempt is said to have ended before it started.
fn contradicts(attempt: &Attempt) -> bool {
    matches!((attempt.started_at, attempt.ended_at), (Some(start), Some(end)) if end < start)
}

/// `contradicts`: how long the attempt ran is not known, nor then of what to be silent.
fn shaped(shaping: StoredShaping, contradicts: bool) -> Shaping {
    Shaping {
        host: shaping.host,
        wire: shaping.wire,
        rate_bps: unsigned(shaping.rate_bps),
        windows: unsigned(shaping.windows),
        invalid: unsigned(shaping.invalid),
        silent_seconds: if contradicts {
            0.0
        } else {
            shaping.silent_seconds
        },
    }
}

fn shared(shared: StoredAmbiguous) -> Ambiguous {
    Ambiguous {
        host: shared.host,
        calls: unsigned(shared.calls),
        others: shared.others,
    }
}

fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// When the attempt ran, as well as it is known. Where its end lies before its start, all
/// that was told of it, with its failures.
pub(super) fn window(
    attempt: &Attempt,
    failures: &[Failure],
    now: OffsetDateTime,
) -> (OffsetDateTime, OffsetDateTime) {
    let first = failures.first().map(|failure| failure.first_at);
    let last = failures.last().map(|failure| failure.last_at);
    let from = attempt.started_at.or(first).unwrap_or(attempt.listed_at);
    let running = attempt.state == 2;
    let to = attempt
        .ended_at
        .or(if running { Some(now) } else { last })
        .unwrap_or(now);
    if contradicts(attempt) {
        let times = [Some(from), Some(to), first, last].into_iter().flatten();
        return times.fold((from, from), |(least, most), at| {
            (least.min(at), most.max(at))
        });
    }
    (from.min(to), from.max(to))
}

/// `contradicts`: the times told of the attempt do, so that its failures by placement are
/// in doubt.
fn chain(failure: &Failure, contradicts: bool) -> Chain {
    let of = |weight| {
        let marks = failure.marks.iter();
        marks
            .filter(move |mark| marks::weigh(mark) == Some(weight))
            .cloned()
    };
    let mut doubts = failure.doubts.clone();
    doubts.extend(of(Weight::Attempt));
    if contradicts && i32::from(failure.source) == i32::from(IdentitySource::Placement) {
        doubts.push(TIMES_CONTRADICT.to_owned());
    }
    let arguments: Arguments = failure
        .arguments
        .as_deref()
        .and_then(|json| serde_json::from_str(json).ok())
        .unwrap_or_default();
    Chain {
        host: failure.host.clone(),
        first_at: failure.first_at,
        last_at: failure.last_at,
        count: unsigned(failure.count),
        verb: Verb::try_from(i32::from(failure.verb)).unwrap_or_default(),
        steps: failure
            .steps
            .iter()
            .map(|step| Step {
                function: step.function.clone(),
                module: step.module.clone(),
                layer: Layer::try_from(i32::from(step.layer)).unwrap_or_default(),
                errno: step.errno,
            })
            .collect(),
        driver: failure.driver.clone(),
        device: failure.device.clone(),
        tgid: failure.tgid,
        tid: failure.tid,
        comm: failure.comm.clone(),
        rank: failure.rank,
        flags: ChainFlags {
            expected: failure.expected,
            swallowed: failure.swallowed,
            incomplete: failure.incomplete,
        },
        doubts,
        time_doubts: of(Weight::Time).collect(),
        clock_notes: of(Weight::Clock).collect(),
        arguments,
    }
}

fn total(total: &StoredTotal) -> Total {
    Total {
        host: total.host.clone(),
        function: total.function.clone(),
        layer: Layer::try_from(i32::from(total.layer)).unwrap_or_default(),
        errno: total.errno,
        count: unsigned(total.count),
    }
}

/// The messages were validated when they came; one that a later version wrote and this
/// one cannot read counts as not sent.
///
/// `contradicts`: how long the attempt ran is not known.
fn host_watch(watch: StoredWatch, contradicts: bool) -> HostWatch {
    let probes = watch
        .probe_report
        .and_then(|body| ProbeReport::decode(body.as_slice()).ok());
    let world = watch
        .inventory
        .and_then(|body| Inventory::decode(body.as_slice()).ok());
    HostWatch {
        host: watch.host,
        known: watch.known,
        probes: probes.map(watched),
        world: world.map(|inventory| host_world(&inventory)),
        watched_seconds: watch.watched_seconds,
        settled: watch.settled,
        attempt_seconds: if contradicts {
            0.0
        } else {
            watch.attempt_seconds
        },
        drops: unsigned(watch.drops),
        counter_overflow: unsigned(watch.counter_overflow),
        unseen: unsigned(watch.unseen),
    }
}

fn watched(report: ProbeReport) -> Probes {
    let probes = report
        .probes
        .iter()
        .map(|probe| WatchedProbe {
            hook: probe.hook.clone(),
            layer: probe.layer(),
            verb: probe.verb(),
            logical: probe.logical,
            missing_because: probe.missing_because().collect(),
            state: match probe.state() {
                ProbeState::Attached => diagnosis::ProbeState::Attached,
                ProbeState::Replaced => diagnosis::ProbeState::Replaced,
                ProbeState::Detached => diagnosis::ProbeState::Detached,
                ProbeState::Missing | ProbeState::Unspecified => diagnosis::ProbeState::Missing,
            },
        })
        .collect();
    Probes {
        obstacle: report.obstacle,
        probes,
    }
}

fn host_world(inventory: &Inventory) -> HostWorld {
    let peer = inventory.peer_memory.as_ref();
    HostWorld {
        memlock_bytes: inventory
            .limits
            .as_ref()
            .and_then(|limits| limits.memlock_bytes),
        limits_told: inventory.limits.is_some(),
        peer_modules: peer.map(|peer| peer.modules.clone()).unwrap_or_default(),
        dmabuf: peer.is_some_and(|peer| peer.dmabuf),
        gpu_driver: inventory
            .gpu
            .as_ref()
            .map(|gpu| gpu.name.clone())
            .unwrap_or_default(),
    }
}
