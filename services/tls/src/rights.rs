//! Who may call what: one table for every service. A method without a row is served to nobody
//! on a link that tells who calls.
//!
//! What a row cannot say, the service that is called looks at itself: an agent reports for the
//! hosts of its certificate alone, a scheduler changes its own jobs and the wires of their
//! hosts. On a link without TLS (loopback, a Unix socket, or an explicit flag) nobody has a name
//! and everything is allowed.

use crate::identity::{Peer, Role};

/// Who may call a method, beside operators, who may call all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Any agent; the service looks for which host it speaks.
    Agent,
    /// An agent that speaks for the host of the service that is called: the commands of
    /// `tracer-svc` on its own host.
    OwnAgent,
    /// A scheduler; of what changes something the service looks whether it is its own.
    Scheduler,
    /// Who reads.
    Reader,
    /// A collector, on behalf of somebody whose rights it has looked at.
    Collector,
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub struct Right {
    /// `package.Service/Method`.
    pub method: &'static str,
    /// Who may call it, beside operators.
    pub who: &'static [Who],
}

const fn row(method: &'static str, who: &'static [Who]) -> Right {
    Right { method, who }
}

/// Everybody who has a name.
const ALL: &[Who] = &[Who::Agent, Who::Scheduler, Who::Reader, Who::Collector];

/// What tells of failures, jobs and wires: schedulers decide by it.
const READ: &[Who] = &[Who::Reader, Who::Scheduler];

/// The table.
pub const RIGHTS: &[Right] = &[
    // What agents report.
    row("rdmesh.collector.v1.IngestService/Report", &[Who::Agent]),
    row(
        "rdmesh.collector.v1.BaselineService/LeaseWindow",
        &[Who::Agent],
    ),
    row(
        "rdmesh.collector.v1.BaselineService/FinishWindow",
        &[Who::Agent],
    ),
    // Jobs.
    row("rdmesh.collector.v1.JobService/StartJob", &[Who::Scheduler]),
    row("rdmesh.collector.v1.JobService/PlaceJob", &[Who::Scheduler]),
    row("rdmesh.collector.v1.JobService/EndJob", &[Who::Scheduler]),
    row(
        "rdmesh.collector.v1.JobService/SubmitJobLog",
        &[Who::Scheduler],
    ),
    row("rdmesh.collector.v1.JobService/GetJob", READ),
    row("rdmesh.collector.v1.JobService/ListJobs", READ),
    row("rdmesh.collector.v1.JobService/ListJobLogs", READ),
    // Questions.
    row("rdmesh.collector.v1.QueryService/ListFailures", READ),
    row("rdmesh.collector.v1.QueryService/WatchFailures", READ),
    row("rdmesh.collector.v1.QueryService/Diagnose", READ),
    row("rdmesh.collector.v1.QueryService/GetTimeline", READ),
    row("rdmesh.collector.v1.QueryService/AdviseRetry", READ),
    row("rdmesh.collector.v1.QueryService/ListAgents", READ),
    row("rdmesh.collector.v1.QueryService/GetHostProbes", READ),
    row(
        "rdmesh.collector.v1.StatisticsService/GetMisattribution",
        &[Who::Reader],
    ),
    row(
        "rdmesh.collector.v1.StatisticsService/GetCoverage",
        &[Who::Reader],
    ),
    row(
        "rdmesh.collector.v1.StatisticsService/GetSilentFailures",
        &[Who::Reader],
    ),
    row(
        "rdmesh.collector.v1.StatisticsService/GetLostHours",
        &[Who::Reader],
    ),
    row(
        "rdmesh.collector.v1.StatisticsService/GetClasses",
        &[Who::Reader],
    ),
    row(
        "rdmesh.collector.v1.StatisticsService/GetIncidents",
        &[Who::Reader],
    ),
    row(
        "rdmesh.collector.v1.StatisticsService/GetPrecursors",
        &[Who::Reader],
    ),
    // Wires, by the collector.
    row("rdmesh.collector.v1.WireService/ListWires", READ),
    row("rdmesh.collector.v1.WireService/WatchWires", READ),
    row("rdmesh.collector.v1.WireService/CompareWires", READ),
    row("rdmesh.collector.v1.WireService/SetRate", &[Who::Scheduler]),
    row(
        "rdmesh.collector.v1.WireService/ResetWires",
        &[Who::Scheduler],
    ),
    row(
        "rdmesh.collector.v1.WireService/SetBypass",
        &[Who::Scheduler],
    ),
    // Wires, at the shaper.
    row(
        "rdmesh.shaper.v1.ShaperService/ListWires",
        &[Who::Collector, Who::Reader],
    ),
    row(
        "rdmesh.shaper.v1.ShaperService/WatchWires",
        &[Who::Collector, Who::Reader],
    ),
    row(
        "rdmesh.shaper.v1.ShaperService/GetDataPathReport",
        &[Who::Collector, Who::Reader],
    ),
    row("rdmesh.shaper.v1.ShaperService/SetRate", &[Who::Collector]),
    row(
        "rdmesh.shaper.v1.ShaperService/ResetWires",
        &[Who::Collector],
    ),
    row(
        "rdmesh.shaper.v1.ShaperService/SetBypass",
        &[Who::Collector],
    ),
    // A host's tracer.
    row(
        "rdmesh.tracer.v1.TracerService/GetProbeReport",
        &[Who::Collector, Who::Reader, Who::OwnAgent],
    ),
    row(
        "rdmesh.tracer.v1.TracerService/WatchFailures",
        &[Who::Reader, Who::OwnAgent],
    ),
    row(
        "rdmesh.tracer.v1.TracerService/ListBaselines",
        &[Who::Reader, Who::OwnAgent],
    ),
    row(
        "rdmesh.tracer.v1.TracerService/DetachProbes",
        &[Who::Collector, Who::OwnAgent],
    ),
    row(
        "rdmesh.tracer.v1.TracerService/AttachProbes",
        &[Who::Collector, Who::OwnAgent],
    ),
    // A window costs the host's calls some microseconds each.
    row("rdmesh.tracer.v1.TracerService/RecordBaseline", &[]),
    row("rdmesh.tracer.v1.TracerService/DiffBaseline", &[]),
    // What every server serves.
    row("grpc.health.v1.Health/Check", ALL),
    row("grpc.health.v1.Health/List", ALL),
    row("grpc.health.v1.Health/Watch", ALL),
    row(
        "grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        ALL,
    ),
    row(
        "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        ALL,
    ),
];

