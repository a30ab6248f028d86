//! Requests made real: in force, on disk, in the audit record.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::audit::{Audit, Entry, Past};
use super::control::{Change, Control, Done, Refused, Request, WireControl};
use super::state::{MAX_OUTAGES, SavedOutage, State, StateError, StateFiles, from_ms, to_ms};
use crate::datapath::WireLink;
use crate::engine::Speed;

/// How long the poll loop may take to put an order in force. A turn takes
/// microseconds; a core that others use is away for tens of milliseconds.
const IN_FORCE_WITHIN: Duration = Duration::from_secs(1);

/// Entries of what happened by itself that wait for a record that can be written: sixteen of
/// each wire.
const MAX_UNRECORDED: usize = 256;

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
    /// It could not be kept.
    #[error("the change was taken back because it could not be kept: {0}")]
    NotKept(#[from] KeepError),
}

/// Why something is neither remembered nor recorded.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// It could not be remembered.
    #[error(transparent)]
    State(#[from] StateError),
    /// It could not be recorded.
    #[error("cannot write the audit record: {0}; the disk must have room")]
    Audit(std::io::Error),
}

/// Why a wire may start in another way than the record's last entry of it says.
const NOT_AS_BEFORE: &str = "the last change was not kept before the service ended, or the \
                             configuration or the state were changed since";

/// What is wrong with the files; nothing of it keeps wires from shaping.
#[derive(Debug, Default)]
struct Faults {
    /// The state of before, until the end of this process.
    lost: Option<String>,
    /// Until the state can be written again.
    state: Option<String>,
    /// Until the record can be written again.
    audit: Option<String>,
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
    /// What happened by itself, and is not in the record yet.
    unrecorded: Vec<Entry>,
    faults: Faults,
}

impl Ledger {
    /// Tells each link what its wire is to do, records what is not as it was before this
    /// process (`lost`: all of it, and why), and remembers the state. Files that cannot be
    /// written are a fault that is told: a host is not cut off for their sake.
    #[must_use]
    pub fn begin(
        control: Control,
        links: Vec<Arc<WireLink>>,
        state: State,
        lost: Option<String>,
        files: StateFiles,
        now: SystemTime,
    ) -> Self {
        let audit = Audit::at(&files.audit_path());
        let past = audit.last_of_each();
        let mut control = control;
        control.count_on_from(&past);
        for (wire, link) in control.wires().iter().zip(&links) {
            link.order(wire.order(now));
        }
        let mut ledger = Self {
            audit,
            control,
            links,
            outages: state.outages,
            away_since: None,
            files,
            unrecorded: Vec::new(),
            faults: Faults {
                lost,
                ..Faults::default()
            },
        };
        ledger.unrecorded = ledger.entries_of_start(&past, now);
        if let Err(error) = ledger.catch_up() {
            tracing::error!(%error, "how the wires start is not recorded");
        }
        if let Err(error) = ledger.save() {
            tracing::error!(%error, "rates are not kept over a restart until this can be written");
        }
        ledger
    }

    fn entries_of_start(&self, past: &BTreeMap<String, Past>, now: SystemTime) -> Vec<Entry> {
        let entry = |wire: &WireControl, action, from_rate_bps, reason: &str| Entry {
            reason: reason.to_owned(),
            from_rate_bps,
            to_rate_bps: bps(wire.speed()),
            bypass: wire.bypass,
            generation: wire.generation,
            ..Entry::by_itself(now, &wire.facts.name, action)
        };
        let reverted = self.control.reverted().iter().map(|reverted| {
            let wire = &self.control.wires()[reverted.wire];
            entry(wire, reverted.action, reverted.rate_bps, &reverted.why)
        });
        let gone = self.control.gone().iter().map(|wire| Entry {
            reason: "the configuration has no wire of this name any more".to_owned(),
            from_rate_bps: wire.rate_bps.unwrap_or(0),
            bypass: wire.bypass,
            generation: wire.generation,
            ..Entry::by_itself(now, &wire.name, "gone")
        });
        let mut entries: Vec<Entry> = reverted.chain(gone).collect();
        if let Some(lost) = &self.faults.lost {
            tracing::error!(fault = lost, "the state of before is lost");
            let wires = self.control.wires().iter();
            entries.extend(wires.map(|wire| entry(wire, "state_lost", 0, lost)));
        }
        for wire in self.control.wires() {
            let name = &wire.facts.name;
            let is_told = entries.iter().any(|told| told.wire == *name);
            let differs = |past: &&Past| {
                past.action != "gone"
                    && (past.to_rate_bps != bps(wire.speed()) || past.bypass != wire.bypass)
            };
            if let Some(past) = past.get(name).filter(differs)
                && !is_told
            {
                entries.push(entry(wire, "restarted", past.to_rate_bps, NOT_AS_BEFORE));
            }
        }
        entries
    }

