//! What a wire does to its frames: a list of rules, handed over as a whole between
//! two frames.

use super::clock::Pace;
use super::time::PS_PER_S;
use crate::rate::LineRate;
use thiserror::Error;

/// Rules in a policy. One for now: a wire has one rate for all its frames. The list
/// is here so that rules for part of the traffic change no signature.
pub const MAX_RULES: usize = 1;

/// The longest time after which a rule may expire, ps: 30 days, well within the 106
/// days over which the engine's clock can compare.
pub const MAX_EXPIRY_PS: u64 = 30 * 24 * 3600 * PS_PER_S;

/// How fast a wire is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speed {
    /// Frames pass as they come.
    Unshaped,
    /// Frames pass as a wire of this rate would carry them.
    Rate(LineRate),
}

impl Speed {
    pub(super) const fn pace(self) -> Pace {
        match self {
            Self::Unshaped => Pace::UNSHAPED,
            Self::Rate(rate) => Pace::of(rate),
        }
    }
}

/// Which frames a rule speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Match {
    /// All frames of the wire.
    Every,
}

/// How a rule ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expiry {
    /// Time from the hand-over, ps; from 1 to [`MAX_EXPIRY_PS`]. The first frame
    /// that would start at this instant or later already has the new speed.
    pub after_ps: u64,
    /// The speed from then on.
    pub then: Speed,
}

/// One rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Which frames it speaks of.
    pub applies_to: Match,
    /// Their speed.
    pub speed: Speed,
    /// When it ends by itself, if it does.
    pub expiry: Option<Expiry>,
}

/// A checked list of rules with its generation, which grows with each change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    generation: u64,
    rules: [Rule; MAX_RULES],
}

/// Why a list of rules is no policy.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum PolicyError {
    /// Too few or too many.
    #[error(
        "a policy has exactly {MAX_RULES} rule in this version, not {rules}: give the wire one rule that matches every frame"
    )]
    RuleCount {
        /// How many came.
        rules: usize,
    },
    /// At once, or later than can be told.
    #[error(
        "expires_after is {after_ps} ps: give a time above zero and of at most 30 days, or leave it out"
    )]
    ExpiryOutOfRange {
        /// What came, ps.
        after_ps: u64,
    },
}

impl Policy {
    /// A policy of these rules, first match first.
    ///
    /// # Errors
    /// See [`PolicyError`].
    pub fn new(generation: u64, rules: &[Rule]) -> Result<Self, PolicyError> {
        let rules: [Rule; MAX_RULES] = rules
            .try_into()
            .map_err(|_| PolicyError::RuleCount { rules: rules.len() })?;
        for expiry in rules.iter().filter_map(|rule| rule.expiry) {
            if expiry.after_ps == 0 || expiry.after_ps > MAX_EXPIRY_PS {
                return Err(PolicyError::ExpiryOutOfRange {
                    after_ps: expiry.after_ps,
                });
            }
        }
        Ok(Self { generation, rules })
    }

    /// The policy of a wire with one speed for ever.
    #[must_use]
    pub const fn constant(generation: u64, speed: Speed) -> Self {
        let rule = Rule {
            applies_to: Match::Every,
            speed,
            expiry: None,
        };
        Self {
            generation,
            rules: [rule; MAX_RULES],
        }
    }

    /// Grows with each change.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// The rules, first match first.
    #[must_use]
    pub const fn rules(&self) -> &[Rule] {
        &self.rules
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(expiry: Option<Expiry>) -> Rule {
        Rule {
            applies_to: Match::Every,
            speed: Speed::Unshaped,
            expiry,
        }
    }

    #[test]
    fn a_policy_has_one_rule_that_ends_in_time() {
        let refused = Policy::new(1, &[]).expect_err("no rule");
        assert_eq!(refused, PolicyError::RuleCount { rules: 0 });
        assert!(Policy::new(1, &[rule(None), rule(None)]).is_err());
        for after_ps in [0, MAX_EXPIRY_PS + 1] {
            let expiry = Expiry {
                after_ps,
                then: Speed::Unshaped,
            };
            let refused = Policy::new(1, &[rule(Some(expiry))]).expect_err("out of range");
            assert_eq!(refused, PolicyError::ExpiryOutOfRange { after_ps });
        }
        let policy = Policy::new(7, &[rule(None)]).expect("one rule");
        assert_eq!(policy, Policy::constant(7, Speed::Unshaped));
    }
}
