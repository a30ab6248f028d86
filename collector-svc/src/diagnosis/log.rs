//! What the job's own logs say beside the verdict.
//!
//! A log never decides: it speaks for the verdict, against it, or tells what follows from
//! such a cause. What it files under the network while the kernel shows a failing call
//! that is none of the network's is said as such.

use rdmesh_joblog::Class;
use rdmesh_proto::collector::v1::{LogAgreement, LogCoverage, VerdictClass};
use rdmesh_proto::common::v1::Verb;

use crate::diagnosis::{Case, HostWatch, ProbeState, Verdict};

/// The line of the logs that decides among them; where none decides, the one that tells
/// most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEvidence {
    /// Logs that came.
    pub logs: u64,
    /// What they are evidence of together.
    pub class: Class,
    /// The line; none: no line says anything.
    pub line: Option<LoggedLine>,
}

/// A line of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedLine {
    /// The log in which it stands; may be empty.
    pub log: String,
    /// Its number.
    pub line: u64,
    /// Lines that say the same.
    pub count: u64,
    /// Its class, which is that of the logs only where it decides.
    pub class: Class,
    /// Verb or event.
    pub verb: String,
    /// `create`, …; empty: not known.
    pub kind: String,
    /// The verb of the kernel that it enters by; unspecified: no hook watches it.
    pub kernel_verb: Verb,
    /// Errno.
    pub errno_name: String,
    /// Completion status or event.
    pub status: String,
    /// RDMA device.
    pub device: String,
    /// The other end.
    pub peer: String,
    /// Rank that wrote it.
    pub rank: Option<u32>,
    /// Host that wrote it.
    pub host: String,
    /// The rule that read it.
    pub rule: String,
    /// The text around the message.
    pub text: String,
}

/// What the logs say beside the verdict. The names are those of gRPC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogOpinion {
    /// The logs.
    pub evidence: LogEvidence,
    /// How they stand to the verdict.
    pub agreement: LogAgreement,
    /// Whether a probe could show the failing call that they tell.
    pub coverage: LogCoverage,
    /// They file the attempt under the network, wrongly.
    pub misattributed: bool,
    /// The same for a person.
    pub statement: String,
}

/// The verb of the kernel by which a call of a log enters; unspecified: no hook of the
/// catalogue watches it.
pub fn kernel_verb(verb: &str) -> Verb {
    match verb {
        "ibv_alloc_pd" => Verb::AllocPd,
        // libfabric's providers over verbs register with it.
        "ibv_reg_mr" | "fi_mr_reg" => Verb::RegMr,
        "ibv_reg_dmabuf_mr" => Verb::RegDmabufMr,
        "ibv_create_cq" | "mlx5dv_create_cq" => Verb::CreateCq,
        "ibv_create_qp" | "mlx5dv_create_qp" | "rdma_create_qp" => Verb::CreateQp,
        "ibv_modify_qp" => Verb::ModifyQp,
        "ibv_create_ah" => Verb::CreateAh,
        "mlx5dv_devx_obj_create" => Verb::DevxObjCreate,
        "mlx5dv_devx_obj_modify" => Verb::DevxObjModify,
        "mlx5dv_devx_umem_reg" | "mlx5dv_devx_umem_reg_ex" => Verb::DevxUmemReg,
        _ => Verb::Unspecified,
    }
}

/// Weighs the logs of `case` beside `verdict`.
pub(super) fn weigh_log(verdict: &mut Verdict, case: &Case) {
    let Some(evidence) = &case.log else { return };
    let agreement = agreement(verdict, evidence);
    let misattributed = is_misattributed(verdict, evidence);
    let coverage = coverage(evidence, case);
    let said = said(evidence);
    let statement = statement(verdict, agreement, misattributed, &said);
    match agreement {
        LogAgreement::Agrees | LogAgreement::Consequence | LogAgreement::Alone => {
            verdict.evidence.push(statement.clone());
        }
        LogAgreement::Disagrees => verdict.against.push(statement.clone()),
        LogAgreement::Silent | LogAgreement::Unspecified => {}
    }
    if agreement == LogAgreement::Alone && coverage == LogCoverage::Covered {
        verdict.against.push(format!(
            "a probe for {} was attached there and saw no failing call: it failed before it \
             reached the kernel, or in a process that nobody named",
            evidence.line.as_ref().map_or("", |line| line.verb.as_str())
        ));
    }
    verdict.log = Some(LogOpinion {
        evidence: evidence.clone(),
        agreement,
        coverage,
        misattributed,
        statement,
    });
}

/// Whether a failing call decided.
fn by_kernel(verdict: &Verdict) -> bool {
    !verdict.function.is_empty()
}

/// The log says network, and the kernel shows a failing call in which no network has a
/// part. One that could not reach its peer is the network's after all.
fn is_misattributed(verdict: &Verdict, log: &LogEvidence) -> bool {
    let of_network = matches!(
        verdict.class,
        VerdictClass::Reachability | VerdictClass::Network
    );
    log.class == Class::Network && by_kernel(verdict) && !of_network
}

fn agreement(verdict: &Verdict, log: &LogEvidence) -> LogAgreement {
    use VerdictClass as V;
    if !log.class.is_root() {
        return LogAgreement::Silent;
    }
    let same = |same: bool| {
        if same {
            LogAgreement::Agrees
        } else {
            LogAgreement::Disagrees
        }
    };
    match (log.class, verdict.class) {
        (_, V::CannotTell | V::Unspecified) => LogAgreement::Alone,
        // What waits for others, and what breaks when a peer is gone or slow.
        (Class::Hang, _) => LogAgreement::Consequence,
        (Class::Network, V::InjectedStraggler | V::Process | V::Host | V::Device)
            if !by_kernel(verdict) =>
        {
            LogAgreement::Consequence
        }
        (Class::Syscall, _) if by_kernel(verdict) => call_agreement(verdict, log),
        (Class::Network, class) => same(matches!(class, V::Reachability | V::Network)),
        (Class::Device, class) => same(matches!(class, V::Device | V::Firmware | V::Driver)),
        (Class::Gpu, class) => same(class == V::GpuPeerMemory),
        (Class::Config, class) => same(matches!(
            class,
            V::Configuration | V::MemoryLimits | V::GpuPeerMemory
        )),
        (Class::Oom, class) => same(class == V::Host),
        _ => LogAgreement::Disagrees,
    }
}

