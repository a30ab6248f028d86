//! Rule 4 by the call graph: who creates or changes an object, and who stands on
//! the way from there to the hardware.

use std::collections::{BTreeMap, BTreeSet};

use super::entry::Entry;
use super::graph::{Graph, Id};
use super::rules::{Effect, Rules, VerbRule, word_in};
use super::shape::Operation;
use super::world::{Node, World};
use crate::catalogue::Layer;

/// Why a function is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Keep {
    pub(super) why: String,
    /// Verbs by number; none for what all share.
    pub(super) verbs: BTreeSet<usize>,
    /// Logical hooks and their groups; none when it is kept only.
    pub(super) hooks: BTreeSet<Hook>,
    rank: Rank,
}

/// Name and group of a logical hook.
pub(super) type Hook = (String, String);

/// Ending of the hooks of what stands behind another function of the same layer.
const BODY: &str = "_body";

/// What a function is first of all, where it is several things.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// The driver's way to the hardware.
    #[default]
    Hardware,
    /// Between the system call and the driver.
    Path,
    /// What user space calls, or the driver's operation.
    End,
    /// Pins memory, or sends the command.
    Shared,
}

/// What the rules look at.
pub(super) struct Input<'a> {
    pub(super) world: &'a World<'a>,
    pub(super) graph: &'a Graph,
    pub(super) rules: &'a Rules,
    pub(super) entries: &'a [Entry],
    pub(super) layers: &'a [Layer],
}

/// Functions behind each verb.
#[derive(Debug, Default)]
pub(super) struct Ends {
    pub(super) entries: BTreeSet<Id>,
    pub(super) operations: BTreeSet<Id>,
    /// Why the verb ends in no operation of the driver; empty when it does.
    pub(super) no_operation: &'static str,
}

/// Kept functions, and the ends of each verb.
pub(super) fn keep(input: &Input<'_>) -> (BTreeMap<Id, Keep>, Vec<Ends>) {
    let mut out = BTreeMap::new();
    let ends: Vec<Ends> = (0..input.rules.verbs.len())
        .map(|number| input.ends(number))
        .collect();
    for (number, ends) in ends.iter().enumerate() {
        input.hardware(number, ends, &mut out);
    }
    for (number, ends) in ends.iter().enumerate() {
        input.path(number, ends, &mut out);
    }
    for (number, ends) in ends.iter().enumerate() {
        input.mark_ends(number, ends, &mut out);
    }
    input.memory(&ends, &mut out);
    input.commands(&ends, &mut out);
    (out, ends)
}

