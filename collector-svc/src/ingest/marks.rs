//! What a row says that is kept although something about it is odd.
//!
//! Every mark of ingest stands here. People read them in the `marks` columns of
//! `rdmesh.failures`, `rdmesh.snapshots`, `rdmesh.wire_windows`, `rdmesh.inventories` and
//! `rdmesh.probes`; the comments on those columns
//! (`store/migrations/0004_public_views.sql`) list them, which a test holds.
//!
//! | mark | what was kept |
//! |---|---|
//! | [`MOVED`] | the row, at the time of its receipt |
//! | `the host's clock jumped by …` | the row; its time comes from the boot clock |
//! | `… was not storable text …` | the text without what no text column holds |
//! | `… is not known to this collector …` | the row, the number as 0, "unknown" |
//! | [`AFTER_END`], [`LONG_BEFORE`], [`BEGAN_LONG_BEFORE`] | the chain, with its own times |
//! | [`ONE_CALL`] | the row, with both times |
//! | `rank … is none …` | the row, without a rank |
//! | [`LONG_INTERVAL`], [`INTERVAL_AHEAD`] | the rows; as watched counts what can be |
//! | `the job id that its task names …` | the row, without a job |
//! | `wire times are the shaper's own …` | the window, by the shaper's clock |
//!
//! Which of them cast doubt on a failure [`weigh`] tells.
//!
//! What is odd about a job, and why a failure may not be its own, is computed when it is
//! asked for (`rdmesh_store.described_attempts`, `joined_failures`).

use crate::ingest::columns::Text;
use crate::ingest::limits::{MARK_MAX_BYTES, MARKS_MAX};
use rdmesh_store::text::storable;

/// A time too far from the receipt.
pub(crate) const MOVED: &str =
    "its time is more than 35 days before or an hour after its receipt; placed at the receipt";

/// A chain that lies after the snapshot it came in.
pub(crate) const AFTER_END: &str = "it lies after the end of its snapshot's interval";
/// A chain that belongs into an earlier snapshot.
pub(crate) const LONG_BEFORE: &str =
    "it ended more than 10 seconds before its snapshot's interval began";
/// A chain whose first call no system call of this interval can have made.
pub(crate) const BEGAN_LONG_BEFORE: &str =
    "it began more than 60 seconds before its snapshot's interval";

/// A row that counts one call but tells the times of several.
pub(crate) const ONE_CALL: &str =
    "it counts one call, and its times lie further apart than those of one call";
/// A snapshot of a longer time than any tracer gathers.
pub(crate) const LONG_INTERVAL: &str =
    "its snapshot's interval is longer than 10 minutes; only the last 10 count as watched";
/// A snapshot from after the clock that came with it.
pub(crate) const INTERVAL_AHEAD: &str =
    "its snapshot's interval ends after its clock; what lies after it does not count as watched";

/// How a mark begins that tells of a clock set by force.
pub(crate) const JUMPED: &str = "the host's clock jumped by";
/// How a mark begins that tells of a name that is none.
pub(crate) const NAMED_JOB: &str = "the job id that its task names";

/// What a mark of a failure speaks against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weight {
    /// Its times may be wrong.
    Time,
    /// It may be another attempt's.
    Attempt,
    /// Nothing: a clock was odd, and its times hold.
    Clock,
}

/// What `mark` speaks against; none: it says nothing of when and whose the failure is.
pub(crate) fn weigh(mark: &str) -> Option<Weight> {
    match mark {
        MOVED | AFTER_END | LONG_BEFORE | BEGAN_LONG_BEFORE | ONE_CALL => Some(Weight::Time),
        INTERVAL_AHEAD => Some(Weight::Clock),
        _ if mark.starts_with(JUMPED) => Some(Weight::Clock),
        _ if mark.starts_with(NAMED_JOB) => Some(Weight::Attempt),
        _ => None,
    }
}

/// How long before the interval a chain may have ended. It waits for its outer record, and
/// what a storm left in the ring is read, one interval of five seconds later; twice that.
const ENDED_BEFORE_NS: i64 = 10_000_000_000;
/// How long before the interval a chain may have begun. Its call may sleep: a command to
/// mlx5 firmware times out after 60 seconds (MLX5_CMD_TIMEOUT_MSEC in
/// include/linux/mlx5/driver.h), address resolution earlier.
const BEGAN_BEFORE_NS: i64 = 60_000_000_000;

/// Between the failing returns of one call lie the error paths of a few functions: a tracer
/// joins what is 10 ms apart, more only where stacks prove it. Ten times that.
const UNWOUND_NS: i64 = 100_000_000;
/// The same of a call that waited for a neighbour: the kernel gives up after a second, and a
/// tracer joins what is 3 s apart.
const WAITED_NS: i64 = 10_000_000_000;

/// Marks of one row: each once, and no more than a person reads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Marks(Vec<String>);

impl Marks {
    pub(crate) fn new(marks: &[String]) -> Self {
        Self(marks.to_vec())
    }

    pub(crate) fn add(&mut self, mark: &str) {
        if self.0.len() < MARKS_MAX && !self.0.iter().any(|known| known == mark) {
            self.0.push(storable(mark.as_bytes(), MARK_MAX_BYTES).text);
        }
    }

    pub(crate) fn add_all(&mut self, others: &Self) {
        for mark in &others.0 {
            self.add(mark);
        }
    }

    /// Says so where `text`, which is the row's `what`, is not what was sent.
    pub(crate) fn text(&mut self, what: &str, text: &Text) {
        if text.changed {
            self.add(&format!(
                "{what} was not storable text (not UTF-8, control characters, or too long); it \
                 was changed"
            ));
        }
    }

