//! Reporting intervals of wires, validated.

use prost::Message;
use rdmesh_proto::shaper::v1::WireWindow;
use rdmesh_store::ingest::WireWindow as Stored;

use crate::attempt;
use crate::ingest::columns::{Refusal, long, shown};
use crate::ingest::limits::SHORT_TEXT_MAX_BYTES;
use crate::ingest::snapshot::{MOVED_MARK, Timeline};
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
    let time = |field, value: Option<&prost_types::Timestamp>| {
        let value = value.ok_or_else(|| Refusal::missing(field))?;
        times::from_proto(field, value).map_err(|bad| Refusal::value(field, bad, "a time"))
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
    let name = |field: &str, text: &str| {
        attempt::text(field, text, SHORT_TEXT_MAX_BYTES)
            .map_err(|bad| Refusal::value(field, bad, "a short text"))
    };
    if window.wire.is_empty() {
        return Err(Refusal::missing("wire_window.wire"));
    }
    let shaped_host = attempt::host("wire_window.host", &window.host)
        .map_err(|bad| Refusal::value("wire_window.host", bad, "the name of the shaped host"))?;
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
    let mut marks = marks.to_vec();
    let (from_at, to_at) = match timeline {
        None => (from, to),
        Some(timeline) => {
            let (from, to) = (timeline.place_wall(from), timeline.place_wall(to));
            if from.moved || to.moved {
                marks.push(MOVED_MARK.to_owned());
            }
            (from.at, to.at.max(from.at))
        }
    };
    Ok(Stored {
        from_at,
        to_at,
        wire: name("wire_window.wire", &window.wire)?,
        shaped_host,
        virtual_function: name("wire_window.virtual_function", &window.virtual_function)?,
        rate_bps: long("wire_window.rate_bps", window.rate_bps)?,
        sent_bits: long("wire_window.sent_bits", window.sent_bits)?,
        invalid: window
            .invalid
            .iter()
            .map(|cause| i16::try_from(*cause).unwrap_or(0))
            .collect(),
        bypass: window.bypass,
        engine_version: shown(&window.engine_version),
        configuration_hash: shown(&window.configuration_hash),
        marks,
        body: window.encode_to_vec(),
    })
}