    /// What is wrong with the state directory; `None`: nothing.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        let Faults { lost, state, audit } = &self.faults;
        let faults: Vec<&str> = [lost, state, audit]
            .into_iter()
            .flatten()
            .map(String::as_str)
            .collect();
        (!faults.is_empty()).then(|| faults.join("; "))
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
            self.keep(&entries).map_err(ApplyError::from)
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

    /// Ends changes whose time is over; returns the names of their wires, and whether that
    /// was kept. It is in force all the same, since the engine ends a rate by itself.
    pub fn expire(&mut self, now: SystemTime) -> (Vec<String>, Result<(), KeepError>) {
        let before = self.control.clone();
        let ended = self.control.expire(now);
        if ended.is_empty() {
            return (Vec::new(), Ok(()));
        }
        let mut wires = Vec::new();
        for &wire in &ended {
            self.order(wire, now);
            let (old, new) = (&before.wires()[wire], &self.control.wires()[wire]);
            wires.push(new.facts.name.clone());
            self.unrecorded.push(Entry {
                from_rate_bps: bps(old.speed()),
                to_rate_bps: bps(new.speed()),
                bypass: new.bypass,
                generation: new.generation,
                ..Entry::by_itself(now, &new.facts.name, "expired")
            });
        }
        let beyond = self.unrecorded.len().saturating_sub(MAX_UNRECORDED);
        self.unrecorded.drain(..beyond);
        let recorded = self.catch_up();
        let saved = self.save().map_err(KeepError::from);
        (wires, recorded.and(saved))
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
        // A clock that was set back makes no outage that ends before it begins.
        let last_alive = last_alive.map(|at| at.min(now));
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

    /// Notes that windows are made; see [`StateFiles::note_alive`]. Writes state and record
    /// too if that failed before.
    ///
    /// # Errors
    /// [`KeepError`].
    pub fn note_alive(&mut self, now: SystemTime) -> Result<(), KeepError> {
        self.files.note_alive(now)?;
        if self.faults.state.is_some() {
            self.save()?;
            tracing::info!("the state is kept again");
        }
        if self.faults.audit.is_some() {
            self.catch_up()?;
            tracing::info!("the audit record is kept again");
        }
        Ok(())
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

    /// Records and remembers a change, or does neither.
    fn keep(&mut self, entries: &[Entry]) -> Result<(), KeepError> {
        let end = self.audit.append(entries).map_err(|error| {
            self.faults.audit = Some(unwritable(&error));
            KeepError::Audit(error)
        })?;
        self.save().map_err(|error| {
            if let Err(error) = end.restore() {
                tracing::error!(%error, "the audit record tells of a change that was taken back");
            }
            error.into()
        })
    }

    /// Records what happened by itself.
    fn catch_up(&mut self) -> Result<(), KeepError> {
        if self.unrecorded.is_empty() && self.faults.audit.is_none() {
            return Ok(());
        }
        let recorded = self.audit.append(&self.unrecorded);
        self.faults.audit = recorded.as_ref().err().map(unwritable);
        recorded.map_err(KeepError::Audit)?;
        self.unrecorded.clear();
        Ok(())
    }

    fn save(&mut self) -> Result<(), StateError> {
        let (wires, requests) = self.control.saved();
        let saved = self.files.save(&State {
            wires,
            requests,
            outages: self.outages.clone(),
            first_generation: 0,
        });
        self.faults.state = saved.as_ref().err().map(ToString::to_string);
        saved
    }
}

fn unwritable(why: &std::io::Error) -> String {
    format!("cannot write the audit record: {why}")
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
