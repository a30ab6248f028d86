//! From the reports of all lines to the one that decides.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use crate::class::{Class, Kind, RuleId, Turn, Weight};
use crate::classify::LineReport;
use crate::hosts::Hosts;
use crate::moment::Clock;

/// Different causes that are kept apart. A log with more has a fault of its own;
/// the rest is counted in `groups_left_out`.
const MAX_GROUPS: usize = 64;

/// Ranks, hosts and peers that are named for one cause: what a person reads.
const MAX_NAMES: usize = 16;

/// Peers that are counted. A job of the largest clusters has fewer hosts.
const MAX_PEERS: usize = 16_384;

/// Peers that are shown, the most frequent first.
const SHOWN_PEERS: usize = 5;

/// The line that decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Decision {
    /// Its report.
    #[serde(flatten)]
    pub report: LineReport,
    /// File it stands in, where several were read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The text around the message, without colours, cut to some hundred bytes.
    pub text: String,
}

/// Lines that say the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Group {
    /// Class of the lines.
    pub class: Class,
    /// Rule of the lines.
    pub rule: RuleId,
    /// Verb or event.
    pub verb: Option<String>,
    /// Name of the errno.
    pub errno: Option<String>,
    /// Name of the completion status or event.
    pub status: Option<String>,
    /// How many.
    pub count: u64,
    /// Number of the first one, in its file.
    pub first_line: u64,
    /// Ranks that wrote them, in order of appearance.
    pub ranks: Vec<u32>,
    /// Hosts that wrote them.
    pub hosts: Vec<String>,
    /// Devices that they name.
    pub devices: Vec<String>,
    /// The text of the first one, cut to some hundred bytes.
    pub text: String,
    #[serde(skip)]
    weight: Weight,
}

/// A peer and how many lines name it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PeerCount {
    /// As it stands in the lines.
    pub peer: String,
    /// Lines of root causes that name it.
    pub count: u64,
}

/// What all lines together say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Class of the deciding line; `cannot_tell` without one.
    pub class: Class,
    /// The deciding line.
    pub decision: Option<Decision>,
    /// Lines read.
    pub lines: u64,
    /// Lines in which a rule found something.
    pub matched: u64,
    /// Matched lines of each class.
    pub counts: BTreeMap<&'static str, u64>,
    /// Root causes: the one that decides, then the heaviest, those that tell what
    /// broke, and the earliest.
    pub causes: Vec<Group>,
    /// Further causes, beyond those that are kept apart.
    pub groups_left_out: u64,
    /// Peers that lines of root causes name most.
    pub peers: Vec<PeerCount>,
    /// The first line that only tells a consequence, where nothing decides.
    pub first_consequence: Option<Decision>,
    /// The first failing call that is left out on purpose (clean-up, read-only), where
    /// nothing decides.
    pub first_excluded: Option<Decision>,
    /// The rules that were applied.
    pub rules: String,
}

/// Clocks whose times are not compared with those of another.
const CLOCKS: usize = 3;

/// A line that would decide, and its place among all.
#[derive(Debug)]
struct Standing {
    line: u64,
    decision: Decision,
}

/// Takes reports one by one.
#[derive(Debug, Default)]
pub struct Summarizer {
    lines: u64,
    counts: [u64; Class::ALL.len()],
    /// Of the lines with times of each clock, and last of those without a time.
    best: [Option<Standing>; CLOCKS + 1],
    consequence: Option<Decision>,
    excluded: Option<Decision>,
    hosts: Hosts,
    groups: Vec<Group>,
    groups_left_out: u64,
    peers: HashMap<String, u64>,
}

impl Summarizer {
    /// One without any line.
    pub fn new() -> Summarizer {
        Summarizer::default()
    }

    /// Takes the report of the next line.
    pub fn observe(&mut self, file: Option<&str>, report: &LineReport) {
        self.lines += 1;
        if report.rule.is_none() {
            return;
        }
        if let Some(at) = Class::ALL.iter().position(|class| *class == report.class) {
            self.counts[at] += 1;
        }
        let decision = || Decision {
            report: report.clone(),
            file: file.map(str::to_owned),
            text: report.excerpt.clone(),
        };
        if let Some(host) = &report.host {
            self.hosts.observe(host);
        }
        if report.weight == Weight::Never {
            if self.consequence.is_none() && report.class == Class::FollowOn {
                self.consequence = Some(decision());
            }
            if self.excluded.is_none() && is_left_out(report) {
                self.excluded = Some(decision());
            }
            return;
        }
        let best = &mut self.best[clock_of(report)];
        if best
            .as_ref()
            .is_none_or(|best| precedes(report, &best.decision.report))
        {
            *best = Some(Standing {
                line: self.lines,
                decision: decision(),
            });
        }
        self.group(report);
        let Some(peer) = &report.peer else { return };
        if let Some(count) = self.peers.get_mut(peer) {
            *count += 1;
        } else if self.peers.len() < MAX_PEERS {
            self.peers.insert(peer.clone(), 1);
        }
    }

