use std::collections::{BTreeMap, BTreeSet};

use crate::btf::synthetic::{INT, LONG, MR, Module, PD, QP, UDATA, base, pointer};
use crate::btf::{Blob, Types};
use crate::catalogue::Catalogue;
use crate::record::ProbeId;

use super::*;

mod served;

const CATALOGUE: &str = r#"
not_drivers = ["ib_uverbs"]

[[hook]]
name = "uverbs.alloc_pd"
group = "thirteen"
verb = "alloc_pd"
object = "pd"
layer = "uverbs"
depth = 0
places = [
    { module = "ib_uverbs", function = "ib_uverbs_alloc_pd" },
    { module = "ib_uverbs", function = "ib_uverbs_ex_alloc_pd", role = "also" },
]

[[hook]]
name = "driver.alloc_pd"
group = "thirteen"
verb = "alloc_pd"
object = "pd"
layer = "driver"
depth = 50
operation = "alloc_pd"

[[hook]]
name = "driver.reg_mr"
group = "thirteen"
verb = "reg_mr"
object = "mr"
layer = "driver"
depth = 50
operation = "reg_user_mr"

[[hook]]
name = "memory.umem"
group = "thirteen"
verb = "any"
object = "mr"
layer = "memory"
depth = 60
places = [
    { module = "ib_uverbs", function = "ib_umem_get" },
    { module = "ib_core", function = "ib_umem_get_desc", role = "instead" },
    { module = "ib_core", function = "ib_umem_get", role = "instead" },
]

[[hook]]
name = "core.neighbour"
group = "core"
verb = "any"
object = "other"
layer = "core"
depth = 40
places = [{ module = "ib_core", function = "ib_resolve_eth_dmac" }]

[[hook]]
name = "core.void"
group = "core"
verb = "any"
object = "other"
layer = "core"
depth = 30
places = [{ module = "ib_core", function = "ib_does_nothing" }]

[[hook]]
name = "firmware.command"
group = "firmware"
verb = "any"
object = "other"
layer = "firmware"
depth = 70
places = [
    { module = "mlx5_core", function = "mlx5_cmd_exec" },
    { module = "dkms_core", function = "dkms_cmd" },
]
"#;

/// A kernel with two drivers, one module without BTF, and its symbols.
struct Kernel {
    base: Blob,
    modules: BTreeMap<&'static str, Option<(Blob, Option<u32>)>>,
    symbols: Symbols,
}

const ALLOC_PD: &[u32] = &[pointer_of(PD), pointer_of(UDATA)];
const REG_MR: &[u32] = &[pointer_of(PD), LONG, LONG, INT, pointer_of(UDATA)];

/// [`pointer`] as a constant.
const fn pointer_of(to: u32) -> u32 {
    10 + to - 3
}

fn driver(base: &Blob, functions: &[(&str, u32, &[u32])]) -> (Blob, Option<u32>) {
    let mut module = Module::on(base);
    let table = module.ops(&[
        ("alloc_pd", INT, ALLOC_PD),
        ("reg_user_mr", pointer(MR), REG_MR),
        ("create_qp", INT, &[pointer(QP), pointer(UDATA)]),
    ]);
    for (name, returns, arguments) in functions {
        module.function(name, *returns, arguments);
    }
    (module.finish(base), Some(table))
}

fn kernel(kallsyms: &str) -> Kernel {
    let base = base();
    assert_eq!(pointer(PD), pointer_of(PD));
    let mut uverbs = Module::on(&base);
    uverbs.function("ib_uverbs_alloc_pd", INT, &[pointer(UDATA)]);
    let uverbs = uverbs.finish(&base);
    let mut core = Module::on(&base);
    core.function("ib_umem_get", pointer(MR), &[]);
    core.function("ib_umem_get_desc", pointer(MR), &[]);
    core.function("ib_does_nothing", 0, &[]);
    let core = core.finish(&base);
    let rxe = driver(
        &base,
        &[
            ("rxe_alloc_pd", INT, ALLOC_PD),
            ("rxe_dealloc_pd", INT, ALLOC_PD),
            ("rxe_reg_user_mr", pointer(MR), REG_MR),
        ],
    );
    let old = driver(
        &base,
        &[
            ("old_get_pd", INT, ALLOC_PD),
            ("old_reg_mr", pointer(MR), REG_MR),
            ("old_create_qp", INT, &[pointer(QP), pointer(UDATA)]),
        ],
    );
    let modules = BTreeMap::from([
        ("ib_core", Some((core, None))),
        ("ib_uverbs", Some((uverbs, None))),
        ("rdma_rxe", Some(rxe)),
        ("old_ib", Some(old)),
        ("dkms_core", None),
    ]);
    let names: BTreeSet<String> = modules.keys().map(ToString::to_string).collect();
    let symbols = Symbols::read(kallsyms.as_bytes(), &names).unwrap();
    Kernel {
        base,
        modules,
        symbols,
    }
}

