//! Reporting intervals of wires, validated.

use prost::Message;
use rdmesh_proto::shaper::v1::{InvalidCause, RepeatedPsn, WireWindow};
use rdmesh_store::ingest::WireWindow as Stored;
use time::OffsetDateTime;

use crate::attempt;
use crate::ingest::columns::{Refusal, Text, long};
use crate::ingest::limits::SHORT_TEXT_MAX_BYTES;
use crate::ingest::marks::{MOVED, Marks};
use crate::ingest::timeline::Timeline;
use crate::times;

/// Repeated PSNs and poll gap buckets of one window: a wire has some thousands of QPs,
/// and there are 64 powers of two.
const ROWS_MAX: usize = 4_096;

/// An interval of a wire.
pub(crate) fn rows(
    window: &WireWindow,
    timeline: Option<&Timeline>,
    marks: &[String],
) -> Result<Stored, Refusal> {
    let (from, to) = ends(window)?;
    let name = |field: &str, text: &str| {
        attempt::text(field, text, SHORT_TEXT_MAX_BYTES).map_err(Refusal::Text)
    };
    if window.wire.is_empty() {
        return Err(Refusal::missing("wire_window.wire"));
    }
    let shaped_host = attempt::host("wire_window.host", &window.host).map_err(Refusal::Text)?;
    check_sizes(window)?;
    let mut marks = Marks::new(marks);
    let (from_at, to_at) = match timeline {
        None => (from, to),
        Some(timeline) => {
            let (from, to) = (timeline.place_wall(from), timeline.place_wall(to));
            if from.moved || to.moved {
                marks.add(MOVED);
            }
            (from.at, to.at.max(from.at))
        }
    };
    let repeated = |of: fn(&RepeatedPsn) -> u64| {
        let sums = window.repeated_psns.iter().map(of);
        sums.fold(0, u64::saturating_add)
    };
    let long = |field: &str, value| long(&format!("wire_window.{field}"), value);
    let mut shown = |what: &str, text: &str| {
        let text = Text::new(text.as_bytes());
        marks.text(what, &text);
        text.text
    };
    let engine_version = shown("engine version", &window.engine_version);
    let configuration_hash = shown("configuration hash", &window.configuration_hash);
    let invalid = window
        .invalid
        .iter()
        .map(|cause| marks.known::<InvalidCause>("cause", *cause))
        .collect();
    Ok(Stored {
        from_at,
        to_at,
        wire: name("wire_window.wire", &window.wire)?,
        shaped_host,
        virtual_function: name("wire_window.virtual_function", &window.virtual_function)?,
        rate_bps: long("rate_bps", window.rate_bps)?,
        configured_rate_bps: long("configured_rate_bps", window.configured_rate_bps)?,
        expires_at: times::optional("wire_window.expires_at", window.expires_at.as_ref())
            .map_err(Refusal::Time)?,
        policy_generation: long("policy_generation", window.policy_generation)?,
        sent_frames: long("sent_frames", window.sent_frames)?,
        sent_bits: long("sent_bits", window.sent_bits)?,
        queue_frames_now: long("queue_frames_now", window.queue_frames_now)?,
        queue_frames_p50: long("queue_frames_p50", window.queue_frames_p50)?,
        queue_frames_p99: long("queue_frames_p99", window.queue_frames_p99)?,
        queue_frames_max: long("queue_frames_max", window.queue_frames_max)?,
        waited_ns_p50: long("waited_ns_p50", window.waited_ns_p50)?,
        waited_ns_p99: long("waited_ns_p99", window.waited_ns_p99)?,
        waited_ns_max: long("waited_ns_max", window.waited_ns_max)?,
        catch_up_used_ps: long("catch_up_used_ps", window.catch_up_used_ps)?,
        lost_ps: long("lost_ps", window.lost_ps)?,
        ce_marks: long("ce_marks", window.ce_marks)?,
        imissed: long("imissed", window.imissed)?,
        rx_nombuf: long("rx_nombuf", window.rx_nombuf)?,
        tx_not_accepted: long("tx_not_accepted", window.tx_not_accepted)?,
        full_polls: long("full_polls", window.full_polls)?,
        longest_poll_gap_ns: long("longest_poll_gap_ns", window.longest_poll_gap_ns)?,
        poll_gap_buckets: window
            .poll_gap_buckets
            .iter()
            .map(|count| long("poll_gap_buckets", *count))
            .collect::<Result<_, _>>()?,
        repeated_frames: long("repeated_psns.frames", repeated(|line| line.frames))?,
        repeated_bytes: long("repeated_psns.bytes", repeated(|line| line.bytes))?,
        windows_given_up: long("windows_given_up", window.windows_given_up)?,
        invalid,
        bypass: window.bypass,
        engine_version,
        configuration_hash,
        marks: marks.into_vec(),
        body: window.encode_to_vec(),
    })
}

/// Begin and end, clock of the shaper.
fn ends(window: &WireWindow) -> Result<(OffsetDateTime, OffsetDateTime), Refusal> {
    let time = |field, value: Option<&prost_types::Timestamp>| {
        let value = value.ok_or_else(|| Refusal::missing(field))?;
        times::from_proto(field, value).map_err(Refusal::Time)
    };
    let from = time("wire_window.from", window.from.as_ref())?;
    let to = time("wire_window.to", window.to.as_ref())?;
    if from > to {
        return Err(Refusal::value(
            "wire_window.from",
            from,
            "at most wire_window.to",
        ));
    }
    Ok((from, to))
}

fn check_sizes(window: &WireWindow) -> Result<(), Refusal> {
    for (field, found) in [
        ("wire_window.repeated_psns", window.repeated_psns.len()),
        (
            "wire_window.poll_gap_buckets",
            window.poll_gap_buckets.len(),
        ),
        ("wire_window.invalid", window.invalid.len()),
    ] {
        if found > ROWS_MAX {
            return Err(Refusal::TooMany {
                field: field.to_owned(),
                found,
                most: ROWS_MAX,
            });
        }
    }
    Ok(())
}
