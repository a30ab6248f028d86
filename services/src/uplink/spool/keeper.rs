//! The thread that keeps the spool: it writes, reads back, deletes. Nothing else touches
//! the directory, and nothing that could wait for a disk runs anywhere else.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rdmesh_proto::collector::v1::Hello;
use tokio::sync::oneshot;

use super::earlier::EarlierUplink;
use super::place::{Claim, EarlierRun};
use super::record::Stamp;
use super::run::{Held, Run};
use super::sync::Syncer;
use super::{Clocks, Limits, Spool, SpoolError, SpoolStatus};
use crate::uplink::UplinkConfig;
use crate::uplink::backlog::Evicted;
use crate::uplink::queue::Gap;
use crate::uplink::shared::Shared;

/// How long after a failure the disk is tried again: well within ten seconds of its
/// recovery what waits in memory is on disk.
const RETRY_EVERY: Duration = Duration::from_secs(3);

/// Bytes that are written at once.
const WRITE_BYTES: usize = 1 << 20;

/// Of the memory of the live run, what an earlier one may take while it is sent.
const EARLIER_MEMORY_PART: u32 = 4;

/// What the thread is asked for.
enum Order {
    /// Something changed: look at the queues.
    Look,
    NextEarlier(oneshot::Sender<Option<EarlierUplink>>),
    EarlierIsDone,
    End,
}

/// Wakes the thread. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Waker {
    orders: Sender<Order>,
    /// Whether a look is on its way already.
    asked: Arc<AtomicBool>,
    clocks: Clocks,
}

impl Waker {
    pub(crate) fn look(&self) {
        if !self.asked.swap(true, Ordering::AcqRel) {
            // A thread that has ended needs not look any more.
            let _ = self.orders.send(Order::Look);
        }
    }

    pub(super) async fn next_earlier(&self) -> Option<EarlierUplink> {
        let (answer, earlier) = oneshot::channel();
        self.orders.send(Order::NextEarlier(answer)).ok()?;
        earlier.await.ok().flatten()
    }

    pub(super) fn earlier_is_done(&self) {
        let _ = self.orders.send(Order::EarlierIsDone);
    }

    pub(super) fn clocks(&self) -> Clocks {
        self.clocks.clone()
    }
}

/// The thread, as the uplink holds it.
#[derive(Debug)]
pub(crate) struct Keeper {
    waker: Waker,
    thread: Option<JoinHandle<()>>,
    status: Arc<Mutex<SpoolStatus>>,
}

impl Keeper {
    /// Starts to keep what `live` takes. `hello` introduces the run.
    pub(crate) fn start(
        spool: Spool,
        config: &UplinkConfig,
        live: impl FnOnce(Waker) -> Arc<Shared>,
        hello: Hello,
    ) -> io::Result<(Self, Arc<Shared>)> {
        let (orders, incoming) = channel();
        let asked = Arc::new(AtomicBool::new(false));
        let waker = Waker {
            orders,
            asked: Arc::clone(&asked),
            clocks: spool.clocks.clone(),
        };
        let shared = live(waker.clone());
        let status = Arc::new(Mutex::new(SpoolStatus::default()));
        let Spool {
            directory,
            mut limits,
            clocks,
            claimed,
        } = spool;
        let memory_items = usize::try_from(config.memory_items).unwrap_or(usize::MAX);
        // What is read back is a segment, and must fit beside what is in memory.
        limits.segment.items = limits.segment.items.min(memory_items / 4).max(1);
        limits.segment.bytes = limits.segment.bytes.min(config.memory_bytes / 4);
        let mut work = Work {
            directory,
            limits,
            clocks,
            claim: None,
            waiting: VecDeque::new(),
            live: Live {
                shared: Arc::clone(&shared),
                hello,
                run: None,
            },
            earlier: None,
            earlier_config: UplinkConfig {
                memory_items: config.memory_items / EARLIER_MEMORY_PART,
                memory_bytes: config.memory_bytes / u64::from(EARLIER_MEMORY_PART),
                ..config.clone()
            },
            waker: waker.clone(),
            syncer: Syncer::start()?,
            failing: false,
            dropped: 0,
            damaged: 0,
            status: Arc::clone(&status),
        };
        work.begin(claimed);
        let thread = std::thread::Builder::new()
            .name("spool".to_owned())
            .spawn(move || work.run(&incoming, &asked))?;
        let keeper = Self {
            waker,
            thread: Some(thread),
            status,
        };
        Ok((keeper, shared))
    }

