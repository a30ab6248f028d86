//! Which functions of a kernel are worth a hook: chosen by rule from its module
//! files alone, with a reason for every function that is not.
//!
//! The way of a selection: [`files`] finds and unpacks the modules,
//! [`kernel_file`] the types that they continue; [`module`] reads one; [`entry`]
//! finds what a system call reaches; [`code`] and [`flow`] follow the machine
//! code of a function to all that it calls, indirect calls included, for which
//! [`shape`] knows the structs and [`world`] the tables; [`graph`] joins that;
//! [`keep`] and [`verdict`] apply `rules.toml`.
//!
//! Nothing here runs a program, reads a running kernel's memory or needs a right.

mod attach;
mod code;
mod command;
mod diff;
mod entry;
mod error;
mod files;
mod flow;
mod graph;
mod keep;
mod kernel_file;
mod module;
mod rules;
mod selection;
mod shape;
mod tells;
mod text;
mod value;
mod verdict;
mod world;

pub use attach::{Attachable, How};
pub use command::{EXIT_WORSE, Outcome, SelectArgs, run};
pub use diff::{Change, Difference, compare, read_old};
pub use entry::Interface;
pub use error::SelectError;
pub use module::Arch;
pub use rules::{
    AddressRule, AttachRule, Generic, Hardware, Layers, MemoryRule, OuterRule, Rules, Untyped,
    VerbRule, Words,
};
pub use selection::{
    EntryRow, FunctionRow, Funnel, HookRow, ModuleRow, NEAR_DEPTH, Rule, SCHEMA, Selection,
    VerbRow, Verdict,
};
pub use text::{difference_text, selection_text};

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::btf::{Blob, Types};
use crate::catalogue::Layer;
use graph::Graph;
use keep::Input;
use module::Module;
use shape::Names;
use world::{Node, World};

/// What to select from.
#[derive(Clone, Debug)]
pub struct Source {
    /// A directory with module files; subdirectories are searched too.
    pub directory: PathBuf,
    /// The kernel that the modules belong to: vmlinuz, vmlinux or a raw BTF. None
    /// looks beside the modules.
    pub kernel: Option<PathBuf>,
    /// The driver whose operations are followed.
    pub driver: String,
}

impl Source {
    /// The running kernel.
    #[must_use]
    pub fn running(release: &str, driver: &str) -> Self {
        Self {
            directory: Path::new("/lib/modules").join(release),
            kernel: Some(PathBuf::from("/sys/kernel/btf/vmlinux")),
            driver: driver.to_owned(),
        }
    }
}

/// Modules that a selection cannot do without.
const NEEDED: [&str; 2] = ["ib_core", "ib_uverbs"];

/// Selects.
///
/// # Errors
/// A file that is missing, broken, or of another kernel; the message names it and
/// says what to do.
pub fn select(source: &Source, rules: &Rules) -> Result<Selection, SelectError> {
    let driver = source.driver.replace('-', "_");
    let above: BTreeSet<&str> = rules
        .layers
        .uverbs
        .iter()
        .chain(&rules.layers.core)
        .map(String::as_str)
        .collect();
    let wanted = |name: &str| name == driver || above.contains(name);
    let found = files::find_modules(&source.directory, wanted)?;
    for name in NEEDED.iter().copied().chain([driver.as_str()]) {
        if !found.contains_key(name) {
            return Err(missing_module(source, name, &found, &above));
        }
    }
    let kernel = match &source.kernel {
        Some(kernel) => kernel.clone(),
        None => kernel_file::beside(&source.directory).ok_or_else(|| SelectError::NoKernel {
            path: source.directory.clone(),
        })?,
    };
    let base = kernel_file::read(&kernel)?;
    let (modules, absent) = read_modules(&found, &above, &driver, &base, &kernel)?;
    analyse(&modules, absent, &base, &kernel, &driver, rules)
}

