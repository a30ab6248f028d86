//! What the records of each chosen function would tell of its calls.

use std::collections::{BTreeMap, BTreeSet};

use crate::arguments::{Ids, Places, Program, Readable, Reading, readable};
use crate::btf::{Blob, BtfError, Types};
use crate::catalogue::Catalogue;

use super::SelectError;
use super::module::Module;
use super::selection::FunctionRow;

/// Fills in the chosen functions' rows.
///
/// # Errors
/// A module's BTF is broken.
pub(super) fn fill(
    rows: &mut [FunctionRow],
    modules: &[Module],
    base: &Blob,
) -> Result<(), SelectError> {
    let catalogue = Catalogue::built_in().map_err(|error| SelectError::Rules(error.to_string()))?;
    let program = Program::embedded().map_err(|error| SelectError::Rules(error.to_string()))?;
    let names: BTreeSet<Vec<u8>> = program.names().cloned().collect();
    for module in modules {
        let broken = |reason| SelectError::Btf {
            path: module.path.clone(),
            reason,
            remedy: "name the kernel that belongs to these modules with --kernel",
        };
        let Some(blob) = &module.btf else { continue };
        let base = module.own_base.as_ref().unwrap_or(base);
        let (mut ids, functions) = look(blob, base, &names).map_err(broken)?;
        let types = Types::split(base, blob);
        let own = std::mem::take(&mut ids.1);
        ids.0.extend(own);
        for row in rows.iter_mut().filter(|r| r.module == module.name) {
            let reading = reading(&catalogue, row);
            let id = functions.get(row.function.as_bytes());
            let (Some(reading), Some(id)) = (reading, id) else {
                continue;
            };
            let places = Places::find(&types, *id, reading).map_err(broken)?;
            let told = readable(&places, &program, (&types, &ids.0)).map_err(broken)?;
            tell(row, told);
        }
    }
    Ok(())
}

type Look<'b> = ((Ids, Ids), BTreeMap<&'b [u8], u32>);

/// Structs of the kernel and of the module, and the module's functions.
fn look<'b>(
    blob: &'b Blob,
    base: &'b Blob,
    names: &BTreeSet<Vec<u8>>,
) -> Result<Look<'b>, BtfError> {
    let types = Types::split(base, blob);
    let ids = (Types::whole(base).locate(names)?, types.locate(names)?);
    let functions: Result<_, _> = types.own_functions().collect();
    Ok((ids, functions?))
}

/// As the catalogue says for the function, or for the hook that it serves.
fn reading(catalogue: &Catalogue, row: &FunctionRow) -> Option<Reading> {
    let mut places = catalogue.hooks.iter().flat_map(|hook| {
        let of_hook = move |place| (place, hook);
        hook.places.iter().map(of_hook)
    });
    let named =
        places.find(|(place, _)| place.module == row.module && place.function == row.function);
    if let Some((place, hook)) = named {
        return place.arguments.or(hook.arguments);
    }
    let mut hooks = catalogue.hooks.iter();
    let by_operation = |name: &str| row.hooks.iter().any(|hook| hook == name);
    hooks
        .find(|hook| hook.operation.is_some() && by_operation(&hook.name))
        .and_then(|hook| hook.arguments)
}

fn tell(row: &mut FunctionRow, told: Vec<Readable>) {
    for each in told {
        match each.absent {
            None => row.arguments.push(each.name.to_owned()),
            Some(reason) => row
                .arguments_absent
                .push(format!("{}: {reason}", each.name)),
        }
    }
}
