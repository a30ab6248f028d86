//! Failures, as the contract holds them.

use rdmesh_proto::collector::v1::{Failure, ListFailuresRequest};
use rdmesh_proto::tracer::v1::ChainStep;
use rdmesh_store::errno;
use rdmesh_store::ingest::Step;
use rdmesh_store::query::{Failure as Stored, FailureFilter};

use crate::attempt::{self, BadRequest};
use crate::query::{asked, page};
use crate::times;

/// errno values of the kernel end here (MAX_ERRNO in include/linux/err.h).
const ERRNO_MAX: u32 = 4_095;
/// Bytes of the name of a device or function.
const NAME_MAX_BYTES: usize = 256;

/// A failure of the store.
pub(crate) fn to_proto(failure: Stored) -> Failure {
    Failure {
        host: failure.host,
        first_at: Some(times::to_proto(failure.first_at)),
        last_at: Some(times::to_proto(failure.last_at)),
        count: u64::try_from(failure.count).unwrap_or(0),
        verb: i32::from(failure.verb),
        steps: failure.steps.into_iter().map(step_to_proto).collect(),
        driver: failure.driver,
        device: failure.device,
        netdev: failure.netdev,
        pci_address: failure.pci_address,
        tgid: failure.tgid,
        tid: failure.tid,
        comm: failure.comm,
        cgroup_path: failure.cgroup_path,
        rank: failure.rank,
        local_rank: failure.local_rank,
        attempt: failure.attempt.as_ref().map(attempt::to_proto),
        source: i32::from(failure.source),
        expected: failure.expected,
        swallowed: failure.swallowed,
        incomplete: failure.incomplete,
        marks: failure.marks,
        arguments: failure.arguments.as_deref().and_then(asked::to_proto),
        host_first_at: Some(times::to_proto(failure.host_first_at)),
        run_id: failure.cursor.run_id.to_string(),
        sequence: u64::try_from(failure.cursor.seq).unwrap_or(0),
        ordinal: u32::try_from(failure.cursor.ordinal).unwrap_or(0),
    }
}

fn step_to_proto(step: Step) -> ChainStep {
    ChainStep {
        function: step.function,
        module: step.module,
        layer: i32::from(step.layer),
        errno: u32::try_from(step.errno).unwrap_or(0),
        errno_name: errno::name(step.errno),
    }
}

/// What a request asks for.
pub(crate) fn filter(request: &ListFailuresRequest) -> Result<FailureFilter, BadRequest> {
    let some = |field: &str, text: &str| {
        let text = attempt::text(field, text, NAME_MAX_BYTES)?;
        Ok::<_, BadRequest>((!text.is_empty()).then_some(text))
    };
    let job_id = match request.job_id.as_str() {
        "" if request.requeue.is_some() || request.restart.is_some() => {
            let problem = "is empty while requeue or restart is given; name the job as well";
            return Err(BadRequest::new("job_id", problem));
        }
        "" => None,
        job_id => Some(attempt::job_id("job_id", job_id)?),
    };
    if request.errno > ERRNO_MAX {
        let problem = format!("is {}; allowed are 1 to 4095, and 0 for any", request.errno);
        return Err(BadRequest::new("errno", problem));
    }
    let (from, to) = attempt::range(request.time.as_ref())?;
    Ok(FailureFilter {
        job_id,
        requeue: request.requeue,
        restart: request.restart,
        host: some("host", &request.host)?,
        device: some("device", &request.device)?,
        function: some("function", &request.function)?,
        errno: i32::try_from(request.errno).ok().filter(|errno| *errno > 0),
        from,
        to,
        include_expected: request.include_expected,
        oldest_first: false,
        of_snapshots: Vec::new(),
        after: page::read_failures_token(&request.page_token)?,
        limit: page::size(request.page_size, page::ROWS_DEFAULT, page::ROWS_MAX)?,
    })
}
