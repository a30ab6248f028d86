//! What one function calls: a forward data flow over its machine code that
//! carries types from the prototype through loads, copies and the stack to each
//! indirect call.
//!
//! `mov rax, [qp]; mov rax, [rax + 0x188]; call rax` becomes
//! `ib_qp → ib_device → ib_device_ops.modify_qp`.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use super::code::{self, Callee, Convention, Flow, Instruction, Memory, Place, Step};
use super::module::Module;
use super::rules::Untyped;
use super::shape::{Held, Operation, Shapes};
use super::value::{Origin, State, Value};

/// Instructions of one function with its `.cold` parts. The largest RDMA
/// function of the kernels seen has 5,000.
const MAX_INSTRUCTIONS: usize = 100_000;
/// Visits of one block: origins only grow, and eight for each register is their
/// limit; what still changes then is a loop over memory.
const MAX_VISITS: u32 = 64;

/// One call as it was found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Call {
    /// A function of this module.
    Own(usize),
    /// A function of another module or of the kernel.
    Extern(String),
    /// Through a member of a struct.
    Operation(Operation),
    /// An indirect call that leads nowhere known.
    Unknown,
}

/// What the return value of a callee is.
pub(super) type Returns<'r> = dyn Fn(&str) -> Option<String> + 'r;

/// What the analysis of a function reads.
pub(super) struct Reading<'a> {
    pub(super) module: &'a Module,
    pub(super) shapes: Option<&'a Shapes<'a>>,
    /// Name of the struct that a function of another module returns a pointer to.
    pub(super) returns: &'a Returns<'a>,
    /// Where a pointer without a type may lead.
    pub(super) untyped: &'a Untyped,
    /// What callers pass, for a function that the BTF does not describe.
    pub(super) arguments: &'a [Value],
}

/// What was found in one function.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// All calls, each once.
    pub(super) calls: BTreeSet<Call>,
    /// What it passes to functions of its module that the BTF does not describe:
    /// `.isra` and `.part` copies take other arguments than the original.
    pub(super) passed: BTreeMap<usize, Vec<Value>>,
}

/// All calls of a function.
pub(super) fn calls(reading: &Reading<'_>, function: usize) -> Found {
    let convention = code::convention(reading.module.arch);
    let body = Body::of(reading.module, function);
    let mut analysis = Analysis {
        reading,
        convention,
        body: &body,
        entry: HashMap::new(),
        visits: HashMap::new(),
        anything: reading.anything_ids(),
    };
    analysis.run(function)
}

/// A function's instructions in blocks.
struct Body {
    instructions: Vec<Instruction>,
    at: HashMap<Place, usize>,
    leaders: BTreeSet<usize>,
}

impl Body {
    fn of(module: &Module, function: usize) -> Self {
        let found = &module.functions[function];
        let mut out = Self {
            instructions: Vec::new(),
            at: HashMap::new(),
            leaders: BTreeSet::new(),
        };
        let mut open = VecDeque::from([(found.section, (found.start, found.end))]);
        let mut ranges = BTreeSet::new();
        while let Some((section, range)) = open.pop_front() {
            if !ranges.insert((section, range)) || out.instructions.len() > MAX_INSTRUCTIONS {
                continue;
            }
            let first = out.instructions.len();
            out.instructions
                .extend(code::decode(module, section, range));
            out.leaders.insert(first);
            for number in first..out.instructions.len() {
                out.at.insert(out.instructions[number].place, number);
                let target = match out.instructions[number].flow {
                    Flow::Jump(place) | Flow::Branch(place) => place,
                    _ => continue,
                };
                // A part that the compiler moved away: it comes along.
                if let Some(range) = module.cold_around(target.0, target.1) {
                    open.push_back((target.0, range));
                }
            }
        }
        out.find_leaders();
        out
    }

    fn find_leaders(&mut self) {
        for (number, instruction) in self.instructions.iter().enumerate() {
            let target = match &instruction.flow {
                Flow::Next => continue,
                Flow::Jump(place) | Flow::Branch(place) => self.at.get(place),
                Flow::Leave(_) | Flow::Return => None,
            };
            self.leaders.extend(target);
            if number + 1 < self.instructions.len() {
                self.leaders.insert(number + 1);
            }
        }
    }

    /// The instruction after this one, where the code goes on.
    fn next(&self, number: usize) -> Option<usize> {
        (number + 1 < self.instructions.len()).then_some(number + 1)
    }
}

struct Analysis<'a, 'b> {
    reading: &'b Reading<'a>,
    convention: Convention,
    body: &'b Body,
    entry: HashMap<usize, State>,
    visits: HashMap<usize, u32>,
    anything: Vec<u32>,
}

