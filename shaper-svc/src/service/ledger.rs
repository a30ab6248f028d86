//! Requests made real: in force, on disk, in the audit record.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::audit::{Audit, Entry};
use super::control::{Change, Control, Done, Refused, Request, WireControl};
use super::state::{MAX_OUTAGES, SavedOutage, State, StateError, StateFiles, from_ms, to_ms};
use crate::datapath::WireLink;
use crate::engine::Speed;

/// How long the poll loop may take to put an order in force. A turn takes
/// microseconds; a core that others use is away for tens of milliseconds.
const IN_FORCE_WITHIN: Duration = Duration::from_secs(1);

/// Cause of an outage that nobody noted.
const ENDED_UNTOLD: &str =
    "the service ended without a stop: killed, crashed, or the machine went down";

/// Who asks.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// Peer address.
    pub peer: String,
    /// Who, as the client says.
    pub user: String,
}

/// Why a change was not made.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The request is wrong.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The poll loop does not answer.
    #[error(
        "the data path has not taken the change within {IN_FORCE_WITHIN:?}; see the data path \
         report, and repeat the request with the same id"
    )]
    NotInForce,
    /// It could not be remembered.
    #[error("the change was taken back because it could not be kept: {0}")]
    State(#[from] StateError),
    /// It could not be recorded.
    #[error("the change was taken back because it could not be recorded: {0}; is the disk full?")]
    Audit(std::io::Error),
}

/// Wires, their links, and the files.
#[derive(Debug)]
pub struct Ledger {
    control: Control,
    links: Vec<Arc<WireLink>>,
    outages: Vec<SavedOutage>,
    /// When the process before was last known to make windows.
    away_since: Option<SystemTime>,
    files: StateFiles,
    audit: Audit,
}

impl Ledger {
    /// Tells each link what its wire is to do and remembers the state.
    ///
    /// # Errors
    /// [`ApplyError::State`] or [`ApplyError::Audit`] when the files cannot be
    /// written.
    pub fn begin(
        control: Control,
        links: Vec<Arc<WireLink>>,
        state: State,
        files: StateFiles,
        now: SystemTime,
    ) -> Result<Self, ApplyError> {
        let audit = Audit::open(&files.audit_path()).map_err(ApplyError::Audit)?;
        for (wire, link) in control.wires().iter().zip(&links) {
            link.order(wire.order(now));
        }
        let ledger = Self {
            control,
            links,
            outages: state.outages,
            away_since: None,
            files,
            audit,
        };
        ledger.save()?;
        Ok(ledger)
    }

    /// The wires.
    #[must_use]
    pub fn wires(&self) -> &[WireControl] {
        self.control.wires()
    }

    /// Makes a change: puts it in force, then records and remembers it; takes it back
    /// if that fails. Blocks for the time of two writes to disk.
    ///
    /// # Errors
    /// [`ApplyError`].
    pub fn apply(
        &mut self,
        request: &Request,
        caller: &Caller,
        now: SystemTime,
    ) -> Result<Done, ApplyError> {
        let before = self.control.clone();
        let mut done = self.control.apply(request, now)?;
        if done.repeated {
            return Ok(done);
        }
        let kept = self.put_in_force(&done.wires, now).and_then(|()| {
            done.in_force_at = Some(Instant::now());
            let entries: Vec<Entry> = done
                .wires
                .iter()
                .map(|&wire| {
                    entry(
                        &before.wires()[wire],
                        &self.control.wires()[wire],
                        request,
                        caller,
                        now,
                    )
                })
                .collect();
            self.audit.append(&entries).map_err(ApplyError::Audit)?;
            self.save().map_err(ApplyError::State)
        });
        if let Err(error) = kept {
            let wires = done.wires;
            self.control = before;
            for wire in wires {
                self.order(wire, now);
            }
            return Err(error);
        }
        Ok(done)
    }

    /// Ends changes whose time is over; returns the names of their wires.
    ///
    /// # Errors
    /// [`ApplyError`] when that could not be recorded; it is in force all the same,
    /// since the engine ends a rate by itself.
    pub fn expire(&mut self, now: SystemTime) -> Result<Vec<String>, ApplyError> {
        let before = self.control.clone();
        let ended = self.control.expire(now);
        if ended.is_empty() {
            return Ok(Vec::new());
        }
        let mut entries = Vec::new();
        for &wire in &ended {
            self.order(wire, now);
            let (old, new) = (&before.wires()[wire], &self.control.wires()[wire]);
            entries.push(Entry {
                from_rate_bps: bps(old.speed()),
                to_rate_bps: bps(new.speed()),
                bypass: new.bypass,
                generation: new.generation,
                ..Entry::by_itself(now, &new.facts.name, "expired")
            });
        }
        self.audit.append(&entries).map_err(ApplyError::Audit)?;
        self.save()?;
        Ok(entries.into_iter().map(|entry| entry.wire).collect())
    }

