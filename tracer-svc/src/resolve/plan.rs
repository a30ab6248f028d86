//! The pure function from catalogue and kernel to plan.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::arguments::{Places, Reading};
use crate::btf::{BtfError, FirstArgument, Prototype, ReturnKind, Types, function};
use crate::catalogue::{Catalogue, Hook, Place, Returns, Role};

use super::tables::{DriverFunction, find_by_name, find_by_prototype};
use super::{Found, Missing, Symbols};

/// What the resolver knows of one loaded module.
#[derive(Clone, Copy, Debug)]
pub struct ModuleView<'k> {
    /// Name as in /proc/modules.
    pub name: &'k str,
    /// Its types; none when it carries no BTF.
    pub types: Option<Types<'k>>,
    /// What is wrong with its BTF, when that is why it has no types.
    pub broken: Option<&'k str>,
    /// Id of `struct ib_device_ops` in its types.
    pub ops_struct: Option<u32>,
    /// It uses `ib_core` and is not known to be something else.
    pub may_be_driver: bool,
}

/// What the resolver knows of the running kernel.
#[derive(Debug)]
pub struct KernelView<'k> {
    /// Loaded modules that the catalogue names or that may be drivers.
    pub modules: Vec<ModuleView<'k>>,
    /// Their symbols.
    pub symbols: &'k Symbols,
    /// What ftrace can hook, as (module, function); none where it cannot be read.
    pub traceable: Option<&'k BTreeSet<(String, String)>>,
    /// Functions found in the drivers' tables.
    pub tables: &'k [DriverFunction],
}

/// One function to hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Index of the hook in the catalogue.
    pub hook: usize,
    /// Kernel module.
    pub module: String,
    /// Function name.
    pub function: String,
    /// How it was found.
    pub found: Found,
    /// As which of the hook's places.
    pub role: Role,
    /// Distance from user space: the place's, else the hook's.
    pub depth: u8,
    /// What the program's entry is made from. Without BTF only how an error is told.
    pub prototype: Prototype,
    /// Where it takes what its records tell; none when they tell nothing.
    pub arguments: Option<Places>,
    /// Why it cannot have a fexit program, so that a kretprobe is to serve.
    pub not_by_fexit: Option<Missing>,
    /// Where it begins; none where the kernel hides it.
    pub address: Option<u64>,
}

/// A function that can be hooked, as far as the kernel describes it.
struct Described {
    /// The symbol: another one than the asked name for a copy of the function.
    function: String,
    prototype: Prototype,
    arguments: Option<Places>,
    not_by_fexit: Option<Missing>,
}

/// What to hook, and what is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// In catalogue order.
    pub probes: Vec<Planned>,
    /// Index of the hook, and what it lacks.
    pub missing: Vec<(usize, Missing)>,
}

/// Resolves the catalogue against a kernel.
///
/// # Errors
/// A module's BTF is broken.
pub fn resolve(catalogue: &Catalogue, kernel: &KernelView<'_>) -> Result<Plan, BtfError> {
    let index = Index::new(catalogue, kernel)?;
    let mut plan = Plan::default();
    for (number, hook) in catalogue.hooks.iter().enumerate() {
        let mut at = At {
            index: &index,
            hook,
            number,
            plan: &mut plan,
        };
        match &hook.operation {
            Some(operation) => at.driver(operation)?,
            None => at.places()?,
        }
    }
    Ok(plan)
}

/// The kernel, prepared for look-ups.
struct Index<'v, 'k> {
    kernel: &'v KernelView<'k>,
    modules: BTreeMap<&'k str, ModuleView<'k>>,
    functions: HashMap<(&'k str, &'k [u8]), u32>,
    /// Functions of each driver's operations, and how they were found.
    drivers: Vec<(DriverFunction, Found)>,
}

impl<'v, 'k> Index<'v, 'k> {
    fn new(catalogue: &Catalogue, kernel: &'v KernelView<'k>) -> Result<Self, BtfError> {
        let mut functions = HashMap::new();
        for module in &kernel.modules {
            for function in module.types.iter().flat_map(Types::own_functions) {
                let (name, id) = function?;
                functions.insert((module.name, name), id);
            }
        }
        Ok(Self {
            kernel,
            modules: kernel.modules.iter().map(|m| (m.name, *m)).collect(),
            functions,
            drivers: drivers(catalogue, kernel)?,
        })
    }

