//! Which hooks an out-of-tree stack serves, and by what; and a module whose types cannot
//! be read.

use super::*;
use crate::btf::ReturnKind;

/// The shipped hooks of memory, as the report shows them.
fn memory_of(kernel: &Kernel) -> (Vec<(String, u8, Option<Missing>)>, String) {
    let catalogue = Catalogue::built_in().unwrap();
    let view = KernelView {
        modules: kernel.views(),
        symbols: &kernel.symbols,
        traceable: None,
        tables: &[],
    };
    let plan = resolve(&catalogue, &view).unwrap();
    let memory = |p: &&Planned| catalogue.hooks[p.hook].name.starts_with("memory.");
    let served = plan.probes.iter().filter(memory);
    let served: Vec<_> = served
        .map(|p| {
            assert_eq!(p.prototype.returns, ReturnKind::Pointer, "{p:?}");
            (p.function.clone(), p.depth, p.not_by_fexit.clone())
        })
        .collect();
    let probes = plan.probes.iter().enumerate().map(|(number, planned)| {
        let mechanism = match &planned.not_by_fexit {
            Some(_) => Mechanism::Kretprobe,
            None => Mechanism::Fexit,
        };
        Probe {
            id: ProbeId(u16::try_from(number).unwrap()),
            hook: catalogue.hooks[planned.hook].clone(),
            module: planned.module.clone(),
            function: planned.function.clone(),
            found: planned.found,
            role: planned.role,
            state: ProbeState::Attached(mechanism),
            not_by_fexit: planned.not_by_fexit.clone(),
            address_hidden: false,
            arguments: Vec::new(),
        }
    });
    let report = Report::new(&catalogue, probes.collect(), &plan.missing).to_string();
    let lines = report.lines().skip_while(|l| !l.starts_with("memory.umem"));
    let lines: Vec<&str> = lines.take_while(|l| !l.starts_with("uverbs.")).collect();
    (served, lines.join("\n"))
}

/// OFED's ib_uverbs asks the clients of peer memory: it has both functions, and mostly
/// no BTF, since DKMS builds leave it out.
const OFED: &str = "\
0000000000003000 t ib_umem_get\t[ib_uverbs]
0000000000003100 t ib_umem_get_peer\t[ib_uverbs]
0000000000003200 t ib_peer_umem_get\t[ib_uverbs]
0000000000003300 t ib_umem_dmabuf_get\t[ib_uverbs]
";

#[test]
fn peer_memory_of_an_out_of_tree_stack_is_hooked_beside_the_kernels_own() {
    let mut kernel = kernel(OFED);
    kernel.modules.insert("ib_uverbs", None);
    let (served, report) = memory_of(&kernel);
    let no_btf = || Some(Missing::NoBtf("ib_uverbs".to_owned()));
    assert_eq!(
        served,
        [
            ("ib_umem_get".to_owned(), 60, no_btf()),
            ("ib_umem_get_peer".to_owned(), 60, no_btf()),
            // Further in: the one above calls it.
            ("ib_peer_umem_get".to_owned(), 61, no_btf()),
            ("ib_umem_dmabuf_get".to_owned(), 60, no_btf()),
        ]
    );
    insta::assert_snapshot!("peer_memory", report);
}

#[test]
fn peer_memory_with_types_is_hooked_by_fexit() {
    let mut kernel = kernel(OFED);
    let mut uverbs = Module::on(&kernel.base);
    for function in ["ib_umem_get", "ib_umem_get_peer", "ib_peer_umem_get"] {
        uverbs.function(function, pointer(MR), &[pointer(PD), LONG, LONG, INT]);
    }
    let uverbs = uverbs.finish(&kernel.base);
    kernel.modules.insert("ib_uverbs", Some((uverbs, None)));
    let (served, _) = memory_of(&kernel);
    let by_fexit = |(function, _, why): &(String, u8, Option<Missing>)| {
        assert!(why.is_none() || function == "ib_umem_dmabuf_get");
        function.clone()
    };
    let functions: Vec<String> = served.iter().map(by_fexit).collect();
    assert_eq!(
        functions,
        [
            "ib_umem_get",
            "ib_umem_get_peer",
            "ib_peer_umem_get",
            "ib_umem_dmabuf_get"
        ]
    );
}

/// Where the modules are not there, the kernel's own serve alone, and nothing is missed.
#[test]
fn without_peer_memory_the_kernels_own_functions_serve_alone() {
    let own = "\
0000000000003000 t ib_umem_get\t[ib_uverbs]
0000000000003300 t ib_umem_dmabuf_get\t[ib_uverbs]
";
    let mut kernel = kernel(own);
    kernel.modules.insert("ib_uverbs", None);
    let (served, report) = memory_of(&kernel);
    assert_eq!(served.len(), 2, "{served:?}");
    assert!(!report.contains("peer"), "{report}");
}

/// A module of another build, or a damaged one: its functions are there all the same.
#[test]
fn a_module_with_broken_types_is_served_by_returns_and_says_so() {
    let kernel = kernel(OFED);
    let catalogue = Catalogue::built_in().unwrap();
    let mut modules = kernel.views();
    for module in modules.iter_mut().filter(|m| m.name == "ib_uverbs") {
        module.types = None;
        module.broken = Some("unknown kind 31 of type 1");
    }
    let view = KernelView {
        modules,
        symbols: &kernel.symbols,
        traceable: None,
        tables: &[],
    };
    let plan = resolve(&catalogue, &view).unwrap();
    let of_uverbs = by_return(&plan, "ib_uverbs");
    assert_eq!(of_uverbs.len(), 4, "{of_uverbs:?}");
    for (function, why) in of_uverbs {
        let why = why.unwrap().to_string();
        assert!(
            why.contains("ib_uverbs") && why.contains("unknown kind 31"),
            "{function}: {why}"
        );
    }
}
