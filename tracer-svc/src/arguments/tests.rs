use super::*;
use crate::btf::synthetic::{BUNDLE, INT, LONG, MR, Module, PD, QP, base, pointer};
use crate::btf::{Blob, FirstArgument, Kind, Types};
use std::collections::BTreeSet;

/// A prototype with named parameters.
fn function(module: &mut Module, name: &str, parameters: &[(&str, u32)]) -> u32 {
    let extra: Vec<u32> = parameters
        .iter()
        .flat_map(|(name, id)| [module.writer().string(name.as_bytes()), *id])
        .collect();
    let count = u32::try_from(parameters.len()).unwrap();
    let proto = module
        .writer()
        .add(0, Kind::FuncProto, (count, false), pointer(MR), &extra);
    let name = module.writer().string(name.as_bytes());
    module
        .writer()
        .add(name, Kind::Func, (0, false), proto, &[])
}

/// A struct of numbers of four bytes and a pointer to it.
fn attributes(module: &mut Module, name: &str, members: &[(&str, u32, u32)]) -> (u32, u32) {
    let extra: Vec<u32> = members
        .iter()
        .flat_map(|(name, id, offset)| [module.writer().string(name.as_bytes()), *id, *offset])
        .collect();
    let count = u32::try_from(members.len()).unwrap();
    let name = module.writer().string(name.as_bytes());
    let id = module
        .writer()
        .add(name, Kind::Struct, (count, true), 64, &extra);
    (id, module.writer().add(0, Kind::Ptr, (0, false), id, &[]))
}

fn ids(types: &Types<'_>, program: &Program) -> Ids {
    let names: BTreeSet<Vec<u8>> = program.names().cloned().collect();
    types.locate(&names).unwrap()
}

fn slots(spec: u32) -> [u32; 6] {
    std::array::from_fn(|slot| spec >> (8 + 4 * slot) & 15)
}

#[test]
fn arguments_are_found_by_name_and_type_wherever_they_stand() {
    let base = base();
    let mut module = Module::on(&base);
    let older = [
        ("pd", pointer(PD)),
        ("start", LONG),
        ("length", LONG),
        ("virt", LONG),
        ("access", INT),
    ];
    let id = function(&mut module, "reg", &older);
    let moved = [
        ("pd", pointer(PD)),
        ("hint", INT),
        ("addr", LONG),
        ("len", LONG),
        ("access_flags", INT),
    ];
    let moved = function(&mut module, "moved", &moved);
    // The right names with wrong types are not what is looked for.
    let wrong = [("start", INT), ("length", pointer(PD)), ("access", LONG)];
    let wrong = function(&mut module, "wrong", &wrong);
    let module = module.finish(&base);
    let types = Types::split(&base, &module);
    let spec = |id| {
        let places = Places::find(&types, id, Reading::RegMr).unwrap();
        constant(FirstArgument::Pd, Some(&places))
    };
    assert_eq!(spec(id) & 0xff, 0x22);
    assert_eq!(slots(spec(id)), [1, 2, 4, 15, 15, 15]);
    assert_eq!(slots(spec(moved)), [2, 3, 4, 15, 15, 15]);
    assert_eq!(slots(spec(wrong)), [15; 6]);
    assert_eq!(constant(FirstArgument::Bundle, None), 0xffff_ff06);
}

/// What the records of `modify(qp, attr, attr_mask)` tell, by the members of
/// `struct ib_qp_attr`.
fn told(members: impl FnOnce(&mut Module) -> Vec<(&'static str, u32, u32)>) -> Vec<Readable> {
    let base = base();
    let mut module = Module::on(&base);
    let members = members(&mut module);
    let (_, attr) = attributes(&mut module, "ib_qp_attr", &members);
    let parameters = [("qp", pointer(QP)), ("attr", attr), ("attr_mask", INT)];
    let id = function(&mut module, "modify", &parameters);
    let module = module.finish(&base);
    let types = Types::split(&base, &module);
    let program = Program::embedded().unwrap();
    let mut known = ids(&Types::whole(&base), &program);
    known.extend(ids(&types, &program));
    let places = Places::find(&types, id, Reading::ModifyQp).unwrap();
    readable(&places, &program, (&types, &known)).unwrap()
}

fn absent<'t>(told: &'t [Readable], name: &str) -> Option<&'t str> {
    let found = told.iter().find(|r| r.name == name).unwrap();
    found.absent.as_deref()
}

