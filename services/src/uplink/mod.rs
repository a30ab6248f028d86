//! The agents' ingest client: takes items, numbers them, and keeps each until the
//! collector says that it committed or rejected it.
//!
//! * Items are numbered from 1 in the order of [`UplinkHandle::push`]. An item that is
//!   given up leaves a gap in the numbers.
//! * After a connection is lost, the next one begins with a fresh Hello and repeats
//!   everything that is not acknowledged, in order. The collector recognises repeats
//!   by (host, agent, run id, sequence).
//! * What waits is bounded by count and bytes. Beyond, the oldest report of an
//!   interval (snapshot, heartbeat, window) goes, and is counted.
//! * With a [`spool`] it waits on disk, and memory holds what is sent next; what an
//!   earlier run of the agent left there is sent too.
//! * While it is connected and nothing is unacknowledged, nothing here wakes up: there
//!   is no ping and no timer. A dead peer is noticed because an acknowledgement
//!   stays away ([`ACK_WITHIN`]); an agent speaks every few seconds anyway.
//!
//! What it asks of the collector: answer a Hello by opening the response stream; send
//! something at least every [`ACK_WITHIN`] while items are unacknowledged, if only the
//! old sequence again with `slow_down_ms`; never end the stream because of an item.
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use rdmesh_services::{host, uplink::{Identity, Uplink, UplinkConfig}};
//! use rdmesh_proto::{common::v1::AgentKind, tracer::v1::Heartbeat};
//! let identity = Identity::new(AgentKind::Tracer, host::host_name("")?, host::boot_id()?);
//! let uplink = Uplink::start(&UplinkConfig::default(), move || identity.hello());
//! let handle = uplink.handle();
//! let beat = Heartbeat { snapshots_given_up: handle.given_up(), ..Default::default() };
//! let sequence = handle.push(beat)?;
//! # let _ = sequence;
//! let drained = uplink.drain(std::time::Duration::from_secs(2)).await;
//! assert!(drained.is_complete());
//! # Ok(()) }
//! ```

mod address;
mod backlog;
mod backoff;
mod dial;
mod driver;
mod hello;
mod instruments;
mod item;
mod queue;
mod session;
mod shared;
pub mod spool;
mod wire;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rdmesh_proto::collector::v1::Hello;
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;

use crate::config::{Check, Invalid, Validate};
use crate::tls::Tls;
use spool::Keeper;

pub use address::{CollectorAddress, CollectorAddresses};
pub use dial::{CollectorDialer, Dial, DialError, Dialing};
pub use hello::Identity;
pub use item::Item;
pub use shared::{PushError, Status};
pub use spool::{Spool, SpoolConfig, SpoolError, SpoolStatus};

/// Largest item, bytes on the wire. A snapshot of 200 records has 4.4 KB and one of
/// 4,000 under 200 KB; what is ten times larger is a fault of the builder, and it
/// would hold the stream for everyone behind it.
pub const MAX_ITEM_BYTES: usize = 2 << 20;

/// Items that wait by default: at one every five seconds, five and a half hours.
pub const DEFAULT_MEMORY_ITEMS: u32 = 4096;

/// Bytes that wait by default: the tracer is to stay under 20 MB resident. Holds
/// 900 snapshots of 200 records each, an hour and a quarter.
pub const DEFAULT_MEMORY_BYTES: u64 = 4 << 20;

/// Items sent and not yet acknowledged. The collector commits in batches of tens of
/// milliseconds; at 256 a replay of the whole memory still takes seconds only, and a
/// collector with 10,000 agents is never owed more than it can hold.
pub const WINDOW_ITEMS: usize = 256;

/// First wait after a lost connection: a collector that restarts is back in a second.
pub const BACKOFF_MIN: Duration = Duration::from_millis(200);

/// Longest wait between attempts. Below ten seconds, so that everything flows again
/// within ten seconds of a fault's end; 10,000 agents then knock 2,700 times a second
/// at most, spread by jitter.
pub const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// How long connecting and opening the stream may take: three SYN retransmissions
/// (1 + 2 + 4 s) and a slow hand-shake.
pub const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// How long the collector may be silent while items are unacknowledged. Longer than a
/// failover of its database takes to be noticed and refused; short enough that a
/// dead path costs half a minute of memory.
pub const ACK_WITHIN: Duration = Duration::from_secs(30);

/// How long the last write to the spool may take when the agent ends: a disk that syncs a
/// megabyte takes a tenth of it.
pub const LAST_WRITE_WITHIN: Duration = Duration::from_secs(2);

/// Longest pause that `slow_down_ms` can ask for. A slip of the collector must not
/// silence an agent for the seven weeks that the field can say.
pub const MAX_SLOW_DOWN: Duration = Duration::from_secs(60);

