//! The rules applied to every reached function.

use std::collections::{BTreeMap, BTreeSet};

use super::attach::{How, attachable};
use super::graph::Id;
use super::keep::{Ends, Input, Keep, is_inside, keep};
use super::rules::{Effect, word_in};
use super::selection::{
    EntryRow, FunctionRow, Funnel, HookRow, NEAR_DEPTH, Rule, VerbRow, Verdict,
};
use super::world::Node;
use crate::btf::ReturnKind;
use crate::catalogue::Layer;

/// All rows of a selection.
#[derive(Debug)]
pub(super) struct Rows {
    pub(super) functions: Vec<FunctionRow>,
    pub(super) entries: Vec<EntryRow>,
    pub(super) verbs: Vec<VerbRow>,
    pub(super) hooks: Vec<HookRow>,
}

/// Applies the rules.
pub(super) fn apply(input: &Input<'_>) -> Rows {
    let (kept, ends) = keep(input);
    let depths: Vec<Vec<Option<u32>>> = input
        .entries
        .iter()
        .map(|entry| match input.graph.id(&entry.node) {
            Some(id) => input.graph.depths(id),
            None => vec![None; input.graph.nodes.len()],
        })
        .collect();
    let judge = Judge {
        input,
        kept,
        ends,
        depths,
        effects: input
            .entries
            .iter()
            .map(|e| input.rules.effect(&e.method))
            .collect(),
    };
    judge.rows()
}

struct Judge<'a, 'b> {
    input: &'b Input<'a>,
    kept: BTreeMap<Id, Keep>,
    ends: Vec<Ends>,
    /// Of each entry point, calls to each function.
    depths: Vec<Vec<Option<u32>>>,
    effects: Vec<Effect>,
}

impl Judge<'_, '_> {
    fn rows(&self) -> Rows {
        let nodes = &self.input.graph.nodes;
        let by_id: Vec<FunctionRow> = (0..nodes.len()).map(|id| self.row(id)).collect();
        let entries = self.entry_rows(&by_id);
        let verbs = self.verb_rows(&by_id);
        let hooks = self.hook_rows(&by_id);
        let mut functions = by_id;
        functions.sort_by(|a, b| {
            let key = |r: &FunctionRow| (r.layer, r.depth, r.module.clone(), r.function.clone());
            key(a).cmp(&key(b))
        });
        Rows {
            functions,
            entries,
            verbs,
            hooks,
        }
    }

    fn row(&self, id: Id) -> FunctionRow {
        let input = self.input;
        let node = &input.graph.nodes[id];
        let attach = attachable(input.world, input.rules, node);
        let reaching: Vec<usize> = (0..self.depths.len())
            .filter(|entry| self.depths[*entry][id].is_some())
            .collect();
        let depth = self.depth(id, &reaching);
        let module = match node {
            Node::Inside(number, _) => input.world.modules[*number].name.clone(),
            Node::Outside(_) => "vmlinux".to_owned(),
        };
        let (verdict, rule, why) = self.judge(id, &reaching, attach.how);
        let hooks = match (verdict, self.kept.get(&id)) {
            (Verdict::Chosen, Some(keep)) => keep.hooks.iter().map(|(n, _)| n.clone()).collect(),
            _ => Vec::new(),
        };
        FunctionRow {
            function: input.world.name(node).to_owned(),
            module,
            layer: self.layer(id),
            verbs: self.verb_names(&reaching),
            depth,
            entry_points: reaching.len(),
            verdict,
            rule,
            why,
            hooks,
            attach,
            arguments: Vec::new(),
            arguments_absent: Vec::new(),
        }
    }

    fn layer(&self, id: Id) -> Layer {
        match self.kept.get(&id).and_then(|k| k.hooks.first()) {
            Some((name, _)) if name.starts_with("memory.") => Layer::Memory,
            Some((name, _)) if name.starts_with("firmware.") => Layer::Firmware,
            _ => self.input.layers[id],
        }
    }

    /// From the nearest entry point of a kept verb, else from the nearest.
    fn depth(&self, id: Id, reaching: &[usize]) -> u32 {
        let of = |entry: &usize| self.depths[*entry][id];
        let verbs = reaching
            .iter()
            .filter(|entry| matches!(self.effects[**entry], Effect::Verbs(_)));
        let near = verbs.filter_map(of).min();
        near.or_else(|| reaching.iter().filter_map(of).min())
            .unwrap_or(0)
    }

    fn verb_names(&self, reaching: &[usize]) -> Vec<String> {
        let mut numbers: BTreeSet<usize> = BTreeSet::new();
        for entry in reaching {
            if let Effect::Verbs(verbs) = &self.effects[*entry] {
                let id = self.input.graph.id(&self.input.entries[*entry].node);
                let mine = verbs.iter().filter(|number| {
                    id.is_some_and(|id| self.ends[**number].entries.contains(&id))
                });
                numbers.extend(mine.copied());
            }
        }
        numbers
            .into_iter()
            .map(|number| self.input.rules.verbs[number].name.clone())
            .collect()
    }

