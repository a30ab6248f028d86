use std::collections::BTreeSet;

use aya::Endianness;
use proptest::prelude::*;

use super::synthetic::{
    BUNDLE, DEVICE, EVENT, INT, LONG, MR, Module, PD, QP, UDATA, base, pointer,
};
use super::*;

fn names(of: &[&str]) -> BTreeSet<Vec<u8>> {
    of.iter().map(|n| n.as_bytes().to_vec()).collect()
}

#[test]
fn a_module_continues_the_ids_and_strings_of_its_base() {
    let base = base();
    let mut module = Module::on(&base);
    // A name that the base has too lives only in the base's strings.
    let (types, _) = base.extent();
    let id = module.function("rxe_alloc_pd", INT, &[pointer(PD), pointer(UDATA)]);
    assert_eq!(id, types + 2);
    let module = module.finish(&base);
    let types = Types::split(&base, &module);
    let functions: Vec<_> = types.own_functions().map(Result::unwrap).collect();
    assert_eq!(functions, [(&b"rxe_alloc_pd"[..], id)]);
    assert_eq!(types.string(types.get(PD).unwrap().name).unwrap(), b"ib_pd");
    assert_eq!(types.get(id + 1), Err(BtfError::NoType(id + 1)));
}

#[test]
fn a_prototype_says_where_the_return_value_stands_and_how_it_fails() {
    let base = base();
    let mut module = Module::on(&base);
    let int = module.function("alloc_pd", INT, &[pointer(PD), pointer(UDATA)]);
    let pointer_id = module.function("reg_mr", pointer(MR), &[pointer(PD), LONG, LONG, INT]);
    let nothing = module.function("event", 0, &[pointer(UDATA), pointer(EVENT)]);
    // A struct by value of twelve bytes takes two places.
    let name = module.writer().string(b"twelve");
    let twelve = module.writer().add(name, Kind::Struct, (0, false), 12, &[]);
    let by_value = module.function("by_value", LONG, &[twelve, pointer(BUNDLE)]);
    let module = module.finish(&base);
    let types = Types::split(&base, &module);

    let found = function(&types, int).unwrap();
    assert_eq!(found.argument_words, 2);
    assert_eq!(found.returns, ReturnKind::Int);
    assert_eq!(found.first, FirstArgument::Pd);
    let found = function(&types, pointer_id).unwrap();
    assert_eq!(
        (found.argument_words, found.returns),
        (4, ReturnKind::Pointer)
    );
    let found = function(&types, nothing).unwrap();
    assert_eq!(
        (found.returns, found.first),
        (ReturnKind::Nothing, FirstArgument::SecondEvent)
    );
    let found = function(&types, by_value).unwrap();
    assert_eq!((found.argument_words, found.returns), (3, ReturnKind::Long));
    assert_eq!(found.first, FirstArgument::Other);
    assert!(matches!(
        function(&types, PD),
        Err(BtfError::Unexpected { .. } | BtfError::NoType(_))
    ));
}

#[test]
fn signatures_of_two_modules_compare_by_what_they_name() {
    let base = base();
    let mut one = Module::on(&base);
    let table = one.ops(&[("alloc_pd", INT, &[pointer(PD), pointer(UDATA)])]);
    let one = one.finish(&base);
    let mut two = Module::on(&base);
    two.function("pad", INT, &[]);
    // The same through a typedef and a const.
    let name = two.writer().string(b"number");
    let number = two.writer().add(name, Kind::Typedef, (0, false), INT, &[]);
    let constant = two.writer().add(0, Kind::Const, (0, false), PD, &[]);
    let to_constant = two.writer().add(0, Kind::Ptr, (0, false), constant, &[]);
    let same = two.function("same", number, &[to_constant, pointer(UDATA)]);
    let other = two.function("other", number, &[pointer(QP), pointer(UDATA)]);
    let two = two.finish(&base);
    let (bits, wanted) = operation(&Types::split(&base, &one), table, b"alloc_pd")
        .unwrap()
        .unwrap();
    assert_eq!(
        (bits, wanted.as_str()),
        (64, "int(struct ib_pd*,struct ib_udata*,)")
    );
    let types = Types::split(&base, &two);
    assert_eq!(signature_of(&types, same).unwrap(), wanted);
    assert_ne!(signature_of(&types, other).unwrap(), wanted);
    let first = Types::split(&base, &one);
    assert_eq!(operation(&first, table, b"no_such"), Ok(None));
    assert!(operation(&first, table, b"owner").is_err());
}

