//! What a register may hold, as far as it leads to a call.

use std::collections::BTreeMap;

use super::code::{Convention, REGISTERS, Register};
use super::module::Target;
use super::shape::{Held, Operation};

/// Different things that one register may hold where paths meet. More than that
/// is a loop over memory and leads to no call that could be told.
const MAX_ORIGINS: usize = 8;
/// Places of the stack that are followed in one function.
const MAX_STACK: usize = 256;

/// One thing that a register may hold.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Origin {
    /// An address inside a struct.
    Inside { id: u32, distance: i64 },
    /// A pointer whose type the C code does not tell; where it was loaded from.
    Anything {
        owner: String,
        member: String,
        distance: i64,
    },
    /// The address of a function, loaded from a struct.
    Operation(Operation),
    /// The address of a symbol.
    Symbol { section: usize, address: u64 },
    /// The address of a symbol of another module.
    Extern(String),
    /// An address on the stack, from where it stood at entry.
    Stack(i64),
}

impl From<Held> for Origin {
    fn from(held: Held) -> Self {
        match held {
            Held::Pointer(id) => Self::Inside { id, distance: 0 },
            Held::Anything { owner, member } => Self::Anything {
                owner,
                member,
                distance: 0,
            },
            Held::Function(operation) => Self::Operation(operation),
        }
    }
}

impl From<Target> for Origin {
    fn from(target: Target) -> Self {
        match target {
            Target::At { section, address } => Self::Symbol { section, address },
            Target::Extern(name) => Self::Extern(name),
        }
    }
}

impl Origin {
    fn moved(&self, by: i64) -> Option<Self> {
        Some(match self {
            Self::Inside { id, distance } => Self::Inside {
                id: *id,
                distance: distance.wrapping_add(by),
            },
            Self::Anything {
                owner,
                member,
                distance,
            } => Self::Anything {
                owner: owner.clone(),
                member: member.clone(),
                distance: distance.wrapping_add(by),
            },
            Self::Stack(at) => Self::Stack(at.wrapping_add(by)),
            Self::Symbol { section, address } => Self::Symbol {
                section: *section,
                address: address.wrapping_add_signed(by),
            },
            Self::Operation(_) | Self::Extern(_) => return None,
        })
    }
}

/// All that a register may hold; empty when nothing is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Value(Vec<Origin>);

impl Value {
    pub(super) fn of(origins: impl IntoIterator<Item = Origin>) -> Self {
        let mut out = Self::default();
        for origin in origins {
            out.add(origin);
        }
        out
    }

    pub(super) fn origins(&self) -> &[Origin] {
        &self.0
    }

    fn add(&mut self, origin: Origin) -> bool {
        match self.0.binary_search(&origin) {
            Err(at) if self.0.len() < MAX_ORIGINS => {
                self.0.insert(at, origin);
                true
            }
            _ => false,
        }
    }

    /// Joins what another path brings. What is not known adds nothing: a C
    /// variable keeps its type on every path. Tells whether something is new.
    pub(super) fn join(&mut self, other: &Self) -> bool {
        let mut changed = false;
        for origin in &other.0 {
            changed |= self.add(origin.clone());
        }
        changed
    }

    pub(super) fn moved(&self, by: i64) -> Self {
        Self::of(self.0.iter().filter_map(|origin| origin.moved(by)))
    }

    /// Without addresses on the stack, which mean nothing in another function.
    pub(super) fn outside_of_stack(&self) -> Self {
        let kept = self.0.iter().filter(|o| !matches!(o, Origin::Stack(_)));
        Self(kept.cloned().collect())
    }

    /// The one place on the stack that this is.
    pub(super) fn stack(&self) -> Option<i64> {
        match self.0.as_slice() {
            [Origin::Stack(at)] => Some(*at),
            _ => None,
        }
    }
}

/// Registers and stack at one place of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    registers: Vec<Value>,
    stack: BTreeMap<i64, Value>,
}

impl State {
    /// Nothing is known but the stack pointer.
    pub(super) fn empty(convention: &Convention) -> Self {
        let mut out = Self {
            registers: vec![Value::default(); REGISTERS],
            stack: BTreeMap::new(),
        };
        out.set(convention.stack, Value::of([Origin::Stack(0)]));
        out
    }

    pub(super) fn get(&self, register: Register) -> &Value {
        &self.registers[usize::from(register) % REGISTERS]
    }

    pub(super) fn set(&mut self, register: Register, value: Value) {
        self.registers[usize::from(register) % REGISTERS] = value;
    }

    pub(super) fn slot(&self, at: i64) -> Value {
        self.stack.get(&at).cloned().unwrap_or_default()
    }

    pub(super) fn set_slot(&mut self, at: i64, value: Value) {
        if self.stack.len() < MAX_STACK || self.stack.contains_key(&at) {
            self.stack.insert(at, value);
        }
    }

    pub(super) fn join(&mut self, other: &Self) -> bool {
        let mut changed = false;
        for (mine, theirs) in self.registers.iter_mut().zip(&other.registers) {
            changed |= mine.join(theirs);
        }
        for (at, theirs) in &other.stack {
            if theirs.origins().is_empty() {
                continue;
            }
            if self.stack.len() < MAX_STACK || self.stack.contains_key(at) {
                changed |= self.stack.entry(*at).or_default().join(theirs);
            }
        }
        changed
    }
}
