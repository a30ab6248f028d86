//! Certificates: whether their files can be used, by whom, and how long.

use rdmesh_tls::inspect::Inspection;
use rdmesh_tls::{Peer, Role};

use super::{Check, DAY};
use crate::doctor::Topic;
use crate::doctor::facts::{
    Certificate, Facts, KeyFile, Looked, Owner, Service, ServiceFacts, Settings,
};
use crate::links::is_local;

/// From when on the end of a certificate is a warning: services warn so long before too.
const WARN_BEFORE: i64 = 30 * DAY;

/// A certificate for less than a few months is renewed by a program: then the last third of its
/// time.
const WARN_BEFORE_SHARE: i64 = 3;

/// Bits of a mode that let others than owner and group at a file.
const OTHERS: u32 = 0o007;

/// The right to read.
const READ: u32 = 4;

/// What makes certificates.
const ISSUE: &str = "`rdmesh certs issue` makes certificates (docs/mesh.md)";

pub(super) fn examine(facts: &Facts, checks: &mut Vec<Check>) {
    for here in facts.here() {
        let check = format!("certificate of {}", here.service.program());
        match (&here.certificate, here.settings.found()) {
            (Some(certificate), Some(settings)) => {
                let before = checks.len();
                checks.extend(files(&check, certificate));
                checks.extend(for_user(&check, certificate, here));
                if let Some(inspection) = &certificate.inspection {
                    content(&check, inspection, facts.now, checks);
                    checks.extend(role(&check, inspection, here.service, settings));
                }
                finish(&check, certificate, facts.now, before, checks);
            }
            (None, Some(settings)) => checks.push(without(&check, settings)),
            (_, None) => {}
        }
    }
    if let Some(certificate) = &facts.own {
        let check = "your certificate";
        let before = checks.len();
        checks.extend(files(check, certificate));
        if let Some(inspection) = &certificate.inspection {
            content(check, inspection, facts.now, checks);
        }
        finish(check, certificate, facts.now, before, checks);
    }
}

/// Says that nothing is wrong, where nothing is.
fn finish(
    check: &str,
    certificate: &Certificate,
    now: i64,
    before: usize,
    checks: &mut Vec<Check>,
) {
    let inspection = certificate.inspection.as_ref();
    let said = inspection.and_then(|i| Some((i.peer.as_ref().ok()?, i.own.as_ref().ok()?)));
    if let (true, Some((peer, own))) = (checks.len() == before, said) {
        let days = days(own.not_after.saturating_sub(now));
        let found = format!("{}, {days} left", named(peer));
        checks.push(Check::ok(Topic::Certificates, check, found));
    }
}

fn named(peer: &Peer) -> String {
    let others = peer.hosts.get(1..).unwrap_or_default();
    match others.is_empty() {
        true => peer.identity.to_string(),
        false => format!("{}, also for {}", peer.identity, super::listed(others)),
    }
}

fn problem(check: &str, found: impl Into<String>, next: impl Into<String>) -> Check {
    Check::problem(Topic::Certificates, check, found, next)
}

/// Files that cannot be read, and a key that everybody can.
fn files(check: &str, certificate: &Certificate) -> Vec<Check> {
    let mut checks = Vec::new();
    for (file, option) in certificate.files.iter().zip(["ca", "certificate", "key"]) {
        if file.path.as_os_str().is_empty() {
            let found = format!("{option} is not named; ca, certificate and key belong together");
            checks.push(problem(check, found, "name all three, or none"));
            continue;
        }
        let Some(why) = &file.unreadable else {
            continue;
        };
        checks.push(match &file.owner {
            Looked::Absent => problem(check, format!("there is no {}", file.path.display()), ISSUE),
            Looked::Found(_) | Looked::Unknown(_) if is_refused(why) => {
                Check::unknown(Topic::Certificates, check, why)
            }
            Looked::Found(_) | Looked::Unknown(_) => problem(check, why, ISSUE),
        });
    }
    let key = &certificate.files[2];
    let is_open = key
        .owner
        .found()
        .is_some_and(|owner| owner.mode & OTHERS != 0);
    if is_open && !key.path.as_os_str().is_empty() {
        checks.push(problem(
            check,
            format!("everybody on this machine may read {}", key.path.display()),
            format!(
                "`chmod 600 {}`; who has read it can be this service until its certificate ends: \
                 issue a new one (`rdmesh certs issue --renew`)",
                key.path.display()
            ),
        ));
    }
    checks
}

fn is_refused(why: &str) -> bool {
    why.contains("Permission denied") || why.contains("not permitted")
}

/// Whether the service's own user can read them: who looks is mostly root, who can read all.
fn for_user(check: &str, certificate: &Certificate, here: &ServiceFacts) -> Vec<Check> {
    let Some(user) = here.user.found() else {
        return Vec::new();
    };
    let cannot = |file: &&KeyFile| {
        let owner: Option<&Owner> = file.owner.found();
        owner.is_some_and(|owner| !owner.allows(user, READ))
    };
    let name = here.service.user();
    let denied = certificate.files.iter().filter(cannot);
    denied
        .map(|file| {
            let path = file.path.display();
            problem(
                check,
                format!(
                    "user {} of {} cannot read {path}",
                    user.0,
                    here.service.program()
                ),
                format!("`chown {name} {path}`, and of a key `chmod 600`"),
            )
        })
        .collect()
}

