//! Every wire: what its last window told, and what its shaper says now.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use rdmesh_proto::collector::v1::FleetWire;
use rdmesh_proto::common::v1::{AttemptId, TimeRange};
use rdmesh_proto::shaper::v1::{ListWiresRequest as AskShaper, Wire, WireWindow};
use rdmesh_store::query::{FleetWire as Stored, Shaper};
use time::OffsetDateTime;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::Dialer;
use crate::times;

/// Shapers that are asked at the same time: a thousand are asked within seconds, and a
/// few that do not answer hold up no others.
const ASKED_AT_ONCE: usize = 64;

/// How long a list waits for one shaper: a person waits for the list, and what is stored
/// is a few seconds old at the most.
const ASK_WITHIN: Duration = Duration::from_secs(2);

/// Times of a window after which its wire is silent: three of those that did not come.
const SILENT_AFTER_WINDOWS: i32 = 3;

/// The last window of a run can be a short one; the interval unless configured otherwise,
/// and a second on the way.
const SILENT_AFTER_LEAST: time::Duration = time::Duration::seconds(6);

/// A gap that ended longer ago is history, which `rdmesh.wire_gaps` keeps.
const GAP_SHOWN_FOR: Duration = Duration::from_secs(3_600);

/// What shapers say of their wires now, or why not, by the shaper's host.
pub(super) type Answers = BTreeMap<String, Result<Vec<Wire>, String>>;

/// Asks shapers for their wires.
pub(super) async fn ask_all(dialer: &Dialer, shapers: Vec<Shaper>) -> Answers {
    let turns = Arc::new(Semaphore::new(ASKED_AT_ONCE));
    let mut asking = JoinSet::new();
    for shaper in shapers {
        let (turns, dialer) = (Arc::clone(&turns), dialer.clone());
        asking.spawn(async move {
            let _turn = turns.acquire_owned().await;
            let answer = tokio::time::timeout(ASK_WITHIN, wires_of(&dialer, &shaper)).await;
            let answer = answer.unwrap_or_else(|_| {
                Err(format!(
                    "the shaper of {} does not answer at {} (nothing within {ASK_WITHIN:?})",
                    shaper.host, shaper.address
                ))
            });
            (shaper.host, answer)
        });
    }
    asking.join_all().await.into_iter().collect()
}

async fn wires_of(dialer: &Dialer, shaper: &Shaper) -> Result<Vec<Wire>, String> {
    let asked = dialer.dial(shaper).await.map_err(|away| away.to_string())?;
    let mut client = asked.client.clone();
    let answer = asked.answer(client.list_wires(AskShaper {})).await;
    Ok(answer.map_err(|status| status.message().to_owned())?.wires)
}

/// A wire of the list. `answer` is what its shaper said, if it was asked.
pub(super) fn row(
    stored: Stored,
    shaper: Option<&Shaper>,
    answer: Option<&Result<Vec<Wire>, String>>,
    now: OffsetDateTime,
) -> FleetWire {
    let mut marks = stored.marks.clone();
    let window = placed(&stored.body, stored.at, stored.to_at);
    let told = Wire {
        name: stored.wire.clone(),
        host: stored.shaped_host.clone(),
        virtual_function: stored.virtual_function.clone(),
        rate_bps: window.rate_bps,
        configured_rate_bps: window.configured_rate_bps,
        expires_at: window.expires_at,
        bypass: window.bypass,
        policy_generation: window.policy_generation,
        bypass_in_hardware: false,
    };
    let live = match answer {
        None => None,
        Some(Ok(wires)) => {
            let wire = wires.iter().find(|wire| wire.name == stored.wire).cloned();
            if wire.is_none() {
                marks.push("its shaper no longer has it".to_owned());
            }
            wire
        }
        Some(Err(why)) => {
            marks.push(why.clone());
            None
        }
    };
    let age = (now - stored.to_at).max(time::Duration::ZERO);
    if age > ((stored.to_at - stored.at) * SILENT_AFTER_WINDOWS).max(SILENT_AFTER_LEAST) {
        marks.push(format!("no window for {} s", age.whole_seconds()));
    }
    let last_gap = stored
        .gap_from_at
        .zip(stored.gap_to_at)
        .filter(|(_, to)| now - *to <= GAP_SHOWN_FOR);
    // A valid window after it: the wire is as it should be, and `last_gap` remembers.
    if let Some((from, to)) = last_gap.filter(|_| !window.invalid.is_empty()) {
        marks.push(format!(
            "a gap of {:.1} s that ended {} s ago",
            (to - from).as_seconds_f64(),
            (now - to).whole_seconds()
        ));
    }
    let windows_given_up = u64::try_from(stored.windows_given_up).unwrap_or(0);
    if windows_given_up > 0 {
        marks.push(format!(
            "{windows_given_up} windows of its shaper were given up while no collector took them"
        ));
    }
    FleetWire {
        live: live.is_some(),
        wire: Some(live.unwrap_or(told)),
        shaper_address: shaper.map(|s| s.address.clone()).unwrap_or_default(),
        last_window: Some(window),
        last_window_age: prost_types::Duration::try_from(age.unsigned_abs()).ok(),
        attempts: attempts(&stored),
        marks,
        last_gap: last_gap.map(|(from, to)| TimeRange {
            from: Some(times::to_proto(from)),
            to: Some(times::to_proto(to)),
        }),
        windows_given_up,
        shaper_host: stored.host,
    }
}

