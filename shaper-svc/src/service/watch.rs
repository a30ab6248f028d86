//! Notices a poll loop that failed or stands still. Pure; time is an argument.

use std::time::{Duration, Instant};

use super::handle::Gone;

/// How long the loop may stand still before it counts as down: far above the tens of
/// milliseconds for which a busy virtual machine takes a core away.
pub const STANDSTILL: Duration = Duration::from_secs(1);

/// What is seen at a look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// As before.
    Nothing,
    /// The data path is down, for this cause.
    Down(String),
    /// It runs again.
    Up,
    /// A port that had gone is there again: a new process can use it.
    Back(String),
    /// It has stood still for longer than it may: the process should be started anew.
    GiveUp(Duration),
}

/// Watches one poll loop.
#[derive(Debug)]
pub struct Watch {
    turns: u64,
    moved_at: Instant,
    down: bool,
    give_up_after: Option<Duration>,
}

impl Watch {
    /// A watch that takes the loop for alive at `now`.
    #[must_use]
    pub const fn new(now: Instant, give_up_after: Option<Duration>) -> Self {
        Self {
            turns: 0,
            moved_at: now,
            down: false,
            give_up_after,
        }
    }

    /// Whether the data path was down at the last look.
    #[must_use]
    pub const fn is_down(&self) -> bool {
        self.down
    }

    /// Looks at the loop: its turns, why it failed, if it did, and the port that went
    /// away, if any.
    pub fn look(
        &mut self,
        turns: u64,
        fault: Option<String>,
        gone: Option<&Gone>,
        now: Instant,
    ) -> Seen {
        let moves = turns != self.turns;
        if moves {
            (self.turns, self.moved_at) = (turns, now);
        }
        let still = now.duration_since(self.moved_at);
        if self.down
            && let Some(Gone { port, .. }) = gone.filter(|gone| gone.is_back)
        {
            return Seen::Back(port.clone());
        }
        let cause = match (fault, gone) {
            (Some(fault), _) => Some(format!(
                "the poll loop failed: {fault}; frames pass unshaped"
            )),
            (None, Some(Gone { port, what, .. })) => Some(format!(
                "port {port}: {what}; bring it back, and the service ends to be started anew"
            )),
            (None, None) if still >= STANDSTILL => Some("the poll loop stands still".to_owned()),
            (None, None) => None,
        };
        match (self.down, cause) {
            (false, Some(cause)) => {
                self.down = true;
                Seen::Down(cause)
            }
            (true, None) => {
                self.down = false;
                Seen::Up
            }
            (true, Some(_)) if self.give_up_after.is_some_and(|limit| still >= limit) => {
                Seen::GiveUp(still)
            }
            _ => Seen::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_stands_still_is_down_until_it_moves() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut watch = Watch::new(start, Some(Duration::from_secs(10)));
        assert_eq!(watch.look(5, None, None, at(100)), Seen::Nothing);
        assert_eq!(watch.look(5, None, None, at(1000)), Seen::Nothing);
        assert!(
            matches!(watch.look(5, None, None, at(1200)), Seen::Down(cause) if cause.contains("still"))
        );
        assert_eq!(watch.look(5, None, None, at(5000)), Seen::Nothing);
        assert_eq!(watch.look(6, None, None, at(6000)), Seen::Up);
        assert!(matches!(watch.look(6, None, None, at(8000)), Seen::Down(_)));
        assert!(matches!(
            watch.look(6, None, None, at(16_500)),
            Seen::GiveUp(_)
        ));
    }

    #[test]
    fn a_loop_that_failed_is_down_for_good_and_still_carries_frames() {
        let start = Instant::now();
        let mut watch = Watch::new(start, Some(Duration::from_secs(10)));
        let fault = || Some("index out of range".to_owned());
        let seen = watch.look(1, fault(), None, start);
        assert!(matches!(seen, Seen::Down(cause) if cause.contains("index out of range")));
        for second in 1..30 {
            let now = start + Duration::from_secs(second);
            assert_eq!(watch.look(second + 1, fault(), None, now), Seen::Nothing);
        }
        assert!(watch.is_down());
    }

    #[test]
    fn a_port_that_goes_is_an_outage_until_a_new_process_can_use_it() {
        let start = Instant::now();
        let mut watch = Watch::new(start, None);
        let gone = |is_back| Gone {
            port: "uplink".to_owned(),
            what: "its interface has gone".to_owned(),
            is_back,
        };
        let seen = watch.look(1, None, Some(&gone(false)), start);
        assert!(matches!(seen, Seen::Down(cause) if cause.contains("uplink")));
        assert_eq!(
            watch.look(2, None, Some(&gone(false)), start),
            Seen::Nothing
        );
        let back = watch.look(3, None, Some(&gone(true)), start);
        assert_eq!(back, Seen::Back("uplink".to_owned()));

        // Replaced between two looks: down first, so that the outage is noted.
        let mut watch = Watch::new(start, None);
        assert!(matches!(
            watch.look(1, None, Some(&gone(true)), start),
            Seen::Down(_)
        ));
    }
}
