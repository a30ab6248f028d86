//! One window from its beginning to its end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::mpsc;

use super::gate::Pass;
use super::{
    Ask, Field, MAX_KINDS, Moments, Parted, Phase, Progress, Purpose, ROOM_FOR_RESULTS, Shelf,
    Told, WindowError, key,
};
use crate::baseline::{Added, Signature, Trace, Tree, Watched, Weaver, fork, signature};
use crate::loader::{Reach, Way};

/// How often the ring is read: it holds 130,000 moments, which many threads make within
/// some hundred milliseconds.
const READ_EVERY: Duration = Duration::from_millis(20);
/// Moments that are taken in one go: twice what the ring holds. A storm fills it while it
/// is read, and the window ends all the same.
const MOMENTS_AT_ONCE: usize = 1 << 18;
/// How often it is told how the window stands.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// A window on its thread.
pub(super) struct Window {
    pub(super) field: Arc<dyn Field>,
    pub(super) shelf: Shelf,
    pub(super) ask: Ask,
    pub(super) pass: Pass,
    pub(super) sender: mpsc::Sender<Result<Told, WindowError>>,
}

/// What a window has seen.
struct Seen<'w> {
    watched: &'w [Watched],
    names: Arc<[String]>,
    purpose: Purpose,
    /// By verb.
    trees: BTreeMap<String, Tree>,
    kinds: BTreeSet<(String, Signature)>,
    parted: Vec<Parted>,
    progress: Progress,
}

impl Window {
    /// To its end; the pass is given back when all is taken off.
    pub(super) fn run(self) {
        let purpose = self.ask.purpose;
        match self.work() {
            Ok(progress) => {
                tracing::info!(?purpose, ?progress, "window ended");
                self.tell(Told::Progress(progress));
            }
            Err(error) => {
                tracing::warn!(?purpose, %error, "window without result");
                // Who asked may be gone.
                let _ = self.sender.try_send(Err(error));
            }
        }
        drop(self.pass);
    }

    fn work(&self) -> Result<Progress, WindowError> {
        let mut progress = Progress {
            seconds_left: self.ask.seconds,
            ..Progress::default()
        };
        self.tell(Told::Progress(progress.clone()));
        let release = self.field.release();
        let (verbs, driver, known) = match self.ask.purpose {
            Purpose::Record => {
                let (verbs, driver) = (self.ask.verbs.clone(), self.ask.driver.clone());
                (verbs, driver, BTreeMap::new())
            }
            Purpose::Diff => {
                let (driver, trees) = self.known(&release)?;
                (trees.keys().cloned().collect(), Some(driver), trees)
            }
        };
        let reach = self.field.reach(&verbs, driver.as_deref())?;
        self.goes_on()?;
        let trees = match self.ask.purpose {
            Purpose::Diff => known,
            Purpose::Record => self.begun(&release, &reach.driver, &verbs)?,
        };
        progress.phase = Phase::Attaching;
        progress.driver.clone_from(&reach.driver);
        progress.unwatchable = reach.left_out;
        self.tell(Told::Progress(progress.clone()));
        let moments =
            self.field
                .attach(&reach, &|| self.pass.goes_on())
                .map_err(|error| match self.goes_on() {
                    Err(closed) => closed,
                    Ok(()) => error.into(),
                })?;
        progress.functions = moments.functions().min(reach.watched.len());
        progress.beyond_bound = match moments.way() {
            Way::AtOnce => 0,
            Way::OneByOne => reach.watched.len() - progress.functions,
        };
        progress.phase = Phase::Watching;
        let seen = self.watch(moments, &reach, trees, progress)?;
        self.finish(seen, &verbs)
    }