fn attempts(stored: &Stored) -> Vec<AttemptId> {
    let number = |value: i64| u32::try_from(value).unwrap_or(0);
    let rest = stored.requeues.iter().zip(&stored.restarts);
    let ids = stored.job_ids.iter().zip(rest);
    ids.map(|(job_id, (requeue, restart))| AttemptId {
        job_id: job_id.clone(),
        requeue: number(*requeue),
        restart: number(*restart),
    })
    .collect()
}

/// A stored window with the collector's times. It was validated when it came.
pub(super) fn placed(body: &[u8], from: OffsetDateTime, to: OffsetDateTime) -> WireWindow {
    let mut window = WireWindow::decode(body).unwrap_or_default();
    window.from = Some(times::to_proto(from));
    window.to = Some(times::to_proto(to));
    window
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdmesh_proto::shaper::v1::InvalidCause;
    use time::macros::datetime;

    const NOW: OffsetDateTime = datetime!(2026-11-25 12:00 UTC);

    fn stored() -> Stored {
        let window = WireWindow {
            wire: "w0".into(),
            rate_bps: 10,
            configured_rate_bps: 25,
            ..WireWindow::default()
        };
        Stored {
            host: "dpu-1".into(),
            wire: "w0".into(),
            shaped_host: "gpu-1".into(),
            virtual_function: "vf0".into(),
            at: NOW - Duration::from_secs(7),
            to_at: NOW - Duration::from_secs(2),
            marks: vec![],
            windows_given_up: 0,
            gap_from_at: None,
            gap_to_at: None,
            body: window.encode_to_vec(),
            job_ids: vec!["7".into()],
            requeues: vec![1],
            restarts: vec![0],
        }
    }

    #[test]
    fn without_an_answer_the_last_window_tells() {
        let row = row(stored(), None, None, NOW);
        let wire = row.wire.unwrap();
        assert_eq!((wire.rate_bps, wire.configured_rate_bps), (10, 25));
        assert_eq!((row.live, row.marks.len()), (false, 0));
        assert_eq!(row.last_window_age.unwrap().seconds, 2);
        assert_eq!(row.attempts[0].requeue, 1);
    }

    #[test]
    fn the_shaper_knows_better_and_what_is_odd_is_marked() {
        let live = Wire {
            name: "w0".into(),
            rate_bps: 5,
            ..Wire::default()
        };
        let answered = row(stored(), None, Some(&Ok(vec![live])), NOW);
        assert!(answered.live && answered.wire.unwrap().rate_bps == 5);
        let gone = row(stored(), None, Some(&Ok(vec![])), NOW);
        assert_eq!(gone.marks, ["its shaper no longer has it"]);
        let odd = Stored {
            to_at: NOW - Duration::from_secs(60),
            at: NOW - Duration::from_secs(65),
            gap_from_at: Some(NOW - Duration::from_secs(200)),
            gap_to_at: Some(NOW - Duration::from_secs(100)),
            windows_given_up: 3,
            ..stored()
        };
        let answer = Err("the shaper does not answer".to_owned());
        let marks = row(odd.clone(), None, Some(&answer), NOW).marks;
        assert_eq!(
            marks,
            [
                "the shaper does not answer",
                "no window for 60 s",
                "3 windows of its shaper were given up while no collector took them"
            ],
            "a valid window came after the gap"
        );
        let invalid = WireWindow {
            invalid: vec![InvalidCause::PollGap.into()],
            ..WireWindow::default()
        };
        let after_a_gap = Stored {
            body: invalid.encode_to_vec(),
            ..odd
        };
        let row = row(after_a_gap, None, None, NOW);
        assert_eq!(row.marks[1], "a gap of 100.0 s that ended 100 s ago");
        assert!(row.last_gap.is_some());
    }
}
