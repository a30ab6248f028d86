//! Short lines for a person who waits: what is being done, and how long it took.
//! Tests stay quiet; a failing test shows the tail of the serial log instead.

use std::time::Instant;

/// Whether and how progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Nothing is printed.
    Quiet,
    /// A line on standard error when a step begins and ends.
    Lines,
}

impl Progress {
    /// Begins a step, e.g. `booting Debian 6.12.118-1`.
    pub fn step(self, what: impl Into<String>) -> Step {
        let step = Step {
            what: what.into(),
            started: Instant::now(),
            progress: self,
        };
        if self == Progress::Lines {
            eprintln!("  {} …", step.what);
        }
        step
    }

    /// Says something that is no step.
    pub fn note(self, text: &str) {
        if self == Progress::Lines {
            eprintln!("  {text}");
        }
    }
}

/// A step under way. Dropped without [`Step::done`] it says nothing more: the error
/// that ended it speaks.
#[derive(Debug)]
pub struct Step {
    what: String,
    started: Instant,
    progress: Progress,
}

impl Step {
    /// Ends the step and shows its time, where it took long enough to matter.
    pub fn done(self) {
        let seconds = self.started.elapsed().as_secs_f64();
        if self.progress == Progress::Lines && seconds >= 1.0 {
            eprintln!("  {} … {seconds:.0} s", self.what);
        }
    }
}