    /// Why a function of a loaded module cannot be hooked; else what serves it: the
    /// function itself, or the copies that the compiler made of it. `hook` says what
    /// the BTF does not.
    fn look_up(
        &self,
        module: &str,
        name: &str,
        reading: Option<Reading>,
        hook: &Hook,
    ) -> Result<Result<Vec<Described>, Missing>, BtfError> {
        let Some(view) = self.modules.get(module) else {
            return Ok(Err(Missing::ModuleNotLoaded(module.to_owned())));
        };
        if self.kernel.symbols.is_ambiguous(module, name) {
            return Ok(Err(Missing::Ambiguous {
                module: module.to_owned(),
                function: name.to_owned(),
            }));
        }
        let id = self.functions.get(&(module, name.as_bytes()));
        let (Some(types), Some(id)) = (view.types, id) else {
            return Ok(self.undescribed(view, name, hook));
        };
        if !self.is_traceable(module, name) {
            return Ok(Err(Missing::NotTraceable(name.to_owned())));
        }
        let places = reading.map(|reading| Places::find(&types, *id, reading));
        Ok(Ok(vec![Described {
            function: name.to_owned(),
            prototype: function(&types, *id)?,
            arguments: places.transpose()?,
            not_by_fexit: None,
        }]))
    }

    fn is_traceable(&self, module: &str, name: &str) -> bool {
        self.kernel
            .traceable
            .is_none_or(|all| all.contains(&(module.to_owned(), name.to_owned())))
    }

    /// What serves a function that no BTF describes: a kretprobe needs only the
    /// symbol.
    fn undescribed(
        &self,
        view: &ModuleView<'_>,
        name: &str,
        hook: &Hook,
    ) -> Result<Vec<Described>, Missing> {
        let module = view.name;
        let symbols = self.kernel.symbols;
        let (names, why): (Vec<&str>, Missing) = if symbols.has_function(module, name) {
            let why = match (view.types, view.broken) {
                (Some(_), _) => Missing::NotDescribed(name.to_owned()),
                (None, None) => Missing::NoBtf(module.to_owned()),
                (None, Some(error)) => Missing::BrokenBtf {
                    module: module.to_owned(),
                    error: error.to_owned(),
                },
            };
            (vec![name], why)
        } else if let Some(symbol) = symbols.suffixed(module, name) {
            let why = Missing::Suffixed {
                function: name.to_owned(),
                symbol: symbol.to_owned(),
            };
            (symbols.clones(module, name).collect(), why)
        } else {
            return Err(Missing::NoFunction {
                module: module.to_owned(),
                function: name.to_owned(),
            });
        };
        // A kretprobe sees no arguments, and an event is told by nothing else.
        if names.is_empty() || hook.is_event() {
            return Err(why);
        }
        let traceable: Vec<&str> = names
            .into_iter()
            .filter(|name| self.is_traceable(module, name))
            .collect();
        if traceable.is_empty() {
            return Err(Missing::NotTraceable(name.to_owned()));
        }
        let described = |name: &str| Described {
            function: name.to_owned(),
            prototype: Prototype {
                function_id: 0,
                argument_words: 0,
                returns: match hook.returns {
                    Returns::Int => ReturnKind::Int,
                    Returns::Pointer => ReturnKind::Pointer,
                },
                first: FirstArgument::Other,
            },
            arguments: None,
            not_by_fexit: Some(why.clone()),
        };
        Ok(traceable.into_iter().map(described).collect())
    }
}

/// All operations of all drivers: from their tables, else by prototype.
fn drivers(
    catalogue: &Catalogue,
    kernel: &KernelView<'_>,
) -> Result<Vec<(DriverFunction, Found)>, BtfError> {
    let mut out: Vec<_> = kernel
        .tables
        .iter()
        .map(|f| (f.clone(), Found::OpsTable))
        .collect();
    let operations: Vec<&str> = catalogue.operations().collect();
    for module in kernel.modules.iter().filter(|m| m.may_be_driver) {
        if out.iter().any(|(f, _)| f.driver == module.name) {
            continue;
        }
        let (found, how) = match module.types.and(module.ops_struct) {
            Some(_) => (find_by_prototype(module, &operations)?, Found::Prototype),
            None => (
                find_by_name(module.name, kernel.symbols, &operations),
                Found::Symbol,
            ),
        };
        // A driver has most of the operations; a module that happens to have a
        // function of one operation's shape has not.
        if found.len() * 2 > operations.len() {
            out.extend(found.into_iter().map(|f| (f, how)));
        }
    }
    Ok(out)
}

/// One hook on its way into the plan.
struct At<'a, 'v, 'k> {
    index: &'a Index<'v, 'k>,
    hook: &'a Hook,
    number: usize,
    plan: &'a mut Plan,
}

