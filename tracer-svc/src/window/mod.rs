//! Windows: for some seconds every function that an entry point reaches is watched, to
//! record what good calls do or to say where failing ones part from them.
//!
//! A window runs on a thread of its own. The host has one at a time, and it always ends:
//! with its time, with whoever asked for it, with the tracer, or when modules are to be
//! let go. Nothing of it stays in the kernel.

pub(crate) mod contract;
mod gate;
mod shelf;
mod watch;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use rdmesh_services::shutdown::Closing;
use tokio::sync::mpsc;

use crate::baseline::{Fork, Key, Moment, Trace, Tree};
use crate::loader::{LoadError, Reach, Way, Wide};
use gate::{Gate, Pass};

pub use shelf::{Kept, Shelf, ShelfError};

/// Window of who does not say.
pub const DEFAULT_SECONDS: u32 = 10;
/// Longest window: the wide set costs each call some microseconds for each function.
pub const LONGEST_SECONDS: u32 = 300;
/// Kinds of failing calls that one window tells: a person reads no more, and a program
/// that makes more is a fuzzer.
const MAX_KINDS: usize = 200;
/// Words on their way to who asked. All kinds and all verbs have room, so that a window
/// never waits for a slow reader; of the progress a slow reader misses some.
const WAITING: usize = 512;
/// Room that progress leaves to the rest.
const ROOM_FOR_RESULTS: usize = 256;
/// Verbs of one window; the catalogue has 14.
const MAX_VERBS: usize = 32;
/// Stack of the thread: trees are walked as deep as they are, which is 48.
const STACK_BYTES: usize = 1 << 20;

/// What a window is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Good calls are kept.
    Record,
    /// Failing calls are laid beside good ones.
    Diff,
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// What for.
    pub purpose: Purpose,
    /// Which verbs; none: every one that has a baseline.
    pub verbs: Vec<String>,
    /// Which driver; none: the only one, or that of the baselines.
    pub driver: Option<String>,
    /// How long.
    pub seconds: u32,
    /// Of a comparison: baselines of this kernel and driver to lay calls beside; none:
    /// those that the host keeps.
    pub beside: Vec<Tree>,
}

/// How a window stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// What it does.
    pub phase: Phase,
    /// Of its time, rounded up.
    pub seconds_left: u32,
    /// The driver whose functions are watched; empty while it is not known.
    pub driver: String,
    /// Functions that are watched.
    pub functions: usize,
    /// Reached, and cannot be watched.
    pub unwatchable: usize,
    /// Reached, and left out because the kernel takes them one by one.
    pub beyond_bound: usize,
    /// Calls that succeeded within the limit of good ones.
    pub good: u64,
    /// Calls that succeeded and took longer, or found no room in the tree.
    pub slow: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Calls that could not be followed.
    pub lost: u64,
    /// Kinds of failing calls that were told.
    pub kinds: usize,
}

/// What a window does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Calls are followed through the module files.
    #[default]
    Finding,
    /// Functions are hooked.
    Attaching,
    /// Moments come.
    Watching,
    /// All is taken off.
    Ended,
}

/// A failing call and where it parts from good ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parted {
    /// Its verb.
    pub verb: String,
    /// When it returned.
    pub at: SystemTime,
    /// The call.
    pub trace: Trace,
    /// Names of its functions by their numbers.
    pub names: Arc<[String]>,
    /// Where it parts.
    pub fork: Fork,
}

/// What a window tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// How it stands.
    Progress(Progress),
    /// A baseline as it is kept.
    Recorded(Tree),
    /// A new kind of failing call.
    Parted(Box<Parted>),
}

/// Why there is no window, or no result of one.
#[derive(Debug, thiserror::Error)]
pub enum WindowError {
    /// There is one.
    #[error(
        "this host has a window open until {left} s from now ({what}); wait for its end, since two \
         would count each other's calls"
    )]
    Busy {
        /// What for.
        what: String,
        /// How long at most.
        left: u64,
    },
    /// What was asked for is none.
    #[error("{0}")]
    Asked(String),
    /// There is nothing to lay failing calls beside.
    #[error(
        "no baseline of {what} on this kernel; record one while good calls are made: rdmesh \
         baseline record HOST {verbs}"
    )]
    NoBaseline {
        /// Which.
        what: String,
        /// As the command takes them.
        verbs: String,
    },
    /// Nothing succeeded.
    #[error(
        "no call of {verbs} succeeded within the window ({failed} failed, {slow} took longer than \
         50 ms, {lost} could not be followed); let jobs run meanwhile, or watch longer with \
         --seconds"
    )]
    NothingGood {
        /// Which verbs.
        verbs: String,
        /// Calls that failed.
        failed: u64,
        /// Calls that took too long.
        slow: u64,
        /// Calls that could not be followed.
        lost: u64,
    },
    /// The kernel's side.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The files.
    #[error(transparent)]
    Shelf(#[from] ShelfError),
    /// It was closed before its time.
    #[error("the window was closed before its time: {0}")]
    Closed(&'static str),
    /// The system has no thread for it.
    #[error("no thread for the window: {0}")]
    Thread(std::io::Error),
}

/// Moments of the wide set; dropping it takes the set off.
pub trait Moments {
    /// The next one; none when there is none yet. Never blocks.
    fn next(&mut self) -> Option<Moment>;
    /// Moments that found no room.
    ///
    /// # Errors
    /// The kernel does not say.
    fn lost(&self) -> Result<u64, LoadError>;
    /// How many of the functions are watched: the first.
    fn functions(&self) -> usize;
    /// How.
    fn way(&self) -> Way;
}

/// What a window needs of the kernel, so that tests can play it.
pub trait Field: Send + Sync + 'static {
    /// `uname -r`.
    fn release(&self) -> String;
    /// What these verbs reach. Takes seconds.
    ///
    /// # Errors
    /// As [`Reach::of`].
    fn reach(&self, verbs: &[String], driver: Option<&str>) -> Result<Reach, LoadError>;
    /// Watches it.
    ///
    /// # Errors
    /// As [`Wide::attach`].
    fn attach(
        &self,
        reach: &Reach,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Box<dyn Moments>, LoadError>;
}

/// The running kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct LiveField;

impl Moments for Wide {
    fn next(&mut self) -> Option<Moment> {
        self.next_moment()
    }

    fn lost(&self) -> Result<u64, LoadError> {
        Self::lost(self)
    }

    fn functions(&self) -> usize {
        Self::functions(self)
    }

    fn way(&self) -> Way {
        Self::way(self)
    }
}

impl Field for LiveField {
    fn release(&self) -> String {
        let uname = rustix::system::uname();
        uname.release().to_string_lossy().into_owned()
    }

    fn reach(&self, verbs: &[String], driver: Option<&str>) -> Result<Reach, LoadError> {
        Reach::of(verbs, driver)
    }

    fn attach(
        &self,
        reach: &Reach,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Box<dyn Moments>, LoadError> {
        Ok(Box::new(Wide::attach(&reach.places, go_on)?))
    }
}

/// The windows of a host, and the baselines that they made. Cheap to clone.
#[derive(Clone)]
pub struct Windows {
    field: Arc<dyn Field>,
    shelf: Shelf,
    gate: Gate,
    ending: Closing,
}

impl std::fmt::Debug for Windows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Windows")
            .field("shelf", &self.shelf)
            .finish_non_exhaustive()
    }
}

