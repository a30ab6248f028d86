//! What a module's BTF says about the layout of structs and about functions.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::btf::{Blob, BtfError, Kind, Type, Types, signature_of};

/// Structs inside structs; the kernel's deepest have eight.
const MAX_NESTING: usize = 16;
/// Members that are looked at for one place of a union.
const MAX_UNION: usize = 64;

/// What stands at a place of a struct, as far as it leads to calls.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Held {
    /// A pointer to a struct.
    Pointer(u32),
    /// A pointer to anything: `void *`.
    Anything {
        /// The struct that holds it.
        owner: String,
        /// Its member.
        member: String,
    },
    /// A pointer to a function.
    Function(Operation),
}

/// A member of a struct that points to a function.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Operation {
    /// The innermost struct with a name.
    pub(super) owner: String,
    /// Its member.
    pub(super) member: String,
}

/// One member of a table of operations.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) member: String,
    pub(super) bytes: u64,
    pub(super) signature: String,
}

/// Ids of the kernel's structs by name; made once for all modules.
#[derive(Debug, Default)]
pub(super) struct Names {
    structs: HashMap<Vec<u8>, u32>,
    functions: HashMap<Vec<u8>, u32>,
    /// Values of enums that describe uverbs' tables.
    constants: HashMap<String, u32>,
}

/// How the names of those begin.
const CONSTANTS: [&[u8]; 2] = [b"UAPI_DEF_", b"IB_USER_VERBS_"];

impl Names {
    /// Structs with members, and functions: the first of each name.
    pub(super) fn of(types: &Types<'_>) -> Result<Self, BtfError> {
        let mut out = Self::default();
        for found in types.own_types() {
            let (id, found) = found?;
            match found.kind {
                Kind::Struct if found.name != 0 && found.vlen > 0 => {
                    let name = types.string(found.name)?.to_vec();
                    out.structs.entry(name).or_insert(id);
                }
                Kind::Func => {
                    let name = types.string(found.name)?.to_vec();
                    out.functions.entry(name).or_insert(id);
                }
                Kind::Enum => out.add_constants(types, &found)?,
                _ => {}
            }
        }
        Ok(out)
    }

    fn add_constants(&mut self, types: &Types<'_>, found: &Type<'_>) -> Result<(), BtfError> {
        for pair in found.extra.chunks_exact(8) {
            let name = types.string(u32_of(pair, 0))?;
            if CONSTANTS.iter().any(|prefix| name.starts_with(prefix)) {
                let name = String::from_utf8_lossy(name).into_owned();
                self.constants.entry(name).or_insert(u32_of(pair, 4));
            }
        }
        Ok(())
    }

    /// Id of a function of this name.
    pub(super) fn function(&self, name: &str) -> Option<u32> {
        self.functions.get(name.as_bytes()).copied()
    }
}

/// The types of one module, with what was already looked up.
#[derive(Debug)]
pub(super) struct Shapes<'a> {
    types: Types<'a>,
    own: Names,
    base: &'a Names,
    held: RefCell<HashMap<(u32, u64), Vec<Held>>>,
    /// Structs that begin with another one: C's way of deriving.
    derived: HashMap<u32, Vec<u32>>,
}

impl<'a> Shapes<'a> {
    /// Indexes the types of a module.
    ///
    /// # Errors
    /// The BTF is broken.
    pub(super) fn new(types: Types<'a>, base: &'a Names) -> Result<Self, BtfError> {
        let own = Names::of(&types)?;
        let mut derived: HashMap<u32, Vec<u32>> = HashMap::new();
        for id in own.structs.values() {
            let found = types.get(*id)?;
            let Some(first) = found.members().next() else {
                continue;
            };
            let (inner, found) = types.resolve(first.type_id)?;
            if found.kind == Kind::Struct && first.bit_offset == 0 {
                derived.entry(inner).or_default().push(*id);
            }
        }
        for ids in derived.values_mut() {
            ids.sort_unstable();
        }
        Ok(Self {
            types,
            own,
            base,
            held: RefCell::default(),
            derived,
        })
    }

    /// Id of a struct of this name.
    pub(super) fn struct_id(&self, name: &str) -> Option<u32> {
        let name = name.as_bytes();
        let own = self.own.structs.get(name);
        own.or_else(|| self.base.structs.get(name)).copied()
    }

    /// Id of the module's own function of this name.
    pub(super) fn function_id(&self, name: &str) -> Option<u32> {
        self.own.functions.get(name.as_bytes()).copied()
    }