    /// Outages, oldest first.
    #[must_use]
    pub fn outages(&self) -> &[SavedOutage] {
        &self.outages
    }

    /// Notes that the data path went down. A second cause within an outage is dropped.
    ///
    /// # Errors
    /// [`StateError`]; the outage is reported all the same.
    pub fn outage_began(&mut self, from: SystemTime, cause: &str) -> Result<(), StateError> {
        if self.outages.last().is_some_and(|last| last.to_ms.is_none()) {
            return Ok(());
        }
        if self.outages.len() >= MAX_OUTAGES {
            self.outages.remove(0);
        }
        self.outages.push(SavedOutage {
            from_ms: to_ms(from),
            to_ms: None,
            cause: cause.to_owned(),
        });
        self.save()
    }

    /// Ends the outage in which this process started, if there was a process before,
    /// which was last known to run at `last_alive`.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn resume(
        &mut self,
        last_alive: Option<SystemTime>,
        now: SystemTime,
    ) -> Result<(), StateError> {
        if let Some(last_alive) = last_alive {
            // Only if no stop is noted, which would say more.
            self.outage_began(last_alive, ENDED_UNTOLD)?;
        }
        let lasting = self.outages.last().filter(|last| last.to_ms.is_none());
        // Until it ended, the process before told of the outage itself.
        self.away_since = lasting.and_then(|outage| last_alive.max(Some(from_ms(outage.from_ms))));
        self.outage_ended(now)
    }

    /// Since when no frame passed before this process; none at a first start.
    #[must_use]
    pub const fn away_since(&self) -> Option<SystemTime> {
        self.away_since
    }

    /// Notes that frames passed up to `from`, after the outage that lasts was noted.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn outage_moved(&mut self, from: SystemTime) -> Result<(), StateError> {
        match self.outages.last_mut() {
            Some(last) if last.to_ms.is_none() => last.from_ms = to_ms(from).max(last.from_ms),
            _ => return Ok(()),
        }
        self.save()
    }

    /// Notes that the data path runs again.
    ///
    /// # Errors
    /// [`StateError`]; the outage is reported as ended all the same.
    pub fn outage_ended(&mut self, to: SystemTime) -> Result<(), StateError> {
        match self.outages.last_mut() {
            Some(last) if last.to_ms.is_none() => last.to_ms = Some(to_ms(to)),
            _ => return Ok(()),
        }
        self.save()
    }

    /// Notes that windows are made; see [`StateFiles::note_alive`].
    ///
    /// # Errors
    /// [`StateError`].
    pub fn note_alive(&self, now: SystemTime) -> Result<(), StateError> {
        self.files.note_alive(now)
    }

    fn order(&self, wire: usize, now: SystemTime) {
        self.links[wire].order(self.control.wires()[wire].order(now));
    }

    fn put_in_force(&self, wires: &[usize], now: SystemTime) -> Result<(), ApplyError> {
        for &wire in wires {
            self.order(wire, now);
        }
        let deadline = Instant::now() + IN_FORCE_WITHIN;
        for &wire in wires {
            let generation = self.control.wires()[wire].generation;
            while self.links[wire].generation_in_force() != generation {
                if Instant::now() > deadline {
                    return Err(ApplyError::NotInForce);
                }
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    fn save(&self) -> Result<(), StateError> {
        let (wires, requests) = self.control.saved();
        self.files.save(&State {
            wires,
            requests,
            outages: self.outages.clone(),
        })
    }
}

fn bps(speed: Speed) -> u64 {
    match speed {
        Speed::Unshaped => 0,
        Speed::Rate(rate) => rate.bps(),
    }
}

fn entry(
    old: &WireControl,
    new: &WireControl,
    request: &Request,
    caller: &Caller,
    now: SystemTime,
) -> Entry {
    let action = match &request.change {
        Change::Rate { .. } => "set_rate",
        Change::Reset { .. } => "reset",
        Change::Bypass { bypass: true, .. } => "bypass",
        Change::Bypass { bypass: false, .. } => "shape",
    };
    Entry {
        peer: caller.peer.clone(),
        user: caller.user.clone(),
        request_id: request.id.clone(),
        reason: request.reason.clone(),
        from_rate_bps: bps(old.speed()),
        to_rate_bps: bps(new.speed()),
        expires_at_ms: new.changed.and_then(|(_, at)| at).map(to_ms),
        bypass: new.bypass,
        generation: new.generation,
        ..Entry::by_itself(now, &new.facts.name, action)
    }
}