impl Kernel {
    fn views(&self) -> Vec<ModuleView<'_>> {
        self.modules
            .iter()
            .map(|(name, module)| ModuleView {
                name,
                broken: None,
                types: module
                    .as_ref()
                    .map(|(blob, _)| Types::split(&self.base, blob)),
                ops_struct: module.as_ref().and_then(|(_, table)| *table),
                may_be_driver: matches!(*name, "rdma_rxe" | "old_ib"),
            })
            .collect()
    }

    fn tables(&self, memory: &BTreeMap<u64, [u64; 4]>) -> Vec<DriverFunction> {
        let mut read = |address: u64| {
            let words = memory.get(&address)?;
            Some(words.iter().flat_map(|w| w.to_ne_bytes()).collect())
        };
        find_tables(
            &self.views(),
            &self.symbols,
            &["alloc_pd", "reg_user_mr"],
            &mut read,
        )
        .unwrap()
    }

    fn plan(&self, tables: &[DriverFunction]) -> (Catalogue, Plan) {
        self.plan_of(CATALOGUE, tables)
    }

    fn plan_of(&self, catalogue: &str, tables: &[DriverFunction]) -> (Catalogue, Plan) {
        let catalogue = Catalogue::parse(catalogue).unwrap();
        let view = KernelView {
            modules: self.views(),
            symbols: &self.symbols,
            traceable: None,
            tables,
        };
        let plan = resolve(&catalogue, &view).unwrap();
        (catalogue, plan)
    }
}

const KALLSYMS: &str = "\
0000000000001000 t rxe_alloc_pd\t[rdma_rxe]
0000000000001100 t rxe_dealloc_pd\t[rdma_rxe]
0000000000001200 t rxe_reg_user_mr\t[rdma_rxe]
0000000000002000 r rxe_small\t[rdma_rxe]
0000000000002010 r rxe_other_ops\t[rdma_rxe]
0000000000002030 r rxe_dev_ops\t[rdma_rxe]
0000000000002050 r rxe_wrong_ops\t[rdma_rxe]
0000000000003000 t ib_resolve_eth_dmac.isra.0\t[ib_core]
";

fn found(driver: &str, operation: &str, function: &str) -> DriverFunction {
    DriverFunction {
        operation: operation.to_owned(),
        driver: driver.to_owned(),
        module: driver.to_owned(),
        function: function.to_owned(),
    }
}

/// Bytes 8 and 16 hold the two operations.
fn memory() -> BTreeMap<u64, [u64; 4]> {
    BTreeMap::from([
        // Too small a symbol to be a table: not even read.
        (0x2000, [0, 0x1000, 0x1200, 0]),
        // A table of something else: no function where reg_user_mr would be.
        (0x2010, [0, 0x1000, 0x1234, 0]),
        (0x2030, [0x9999, 0x1000, 0x1200, 0]),
        // Functions of the wrong prototype.
        (0x2050, [0, 0x1200, 0x1000, 0]),
    ])
}

#[test]
fn a_table_is_known_by_the_prototypes_of_what_it_points_to() {
    let kernel = kernel(KALLSYMS);
    assert_eq!(
        kernel.tables(&memory()),
        [
            found("rdma_rxe", "alloc_pd", "rxe_alloc_pd"),
            found("rdma_rxe", "reg_user_mr", "rxe_reg_user_mr"),
        ]
    );
}

#[test]
fn hidden_addresses_make_no_table() {
    let hidden = KALLSYMS
        .lines()
        .map(|line| format!("{:016}{}\n", 0, &line[16..]))
        .collect::<String>();
    assert!(kernel(&hidden).tables(&memory()).is_empty());
}

#[test]
fn without_a_table_the_prototype_picks_and_the_name_decides_among_equals() {
    let kernel = kernel("");
    let views = kernel.views();
    let of = |name| {
        let view = views.iter().find(|v| v.name == name).unwrap();
        find_by_prototype(view, &["alloc_pd", "reg_user_mr"]).unwrap()
    };
    // rxe_dealloc_pd has the same prototype and ends in the same letters.
    assert_eq!(
        of("rdma_rxe"),
        [
            found("rdma_rxe", "alloc_pd", "rxe_alloc_pd"),
            found("rdma_rxe", "reg_user_mr", "rxe_reg_user_mr"),
        ]
    );
    // Names that no rule foresees, alone with their prototypes.
    assert_eq!(
        of("old_ib"),
        [
            found("old_ib", "alloc_pd", "old_get_pd"),
            found("old_ib", "reg_user_mr", "old_reg_mr"),
        ]
    );
}

