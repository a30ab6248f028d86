//! From the reports of all lines to the one that decides.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::class::{Class, RuleId, Weight};
use crate::classify::LineReport;

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
    /// Root causes, the heaviest and earliest first.
    pub causes: Vec<Group>,
    /// Further causes, beyond those that are kept apart.
    pub groups_left_out: u64,
    /// Peers that lines of root causes name most.
    pub peers: Vec<PeerCount>,
    /// The first line that only tells a consequence, where nothing decides.
    pub first_consequence: Option<Decision>,
    /// The rules that were applied.
    pub rules: String,
}

/// Takes reports one by one.
#[derive(Debug, Default)]
pub struct Summarizer {
    lines: u64,
    counts: [u64; Class::ALL.len()],
    best: Option<Decision>,
    consequence: Option<Decision>,
    groups: Vec<Group>,
    groups_left_out: u64,
    peers: BTreeMap<String, u64>,
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
        if report.weight == Weight::Never {
            if self.consequence.is_none() && report.class == Class::FollowOn {
                self.consequence = Some(decision());
            }
            return;
        }
        if self
            .best
            .as_ref()
            .is_none_or(|best| precedes(report, &best.report))
        {
            self.best = Some(decision());
        }
        self.group(report);
        if let Some(peer) = &report.peer
            && (self.peers.len() < MAX_PEERS || self.peers.contains_key(peer))
        {
            *self.peers.entry(peer.clone()).or_default() += 1;
        }
    }

    fn group(&mut self, report: &LineReport) {
        let same = |group: &&mut Group| {
            group.class == report.class
                && Some(&group.rule) == report.rule.as_ref()
                && group.verb == report.verb
                && group.errno == report.errno
                && group.status == report.status
        };
        if let Some(group) = self.groups.iter_mut().find(same) {
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
            weight: report.weight,
        };
        group.take_names(report);
        self.groups.push(group);
    }

    /// What all lines together say.
    pub fn finish(mut self, rules: &str) -> Summary {
        self.groups
            .sort_by_key(|group| std::cmp::Reverse(group.weight));
        let mut peers: Vec<PeerCount> = self
            .peers
            .into_iter()
            .map(|(peer, count)| PeerCount { peer, count })
            .collect();
        peers.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.peer.cmp(&b.peer)));
        peers.truncate(SHOWN_PEERS);
        let counts = Class::ALL.iter().zip(self.counts);
        Summary {
            class: self
                .best
                .as_ref()
                .map_or(Class::CannotTell, |best| best.report.class),
            first_consequence: self.consequence.filter(|_| self.best.is_none()),
            decision: self.best,
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

/// Whether the line decides rather than the best so far, which stands earlier in
/// the log: a heavier one does, and one that was surely written before.
fn precedes(report: &LineReport, best: &LineReport) -> bool {
    if report.weight != best.weight {
        return report.weight > best.weight;
    }
    match (report.moment, best.moment) {
        (Some(moment), Some(other)) => moment.is_before(other) == Some(true),
        _ => false,
    }
}
