//! What each wire is told: requests in, orders out. Pure; time is an argument.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use super::audit::Past;
use super::state::{MAX_GENERATION, Remembered, SavedWire, State};
use crate::datapath::Order;
use crate::engine::{Expiry, MAX_EXPIRY_PS, Match, Policy, Rule, Speed};
use crate::rate::{LineRate, MIN_RATE_BPS};

/// Requests that are remembered by id. A client repeats one within minutes, and
/// nobody changes rates a thousand times in that time.
pub const MAX_REMEMBERED: usize = 1024;

/// Longest `reason`, bytes.
pub const MAX_REASON_BYTES: usize = 1024;

/// What is fixed about a wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireFacts {
    /// Its name.
    pub name: String,
    /// The function.
    pub virtual_function: String,
    /// Where `reset` goes back to.
    pub configured: Speed,
    /// The fastest it can be, bit/s.
    pub fastest_bps: u64,
}

/// A wire as it is asked to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireControl {
    /// What is fixed.
    pub facts: WireFacts,
    /// A rate in place of the configured one, and when it ends.
    pub changed: Option<(LineRate, Option<SystemTime>)>,
    /// Around the shaper.
    pub bypass: bool,
    /// Grows with each change.
    pub generation: u64,
}

impl WireControl {
    /// The speed asked for, bypass not counted.
    #[must_use]
    pub fn speed(&self) -> Speed {
        self.changed
            .map_or(self.facts.configured, |(rate, _)| Speed::Rate(rate))
    }

    /// What to tell the poll loop now.
    #[must_use]
    pub fn order(&self, now: SystemTime) -> Order {
        let expiry = match self.changed {
            Some((_, Some(at))) if !self.bypass => {
                let left = at.duration_since(now).unwrap_or_default();
                let after_ps = u64::try_from(left.as_nanos() * 1000).unwrap_or(MAX_EXPIRY_PS);
                let after_ps = after_ps.clamp(1, MAX_EXPIRY_PS);
                Some(Expiry {
                    after_ps,
                    then: self.facts.configured,
                })
            }
            _ => None,
        };
        let speed = if self.bypass {
            Speed::Unshaped
        } else {
            self.speed()
        };
        let rule = Rule {
            applies_to: Match::Every,
            speed,
            expiry,
        };
        let policy = Policy::new(self.generation, &[rule])
            .unwrap_or_else(|_| Policy::constant(self.generation, speed));
        Order {
            policy,
            bypass: self.bypass,
        }
    }
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// No such wire.
    #[error("there is no wire `{wire}`; the wires are: {known}")]
    UnknownWire {
        /// What was named.
        wire: String,
        /// What there is.
        known: String,
    },
    /// A field is out of its range.
    #[error("`{field}` is {value}, which is not allowed: {allowed}")]
    Field {
        /// Which.
        field: &'static str,
        /// What was given.
        value: String,
        /// What would be allowed.
        allowed: String,
    },
    /// The same id came with another request.
    #[error(
        "request id {id} was used for another request; give each change a new id, and repeat one \
         with the same content only"
    )]
    IdReused {
        /// The id.
        id: String,
    },
    /// More than the data path drains.
    #[error(
        "{asked_bps} bit/s on all wires together is more than the measured drain of {drain_bps} \
         bit/s: ask for less, or set `force`"
    )]
    AboveDrain {
        /// Sum of all rates, bit/s.
        asked_bps: u64,
        /// What was measured, bit/s.
        drain_bps: u64,
    },
}

/// A change that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Another rate.
    Rate {
        /// Which wire.
        wire: String,
        /// Bit/s.
        rate_bps: u64,
        /// How long; for ever if absent.
        expires_after: Option<Duration>,
        /// Also above the measured drain.
        force: bool,
    },
    /// Back to the configured rate: one wire, or all.
    Reset {
        /// Which wire; all if absent.
        wire: Option<String>,
    },
    /// Around the shaper, or through it again.
    Bypass {
        /// Which wire.
        wire: String,
        /// Around it.
        bypass: bool,
    },
}

/// A change and who asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// A UUID, or empty.
    pub id: String,
    /// Why.
    pub reason: String,
    /// What.
    pub change: Change,
}

/// What a request came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// Indices of the wires that it speaks of.
    pub wires: Vec<usize>,
    /// It was done before; nothing changed now.
    pub repeated: bool,
    /// When the poll loop had put it in force.
    pub in_force_at: Option<std::time::Instant>,
}

/// A remembered rate that is no longer in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reverted {
    /// Index of the wire.
    pub wire: usize,
    /// The rate, bit/s.
    pub rate_bps: u64,
    /// What happened, as the audit record names it.
    pub action: &'static str,
    /// Why.
    pub why: String,
}

/// Every wire, and the requests that are remembered.
#[derive(Clone, Debug)]
pub struct Control {
    wires: Vec<WireControl>,
    reverted: Vec<Reverted>,
    gone: Vec<SavedWire>,
    remembered: Vec<Remembered>,
    drain_bps: Option<u64>,
}