impl Analysis<'_, '_> {
    fn run(&mut self, function: usize) -> Found {
        let mut open = BTreeSet::from([0]);
        self.entry.insert(0, self.entry_state(function));
        self.fixpoint(&mut open);
        // Blocks that only a table of jumps, a static key or an exception reaches:
        // what they call directly still counts.
        let body = self.body;
        for leader in &body.leaders {
            if !self.entry.contains_key(leader) {
                self.entry.insert(*leader, State::empty(&self.convention));
                open.insert(*leader);
                self.fixpoint(&mut open);
            }
        }
        let mut found = Found::default();
        for (leader, state) in &self.entry {
            self.block(*leader, state.clone(), Some(&mut found));
        }
        found
    }

    fn entry_state(&self, function: usize) -> State {
        let mut state = State::empty(&self.convention);
        let name = &self.reading.module.functions[function].name;
        let prototype = self.reading.shapes.and_then(|s| s.prototype(name));
        let arguments = match prototype {
            Some((arguments, _)) => arguments
                .into_iter()
                .map(|argument| Value::of(argument.map(Origin::from)))
                .collect(),
            None => self.reading.arguments.to_vec(),
        };
        for (register, argument) in self.convention.arguments.iter().zip(arguments) {
            state.set(*register, argument);
        }
        state
    }

    fn fixpoint(&mut self, open: &mut BTreeSet<usize>) {
        while let Some(leader) = open.pop_first() {
            let visits = self.visits.entry(leader).or_default();
            *visits += 1;
            if *visits > MAX_VISITS {
                continue;
            }
            let Some(state) = self.entry.get(&leader).cloned() else {
                continue;
            };
            for (next, state) in self.block(leader, state, None) {
                let changed = match self.entry.get_mut(&next) {
                    Some(old) => old.join(&state),
                    None => {
                        self.entry.insert(next, state);
                        true
                    }
                };
                if changed {
                    open.insert(next);
                }
            }
        }
    }

    /// Runs one block; gives the blocks that follow with the state that they get.
    fn block(
        &self,
        leader: usize,
        mut state: State,
        mut found: Option<&mut Found>,
    ) -> Vec<(usize, State)> {
        let mut number = leader;
        loop {
            let Some(instruction) = self.body.instructions.get(number) else {
                return Vec::new();
            };
            for step in &instruction.steps {
                self.step(step, &mut state, found.as_deref_mut());
            }
            let next = self.body.next(number);
            let target = |place: &Place| self.body.at.get(place).copied();
            match &instruction.flow {
                Flow::Next => match next {
                    Some(next) if self.body.leaders.contains(&next) => return vec![(next, state)],
                    Some(next) => number = next,
                    None => return Vec::new(),
                },
                Flow::Branch(place) => {
                    let mut out: Vec<_> = next.map(|n| (n, state.clone())).into_iter().collect();
                    match target(place) {
                        Some(to) => out.push((to, state)),
                        None => self.leave(*place, &state, found),
                    }
                    return out;
                }
                Flow::Jump(place) => {
                    return match target(place) {
                        Some(to) => vec![(to, state)],
                        None => {
                            self.leave(*place, &state, found);
                            Vec::new()
                        }
                    };
                }
                Flow::Leave(callee) => {
                    if let Some(found) = found {
                        for call in self.called(callee, &state, true) {
                            self.record(call, &state, found);
                        }
                    }
                    return Vec::new();
                }
                Flow::Return => return Vec::new(),
            }
        }
    }

    /// A jump out of the function is a call when it leads to a function's start.
    fn leave(&self, (section, address): Place, state: &State, found: Option<&mut Found>) {
        let index = self.reading.module.function_at(section, address);
        if let (Some(found), Some(index)) = (found, index) {
            self.record(Call::Own(index), state, found);
        }
    }

    /// Notes a call, and what it passes where no prototype tells it.
    fn record(&self, call: Call, state: &State, found: &mut Found) {
        if let Call::Own(index) = call {
            let name = &self.reading.module.functions[index].name;
            let shapes = self.reading.shapes;
            if shapes.is_some_and(|s| s.function_id(name).is_none()) {
                let registers = self.convention.arguments;
                let passed = found
                    .passed
                    .entry(index)
                    .or_insert_with(|| vec![Value::default(); registers.len()]);
                for (value, register) in passed.iter_mut().zip(registers) {
                    value.join(&state.get(*register).outside_of_stack());
                }
            }
        }
        found.calls.insert(call);
    }

