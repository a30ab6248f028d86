//! One thread reaps every process of the guest, orphans too, and keeps how they
//! ended until someone asks.

use crate::procfs;
use rdmesh_guest::Clocks;
use rustix::io::Errno;
use rustix::process::{WaitOptions, WaitStatus, wait};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Ends kept for processes that nobody asked about. A lab test starts a few hundred.
const MAX_KEPT: usize = 16_384;

/// How a process ended, and when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct End {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) at: Clocks,
}

#[derive(Default)]
struct State {
    /// Processes started so far; tells an idle reaper that there is work again.
    started: u64,
    ends: BTreeMap<i32, End>,
}

/// Shared handle to the ends.
#[derive(Clone, Default)]
pub(crate) struct Reaper(Arc<(Mutex<State>, Condvar)>);

/// Starts the reaping thread. It lives as long as PID 1.
pub(crate) fn start() -> Reaper {
    let reaper = Reaper::default();
    let ends = reaper.clone();
    std::thread::spawn(move || {
        let mut seen = 0;
        loop {
            match wait(WaitOptions::empty()) {
                Ok(Some((pid, status))) => ends.keep(pid.as_raw_nonzero().get(), status),
                Err(Errno::CHILD) => seen = ends.wait_for_start(seen),
                Ok(None) | Err(_) => {}
            }
        }
    });
    reaper
}

impl Reaper {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the reaper that a child was made.
    pub(crate) fn started(&self) {
        self.state().started += 1;
        self.0.1.notify_all();
    }

    fn wait_for_start(&self, seen: u64) -> u64 {
        let state = self.state();
        let state = self.0.1.wait_while(state, |state| state.started == seen);
        state.unwrap_or_else(PoisonError::into_inner).started
    }

    fn keep(&self, pid: i32, status: WaitStatus) {
        if !status.exited() && !status.signaled() {
            return;
        }
        let end = End {
            code: status.exit_status(),
            signal: status.terminating_signal(),
            at: procfs::clocks(),
        };
        let mut state = self.state();
        if state.ends.len() >= MAX_KEPT {
            state.ends.pop_first();
        }
        state.ends.insert(pid, end);
        self.0.1.notify_all();
    }

    /// Takes the end of `pid`, waiting up to `limit`; none while it still runs.
    pub(crate) fn wait(&self, pid: i32, limit: Duration) -> Option<End> {
        let deadline = Instant::now() + limit;
        let mut state = self.state();
        loop {
            if let Some(end) = state.ends.remove(&pid) {
                return Some(end);
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            state = self
                .0
                .1
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}