    pub(crate) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    pub(crate) fn status(&self) -> Arc<Mutex<SpoolStatus>> {
        Arc::clone(&self.status)
    }

    /// Asks for the end; the thread writes what is not written, and is handed out to be
    /// waited for.
    pub(crate) fn end(&mut self) -> Option<JoinHandle<()>> {
        let _ = self.waker.orders.send(Order::End);
        self.thread.take()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // Not waited for: a disk may hang.
        let _ = self.end();
    }
}

struct Live {
    shared: Arc<Shared>,
    hello: Hello,
    run: Option<Run>,
}

struct Earlier {
    shared: Arc<Shared>,
    run: Run,
    same_boot: bool,
}

struct Work {
    directory: PathBuf,
    limits: Limits,
    clocks: Clocks,
    claim: Option<Claim>,
    /// Earlier runs that are not being sent yet, oldest first.
    waiting: VecDeque<EarlierRun>,
    live: Live,
    earlier: Option<Earlier>,
    earlier_config: UplinkConfig,
    waker: Waker,
    syncer: Syncer,
    /// Whether the disk took nothing at the last try.
    failing: bool,
    dropped: u64,
    damaged: u64,
    status: Arc<Mutex<SpoolStatus>>,
}

impl Work {
    fn begin(&mut self, claimed: Result<(Claim, Vec<EarlierRun>), SpoolError>) {
        match claimed {
            Ok((claim, runs)) => {
                if !runs.is_empty() {
                    let bytes: u64 = runs.iter().map(|run| run.bytes).sum();
                    tracing::info!(
                        runs = runs.len(),
                        bytes,
                        "earlier runs left items that no collector acknowledged"
                    );
                }
                self.claim = Some(claim);
                self.waiting = runs.into();
                self.live.shared.set_spooling(true);
            }
            Err(error) => self.fails(&error),
        }
        self.tell();
    }

    fn run(mut self, orders: &Receiver<Order>, asked: &AtomicBool) {
        let mut retry_at = self.failing.then(|| Instant::now() + RETRY_EVERY);
        loop {
            let order = match retry_at {
                None => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(at) => orders.recv_timeout(at.saturating_duration_since(Instant::now())),
            };
            match order {
                Ok(Order::Look) => asked.store(false, Ordering::Release),
                Ok(Order::NextEarlier(answer)) => {
                    let next = self.next_earlier();
                    // Whoever asked may be gone: then the run waits for the next start.
                    let _ = answer.send(next);
                }
                Ok(Order::EarlierIsDone) => {
                    if let Some(mut earlier) = self.earlier.take() {
                        earlier.run.remove();
                    }
                }
                Err(RecvTimeoutError::Timeout) => retry_at = None,
                Ok(Order::End) | Err(RecvTimeoutError::Disconnected) => break,
            }
            let due = !self.failing || retry_at.is_none();
            self.look(due);
            retry_at = match (self.failing, retry_at) {
                (false, _) => None,
                (true, Some(at)) if !due => Some(at),
                (true, _) => Some(Instant::now() + RETRY_EVERY),
            };
        }
        self.end();
    }

    /// Looks at everything; writes only where `may_write`.
    fn look(&mut self, may_write: bool) {
        if may_write {
            self.write();
        }
        let settled = self.live.shared.settled_through();
        if let Some(run) = &mut self.live.run {
            run.note_acked(settled);
        }
        if let Some(earlier) = &mut self.earlier {
            earlier.run.note_acked(earlier.shared.settled_through());
        }
        self.read_back();
        self.keep_bounds();
        self.tell();
    }

    /// Puts on disk what is in memory alone.
    fn write(&mut self) {
        if self.claim.is_none() {
            match Claim::take(&self.directory) {
                Ok((claim, runs)) => {
                    self.claim = Some(claim);
                    self.waiting = runs.into();
                }
                Err(error) => return self.fails(&error),
            }
        }
        loop {
            let entries = self.live.shared.unwritten(WRITE_BYTES);
            let Some(last) = entries.last().map(|entry| entry.sequence) else {
                break;
            };
            let now = (self.clocks.now)();
            let appended = self.live_run().and_then(|run| run.append(&entries, now));
            match appended {
                Ok(files) => {
                    self.syncer.sync(files);
                    self.live.shared.wrote(last);
                }
                Err(error) => return self.fails(&error),
            }
        }
        if std::mem::take(&mut self.failing) {
            tracing::info!(directory = %self.directory.display(), "the spool takes items again");
        }
        self.live.shared.set_spooling(true);
    }