#[test]
fn the_report_says_how_each_hook_is_served_and_why_one_is_not() {
    let kernel = kernel(KALLSYMS);
    let tables = kernel.tables(&memory());
    let (catalogue, plan) = kernel.plan(&tables);
    let probes = plan
        .probes
        .iter()
        .enumerate()
        .map(|(number, planned)| Probe {
            id: ProbeId(u16::try_from(number).unwrap()),
            hook: catalogue.hooks[planned.hook].clone(),
            module: planned.module.clone(),
            function: planned.function.clone(),
            found: planned.found,
            role: planned.role,
            state: match &planned.not_by_fexit {
                Some(_) => ProbeState::Attached(Mechanism::Kretprobe),
                None => ProbeState::Attached(Mechanism::Fexit),
            },
            not_by_fexit: planned.not_by_fexit.clone(),
            address_hidden: false,
            arguments: Vec::new(),
        })
        .collect();
    let report = Report::new(&catalogue, probes, &plan.missing);
    insta::assert_snapshot!(report.to_string());
}

#[test]
fn a_refused_function_leaves_its_reason_in_the_report() {
    let kernel = kernel(KALLSYMS);
    let (catalogue, plan) = kernel.plan(&kernel.tables(&memory()));
    let planned = &plan.probes[0];
    let refused = Missing::Refused {
        function: planned.function.clone(),
        errno: 524,
        reason: "7 argument words; this kernel traces functions with 6 at most".to_owned(),
    };
    let probe = Probe {
        id: ProbeId(0),
        hook: catalogue.hooks[planned.hook].clone(),
        module: planned.module.clone(),
        function: planned.function.clone(),
        found: planned.found,
        role: planned.role,
        state: ProbeState::Missing(refused.clone()),
        not_by_fexit: None,
        address_hidden: false,
        arguments: Vec::new(),
    };
    let report = Report::new(&catalogue, vec![probe], &[]);
    assert_eq!(report.hooks[0].state, HookState::Missing(vec![refused]));
    assert_eq!(report.thirteen_served(), 0);
}

#[test]
fn a_function_that_ftrace_does_not_list_is_not_planned() {
    let kernel = kernel(KALLSYMS);
    let catalogue = Catalogue::parse(CATALOGUE).unwrap();
    let nothing = BTreeSet::new();
    let view = KernelView {
        modules: kernel.views(),
        symbols: &kernel.symbols,
        traceable: Some(&nothing),
        tables: &[],
    };
    let plan = resolve(&catalogue, &view).unwrap();
    assert!(plan.probes.is_empty());
    assert!(
        plan.missing
            .contains(&(0, Missing::NotTraceable("ib_uverbs_alloc_pd".to_owned())))
    );
}

#[test]
fn a_newer_member_of_the_table_serves_the_same_hook() {
    let kernel = kernel("");
    let catalogue = CATALOGUE.replace(
        "operation = \"reg_user_mr\"",
        "operation = \"reg_mr\"\nuser_operation = \"reg_user_mr\"",
    );
    let hooked = |tables: &[DriverFunction]| {
        let (catalogue, plan) = kernel.plan_of(&catalogue, tables);
        let number = catalogue
            .hooks
            .iter()
            .position(|h| h.name == "driver.reg_mr")
            .unwrap();
        let of_rxe = |p: &Planned| p.hook == number && p.module == "rdma_rxe";
        let probes = plan.probes.into_iter().filter(of_rxe);
        let functions: Vec<String> = probes.map(|p| p.function).collect();
        let lacks = |(hook, missing): &(usize, Missing)| {
            *hook == number
                && matches!(missing, Missing::NoOperation { module, .. } if module == "rdma_rxe")
        };
        (functions, plan.missing.iter().any(lacks))
    };
    let pd = found("rdma_rxe", "alloc_pd", "rxe_alloc_pd");
    let user = found("rdma_rxe", "reg_user_mr", "rxe_reg_user_mr");
    let kernels = found("rdma_rxe", "reg_mr", "rxe_dealloc_pd");
    assert_eq!(
        hooked(&[pd.clone(), user.clone()]),
        (vec!["rxe_reg_user_mr".to_owned()], false)
    );
    assert_eq!(
        hooked(&[pd.clone(), kernels.clone(), user]),
        (
            vec!["rxe_dealloc_pd".to_owned(), "rxe_reg_user_mr".to_owned()],
            false
        )
    );
    assert_eq!(hooked(&[pd.clone(), kernels]).0, ["rxe_dealloc_pd"]);
    assert_eq!(hooked(&[pd]), (Vec::new(), true));
}

/// (function, why not by fexit) of a module's probes.
fn by_return(plan: &Plan, module: &str) -> Vec<(String, Option<Missing>)> {
    let of_module = plan.probes.iter().filter(|p| p.module == module);
    of_module
        .map(|p| (p.function.clone(), p.not_by_fexit.clone()))
        .collect()
}