/// Largest response, bytes: an acknowledgement that rejects a whole window with a long
/// reason each stays below.
pub const MAX_RESPONSE_BYTES: usize = 1 << 20;

/// Section `[uplink]` of an agent's configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UplinkConfig {
    /// The collector: `HOST:PORT` or `http://HOST:PORT`; several on one database with commas
    /// between them. They are tried in turn, as are all addresses of a name.
    pub collector: CollectorAddresses,
    /// Items kept in memory until they are acknowledged; what is more waits on disk where
    /// there is a spool, and is given up where there is none.
    pub memory_items: u32,
    /// Their bytes.
    pub memory_bytes: u64,
    /// What waits on disk.
    pub spool: SpoolConfig,
}

impl Default for UplinkConfig {
    fn default() -> Self {
        Self {
            collector: CollectorAddresses::default(),
            memory_items: DEFAULT_MEMORY_ITEMS,
            memory_bytes: DEFAULT_MEMORY_BYTES,
            spool: SpoolConfig::default(),
        }
    }
}

impl Validate for UplinkConfig {
    fn validate(&self) -> Result<(), Invalid> {
        Check::range("memory_items", self.memory_items, 16..=1_000_000)?;
        Check::range(
            "memory_bytes",
            self.memory_bytes,
            MAX_ITEM_BYTES as u64..=1 << 30,
        )?;
        Check::section("spool", &self.spool)
    }
}

/// Times and sizes of one uplink; the constants of this module by default.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// See [`BACKOFF_MIN`].
    pub backoff_min: Duration,
    /// See [`BACKOFF_MAX`].
    pub backoff_max: Duration,
    /// See [`CONNECT_WITHIN`].
    pub connect_within: Duration,
    /// See [`ACK_WITHIN`].
    pub ack_within: Duration,
    /// See [`WINDOW_ITEMS`].
    pub window_items: usize,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            backoff_min: BACKOFF_MIN,
            backoff_max: BACKOFF_MAX,
            connect_within: CONNECT_WITHIN,
            ack_within: ACK_WITHIN,
            window_items: WINDOW_ITEMS,
        }
    }
}

/// What an uplink takes from its surroundings.
pub struct Surroundings {
    /// Makes connections.
    pub dialer: Box<dyn Dial>,
    /// Seeds the jitter of the back-off.
    pub seed: u64,
    /// The time of day, for [`Status`].
    pub wall_clock: fn() -> SystemTime,
    /// Times and sizes.
    pub pace: Pace,
    /// Where items wait beside memory.
    pub spool: Option<Spool>,
}

impl Surroundings {
    /// The real ones: plain TCP to the configured collector, a random seed, no spool.
    #[must_use]
    pub fn real(config: &UplinkConfig) -> Self {
        Self::over(config, &Tls::default())
    }

    /// The real ones, over TLS where `tls` has certificates.
    #[must_use]
    pub fn over(config: &UplinkConfig, tls: &Tls) -> Self {
        let seed = uuid::Uuid::new_v4().as_u64_pair().0;
        // Where several collectors are written, the first is not everybody's first.
        let turn = usize::try_from(seed >> 33).unwrap_or(0);
        Self {
            dialer: Box::new(
                CollectorDialer::from_turn(config.collector.clone(), turn).secured(tls.clone()),
            ),
            seed,
            wall_clock: SystemTime::now,
            pace: Pace::default(),
            spool: None,
        }
    }
}

/// A running uplink. Dropping it without [`Uplink::drain`] cuts the connection.
#[derive(Debug)]
pub struct Uplink {
    shared: Arc<shared::Shared>,
    task: JoinHandle<()>,
    earlier: Option<JoinHandle<()>>,
    keeper: Option<Keeper>,
}

/// Gives items to an uplink and asks how it fares. Cheap to clone.
#[derive(Clone, Debug)]
pub struct UplinkHandle {
    shared: Arc<shared::Shared>,
    spool: Option<Arc<Mutex<SpoolStatus>>>,
}

/// What [`Uplink::drain`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Items without an acknowledgement.
    pub items_left: usize,
    /// Snapshots among them.
    pub snapshots_left: usize,
    /// Whether the next run of the agent finds and sends them.
    pub kept_on_disk: bool,
}

impl Drained {
    /// Whether everything was acknowledged.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.items_left == 0
    }
}

impl Uplink {
    /// Starts connecting, as a task of the current runtime (of either kind). `hello` is
    /// asked for each connection; the uplink sends what it returns first.
    pub fn start(config: &UplinkConfig, hello: impl Fn() -> Hello + Send + Sync + 'static) -> Self {
        Self::start_in(Surroundings::real(config), config, hello)
    }

