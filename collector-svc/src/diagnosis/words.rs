//! Failures, co-signals and counts in words.

use rdmesh_proto::collector::v1::VerdictClass;
use rdmesh_proto::common::v1::Verb;
use rdmesh_proto::tracer::v1::CoSignalKind;
use rdmesh_store::errno;
use time::OffsetDateTime;
use time::macros::format_description;

use crate::diagnosis::{Case, Chain, Signal};
use crate::names;

/// Co-signals that the evidence names.
const SIGNALS_NAMED: usize = 3;

pub(super) fn who(chain: &Chain) -> String {
    match chain.rank {
        Some(rank) => format!("rank {rank} on {}", chain.host),
        None => format!("{} (pid {}) on {}", chain.comm, chain.tgid, chain.host),
    }
}

/// The same where several processes failed so: the number of one is not that of the others.
pub(super) fn first_of_many(chain: &Chain) -> String {
    match chain.rank {
        Some(_) => who(chain),
        None => format!("{} on {}", chain.comm, chain.host),
    }
}

pub(super) fn doing(verb: Verb) -> &'static str {
    match verb {
        Verb::AllocPd => "making a protection domain (alloc_pd)",
        Verb::RegMr => "registering memory (reg_mr)",
        Verb::RegDmabufMr => "registering GPU memory (reg_dmabuf_mr)",
        Verb::CreateCq => "making a completion queue (create_cq)",
        Verb::CreateQp => "making a queue pair (create_qp)",
        Verb::ModifyQp => "connecting a queue pair (modify_qp)",
        Verb::CreateAh => "making an address handle (create_ah)",
        Verb::DevxObjCreate => "making a device object (DEVX)",
        Verb::DevxObjModify => "changing a device object (DEVX)",
        Verb::DevxUmemReg => "registering memory (DEVX)",
        Verb::FirmwareCommand => "giving a command to the firmware",
        Verb::AsyncEvent => "handling an asynchronous event",
        Verb::Unspecified => "calling the kernel",
    }
}

/// One failure in a line: when, who, and the chain from the innermost outward.
pub(crate) fn chain_line(chain: &Chain) -> String {
    let steps: Vec<String> = chain
        .steps
        .iter()
        .map(|step| {
            let layer = names::layer(step.layer);
            format!("{} ({layer}) {}", step.function, errno::name(step.errno))
        })
        .collect();
    let times = match chain.count {
        1 => String::new(),
        many => format!(", {many} times"),
    };
    format!(
        "{} {}: {}{times}",
        moment(chain.first_at),
        who(chain),
        steps.join(" → ")
    )
}

pub(super) fn moment(at: OffsetDateTime) -> String {
    let form =
        format_description!("[year]-[month]-[day] [hour]:[minute]:[second].[subsecond digits:3]Z");
    at.format(&form).unwrap_or_default()
}

/// What the counters say of the deciding function.
pub(super) fn totals(chain: &Chain, case: &Case) -> Option<String> {
    let deepest = chain.deepest();
    let count = case
        .totals
        .iter()
        .filter(|total| total.function == deepest.function && total.errno == deepest.errno)
        .fold(0_u64, |sum, total| sum.saturating_add(total.count));
    (count > 0).then(|| {
        let name = errno::name(deepest.errno);
        format!(
            "{} of the attempt: {} failed {} with {name}",
            counters(case),
            deepest.function,
            counted(count, case)
        )
    })
}

/// Whether a co-signal of that kind tells of a cause of that class.
fn fits(kind: CoSignalKind, class: VerdictClass) -> bool {
    use VerdictClass as V;
    match kind {
        CoSignalKind::Network => matches!(class, V::Network | V::Reachability),
        CoSignalKind::Device => class == V::Device,
        CoSignalKind::Host => class == V::Host,
        CoSignalKind::Process => class == V::Process,
        CoSignalKind::Unspecified => false,
    }
}

/// Independent co-signals before the first failure are another possible cause than one of
/// `class`.
pub(super) fn signals_before(
    case: &Case,
    first_at: OffsetDateTime,
    class: VerdictClass,
) -> Vec<String> {
    case.signals
        .iter()
        .filter(|signal| signal.independent && signal.at <= first_at && !fits(signal.kind, class))
        .take(SIGNALS_NAMED)
        .map(|signal| {
            let before = (first_at - signal.at).as_seconds_f64();
            format!(
                "{before:.3} s before the first failure, {}",
                signal_line(signal)
            )
        })
        .collect()
}

pub(super) fn signal_line(signal: &Signal) -> String {
    let device = match signal.device.as_str() {
        "" => String::new(),
        device => format!(" ({device})"),
    };
    match signal.detail.as_str() {
        "" => format!("on {}{device}: {}", signal.host, signal.name),
        detail => format!("on {}{device}: {}, {detail}", signal.host, signal.name),
    }
}

/// What the counters of a case are called: exact, unless a kernel hid calls from them.
pub(super) fn counters(case: &Case) -> &'static str {
    if case.counts_are_lower_bounds() {
        "counters"
    } else {
        "exact counters"
    }
}

/// How often by the counters.
pub(super) fn counted(count: u64, case: &Case) -> String {
    if case.counts_are_lower_bounds() {
        format!("at least {}", times(count))
    } else {
        times(count)
    }
}

pub(super) fn times(count: u64) -> String {
    match count {
        1 => "once".to_owned(),
        many => format!("{many} times"),
    }
}
