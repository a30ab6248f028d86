//! What a caller may do beyond what its role says: an agent speaks for its own hosts, a
//! scheduler for its own jobs and the wires that they use. Callers without a certificate, on a
//! link without TLS, may do everything.

use rdmesh_services::server::Caller;
use rdmesh_services::tls::Role;
use rdmesh_store::Store;
use rdmesh_store::jobs::AttemptKey;
use tonic::Status;

use crate::{attempt, status};

/// The name of the scheduler that calls, if one does.
fn scheduler(caller: &Caller) -> Option<&str> {
    let peer = caller.peer()?;
    (peer.identity.role == Role::Scheduler).then_some(peer.identity.name.as_str())
}

/// The scheduler as whose job a start is kept: a scheduler's own name, whatever it leaves out.
///
/// # Errors
/// `PERMISSION_DENIED` when it gives another one's name.
pub(crate) fn as_scheduler(caller: &Caller, told: String) -> Result<String, Status> {
    match scheduler(caller) {
        Some(own) if told.is_empty() || told == own => Ok(own.to_owned()),
        Some(own) => Err(Status::permission_denied(format!(
            "scheduler/{own} starts jobs of the scheduler {own:?} alone, and not of {told:?}; \
             leave `scheduler` out, or use that one's certificate"
        ))),
        None => Ok(told),
    }
}

/// Refuses a scheduler that changes another one's job. A job that nobody has started yet is
/// anybody's: what is told of it may come before its start.
///
/// # Errors
/// `PERMISSION_DENIED`, and what the store says.
pub(crate) async fn changes_job(
    caller: &Caller,
    store: &Store,
    key: &AttemptKey,
) -> Result<(), Status> {
    let Some(own) = scheduler(caller) else {
        return Ok(());
    };
    let known = store.attempt(key).await;
    let known = known.map_err(|e| status::from_store(&e))?;
    match known {
        Some(known) if !known.scheduler.is_empty() && known.scheduler != own => {
            Err(Status::permission_denied(format!(
                "attempt {} is a job of another scheduler than scheduler/{own}",
                attempt::written(key)
            )))
        }
        _ => Ok(()),
    }
}

/// Refuses a scheduler that changes a wire which others use, or nobody.
///
/// # Errors
/// `PERMISSION_DENIED`, and what the store says.
pub(crate) async fn changes_wire(
    caller: &Caller,
    store: &Store,
    wire: &str,
    users: &[AttemptKey],
) -> Result<(), Status> {
    let Some(own) = scheduler(caller) else {
        return Ok(());
    };
    for key in users {
        let known = store.attempt(key).await;
        let known = known.map_err(|e| status::from_store(&e))?;
        if known.is_none_or(|known| known.scheduler != own) {
            return Err(Status::permission_denied(format!(
                "wire {wire} is used by attempt {}, which is no job of scheduler/{own}",
                attempt::written(key)
            )));
        }
    }
    if users.is_empty() {
        return Err(Status::permission_denied(format!(
            "no running job of scheduler/{own} uses wire {wire}; a scheduler changes the wires \
             of its own jobs' hosts"
        )));
    }
    Ok(())
}

/// Refuses a scheduler a change of every wire.
///
/// # Errors
/// `PERMISSION_DENIED`.
pub(crate) fn changes_every_wire(caller: &Caller) -> Result<(), Status> {
    match scheduler(caller) {
        None => Ok(()),
        Some(own) => Err(Status::permission_denied(format!(
            "scheduler/{own} may not change every wire of the fleet; name those of its jobs"
        ))),
    }
}