    /// The run's directory, made with its first item.
    fn live_run(&mut self) -> io::Result<&mut Run> {
        if self.live.run.is_none() {
            let claim = self
                .claim
                .as_mut()
                .ok_or_else(|| io::Error::other("the directory is not ours"))?;
            let directory = claim.new_run(&self.live.hello.run_id);
            let run = Run::create(directory, &self.live.hello, self.limits.segment)?;
            self.live.run = Some(run);
        }
        self.live
            .run
            .as_mut()
            .ok_or_else(|| io::Error::other("the run has no directory"))
    }

    /// Says once that the disk takes nothing.
    fn fails(&mut self, error: &(dyn std::error::Error + 'static)) {
        if !std::mem::replace(&mut self.failing, true) {
            tracing::error!(
                directory = %self.directory.display(), error = %crate::causes::with_causes(error),
                "the spool takes nothing; items wait in memory alone"
            );
        }
        self.live.shared.set_spooling(false);
    }

    fn read_back(&mut self) {
        if let Some(run) = &self.live.run {
            self.damaged += refill(&self.live.shared, run);
        }
        if let Some(earlier) = &self.earlier {
            let lost = refill(&earlier.shared, &earlier.run);
            self.damaged += lost;
            self.live.shared.count_given_up(evicted(lost));
        }
    }

    fn bytes(&self) -> u64 {
        let waiting: u64 = self.waiting.iter().map(|run| run.bytes).sum();
        let earlier = self
            .earlier
            .as_ref()
            .map_or(0, |earlier| earlier.run.bytes());
        waiting + earlier + self.live.run.as_ref().map_or(0, Run::bytes)
    }

    /// Drops what is too old or too much, oldest first.
    fn keep_bounds(&mut self) {
        let now = (self.clocks.now)();
        let mut gone = Evicted::default();
        let too_old = |run: &Run, same_boot: bool| {
            let age = run.oldest_age(now, same_boot);
            age.is_some_and(|age| age > self.limits.age)
        };
        if let Some(earlier) = &mut self.earlier {
            while too_old(&earlier.run, earlier.same_boot) {
                let Some(items) = earlier.run.drop_oldest(true) else {
                    break;
                };
                gone.add(earlier.shared.dropped(&items));
            }
        }
        if let Some(run) = &mut self.live.run {
            while too_old(run, true) {
                let Some(items) = run.drop_oldest(false) else {
                    break;
                };
                gone.add(self.live.shared.dropped(&items));
            }
        }
        while self.bytes() > self.limits.bytes {
            match self.drop_one_segment() {
                Some(dropped) => gone.add(dropped),
                None => break,
            }
        }
        if gone.items > 0 {
            self.dropped += gone.items;
            self.live.shared.count_given_up(gone);
            tracing::debug!(
                items = gone.items,
                "the spool is full; dropped the oldest items"
            );
        }
    }

    fn drop_one_segment(&mut self) -> Option<Evicted> {
        if let Some(earlier) = &mut self.earlier
            && let Some(items) = earlier.run.drop_oldest(false)
        {
            return Some(earlier.shared.dropped(&items));
        }
        if let Some(waiting) = self.waiting.front_mut() {
            let opened = Run::open(
                waiting.directory.clone(),
                &waiting.run_id,
                self.limits.segment,
            );
            let mut gone = Evicted::default();
            if let Ok((mut run, _)) = opened {
                for (_, kind) in run.drop_oldest(false).unwrap_or_default() {
                    gone.count(kind);
                }
                waiting.bytes = run.bytes();
                if waiting.bytes == 0 {
                    run.remove();
                }
            } else {
                waiting.bytes = 0;
            }
            if waiting.bytes == 0 {
                self.waiting.pop_front();
            }
            return Some(gone);
        }
        let items = self.live.run.as_mut()?.drop_oldest(false)?;
        Some(self.live.shared.dropped(&items))
    }

    /// The next earlier run that has something to send.
    fn next_earlier(&mut self) -> Option<EarlierUplink> {
        while let Some(next) = self.waiting.pop_front() {
            let opened = Run::open(next.directory.clone(), &next.run_id, self.limits.segment);
            let (mut run, mut held) = match opened {
                Ok(opened) => opened,
                Err(error) => {
                    tracing::error!(
                        directory = %next.directory.display(), %error,
                        "what an earlier run left cannot be read; it is tried at the next start"
                    );
                    continue;
                }
            };
            let hello = run
                .hello()
                .unwrap_or_else(|| self.rebuilt_hello(&next.run_id));
            let same_boot = self.clocks.is_this_boot(&hello.boot_id);
            self.report_damage(&next.run_id, &held);
            self.forget_too_old(&mut run, &mut held, same_boot);
            if held.items == 0 {
                run.remove();
                continue;
            }
            let gap = Gap {
                from: run.acked().saturating_add(1),
                to: held.last,
                items: held.items,
                snapshots: held.snapshots,
            };
            let shared = Shared::of_earlier_run(&self.earlier_config, gap, self.waker.clone());
            let shared = Arc::new(shared);
            self.earlier = Some(Earlier {
                shared: Arc::clone(&shared),
                run,
                same_boot,
            });
            return Some(EarlierUplink {
                shared,
                hello,
                newest: held.newest,
                same_boot,
            });
        }
        None
    }

    fn report_damage(&mut self, run_id: &str, held: &Held) {
        if held.damaged_bytes == 0 {
            return;
        }
        tracing::warn!(
            run_id,
            bytes = held.damaged_bytes,
            items = held.lost,
            "part of what an earlier run left is damaged (a write that was cut, or the disk); the \
             rest is sent"
        );
        self.damaged += held.lost;
        self.live.shared.count_given_up(evicted(held.lost));
    }

    fn forget_too_old(&mut self, run: &mut Run, held: &mut Held, same_boot: bool) {
        let now: Stamp = (self.clocks.now)();
        let mut gone = Evicted::default();
        while run
            .oldest_age(now, same_boot)
            .is_some_and(|age| age > self.limits.age)
        {
            let Some(items) = run.drop_oldest(true) else {
                break;
            };
            for (_, kind) in items {
                gone.count(kind);
            }
        }
        held.items = held.items.saturating_sub(gone.items);
        held.snapshots = held.snapshots.saturating_sub(gone.snapshots);
        self.dropped += gone.items;
        self.live.shared.count_given_up(gone);
    }

    /// The directory's name says which run it was, and the rest is as it is now.
    fn rebuilt_hello(&self, run_id: &str) -> Hello {
        tracing::warn!(
            run_id,
            "the hello of an earlier run is damaged; it is made from this run's"
        );
        Hello {
            run_id: run_id.to_owned(),
            boot_id: String::new(),
            started_at: None,
            clock: None,
            ..self.live.hello.clone()
        }
    }

    fn tell(&self) {
        let now = (self.clocks.now)();
        let live = self.live.shared.status();
        let earlier = self.earlier.as_ref();
        let oldest_live = self
            .live
            .run
            .as_ref()
            .and_then(|run| run.first_age(now, true));
        let oldest_earlier = earlier.and_then(|e| e.run.first_age(now, e.same_boot));
        let items = live.queued_items + earlier.map_or(0, |e| e.shared.status().queued_items);
        let oldest = if items == 0 {
            None
        } else {
            oldest_live.max(oldest_earlier)
        };
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = SpoolStatus {
            usable: !self.failing,
            written_through: self.live.shared.written_through(),
            items: items as u64,
            bytes: self.bytes(),
            oldest: oldest.unwrap_or_default(),
            dropped: self.dropped,
            damaged: self.damaged,
            earlier_runs: (self.waiting.len() + usize::from(earlier.is_some())) as u64,
        };
    }

    /// Writes what is not written, and leaves nothing of a run that is done.
    fn end(&mut self) {
        self.look(true);
        if self.live.shared.is_settled()
            && let Some(run) = &mut self.live.run
        {
            run.remove();
        }
        self.syncer.end();
        self.tell();
    }
}

/// Reads back what a queue has room for; returns how many items turned out to be lost.
fn refill(shared: &Shared, run: &Run) -> u64 {
    let mut lost = 0;
    while let Some(from) = shared.wants() {
        let evicted = match run.read(from) {
            Some(chunk) => {
                if chunk.damaged_bytes > 0 {
                    tracing::warn!(bytes = chunk.damaged_bytes, "part of the spool is damaged");
                }
                shared.refill(chunk.entries, chunk.reached)
            }
            None => shared.nothing_on_disk(),
        };
        lost += evicted.items;
    }
    lost
}

/// Damaged records do not tell what they were; most are reports of an interval.
fn evicted(lost: u64) -> Evicted {
    Evicted {
        items: lost,
        snapshots: lost,
    }
}
