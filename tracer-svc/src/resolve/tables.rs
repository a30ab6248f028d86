//! Finds the functions behind `struct ib_device_ops` of each loaded driver.
//!
//! A driver's table is a data symbol of its module. Which symbol it is, is not
//! told by its name but by what it holds: at the place of every operation of the
//! catalogue stands zero or the address of a function whose prototype is that
//! operation's. Two different structs do not pass that by chance.

use std::collections::{BTreeMap, HashMap};

use crate::btf::{BtfError, Types, operation, signature_of};

use super::{ModuleView, Symbols};

/// The driver's function behind one operation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DriverFunction {
    /// Member of `struct ib_device_ops`.
    pub operation: String,
    /// The module that registers the device.
    pub driver: String,
    /// The module that holds the function: another one where drivers share code.
    pub module: String,
    /// Function name.
    pub function: String,
}

/// One place of the table.
#[derive(Debug)]
struct Place {
    operation: String,
    byte_offset: usize,
    signature: String,
}

/// Copies kernel memory: the bytes at an address, or none when it is not mapped.
pub type ReadKernel<'r> = dyn FnMut(u64) -> Option<Vec<u8>> + 'r;

/// What is known of a table's layout in one driver's BTF.
struct Layout {
    bytes: usize,
    places: Vec<Place>,
}

fn layout(types: &Types<'_>, table: u32, operations: &[&str]) -> Result<Layout, BtfError> {
    let bytes = types.get(table)?.size_or_type as usize;
    let mut places = Vec::new();
    for name in operations {
        if let Some((bit_offset, signature)) = operation(types, table, name.as_bytes())? {
            places.push(Place {
                operation: (*name).to_owned(),
                byte_offset: (bit_offset / 8) as usize,
                signature,
            });
        }
    }
    Ok(Layout { bytes, places })
}

/// Functions of all modules by address, with where to look up their prototypes.
struct Functions<'v> {
    by_address: HashMap<u64, (&'v str, &'v str)>,
    ids: HashMap<(&'v str, &'v [u8]), u32>,
    modules: BTreeMap<&'v str, Types<'v>>,
}