fn state_enum(module: &mut Module, name: &str) -> u32 {
    let name = module.writer().string(name.as_bytes());
    let reset = module.writer().string(b"IB_QPS_RESET");
    module
        .writer()
        .add(name, Kind::Enum, (1, false), 4, &[reset, 0])
}

#[test]
fn a_member_that_the_kernel_lacks_is_told_and_the_others_are_read() {
    let told = told(|module| {
        let state = state_enum(module, "ib_qp_state");
        vec![("qp_state", state, 0), ("port_num", INT, 32)]
    });
    assert_eq!(absent(&told, "asked_state"), None);
    assert_eq!(absent(&told, "port"), None);
    assert_eq!(absent(&told, "attribute_mask"), None);
    assert_eq!(
        absent(&told, "gid_index"),
        Some("struct ib_qp_attr has no member ah_attr")
    );
    // The synthetic struct ib_qp holds nothing but its device.
    assert_eq!(
        absent(&told, "qp_number"),
        Some("struct ib_qp has no member qp_num")
    );
    assert_eq!(
        absent(&told, "current_state"),
        Some("no struct rxe_qp; no struct mlx5_ib_qp; no struct mlx4_ib_qp; no struct irdma_qp")
    );
}

#[test]
fn a_member_of_another_kind_or_width_is_not_read() {
    let found = told(|module| {
        let other = state_enum(module, "ib_mtu");
        // Three bits at bit 32.
        vec![("qp_state", other, 0), ("port_num", INT, 3 << 24 | 32)]
    });
    assert_eq!(
        absent(&found, "asked_state"),
        Some("member qp_state of struct ib_qp_attr is of another kind")
    );
    assert_eq!(
        absent(&found, "port"),
        Some("member port_num of struct ib_qp_attr is a bit-field")
    );
    let wide = told(|module| {
        let name = module.writer().string(b"wide");
        let wide = module.writer().add(name, Kind::Int, (0, false), 16, &[128]);
        vec![("port_num", wide, 0)]
    });
    assert_eq!(
        absent(&wide, "port"),
        Some("member port_num of struct ib_qp_attr has 16 bytes")
    );
}

#[test]
fn a_function_without_the_arguments_tells_nothing() {
    let base = base();
    let mut module = Module::on(&base);
    let id = function(&mut module, "handler", &[("attrs", pointer(BUNDLE))]);
    let module: Blob = module.finish(&base);
    let types = Types::split(&base, &module);
    let program = Program::embedded().unwrap();
    let places = Places::find(&types, id, Reading::CreateQp).unwrap();
    let told = readable(&places, &program, (&types, &Ids::new())).unwrap();
    assert!(told.len() > 4);
    for each in told {
        assert_eq!(
            each.absent.as_deref(),
            Some("the function takes no such argument"),
            "{}",
            each.name
        );
    }
}

/// Every member that a reading names is declared to the program; else a change of
/// one file would silently read less.
#[test]
fn what_is_wanted_is_what_the_program_declares() {
    let program = Program::embedded().unwrap();
    let (types, ids) = program.types();
    for reading in Reading::ALL {
        for argument in reading.arguments() {
            for (name, member) in argument.ways.iter().flat_map(|way| way.members) {
                let id = ids[name.as_bytes()];
                let found = crate::btf::fit((&types, id), (&types, id), member).unwrap();
                assert_eq!(found, Ok(()), "{reading:?}: {name}.{member}");
            }
        }
    }
}