fn missing_module(
    source: &Source,
    name: &str,
    found: &BTreeMap<String, PathBuf>,
    above: &BTreeSet<&str>,
) -> SelectError {
    let drivers: Vec<&str> = found
        .iter()
        .filter(|(name, path)| {
            let rdma = path.iter().any(|part| part == "hw" || part == "sw");
            rdma && path.iter().any(|part| part == "infiniband") && !above.contains(name.as_str())
        })
        .map(|(name, _)| name.as_str())
        .collect();
    let remedy = if found.is_empty() {
        "it holds no .ko, .ko.xz, .ko.zst or .ko.gz at all: give a kernel's lib/modules/RELEASE"
            .to_owned()
    } else if NEEDED.contains(&name) {
        "give a kernel's lib/modules/RELEASE; a kernel that has it built in cannot be analysed"
            .to_owned()
    } else if drivers.is_empty() {
        "name a driver that is there with --driver".to_owned()
    } else {
        format!("name one of these with --driver: {}", drivers.join(", "))
    };
    SelectError::NoModule {
        path: source.directory.clone(),
        module: name.to_owned(),
        remedy,
    }
}

/// The modules above the driver, the driver, and what it depends on.
fn read_modules(
    found: &BTreeMap<String, PathBuf>,
    above: &BTreeSet<&str>,
    driver: &str,
    base: &Blob,
    kernel: &Path,
) -> Result<(Vec<Module>, Vec<String>), SelectError> {
    let mut open: Vec<String> = above.iter().map(|name| (*name).to_owned()).collect();
    open.push(driver.to_owned());
    let mut seen: BTreeSet<String> = open.iter().cloned().collect();
    let mut modules: Vec<Module> = Vec::new();
    let mut absent = Vec::new();
    while let Some(name) = open.pop() {
        let Some(path) = found.get(&name) else {
            // One of the layers' modules need not exist in every kernel.
            if !above.contains(name.as_str()) {
                absent.push(name);
            }
            continue;
        };
        let module = Module::read(&name, path, base, kernel)?;
        if let Some(first) = modules.first() {
            same_kernel(first, &module)?;
        }
        if !above.contains(name.as_str()) {
            for needed in &module.depends {
                if seen.insert(needed.clone()) {
                    open.push(needed.clone());
                }
            }
        }
        modules.push(module);
    }
    absent.sort();
    modules.sort_by(|a, b| a.name.cmp(&b.name));
    Ok((modules, absent))
}

fn same_kernel(first: &Module, other: &Module) -> Result<(), SelectError> {
    let of = |m: &Module| format!("{} ({})", m.release, m.arch.name());
    if of(first) == of(other) {
        return Ok(());
    }
    Err(SelectError::Mixed {
        path: other.path.clone(),
        found: of(other),
        other: first.path.clone(),
        wanted: of(first),
    })
}

fn analyse(
    modules: &[Module],
    absent: Vec<String>,
    base: &Blob,
    kernel: &Path,
    driver: &str,
    rules: &Rules,
) -> Result<Selection, SelectError> {
    for module in modules.iter().filter(|m| NEEDED.contains(&m.name.as_str())) {
        if module.btf.is_none() {
            return Err(SelectError::NoBtf {
                path: module.path.clone(),
            });
        }
    }
    let names = Names::of(&Types::whole(base)).map_err(|reason| SelectError::Btf {
        path: kernel.to_owned(),
        reason,
        remedy: "name the kernel that belongs to these modules with --kernel",
    })?;
    let world = World::new(modules, base, &names, &rules.untyped)?;
    let entries = entry::entries(&world);
    if entries.is_empty() {
        return Err(unknown(
            &world,
            "no uverbs_method_def and no uapi_definition",
        ));
    }
    if world.tables_of("ib_device_ops").is_empty() {
        return Err(without_tables(&world, driver));
    }
    let graph = Graph::from(&world, &entries);
    let layers = layers(&world, &graph, rules, driver);
    let input = Input {
        world: &world,
        graph: &graph,
        rules,
        entries: &entries,
        layers: &layers,
    };
    let mut rows = verdict::apply(&input);
    tells::fill(&mut rows.functions, modules, base)?;
    Ok(assemble(&input, rows, driver, absent))
}

