//! Times of a host, told in its boot clock, as times of the collector.

use rdmesh_proto::common::v1::ClockPair;
use rdmesh_store::ingest::Interval;
use time::OffsetDateTime;

use crate::clock::Reading;
use crate::ingest::columns::{Refusal, long};
use crate::ingest::limits::{INTERVAL_AHEAD_MAX_NS, INTERVAL_MAX_NS};
use crate::ingest::marks::{INTERVAL_AHEAD, LONG_INTERVAL};
use crate::times;

/// When things happened that a host told in its boot clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeline {
    /// Collector time at which the boot clock stood at 0, nanoseconds.
    pub(crate) boot_epoch_ns: i64,
    /// Wall clock minus boot clock of the host, nanoseconds.
    pub(crate) real_minus_boot_ns: i64,
    /// When the item came.
    pub(crate) received_at: OffsetDateTime,
}

/// A time that was placed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placed {
    pub(crate) at: OffsetDateTime,
    /// It was too far from the receipt, and stands at the receipt.
    pub(crate) moved: bool,
}

impl Timeline {
    /// Collector time of a boot clock value. A row too far from its receipt would make
    /// partitions without end: it stands at its receipt instead and says so.
    pub(crate) fn place(&self, boot_ns: i64) -> Placed {
        let told = self
            .boot_epoch_ns
            .checked_add(boot_ns)
            .and_then(times::from_unix_ns);
        self.keep(told)
    }

    /// Collector time of a host's wall clock value.
    pub(crate) fn place_wall(&self, at: OffsetDateTime) -> Placed {
        let boot_ns = times::to_unix_ns(at).saturating_sub(self.real_minus_boot_ns);
        self.place(boot_ns)
    }

    fn keep(&self, told: Option<OffsetDateTime>) -> Placed {
        let earliest = self.received_at - rdmesh_store::FURTHEST_BACK;
        let latest = self.received_at + rdmesh_store::FURTHEST_AHEAD;
        match told.filter(|at| (earliest..=latest).contains(at)) {
            Some(at) => Placed { at, moved: false },
            None => Placed {
                at: self.received_at,
                moved: true,
            },
        }
    }

    /// The host's own time of a boot clock value; the receipt when it is beyond the
    /// calendar.
    pub(crate) fn host_time(&self, boot_ns: i64) -> OffsetDateTime {
        self.real_minus_boot_ns
            .checked_add(boot_ns)
            .and_then(times::from_unix_ns)
            // What Postgres holds ends later, what people mean ends here.
            .filter(|at| at.year() >= 1970)
            .unwrap_or(self.received_at)
    }
}

/// The clocks of an item.
pub(crate) fn reading(clock: Option<&ClockPair>) -> Result<Reading, Refusal> {
    let clock = clock.ok_or_else(|| Refusal::missing("clock"))?;
    Ok(Reading {
        boot_ns: long("clock.boottime_ns", clock.boottime_ns)?,
        real_ns: long("clock.realtime_ns", clock.realtime_ns)?,
    })
}

/// An interval of the boot clock.
pub(crate) fn interval(start: u64, end: u64) -> Result<Interval, Refusal> {
    let from_boot_ns = long("interval_start_boot_ns", start)?;
    let to_boot_ns = long("interval_end_boot_ns", end)?;
    if from_boot_ns > to_boot_ns {
        let allowed = "at most interval_end_boot_ns";
        return Err(Refusal::value("interval_start_boot_ns", start, allowed));
    }
    Ok(Interval {
        from_boot_ns,
        to_boot_ns,
    })
}

/// The part of an interval that counts as watched, and what is odd about it.
/// `read_at_boot_ns` is the boot clock that came with it.
pub(crate) fn watched(
    interval: Interval,
    read_at_boot_ns: i64,
) -> (Interval, Option<&'static str>) {
    let latest = read_at_boot_ns.saturating_add(INTERVAL_AHEAD_MAX_NS);
    let (from, to) = (interval.from_boot_ns, interval.to_boot_ns);
    let told = if to > latest {
        Some(INTERVAL_AHEAD)
    } else if to.saturating_sub(from) > INTERVAL_MAX_NS {
        Some(LONG_INTERVAL)
    } else {
        None
    };
    let to_boot_ns = if to > latest { read_at_boot_ns } else { to };
    let from_boot_ns = from
        .max(to_boot_ns.saturating_sub(INTERVAL_MAX_NS))
        .min(to_boot_ns);
    let kept = Interval {
        from_boot_ns,
        to_boot_ns,
    };
    (kept, told)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdmesh_store::FURTHEST_AHEAD;
    use std::time::Duration;
    use time::macros::datetime;

    const RECEIVED: OffsetDateTime = datetime!(2026-11-25 12:00 UTC);

    fn timeline() -> Timeline {
        let received_ns = times::to_unix_ns(RECEIVED);
        Timeline {
            boot_epoch_ns: received_ns - 1_000_000_000_000,
            real_minus_boot_ns: received_ns - 1_000_000_000_000 + 3_600_000_000_000,
            received_at: RECEIVED,
        }
    }

    #[test]
    fn events_stand_where_the_boot_clock_puts_them_whatever_the_wall_clock_says() {
        let placed = timeline().place(999_000_000_000);
        assert_eq!(
            (placed.at, placed.moved),
            (RECEIVED - Duration::from_secs(1), false)
        );
        let hour = Duration::from_secs(3600);
        assert_eq!(timeline().host_time(1_000_000_000_000), RECEIVED + hour);
        assert_eq!(timeline().place_wall(RECEIVED + hour).at, RECEIVED);
    }

    #[test]
    fn no_more_is_watched_than_can_be() {
        let of = |from: i64, to: i64| {
            let second = 1_000_000_000;
            let told = Interval {
                from_boot_ns: from * second,
                to_boot_ns: to * second,
            };
            let (kept, mark) = watched(told, 1_000 * second);
            (
                kept.from_boot_ns / second,
                kept.to_boot_ns / second,
                mark.unwrap_or(""),
            )
        };
        assert_eq!(of(995, 1_000), (995, 1_000, ""));
        assert_eq!(of(1_000, 1_005), (1_000, 1_005, ""));
        assert_eq!(of(0, 1_000), (400, 1_000, LONG_INTERVAL));
        assert_eq!(of(995, 9_000), (995, 1_000, INTERVAL_AHEAD));
        assert_eq!(of(8_995, 9_000), (1_000, 1_000, INTERVAL_AHEAD));
    }

    #[test]
    fn what_is_too_far_off_stands_at_its_receipt() {
        let ahead_ns = i64::try_from(FURTHEST_AHEAD.as_nanos()).unwrap();
        let inside = timeline().place(1_000_000_000_000 + ahead_ns);
        assert!(!inside.moved);
        for boot_ns in [
            1_000_000_000_000 + ahead_ns + 1,
            i64::MAX,
            -4_000_000_000_000_000,
        ] {
            let placed = timeline().place(boot_ns);
            assert_eq!((placed.at, placed.moved), (RECEIVED, true), "{boot_ns}");
        }
    }
}