#[test]
fn a_cut_keeps_offsets_and_can_be_read_again() {
    let base = base();
    let mut module = Module::on(&base);
    let out = module.writer();
    let (a, b, c) = (out.string(b"a"), out.string(b"b"), out.string(b"c"));
    // struct outer { struct { int a; } ; struct ib_pd b; int c[4]; }
    let inner = out.add(0, Kind::Struct, (1, false), 4, &[a, INT, 0]);
    let array = out.add(0, Kind::Array, (0, false), 0, &[INT, INT, 4]);
    let name = out.string(b"outer");
    out.add(
        name,
        Kind::Struct,
        (3, false),
        32,
        &[0, inner, 0, b, PD, 64, c, array, 128],
    );
    let module = module.finish(&base);
    let types = Types::split(&base, &module);
    let ids = types.locate(&names(&["outer", "ib_pd"])).unwrap();
    assert_eq!(ids.len(), 1, "ib_pd is the base's");

    let small = Blob::parse(cut(&types, ids.values().copied()).unwrap(), None).unwrap();
    let small_types = Types::whole(&small);
    let ids = small_types.locate(&names(&["outer", "ib_pd"])).unwrap();
    let outer = small_types.get(ids[&b"outer"[..]]).unwrap();
    let members: Vec<_> = outer
        .members()
        .map(|m| (small_types.string(m.name).unwrap().to_vec(), m.bit_offset))
        .collect();
    assert_eq!(
        members,
        [(vec![], 0), (b"b".to_vec(), 64), (b"c".to_vec(), 128)]
    );
    // The struct that was not asked for keeps its size and loses its name.
    assert!(!ids.contains_key(&b"ib_pd"[..]));
    let shell = small_types
        .get(outer.members().nth(1).unwrap().type_id)
        .unwrap();
    assert_eq!((shell.size_or_type, shell.vlen, shell.name), (8, 0, 0));
    // And aya-obj, which relocates against it, can read it.
    let bytes = cut(
        &types,
        types.locate(&names(&["outer"])).unwrap().into_values(),
    )
    .unwrap();
    aya_obj::btf::Btf::parse(&bytes, Endianness::default()).unwrap();
}

#[test]
fn a_struct_that_holds_itself_is_an_error() {
    let base = base();
    let mut module = Module::on(&base);
    let out = module.writer();
    let id = out.next_id();
    let name = out.string(b"endless");
    out.add(name, Kind::Struct, (1, false), 8, &[0, id, 0]);
    let module = module.finish(&base);
    let types = Types::split(&base, &module);
    assert_eq!(cut(&types, std::iter::once(id)), Err(BtfError::TooDeep(id)));
}

#[test]
fn modifiers_without_end_are_an_error() {
    let base = base();
    let mut module = Module::on(&base);
    let out = module.writer();
    let id = out.next_id();
    out.add(0, Kind::Const, (0, false), id, &[]);
    let module = module.finish(&base);
    let types = Types::split(&base, &module);
    assert_eq!(types.resolve(id), Err(BtfError::TooDeep(id)));
}