impl Input<'_> {
    fn verb(&self, number: usize) -> &VerbRule {
        &self.rules.verbs[number]
    }

    fn name(&self, id: Id) -> &str {
        self.world.name(&self.graph.nodes[id])
    }

    fn above_driver(&self, id: Id) -> bool {
        matches!(self.layers[id], Layer::Uverbs | Layer::Core)
    }

    fn below_operation(&self, id: Id) -> bool {
        matches!(self.layers[id], Layer::Driver | Layer::Firmware)
    }

    fn ends(&self, number: usize) -> Ends {
        let verb = self.verb(number);
        let mut offered = false;
        let mut all_operations = BTreeSet::new();
        for member in &verb.operations {
            let operation = Operation {
                owner: "ib_device_ops".to_owned(),
                member: member.clone(),
            };
            let found = self.world.functions_behind(&operation);
            offered |= !found.is_empty();
            all_operations.extend(found.iter().filter_map(|node| self.graph.id(node)));
        }
        let mut entries = BTreeSet::new();
        let mut operations = BTreeSet::new();
        for entry in self.entries {
            // A method may serve two verbs; where the driver has no operation for one
            // of them it serves the other.
            let mine = match self.rules.effect(&entry.method) {
                Effect::Verbs(verbs) if !offered && verbs.len() > 1 => false,
                Effect::Verbs(verbs) => verbs.contains(&number),
                _ => false,
            };
            let Some(id) = self.graph.id(&entry.node).filter(|_| mine) else {
                continue;
            };
            // Only the operations that the entry point itself leads to: a driver
            // may have a second one that only the kernel's own users call.
            let reached = self
                .graph
                .reached(&BTreeSet::from([id]), |n| self.above_driver(n));
            let mine: BTreeSet<Id> = reached
                .iter()
                .flat_map(|n| &self.graph.out[*n])
                .filter(|n| all_operations.contains(n))
                .copied()
                .collect();
            if verb.operations.is_empty() || !mine.is_empty() || !offered {
                entries.insert(id);
                operations.extend(mine);
            }
        }
        let no_operation = match (verb.operations.is_empty(), !offered) {
            (true, _) => "",
            (false, true) => "the driver has no operation",
            (false, false) if operations.is_empty() => "no entry point reaches the operation",
            (false, false) => "",
        };
        Ends {
            no_operation,
            entries,
            operations,
        }
    }

    /// A hook of this layer and verb, where the verb is chosen.
    fn hook(&self, layer: &str, number: usize) -> Option<Hook> {
        let verb = self.verb(number);
        let group = match (layer, verb.group.as_str(), verb.name.as_str()) {
            (_, "none", _) => return None,
            // The reference system has no hook there.
            ("uverbs", "thirteen", "reg_dmabuf_mr") => "core",
            ("core", "thirteen", _) => "core",
            (_, group, _) => group,
        };
        Some((format!("{layer}.{}", verb.name), group.to_owned()))
    }

    fn mark_ends(&self, number: usize, ends: &Ends, out: &mut BTreeMap<Id, Keep>) {
        let verb = self.verb(number);
        for id in &ends.entries {
            let why = format!("{}: what user space calls", verb.name);
            // A DEVX handler is the driver's own and its entry point at once.
            let hook = self.hook("uverbs", number).map(|(name, group)| {
                let name = match group.as_str() {
                    "devx" => verb.name.replace('_', "."),
                    _ => name,
                };
                (name, group)
            });
            merge(out, *id, Rank::End, number, why, hook);
        }
        for id in &ends.operations {
            let why = format!("{}: the driver's operation", verb.name);
            merge(
                out,
                *id,
                Rank::End,
                number,
                why,
                self.hook("driver", number),
            );
        }
    }

    /// Between the system call and the driver's operation, and who finds the way
    /// to the peer for it.
    fn path(&self, number: usize, ends: &Ends, out: &mut BTreeMap<Id, Keep>) {
        let verb = self.verb(number);
        let path = self
            .graph
            .between(&ends.entries, &ends.operations, |id| self.above_driver(id));
        let path: BTreeSet<Id> = path
            .into_iter()
            .filter(|id| self.above_driver(*id))
            .collect();
        for id in &path {
            let mut why = format!("{}: between the system call and the driver", verb.name);
            let mut hook = self.path_hook(*id, &path, number);
            let is_body = hook.as_ref().is_some_and(|(name, _)| name.ends_with(BODY));
            if is_body && self.is_copy(*id) {
                why += "; a kretprobe alone can hook this copy, and its caller has the error";
                hook = None;
            }
            merge(out, *id, Rank::Path, number, why, hook);
        }
        for id in path.iter().flat_map(|id| &self.graph.out[*id]) {
            if self.above_driver(*id) && self.finds_address(*id) {
                self.address(number, *id, out);
            }
        }
    }

    /// The hook of a function between the system call and the driver's operation: the
    /// outermost of ib_core is the layer's own, what stands behind it or behind the entry
    /// point of ib_uverbs is a body.
    fn path_hook(&self, id: Id, path: &BTreeSet<Id>, number: usize) -> Option<Hook> {
        let (name, group) = self.hook("core", number)?;
        let called_inside = |layer: Layer| {
            let mut callers = self.graph.into[id].iter();
            callers.any(|from| path.contains(from) && self.layers[*from] == layer)
        };
        let name = match self.layers[id] {
            Layer::Uverbs => format!("uverbs.{}{BODY}", self.verb(number).name),
            layer if called_inside(layer) => name + BODY,
            _ => name,
        };
        Some((name, group))
    }

    /// Who finds the way to the peer; where that is a copy, what it waits in.
    fn address(&self, number: usize, id: Id, out: &mut BTreeMap<Id, Keep>) {
        let hardware = &self.rules.hardware;
        let hook = |id: Id| {
            self.hook("core", number)?;
            let name = self.name(id);
            let mut rules = hardware.address_hooks.iter();
            let rule = rules.find(|rule| word_in(name, &rule.words).is_some());
            let hook = rule.map_or("core.address", |rule| rule.hook.as_str());
            Some((hook.to_owned(), "core".to_owned()))
        };
        let mut why = format!("{}: finds the way to the peer", self.verb(number).name);
        let below = self
            .graph
            .reached(&BTreeSet::from([id]), |n| self.above_driver(n));
        let inner = below.into_iter().find(|inner| {
            self.is_copy(id)
                && self.above_driver(*inner)
                && !self.is_copy(*inner)
                && word_in(self.name(*inner), &hardware.address_inner).is_some()
        });
        let Some(inner) = inner else {
            merge(out, id, Rank::Path, number, why, hook(id));
            return;
        };
        let waits = format!("{why}: {} waits in it", self.name(id));
        why += &format!(
            "; a kretprobe alone can hook this copy, {} is hooked",
            self.name(inner)
        );
        merge(out, id, Rank::Path, number, why, None);
        merge(out, inner, Rank::Path, number, waits, hook(inner));
    }

    /// The compiler changed the function and gave it a suffix: `.isra.0`, `.part.0`.
    fn is_copy(&self, id: Id) -> bool {
        self.name(id).contains('.')
    }

    fn finds_address(&self, id: Id) -> bool {
        let hardware = &self.rules.hardware;
        let name = self.name(id);
        if word_in(name, &self.rules.read_only.names).is_some() {
            return false;
        }
        match self.world.described(&self.graph.nodes[id]) {
            Some((signature, _)) => {
                let fills = format!("struct {}*,", hardware.address);
                signature.starts_with("int(") && signature.contains(&fills)
            }
            None => word_in(name, &hardware.address_names).is_some(),
        }
    }

    /// Between the driver's operation and the command to the NIC.
    fn hardware(&self, number: usize, ends: &Ends, out: &mut BTreeMap<Id, Keep>) {
        let verb = self.verb(number);
        if verb.names.is_empty() {
            return;
        }
        let commands = self.command_ids();
        let way = self
            .graph
            .between(&ends.operations, &commands, |id| self.below_operation(id));
        for id in way {
            let name = self.name(id);
            let named = verb
                .names
                .iter()
                .all(|words| word_in(name, words).is_some());
            let ended = word_in(name, &self.rules.clean_up.names).is_some();
            if named && !ended && self.can_fail(id) && self.below_operation(id) {
                let why = format!("{}: on the driver's way to the hardware", verb.name);
                merge(out, id, Rank::Hardware, number, why, None);
            }
        }
    }

    fn can_fail(&self, id: Id) -> bool {
        let described = self.world.described(&self.graph.nodes[id]);
        described.is_none_or(|(_, p)| p.returns != crate::btf::ReturnKind::Nothing)
    }

    fn command_ids(&self) -> BTreeSet<Id> {
        (0..self.graph.nodes.len())
            .filter(|id| self.below_operation(*id))
            .filter(|id| {
                self.rules
                    .hardware
                    .commands
                    .iter()
                    .any(|c| c == self.name(*id))
            })
            .collect()
    }

    /// Who pins memory, below any verb that is kept.
    fn memory(&self, ends: &[Ends], out: &mut BTreeMap<Id, Keep>) {
        let from: BTreeSet<Id> = ends.iter().flat_map(|e| e.entries.clone()).collect();
        let below = self.graph.reached(&from, |_| true);
        for rule in &self.rules.hardware.memory {
            let returned = format!("struct {}*(", rule.returns);
            let found: BTreeSet<Id> = below
                .iter()
                .copied()
                .filter(|id| self.above_driver(*id) || self.layers[*id] == Layer::Memory)
                .filter(|id| {
                    let described = self.world.described(&self.graph.nodes[*id]);
                    described.is_some_and(|(s, _)| s.starts_with(&returned))
                })
                .collect();
            for id in &found {
                // Every outer one passes its error on.
                let inner = self
                    .graph
                    .reached(&BTreeSet::from([*id]), |n| found.contains(&n));
                let innermost = inner.len() == 1;
                let outer = rule.outer.as_ref().filter(|o| self.calls(*id, &o.calls));
                let chosen = match (innermost, outer) {
                    (true, _) => Some((": pins the memory", &rule.hook, &rule.group)),
                    (false, Some(o)) => Some((", and fails by itself too", &o.hook, &o.group)),
                    (false, None) => None,
                };
                let reason = chosen.map_or(", as a chosen one does", |(reason, _, _)| reason);
                let why = format!("returns struct {}{reason}", rule.returns);
                let hook = chosen.map(|(_, hook, group)| (hook.clone(), group.clone()));
                replace(out, *id, why, hook);
            }
        }
    }

    fn calls(&self, id: Id, names: &[String]) -> bool {
        let mut called = self.graph.out[id].iter();
        called.any(|callee| names.iter().any(|name| name == self.name(*callee)))
    }

    /// The command to the NIC, below any verb that is kept.
    fn commands(&self, ends: &[Ends], out: &mut BTreeMap<Id, Keep>) {
        let from: BTreeSet<Id> = ends.iter().flat_map(|e| e.entries.clone()).collect();
        let below = self.graph.reached(&from, |_| true);
        for id in self.command_ids().intersection(&below) {
            let hook = ("firmware.command".to_owned(), "firmware".to_owned());
            replace(
                out,
                *id,
                "sends the command to the NIC".to_owned(),
                Some(hook),
            );
        }
    }
}

/// Adds a reason. What the function is first of all tells why it is kept; of
/// equal reasons the first does, and their hooks add up.
fn merge(
    out: &mut BTreeMap<Id, Keep>,
    id: Id,
    rank: Rank,
    verb: usize,
    why: String,
    hook: Option<Hook>,
) {
    let entry = out.entry(id).or_default();
    entry.verbs.insert(verb);
    if rank > entry.rank || entry.why.is_empty() {
        entry.why = why;
        entry.hooks.clear();
        entry.rank = rank;
    }
    if rank == entry.rank {
        entry.hooks.extend(hook);
    }
}

/// Gives a reason that all verbs share, instead of any other.
fn replace(out: &mut BTreeMap<Id, Keep>, id: Id, why: String, hook: Option<Hook>) {
    let entry = out.entry(id).or_default();
    entry.why = why;
    entry.rank = Rank::Shared;
    entry.hooks = hook.into_iter().collect();
}

/// Whether a node is of a module at all.
pub(super) fn is_inside(node: &Node) -> bool {
    matches!(node, Node::Inside(..))
}
