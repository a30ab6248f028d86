//! The services of this machine: what they are told, and whether they run.

use super::Check;
use crate::doctor::Topic;
use crate::doctor::facts::{Facts, Looked, Process, Service, ServiceFacts, Verdict};

pub(super) fn examine(facts: &Facts, checks: &mut Vec<Check>) {
    if let Some(why) = &facts.unusable {
        checks.push(Check::problem(
            Topic::Services,
            "your own settings",
            why,
            "mend them: what they name was not looked at",
        ));
    }
    match &facts.services {
        Looked::Unknown(why) => checks.push(Check::unknown(Topic::Services, "services", why)),
        Looked::Found(here) if !here.is_empty() => {
            for service in here {
                checks.extend(configuration(service));
                checks.push(running(service));
                checks.extend(preflight(service));
            }
        }
        Looked::Found(_) | Looked::Absent => checks.push(Check::ok(
            Topic::Services,
            "services",
            "none of rdmesh is set up here; the machine is looked at as a tracer would need it",
        )),
    }
}

fn configuration(here: &ServiceFacts) -> Option<Check> {
    let check = format!("configuration of {}", here.service.program());
    if !here.has_file {
        // Flags and variables alone: the process took them.
        return None;
    }
    let file = here.file.display();
    let refused = |why: &str| {
        Check::problem(
            Topic::Services,
            check.clone(),
            why,
            format!(
                "mend {file}, in which each option stands with its limits; `{} --check-config` \
                 says this again",
                here.service.program()
            ),
        )
    };
    Some(match (&here.verdict, &here.settings) {
        (Looked::Found(Verdict::Valid), _) => {
            Check::ok(Topic::Services, check, format!("{file} is valid"))
        }
        (Looked::Found(Verdict::Refused(why)), _) => refused(why),
        (Looked::Unknown(why), _) => Check::unknown(Topic::Services, check, why),
        // Without the program it is known at least whether it can be read.
        (Looked::Absent, Looked::Unknown(why)) => refused(why),
        (Looked::Absent, _) => Check {
            next: Some(format!(
                "install {} here, or add its directory to PATH",
                here.service.program()
            )),
            ..Check::unknown(
                Topic::Services,
                check.clone(),
                format!(
                    "{} is not in PATH, so that nobody checks {file}",
                    here.service.program()
                ),
            )
        },
    })
}

fn running(here: &ServiceFacts) -> Check {
    let check = here.service.program();
    let unit = here.service.unit();
    if here.running.is_empty() {
        let wires = here.settings.found().map(|settings| settings.wires);
        if here.service == Service::Shaper && wires == Some(0) {
            return Check::warning(
                Topic::Services,
                check,
                "does not run: no wire is configured",
                format!(
                    "write [[wires]] into {} (docs/shaper.md), then `systemctl enable --now {unit}`",
                    here.file.display()
                ),
            );
        }
        return Check::problem(
            Topic::Services,
            check,
            format!("does not run, though {} is there", here.file.display()),
            format!("`systemctl enable --now {unit}`; `journalctl -u {unit}` says why it ended"),
        );
    }
    let told = |process: &Process| format!("{}, user {}", super::named(process), process.uid);
    let all: Vec<String> = here.running.iter().map(told).collect();
    Check::ok(Topic::Services, check, super::listed(&all))
}

fn preflight(here: &ServiceFacts) -> Vec<Check> {
    let lines = here.preflight.iter();
    let check = "shaper-svc check";
    let next = "as it says; docs/shaper.md tells more";
    lines
        .map(|line| match line.is_refused {
            true => Check::problem(Topic::Services, check, line.text.as_str(), next),
            false => Check::warning(Topic::Services, check, line.text.as_str(), next),
        })
        .collect()
}