/// Why nobody has a table of operations: the driver is to have one.
fn without_tables(world: &World<'_>, driver: &str) -> SelectError {
    match world.module(driver).map(|place| &world.modules[place]) {
        Some(module) => SelectError::NoDriver {
            path: module.path.clone(),
        },
        None => unknown(world, "no table that fits struct ib_device_ops"),
    }
}

fn unknown(world: &World<'_>, what: &str) -> SelectError {
    let uverbs = world.module("ib_uverbs").unwrap_or(0);
    SelectError::Unknown {
        path: world.modules[uverbs].path.clone(),
        what: what.to_owned(),
    }
}

fn module_layer(rules: &Rules, driver: &str, name: &str) -> Layer {
    if rules.layers.uverbs.iter().any(|m| m == name) {
        Layer::Uverbs
    } else if rules.layers.core.iter().any(|m| m == name) {
        Layer::Core
    } else if name == driver {
        Layer::Driver
    } else {
        Layer::Firmware
    }
}

fn layers(world: &World<'_>, graph: &Graph, rules: &Rules, driver: &str) -> Vec<Layer> {
    let of = |node: &Node| match node {
        Node::Inside(module, _) => module_layer(rules, driver, &world.modules[*module].name),
        Node::Outside(_) => Layer::Kernel,
    };
    graph.nodes.iter().map(of).collect()
}

fn assemble(
    input: &Input<'_>,
    rows: verdict::Rows,
    driver: &str,
    absent: Vec<String>,
) -> Selection {
    let modules = module_rows(input, driver);
    let rdma: BTreeSet<String> = modules
        .iter()
        .filter(|m| m.layer != Layer::Firmware)
        .map(|m| m.module.clone())
        .collect();
    let firmware_rows = || {
        let inside = |r: &&FunctionRow| r.module != "vmlinux" && !rdma.contains(&r.module);
        rows.functions.iter().filter(inside)
    };
    let firmware_kept = firmware_rows()
        .filter(|r| r.verdict != Verdict::Removed)
        .count();
    let firmware_chosen = firmware_rows()
        .filter(|r| r.verdict == Verdict::Chosen)
        .count();
    let mut funnel = verdict::funnel(&rows.functions, &rdma);
    for module in modules.iter().filter(|m| rdma.contains(&m.module)) {
        funnel.all += module.functions;
        funnel.traceable += module.traceable;
    }
    let of_layer = |inside: bool| {
        rows.functions
            .iter()
            .filter(|r| (r.module != "vmlinux") == inside && !rdma.contains(&r.module))
            .count()
    };
    let first = &input.world.modules[0];
    Selection {
        schema: SCHEMA,
        release: first.release.clone(),
        arch: first.arch.name().to_owned(),
        driver: driver.to_owned(),
        absent_modules: absent,
        funnel,
        firmware_reachable: of_layer(true),
        firmware_kept,
        firmware_chosen,
        outside_reachable: of_layer(false),
        unresolved: unresolved(input),
        verbs: rows.verbs,
        hooks: rows.hooks,
        entries: rows.entries,
        functions: rows.functions,
        modules,
    }
}

fn module_rows(input: &Input<'_>, driver: &str) -> Vec<ModuleRow> {
    let rows = input.world.modules.iter().map(|module| ModuleRow {
        module: module.name.clone(),
        layer: module_layer(input.rules, driver, &module.name),
        functions: module.functions.len(),
        traceable: module
            .functions
            .iter()
            .filter(|f| f.traceable && !f.load_time)
            .count(),
        has_btf: module.btf.is_some(),
    });
    rows.collect()
}

fn unresolved(input: &Input<'_>) -> Vec<String> {
    let mut out = Vec::new();
    for node in &input.graph.nodes {
        for through in input.world.unresolved(node) {
            out.push(format!("{}: {through}", input.world.name(node)));
        }
    }
    out.sort();
    out
}

#[cfg(test)]
mod tests;
