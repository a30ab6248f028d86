//! A time without anybody who answers a command that goes on.

use std::time::Duration;

/// The pause before whoever went away is asked again; it doubles. A collector that is
/// restarted is back within a second or two.
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// Longest pause: what a person who looks at the screen still takes for at once, and
/// a hundred watchers ask a collector twenty times a second at the most.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// It ends with the next answer.
#[derive(Debug)]
pub(super) struct Outage {
    said: bool,
    pause: Duration,
}

impl Default for Outage {
    fn default() -> Outage {
        Outage {
            said: false,
            pause: FIRST_PAUSE,
        }
    }
}

impl Outage {
    /// Whether it has to be told: once.
    pub(super) fn is_news(&mut self) -> bool {
        !std::mem::replace(&mut self.said, true)
    }

    /// How long to wait before the next question.
    pub(super) fn next_pause(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = (pause * 2).min(LONGEST_PAUSE);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_news_once_and_pauses_grow_within_a_bound() {
        let mut outage = Outage::default();
        assert!(outage.is_news() && !outage.is_news());
        let pauses: Vec<Duration> = (0..8).map(|_| outage.next_pause()).collect();
        assert_eq!(pauses[..3], [250, 500, 1_000].map(Duration::from_millis));
        assert_eq!(pauses[7], LONGEST_PAUSE);
        assert!(pauses.is_sorted());
    }
}
