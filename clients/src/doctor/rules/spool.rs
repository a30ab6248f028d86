//! Where agents keep what is not acknowledged.

use super::Check;
use crate::doctor::Topic;
use crate::doctor::facts::{Facts, Looked, Place, ServiceFacts, Spool};

/// Below this a disk counts as full, bytes: a segment of a spool has a few MiB.
const FULL_BYTES: u64 = 16 << 20;

/// The right to write into a directory, and to go into it.
const WRITE_AND_ENTER: u32 = 3;

pub(super) fn examine(facts: &Facts, checks: &mut Vec<Check>) {
    for here in facts.here() {
        if let Some(spool) = &here.spool {
            checks.push(of(here, spool));
        }
    }
}

fn of(here: &ServiceFacts, spool: &Spool) -> Check {
    let check = format!("spool of {}", here.service.program());
    let directory = spool.directory.display();
    if spool.max_mib == 0 {
        return Check::warning(
            Topic::Spool,
            check,
            "switched off: what is not acknowledged is lost with the process",
            "uplink.spool.max_mib = 256, unless this is meant",
        );
    }
    let place = match &spool.place {
        Looked::Found(place) => place,
        Looked::Absent => {
            return Check::unknown(
                Topic::Spool,
                check,
                format!("{directory}: there is no root"),
            );
        }
        Looked::Unknown(why) => return Check::unknown(Topic::Spool, check, why),
    };
    // The default one is made in the state directory, and not without that.
    let parent = spool.directory.parent();
    let is_near = place.is_it || Some(place.path.as_path()) == parent;
    if !spool.is_named && !is_near {
        return no_state(here, spool, check);
    }
    let user = here.user.found();
    if let Some(user) = user
        && !place.owner.allows(user, WRITE_AND_ENTER)
    {
        return Check::problem(
            Topic::Spool,
            check,
            format!(
                "user {} may not write into {}",
                user.0,
                place.path.display()
            ),
            format!("`install -d -o {} -m 700 {directory}`", here.service.user()),
        );
    }
    room(spool, place, check)
}

/// Without its state directory a service has no spool.
fn no_state(here: &ServiceFacts, spool: &Spool, check: String) -> Check {
    let state = spool.directory.parent().unwrap_or(&spool.directory);
    Check::warning(
        Topic::Spool,
        check,
        format!(
            "there is no {}: what is not acknowledged is lost with the process",
            state.display()
        ),
        format!(
            "`install -d -o {} -m 700 {}` and restart {}, or name uplink.spool.directory; the unit \
             makes it by itself",
            here.service.user(),
            state.display(),
            here.service.unit()
        ),
    )
}

fn room(spool: &Spool, place: &Place, check: String) -> Check {
    let directory = spool.directory.display();
    let free = super::bytes(place.free_bytes);
    if place.is_read_only {
        return Check::problem(
            Topic::Spool,
            check,
            format!("{} is on a read-only file system", place.path.display()),
            "mount it writable, or name another uplink.spool.directory",
        );
    }
    let most = spool.max_mib.saturating_mul(1 << 20);
    let next = format!(
        "make room there, lower uplink.spool.max_mib (now {}), or name another \
         uplink.spool.directory",
        spool.max_mib
    );
    if place.free_bytes < FULL_BYTES {
        let found = format!("{directory}: {free} are free");
        return Check::problem(Topic::Spool, check, found, next);
    }
    if place.free_bytes < most {
        let found = format!(
            "{directory}: {free} are free, and it may grow to {}",
            super::bytes(most)
        );
        return Check::warning(Topic::Spool, check, found, next);
    }
    let is_made = if place.is_it {
        ""
    } else {
        ", made at the start"
    };
    let found = format!("{directory}{is_made}: {free} are free");
    Check::ok(Topic::Spool, check, found)
}
