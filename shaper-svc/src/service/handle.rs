//! A running data path as the service sees it, on whatever ports it runs.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;

use crate::datapath::{Clock, DataPath, ThreadLink, WireLink};
use crate::port::Port;

/// A port's counters and sizes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortState {
    /// Its name.
    pub name: String,
    /// Receive ring, frames.
    pub rx_descriptors: u32,
    /// Send ring, frames.
    pub tx_descriptors: u32,
    /// Frames received.
    pub rx_frames: u64,
    /// Frames sent.
    pub tx_frames: u64,
    /// Dropped by the device because the receive ring was full.
    pub imissed: u64,
    /// Dropped because the pool was empty.
    pub rx_nombuf: u64,
    /// Times that the device helped itself against an overflow of the receive ring by
    /// holding the sender back.
    pub back_pressure_help: u64,
    /// Buffers of its pool.
    pub pool_frames: u32,
    /// Buffers that are not in use.
    pub pool_free_frames: u32,
}

/// A port that went away while the service ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gone {
    /// The port.
    pub port: String,
    /// What went, in words.
    pub what: String,
    /// It is there again; a new process can use it.
    pub is_back: bool,
}

/// What the service asks of ports outside of the poll loop.
pub trait Ports: Debug + Send + Sync {
    /// Counters and sizes, one for each port, in the order of the data path.
    fn states(&self) -> Vec<PortState>;

    /// The first port that went away, if any.
    fn gone(&self) -> Option<Gone>;

    /// Indices of the ports that have no link: frames that they took wait in them.
    fn without_link(&self) -> Vec<usize>;

    /// Puts a wire around the shaper in hardware, or through it again. False when the
    /// device cannot: then the poll loop lets its frames pass unshaped.
    fn bypass_in_hardware(&self, wire: usize, bypass: bool) -> bool;
}

/// A running data path.
#[derive(Debug)]
pub struct DataPathHandle {
    /// One for each wire.
    pub links: Vec<Arc<WireLink>>,
    /// Index of the port that feeds each wire.
    pub in_ports: Vec<usize>,
    /// Index of the port that each wire feeds.
    pub out_ports: Vec<usize>,
    /// The poll thread.
    pub thread: Arc<ThreadLink>,
    /// Its clock, ps.
    pub clock: SharedClock,
    /// Its ports.
    pub ports: Arc<dyn Ports>,
    /// Memory of pools, queues and tables, bytes.
    pub memory_bytes: u64,
    /// Joined at the end.
    pub join: Option<JoinHandle<()>>,
}

/// The poll thread's clock, read from other threads.
#[derive(Clone)]
pub struct SharedClock(Arc<dyn Fn() -> u64 + Send + Sync>);

impl SharedClock {
    /// Shares a clock.
    pub fn new(clock: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(clock))
    }

    /// Now, ps.
    #[must_use]
    pub fn now_ps(&self) -> u64 {
        (self.0)()
    }
}

impl Debug for SharedClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedClock({})", self.now_ps())
    }
}

impl DataPathHandle {
    /// Stops the poll loop, which lets waiting frames out, and waits for it.
    pub fn stop(&mut self) {
        self.thread.stop();
        // A thread that was abandoned is not waited for.
        if let Some(join) = self.join.take()
            && join.join().is_err()
        {
            tracing::error!("the poll thread ended in a failure of its own clean-up");
        }
    }
}

impl DataPathHandle {
    /// Leaves a poll thread that hangs behind; the process has to end.
    pub fn abandon(mut self) {
        self.join = None;
    }
}

impl Drop for DataPathHandle {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Starts a thread that makes a data path and runs it: ports stay on the thread that
/// made them. Returns once it runs.
///
/// # Errors
/// What `make` says.
pub fn spawn<P, C, E>(
    thread: &Arc<ThreadLink>,
    make: impl FnOnce() -> Result<DataPath<P, C>, E> + Send + 'static,
) -> Result<JoinHandle<()>, E>
where
    P: Port,
    C: Clock,
    E: Send + From<std::io::Error> + 'static,
{
    let (made, is_made) = mpsc::sync_channel(1);
    let link = Arc::clone(thread);
    let join = std::thread::Builder::new()
        .name("poll".to_owned())
        .spawn(move || match make() {
            Ok(mut path) => {
                // The receiver waits for exactly this.
                let _ = made.send(Ok(()));
                path.run(&link);
            }
            Err(error) => {
                let _ = made.send(Err(error));
            }
        })?;
    match is_made.recv() {
        Ok(Ok(())) => Ok(join),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(std::io::Error::other("the poll thread failed while it started").into()),
    }
}
