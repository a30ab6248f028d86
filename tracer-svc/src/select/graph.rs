//! The call graph that uverbs' entry points reach, as numbers.

use std::collections::{BTreeSet, HashMap, VecDeque};

use super::entry::Entry;
use super::world::{Node, World};

/// Functions of one graph. A driver with its bus module has 5,000.
const MAX_NODES: usize = 1 << 20;

/// Number of a function in the graph.
pub(super) type Id = usize;

/// All functions that some entry point reaches.
#[derive(Debug, Default)]
pub(super) struct Graph {
    pub(super) nodes: Vec<Node>,
    index: HashMap<Node, Id>,
    pub(super) out: Vec<Vec<Id>>,
    pub(super) into: Vec<Vec<Id>>,
}

impl Graph {
    /// Follows the calls of all entry points.
    pub(super) fn from(world: &World<'_>, entries: &[Entry]) -> Self {
        let mut graph = Self::default();
        for entry in entries {
            graph.add(&entry.node);
        }
        let mut at = 0;
        while at < graph.nodes.len() && graph.nodes.len() < MAX_NODES {
            let node = graph.nodes[at].clone();
            for callee in world.callees(&node) {
                let to = graph.add(&callee);
                graph.out[at].push(to);
                graph.into[to].push(at);
            }
            at += 1;
        }
        graph
    }

    fn add(&mut self, node: &Node) -> Id {
        if let Some(id) = self.index.get(node) {
            return *id;
        }
        let id = self.nodes.len();
        self.nodes.push(node.clone());
        self.index.insert(node.clone(), id);
        self.out.push(Vec::new());
        self.into.push(Vec::new());
        id
    }

    /// Number of a function, when it is reached.
    pub(super) fn id(&self, node: &Node) -> Option<Id> {
        self.index.get(node).copied()
    }

    /// Calls from a function to each that it reaches.
    pub(super) fn depths(&self, from: Id) -> Vec<Option<u32>> {
        let mut out = vec![None; self.nodes.len()];
        let mut open = VecDeque::from([(from, 0)]);
        out[from] = Some(0);
        while let Some((at, depth)) = open.pop_front() {
            for next in &self.out[at] {
                if out[*next].is_none() {
                    out[*next] = Some(depth + 1);
                    open.push_back((*next, depth + 1));
                }
            }
        }
        out
    }

    /// Functions that stand on a way from one set to another, all of whose
    /// steps in between fulfil `through`. The ends count when they do too.
    pub(super) fn between(
        &self,
        from: &BTreeSet<Id>,
        to: &BTreeSet<Id>,
        through: impl Fn(Id) -> bool,
    ) -> BTreeSet<Id> {
        let forward = spread(&self.out, from, &through);
        let back = spread(&self.into, to, &through);
        forward.intersection(&back).copied().collect()
    }

    /// All that a set reaches over functions that fulfil `through`.
    pub(super) fn reached(
        &self,
        from: &BTreeSet<Id>,
        through: impl Fn(Id) -> bool,
    ) -> BTreeSet<Id> {
        spread(&self.out, from, &through)
    }
}

/// The set and what its members lead to: a step leaves a start in any case, and
/// another function only when it fulfils `through`.
fn spread(edges: &[Vec<Id>], from: &BTreeSet<Id>, through: &impl Fn(Id) -> bool) -> BTreeSet<Id> {
    let mut seen = from.clone();
    let mut open: Vec<Id> = from.iter().copied().collect();
    while let Some(at) = open.pop() {
        for next in &edges[at] {
            if through(*next) && seen.insert(*next) {
                open.push(*next);
            }
        }
    }
    seen
}
