//! All modules of one selection together: who a call leads to, across modules and
//! through tables of operations.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use super::SelectError;
use super::flow::{self, Call, Reading};
use super::module::{Module, Table, Target};
use super::rules::Untyped;
use super::shape::{Names, Operation, Shapes, Slot};
use super::value::Value;
use crate::btf::{Blob, Types, function as prototype_of};

/// Functions that a table must hold to be known by its places alone. Drivers have 30 of
/// the 120 operations of a device.
const LEAST_FUNCTIONS: usize = 6;

/// A function: of a module that is analysed, or one outside.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Node {
    /// Module and function, by number.
    Inside(usize, usize),
    /// The kernel's own, or one of a module that is not analysed.
    Outside(String),
}

/// Modules with their types and what is known across them.
pub(super) struct World<'a> {
    pub(super) modules: &'a [Module],
    pub(super) shapes: Vec<Option<Shapes<'a>>>,
    base: Types<'a>,
    base_names: &'a Names,
    exported: HashMap<&'a str, (usize, usize)>,
    untyped: &'a Untyped,
    functions_of: RefCell<HashMap<String, BTreeMap<String, BTreeSet<Node>>>>,
    calls: RefCell<HashMap<(usize, usize), BTreeSet<Node>>>,
    arguments: RefCell<HashMap<(usize, usize), Vec<Value>>>,
    unknown: RefCell<BTreeMap<(usize, usize), BTreeSet<String>>>,
}

impl<'a> World<'a> {
    /// Joins modules. `untyped` says where a pointer without a type may lead.
    ///
    /// # Errors
    /// A module's BTF is broken.
    pub(super) fn new(
        modules: &'a [Module],
        base: &'a Blob,
        base_names: &'a Names,
        untyped: &'a Untyped,
    ) -> Result<Self, SelectError> {
        let mut shapes = Vec::new();
        let mut exported = HashMap::new();
        for (number, module) in modules.iter().enumerate() {
            let own = module.btf.as_ref().map(|btf| {
                let types = Types::split(module.own_base.as_ref().unwrap_or(base), btf);
                Shapes::new(types, base_names).map_err(|e| broken(&module.path, e))
            });
            shapes.push(own.transpose()?);
            for name in module.exported.keys() {
                if let Some(index) = module.exported_function(name) {
                    exported.entry(name.as_str()).or_insert((number, index));
                }
            }
        }
        Ok(Self {
            modules,
            shapes,
            base: Types::whole(base),
            base_names,
            exported,
            untyped,
            functions_of: RefCell::default(),
            calls: RefCell::default(),
            arguments: RefCell::default(),
            unknown: RefCell::default(),
        })
    }

    /// Number of a module.
    pub(super) fn module(&self, name: &str) -> Option<usize> {
        self.modules.iter().position(|m| m.name == name)
    }

    /// Name of a function.
    pub(super) fn name<'n>(&'n self, node: &'n Node) -> &'n str {
        match node {
            Node::Inside(module, function) => &self.modules[*module].functions[*function].name,
            Node::Outside(name) => name,
        }
    }

    /// Whom a function calls, tables of operations resolved.
    pub(super) fn callees(&self, node: &Node) -> BTreeSet<Node> {
        let Node::Inside(module, function) = *node else {
            return BTreeSet::new();
        };
        if let Some(known) = self.calls.borrow().get(&(module, function)) {
            return known.clone();
        }
        let found = self.find_callees(module, function);
        self.calls
            .borrow_mut()
            .insert((module, function), found.clone());
        found
    }