#[test]
fn a_copy_that_the_compiler_made_is_served_by_its_return() {
    let copies = "\
0000000000003000 t ib_resolve_eth_dmac.isra.0\t[ib_core]
0000000000003100 t ib_resolve_eth_dmac.constprop.1.isra.0\t[ib_core]
0000000000003200 t ib_resolve_eth_dmac.part.0\t[ib_core]
0000000000003300 t ib_umem_get.constprop.0\t[ib_uverbs]
";
    let kernel = kernel(copies);
    let (catalogue, plan) = kernel.plan(&[]);
    let suffixed = |function: &str, symbol: &str| Missing::Suffixed {
        function: function.to_owned(),
        symbol: symbol.to_owned(),
    };
    let why = suffixed("ib_resolve_eth_dmac", "ib_resolve_eth_dmac.isra.0");
    let of_core = by_return(&plan, "ib_core");
    assert_eq!(
        of_core[1..],
        [
            ("ib_resolve_eth_dmac.isra.0".to_owned(), Some(why.clone())),
            (
                "ib_resolve_eth_dmac.constprop.1.isra.0".to_owned(),
                Some(why)
            ),
        ]
    );
    assert_eq!(plan.probes.last().unwrap().address, Some(0x3100));
    // A substitute with a fexit program tells more than a copy without arguments.
    assert_eq!(of_core[0], ("ib_umem_get_desc".to_owned(), None));
    let umem = catalogue.hooks.iter().position(|h| h.name == "memory.umem");
    let told = suffixed("ib_umem_get", "ib_umem_get.constprop.0");
    assert!(plan.missing.contains(&(umem.unwrap(), told)));

    // A piece of a function returns only a part of what it returns.
    let piece = "0000000000003200 t ib_resolve_eth_dmac.part.0\t[ib_core]\n";
    let (_, plan) = self::kernel(piece).plan(&[]);
    assert_eq!(by_return(&plan, "ib_core").len(), 1);
}

#[test]
fn a_driver_without_btf_is_served_by_its_table_or_its_names() {
    let no_btf = Some(Missing::NoBtf("rdma_rxe".to_owned()));
    let expected = [
        ("rxe_alloc_pd".to_owned(), no_btf.clone()),
        ("rxe_reg_user_mr".to_owned(), no_btf),
    ];
    let mut kernel = kernel(KALLSYMS);
    kernel.modules.insert("rdma_rxe", None);
    // The struct's layout is that of the other drivers.
    let tables = kernel.tables(&memory());
    let (catalogue, plan) = kernel.plan(&tables);
    assert_eq!(by_return(&plan, "rdma_rxe"), expected);
    let of_rxe = |p: &&Planned| p.module == "rdma_rxe";
    assert!(
        plan.probes
            .iter()
            .filter(of_rxe)
            .all(|p| p.found == Found::OpsTable)
    );
    assert_eq!(catalogue.hooks[1].name, "driver.alloc_pd");

    let (_, plan) = kernel.plan(&[]);
    assert_eq!(by_return(&plan, "rdma_rxe"), expected);
    assert!(
        plan.probes
            .iter()
            .filter(of_rxe)
            .all(|p| p.found == Found::Symbol)
    );
}

#[test]
fn the_catalogue_says_how_a_function_without_btf_tells_an_error() {
    let mut kernel = kernel(KALLSYMS);
    kernel.modules.insert("rdma_rxe", None);
    let text = CATALOGUE.replace(
        "operation = \"reg_user_mr\"",
        "operation = \"reg_user_mr\"\nreturns = \"pointer\"",
    );
    let (_, plan) = kernel.plan_of(&text, &[]);
    let returns: Vec<_> = plan
        .probes
        .iter()
        .filter(|p| p.module == "rdma_rxe")
        .map(|p| p.prototype.returns)
        .collect();
    use crate::btf::ReturnKind;
    assert_eq!(returns, [ReturnKind::Int, ReturnKind::Pointer]);
}

#[test]
fn a_name_that_stands_twice_in_a_module_is_not_hooked() {
    let twice = "0000000000009000 t ib_uverbs_alloc_pd\t[ib_uverbs]\n".repeat(2);
    let kernel = kernel(&twice);
    let (_, plan) = kernel.plan(&[]);
    let ambiguous = Missing::Ambiguous {
        module: "ib_uverbs".to_owned(),
        function: "ib_uverbs_alloc_pd".to_owned(),
    };
    assert!(plan.missing.contains(&(0, ambiguous)), "{plan:#?}");
    assert!(
        plan.probes
            .iter()
            .all(|p| p.function != "ib_uverbs_alloc_pd")
    );
}
