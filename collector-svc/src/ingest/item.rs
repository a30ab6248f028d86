//! One item of a stream: from the contract's message to what the store takes.
//!
//! A snapshot waits as the bytes that it came in. Its rows, which take many times as much,
//! are made when its batch is written.

use std::sync::Arc;

use prost::Message;
use rdmesh_proto::collector::v1::report_request::Item as Sent;
use rdmesh_proto::common::v1::ClockPair;
use rdmesh_proto::tracer::v1::{Heartbeat, Snapshot};
use rdmesh_store::ingest::{ClockEstimate, Content, Heartbeat as StoredBeat, Item, RunKey};
use time::OffsetDateTime;

use crate::clock::{Estimate, HostClock, Reading};
use crate::ingest::columns::{Refusal, count};
use crate::ingest::exact::References;
use crate::ingest::limits::REASON_MAX_BYTES;
use crate::ingest::marks::INTERVAL_AHEAD;
use crate::ingest::snapshot::{self, inventory_id};
use crate::ingest::timeline::{Timeline, interval, reading, watched};
use crate::ingest::weight::{ROW_BYTES, weigh};
use crate::ingest::{reports, windows};
use crate::times;

/// What an item holds beside its content: itself, its place in the queue, its room.
const ITEM_BYTES: usize = 512;

/// An item on its way to the store.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) run: Arc<RunKey>,
    pub(crate) sequence: i64,
    pub(crate) received_at: OffsetDateTime,
    pub(crate) clock: Option<ClockEstimate>,
    pub(crate) content: Pending,
    /// Bytes that its rows will take.
    pub(crate) weight: usize,
    /// Bytes that it takes while it waits.
    pub(crate) held: usize,
}

/// What an item says, as it waits.
#[derive(Debug)]
pub(crate) enum Pending {
    /// What takes no more as rows than as a message.
    Ready(Content),
    /// A snapshot.
    Encoded(Box<EncodedSnapshot>),
}

/// A snapshot whose rows are still to be made.
#[derive(Debug)]
pub(crate) struct EncodedSnapshot {
    /// The message.
    message: Vec<u8>,
    timeline: Timeline,
    marks: Vec<String>,
}

impl EncodedSnapshot {
    /// Its rows, with the message as it is to be stored.
    fn rows(&self, run: &Arc<RunKey>, references: &References) -> Result<Content, Refusal> {
        let snapshot = Snapshot::decode(self.message.as_slice())
            .map_err(|error| Refusal::value("snapshot", error, "a message of the contract"))?;
        let mut rows = snapshot::rows(&snapshot, &self.timeline, &self.marks)?;
        let exact = references
            .compress(run, rdmesh_store::week_of(rows.ended_at), &self.message)
            .map_err(|error| Refusal::value("snapshot", error, "what zstd can compress"))?;
        rows.body = exact.body;
        rows.reference_seq = exact.reference;
        Ok(Content::Snapshot(Box::new(rows)))
    }
}

impl Incoming {
    /// Makes its rows; gives a snapshot's message back beside them. What is not allowed becomes
    /// a rejection, which is stored like any item, and tells nothing of the host's clock.
    pub(crate) fn into_item(self, references: &References) -> (Item, Option<Vec<u8>>) {
        let Self {
            run,
            sequence,
            received_at,
            mut clock,
            content,
            ..
        } = self;
        let (content, message) = match content {
            Pending::Ready(content) => (content, None),
            Pending::Encoded(snapshot) => match snapshot.rows(&run, references) {
                Ok(content) => (content, Some(snapshot.message)),
                Err(refusal) => {
                    clock = None;
                    (Content::Rejected(reason(&refusal)), None)
                }
            },
        };
        let item = Item {
            run,
            sequence,
            received_at,
            clock,
            content,
        };
        (item, message)
    }
}

/// Why an item is refused, as it is told and stored: the reason quotes what was sent.
fn reason(refusal: &Refusal) -> String {
    let mut reason = refusal.to_string();
    let cut = (0..=REASON_MAX_BYTES.min(reason.len()))
        .rev()
        .find(|at| reason.is_char_boundary(*at));
    reason.truncate(cut.unwrap_or(0));
    rdmesh_store::text::storable(reason.as_bytes(), REASON_MAX_BYTES).text
}