    /// [`Uplink::start`] with given surroundings.
    pub fn start_in(
        surroundings: Surroundings,
        config: &UplinkConfig,
        hello: impl Fn() -> Hello + Send + Sync + 'static,
    ) -> Self {
        let Surroundings {
            dialer,
            seed,
            wall_clock,
            pace,
            spool,
        } = surroundings;
        let dialer: Arc<dyn Dial> = dialer.into();
        let hello: Arc<dyn Fn() -> Hello + Send + Sync> = Arc::new(hello);
        let started = spool.and_then(|spool| start_keeper(spool, config, wall_clock, hello()));
        let (keeper, shared) = match started {
            Some((keeper, shared)) => (Some(keeper), shared),
            None => (None, Arc::new(shared::Shared::new(config, wall_clock))),
        };
        instruments::register(&shared);
        let earlier = keeper.as_ref().map(|keeper| {
            instruments::register_spool(&keeper.status());
            tokio::spawn(spool::send_earlier(
                keeper.waker(),
                Arc::clone(&shared),
                Arc::clone(&hello),
                Arc::clone(&dialer),
                pace,
                seed,
            ))
        });
        let driver = driver::Driver::new(Arc::clone(&shared), dialer, pace, seed, hello);
        let task = tokio::spawn(driver.run());
        Self {
            shared,
            task,
            earlier,
            keeper,
        }
    }

    /// A handle for whoever makes items.
    #[must_use]
    pub fn handle(&self) -> UplinkHandle {
        UplinkHandle {
            shared: Arc::clone(&self.shared),
            spool: self.keeper.as_ref().map(Keeper::status),
        }
    }

    /// Takes no more items, sends what waits, and returns when all is acknowledged or
    /// after `deadline`. Tries to connect at once if it is not connected. With a spool what
    /// is left then is on disk; that may take [`LAST_WRITE_WITHIN`] more.
    pub async fn drain(mut self, deadline: Duration) -> Drained {
        self.shared.close();
        if tokio::time::timeout(deadline, &mut self.task)
            .await
            .is_err()
        {
            self.task.abort();
        }
        self.stop_earlier();
        if let Some(thread) = self.keeper.as_mut().and_then(Keeper::end) {
            let ended = tokio::task::spawn_blocking(move || thread.join());
            if tokio::time::timeout(LAST_WRITE_WITHIN, ended)
                .await
                .is_err()
            {
                tracing::error!("the spool's disk does not answer; what is in memory may be lost");
            }
        }
        let drained = self.shared.left();
        if !drained.is_complete() {
            tracing::warn!(
                items = drained.items_left,
                snapshots = drained.snapshots_left,
                waited = ?deadline,
                kept_on_disk = drained.kept_on_disk,
                "ended with unacknowledged items"
            );
        }
        drained
    }

    fn stop_earlier(&self) {
        if let Some(earlier) = &self.earlier {
            earlier.abort();
        }
    }
}

/// A spool without a thread is none.
fn start_keeper(
    spool: Spool,
    config: &UplinkConfig,
    wall_clock: fn() -> SystemTime,
    hello: Hello,
) -> Option<(Keeper, Arc<shared::Shared>)> {
    let shared = |waker| Arc::new(shared::Shared::spooled(config, wall_clock, waker));
    Keeper::start(spool, config, shared, hello)
        .inspect_err(|error| {
            tracing::error!(%error, "no thread for the spool; items wait in memory alone");
        })
        .ok()
}

impl Drop for Uplink {
    fn drop(&mut self) {
        self.shared.close();
        self.task.abort();
        self.stop_earlier();
    }
}

impl UplinkHandle {
    /// Queues an item and returns its sequence. Never waits.
    ///
    /// # Errors
    /// [`PushError::TooLarge`] when it has more than [`MAX_ITEM_BYTES`]: split it;
    /// [`PushError::Closed`] when the uplink ended.
    pub fn push(&self, item: impl Into<Item>) -> Result<u64, PushError> {
        self.shared.push(item.into())
    }

    /// Snapshots that will not be sent any more: they fell out of memory or out of the
    /// spool, were too large, or were damaged on disk. Belongs into each snapshot's and heartbeat's `snapshots_given_up`.
    #[must_use]
    pub fn given_up(&self) -> u64 {
        self.shared.given_up()
    }

    /// How the uplink fares.
    #[must_use]
    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// How its spool fares; none where there is no spool.
    #[must_use]
    pub fn spool_status(&self) -> Option<SpoolStatus> {
        let status = self.spool.as_ref()?;
        Some(*status.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
