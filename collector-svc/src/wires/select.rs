//! Which wire is meant, and who shapes it.

use rdmesh_proto::collector::v1::WireSelector;
use rdmesh_store::jobs::AttemptKey;
use rdmesh_store::query::{FleetWire, Shaper, WireFilter};
use rdmesh_store::{Store, StoreError};
use time::OffsetDateTime;
use tonic::Status;

use crate::attempt::{self, BadRequest};
use crate::status;

/// Bytes of a wire's or a function's name: those of the shaper, doubled.
const NAME_MAX_BYTES: usize = 128;

/// Wires that a refusal names.
const NAMED: u32 = 8;

/// A wire and its shaper.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) shaper: Shaper,
    pub(super) wire: String,
    /// Attempts that use it now.
    pub(super) users: Vec<AttemptKey>,
}

/// Checks the fields of a selector.
pub(super) fn filter(selector: Option<&WireSelector>) -> Result<WireFilter, BadRequest> {
    let none = WireSelector::default();
    let selector = selector.unwrap_or(&none);
    if *selector == none {
        return Err(BadRequest::new(
            "wire",
            "names no wire; give the shaper's host and the wire's name, or the shaped host and \
             its virtual function",
        ));
    }
    let name = |field: &str, text: &str| attempt::text(field, text, NAME_MAX_BYTES);
    Ok(WireFilter {
        host: String::new(),
        shaper_host: host("wire.shaper_host", &selector.shaper_host)?,
        wire: name("wire.wire", &selector.wire)?,
        shaped_host: host("wire.shaped_host", &selector.shaped_host)?,
        virtual_function: name("wire.virtual_function", &selector.virtual_function)?,
    })
}

/// A host, or nothing.
pub(super) fn host(field: &str, text: &str) -> Result<String, BadRequest> {
    if text.is_empty() {
        return Ok(String::new());
    }
    attempt::host(field, text)
}

/// A name, or nothing.
pub(super) fn name(field: &str, text: &str) -> Result<String, BadRequest> {
    attempt::text(field, text, NAME_MAX_BYTES)
}

/// The one wire that is meant.
///
/// # Errors
/// `NOT_FOUND` when none fits, `FAILED_PRECONDITION` when several do: both name wires.
pub(super) async fn target(
    store: &Store,
    selector: Option<&WireSelector>,
    now: OffsetDateTime,
) -> Result<Target, Status> {
    let filter = filter(selector).map_err(|e| status::from_bad_request(&e))?;
    let failed = |error: StoreError| status::from_store(&error);
    let found = store.wires(&filter, now, 0, NAMED + 1).await;
    let found = found.map_err(failed)?;
    let shapers = store.shapers().await.map_err(failed)?;
    let shaper_of = |host: &str| shapers.iter().find(|shaper| shaper.host == host).cloned();
    match found.as_slice() {
        [wire] => {
            let shaper = shaper_of(&wire.host).ok_or_else(|| {
                Status::failed_precondition(format!(
                    "wire {} of {} has windows, and its shaper is not known any more: does \
                     shaper-svc still run there?",
                    wire.wire, wire.host
                ))
            })?;
            Ok(Target {
                shaper,
                wire: wire.wire.clone(),
                users: users(wire),
            })
        }
        [] => {
            // A shaper that has just started has not sent a window yet; it knows its wires.
            if let Some(shaper) = shaper_of(&filter.shaper_host)
                && !filter.wire.is_empty()
                && filter.shaped_host.is_empty()
                && filter.virtual_function.is_empty()
            {
                return Ok(Target {
                    shaper,
                    wire: filter.wire,
                    users: Vec::new(),
                });
            }
            Err(unknown(store, &filter, &shapers, now).await)
        }
        several => {
            let named: Vec<String> = several
                .iter()
                .take(NAMED as usize)
                .map(|wire| {
                    format!(
                        "{}/{} ({} of {})",
                        wire.host, wire.wire, wire.virtual_function, wire.shaped_host
                    )
                })
                .collect();
            let more = if several.len() > NAMED as usize {
                " and more"
            } else {
                ""
            };
            Err(Status::failed_precondition(format!(
                "several wires are {}: {}{more}; name one as SHAPER/WIRE",
                described(&filter),
                named.join(", ")
            )))
        }
    }
}

fn users(wire: &FleetWire) -> Vec<AttemptKey> {
    let number = |value: &i64| u32::try_from(*value).unwrap_or(0);
    let rest = wire.requeues.iter().zip(&wire.restarts);
    let ids = wire.job_ids.iter().zip(rest);
    ids.map(|(job_id, (requeue, restart))| AttemptKey {
        job_id: job_id.clone(),
        requeue: number(requeue),
        restart: number(restart),
    })
    .collect()
}

async fn unknown(
    store: &Store,
    asked: &WireFilter,
    shapers: &[Shaper],
    now: OffsetDateTime,
) -> Status {
    let host = [&asked.shaper_host, &asked.shaped_host]
        .into_iter()
        .find(|host| !host.is_empty());
    let hint = match host {
        Some(host) => {
            let of_host = WireFilter {
                host: host.clone(),
                ..WireFilter::default()
            };
            match store.wires(&of_host, now, 0, NAMED).await {
                Err(error) => return status::from_store(&error),
                Ok(wires) if !wires.is_empty() => {
                    let names: Vec<_> = wires
                        .iter()
                        .map(|wire| format!("{}/{}", wire.host, wire.wire))
                        .collect();
                    format!("those of {host} are: {}", names.join(", "))
                }
                Ok(_) if shapers.iter().any(|shaper| shaper.host == *host) => {
                    format!("the shaper of {host} has sent no window yet")
                }
                Ok(_) => format!("no shaper of {host} has ever reported"),
            }
        }
        None if shapers.is_empty() => "no shaper has ever reported".to_owned(),
        None => "its shaper may be away".to_owned(),
    };
    Status::not_found(format!(
        "no wire is {}; {hint}; `rdmesh wire list` shows all",
        described(asked)
    ))
}

/// `wire w0 of shaper gpu-01`, for sentences.
fn described(filter: &WireFilter) -> String {
    let parts = [
        (&filter.wire, "named"),
        (&filter.virtual_function, "for function"),
        (&filter.shaper_host, "of shaper"),
        (&filter.shaped_host, "of shaped host"),
    ];
    let parts: Vec<String> = parts
        .into_iter()
        .filter(|(text, _)| !text.is_empty())
        .map(|(text, word)| format!("{word} {text}"))
        .collect();
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_names_something_that_can_be_a_name() {
        assert!(filter(None).unwrap_err().to_string().contains("no wire"));
        assert!(filter(Some(&WireSelector::default())).is_err());
        let of = |selector: WireSelector| filter(Some(&selector));
        let bad = WireSelector {
            shaper_host: "a b".into(),
            ..WireSelector::default()
        };
        assert!(
            of(bad)
                .unwrap_err()
                .to_string()
                .starts_with("wire.shaper_host")
        );
        let long = WireSelector {
            wire: "w".repeat(200),
            ..WireSelector::default()
        };
        assert!(of(long).unwrap_err().to_string().starts_with("wire.wire"));
        let good = WireSelector {
            shaped_host: "gpu-01".into(),
            virtual_function: "vf0".into(),
            ..WireSelector::default()
        };
        assert_eq!(
            described(&of(good).unwrap()),
            "for function vf0 of shaped host gpu-01"
        );
    }
}