impl<'v> Functions<'v> {
    fn new(modules: &[ModuleView<'v>], symbols: &'v Symbols) -> Result<Self, BtfError> {
        let mut out = Self {
            by_address: HashMap::new(),
            ids: HashMap::new(),
            modules: BTreeMap::new(),
        };
        for module in modules {
            for symbol in symbols.of(module.name).iter().filter(|s| s.is_function()) {
                out.by_address
                    .insert(symbol.address, (module.name, symbol.name.as_str()));
            }
            let Some(types) = module.types else { continue };
            out.modules.insert(module.name, types);
            for function in types.own_functions() {
                let (name, id) = function?;
                out.ids.insert((module.name, name), id);
            }
        }
        Ok(out)
    }

    /// The function at an address, when its prototype is the wanted one. Of a module
    /// without BTF every function is taken, when `untyped` says so.
    fn at(
        &self,
        address: u64,
        signature: &str,
        untyped: bool,
    ) -> Result<Option<(&'v str, &'v str)>, BtfError> {
        let Some((module, function)) = self.by_address.get(&address).copied() else {
            return Ok(None);
        };
        let Some(types) = self.modules.get(module) else {
            return Ok(untyped.then_some((module, function)));
        };
        let Some(id) = self.ids.get(&(module, function.as_bytes())) else {
            return Ok(None);
        };
        Ok((signature_of(types, *id)? == signature).then_some((module, function)))
    }
}

/// Reads the tables of every driver among `modules`.
///
/// # Errors
/// A module's BTF is broken.
pub fn find_tables(
    modules: &[ModuleView<'_>],
    symbols: &Symbols,
    operations: &[&str],
    read: &mut ReadKernel<'_>,
) -> Result<Vec<DriverFunction>, BtfError> {
    let mut out = Vec::new();
    if symbols.hidden() {
        return Ok(out);
    }
    let functions = Functions::new(modules, symbols)?;
    // A driver without BTF was built against the struct of those that have it.
    let others = modules.iter().find_map(|m| m.types.zip(m.ops_struct));
    for module in modules.iter().filter(|m| m.may_be_driver) {
        let Some((types, table)) = module.types.zip(module.ops_struct).or(others) else {
            continue;
        };
        let untyped = module.types.is_none();
        let layout = layout(&types, table, operations)?;
        for address in candidates(symbols.of(module.name), layout.bytes) {
            let Some(bytes) = read(address) else { continue };
            for (place, (owner, function)) in accept(&layout, &bytes, &functions, untyped)? {
                out.push(DriverFunction {
                    operation: place.operation.clone(),
                    driver: module.name.to_owned(),
                    module: owner.to_owned(),
                    function: function.to_owned(),
                });
            }
        }
    }
    out.sort();
    out.dedup();
    Ok(out)
}

/// Addresses of data symbols that have room for a table: a symbol reaches to the
/// next one at most.
fn candidates(symbols: &[super::Symbol], bytes: usize) -> impl Iterator<Item = u64> + '_ {
    let next = symbols
        .iter()
        .skip(1)
        .map(|s| s.address)
        .chain(std::iter::once(u64::MAX));
    symbols
        .iter()
        .zip(next)
        .filter(move |(symbol, next)| {
            symbol.is_data() && next.saturating_sub(symbol.address) >= bytes as u64
        })
        .map(|(symbol, _)| symbol.address)
}

type Accepted<'l, 'v> = Vec<(&'l Place, (&'v str, &'v str))>;

/// The operations in one candidate; empty when it is no table.
fn accept<'l, 'v>(
    layout: &'l Layout,
    bytes: &[u8],
    functions: &Functions<'v>,
    untyped: bool,
) -> Result<Accepted<'l, 'v>, BtfError> {
    let mut found = Vec::new();
    for place in &layout.places {
        let word = bytes
            .get(place.byte_offset..place.byte_offset + 8)
            .and_then(|w| w.try_into().ok())
            .map(u64::from_ne_bytes);
        match word {
            Some(0) => {}
            Some(address) => match functions.at(address, &place.signature, untyped)? {
                Some(function) => found.push((place, function)),
                None => return Ok(Vec::new()),
            },
            None => return Ok(Vec::new()),
        }
    }
    // Where prototypes do not tell a table from another struct of functions, names
    // do: most of a driver's functions are called like their operation.
    let named = |(place, (_, function)): &&(&Place, (&str, &str))| {
        is_named_like(function, &place.operation)
    };
    if untyped && found.iter().filter(named).count() * 2 <= found.len() {
        return Ok(Vec::new());
    }
    Ok(found)
}

/// `mlx5_ib_create_ah` is called like `create_user_ah`.
fn is_named_like(function: &str, operation: &str) -> bool {
    let plain = operation.replacen("_user_", "_", 1);
    [operation, &plain].iter().any(|name| {
        function
            .strip_suffix(*name)
            .is_some_and(|before| before.ends_with('_'))
    })
}

/// Finds a driver's functions by their names alone: where it has no BTF and its
/// table cannot be read, as nothing describes `struct ib_device_ops`. Of several
/// the shortest is taken.
#[must_use]
pub fn find_by_name(driver: &str, symbols: &Symbols, operations: &[&str]) -> Vec<DriverFunction> {
    let mut out: Vec<DriverFunction> = Vec::new();
    for operation in operations {
        let named = symbols
            .of(driver)
            .iter()
            .filter(|s| s.is_function() && is_named_like(&s.name, operation))
            .min_by_key(|s| s.name.len());
        out.extend(named.map(|symbol| DriverFunction {
            operation: (*operation).to_owned(),
            driver: driver.to_owned(),
            module: driver.to_owned(),
            function: symbol.name.clone(),
        }));
    }
    out
}

/// Finds a driver's functions without reading memory: by prototype, and by name
/// among equals. Used where the kernel hides its addresses.
///
/// # Errors
/// The module's BTF is broken.
pub fn find_by_prototype(
    module: &ModuleView<'_>,
    operations: &[&str],
) -> Result<Vec<DriverFunction>, BtfError> {
    let (Some(types), Some(table)) = (module.types, module.ops_struct) else {
        return Ok(Vec::new());
    };
    let layout = layout(&types, table, operations)?;
    let mut equals: Vec<Vec<String>> = layout.places.iter().map(|_| Vec::new()).collect();
    for function in types.own_functions() {
        let (name, id) = function?;
        let signature = signature_of(&types, id)?;
        for (place, names) in layout.places.iter().zip(&mut equals) {
            if place.signature == signature {
                names.push(String::from_utf8_lossy(name).into_owned());
            }
        }
    }
    let mut out = Vec::new();
    for (place, names) in layout.places.iter().zip(equals) {
        let named: Vec<&String> = names
            .iter()
            .filter(|n| n.ends_with(&place.operation))
            .collect();
        let picked = match (named.as_slice(), names.as_slice()) {
            ([one], _) => Some((*one).clone()),
            ([], [one]) => Some(one.clone()),
            // `mlx5_ib_modify_qp` before `mlx5_ib_post_modify_qp`.
            (several, _) => several.iter().min_by_key(|n| n.len()).map(|n| (*n).clone()),
        };
        out.extend(picked.map(|function| DriverFunction {
            operation: place.operation.clone(),
            driver: module.name.to_owned(),
            module: module.name.to_owned(),
            function,
        }));
    }
    Ok(out)
}