    /// The types themselves.
    pub(super) fn types(&self) -> &Types<'a> {
        &self.types
    }

    /// The types of the arguments and the return type of a function, as far as
    /// they are pointers to structs.
    pub(super) fn prototype(&self, name: &str) -> Option<(Vec<Option<Held>>, Option<Held>)> {
        let id = self.function_id(name)?;
        let proto = self.types.get(self.types.get(id).ok()?.size_or_type).ok()?;
        let arguments = proto
            .parameters()
            .map(|(_, id)| self.pointed(id, "", ""))
            .collect();
        Some((arguments, self.pointed(proto.size_or_type, "", "")))
    }

    /// What stands at a distance from the start of a struct; several things
    /// where it lies in a union, nothing where it is no pointer.
    pub(super) fn at(&self, id: u32, distance: i64) -> Vec<Held> {
        let Ok(distance) = u64::try_from(distance) else {
            return Vec::new();
        };
        if let Some(known) = self.held.borrow().get(&(id, distance)) {
            return known.clone();
        }
        let mut out = Vec::new();
        let size = self.types.get(id).map_or(0, |t| u64::from(t.size_or_type));
        self.walk(id, distance, ("", ""), 0, &mut out);
        if distance >= size && out.is_empty() {
            // Past the end: the struct is the beginning of a larger one.
            for larger in self.derived.get(&id).into_iter().flatten() {
                self.walk(*larger, distance, ("", ""), 0, &mut out);
            }
        }
        out.sort();
        out.dedup();
        self.held.borrow_mut().insert((id, distance), out.clone());
        out
    }

    fn walk(&self, id: u32, distance: u64, at: (&str, &str), nesting: usize, out: &mut Vec<Held>) {
        if nesting > MAX_NESTING || out.len() > MAX_UNION {
            return;
        }
        let Ok((id, found)) = self.types.resolve(id) else {
            return;
        };
        match found.kind {
            Kind::Struct | Kind::Union => self.walk_members(&found, distance, at, nesting, out),
            Kind::Array => {
                let element = u32_of(found.extra, 0);
                let size = self.size_of(element, 0);
                let count = u64::from(u32_of(found.extra, 8));
                // An array without length ends a struct and goes on behind it.
                if size > 0 && (count == 0 || distance / size < count) {
                    self.walk(element, distance % size, at, nesting + 1, out);
                }
            }
            Kind::Ptr if distance == 0 => out.extend(self.pointed(id, at.0, at.1)),
            _ => {}
        }
    }

    fn walk_members(
        &self,
        found: &Type<'_>,
        distance: u64,
        at: (&str, &str),
        nesting: usize,
        out: &mut Vec<Held>,
    ) {
        let owner = match self.name(found.name) {
            name if name.is_empty() => at.0.to_owned(),
            name => name,
        };
        for (number, member) in found.members().enumerate() {
            let start = u64::from(member.bit_offset / 8);
            let size = self.size_of(member.type_id, 0);
            // An array without length goes on behind the end of the struct.
            let open_end = size == 0 && number + 1 == found.vlen as usize;
            let inside = distance >= start && (distance - start < size || open_end);
            if inside {
                let name = self.name(member.name);
                let at = (owner.as_str(), name.as_str());
                self.walk(member.type_id, distance - start, at, nesting + 1, out);
            }
        }
    }

    /// What a type is, when it is a pointer.
    fn pointed(&self, id: u32, owner: &str, member: &str) -> Option<Held> {
        let (_, pointer) = self.types.resolve(id).ok()?;
        if pointer.kind != Kind::Ptr {
            return None;
        }
        let (target, found) = self.types.resolve(pointer.size_or_type).ok()?;
        Some(match found.kind {
            Kind::Struct | Kind::Union => Held::Pointer(target),
            // Declared here, defined elsewhere under the same name.
            Kind::Fwd => Held::Pointer(self.struct_id(&self.name(found.name))?),
            Kind::Void => Held::Anything {
                owner: owner.to_owned(),
                member: member.to_owned(),
            },
            Kind::FuncProto => Held::Function(Operation {
                owner: owner.to_owned(),
                member: member.to_owned(),
            }),
            _ => return None,
        })
    }

    fn size_of(&self, id: u32, nesting: usize) -> u64 {
        if nesting > MAX_NESTING {
            return 0;
        }
        let Ok((_, found)) = self.types.resolve(id) else {
            return 0;
        };
        match found.kind {
            Kind::Struct | Kind::Union | Kind::Int | Kind::Enum | Kind::Enum64 | Kind::Float => {
                u64::from(found.size_or_type)
            }
            Kind::Ptr => 8,
            Kind::Array => {
                let element = self.size_of(u32_of(found.extra, 0), nesting + 1);
                element.saturating_mul(u64::from(u32_of(found.extra, 8)))
            }
            _ => 0,
        }
    }

    /// Bytes of a struct, and its members that point to functions, nested ones
    /// included.
    pub(super) fn slots(&self, name: &str) -> Option<(u64, Vec<Slot>)> {
        let id = self.struct_id(name)?;
        let mut slots = Vec::new();
        self.add_slots(id, 0, 0, &mut slots);
        Some((self.size_of(id, 0), slots))
    }

    fn add_slots(&self, id: u32, start: u64, nesting: usize, out: &mut Vec<Slot>) {
        let Ok((_, found)) = self.types.resolve(id) else {
            return;
        };
        if nesting > MAX_NESTING || !matches!(found.kind, Kind::Struct | Kind::Union) {
            return;
        }
        for member in found.members() {
            let at = start + u64::from(member.bit_offset / 8);
            let Ok((_, inner)) = self.types.resolve(member.type_id) else {
                continue;
            };
            if inner.kind == Kind::Ptr {
                let Ok((_, proto)) = self.types.resolve(inner.size_or_type) else {
                    continue;
                };
                if proto.kind == Kind::FuncProto
                    && let Ok(signature) = crate::btf::signature(&self.types, &proto)
                {
                    out.push(Slot {
                        member: self.name(member.name),
                        bytes: at,
                        signature,
                    });
                }
            } else {
                self.add_slots(member.type_id, at, nesting + 1, out);
            }
        }
    }

    /// Bits from the start of a struct to a member, named by the way to it;
    /// unnamed structs and unions on the way are passed through.
    pub(super) fn bit_offset(&self, name: &str, way: &[&str]) -> Option<u64> {
        let mut id = self.struct_id(name)?;
        let mut bits = 0;
        for member in way {
            let (start, inner) = self.member(id, member, 0)?;
            bits += start;
            id = inner;
        }
        Some(bits)
    }

    fn member(&self, id: u32, wanted: &str, nesting: usize) -> Option<(u64, u32)> {
        let (_, found) = self.types.resolve(id).ok()?;
        if nesting > MAX_NESTING || !matches!(found.kind, Kind::Struct | Kind::Union) {
            return None;
        }
        found.members().find_map(|member| {
            let start = u64::from(member.bit_offset);
            match self.name(member.name) {
                name if name == wanted => Some((start, member.type_id)),
                name if name.is_empty() => self
                    .member(member.type_id, wanted, nesting + 1)
                    .map(|(inner, id)| (start + inner, id)),
                _ => None,
            }
        })
    }

    /// The signature of the module's own function of this name.
    pub(super) fn signature(&self, function: &str) -> Option<String> {
        signature_of(&self.types, self.function_id(function)?).ok()
    }

    /// Names of constants that begin with a prefix, by value; the module's own
    /// before the kernel's.
    pub(super) fn constants(&self, prefix: &str) -> HashMap<u32, String> {
        let mut out = HashMap::new();
        for names in [self.base, &self.own] {
            for (name, value) in &names.constants {
                if name.starts_with(prefix) {
                    out.insert(*value, name.clone());
                }
            }
        }
        out
    }

    /// Name of a struct.
    pub(super) fn struct_name(&self, id: u32) -> String {
        self.types
            .get(id)
            .map_or_else(|_| String::new(), |t| self.name(t.name))
    }

    fn name(&self, offset: u32) -> String {
        self.types
            .string(offset)
            .map(|name| String::from_utf8_lossy(name).into_owned())
            .unwrap_or_default()
    }
}