    fn group(&mut self, report: &LineReport) {
        if let Some(group) = self.groups.iter_mut().find(|group| group.has(report)) {
            group.count += 1;
            group.take_names(report);
            return;
        }
        let Some(rule) = report.rule.clone() else {
            return;
        };
        if self.groups.len() >= MAX_GROUPS {
            self.groups_left_out += 1;
            return;
        }
        let mut group = Group {
            class: report.class,
            rule,
            verb: report.verb.clone(),
            errno: report.errno.clone(),
            status: report.status.clone(),
            count: 1,
            first_line: report.line,
            ranks: Vec::new(),
            hosts: Vec::new(),
            devices: Vec::new(),
            text: report.excerpt.clone(),
            weight: report.weight,
        };
        group.take_names(report);
        self.groups.push(group);
    }

    /// What all lines together say.
    pub fn finish(mut self, rules: &str) -> Summary {
        let torn = self.hosts.torn();
        let mend = |report: &mut LineReport| {
            if let Some(host) = report.host.as_ref().and_then(|host| torn.get(host)) {
                report.host = Some(host.clone());
            }
        };
        let best = self.best.into_iter().flatten().min_by_key(|standing| {
            let report = &standing.decision.report;
            (Reverse(report.weight), turn(report), standing.line)
        });
        let mut decision = best.map(|standing| standing.decision);
        let decisions = decision
            .as_mut()
            .into_iter()
            .chain(&mut self.consequence)
            .chain(&mut self.excluded);
        decisions.for_each(|decision| mend(&mut decision.report));
        for group in &mut self.groups {
            group.mend(&torn);
        }
        self.groups.sort_by_key(|group| {
            let decides = decision.as_ref().is_some_and(|d| group.has(&d.report));
            (!decides, Reverse(group.weight), group.turn())
        });
        let mut peers: Vec<PeerCount> = self
            .peers
            .into_iter()
            .map(|(peer, count)| PeerCount { peer, count })
            .collect();
        peers.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.peer.cmp(&b.peer)));
        peers.truncate(SHOWN_PEERS);
        let counts = Class::ALL.iter().zip(self.counts);
        Summary {
            class: decision
                .as_ref()
                .map_or(Class::CannotTell, |decision| decision.report.class),
            first_consequence: self.consequence.filter(|_| decision.is_none()),
            first_excluded: self.excluded.filter(|_| decision.is_none()),
            decision,
            lines: self.lines,
            matched: self.counts.iter().sum(),
            counts: counts
                .filter(|(_, count)| *count > 0)
                .map(|(class, count)| (class.name(), count))
                .collect(),
            causes: self.groups,
            groups_left_out: self.groups_left_out,
            peers,
            rules: rules.to_owned(),
        }
    }
}

impl Group {
    /// Whether the line belongs to it.
    fn has(&self, report: &LineReport) -> bool {
        self.class == report.class
            && Some(&self.rule) == report.rule.as_ref()
            && self.verb == report.verb
            && self.errno == report.errno
            && self.status == report.status
    }

    fn turn(&self) -> Turn {
        Turn::of(self.class, self.verb.as_deref())
    }

    /// Names hosts as the whole log has them.
    fn mend(&mut self, torn: &BTreeMap<String, String>) {
        let mut hosts: Vec<String> = Vec::with_capacity(self.hosts.len());
        for host in self.hosts.drain(..) {
            let host = torn.get(&host).cloned().unwrap_or(host);
            if !hosts.contains(&host) {
                hosts.push(host);
            }
        }
        self.hosts = hosts;
    }

    fn take_names(&mut self, report: &LineReport) {
        fn take<T: PartialEq + Clone>(names: &mut Vec<T>, name: Option<&T>) {
            if let Some(name) = name
                && names.len() < MAX_NAMES
                && !names.contains(name)
            {
                names.push(name.clone());
            }
        }
        take(&mut self.ranks, report.rank.as_ref());
        take(&mut self.hosts, report.host.as_ref());
        take(&mut self.devices, report.device.as_ref());
    }
}

/// A failing call of the control path that never decides: clean-up and read-only calls.
fn is_left_out(report: &LineReport) -> bool {
    report.class == Class::Cleanup || matches!(report.kind, Some(Kind::Cleanup | Kind::ReadOnly))
}

/// The clock of its time; the last place for a line without one.
fn clock_of(report: &LineReport) -> usize {
    match report.moment.map(|moment| moment.clock) {
        Some(Clock::Wall) => 0,
        Some(Clock::Yearless) => 1,
        Some(Clock::Boot) => 2,
        None => CLOCKS,
    }
}

fn turn(report: &LineReport) -> Turn {
    Turn::of(report.class, report.verb.as_deref())
}

/// Whether the line decides rather than the best so far of its clock, which stands
/// earlier in the log: a heavier one does, one that was surely written before, and
/// where no time decides one that tells what broke rather than what followed.
fn precedes(report: &LineReport, best: &LineReport) -> bool {
    if report.weight != best.weight {
        return report.weight > best.weight;
    }
    let before = report.moment.zip(best.moment);
    before
        .and_then(|(moment, other)| moment.is_before(other))
        .unwrap_or_else(|| turn(report) < turn(best))
}