impl Control {
    /// Wires as configured, with what `state` remembers of them at `now`.
    #[must_use]
    pub fn new(
        facts: Vec<WireFacts>,
        drain_bps: Option<u64>,
        state: &State,
        now: SystemTime,
    ) -> Self {
        let is_gone = |saved: &&SavedWire| {
            let was_changed = saved.rate_bps.is_some() || saved.bypass;
            was_changed && !facts.iter().any(|wire| wire.name == saved.name)
        };
        let gone = state.wires.iter().filter(is_gone).cloned().collect();
        let mut reverted = Vec::new();
        let wires = facts.into_iter().enumerate().map(|(index, facts)| {
            // A first generation above 0, which stands for "none yet" in the poll loop.
            let mut wire = WireControl {
                facts,
                changed: None,
                bypass: false,
                generation: state.first_generation.max(1),
            };
            let mut saved = state.wires.iter();
            if let Some(saved) = saved.find(|saved| saved.name == wire.facts.name) {
                reverted.extend(restore(&mut wire, saved, index, now));
            }
            wire
        });
        let wires = wires.collect();
        let remembered = state.requests.iter().map(|before| Remembered {
            id: one_form(&before.id),
            what: before.what.clone(),
        });
        Self {
            wires,
            reverted,
            gone,
            remembered: remembered.collect(),
            drain_bps,
        }
    }

    /// Rates that were remembered and are not in force any more.
    #[must_use]
    pub fn reverted(&self) -> &[Reverted] {
        &self.reverted
    }

    /// Wires whose change was remembered, and that are not configured any more.
    #[must_use]
    pub fn gone(&self) -> &[SavedWire] {
        &self.gone
    }

    /// Generations go on above those of the audit record, so that nobody takes a window of
    /// before for one of now where the state is older than the record, or gone.
    pub fn count_on_from(&mut self, past: &BTreeMap<String, Past>) {
        for wire in &mut self.wires {
            if let Some(past) = past.get(&wire.facts.name)
                && past.generation < MAX_GENERATION
            {
                wire.generation = wire.generation.max(past.generation + 1);
            }
        }
    }

    /// The wires, in the order of their configuration.
    #[must_use]
    pub fn wires(&self) -> &[WireControl] {
        &self.wires
    }

    /// What has to be remembered.
    #[must_use]
    pub fn saved(&self) -> (Vec<SavedWire>, Vec<Remembered>) {
        let wires = self.wires.iter().map(|wire| SavedWire {
            name: wire.facts.name.clone(),
            virtual_function: Some(wire.facts.virtual_function.clone()),
            rate_bps: wire.changed.map(|(rate, _)| rate.bps()),
            expires_at_ms: wire.changed.and_then(|(_, at)| at).map(super::state::to_ms),
            bypass: wire.bypass,
            generation: wire.generation,
        });
        (wires.collect(), self.remembered.clone())
    }

    /// Does what is asked, or says why not and changes nothing.
    ///
    /// # Errors
    /// [`Refused`] names the field and what is allowed.
    pub fn apply(&mut self, request: &Request, now: SystemTime) -> Result<Done, Refused> {
        check_words(request)?;
        let wires = self.targets(&request.change)?;
        let what = format!("{:?}", request.change);
        let id = one_form(&request.id);
        if !id.is_empty()
            && let Some(before) = self.remembered.iter().find(|before| before.id == id)
        {
            if before.what != what {
                return Err(Refused::IdReused {
                    id: request.id.clone(),
                });
            }
            return Ok(Done {
                wires,
                repeated: true,
                in_force_at: None,
            });
        }
        self.check(&request.change, &wires)?;
        for &wire in &wires {
            change(&mut self.wires[wire], &request.change, now);
        }
        if !id.is_empty() {
            if self.remembered.len() >= MAX_REMEMBERED {
                self.remembered.remove(0);
            }
            self.remembered.push(Remembered { id, what });
        }
        Ok(Done {
            wires,
            repeated: false,
            in_force_at: None,
        })
    }

    /// Wires whose changed rate has ended by `now` go back; returns them.
    pub fn expire(&mut self, now: SystemTime) -> Vec<usize> {
        let mut ended = Vec::new();
        for (index, wire) in self.wires.iter_mut().enumerate() {
            if matches!(wire.changed, Some((_, Some(at))) if at <= now) {
                wire.changed = None;
                wire.generation += 1;
                ended.push(index);
            }
        }
        ended
    }

    fn targets(&self, change: &Change) -> Result<Vec<usize>, Refused> {
        let name = match change {
            Change::Reset { wire: None } => return Ok((0..self.wires.len()).collect()),
            Change::Reset { wire: Some(wire) }
            | Change::Rate { wire, .. }
            | Change::Bypass { wire, .. } => wire,
        };
        let found = self.wires.iter().position(|wire| wire.facts.name == *name);
        let names = || self.wires.iter().map(|wire| wire.facts.name.as_str());
        found
            .map(|index| vec![index])
            .ok_or_else(|| Refused::UnknownWire {
                wire: name.chars().take(64).collect(),
                known: names().collect::<Vec<_>>().join(", "),
            })
    }