/// Both show a failing call: is it the same?
fn call_agreement(verdict: &Verdict, log: &LogEvidence) -> LogAgreement {
    let Some(line) = &log.line else {
        return LogAgreement::Disagrees;
    };
    let serves_any = matches!(verdict.verb, Verb::FirmwareCommand | Verb::Unspecified);
    let nameless = line.verb.is_empty() && line.errno_name == application_errno(verdict);
    if line.kernel_verb == verdict.verb && line.kernel_verb != Verb::Unspecified
        || serves_any
        || nameless
    {
        return LogAgreement::Agrees;
    }
    // The program sees the later call, whose failure follows from the swallowed error.
    if verdict.class == VerdictClass::SwallowedError {
        return LogAgreement::Consequence;
    }
    LogAgreement::Disagrees
}

/// The errno that the application gets: that of the outermost function.
fn application_errno(verdict: &Verdict) -> String {
    let outermost = verdict
        .chain
        .last()
        .map_or(verdict.errno, |step| step.errno);
    rdmesh_store::errno::name(outermost)
}

/// Whether a probe could show the failing call that the logs tell.
fn coverage(log: &LogEvidence, case: &Case) -> LogCoverage {
    let Some(line) = &log.line else {
        return LogCoverage::Unspecified;
    };
    match (log.class, line.class, line.kind.as_str()) {
        (Class::CannotTell, Class::Cleanup, _) | (Class::CannotTell, _, "cleanup") => {
            LogCoverage::Cleanup
        }
        (Class::CannotTell, _, "read_only") => LogCoverage::ReadOnly,
        (Class::Syscall, _, "data") => LogCoverage::DataPath,
        (Class::Syscall, _, _) if line.kernel_verb == Verb::Unspecified => LogCoverage::NoHook,
        (Class::Syscall, _, _) => probed(line, case),
        _ => LogCoverage::Unspecified,
    }
}

/// Whether probes were attached on the host that wrote the line; where it is not known,
/// on all hosts of the attempt.
fn probed(line: &LoggedLine, case: &Case) -> LogCoverage {
    let wrote = |watch: &&HostWatch| is_host(&watch.host, &line.host);
    let mut concerned: Vec<&HostWatch> = case.hosts.iter().filter(wrote).collect();
    if concerned.is_empty() {
        concerned = case.hosts.iter().collect();
    }
    let attached = |watch: &&HostWatch| {
        watch.probes.as_ref().is_some_and(|probes| {
            probes.obstacle.is_empty()
                && probes
                    .probes
                    .iter()
                    .any(|p| p.verb == line.kernel_verb && p.state == ProbeState::Attached)
        })
    };
    if concerned.is_empty() || concerned.iter().any(|watch| watch.probes.is_none()) {
        LogCoverage::NotWatched
    } else if concerned.iter().all(attached) {
        LogCoverage::Covered
    } else {
        LogCoverage::NoProbe
    }
}

/// Whether a log means this host: schedulers and programs may leave the domain out.
fn is_host(host: &str, told: &str) -> bool {
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    !told.is_empty() && (host == told || short(host) == short(told))
}

/// What the deciding line says: `ibv_reg_mr failed with EFAULT (line 7 of …, rank 3)`.
fn said(log: &LogEvidence) -> String {
    let Some(line) = &log.line else {
        return "no line of it tells anything".to_owned();
    };
    let what = match (
        line.verb.as_str(),
        line.errno_name.as_str(),
        line.status.as_str(),
    ) {
        ("", "", "") => line.class.name().to_owned(),
        ("", "", status) => status.to_owned(),
        ("", errno, _) => errno.to_owned(),
        (verb, "", "") => verb.to_owned(),
        (verb, "", status) => format!("{verb}: {status}"),
        (verb, errno, _) => format!("{verb} failed with {errno}"),
    };
    let mut place = vec![match line.log.as_str() {
        "" => format!("line {}", line.line),
        log => format!("line {} of {log}", line.line),
    }];
    place.extend(line.rank.map(|rank| format!("rank {rank}")));
    if !line.host.is_empty() {
        place.push(format!("on {}", line.host));
    }
    if line.count > 1 {
        place.push(format!("{} lines say so", line.count));
    }
    format!("{what} ({}): {:?}", place.join(", "), line.text)
}

fn statement(
    verdict: &Verdict,
    agreement: LogAgreement,
    misattributed: bool,
    said: &str,
) -> String {
    if misattributed {
        return format!(
            "misattribution: the job's own log files this under the network, and the kernel shows \
             {} failing with {}, in which no network has a part; the log: {said}",
            verdict.function, verdict.errno_name
        );
    }
    match agreement {
        LogAgreement::Agrees => format!("the job's own log tells the same: {said}"),
        LogAgreement::Consequence => {
            format!("the job's own log tells what such a cause brings about: {said}")
        }
        LogAgreement::Disagrees => format!("the job's own log tells another cause: {said}"),
        LogAgreement::Alone => format!("the job's own log alone tells a cause: {said}"),
        LogAgreement::Silent | LogAgreement::Unspecified => {
            format!("the job's own log tells no cause: {said}")
        }
    }
}
