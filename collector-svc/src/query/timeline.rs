//! `GetTimeline`: what happened on the hosts of an attempt, in the order of time.

use std::collections::BTreeMap;

use rdmesh_proto::collector::v1::{
    CoSignal, GetTimelineResponse, HostTimeline, TimedLogLine, WireSpan,
};
use rdmesh_proto::tracer::v1::CoSignalKind;
use rdmesh_store::evidence::NearSignal;
use rdmesh_store::jobs::{Attempt, Placement};
use rdmesh_store::logs::StoredLog;
use rdmesh_store::query::{Failure, FailureFilter};
use rdmesh_store::timeline::SpanWindow;
use rdmesh_store::{Store, StoreError};
use time::{Duration, OffsetDateTime};

use crate::query::{diagnose, failures, log};
use crate::times;

/// Hosts of an answer, those on which something happened first: what a person looks at.
const HOSTS_MAX: usize = 64;
/// Failures of an answer, the first by time.
const FAILURES_MAX: u32 = 1_000;
/// Bytes of them: with all else below what gRPC clients take unless told otherwise.
const FAILURES_MAX_BYTES: usize = 2 << 20;
/// Failures of one host: what a drawing shows.
const FAILURES_OF_HOST_MAX: usize = 200;
/// Co-signals of an answer.
const SIGNALS_MAX: u32 = 1_000;
/// Windows that are looked at: an hour of a wire has 720.
const WINDOWS_MAX: u32 = 20_000;
/// Stretches of a wire that are told.
const SPANS_MAX: usize = 200;
/// Lines of logs of one host.
const LINES_MAX: usize = 50;
/// What happened shortly before an attempt may be its cause.
const BEFORE: Duration = Duration::seconds(60);
/// The last snapshot comes after the end.
const AFTER: Duration = Duration::seconds(10);

/// What the store knows of the attempt's hosts at `now`.
pub(crate) async fn of_attempt(
    store: &Store,
    attempt: &Attempt,
    placements: &[Placement],
    now: OffsetDateTime,
) -> Result<GetTimelineResponse, StoreError> {
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
    let (from, to) = diagnose::window(attempt, &found.failures, now);
    let mut hosts: Vec<String> = placements.iter().map(|p| p.host.clone()).collect();
    for failure in &found.failures {
        if !hosts.contains(&failure.host) {
            hosts.push(failure.host.clone());
        }
    }
    let signals = store
        .signals_of(key, &hosts, from - BEFORE, to + AFTER, SIGNALS_MAX)
        .await?;
    let windows = store.windows_of(&hosts, from, to, WINDOWS_MAX).await?;
    let logs = store.logs_of(key).await?;
    let mut lines: BTreeMap<String, Vec<TimedLogLine>> = BTreeMap::new();
    for log in &logs.heaviest {
        if let Some(line) = timed(log) {
            let host = host_of(log, placements, &hosts);
            lines.entry(host).or_default().push(line);
        }
    }
    if lines.contains_key("") {
        hosts.push(String::new());
    }
    let mut timelines: Vec<HostTimeline> = hosts
        .into_iter()
        .map(|host| of_host(&host, &found.failures, &signals, &windows, &mut lines))
        .collect();
    timelines.sort_by_key(first_of);
    let left_out = timelines.len().saturating_sub(HOSTS_MAX);
    timelines.truncate(HOSTS_MAX);
    Ok(GetTimelineResponse {
        job: None,
        from: Some(times::to_proto(from)),
        to: Some(times::to_proto(to)),
        hosts: timelines,
        hosts_left_out: u32::try_from(left_out).unwrap_or(u32::MAX),
        more_failures: found.more,
    })
}

fn of_host(
    host: &str,
    failures: &[Failure],
    signals: &[NearSignal],
    windows: &[SpanWindow],
    lines: &mut BTreeMap<String, Vec<TimedLogLine>>,
) -> HostTimeline {
    let of_host = || failures.iter().filter(|failure| failure.host == host);
    let left_out = of_host().count().saturating_sub(FAILURES_OF_HOST_MAX);
    let mut lines = lines.remove(host).unwrap_or_default();
    lines.sort_by_key(|line| line.at.map(|at| (at.seconds, at.nanos)));
    lines.truncate(LINES_MAX);
    HostTimeline {
        host: host.to_owned(),
        failures: of_host()
            .take(FAILURES_OF_HOST_MAX)
            .map(|failure| failures::to_proto(failure.clone()))
            .collect(),
        failures_left_out: u32::try_from(left_out).unwrap_or(u32::MAX),
        signals: signals
            .iter()
            .filter(|signal| signal.host == host)
            .map(signal)
            .collect(),
        log_lines: lines,
        wires: spans(windows.iter().filter(|window| window.host == host)),
    }
}