#[test]
fn names_lose_the_mark_of_another_version() {
    let mut out = Writer::default();
    for name in ["kernfs_node", "kernfs_node___6_15", "task_struct"] {
        let name = out.string(name.as_bytes());
        out.add(name, Kind::Struct, (0, false), 8, &[]);
    }
    let blob = Blob::parse(out.finish(), None).unwrap();
    assert_eq!(
        names_in(&Types::whole(&blob)).unwrap(),
        names(&["kernfs_node", "task_struct"])
    );
}

#[test]
fn what_is_no_btf_is_refused() {
    assert_eq!(Blob::parse(vec![], None).unwrap_err(), BtfError::Header);
    let good = Writer::default().finish();
    assert!(Blob::parse(good.clone(), None).is_ok());
    let mut foreign = good.clone();
    foreign.swap(0, 1);
    assert_eq!(Blob::parse(foreign, None).unwrap_err(), BtfError::Header);
    let mut cut_short = good;
    cut_short.pop();
    assert_eq!(
        Blob::parse(cut_short, None).unwrap_err(),
        BtfError::Truncated("strings")
    );
    let mut unknown = Writer::default();
    unknown.add(0, Kind::Void, (0, false), 0, &[]);
    let mut bytes = unknown.finish();
    // The kind stands in the fourth byte of the second word of the type.
    bytes[24 + 7] = 31;
    assert_eq!(
        Blob::parse(bytes, None).unwrap_err(),
        BtfError::UnknownKind { id: 1, kind: 31 }
    );
}

/// Everything that the loader does with a module's BTF.
fn use_it_all(bytes: Vec<u8>) {
    let base = base();
    let Ok(blob) = Blob::parse(bytes, Some(&base)) else {
        return;
    };
    let types = Types::split(&base, &blob);
    let _ = names_in(&types);
    let ids: Vec<u32> = types
        .own_types()
        .filter_map(|found| found.ok().map(|(id, _)| id))
        .collect();
    for id in &ids {
        let _ = function(&types, *id);
        let _ = signature_of(&types, *id);
        let _ = operation(&types, *id, b"alloc_pd");
    }
    for id in ids {
        if let Ok(small) = cut(&types, std::iter::once(id)) {
            let small = Blob::parse(small, None).unwrap();
            assert!(Types::whole(&small).own_types().all(|t| t.is_ok()));
        }
    }
}

fn sample() -> Vec<u8> {
    let base = base();
    let mut module = Module::on(&base);
    module.function("alloc_pd", INT, &[pointer(PD), pointer(UDATA)]);
    module.ops(&[
        ("alloc_pd", INT, &[pointer(PD), pointer(UDATA)]),
        ("create_qp", INT, &[pointer(QP), pointer(DEVICE)]),
    ]);
    let (inner, name) = (module.writer().string(b"x"), module.writer().string(b"s"));
    module.writer().add(
        name,
        Kind::Struct,
        (2, true),
        8,
        &[inner, INT, 0, 0, PD, 32],
    );
    module.writer().finish()
}

/// An integer of half the address space, which a random module had.
#[test]
fn a_size_that_no_number_has_is_no_panic() {
    let mut out = Writer::default();
    let name = out.string(b"number");
    let number = out.add(name, Kind::Int, (0, false), 0x8000_0000, &[32 | 1 << 24]);
    let (holder, member) = (out.string(b"holder"), out.string(b"member"));
    let holder = out.add(holder, Kind::Struct, (1, false), 4, &[member, number, 0]);
    let blob = Blob::parse(out.finish(), None).unwrap();
    let types = Types::whole(&blob);
    let found = fit((&types, holder), (&types, holder), "member").unwrap();
    assert_eq!(found, Err(Unfit::Bits));
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        use_it_all(bytes);
    }

    #[test]
    fn no_damage_to_a_good_btf_makes_the_reader_panic(
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
    ) {
        let mut bytes = sample();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            // The header's first words would only be refused.
            if at >= 4 {
                bytes[at] = byte;
            }
        }
        use_it_all(bytes);
    }
}
