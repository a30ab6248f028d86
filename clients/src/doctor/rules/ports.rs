//! Addresses: those on which this machine's services listen, and collectors.

use super::Check;
use crate::doctor::Topic;
use crate::doctor::facts::{Dial, Dialled, Facts, Outcome, Service};

pub(super) fn examine(facts: &Facts, checks: &mut Vec<Check>) {
    for dial in &facts.dials {
        checks.extend(match &dial.whom {
            Dialled::Own(service) => own(facts, *service, dial),
            Dialled::CollectorOf(service) => Some(collector(dial, Some(*service))),
            Dialled::Collector => Some(collector(dial, None)),
        });
    }
}

fn with_tls(has_tls: bool) -> &'static str {
    match has_tls {
        true => "answers over TLS",
        false => "answers",
    }
}

/// The address of a service of this machine.
fn own(facts: &Facts, service: Service, dial: &Dial) -> Option<Check> {
    let program = service.program();
    let check = format!("address of {program}");
    let address = &dial.address;
    let runs = facts
        .here()
        .any(|here| here.service == service && !here.running.is_empty());
    if !runs {
        // That it does not run is told elsewhere.
        let is_taken = matches!(&dial.outcome, Outcome::Answered(_) | Outcome::Refused(_));
        return is_taken.then(|| {
            Check::problem(
                Topic::Ports,
                check,
                format!("{address} is taken by another program"),
                format!(
                    "`ss -ltnp` (for a Unix socket `ss -lxp`) says by which; end it, or give \
                     {program} another server.listen"
                ),
            )
        });
    }
    let look = format!("`journalctl -u {}` says what it does", service.unit());
    Some(match &dial.outcome {
        Outcome::Answered(answer) if answer.serves => {
            let found = format!("{address} {}", with_tls(answer.has_tls));
            Check::ok(Topic::Ports, check, found)
        }
        Outcome::Answered(_) => {
            let found = format!("{address} answers that it does not serve now");
            Check::warning(Topic::Ports, check, found, look)
        }
        Outcome::Refused(why) => Check::problem(
            Topic::Ports,
            check,
            format!("{address} is there and gives no answer: {why}"),
            format!(
                "its configuration may have changed since it began: `systemctl restart {}`; {look}",
                service.unit()
            ),
        ),
        Outcome::Nobody(why) => Check::problem(
            Topic::Ports,
            check,
            format!("nobody answers at {address}: {why}"),
            format!(
                "its configuration may have changed since it began: `systemctl restart {}`; {look}",
                service.unit()
            ),
        ),
        Outcome::NotTried(why) => Check::unknown(Topic::Ports, check, format!("{address}: {why}")),
    })
}

/// A collector, as `service` dials it, or as who looks does.
fn collector(dial: &Dial, service: Option<Service>) -> Check {
    let address = &dial.address;
    let check = match service {
        Some(service) => format!("collector of {}", service.program()),
        None => "your collector".to_owned(),
    };
    // A tool that reaches nobody is no fault of the machine.
    let failed = |found: String, next: &str| match service {
        Some(_) => Check::problem(Topic::Ports, check.clone(), found, next),
        None => Check::warning(Topic::Ports, check.clone(), found, next),
    };
    match &dial.outcome {
        Outcome::Answered(answer) if answer.serves => {
            let found = format!("{address} {}", with_tls(answer.has_tls));
            Check::ok(Topic::Ports, check, found)
        }
        Outcome::Answered(_) => Check::warning(
            Topic::Ports,
            check,
            format!("{address} answers that it does not serve now"),
            "look at the collector's log: it starts, ends, or waits for its database",
        ),
        Outcome::Refused(why) => failed(
            format!("{address} is there and gives no answer: {why}"),
            "does a collector answer there, of the same site and authority? `rdmesh certs show` \
             says whom a certificate names; the collector's log has the refusal",
        ),
        Outcome::Nobody(why) => failed(
            format!("nobody answers at {address}: {why}"),
            match service {
                Some(_) => {
                    "does the collector run there, and listen for other machines ([server] listen \
                     in its collector.toml)? Is uplink.collector right, and does a firewall \
                     between let the port through?"
                }
                None => "say where it is: --collector HOST:PORT, or collector in cli.toml",
            },
        ),
        Outcome::NotTried(why) => Check::unknown(Topic::Ports, check, format!("{address}: {why}")),
    }
}