    fn find_callees(&self, module: usize, function: usize) -> BTreeSet<Node> {
        let returns = |name: &str| self.returned_struct(name);
        let arguments = self.arguments.borrow().get(&(module, function)).cloned();
        let arguments = arguments.unwrap_or_default();
        let reading = Reading {
            module: &self.modules[module],
            shapes: self.shapes[module].as_ref(),
            returns: &returns,
            untyped: self.untyped,
            arguments: &arguments,
        };
        let found = flow::calls(&reading, function);
        self.pass(module, found.passed);
        let mut out = BTreeSet::new();
        for call in found.calls {
            match call {
                Call::Own(index) => {
                    out.insert(Node::Inside(module, index));
                }
                Call::Extern(name) => {
                    out.insert(match self.exported.get(name.as_str()) {
                        Some((module, index)) => Node::Inside(*module, *index),
                        None => Node::Outside(name),
                    });
                }
                Call::Operation(operation) => {
                    let found = self.functions_behind(&operation);
                    // With tables, but none that has this member: not offered.
                    if found.is_empty() && self.tables_of(&operation.owner).is_empty() {
                        self.note(
                            module,
                            function,
                            format!("{}.{}", operation.owner, operation.member),
                        );
                    }
                    out.extend(found);
                }
                Call::Unknown => self.note(module, function, "an untyped pointer".to_owned()),
            }
        }
        out
    }

    /// Callers come before what they call, so that this is there in time; what a
    /// later caller passes besides is the same by type.
    fn pass(&self, module: usize, passed: BTreeMap<usize, Vec<Value>>) {
        let mut arguments = self.arguments.borrow_mut();
        for (function, values) in passed {
            let known = arguments.entry((module, function)).or_default();
            known.resize(known.len().max(values.len()), Value::default());
            for (mine, value) in known.iter_mut().zip(&values) {
                mine.join(value);
            }
        }
    }

    fn note(&self, module: usize, function: usize, what: String) {
        let mut unknown = self.unknown.borrow_mut();
        unknown.entry((module, function)).or_default().insert(what);
    }

    /// Indirect calls of a function that lead nowhere known, by what they went
    /// through.
    pub(super) fn unresolved(&self, node: &Node) -> Vec<String> {
        let Node::Inside(module, function) = *node else {
            return Vec::new();
        };
        let unknown = self.unknown.borrow();
        let found = unknown.get(&(module, function));
        found.into_iter().flatten().cloned().collect()
    }

    /// Name of the struct that a function of another module returns a pointer to.
    fn returned_struct(&self, name: &str) -> Option<String> {
        if let Some((module, index)) = self.exported.get(name) {
            let shapes = self.shapes[*module].as_ref()?;
            let name = &self.modules[*module].functions[*index].name;
            let (_, returned) = shapes.prototype(name)?;
            return match returned? {
                super::shape::Held::Pointer(id) => Some(shapes.struct_name(id)),
                _ => None,
            };
        }
        let id = self.base_names.function(name)?;
        let proto = self.base.get(self.base.get(id).ok()?.size_or_type).ok()?;
        let (_, pointer) = self.base.resolve(proto.size_or_type).ok()?;
        if pointer.kind != crate::btf::Kind::Ptr {
            return None;
        }
        let (_, target) = self.base.resolve(pointer.size_or_type).ok()?;
        let name = self.base.string(target.name).ok()?;
        (!name.is_empty()).then(|| String::from_utf8_lossy(name).into_owned())
    }

    /// Functions that stand at a member of any table of a struct.
    pub(super) fn functions_behind(&self, operation: &Operation) -> BTreeSet<Node> {
        self.tables_of(&operation.owner)
            .get(&operation.member)
            .cloned()
            .unwrap_or_default()
    }

    /// Functions of all tables of a struct, by member.
    pub(super) fn tables_of(&self, owner: &str) -> BTreeMap<String, BTreeSet<Node>> {
        if let Some(known) = self.functions_of.borrow().get(owner) {
            return known.clone();
        }
        let mut out: BTreeMap<String, BTreeSet<Node>> = BTreeMap::new();
        // A driver without BTF has its operations as ib_core has them.
        let lends = owner == "ib_device_ops";
        let mut lenders = self.shapes.iter().flatten().filter(|_| lends);
        let lent = lenders.find_map(|shapes| shapes.slots(owner));
        for (number, shapes) in self.shapes.iter().enumerate() {
            let own = match shapes {
                Some(shapes) => shapes.slots(owner),
                None => lent.clone(),
            };
            let Some((bytes, slots)) = own.filter(|(_, slots)| !slots.is_empty()) else {
                continue;
            };
            if owner.is_empty() {
                continue;
            }
            for table in &self.modules[number].tables {
                for (_, member, node) in self.read_table(number, table, bytes, &slots) {
                    out.entry(member).or_default().insert(node);
                }
            }
        }
        self.functions_of
            .borrow_mut()
            .insert(owner.to_owned(), out.clone());
        out
    }