/// Turns the items of one run into what the store takes.
#[derive(Debug)]
pub(crate) struct Reader {
    run: Arc<RunKey>,
    clock: HostClock,
    last: Option<Estimate>,
}

impl Reader {
    /// A reader for a run; `hello` are the clocks of its Hello and when it came.
    pub(crate) fn new(run: Arc<RunKey>, hello: Option<(Reading, OffsetDateTime)>) -> Self {
        let mut clock = HostClock::default();
        let last = hello.map(|(reading, at)| clock.observe(reading, times::to_unix_ns(at)));
        Self { run, clock, last }
    }

    /// What the Hello told of the clock.
    pub(crate) fn clock(&self) -> Option<ClockEstimate> {
        self.last.map(stored)
    }

    pub(crate) fn run(&self) -> &Arc<RunKey> {
        &self.run
    }

    /// An item whose sequence is none, refused.
    pub(crate) fn refused(&self, reason: String, received_at: OffsetDateTime) -> Incoming {
        let held = ITEM_BYTES + reason.len();
        Incoming {
            run: self.run.clone(),
            sequence: rdmesh_store::ingest::NO_SEQUENCE,
            received_at,
            clock: None,
            content: Pending::Ready(Content::Rejected(reason)),
            weight: held,
            held,
        }
    }

    /// An item. What is not allowed becomes a rejection, which is stored like any item.
    pub(crate) fn read(
        &mut self,
        sequence: i64,
        sent: Option<&Sent>,
        received_at: OffsetDateTime,
    ) -> Incoming {
        let mut item = Incoming {
            sequence,
            ..self.refused(String::new(), received_at)
        };
        let read = match sent {
            Some(Sent::Snapshot(message)) => self.snapshot(message, received_at, &mut item),
            _ => self.small(sent, received_at, &mut item),
        };
        if let Err(refusal) = read {
            item.content = Pending::Ready(Content::Rejected(reason(&refusal)));
        }
        item
    }

    /// A snapshot is weighed here and read when it is written.
    fn snapshot(
        &mut self,
        message: &Snapshot,
        received_at: OffsetDateTime,
        item: &mut Incoming,
    ) -> Result<(), Refusal> {
        let weight = weigh(message)?;
        let estimate = self.observe(message.clock.as_ref(), received_at)?;
        let message = message.encode_to_vec();
        item.clock = Some(stored(estimate));
        // With what it is stored as, which is no longer.
        item.weight = ITEM_BYTES + message.len() + weight;
        item.held = ITEM_BYTES + message.len();
        item.content = Pending::Encoded(Box::new(EncodedSnapshot {
            message,
            timeline: timeline(&estimate, received_at),
            marks: marks(&estimate),
        }));
        Ok(())
    }

    /// Anything else: its rows take about twice as much as its message, since that is kept
    /// too; those of a report may be empty in the message and have a fixed part as rows.
    fn small(
        &mut self,
        sent: Option<&Sent>,
        received_at: OffsetDateTime,
        item: &mut Incoming,
    ) -> Result<(), Refusal> {
        let content = self.content(sent, received_at, &mut item.clock)?;
        let rows = match &content {
            Content::ProbeReport(report) => report.probes.len(),
            _ => 1,
        };
        item.held = ITEM_BYTES + rows * ROW_BYTES + 2 * sent.map_or(0, encoded_len);
        item.weight = item.held;
        item.content = Pending::Ready(content);
        Ok(())
    }