    fn step(&self, step: &Step, state: &mut State, found: Option<&mut Found>) {
        match step {
            Step::Move { to, from } => state.set(*to, state.get(*from).clone()),
            Step::Maybe { to, from } => {
                let mut value = state.get(*to).clone();
                value.join(state.get(*from));
                state.set(*to, value);
            }
            Step::Add { to, from, distance } => {
                let value = state.get(*from).moved(*distance);
                state.set(*to, value);
            }
            Step::Address { to, target } => {
                state.set(*to, Value::of([Origin::from(target.clone())]));
            }
            Step::Load { to, at } => {
                let value = self.load(*at, state);
                state.set(*to, value);
            }
            Step::Store { from, at } => {
                if let Some(base) = state.get(at.from).stack() {
                    let value = state.get(*from).clone();
                    state.set_slot(base.wrapping_add(at.distance), value);
                }
            }
            Step::Clobber(register) => state.set(*register, Value::default()),
            Step::Call(callee) => {
                let calls = self.called(callee, state, false);
                let before = found.is_some().then(|| state.clone());
                self.after_call(&calls, state);
                if let (Some(found), Some(before)) = (found, before) {
                    for call in calls {
                        self.record(call, &before, found);
                    }
                }
            }
        }
    }

    fn load(&self, at: Memory, state: &State) -> Value {
        let base = state.get(at.from);
        if let Some(stack) = base.stack() {
            return state.slot(stack.wrapping_add(at.distance));
        }
        let mut found = Vec::new();
        for origin in base.origins() {
            match origin {
                Origin::Inside { id, distance } => {
                    if let Some(shapes) = self.reading.shapes {
                        found.extend(shapes.at(*id, distance.wrapping_add(at.distance)));
                    }
                }
                Origin::Anything {
                    owner,
                    member,
                    distance,
                } if self.reading.untyped.is_at(owner, member) => {
                    found.extend(self.load_anything(distance.wrapping_add(at.distance)));
                }
                _ => {}
            }
        }
        Value::of(found.into_iter().map(Origin::from))
    }

    /// The pointer is one to a verbs object of whatever kind: what any of them has
    /// there. Two loads later only one of them still leads to an operation.
    fn load_anything(&self, distance: i64) -> Vec<Held> {
        let Some(shapes) = self.reading.shapes else {
            return Vec::new();
        };
        let held = self.anything.iter().flat_map(|id| shapes.at(*id, distance));
        held.filter(|held| matches!(held, Held::Pointer(_)))
            .collect()
    }

    fn called(&self, callee: &Callee, state: &State, leaving: bool) -> Vec<Call> {
        let value = match callee {
            Callee::Direct(target) => {
                return self
                    .direct(&Origin::from(target.clone()))
                    .into_iter()
                    .collect();
            }
            Callee::Register(register) => state.get(*register).clone(),
            Callee::Memory(at) => self.load(*at, state),
            Callee::Computed => Value::default(),
        };
        let mut out: Vec<Call> = value
            .origins()
            .iter()
            .filter_map(|origin| self.direct(origin))
            .collect();
        // A jump through a register that holds no function is a table of jumps.
        if out.is_empty() && !leaving {
            out.push(Call::Unknown);
        }
        out
    }

    fn direct(&self, origin: &Origin) -> Option<Call> {
        let module = self.reading.module;
        match origin {
            Origin::Symbol { section, address } => module
                .function_at(*section, *address)
                .or_else(|| module.function_around(*section, *address))
                .map(Call::Own),
            Origin::Extern(name) => Some(Call::Extern(name.clone())),
            Origin::Operation(operation) => Some(Call::Operation(operation.clone())),
            _ => None,
        }
    }

    /// A call changes the scratch registers and returns what its prototype says.
    fn after_call(&self, found: &[Call], state: &mut State) {
        let mut returned = Value::default();
        for call in found {
            returned.join(&Value::of(self.returned(call).map(Origin::from)));
        }
        for register in self.convention.scratch {
            state.set(*register, Value::default());
        }
        state.set(self.convention.returns, returned);
    }

    fn returned(&self, call: &Call) -> Option<Held> {
        let shapes = self.reading.shapes?;
        match call {
            Call::Own(index) => shapes
                .prototype(&self.reading.module.functions[*index].name)
                .and_then(|(_, returned)| returned),
            Call::Extern(name) => {
                let name = (self.reading.returns)(name)?;
                shapes.struct_id(&name).map(Held::Pointer)
            }
            Call::Operation(_) | Call::Unknown => None,
        }
    }
}

impl Reading<'_> {
    fn anything_ids(&self) -> Vec<u32> {
        let Some(shapes) = self.shapes else {
            return Vec::new();
        };
        let ids = self.untyped.leads_to.iter();
        ids.filter_map(|name| shapes.struct_id(name)).collect()
    }
}
