//! From moments of functions to traces of calls.

use std::collections::HashMap;

use crate::btf::ReturnKind;

/// Threads whose calls are followed at a time: ranks of a host with several threads
/// each. Those beyond are not followed, and are counted.
const MAX_THREADS: usize = 4096;
/// Steps of one call; a longer one is no trace. modify_qp has about 100.
const MAX_STEPS: usize = 16_384;
/// Calls inside each other: a call that goes deeper is no trace. A kernel stack of 16 KiB
/// holds no more of them, and the JSON of a tree this deep is within what its reader
/// takes (128 levels, two for each call).
pub const MAX_DEPTH: usize = 48;

/// A function of the wide set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// Its name.
    pub name: String,
    /// How it tells an error.
    pub returns: ReturnKind,
    /// The verbs whose entry point it is; none where it is none. A call of an entry
    /// point is what is traced.
    pub entry_of: Vec<String>,
}

/// What a function does at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// It is called.
    Enters,
    /// It returns this, as the register has it.
    Returns(u64),
}

/// A moment of one function in one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Boot clock, nanoseconds.
    pub boot_ns: u64,
    /// Thread.
    pub tid: u32,
    /// Process.
    pub tgid: u32,
    /// Index in the wide set.
    pub function: u32,
    /// Called or returned.
    pub what: What,
}

/// How a function returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// No error.
    Good,
    /// A positive errno.
    Error(u16),
}

impl Outcome {
    /// What a register tells of a function that returns so.
    #[must_use]
    pub fn of(returned: u64, kind: ReturnKind) -> Self {
        let error = match kind {
            // The upper half holds anything.
            ReturnKind::Int => i64::from(low_half(returned).cast_signed()),
            ReturnKind::Long | ReturnKind::Pointer => returned.cast_signed(),
            ReturnKind::Nothing => 0,
        };
        match u16::try_from(error.saturating_neg()) {
            Ok(errno @ 1..=4095) => Self::Error(errno),
            _ => Self::Good,
        }
    }

    /// The positive errno; none of a good return.
    #[must_use]
    pub fn errno(self) -> Option<u16> {
        match self {
            Self::Good => None,
            Self::Error(errno) => Some(errno),
        }
    }
}

fn low_half(word: u64) -> u32 {
    u32::try_from(word & u64::from(u32::MAX)).unwrap_or(0)
}

/// One step of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A function is called, below those that have not returned.
    Enters(u32),
    /// The innermost function that has not returned does.
    Returns(Outcome),
}

/// One call of an entry point, from its beginning to its return: each function that
/// enters returns, the first to enter is the last to return.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Thread.
    pub tid: u32,
    /// Process.
    pub tgid: u32,
    /// The entry point, by its index in the wide set.
    pub entry: u32,
    /// Boot clock at its beginning, nanoseconds.
    pub began_ns: u64,
    /// How long it took.
    pub took_ns: u64,
    /// In order of time; the first enters the entry point, the last returns from it.
    pub steps: Vec<Step>,
    /// How the entry point returned.
    pub outcome: Outcome,
}

/// A call that is under way.
#[derive(Debug)]
struct Open {
    tgid: u32,
    entry: u32,
    began_ns: u64,
    steps: Vec<Step>,
    /// Functions that have not returned, outermost first.
    inside: Vec<u32>,
    /// A moment is missing: the call is followed to its end, and is no trace.
    has_hole: bool,
}

/// Puts the moments of all threads together, each thread's by itself.
#[derive(Debug)]
pub struct Weaver {
    /// How each function of the wide set returns, and whether it is an entry point.
    watched: Vec<(ReturnKind, bool)>,
    open: HashMap<u32, Open>,
    lost: u64,
}

impl Weaver {
    /// For the moments of these functions.
    #[must_use]
    pub fn new(watched: &[Watched]) -> Self {
        let kind = |watched: &Watched| (watched.returns, !watched.entry_of.is_empty());
        Self {
            watched: watched.iter().map(kind).collect(),
            open: HashMap::new(),
            lost: 0,
        }
    }

    /// Calls that could not be followed to their end.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Takes a moment; gives the trace that it ends. Moments of one thread come in
    /// order of time; what contradicts itself makes a call lost and never a trace.
    pub fn take(&mut self, moment: Moment) -> Option<Trace> {
        let (kind, is_entry) = *self.watched.get(index(moment.function))?;
        match moment.what {
            What::Enters if is_entry => {
                self.begin(moment);
                None
            }
            What::Enters => {
                self.enter(moment);
                None
            }
            What::Returns(value) => self.leave(moment, Outcome::of(value, kind)),
        }
    }

    /// An entry point is never called inside another one: what is open in this thread
    /// did not end where it was seen, or its thread is gone and this is another one.
    fn begin(&mut self, moment: Moment) {
        if self.open.remove(&moment.tid).is_some() || self.open.len() >= MAX_THREADS {
            self.lost += 1;
        }
        if self.open.len() >= MAX_THREADS {
            return;
        }
        let open = Open {
            tgid: moment.tgid,
            entry: moment.function,
            began_ns: moment.boot_ns,
            steps: vec![Step::Enters(moment.function)],
            inside: vec![moment.function],
            has_hole: false,
        };
        self.open.insert(moment.tid, open);
    }

    fn enter(&mut self, moment: Moment) {
        // Outside of a call, or its beginning was not seen.
        let Some(open) = self.open.get_mut(&moment.tid) else {
            return;
        };
        if open.steps.len() >= MAX_STEPS || open.inside.len() >= MAX_DEPTH {
            // Bounded in any case: nothing more is kept of this call.
            self.open.remove(&moment.tid);
            self.lost += 1;
            return;
        }
        open.steps.push(Step::Enters(moment.function));
        open.inside.push(moment.function);
    }

    fn leave(&mut self, moment: Moment, outcome: Outcome) -> Option<Trace> {
        let open = self.open.get_mut(&moment.tid)?;
        let Some(at) = open.inside.iter().rposition(|f| *f == moment.function) else {
            // It was called, and that was not seen.
            open.has_hole = true;
            return None;
        };
        // Who is between has returned, and that was not seen.
        open.has_hole |= at + 1 != open.inside.len();
        open.inside.truncate(at);
        if open.steps.len() < MAX_STEPS {
            open.steps.push(Step::Returns(outcome));
        } else {
            open.has_hole = true;
        }
        if at > 0 {
            return None;
        }
        let open = self.open.remove(&moment.tid)?;
        if open.has_hole {
            self.lost += 1;
            return None;
        }
        Some(Trace {
            tid: moment.tid,
            tgid: open.tgid,
            entry: open.entry,
            began_ns: open.began_ns,
            took_ns: moment.boot_ns.saturating_sub(open.began_ns),
            steps: open.steps,
            outcome,
        })
    }
}

/// A place in a list; past the end of any where this machine cannot count so far.
pub(super) fn index(function: u32) -> usize {
    usize::try_from(function).unwrap_or(usize::MAX)
}

/// Name of a function of the wide set.
pub(super) fn function_name(watched: &[Watched], function: u32) -> &str {
    watched
        .get(index(function))
        .map_or("", |watched| watched.name.as_str())
}
