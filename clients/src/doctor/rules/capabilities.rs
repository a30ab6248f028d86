//! What processes may do. The needs are those of the units (docs/install.md, "Capabilities").

use super::Check;
use crate::doctor::Topic;
use crate::doctor::facts::{Facts, Looked, Process, Service};

/// A capability and what is missing without it.
struct Need {
    name: &'static str,
    /// Its number in linux/capability.h.
    bit: u32,
    /// Whether the service does not work without it.
    is_vital: bool,
    without: &'static str,
}

const TRACER: [Need; 3] = [
    Need {
        name: "CAP_SYS_ADMIN",
        bit: 21,
        is_vital: true,
        without: "no probe can be attached (exit code 77)",
    },
    Need {
        name: "CAP_SYSLOG",
        bit: 34,
        is_vital: false,
        without: "co-signals of the kernel's log are missing",
    },
    Need {
        name: "CAP_SYS_PTRACE",
        bit: 19,
        is_vital: false,
        without: "some failures name no job",
    },
];

const SHAPER: [Need; 4] = [
    Need {
        name: "CAP_NET_ADMIN",
        bit: 12,
        is_vital: true,
        without: "ports do not start",
    },
    Need {
        name: "CAP_NET_RAW",
        bit: 13,
        is_vital: true,
        without: "ports do not start",
    },
    Need {
        name: "CAP_IPC_LOCK",
        bit: 14,
        is_vital: true,
        without: "the card's driver refuses memory",
    },
    Need {
        name: "CAP_SYS_RAWIO",
        bit: 17,
        is_vital: true,
        without: "the card's driver does not start",
    },
];

fn needs(service: Service) -> &'static [Need] {
    match service {
        Service::Tracer => &TRACER,
        Service::Shaper => &SHAPER,
        Service::Collector => &[],
    }
}

pub(super) fn examine(facts: &Facts, checks: &mut Vec<Check>) {
    for service in [Service::Tracer, Service::Shaper] {
        let running = facts.here().filter(|here| here.service == service);
        let mut running = running.flat_map(|here| &here.running).peekable();
        let is_wanted = facts.has(service) || (service == Service::Tracer && facts.traces());
        if running.peek().is_none() {
            if is_wanted {
                checks.push(of_shell(service, &facts.shell));
            }
            continue;
        }
        checks.extend(running.map(|process| of_process(service, process)));
    }
}

fn missing(service: Service, has: u64) -> Vec<&'static Need> {
    let needs = needs(service).iter();
    needs.filter(|need| has >> need.bit & 1 == 0).collect()
}

fn of_process(service: Service, process: &Process) -> Check {
    let check = format!("capabilities of {}", service.program());
    let Some(effective) = process.effective else {
        let why = format!("/proc/{}/status does not tell them", process.pid);
        return Check::unknown(Topic::Capabilities, check, why);
    };
    let lacks = missing(service, effective);
    let who = super::named(process);
    if lacks.is_empty() {
        let found = format!("{who} has all that it needs");
        return Check::ok(Topic::Capabilities, check, found);
    }
    let told: Vec<String> = lacks
        .iter()
        .map(|need| format!("{} ({})", need.name, need.without))
        .collect();
    let found = format!("{who} lacks {}", super::listed(&told));
    let next = format!(
        "run it by its unit, {}, which gives them; in a unit of your own AmbientCapabilities and \
         CapabilityBoundingSet name them",
        service.unit()
    );
    match lacks.iter().any(|need| need.is_vital) {
        true => Check::problem(Topic::Capabilities, check, found, next),
        false => Check::warning(Topic::Capabilities, check, found, next),
    }
}

/// Where the service does not run: whether it could, started from here or by its unit.
fn of_shell(service: Service, shell: &Looked<Process>) -> Check {
    let program = service.program();
    let check = format!("capabilities for {program}");
    let process = match shell {
        Looked::Found(process) => process,
        Looked::Absent => {
            return Check::unknown(Topic::Capabilities, check, "there is no /proc/self");
        }
        Looked::Unknown(why) => return Check::unknown(Topic::Capabilities, check, why),
    };
    let (Some(effective), Some(bounding)) = (process.effective, process.bounding) else {
        let why = "/proc/self/status does not tell them";
        return Check::unknown(Topic::Capabilities, check, why);
    };
    let never: Vec<String> = missing(service, bounding)
        .iter()
        .map(|need| need.name.to_owned())
        .collect();
    if !never.is_empty() {
        let found = format!(
            "nothing that is started from here can have {}: it is a container, or confined",
            super::listed(&never)
        );
        let next = format!(
            "run `rdmesh doctor` and {program} on the host itself; a container of {program} needs \
             these capabilities (packaging/kubernetes/tracer.yaml)"
        );
        return Check::warning(Topic::Capabilities, check, found, next);
    }
    let found = match missing(service, effective).is_empty() {
        true => "this shell has all that it needs".to_owned(),
        false => format!(
            "this shell, of user {}, has not all that it needs; its unit {} gives them",
            process.uid,
            service.unit()
        ),
    };
    Check::ok(Topic::Capabilities, check, found)
}