impl At<'_, '_, '_> {
    fn places(&mut self) -> Result<(), BtfError> {
        let with = |role: Role| self.hook.places.iter().filter(move |p| p.role == role);
        let has_substitute = with(Role::Instead).next().is_some();
        let mut main_planned = false;
        let mut copies = Vec::new();
        for place in with(Role::Main) {
            let Some(found) = self.described(place, true)? else {
                continue;
            };
            // A substitute tells more than a copy that only a kretprobe can be on.
            let copied = |d: &Described| matches!(d.not_by_fexit, Some(Missing::Suffixed { .. }));
            if has_substitute && found.iter().any(copied) {
                copies.push((place, found));
            } else {
                main_planned |= self.plan_place(place, found);
            }
        }
        for place in with(Role::Also) {
            if let Some(found) = self.described(place, false)? {
                self.plan_place(place, found);
            }
        }
        let mut substituted = false;
        for place in with(Role::Instead).filter(|_| !main_planned) {
            // The first that is there; two of them would record one call twice.
            if let Some(found) = self.described(place, false)?
                && self.plan_place(place, found)
            {
                substituted = true;
                break;
            }
        }
        for (place, found) in copies {
            if substituted {
                let why = found.into_iter().find_map(|d| d.not_by_fexit);
                self.plan.missing.extend(why.map(|why| (self.number, why)));
            } else {
                self.plan_place(place, found);
            }
        }
        Ok(())
    }

    /// What serves a place; what it lacks goes into the plan.
    fn described(
        &mut self,
        place: &Place,
        missed: bool,
    ) -> Result<Option<Vec<Described>>, BtfError> {
        let reading = place.arguments.or(self.hook.arguments);
        let found = self
            .index
            .look_up(&place.module, &place.function, reading, self.hook)?;
        match found {
            Ok(found) => Ok(Some(found)),
            Err(missing) => {
                let absent = matches!(
                    missing,
                    Missing::NoFunction { .. } | Missing::ModuleNotLoaded(_)
                );
                if missed || !absent {
                    self.plan.missing.push((self.number, missing));
                }
                Ok(None)
            }
        }
    }

    /// True when a function of the place can be hooked.
    fn plan_place(&mut self, place: &Place, found: Vec<Described>) -> bool {
        let depth = place.depth.unwrap_or(self.hook.depth);
        let mut planned = false;
        for described in found {
            let at = (place.module.as_str(), Found::Name, place.role, depth);
            planned |= self.add(at, described);
        }
        planned
    }

    fn driver(&mut self, operation: &str) -> Result<(), BtfError> {
        let user = self.hook.user_operation.as_deref();
        let asked = |member: &str| member == operation || Some(member) == user;
        let drivers: BTreeSet<&str> = self
            .index
            .drivers
            .iter()
            .map(|(f, _)| f.driver.as_str())
            .collect();
        if drivers.is_empty() {
            self.plan.missing.push((self.number, Missing::NoDriver));
        }
        for driver in drivers {
            let mut functions = self
                .index
                .drivers
                .iter()
                .filter(|(f, _)| f.driver == driver && asked(&f.operation))
                .peekable();
            if functions.peek().is_none() {
                self.plan.missing.push((
                    self.number,
                    Missing::NoOperation {
                        module: driver.to_owned(),
                        operation: operation.to_owned(),
                    },
                ));
            }
            for (f, found) in functions {
                let reading = self.hook.arguments;
                match self
                    .index
                    .look_up(&f.module, &f.function, reading, self.hook)?
                {
                    Ok(all) => {
                        for described in all {
                            let at = (f.module.as_str(), *found, Role::Main, self.hook.depth);
                            self.add(at, described);
                        }
                    }
                    Err(missing) => self.plan.missing.push((self.number, missing)),
                }
            }
        }
        Ok(())
    }

    /// True when the function is in the plan.
    fn add(
        &mut self,
        (module, found, role, depth): (&str, Found, Role, u8),
        described: Described,
    ) -> bool {
        let returns = described.prototype.returns;
        if returns == ReturnKind::Nothing && !self.hook.is_event() {
            self.plan
                .missing
                .push((self.number, Missing::NoReturnValue(described.function)));
            return false;
        }
        // Two drivers may share one function.
        let twice = self
            .plan
            .probes
            .iter()
            .any(|p| p.module == module && p.function == described.function);
        if !twice {
            let symbols = self.index.kernel.symbols;
            self.plan.probes.push(Planned {
                hook: self.number,
                module: module.to_owned(),
                found,
                role,
                depth,
                address: symbols.address(module, &described.function),
                function: described.function,
                prototype: described.prototype,
                arguments: described.arguments,
                not_by_fexit: described.not_by_fexit,
            });
        }
        true
    }
}