    fn check(&self, change: &Change, wires: &[usize]) -> Result<(), Refused> {
        let Change::Rate {
            rate_bps,
            expires_after,
            force,
            ..
        } = change
        else {
            return Ok(());
        };
        let fastest_bps = wires
            .iter()
            .map(|&wire| self.wires[wire].facts.fastest_bps)
            .min();
        let fastest_bps = fastest_bps.unwrap_or(0);
        if *rate_bps < MIN_RATE_BPS || *rate_bps > fastest_bps {
            return Err(Refused::Field {
                field: "rate_bps",
                value: rate_bps.to_string(),
                allowed: format!(
                    "{MIN_RATE_BPS} (1mbit) to {fastest_bps}, the rate of the port; SetBypass \
                     lets frames pass unshaped"
                ),
            });
        }
        if let Some(after) = expires_after
            && (after.is_zero() || after.as_nanos() * 1000 > u128::from(MAX_EXPIRY_PS))
        {
            return Err(Refused::Field {
                field: "expires_after",
                value: format!("{after:?}"),
                allowed: "above zero, at most 30 days; leave it out for no end".to_owned(),
            });
        }
        self.check_drain(*rate_bps, wires, *force)
    }

    fn check_drain(&self, rate_bps: u64, wires: &[usize], force: bool) -> Result<(), Refused> {
        let Some(drain_bps) = self.drain_bps else {
            return Ok(());
        };
        let rates = self
            .wires
            .iter()
            .enumerate()
            .map(|(index, wire)| match wire.speed() {
                _ if wires.contains(&index) => rate_bps,
                Speed::Rate(rate) => rate.bps(),
                Speed::Unshaped => 0,
            });
        let asked_bps = rates.fold(0, u64::saturating_add);
        if asked_bps <= drain_bps || force {
            return Ok(());
        }
        Err(Refused::AboveDrain {
            asked_bps,
            drain_bps,
        })
    }
}

fn check_words(request: &Request) -> Result<(), Refused> {
    let refuse = |field, value: &str, allowed: &str| {
        let value = format!("{:?}", value.chars().take(64).collect::<String>());
        Err(Refused::Field {
            field,
            value,
            allowed: allowed.to_owned(),
        })
    };
    if !request.id.is_empty() && uuid::Uuid::parse_str(&request.id).is_err() {
        return refuse("request_id", &request.id, "a UUID in text form, or empty");
    }
    if request.reason.len() > MAX_REASON_BYTES {
        return refuse("reason", &request.reason, "at most 1024 bytes");
    }
    Ok(())
}

fn change(wire: &mut WireControl, change: &Change, now: SystemTime) {
    wire.generation += 1;
    match change {
        Change::Rate {
            rate_bps,
            expires_after,
            ..
        } => {
            let rate = LineRate::new(*rate_bps).ok();
            wire.changed = rate.map(|rate| (rate, expires_after.map(|after| now + after)));
        }
        Change::Reset { .. } => wire.changed = None,
        Change::Bypass { bypass, .. } => wire.bypass = *bypass,
    }
}

/// A UUID has several texts.
fn one_form(id: &str) -> String {
    uuid::Uuid::parse_str(id).map_or_else(|_| id.to_owned(), |uuid| uuid.to_string())
}

/// Puts a wire as it was saved; tells of a rate that is not in force any more.
fn restore(
    wire: &mut WireControl,
    saved: &SavedWire,
    index: usize,
    now: SystemTime,
) -> Option<Reverted> {
    // Counts on, so that nobody takes a window of before for one of now.
    wire.generation = saved.generation.saturating_add(1);
    let function = &wire.facts.virtual_function;
    let of_another = saved
        .virtual_function
        .as_ref()
        .filter(|before| *before != function);
    wire.bypass = saved.bypass && of_another.is_none();
    if let Some(before) = of_another
        && (saved.bypass || saved.rate_bps.is_some())
    {
        return Some(Reverted {
            wire: index,
            rate_bps: saved.rate_bps.unwrap_or(0),
            action: "reverted",
            why: format!("the wire was of {before}, and is of {function} by the configuration now"),
        });
    }
    let rate_bps = saved.rate_bps?;
    let reverted = |action, why| {
        Some(Reverted {
            wire: index,
            rate_bps,
            action,
            why,
        })
    };
    let expires_at = saved.expires_at_ms.map(super::state::from_ms);
    if expires_at.is_some_and(|at| at <= now) {
        return reverted("expired", "while no service ran".to_owned());
    }
    let fastest_bps = wire.facts.fastest_bps;
    match LineRate::new(rate_bps) {
        Ok(rate) if rate_bps <= fastest_bps => {
            wire.changed = Some((rate, expires_at));
            None
        }
        _ => reverted(
            "reverted",
            format!(
                "the wire takes {MIN_RATE_BPS} to {fastest_bps} bit/s by the configuration now"
            ),
        ),
    }
}

#[cfg(test)]
mod tests;