/// What comes of a window, until it ends.
pub type Words = mpsc::Receiver<Result<Told, WindowError>>;

impl Windows {
    /// `ending` closes the window that is open.
    #[must_use]
    pub fn new(field: impl Field, shelf: Shelf, ending: Closing) -> Self {
        Self {
            field: Arc::new(field),
            shelf,
            gate: Gate::default(),
            ending,
        }
    }

    /// The kernel, as `uname -r` tells it.
    #[must_use]
    pub fn release(&self) -> String {
        self.field.release()
    }

    /// The baselines that are kept.
    #[must_use]
    pub fn shelf(&self) -> &Shelf {
        &self.shelf
    }

    /// Opens a window; it is closed when the receiver is dropped.
    ///
    /// # Errors
    /// There is one already, or what is asked for is none.
    pub fn open(&self, ask: Ask) -> Result<Words, WindowError> {
        let ask = checked(ask)?;
        let what = match ask.purpose {
            Purpose::Record => "a recording",
            Purpose::Diff => "a comparison",
        };
        let length = Duration::from_secs(u64::from(ask.seconds));
        let pass = self.gate.enter(what, length)?;
        let (sender, words) = mpsc::channel(WAITING);
        let closes = self.close_with(&pass, sender.clone());
        tokio::spawn(closes);
        let (field, shelf) = (Arc::clone(&self.field), self.shelf.clone());
        let window = watch::Window {
            field,
            shelf,
            ask,
            pass,
            sender,
        };
        std::thread::Builder::new()
            .name("window".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || window.run())
            .map_err(WindowError::Thread)?;
        Ok(words)
    }

    /// Closes the window when nobody listens any more, or the tracer ends.
    fn close_with(
        &self,
        pass: &Pass,
        sender: mpsc::Sender<Result<Told, WindowError>>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let (closed, mut over) = (Arc::clone(pass.closed()), pass.over());
        let ending = self.ending.clone();
        async move {
            tokio::select! {
                () = sender.closed() => {}
                () = ending.requested() => {}
                () = over.over() => return,
            }
            closed.store(true, Ordering::Relaxed);
        }
    }

    /// Closes the window that is open, if any, and waits until all is taken off, half a
    /// minute at most: links of functions keep their module from going.
    pub async fn close(&self) {
        self.gate.close().await;
    }
}

fn checked(ask: Ask) -> Result<Ask, WindowError> {
    let wrong = |what: String| Err(WindowError::Asked(what));
    if ask.purpose == Purpose::Record && ask.verbs.is_empty() {
        return wrong("name a verb at least: reg_mr, create_qp, modify_qp, …".to_owned());
    }
    if ask.verbs.len() > MAX_VERBS {
        return wrong(format!("{} verbs; {MAX_VERBS} at most", ask.verbs.len()));
    }
    if ask.seconds > LONGEST_SECONDS {
        let seconds = ask.seconds;
        return wrong(format!(
            "a window of {seconds} s; it costs every call something, and {LONGEST_SECONDS} s is \
             the longest"
        ));
    }
    let seconds = match ask.seconds {
        0 => DEFAULT_SECONDS,
        seconds => seconds,
    };
    let mut verbs = ask.verbs;
    verbs.sort();
    verbs.dedup();
    Ok(Ask {
        seconds,
        verbs,
        ..ask
    })
}

/// The baseline of a verb.
fn key(kernel: &str, driver: &str, verb: &str) -> Key {
    Key {
        kernel: kernel.to_owned(),
        driver: driver.to_owned(),
        verb: verb.to_owned(),
    }
}

#[cfg(test)]
pub(crate) mod played;
#[cfg(test)]
mod tests;