/// What the table says of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may be made.
    Allowed,
    /// The role may not make it.
    Forbidden,
    /// There is no such method.
    NoSuchMethod,
}

/// Whether `peer` may call the method at `path` (`/package.Service/Method`) of a service on
/// the host `own`.
#[must_use]
pub fn verdict(peer: &Peer, path: &str, own: Option<&str>) -> Verdict {
    let method = path.strip_prefix('/').unwrap_or(path);
    let Some(right) = RIGHTS.iter().find(|right| right.method == method) else {
        return Verdict::NoSuchMethod;
    };
    let is_allowed = peer.identity.role == Role::Operator
        || right.who.iter().any(|who| match who {
            Who::Agent => peer.identity.role == Role::Agent,
            Who::OwnAgent => own.is_some_and(|own| peer.speaks_for(own)),
            Who::Scheduler => peer.identity.role == Role::Scheduler,
            Who::Reader => peer.identity.role == Role::Reader,
            Who::Collector => peer.identity.role == Role::Collector,
        });
    if is_allowed {
        Verdict::Allowed
    } else {
        Verdict::Forbidden
    }
}

/// Who may call a method, for a refusal: `operator, scheduler`.
#[must_use]
pub fn allowed_roles(path: &str) -> String {
    let method = path.strip_prefix('/').unwrap_or(path);
    let right = RIGHTS.iter().find(|right| right.method == method);
    let names = right.map_or(&[][..], |right| right.who).iter();
    let names = names.map(|who| match who {
        Who::Agent => "agent",
        Who::OwnAgent => "the host's own agent",
        Who::Scheduler => "scheduler",
        Who::Reader => "reader",
        Who::Collector => "collector",
    });
    let all: Vec<&str> = std::iter::once("operator").chain(names).collect();
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use prost::Message;
    use prost_types::FileDescriptorSet;

    use super::*;
    use crate::identity::Identity;

    fn peer(role: Role, name: &str) -> Peer {
        let hosts = (role == Role::Agent).then(|| name.to_owned());
        Peer {
            identity: Identity::new("s", role, name).unwrap(),
            hosts: hosts.into_iter().collect(),
            not_after: i64::MAX,
        }
    }

    /// Every method of the contract.
    fn methods() -> BTreeSet<String> {
        let set = FileDescriptorSet::decode(rdmesh_proto::FILE_DESCRIPTOR_SET).unwrap();
        let mut methods = BTreeSet::new();
        for file in &set.file {
            for service in &file.service {
                for method in &service.method {
                    methods.insert(format!(
                        "{}.{}/{}",
                        file.package(),
                        service.name(),
                        method.name()
                    ));
                }
            }
        }
        methods
    }

    #[test]
    fn every_method_of_the_contract_has_one_row_and_every_row_a_method() {
        let methods = methods();
        assert!(methods.len() > 40, "{methods:?}");
        let mut rows = BTreeSet::new();
        for right in RIGHTS {
            assert!(
                rows.insert(right.method.to_owned()),
                "{} twice",
                right.method
            );
        }
        let ours: BTreeSet<String> = rows
            .iter()
            .filter(|row| row.starts_with("rdmesh."))
            .cloned()
            .collect();
        let missing: Vec<_> = methods.difference(&ours).collect();
        assert!(missing.is_empty(), "no row in RIGHTS for {missing:?}");
        let dead: Vec<_> = ours.difference(&methods).collect();
        assert!(dead.is_empty(), "RIGHTS names what is not served: {dead:?}");
    }

    #[test]
    fn an_operator_may_call_everything_that_there_is() {
        for right in RIGHTS {
            let path = format!("/{}", right.method);
            let said = verdict(&peer(Role::Operator, "ada"), &path, None);
            assert_eq!(said, Verdict::Allowed, "{path}");
        }
        for path in ["/rdmesh.collector.v1.JobService/Nothing", "/", "", "/x/y/z"] {
            let said = verdict(&peer(Role::Operator, "ada"), path, None);
            assert_eq!(said, Verdict::NoSuchMethod, "{path}");
        }
    }

    #[test]
    fn who_reads_changes_nothing() {
        for right in RIGHTS {
            let name = right.method.rsplit('/').next().unwrap();
            let reads = [
                "Get", "List", "Watch", "Check", "Compare", "Diagnose", "Advise",
            ]
            .iter()
            .any(|prefix| name.starts_with(prefix))
                || name == "ServerReflectionInfo";
            let said = verdict(&peer(Role::Reader, "ada"), right.method, Some("ada"));
            let expected = if reads {
                Verdict::Allowed
            } else {
                Verdict::Forbidden
            };
            assert_eq!(said, expected, "{}", right.method);
        }
    }

    #[test]
    fn an_agent_commands_the_service_of_its_own_host_alone() {
        let detach = "/rdmesh.tracer.v1.TracerService/DetachProbes";
        let agent = peer(Role::Agent, "gpu-1");
        assert_eq!(verdict(&agent, detach, Some("gpu-1")), Verdict::Allowed);
        assert_eq!(verdict(&agent, detach, Some("gpu-2")), Verdict::Forbidden);
        assert_eq!(verdict(&agent, detach, None), Verdict::Forbidden);
        let scheduler = peer(Role::Scheduler, "gpu-1");
        assert_eq!(
            verdict(&scheduler, detach, Some("gpu-1")),
            Verdict::Forbidden
        );
        assert_eq!(
            allowed_roles(detach),
            "operator, collector, the host's own agent"
        );
    }
}