    fn content(
        &mut self,
        sent: Option<&Sent>,
        received_at: OffsetDateTime,
        clock: &mut Option<ClockEstimate>,
    ) -> Result<Content, Refusal> {
        match sent {
            Some(Sent::Heartbeat(message)) => {
                let beat = heartbeat(message)?;
                // Nothing but its time is in it, and it has no row that could be marked.
                let read_at = reading(message.clock.as_ref())?.boot_ns;
                match watched(beat.interval, read_at).1 {
                    Some(INTERVAL_AHEAD) => {
                        let allowed = "at most 10 seconds after clock.boottime_ns";
                        let end = message.interval_end_boot_ns;
                        return Err(Refusal::value("interval_end_boot_ns", end, allowed));
                    }
                    Some(_) => {
                        let allowed = "at most 10 minutes before interval_end_boot_ns";
                        let start = message.interval_start_boot_ns;
                        return Err(Refusal::value("interval_start_boot_ns", start, allowed));
                    }
                    None => {}
                }
                let estimate = self.observe(message.clock.as_ref(), received_at)?;
                *clock = Some(stored(estimate));
                Ok(Content::Heartbeat(beat))
            }
            Some(Sent::ProbeReport(message)) => Ok(Content::ProbeReport(Box::new(
                reports::probe_report(message)?,
            ))),
            Some(Sent::Inventory(message)) => Ok(Content::Inventory(Box::new(reports::inventory(
                message,
                received_at,
            )?))),
            Some(Sent::WireWindow(message)) => {
                let timeline = self.last.map(|estimate| timeline(&estimate, received_at));
                let rows = windows::rows(message, timeline.as_ref(), &[])?;
                Ok(Content::WireWindow(Box::new(rows)))
            }
            Some(Sent::Hello(_)) => Err(Refusal::value(
                "item",
                "a second hello",
                "hello comes first and once",
            )),
            // A newer agent's item, or none at all.
            Some(Sent::Snapshot(_)) | None => Err(Refusal::NoItem),
        }
    }

    fn observe(
        &mut self,
        clock: Option<&ClockPair>,
        received_at: OffsetDateTime,
    ) -> Result<Estimate, Refusal> {
        let estimate = self
            .clock
            .observe(reading(clock)?, times::to_unix_ns(received_at));
        self.last = Some(estimate);
        Ok(estimate)
    }
}

fn encoded_len(sent: &Sent) -> usize {
    match sent {
        Sent::Hello(message) => message.encoded_len(),
        Sent::Snapshot(message) => message.encoded_len(),
        Sent::Heartbeat(message) => message.encoded_len(),
        Sent::ProbeReport(message) => message.encoded_len(),
        Sent::Inventory(message) => message.encoded_len(),
        Sent::WireWindow(message) => message.encoded_len(),
    }
}

fn heartbeat(message: &Heartbeat) -> Result<StoredBeat, Refusal> {
    Ok(StoredBeat {
        interval: interval(message.interval_start_boot_ns, message.interval_end_boot_ns)?,
        inventory_id: inventory_id("inventory_id", &message.inventory_id)?,
        given_up: count("snapshots_given_up", message.snapshots_given_up)?,
    })
}

fn timeline(estimate: &Estimate, received_at: OffsetDateTime) -> Timeline {
    Timeline {
        boot_epoch_ns: estimate.boot_epoch_ns,
        real_minus_boot_ns: estimate.real_minus_boot_ns,
        received_at,
    }
}

fn stored(estimate: Estimate) -> ClockEstimate {
    ClockEstimate {
        boot_epoch_ns: estimate.boot_epoch_ns,
        offset_ns: estimate.offset_ns,
        jumps: i32::from(estimate.jump_ns != 0),
    }
}

