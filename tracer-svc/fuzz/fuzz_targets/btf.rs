//! Everything that the loader does with a module's BTF, on any bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rdmesh_tracer::arguments::{Places, Program, Reading, readable};
use rdmesh_tracer::btf::{Blob, Kind, Types, Writer, cut, function, names_in, operation, signature_of};

thread_local! {
    static PROGRAM: std::rc::Rc<Program> =
        std::rc::Rc::new(Program::embedded().expect("the program that is built in"));
}

/// A kernel of one integer and one struct, which the bytes continue.
fn base() -> Option<Blob> {
    let mut out = Writer::default();
    let int = out.string(b"int");
    out.add(int, Kind::Int, (0, false), 4, &[32 | 1 << 24]);
    let name = out.string(b"ib_device");
    let member = out.string(b"name");
    out.add(name, Kind::Struct, (1, false), 4, &[member, 1, 0]);
    Blob::parse(out.finish(), None).ok()
}

fuzz_target!(|bytes: &[u8]| {
    let Some(base) = base() else { return };
    let Ok(blob) = Blob::parse(bytes.to_vec(), Some(&base)) else {
        return;
    };
    let types = Types::split(&base, &blob);
    let _ = names_in(&types);
    let program = PROGRAM.with(|program| program.clone());
    let ids = types.locate(&program.names().cloned().collect()).unwrap_or_default();
    for (id, _) in types.own_types().filter_map(Result::ok) {
        let _ = function(&types, id);
        let _ = signature_of(&types, id);
        for reading in Reading::ALL {
            if let Ok(places) = Places::find(&types, id, reading) {
                let _ = readable(&places, &program, (&types, &ids));
            }
        }
        let _ = operation(&types, id, b"alloc_pd");
        if let Ok(small) = cut(&types, std::iter::once(id)) {
            assert!(Blob::parse(small, None).is_ok(), "a cut cannot be read again");
        }
    }
});