    /// A number of the contract. One that a newer agent may know and we do not becomes 0,
    /// "unknown": the row is worth more than the number.
    pub(crate) fn known<E: TryFrom<i32> + Into<i32>>(&mut self, what: &str, value: i32) -> i16 {
        match E::try_from(value) {
            Ok(known) => i16::try_from(known.into()).unwrap_or(0),
            Err(_) => {
                self.unknown(what, value);
                0
            }
        }
    }

    /// Says so of a number of the contract that we do not know.
    pub(crate) fn unknown(&mut self, what: &str, value: impl std::fmt::Display) {
        self.add(&format!(
            "{what} {value} is not known to this collector (is the agent newer?); stored as \
             unknown"
        ));
    }

    /// Says so where a chain does not belong into its snapshot. One that began before the
    /// interval and ended in it, or shortly before, does.
    pub(crate) fn interval(&mut self, chain: (i64, i64), interval: (i64, i64)) {
        let ((first, last), (from, to)) = (chain, interval);
        if last > to {
            self.add(AFTER_END);
        }
        if last < from.saturating_sub(ENDED_BEFORE_NS) {
            self.add(LONG_BEFORE);
        } else if first < from.saturating_sub(BEGAN_BEFORE_NS) {
            self.add(BEGAN_LONG_BEFORE);
        }
    }

    /// A rank: -1 says that it is not known.
    pub(crate) fn rank(&mut self, what: &str, value: i32) -> Option<i32> {
        if value < -1 {
            self.add(&format!("{what} {value} is none; stored as not known"));
        }
        (value >= 0).then_some(value)
    }

    /// Says so where `chain`, a row that counts one call, spans more than the failing returns
    /// of one call do. `waited`: the call waited for a neighbour on its way up.
    pub(crate) fn one_call(&mut self, chain: (i64, i64), waited: bool) {
        let most = if waited { WAITED_NS } else { UNWOUND_NS };
        if chain.1.saturating_sub(chain.0) > most {
            self.add(ONE_CALL);
        }
    }

    pub(crate) fn into_vec(self) -> Vec<String> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdmesh_proto::common::v1::Layer;

    const SECOND: i64 = 1_000_000_000;

    fn of_interval(first: i64, last: i64) -> Vec<String> {
        let mut marks = Marks::default();
        let chain = (first * SECOND, last * SECOND);
        marks.interval(chain, (1_000 * SECOND, 1_005 * SECOND));
        marks.into_vec()
    }

    #[test]
    fn a_chain_belongs_into_its_interval_or_began_before() {
        for (first, last) in [(1_001, 1_002), (1_000, 1_005), (945, 1_001), (991, 992)] {
            assert_eq!(of_interval(first, last), [""; 0], "{first} {last}");
        }
        assert_eq!(of_interval(1_001, 1_006), [AFTER_END]);
        assert_eq!(of_interval(1_006, 1_007), [AFTER_END]);
        assert_eq!(of_interval(980, 985), [LONG_BEFORE]);
        assert_eq!(of_interval(900, 1_001), [BEGAN_LONG_BEFORE]);
        assert_eq!(of_interval(i64::MIN / SECOND, 0), [LONG_BEFORE]);
    }

    #[test]
    fn one_call_has_the_times_of_one() {
        let of = |apart_ns: i64, waited: bool| {
            let mut marks = Marks::default();
            marks.one_call((SECOND, SECOND + apart_ns), waited);
            marks.into_vec()
        };
        // A tracer tells the innermost and the outermost return of a call.
        assert_eq!(of(12_000, false), [""; 0]);
        assert_eq!(of(SECOND, false), [ONE_CALL]);
        assert_eq!(of(SECOND, true), [""; 0]);
        assert_eq!(of(30 * SECOND, true), [ONE_CALL]);
    }

    #[test]
    fn a_number_of_a_newer_contract_is_said() {
        let mut marks = Marks::default();
        assert_eq!(marks.known::<Layer>("layer", 3), 3);
        assert_eq!(marks.known::<Layer>("layer", 99), 0);
        assert_eq!(marks.known::<Layer>("layer", 99), 0);
        assert_eq!(
            marks.into_vec(),
            ["layer 99 is not known to this collector (is the agent newer?); stored as unknown"]
        );
    }

    #[test]
    fn marks_of_time_and_of_name_weigh() {
        for (mark, weight) in [
            (LONG_BEFORE, Some(Weight::Time)),
            (
                "the host's clock jumped by +3600.000 s",
                Some(Weight::Clock),
            ),
            (
                "the job id that its task names is \"a/b\"",
                Some(Weight::Attempt),
            ),
            (LONG_INTERVAL, None),
            ("rank -2 is none; stored as not known", None),
        ] {
            assert_eq!(weigh(mark), weight, "{mark}");
        }
    }

    #[test]
    fn marks_are_bounded() {
        let mut marks = Marks::default();
        for number in 0..1_000 {
            marks.known::<Layer>("layer", 100 + number);
        }
        marks.add(&"x".repeat(10_000));
        let marks = marks.into_vec();
        assert_eq!(marks.len(), MARKS_MAX);
        assert!(marks.iter().all(|mark| mark.len() <= MARK_MAX_BYTES));
    }

    #[test]
    fn the_views_list_every_mark() {
        let views =
            include_str!("../../../store/migrations/0004_public_views.sql").replace("''", "'");
        for mark in [
            "its time is more than 35 days before or an hour after its receipt",
            "clock jumped",
            "was not storable text",
            "is not known to this collector",
            "it lies after the end of",
            "it ended more than 10 seconds before",
            "it began more than 60 seconds before",
            "the job id that its task names",
            super::ONE_CALL,
            super::LONG_INTERVAL,
            super::INTERVAL_AHEAD,
            "is none; stored as not known",
        ] {
            assert!(views.contains(mark), "{mark}");
        }
    }
}