    /// The functions of an object of data, when it is a table (or an array of
    /// tables) of a struct: element number, member and function. A table is known
    /// by what it holds: every function in it has the prototype of its place. In a module
    /// without BTF it is known by its size and by enough functions, all in places of
    /// functions.
    pub(super) fn read_table(
        &self,
        number: usize,
        table: &Table,
        bytes: u64,
        slots: &[Slot],
    ) -> Vec<(u64, String, Node)> {
        let module = &self.modules[number];
        if bytes == 0 || table.bytes == 0 || !table.bytes.is_multiple_of(bytes) {
            return Vec::new();
        }
        let Some(section) = module.sections.get(&table.section) else {
            return Vec::new();
        };
        let mut out = Vec::new();
        let mut proved = false;
        for (at, relocation) in section
            .relocations
            .range(table.start..table.start.saturating_add(table.bytes))
        {
            let inside = at - table.start;
            let places: Vec<&Slot> = slots.iter().filter(|s| s.bytes == inside % bytes).collect();
            let node = self.function_of(number, &relocation.target);
            let (Some(first), Some(node)) = (places.first(), node.as_ref()) else {
                // A function where none belongs, or data where a function does.
                if node.is_some() || !places.is_empty() {
                    return Vec::new();
                }
                continue;
            };
            // In a union several members stand at one place.
            let fitting = places
                .iter()
                .find(|s| self.has_signature(node, &s.signature));
            match (fitting, self.signature(node)) {
                (Some(slot), _) => {
                    proved = true;
                    out.push((inside / bytes, slot.member.clone(), node.clone()));
                }
                (None, Some(_)) => return Vec::new(),
                // The BTF does not describe the function: its place decides.
                (None, None) => {
                    out.push((inside / bytes, first.member.clone(), node.clone()));
                }
            }
        }
        let by_places =
            self.shapes[number].is_none() && table.bytes == bytes && out.len() >= LEAST_FUNCTIONS;
        if proved || by_places { out } else { Vec::new() }
    }

    fn function_of(&self, number: usize, target: &Target) -> Option<Node> {
        match target {
            Target::At { section, address } => self.modules[number]
                .function_at(*section, *address)
                .map(|index| Node::Inside(number, index)),
            Target::Extern(name) => {
                if let Some((module, index)) = self.exported.get(name.as_str()) {
                    return Some(Node::Inside(*module, *index));
                }
                let known = self.base_names.function(name).is_some();
                known.then(|| Node::Outside(name.clone()))
            }
        }
    }

    fn has_signature(&self, node: &Node, wanted: &str) -> bool {
        self.signature(node).is_some_and(|s| s == wanted)
    }

    fn signature(&self, node: &Node) -> Option<String> {
        match node {
            Node::Inside(module, _) => self.shapes[*module].as_ref()?.signature(self.name(node)),
            Node::Outside(name) => {
                let id = self.base_names.function(name)?;
                crate::btf::signature_of(&self.base, id).ok()
            }
        }
    }

    /// The prototype of a function as text, and how it is called; none when the
    /// BTF does not describe it.
    pub(super) fn described(&self, node: &Node) -> Option<(String, crate::btf::Prototype)> {
        match node {
            Node::Inside(module, _) => {
                let shapes = self.shapes[*module].as_ref()?;
                let id = shapes.function_id(self.name(node))?;
                let found = prototype_of(shapes.types(), id).ok()?;
                Some((shapes.signature(self.name(node))?, found))
            }
            Node::Outside(name) => {
                let id = self.base_names.function(name)?;
                let found = prototype_of(&self.base, id).ok()?;
                Some((crate::btf::signature_of(&self.base, id).ok()?, found))
            }
        }
    }
}

fn broken(path: &Path, reason: crate::btf::BtfError) -> SelectError {
    SelectError::Btf {
        path: path.to_owned(),
        reason,
        remedy: "copy the file again from its package",
    }
}