    /// Reads moments until the time is over; all is taken off when it returns.
    fn watch<'r>(
        &self,
        mut moments: Box<dyn Moments>,
        reach: &'r Reach,
        trees: BTreeMap<String, Tree>,
        progress: Progress,
    ) -> Result<Seen<'r>, WindowError> {
        let watched = &reach.watched[..progress.functions];
        let mut seen = Seen {
            names: watched.iter().map(|w| w.name.clone()).collect(),
            watched,
            purpose: self.ask.purpose,
            trees,
            kinds: BTreeSet::new(),
            parted: Vec::new(),
            progress,
        };
        let mut weaver = Weaver::new(watched);
        let end = Instant::now() + Duration::from_secs(u64::from(self.ask.seconds));
        let mut tell_at = Instant::now();
        loop {
            self.goes_on()?;
            let now = Instant::now();
            let come = std::iter::from_fn(|| moments.next()).take(MOMENTS_AT_ONCE);
            for trace in come.filter_map(|moment| weaver.take(moment)) {
                seen.take(trace);
            }
            seen.progress.lost = weaver.lost().saturating_add(moments.lost()?);
            let left = end.saturating_duration_since(now);
            seen.progress.seconds_left = seconds(left);
            for parted in seen.parted.drain(..) {
                self.tell(Told::Parted(Box::new(parted)));
            }
            if now >= tell_at {
                tell_at = now + TELL_EVERY;
                self.tell(Told::Progress(seen.progress.clone()));
            }
            if left.is_zero() {
                return Ok(seen);
            }
            std::thread::sleep(READ_EVERY.min(left));
        }
    }

    /// Keeps what was recorded.
    fn finish(&self, mut seen: Seen<'_>, verbs: &[String]) -> Result<Progress, WindowError> {
        seen.progress.phase = Phase::Ended;
        if self.ask.purpose == Purpose::Diff {
            return Ok(seen.progress);
        }
        if seen.progress.good == 0 {
            return Err(WindowError::NothingGood {
                verbs: verbs.join(", "),
                failed: seen.progress.failed,
                slow: seen.progress.slow,
                lost: seen.progress.lost,
            });
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        for mut tree in seen.trees.into_values().filter(|tree| tree.traces > 0) {
            tree.recorded_at = now.as_ref().map_or(0, Duration::as_secs);
            tree.functions = u64::try_from(seen.progress.functions).unwrap_or(u64::MAX);
            self.shelf.save(&tree)?;
            self.tell(Told::Recorded(tree));
        }
        Ok(seen.progress)
    }

    /// The trees that a recording adds to.
    fn begun(
        &self,
        release: &str,
        driver: &str,
        verbs: &[String],
    ) -> Result<BTreeMap<String, Tree>, WindowError> {
        let mut trees = BTreeMap::new();
        for verb in verbs {
            let key = key(release, driver, verb);
            let tree = self.shelf.load(&key)?;
            trees.insert(verb.clone(), tree.unwrap_or_else(|| Tree::new(&key)));
        }
        Ok(trees)
    }

    /// The driver and the trees that failing calls are laid beside.
    fn known(&self, release: &str) -> Result<(String, BTreeMap<String, Tree>), WindowError> {
        let all = if self.ask.beside.is_empty() {
            let kept = self.shelf.all()?;
            for damaged in &kept.damaged {
                tracing::warn!(damaged, "a baseline was set aside");
            }
            kept.trees
        } else {
            self.ask.beside.clone()
        };
        let of_kernel = |tree: &Tree| tree.kernel == release;
        let wanted = |tree: &Tree| {
            let (driver, verbs) = (&self.ask.driver, &self.ask.verbs);
            driver.as_ref().is_none_or(|d| *d == tree.driver)
                && (verbs.is_empty() || verbs.contains(&tree.verb))
        };
        let mut trees: Vec<Tree> = all.into_iter().filter(of_kernel).collect();
        trees.retain(wanted);
        let drivers: BTreeSet<&String> = trees.iter().map(|tree| &tree.driver).collect();
        if drivers.len() > 1 {
            let drivers: Vec<&str> = drivers.into_iter().map(String::as_str).collect();
            return Err(WindowError::Asked(format!(
                "there are baselines of several drivers; name one with --driver: {}",
                drivers.join(", ")
            )));
        }
        let has = |verb: &&String| trees.iter().any(|tree| tree.verb == **verb);
        let missing = self.ask.verbs.iter().find(|verb| !has(verb)).cloned();
        let driver = match (trees.first(), missing) {
            (Some(tree), None) => tree.driver.clone(),
            (_, missing) => {
                return Err(WindowError::NoBaseline {
                    what: missing.unwrap_or_else(|| "any verb".to_owned()),
                    verbs: match self.ask.verbs.as_slice() {
                        [] => "reg_mr create_qp modify_qp".to_owned(),
                        verbs => verbs.join(" "),
                    },
                });
            }
        };
        let by_verb = trees.into_iter().map(|tree| (tree.verb.clone(), tree));
        Ok((driver, by_verb.collect()))
    }

    fn goes_on(&self) -> Result<(), WindowError> {
        if self.pass.goes_on() {
            return Ok(());
        }
        Err(WindowError::Closed(
            "whoever asked is gone, probes were detached, or the tracer ends",
        ))
    }

    /// Never waits: all results have room, and progress leaves room to them.
    fn tell(&self, told: Told) {
        let is_news = match &told {
            Told::Progress(progress) => progress.phase == Phase::Ended,
            Told::Recorded(_) | Told::Parted(_) => true,
        };
        if is_news || self.sender.capacity() > ROOM_FOR_RESULTS {
            // Who asked may be gone.
            let _ = self.sender.try_send(Ok(told));
        }
    }
}