fn u32_of(bytes: &[u8], at: usize) -> u32 {
    match bytes.get(at..at + 4) {
        Some(&[a, b, c, d]) => u32::from_le_bytes([a, b, c, d]),
        _ => 0,
    }
}

/// Whether a module's BTF continues this base. The format does not tell, but a
/// BTF of another build names things in the middle of other names: its offsets
/// count from another base's end.
///
/// # Errors
/// What does not fit.
pub(super) fn belongs(base: &Blob, own: &Blob) -> Result<(), String> {
    let types = Types::split(base, own);
    for found in types.own_types() {
        let (id, found) = found.map_err(|e| e.to_string())?;
        let members = found.members().map(|m| (m.name, m.type_id));
        let parameters = found.parameters();
        for (name, type_id) in members.chain(parameters).chain([(found.name, 0)]) {
            if !types.starts_a_string(name) {
                return Err(format!("type {id} has its name inside another name"));
            }
            if type_id != 0 && types.get(type_id).is_err() {
                return Err(format!(
                    "type {id} refers to type {type_id}, which is not there"
                ));
            }
        }
        if found.kind == Kind::Func {
            let proto = types.get(found.size_or_type).map(|t| t.kind);
            if proto != Ok(Kind::FuncProto) {
                return Err(format!("function {id} has no prototype"));
            }
        }
    }
    Ok(())
}