/// What the rows of an item say of its host's clock.
fn marks(estimate: &Estimate) -> Vec<String> {
    match estimate.jump_ns {
        0 => Vec::new(),
        jump => vec![format!(
            "the host's clock jumped by {}",
            times::signed_seconds(jump)
        )],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use prost::Message;
    use rdmesh_proto::collector::v1::ReportRequest;
    use rdmesh_proto::tracer::v1::{
        CgroupColumns, ChainColumns, ProbeColumns, SignatureColumns, TaskColumns,
    };
    use uuid::Uuid;

    fn reader() -> Reader {
        let run = RunKey {
            host: "gpu-01".into(),
            agent: 1,
            run_id: Uuid::nil(),
        };
        let reading = Reading {
            boot_ns: 1_000,
            real_ns: 2_000,
        };
        Reader::new(Arc::new(run), Some((reading, OffsetDateTime::UNIX_EPOCH)))
    }

    prop_compose! {
        /// Columns that often fit one another and often do not.
        fn snapshots()(
            index in prop::collection::vec(0_u32..4, 12),
            lengths in prop::collection::vec(0_usize..3, 6),
            times in prop::collection::vec(any::<u64>(), 4),
            count in prop::collection::vec(prop_oneof![0_u64..3, any::<u64>()], 3),
            errno in prop::collection::vec(prop_oneof![1_u32..200, any::<u32>()], 3),
            texts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..6), 0..5),
            marks in any::<u32>(),
        ) -> Snapshot {
            let column = |at: usize, rows: usize| vec![index[at]; rows];
            let [probes, signatures, cgroups, tasks, chains, steps] = lengths[..] else {
                return Snapshot::default();
            };
            Snapshot {
                clock: Some(ClockPair { boottime_ns: times[0], realtime_ns: times[1] }),
                interval_start_boot_ns: times[2].min(times[3]),
                interval_end_boot_ns: times[2].max(times[3]),
                strings: texts,
                probes: Some(ProbeColumns {
                    function: column(0, probes),
                    module: column(1, probes),
                    layer: vec![i32::MAX; probes],
                    verb: vec![2; probes],
                    object: vec![0; probes],
                }),
                signatures: Some(SignatureColumns {
                    driver: column(2, signatures),
                    steps: vec![u32::try_from(steps).unwrap_or(0); signatures],
                    step_probe: column(3, steps * signatures),
                    step_errno: vec![errno[0]; steps * signatures],
                }),
                cgroups: Some(CgroupColumns {
                    id: vec![u64::MAX; cgroups],
                    path: column(4, cgroups),
                    job_id: column(5, cgroups),
                    requeue: vec![u32::MAX; cgroups],
                    restart: vec![0; cgroups],
                    source: vec![-7; cgroups],
                }),
                tasks: Some(TaskColumns {
                    tgid: vec![u32::MAX; tasks],
                    tid: vec![1; tasks],
                    start_boot_ns: vec![u64::MAX; tasks],
                    comm: column(6, tasks),
                    cgroup: column(7, tasks),
                    job_id: column(8, tasks),
                    requeue: vec![0; tasks],
                    restart: vec![0; tasks],
                    rank: vec![i32::MIN; tasks],
                    local_rank: vec![i32::MAX; tasks],
                    source: vec![1; tasks],
                }),
                chains: Some(ChainColumns {
                    signature: column(9, chains),
                    task: column(10, chains),
                    device_plus_one: vec![0; chains],
                    count: vec![count[0]; chains],
                    first_after_start_ns: vec![times[2].cast_signed(); chains],
                    span_ns: vec![times[3]; chains],
                    marks: vec![marks; chains],
                }),
                ..Snapshot::default()
            }
        }
    }

    proptest! {
        /// Whatever comes becomes rows that hold what the store relies on, or a
        /// rejection with a reason.
        #[test]
        fn a_snapshot_is_stored_or_refused(snapshot in snapshots()) {
            let received = OffsetDateTime::UNIX_EPOCH + std::time::Duration::from_secs(1 << 31);
            let item = reader().read(1, Some(&Sent::Snapshot(snapshot)), received);
            match item.into_item(&References::default()).0.content {
                Content::Rejected(reason) => prop_assert!(!reason.is_empty() && reason.len() <= 300),
                Content::Snapshot(rows) => {
                    for chain in &rows.chains {
                        prop_assert!(!chain.steps.is_empty() && chain.count > 0);
                        prop_assert!(chain.first_at <= chain.last_at);
                        prop_assert!(!chain.comm.contains('\0'));
                        prop_assert!(chain.first_at >= received - rdmesh_store::FURTHEST_BACK);
                    }
                }
                other => prop_assert!(false, "{other:?}"),
            }
        }

        #[test]
        fn any_bytes_are_an_item_or_none(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(request) = ReportRequest::decode(bytes.as_slice()) {
                let item = reader().read(1, request.item.as_ref(), OffsetDateTime::UNIX_EPOCH);
                prop_assert_eq!(item.sequence, 1);
            }
        }
    }
}