    fn judge(&self, id: Id, reaching: &[usize], how: How) -> (Verdict, Rule, String) {
        let node = &self.input.graph.nodes[id];
        if !is_inside(node) {
            let why = "outside of the RDMA modules".to_owned();
            return (Verdict::Removed, Rule::Generic, why);
        }
        if let Some(keep) = self.kept.get(&id) {
            return match (how, !keep.hooks.is_empty()) {
                (How::Not, _) => {
                    let why = format!("{}; cannot be hooked", keep.why);
                    (Verdict::Removed, Rule::Traceable, why)
                }
                (_, true) => (Verdict::Chosen, Rule::Keep, keep.why.clone()),
                (_, false) => (Verdict::Kept, Rule::Keep, keep.why.clone()),
            };
        }
        if how == How::Not {
            let why = "cannot be hooked".to_owned();
            return (Verdict::Removed, Rule::Traceable, why);
        }
        let (rule, why) = self.removal(id, reaching);
        (Verdict::Removed, rule, why)
    }

    /// The first rule that speaks against a function.
    fn removal(&self, id: Id, reaching: &[usize]) -> (Rule, String) {
        let rules = self.input.rules;
        let name = self.input.world.name(&self.input.graph.nodes[id]);
        let only = |wanted: &Effect| {
            !reaching.is_empty() && reaching.iter().all(|entry| self.effects[*entry] == *wanted)
        };
        if only(&Effect::ReadOnly) {
            return (
                Rule::ReadOnly,
                "reached by read-only calls alone".to_owned(),
            );
        }
        if let Some(word) = word_in(name, &rules.read_only.names) {
            return (Rule::ReadOnly, format!("its name says `{word}`"));
        }
        let share = reaching.len() * 100 / self.depths.len().max(1);
        if share > rules.generic.share_percent {
            let why = format!(
                "{} of {} entry points pass through it",
                reaching.len(),
                self.depths.len()
            );
            return (Rule::Generic, why);
        }
        // Clean-up before the words of rule 2: `mlx5_core_destroy_eq` ends.
        if only(&Effect::CleanUp) {
            return (Rule::CleanUp, "reached by clean-up calls alone".to_owned());
        }
        if let Some(word) = word_in(name, &rules.clean_up.names) {
            return (Rule::CleanUp, format!("its name says `{word}`"));
        }
        if let Some(word) = word_in(name, &rules.generic.names) {
            return (Rule::Generic, format!("its name says `{word}`"));
        }
        (Rule::Keep, self.not_kept(id, reaching))
    }

    fn not_kept(&self, id: Id, reaching: &[usize]) -> String {
        let described = self.input.world.described(&self.input.graph.nodes[id]);
        if described.is_some_and(|(_, p)| p.returns == ReturnKind::Nothing) {
            return "returns nothing that tells a failure".to_owned();
        }
        let verbs = self.verb_names(reaching);
        if verbs.is_empty() {
            "serves no QP, MR, PD, CQ or AH".to_owned()
        } else {
            "not on the way from the system call to the hardware".to_owned()
        }
    }

    fn entry_rows(&self, rows: &[FunctionRow]) -> Vec<EntryRow> {
        let mut out = Vec::new();
        for (number, entry) in self.input.entries.iter().enumerate() {
            let reached: Vec<(u32, Id)> = (0..rows.len())
                .filter(|id| is_inside(&self.input.graph.nodes[*id]))
                .filter_map(|id| self.depths[number][id].map(|depth| (depth, id)))
                .collect();
            let mut kept: Vec<(u32, String)> = reached
                .iter()
                .filter(|(_, id)| rows[*id].verdict != Verdict::Removed)
                .map(|(depth, id)| (*depth, rows[*id].function.clone()))
                .collect();
            kept.sort();
            let Some(id) = self.input.graph.id(&entry.node) else {
                continue;
            };
            let effect = match &self.effects[number] {
                Effect::Verbs(_) => "creates or changes",
                Effect::ReadOnly => "read-only",
                Effect::CleanUp => "clean-up",
                Effect::Other => "other",
            };
            out.push(EntryRow {
                interface: entry.interface.name().to_owned(),
                method: entry.method.clone(),
                function: rows[id].function.clone(),
                module: rows[id].module.clone(),
                effect: effect.to_owned(),
                reached: reached.len(),
                kept: match &self.effects[number] {
                    Effect::Verbs(_) => kept.into_iter().map(|(_, name)| name).collect(),
                    _ => Vec::new(),
                },
            });
        }
        out
    }

