//! What the poll loop is told about a wire, as words.

use crate::engine::{Expiry, Match, Policy, Rule, Speed};
use crate::rate::LineRate;

/// Words of an order.
pub(super) const ORDER_WORDS: usize = 6;

/// A policy, and what windows have to say about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// For the engine.
    pub policy: Policy,
    /// The wire is bypassed: its windows say so.
    pub bypass: bool,
}

impl Order {
    /// An order without end.
    #[must_use]
    pub const fn constant(generation: u64, speed: Speed, bypass: bool) -> Self {
        Self {
            policy: Policy::constant(generation, speed),
            bypass,
        }
    }

    pub(super) fn to_words(self) -> [u64; ORDER_WORDS] {
        let [rule] = self.policy.rules() else {
            return [0; ORDER_WORDS];
        };
        let (after_ps, then) = match rule.expiry {
            Some(expiry) => (expiry.after_ps, speed_word(expiry.then)),
            None => (0, 0),
        };
        let bypass = u64::from(self.bypass);
        [
            self.policy.generation(),
            speed_word(rule.speed),
            after_ps,
            then,
            bypass,
            1,
        ]
    }

    /// `None` for words that no order has: what was never written.
    pub(super) fn from_words(words: [u64; ORDER_WORDS]) -> Option<Self> {
        let [generation, speed, after_ps, then, bypass, 1] = words else {
            return None;
        };
        let expiry = match after_ps {
            0 => None,
            after_ps => Some(Expiry {
                after_ps,
                then: speed_of(then)?,
            }),
        };
        let rule = Rule {
            applies_to: Match::Every,
            speed: speed_of(speed)?,
            expiry,
        };
        let policy = Policy::new(generation, &[rule]).ok()?;
        Some(Self {
            policy,
            bypass: bypass != 0,
        })
    }
}

/// Bit/s; 0: not shaped.
pub(super) const fn speed_word(speed: Speed) -> u64 {
    match speed {
        Speed::Unshaped => 0,
        Speed::Rate(rate) => rate.bps(),
    }
}

fn speed_of(word: u64) -> Option<Speed> {
    match word {
        0 => Some(Speed::Unshaped),
        bps => LineRate::new(bps).ok().map(Speed::Rate),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_come_back_as_they_went() {
        let rate = Speed::Rate(LineRate::new(25_000_000_000).unwrap());
        let rule = Rule {
            applies_to: Match::Every,
            speed: rate,
            expiry: Some(Expiry {
                after_ps: 5,
                then: Speed::Unshaped,
            }),
        };
        for order in [
            Order::constant(1, Speed::Unshaped, true),
            Order::constant(2, rate, false),
            Order {
                policy: Policy::new(3, &[rule]).unwrap(),
                bypass: false,
            },
        ] {
            assert_eq!(Order::from_words(order.to_words()), Some(order));
        }
        assert_eq!(Order::from_words([0; ORDER_WORDS]), None);
        assert_eq!(
            Order::from_words([1, 5, 0, 0, 0, 1]),
            None,
            "no wire is that slow"
        );
    }
}