/// What the files say.
fn content(check: &str, inspection: &Inspection, now: i64, checks: &mut Vec<Check>) {
    let before = checks.len();
    match (&inspection.own, &inspection.peer) {
        (Err(why), _) | (Ok(_), Err(why)) => checks.push(problem(check, why, ISSUE)),
        (Ok(own), Ok(_)) => {
            let share = own.not_after.saturating_sub(own.not_before) / WARN_BEFORE_SHARE;
            checks.extend(time(
                check,
                "the certificate",
                (own.not_before, own.not_after),
                WARN_BEFORE.min(share),
                now,
            ));
        }
    }
    match &inspection.authorities {
        Err(why) => checks.push(problem(
            check,
            why,
            "ca.crt of `rdmesh certs init` belongs there",
        )),
        Ok(authorities) => {
            let ends = authorities.iter().filter_map(|ca| {
                let named = format!("the authority {}", ca.subject);
                time(
                    check,
                    &named,
                    (ca.not_before, ca.not_after),
                    WARN_BEFORE,
                    now,
                )
            });
            checks.extend(ends);
        }
    }
    if let Err(why) = &inspection.key {
        // A key that everybody may read is refused as well, and told of the file.
        let is_told = why.contains("everybody on this machine");
        let next = "put the key and the certificate of one `rdmesh certs issue` there";
        checks.extend((!is_told).then(|| problem(check, why, next)));
    }
    // What cannot be read has no issuer.
    if let (true, Err(why)) = (checks.len() == before, &inspection.chain) {
        checks.push(problem(
            check,
            why,
            "use the ca.crt of the authority that issued it, or issue it anew: \
             `rdmesh certs show` says who issued what",
        ));
    }
}

fn time(
    check: &str,
    what: &str,
    (from, until): (i64, i64),
    warn_before: i64,
    now: i64,
) -> Option<Check> {
    let left = until.saturating_sub(now);
    let renew = "`rdmesh certs issue ROLE NAME --renew` makes a new one, which services take into \
                 use without a restart (for an authority: docs/mesh.md, \"Who speaks\")";
    if left <= 0 {
        let found = format!("{what} has expired {} ago", days(left.saturating_neg()));
        return Some(problem(check, found, renew));
    }
    if now < from {
        let found = format!("{what} is not valid yet");
        let next = "set this machine's clock, or the one on which it was issued";
        return Some(problem(check, found, next));
    }
    (left < warn_before).then(|| {
        let found = format!("{what} ends in {}", days(left));
        Check::warning(Topic::Certificates, check, found, renew)
    })
}

/// `1 day`, `20 days`; what is over is whole.
fn days(seconds: i64) -> String {
    match seconds / DAY {
        1 => "1 day".to_owned(),
        days => format!("{days} days"),
    }
}

/// Whether the identity fits the service.
fn role(
    check: &str,
    inspection: &Inspection,
    service: Service,
    settings: &Settings,
) -> Option<Check> {
    let peer = inspection.peer.as_ref().ok()?;
    let wanted = match service {
        Service::Collector => Role::Collector,
        Service::Tracer | Service::Shaper => Role::Agent,
    };
    if peer.identity.role != wanted {
        return Some(problem(
            check,
            format!(
                "{}: {} needs the role {wanted}",
                peer.identity,
                service.program()
            ),
            format!("`rdmesh certs issue {wanted} NAME`"),
        ));
    }
    let stranger = settings
        .reports_of
        .iter()
        .find(|host| !peer.speaks_for(host))?;
    let (first, more) = settings.reports_of.split_first()?;
    let also: String = more
        .iter()
        .filter(|host| *host != first)
        .map(|host| format!(" --for {host}"))
        .collect();
    Some(problem(
        check,
        format!(
            "{} does not speak for {stranger}, of which {} reports: the collector rejects that",
            named(peer),
            service.program()
        ),
        format!(
            "`rdmesh certs issue agent {first}{also}`, or set `host` in {}.toml to the name in the \
             certificate",
            service.short()
        ),
    ))
}

/// A service without certificates.
fn without(check: &str, settings: &Settings) -> Check {
    let is_unix = |address: &str| address.starts_with("unix:");
    let is_near = |address: &String| is_unix(address) || is_local(address);
    let mut others: Vec<&str> = Vec::new();
    if !is_near(&settings.listen) {
        others.push("listens for other machines");
    }
    if !settings.collectors.iter().all(is_near) {
        others.push("dials another machine");
    }
    if others.is_empty() {
        let found = "none: it speaks with this machine alone";
        return Check::ok(Topic::Certificates, check, found);
    }
    Check::warning(
        Topic::Certificates,
        check,
        format!(
            "none, and it {}: whoever is on the way can read and change what passes",
            others.join(" and ")
        ),
        format!("name ca, certificate and key in [tls]; {ISSUE}"),
    )
}
