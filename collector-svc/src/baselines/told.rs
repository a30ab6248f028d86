//! Answers as the contract has them.

use std::time::Duration;

use prost::Message;
use rdmesh_proto::collector::v1::{
    CapturedFork, LeaseRefusal, LeaseRefusalReason as Reason, WindowLease,
};
use rdmesh_proto::tracer::v1::{Baseline, Fork};
use rdmesh_store::baselines::{HOST_WINDOWS_AN_HOUR, Lease, NoLease, StoredFork, TRIES};

use crate::times;

/// A turn comes within the length of a window.
const TURN: Duration = Duration::from_secs(60);
/// What is there already stays for long; a fleet of 10,000 hosts asks thrice a second then.
const SETTLED: Duration = Duration::from_secs(3_600);
/// Baselines are recorded meanwhile.
const WITHOUT_BASELINE: Duration = Duration::from_secs(600);

/// A window as it is granted. A stored baseline that cannot be read counts as none: a later
/// version wrote it.
pub(super) fn lease(lease: Lease, seconds: u32) -> WindowLease {
    let (mut baseline, mut baseline_host) = (None, String::new());
    if let Some(stored) = lease.baseline {
        baseline = Baseline::decode(stored.body.as_slice()).ok();
        baseline_host = stored.host;
    }
    WindowLease {
        lease_id: lease.id.to_string(),
        seconds,
        expires_at: Some(times::to_proto(lease.expires_at)),
        verbs: lease.verbs,
        baseline,
        baseline_host,
    }
}

/// While this collector leases none.
pub(super) fn off() -> LeaseRefusal {
    refusal(
        Reason::Off,
        "this collector leases no windows; set baseline.hosts_at_once in its collector.toml"
            .to_owned(),
        SETTLED,
    )
}

/// Why there is none.
pub(super) fn no_lease(why: NoLease) -> LeaseRefusal {
    match why {
        NoLease::FleetBusy => refusal(
            Reason::FleetBusy,
            "as many hosts as may be have a window (baseline.hosts_at_once)".to_owned(),
            TURN,
        ),
        NoLease::HostBusy => refusal(
            Reason::HostBusy,
            format!("this host had {HOST_WINDOWS_AN_HOUR} windows within the last hour"),
            WITHOUT_BASELINE,
        ),
        NoLease::Recorded => refusal(
            Reason::Recorded,
            "baselines of all of it are there, or are being recorded".to_owned(),
            SETTLED,
        ),
        NoLease::Captured => refusal(
            Reason::Captured,
            "such a failing call was captured, or is being captured".to_owned(),
            SETTLED,
        ),
        NoLease::NoBaseline => refusal(
            Reason::NoBaseline,
            "there is no baseline of it on such a kernel with this driver yet".to_owned(),
            WITHOUT_BASELINE,
        ),
        NoLease::NotSeen => refusal(
            Reason::NotSeen,
            format!("{TRIES} windows were open for it, and none saw it"),
            SETTLED,
        ),
    }
}

fn refusal(reason: Reason, message: String, again_after: Duration) -> LeaseRefusal {
    LeaseRefusal {
        reason: reason.into(),
        message,
        again_after_seconds: u32::try_from(again_after.as_secs()).unwrap_or(u32::MAX),
    }
}

/// Where failing calls left good ones, as it stands beside a verdict.
pub(crate) fn captured(stored: StoredFork) -> Option<CapturedFork> {
    Some(CapturedFork {
        fork: Some(Fork::decode(stored.seen.body.as_slice()).ok()?),
        host: stored.host,
        kernel_release: stored.kernel_release,
        driver: stored.driver,
        baseline_host: stored.seen.baseline_host,
        baseline_recorded_at: stored.seen.baseline_recorded_at.map(times::to_proto),
    })
}
