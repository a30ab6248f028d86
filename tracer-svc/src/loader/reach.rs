//! Which functions the wide set of some verbs has on the running kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Deserialize;

use super::wide::Place;
use super::{LoadError, btf_error, choose, host, kernel_types, sys};
use crate::baseline::Watched;
use crate::btf::{Blob, ReturnKind, Types, function};
use crate::catalogue::Catalogue;
use crate::resolve::Symbols;
use crate::select::{How, Rule};

/// Longest time of the analysis: somebody waits for it, and knows that it is under way.
const LIMIT: Duration = Duration::from_secs(60);

/// Where the selection says that a function is outside of the RDMA modules.
const OUTSIDE: &str = "vmlinux";

/// The wide set of some verbs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// The driver whose operations were followed.
    pub driver: String,
    /// The functions, by the numbers of moments: entry points first, then those that can
    /// tell an error, clean-up behind the others, each by their distance from an entry
    /// point. Where not all can be watched, the first are.
    pub watched: Vec<Watched>,
    /// Where these begin.
    pub places: Vec<Place>,
    /// Reached functions that cannot be watched: ftrace has no place in them, or two of
    /// a module have this name.
    pub left_out: usize,
}

/// What matters here of `crate::select::Selection`.
#[derive(Debug, Deserialize)]
struct Selection {
    functions: Vec<Row>,
}

#[derive(Clone, Debug, Deserialize)]
struct Row {
    function: String,
    module: String,
    verbs: Vec<String>,
    depth: u32,
    rule: Rule,
    attach: Attach,
}

#[derive(Clone, Debug, Deserialize)]
struct Attach {
    how: How,
}

impl Reach {
    /// Follows the calls of the verbs' entry points, by the rules' analysis of the module
    /// files below /lib/modules; without a driver the only one that is loaded. Takes a
    /// second, and many on an emulated processor.
    ///
    /// # Errors
    /// The analysis failed, no entry point of a verb can be watched, or it is not clear
    /// which driver is meant.
    pub fn of(verbs: &[String], driver: Option<&str>) -> Result<Self, LoadError> {
        let catalogue = Catalogue::built_in().map_err(wrong)?;
        let loaded = host::Modules::read(&catalogue)?;
        let driver = the_driver(&loaded.may_be_drivers, driver)?;
        let selection: Selection = choose::selection(&driver, LIMIT).map_err(wrong)?;
        let rows = rows_of(verbs, &selection.functions)?;
        let modules = host::Modules {
            names: rows.iter().map(|row| row.module.clone()).collect(),
            ..host::Modules::default()
        };
        let facts = Facts {
            symbols: host::symbols(&modules),
            traceable: host::traceable(&modules),
            kinds: return_kinds(&modules.names)?,
        };
        sys::return_memory();
        let reach = Self::with(driver, rows, verbs, &facts);
        let watched = |verb: &&String| reach.watched.iter().any(|w| w.entry_of.contains(*verb));
        match verbs.iter().find(|verb| !watched(verb)) {
            None => Ok(reach),
            Some(_) if facts.symbols.hidden() => Err(wrong(
                "the kernel hides where functions begin; the tracer needs CAP_SYSLOG",
            )),
            Some(verb) => Err(wrong(format!(
                "no entry point of {verb} can be watched: its module is not loaded"
            ))),
        }
    }

    fn with(driver: String, rows: Vec<Row>, verbs: &[String], facts: &Facts) -> Self {
        let mut left_out = 0;
        let mut found: Vec<(Order, Watched, Place)> = Vec::new();
        for row in rows {
            let Some(address) = facts.address(&row) else {
                left_out += 1;
                continue;
            };
            let returns = facts.returns(&row);
            let is_entry = row.depth == 0;
            let of_it = row.verbs.into_iter().filter(|verb| verbs.contains(verb));
            let watched = Watched {
                name: row.function,
                returns,
                entry_of: of_it.filter(|_| is_entry).collect(),
            };
            let tells_nothing = returns == ReturnKind::Nothing;
            // What is done about a failure comes after it.
            let is_late = row.rule == Rule::CleanUp;
            let order = (!is_entry, tells_nothing, is_late, row.depth);
            found.push((order, watched, Place { address, is_entry }));
        }
        // Stable: functions of one distance stay in the order of the selection.
        found.sort_by_key(|(order, ..)| *order);
        let (watched, places) = found.into_iter().map(|(_, w, p)| (w, p)).unzip();
        Self {
            driver,
            watched,
            places,
            left_out,
        }
    }
}

