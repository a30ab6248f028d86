//! A baseline's file, and moments in any order, on any bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rdmesh_tracer::baseline::{Key, Moment, Tree, Watched, Weaver, What, fork, signature};
use rdmesh_tracer::btf::ReturnKind;

const KINDS: [ReturnKind; 4] = [
    ReturnKind::Int,
    ReturnKind::Long,
    ReturnKind::Pointer,
    ReturnKind::Nothing,
];

fn watched() -> Vec<Watched> {
    let one = |(number, returns): (usize, ReturnKind)| Watched {
        name: format!("f{number}"),
        returns,
        entry_of: match number {
            0 => vec!["reg_mr".to_owned()],
            _ => Vec::new(),
        },
    };
    KINDS.into_iter().cycle().take(8).enumerate().map(one).collect()
}

/// Two bytes make a moment.
fn moment(bytes: &[u8]) -> Moment {
    let (first, second) = (bytes[0], bytes[1]);
    Moment {
        boot_ns: u64::from(second),
        tid: u32::from(first >> 4 & 3),
        tgid: 1,
        function: u32::from(first & 15),
        what: match first >> 6 {
            0 | 1 => What::Enters,
            2 => What::Returns(u64::from(second)),
            _ => What::Returns(u64::from(second).wrapping_neg()),
        },
    }
}

fuzz_target!(|bytes: &[u8]| {
    if let Ok(tree) = Tree::read(bytes) {
        let again = serde_json::to_vec(&tree).unwrap_or_default();
        assert_eq!(Tree::read(&again).as_ref(), Ok(&tree));
    }
    let watched = watched();
    let mut weaver = Weaver::new(&watched);
    let mut tree = Tree::new(&Key {
        kernel: "6.1".to_owned(),
        driver: "rdma_rxe".to_owned(),
        verb: "reg_mr".to_owned(),
    });
    for pair in bytes.chunks_exact(2) {
        if let Some(trace) = weaver.take(moment(pair)) {
            let fork = fork(&tree, &trace, &watched);
            assert_eq!(fork.path.first().map(String::as_str), Some("f0"));
            let failures = signature(&tree, &trace, &watched).failures();
            assert!(trace.outcome.errno().is_none() || failures > 0);
            tree.add(&trace, &watched);
        }
    }
});
