//! Brings what was written to the platters, on a thread of its own: a write must not wait
//! for the sync of the one before, or a killed agent would lose what came meanwhile.

use std::fs::File;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Syncs files in the background, as soon as the sync before has ended.
#[derive(Debug)]
pub(super) struct Syncer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    files: Vec<Arc<File>>,
    ended: bool,
    trouble_told: bool,
}

impl Shared {
    /// Nothing is left half done under the lock.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        loop {
            let mut state = self.lock();
            while state.files.is_empty() && !state.ended {
                state = self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            let files = std::mem::take(&mut state.files);
            if files.is_empty() {
                return;
            }
            drop(state);
            // Directories too: fdatasync would not do for them.
            let synced = files.iter().try_for_each(|file| file.sync_all());
            let mut state = self.lock();
            match synced {
                Ok(()) => state.trouble_told = false,
                Err(error) if !state.trouble_told => {
                    state.trouble_told = true;
                    tracing::error!(%error, "the spool cannot be synced: a power cut would lose what it holds");
                }
                Err(_) => {}
            }
        }
    }
}

impl Syncer {
    pub(super) fn start() -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("spool-sync".to_owned())
            .spawn(move || theirs.work())?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Has files synced; returns at once.
    pub(super) fn sync(&self, files: Vec<Arc<File>>) {
        let mut state = self.shared.lock();
        for file in files {
            if !state.files.iter().any(|known| Arc::ptr_eq(known, &file)) {
                state.files.push(file);
            }
        }
        drop(state);
        self.shared.changed.notify_one();
    }

    /// Ends when everything is synced.
    pub(super) fn end(&mut self) {
        self.shared.lock().ended = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // It panics nowhere; and there is nothing to do about it here.
            let _ = thread.join();
        }
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.end();
    }
}
