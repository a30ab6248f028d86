//! The pure function from catalogue and kernel to plan.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::arguments::{Places, Reading};
use crate::btf::{BtfError, Prototype, ReturnKind, Types, function};
use crate::catalogue::{Catalogue, Hook, Place, Role};

use super::tables::{DriverFunction, find_by_prototype};
use super::{Found, Missing, Symbols};

/// What the resolver knows of one loaded module.
#[derive(Clone, Copy, Debug)]
pub struct ModuleView<'k> {
    /// Name as in /proc/modules.
    pub name: &'k str,
    /// Its types; none when it carries no BTF.
    pub types: Option<Types<'k>>,
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
    /// What the program's entry is made from.
    pub prototype: Prototype,
    /// Where it takes what its records tell; none when they tell nothing.
    pub arguments: Option<Places>,
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

    /// Why a function of a loaded module cannot be hooked; else its prototype, and
    /// where it takes what `reading` needs.
    fn look_up(
        &self,
        module: &str,
        name: &str,
        reading: Option<Reading>,
    ) -> Result<Result<(Prototype, Option<Places>), Missing>, BtfError> {
        let Some(view) = self.modules.get(module) else {
            return Ok(Err(Missing::ModuleNotLoaded(module.to_owned())));
        };
        let Some(types) = view.types else {
            return Ok(Err(Missing::NoBtf(module.to_owned())));
        };
        let symbols = self.kernel.symbols;
        let Some(id) = self.functions.get(&(module, name.as_bytes())) else {
            return Ok(Err(match symbols.suffixed(module, name) {
                Some(symbol) => Missing::Suffixed {
                    function: name.to_owned(),
                    symbol: symbol.to_owned(),
                },
                None if symbols.has_function(module, name) => {
                    Missing::NotDescribed(name.to_owned())
                }
                None => Missing::NoFunction {
                    module: module.to_owned(),
                    function: name.to_owned(),
                },
            }));
        };
        let traceable = self
            .kernel
            .traceable
            .is_none_or(|all| all.contains(&(module.to_owned(), name.to_owned())));
        if !traceable {
            return Ok(Err(Missing::NotTraceable(name.to_owned())));
        }
        let places = reading.map(|reading| Places::find(&types, *id, reading));
        Ok(Ok((function(&types, *id)?, places.transpose()?)))
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
        let found = find_by_prototype(module, &operations)?;
        // A driver has most of the operations; a module that happens to have a
        // function of one operation's shape has not.
        if found.len() * 2 > operations.len() {
            out.extend(found.into_iter().map(|f| (f, Found::Prototype)));
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
        let mut main_planned = false;
        for place in with(Role::Main) {
            main_planned |= self.place(place, true)?;
        }
        for place in with(Role::Also) {
            self.place(place, false)?;
        }
        for place in with(Role::Instead).filter(|_| !main_planned) {
            // The first that is there; two of them would record one call twice.
            if self.place(place, false)? {
                break;
            }
        }
        Ok(())
    }

    /// True when the function can be hooked.
    fn place(&mut self, place: &Place, missed: bool) -> Result<bool, BtfError> {
        let reading = place.arguments.or(self.hook.arguments);
        let found = self
            .index
            .look_up(&place.module, &place.function, reading)?;
        match found {
            Ok((prototype, arguments)) => {
                let planned = Planned {
                    hook: self.number,
                    module: place.module.clone(),
                    function: place.function.clone(),
                    found: Found::Name,
                    role: place.role,
                    depth: place.depth.unwrap_or(self.hook.depth),
                    prototype,
                    arguments,
                };
                Ok(self.add(planned))
            }
            Err(missing) => {
                let absent = matches!(
                    missing,
                    Missing::NoFunction { .. } | Missing::ModuleNotLoaded(_)
                );
                if missed || !absent {
                    self.plan.missing.push((self.number, missing));
                }
                Ok(false)
            }
        }
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
                match self.index.look_up(&f.module, &f.function, reading)? {
                    Ok((prototype, arguments)) => {
                        self.add(Planned {
                            hook: self.number,
                            module: f.module.clone(),
                            function: f.function.clone(),
                            found: *found,
                            role: Role::Main,
                            depth: self.hook.depth,
                            prototype,
                            arguments,
                        });
                    }
                    Err(missing) => self.plan.missing.push((self.number, missing)),
                }
            }
        }
        Ok(())
    }

    /// True when the function is in the plan.
    fn add(&mut self, planned: Planned) -> bool {
        let unreadable = planned.prototype.returns == ReturnKind::Nothing && !self.hook.is_event();
        if unreadable {
            self.plan
                .missing
                .push((self.number, Missing::NoReturnValue(planned.function)));
            return false;
        }
        // Two drivers may share one function.
        let twice = self
            .plan
            .probes
            .iter()
            .any(|p| p.module == planned.module && p.function == planned.function);
        if !twice {
            self.plan.probes.push(planned);
        }
        true
    }
}