/// Hosts on which something happened first; the others by name.
fn first_of(timeline: &HostTimeline) -> (bool, (i64, i32), String) {
    let at = |at: &Option<prost_types::Timestamp>| at.map(|at| (at.seconds, at.nanos));
    let failure = timeline.failures.iter().filter_map(|f| at(&f.first_at));
    let signal = timeline.signals.iter().filter_map(|s| at(&s.at));
    let line = timeline.log_lines.iter().filter_map(|l| at(&l.at));
    let first = failure.chain(signal).chain(line).min();
    (
        first.is_none(),
        first.unwrap_or_default(),
        timeline.host.clone(),
    )
}

fn signal(signal: &NearSignal) -> CoSignal {
    CoSignal {
        at: Some(times::to_proto(signal.at)),
        kind: CoSignalKind::try_from(i32::from(signal.kind))
            .unwrap_or_default()
            .into(),
        independent: signal.independent,
        name: signal.name.clone(),
        detail: signal.detail.clone(),
        device: signal.device.clone(),
    }
}

/// The line that a log decides by, where it tells when it was written.
fn timed(log: &StoredLog) -> Option<TimedLogLine> {
    let at = log.decision.written_at?;
    (log.decision.line > 0).then(|| TimedLogLine {
        at: Some(times::to_proto(at)),
        line: Some(log::line_to_proto(log::line(log))),
        log_name: log.key.name.clone(),
    })
}

/// Whose it is: the host that the line or the log names, else that of its rank.
fn host_of(log: &StoredLog, placements: &[Placement], hosts: &[String]) -> String {
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    for told in [&log.decision.host, &log.key.host] {
        let same = |host: &&String| !told.is_empty() && short(host) == short(told);
        if let Some(host) = hosts.iter().find(same) {
            return host.clone();
        }
    }
    let told = log.decision.rank.and_then(|rank| u32::try_from(rank).ok());
    let rank = told.or(log.key.rank);
    let placed = placements
        .iter()
        .find(|p| rank.is_some_and(|rank| p.ranks.contains(&rank)));
    placed.map(|p| p.host.clone()).unwrap_or_default()
}

/// Windows that follow one another and say the same are one stretch.
fn spans<'a>(windows: impl Iterator<Item = &'a SpanWindow>) -> Vec<WireSpan> {
    /// Windows follow one another to the microsecond, as clocks are corrected.
    const SLACK: Duration = Duration::milliseconds(100);
    let mut spans: Vec<(WireSpan, OffsetDateTime)> = Vec::new();
    for window in windows {
        let invalid: Vec<i32> = window.invalid.iter().map(|n| i32::from(*n)).collect();
        let rate_bps = u64::try_from(window.rate_bps).unwrap_or(0);
        let goes_on = |(span, end): &&mut (WireSpan, OffsetDateTime)| {
            span.wire == window.wire
                && span.rate_bps == rate_bps
                && span.bypass == window.bypass
                && span.invalid == invalid
                && window.from_at - *end <= SLACK
        };
        let last = spans.iter_mut().rev().find(|s| s.0.wire == window.wire);
        if let Some((span, end)) = last.filter(goes_on) {
            span.to = Some(times::to_proto(window.to_at));
            span.windows += 1;
            *end = window.to_at;
            continue;
        }
        if spans.len() >= SPANS_MAX {
            break;
        }
        let span = WireSpan {
            wire: window.wire.clone(),
            virtual_function: window.virtual_function.clone(),
            from: Some(times::to_proto(window.from_at)),
            to: Some(times::to_proto(window.to_at)),
            rate_bps,
            bypass: window.bypass,
            invalid,
            windows: 1,
        };
        spans.push((span, window.to_at));
    }
    spans.into_iter().map(|(span, _)| span).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::macros::datetime;

    const T0: OffsetDateTime = datetime!(2026-11-25 12:00 UTC);

    fn window(second: i64, rate_bps: i64) -> SpanWindow {
        SpanWindow {
            host: "gpu-01".into(),
            wire: "w0".into(),
            virtual_function: "vf0".into(),
            from_at: T0 + Duration::seconds(second),
            to_at: T0 + Duration::seconds(second + 5),
            rate_bps,
            bypass: false,
            invalid: Vec::new(),
        }
    }

    #[test]
    fn windows_that_say_the_same_are_one_stretch_until_a_gap() {
        let windows = [
            window(0, 1),
            window(5, 1),
            window(10, 2),
            window(15, 2),
            window(40, 2),
        ];
        let spans = spans(windows.iter());
        let told: Vec<(u64, u32)> = spans.iter().map(|s| (s.rate_bps, s.windows)).collect();
        assert_eq!(told, [(1, 2), (2, 2), (2, 1)]);
        let end = spans[0].to.unwrap().seconds - spans[0].from.unwrap().seconds;
        assert_eq!(end, 10);
    }
}