impl Seen<'_> {
    fn take(&mut self, trace: Trace) {
        let at = usize::try_from(trace.entry).unwrap_or(usize::MAX);
        let Some(entry) = self.watched.get(at) else {
            return;
        };
        match self.purpose {
            Purpose::Record => self.record(&trace, entry),
            Purpose::Diff => self.compare(trace, entry),
        }
    }

    fn record(&mut self, trace: &Trace, entry: &Watched) {
        for (place, verb) in entry.entry_of.iter().enumerate() {
            let Some(tree) = self.trees.get_mut(verb) else {
                continue;
            };
            let added = tree.add(trace, self.watched);
            // An entry point of two verbs makes one call.
            if place == 0 {
                self.progress.count(added);
            }
        }
    }

    fn compare(&mut self, trace: Trace, entry: &Watched) {
        if trace.outcome.errno().is_none() {
            self.progress.count(match trace.took_ns {
                took if took > crate::baseline::GOOD_WITHIN_NS => Added::Slow,
                _ => Added::Yes,
            });
            return;
        }
        self.progress.count(Added::Failed);
        let found = entry.entry_of.iter().find_map(|verb| {
            let tree = self.trees.get(verb)?;
            Some((verb.clone(), tree))
        });
        let Some((verb, tree)) = found else { return };
        let kind = (verb.clone(), signature(tree, &trace, self.watched));
        if self.kinds.len() >= MAX_KINDS || !self.kinds.insert(kind) {
            return;
        }
        self.progress.kinds = self.kinds.len();
        self.parted.push(Parted {
            verb,
            at: SystemTime::now(),
            fork: fork(tree, &trace, self.watched),
            names: Arc::clone(&self.names),
            trace,
        });
    }
}

impl Progress {
    fn count(&mut self, added: Added) {
        let of = match added {
            Added::Yes => &mut self.good,
            Added::Failed => &mut self.failed,
            Added::Slow | Added::NoRoom => &mut self.slow,
        };
        *of = of.saturating_add(1);
    }
}

/// Rounded up.
fn seconds(left: Duration) -> u32 {
    let whole = left.as_secs() + u64::from(left.subsec_nanos() > 0);
    u32::try_from(whole).unwrap_or(u32::MAX)
}