/// Not an entry point, tells no error, cleans up, distance: the least comes first.
type Order = (bool, bool, bool, u32);

/// What the running kernel says of the functions.
#[derive(Debug, Default)]
struct Facts {
    symbols: Symbols,
    /// None: not known; then the module files decide.
    traceable: Option<BTreeSet<(String, String)>>,
    kinds: BTreeMap<(String, String), ReturnKind>,
}

impl Facts {
    /// Where a function begins, when it can be watched.
    fn address(&self, row: &Row) -> Option<u64> {
        let name = (row.module.clone(), row.function.clone());
        let listed = self.traceable.as_ref().map(|all| all.contains(&name));
        let can_be = listed.unwrap_or(row.attach.how != How::Not);
        let address = self.symbols.address(&row.module, &row.function)?;
        can_be.then_some(address)
    }

    /// How a function tells an error; a copy that the compiler made as the function
    /// itself does.
    fn returns(&self, row: &Row) -> ReturnKind {
        let of = |name: &str| {
            let name = (row.module.clone(), name.to_owned());
            self.kinds.get(&name).copied()
        };
        let original = row.function.split('.').next().unwrap_or_default();
        // Of a module without types: most functions that can fail return an int.
        of(&row.function)
            .or_else(|| of(original))
            .unwrap_or(ReturnKind::Int)
    }
}

/// The functions of RDMA modules that these verbs reach.
fn rows_of(verbs: &[String], functions: &[Row]) -> Result<Vec<Row>, LoadError> {
    let inside = functions.iter().filter(|row| row.module != OUTSIDE);
    let known: BTreeSet<&String> = inside
        .clone()
        .filter(|row| row.depth == 0)
        .flat_map(|row| &row.verbs)
        .collect();
    if let Some(unknown) = verbs.iter().find(|verb| !known.contains(verb)) {
        let known: Vec<&str> = known.into_iter().map(String::as_str).collect();
        return Err(wrong(format!(
            "no entry point serves {unknown} here; there are some of {}",
            known.join(", ")
        )));
    }
    let reached = inside.filter(|row| row.verbs.iter().any(|verb| verbs.contains(verb)));
    Ok(reached.cloned().collect())
}

fn the_driver(loaded: &BTreeSet<String>, asked: Option<&str>) -> Result<String, LoadError> {
    let names: Vec<&str> = loaded.iter().map(String::as_str).collect();
    match (asked, names.as_slice()) {
        (_, []) => Err(wrong("no RDMA driver is loaded")),
        (Some(asked), names) if names.contains(&asked) => Ok(asked.to_owned()),
        (None, [only]) => Ok((*only).to_owned()),
        (Some(asked), names) => Err(wrong(format!(
            "{asked} is not loaded, or no RDMA driver; there is {}",
            names.join(", ")
        ))),
        (None, names) => Err(wrong(format!(
            "several drivers are loaded; name one with --driver: {}",
            names.join(", ")
        ))),
    }
}

/// How the functions of modules return, as far as they have types.
fn return_kinds(
    modules: &BTreeSet<String>,
) -> Result<BTreeMap<(String, String), ReturnKind>, LoadError> {
    let kernel = kernel_types()?;
    let mut out = BTreeMap::new();
    for module in modules {
        let Some(bytes) = host::module_btf(module)? else {
            continue;
        };
        let broken = |error: &dyn std::fmt::Display| btf_error(module, error);
        let blob = Blob::parse(bytes, Some(&kernel)).map_err(|e| broken(&e))?;
        let types = Types::split(&kernel, &blob);
        for found in types.own_functions() {
            let (name, id) = found.map_err(|e| broken(&e))?;
            let prototype = function(&types, id).map_err(|e| broken(&e))?;
            let name = String::from_utf8_lossy(name).into_owned();
            out.insert((module.clone(), name), prototype.returns);
        }
    }
    Ok(out)
}

