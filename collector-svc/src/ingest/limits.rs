//! Bounds of what an agent may send, each with its reason.

use std::time::Duration;

/// An agent says Hello at once; whoever says nothing for so long is no agent.
pub const HELLO_WITHIN: Duration = Duration::from_secs(10);

/// An agent takes a collector that is silent for 30 s, while it owes an
/// acknowledgement, for dead; so it repeats the last one more often.
pub const ACK_EVERY: Duration = Duration::from_secs(5);

/// Items of one stream that wait for their commit; an agent sends 256 at most before
/// it waits, and what one stream can hold here bounds its rejections.
pub const UNACKNOWLEDGED_MAX: usize = 1_024;

/// Bytes that the rows of one item may take once they are written out. An incident with
/// 4,000 records a snapshot fits ten times; all rows of one table fit once.
pub(crate) const ITEM_MAX_BYTES: usize = 64 << 20;
/// Bytes of rows of one transaction, unless its one item is heavier. As each row counts
/// with 512 at least (`weight::ROW_BYTES`), these are 65,536 rows at most, which take one or
/// two seconds. What a writer holds beside the queue is this, or one item.
pub(crate) const BATCH_MAX_BYTES: usize = 32 << 20;
/// Bytes of rows from which on an item that alone exceeds the statement timeout is refused.
/// Lighter ones are not at fault: something else keeps Postgres from answering.
pub(crate) const TOO_SLOW_FROM_BYTES: usize = 16 << 20;

/// Longest pause that an agent is asked for. Two seconds from each of 10,000 agents
/// thin the stream to what a slow disk can take.
pub(crate) const SLOW_DOWN_MAX: Duration = Duration::from_secs(2);

/// Longest interval that counts as watched: ten times the longest that a tracer can be
/// told to gather. A host that slept was not watched meanwhile.
pub(crate) const INTERVAL_MAX_NS: i64 = 600_000_000_000;
/// How far an interval may end after the clock that came with it: both are read within one
/// flush of the tracer.
pub(crate) const INTERVAL_AHEAD_MAX_NS: i64 = 10_000_000_000;

/// Texts of a snapshot. 4,000 chains of different tasks name about as many.
pub(crate) const STRINGS_MAX: usize = 65_536;
/// Bytes of one text: a cgroup path may be as long as any path (PATH_MAX).
pub(crate) const TEXT_MAX_BYTES: usize = 4_096;
/// Hooked functions of a host. The largest candidate set has some 2,000.
pub(crate) const PROBES_MAX: usize = 8_192;
/// Rows of any other table. An incident with 4,000 records a snapshot fits 16 times.
pub(crate) const ROWS_MAX: usize = 65_536;
/// Steps of a chain. The deepest known has nine; the probes of a verb bound it.
pub(crate) const STEPS_MAX: u32 = 64;
/// Full records of one sample: as many as steps.
pub(crate) const RECORDS_MAX: usize = 64;
/// Reasons why one hook has no probe: fewer kinds of them are known.
pub(crate) const REASONS_MAX: usize = 64;
/// errno values of the kernel end here (MAX_ERRNO in include/linux/err.h).
pub(crate) const ERRNO_MAX: u32 = 4_095;
/// Bytes of an inventory's id: a SHA-512 in hexadecimal has 128.
pub(crate) const INVENTORY_ID_MAX_BYTES: usize = 128;
/// Devices, ports and modules of an inventory. A host has a dozen.
pub(crate) const INVENTORY_ROWS_MAX: usize = 1_024;
/// GIDs of a port: the contract's bound.
pub(crate) const ADDRESSES_MAX: usize = 64;
/// Bytes of a version, an address, a boot id.
pub(crate) const SHORT_TEXT_MAX_BYTES: usize = 256;
/// Bytes of the reason of a rejection that go back to the agent.
pub(crate) const REASON_MAX_BYTES: usize = 300;
/// Bytes of a mark on a row, where it quotes what was sent.
pub(crate) const MARK_MAX_BYTES: usize = 300;
/// Marks of a row. More than a person reads; a bad agent could make thousands.
pub(crate) const MARKS_MAX: usize = 32;
/// The largest sequence. An agent that sends a thousand items a second needs thirty
/// years for it; what is missing below it is a number that people can read.
pub(crate) const SEQUENCE_MAX: i64 = 1_000_000_000_000;
/// A counter's value. A host that fails a million times a second needs eleven days.
pub(crate) const COUNT_MAX: i64 = 1_000_000_000_000;