    fn verb_rows(&self, rows: &[FunctionRow]) -> Vec<VerbRow> {
        let mut out = Vec::new();
        for (number, verb) in self.input.rules.verbs.iter().enumerate() {
            let ends = &self.ends[number];
            let mut depth = vec![None::<u32>; rows.len()];
            for (entry, depths) in self.input.entries.iter().zip(&self.depths) {
                let id = self.input.graph.id(&entry.node);
                if !id.is_some_and(|id| ends.entries.contains(&id)) {
                    continue;
                }
                for (mine, other) in depth.iter_mut().zip(depths) {
                    *mine = match (*mine, *other) {
                        (Some(a), Some(b)) => Some(a.min(b)),
                        (a, b) => a.or(b),
                    };
                }
            }
            let inside = |id: &Id| is_inside(&self.input.graph.nodes[*id]);
            let reached: Vec<Id> = (0..rows.len())
                .filter(|id| depth[*id].is_some() && inside(id))
                .collect();
            let own = self.reached_by_itself(number);
            let kept = |id: &&Id| {
                let mine = self.kept.get(*id).is_some_and(|k| {
                    k.verbs.contains(&number) || k.verbs.is_empty() && !verb.names.is_empty()
                });
                mine && own.contains(*id) && rows[**id].verdict != Verdict::Removed
            };
            out.push(VerbRow {
                verb: verb.name.clone(),
                reachable: reached.len(),
                near: reached
                    .iter()
                    .filter(|id| depth[**id].is_some_and(|d| d <= NEAR_DEPTH))
                    .count(),
                kept: reached.iter().filter(kept).count(),
                chosen: reached
                    .iter()
                    .filter(kept)
                    .filter(|id| rows[**id].verdict == Verdict::Chosen)
                    .count(),
                because: verb.because.clone(),
            });
        }
        out
    }

    /// What a verb reaches without calling the operation of another one: a driver
    /// that modifies its special QP creates others on the way.
    fn reached_by_itself(&self, number: usize) -> BTreeSet<Id> {
        let own = &self.ends[number];
        let mut others: BTreeSet<Id> = BTreeSet::new();
        for ends in &self.ends {
            others.extend(ends.operations.difference(&own.operations));
        }
        self.input
            .graph
            .reached(&own.entries, |id| !others.contains(&id))
    }

    /// The logical hooks, those without a function too.
    fn hook_rows(&self, rows: &[FunctionRow]) -> Vec<HookRow> {
        let mut out: BTreeMap<String, HookRow> = BTreeMap::new();
        for (id, keep) in &self.kept {
            for (name, group) in &keep.hooks {
                let hook = out.entry(name.clone()).or_insert_with(|| HookRow {
                    hook: name.clone(),
                    group: group.clone(),
                    functions: Vec::new(),
                    how: How::Not,
                    missing: String::new(),
                });
                add_function(hook, &rows[*id]);
            }
        }
        for (number, verb) in self.input.rules.verbs.iter().enumerate() {
            if verb.group != "none" && verb.group != "devx" {
                self.add_missing(number, &mut out);
            }
        }
        for rule in &self.input.rules.hardware.memory {
            missing(&mut out, &rule.hook, &rule.group, || {
                format!("nothing that is reached returns struct {}", rule.returns)
            });
        }
        for hook in out.values_mut() {
            hook.functions.sort();
            if !hook.functions.is_empty() {
                hook.missing.clear();
            }
        }
        out.into_values().collect()
    }

    fn add_missing(&self, number: usize, out: &mut BTreeMap<String, HookRow>) {
        let verb = &self.input.rules.verbs[number];
        let ends = &self.ends[number];
        if !ends.no_operation.is_empty() {
            let hook = format!("driver.{}", verb.name);
            missing(out, &hook, &verb.group, || {
                format!("{} {}", ends.no_operation, verb.operations.join(" or "))
            });
        }
        if ends.entries.is_empty() {
            let hook = format!("uverbs.{}", verb.name);
            missing(out, &hook, &verb.group, || {
                format!("uverbs has no method {}", verb.methods.join(" or "))
            });
        }
    }
}

fn add_function(hook: &mut HookRow, row: &FunctionRow) {
    if row.verdict == Verdict::Chosen {
        hook.functions
            .push(format!("{}:{}", row.module, row.function));
        hook.how = hook.how.min(row.attach.how);
    } else if hook.missing.is_empty() {
        hook.missing = format!("{}: {}", row.function, row.attach.why);
    }
}

fn missing(out: &mut BTreeMap<String, HookRow>, hook: &str, group: &str, why: impl Fn() -> String) {
    out.entry(hook.to_owned()).or_insert_with(|| HookRow {
        hook: hook.to_owned(),
        group: group.to_owned(),
        functions: Vec::new(),
        how: How::Not,
        missing: why(),
    });
}

/// Counts of the modules under drivers/infiniband; `all` and `traceable` come
/// from the modules.
pub(super) fn funnel(rows: &[FunctionRow], rdma: &BTreeSet<String>) -> Funnel {
    let mine: Vec<&FunctionRow> = rows.iter().filter(|r| rdma.contains(&r.module)).collect();
    let left = |rule: Rule| {
        mine.iter()
            .filter(|r| r.verdict != Verdict::Removed || r.rule > rule)
            .count()
    };
    Funnel {
        all: 0,
        traceable: 0,
        reachable: left(Rule::Traceable),
        after_read_only: left(Rule::ReadOnly),
        after_generic: left(Rule::Generic),
        after_clean_up: left(Rule::CleanUp),
        kept: mine
            .iter()
            .filter(|r| r.verdict != Verdict::Removed)
            .count(),
        chosen: mine.iter().filter(|r| r.verdict == Verdict::Chosen).count(),
    }
}