fn wrong(error: impl std::fmt::Display) -> LoadError {
    LoadError::Baseline(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYMBOLS: &str = "\
ffffffffc0000100 t ib_uverbs_reg_mr\t[ib_uverbs]
ffffffffc0000200 t pin.isra.0\t[ib_core]
ffffffffc0000300 t release\t[ib_core]
ffffffffc0000400 t twice\t[ib_core]
ffffffffc0000500 t twice\t[ib_core]
ffffffffc0000600 t quiet\t[ib_core]
ffffffffc0000700 t look_up\t[ib_core]
ffffffffc0000800 t undo\t[ib_core]
";

    fn row(module: &str, function: &str, verbs: &[&str], depth: u32) -> Row {
        Row {
            function: function.to_owned(),
            module: module.to_owned(),
            verbs: verbs.iter().map(|&verb| verb.to_owned()).collect(),
            depth,
            rule: match function {
                "undo" => Rule::CleanUp,
                _ => Rule::Keep,
            },
            attach: Attach {
                how: match function {
                    "quiet" => How::Not,
                    _ => How::Kretprobe,
                },
            },
        }
    }

    fn rows() -> Vec<Row> {
        vec![
            row("ib_core", "release", &["reg_mr"], 1),
            row("ib_core", "undo", &["reg_mr"], 1),
            row("ib_core", "pin.isra.0", &["reg_mr", "create_cq"], 2),
            row("ib_core", "look_up", &["reg_mr"], 1),
            row("ib_core", "twice", &["reg_mr"], 1),
            row("ib_core", "quiet", &["reg_mr"], 1),
            row("ib_uverbs", "ib_uverbs_reg_mr", &["reg_mr"], 0),
            row("ib_uverbs", "ib_uverbs_create_cq", &["create_cq"], 0),
            row("vmlinux", "kmalloc", &["reg_mr"], 1),
        ]
    }

    fn facts() -> Facts {
        let modules = ["ib_core", "ib_uverbs"].map(str::to_owned).into();
        let kind = |name: &str, kind| (("ib_core".to_owned(), name.to_owned()), kind);
        Facts {
            symbols: Symbols::read(SYMBOLS.as_bytes(), &modules).unwrap(),
            traceable: None,
            kinds: [
                kind("pin", ReturnKind::Pointer),
                kind("release", ReturnKind::Nothing),
            ]
            .into(),
        }
    }

    #[test]
    fn the_nearest_that_can_tell_an_error_come_first() {
        let verbs = ["reg_mr".to_owned()];
        let rows = rows_of(&verbs, &rows()).unwrap();
        let reach = Reach::with("rdma_rxe".to_owned(), rows, &verbs, &facts());
        let names: Vec<_> = reach
            .watched
            .iter()
            .map(|w| (w.name.as_str(), w.returns))
            .collect();
        assert_eq!(
            names,
            [
                ("ib_uverbs_reg_mr", ReturnKind::Int),
                ("look_up", ReturnKind::Int),
                ("pin.isra.0", ReturnKind::Pointer),
                ("undo", ReturnKind::Int),
                ("release", ReturnKind::Nothing),
            ]
        );
        assert_eq!(reach.watched[0].entry_of, ["reg_mr"]);
        assert!(reach.watched[1..].iter().all(|w| w.entry_of.is_empty()));
        assert_eq!(
            reach.places[2],
            Place {
                address: 0xffff_ffff_c000_0200,
                is_entry: false
            }
        );
        // Two of one name, and one that ftrace has no place in.
        assert_eq!(reach.left_out, 2);
    }

    #[test]
    fn what_ftrace_lists_decides_before_the_module_files() {
        let mut facts = facts();
        facts.traceable = Some([("ib_core".to_owned(), "quiet".to_owned())].into());
        let of = |name: &str| facts.address(&row("ib_core", name, &["reg_mr"], 1));
        assert_eq!(of("quiet"), Some(0xffff_ffff_c000_0600));
        assert_eq!(of("look_up"), None);
    }

    #[test]
    fn a_verb_that_nothing_serves_names_those_that_something_does() {
        let error = rows_of(&["reg_mrs".to_owned()], &rows()).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("reg_mrs here; there are some of create_cq, reg_mr"),
            "{error}"
        );
    }

    #[test]
    fn the_driver_is_named_where_it_is_not_clear() {
        let set = |names: &[&str]| names.iter().map(|&n| n.to_owned()).collect();
        let only = the_driver(&set(&["rdma_rxe"]), None).unwrap();
        assert_eq!(only, "rdma_rxe");
        let both: BTreeSet<String> = set(&["mlx5_ib", "rdma_rxe"]);
        assert_eq!(the_driver(&both, Some("mlx5_ib")).unwrap(), "mlx5_ib");
        let several = the_driver(&both, None).unwrap_err();
        assert!(several.to_string().contains("--driver: mlx5_ib, rdma_rxe"));
        let other = the_driver(&both, Some("irdma")).unwrap_err();
        assert!(other.to_string().contains("irdma is not loaded"));
        let none = the_driver(&BTreeSet::new(), Some("irdma")).unwrap_err();
        assert!(none.to_string().contains("no RDMA driver"));
    }
}
