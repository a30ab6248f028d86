use super::tree::TreeError;
use super::*;
use crate::btf::ReturnKind;

const ENTRY: u32 = 0;
const LOOK_UP: u32 = 1;
const PIN: u32 = 2;
const RELEASE: u32 = 3;
const FINISH: u32 = 4;
const OTHER_ENTRY: u32 = 5;

pub(super) fn watched() -> Vec<Watched> {
    let function = |(name, returns, verb): (&str, ReturnKind, &str)| Watched {
        name: name.to_owned(),
        returns,
        entry_of: (!verb.is_empty())
            .then(|| verb.to_owned())
            .into_iter()
            .collect(),
    };
    [
        ("entry", ReturnKind::Int, "reg_mr"),
        ("look_up", ReturnKind::Int, ""),
        ("pin", ReturnKind::Pointer, ""),
        ("release", ReturnKind::Nothing, ""),
        ("finish", ReturnKind::Int, ""),
        ("other_entry", ReturnKind::Long, "create_cq"),
    ]
    .map(function)
    .to_vec()
}

pub(super) fn key() -> Key {
    Key {
        kernel: "6.1.0".to_owned(),
        driver: "rdma_rxe".to_owned(),
        verb: "reg_mr".to_owned(),
    }
}

fn errno(errno: i64) -> u64 {
    (-errno).cast_unsigned()
}

/// Moments of thread 7, a microsecond apart.
pub(super) fn moments(steps: &[(u32, Option<u64>)]) -> Vec<Moment> {
    let moment = |(at, (function, returned)): (u64, &(u32, Option<u64>))| Moment {
        boot_ns: 1_000 * at,
        tid: 7,
        tgid: 5,
        function: *function,
        what: returned.map_or(What::Enters, What::Returns),
    };
    (1..).zip(steps).map(moment).collect()
}

fn trace(steps: &[(u32, Option<u64>)]) -> Trace {
    let mut weaver = Weaver::new(&watched());
    let mut traces = moments(steps)
        .into_iter()
        .filter_map(|moment| weaver.take(moment));
    let trace = traces.next().expect("a whole call");
    assert!(traces.next().is_none());
    trace
}

/// Looks something up, which may not be there, pins, and finishes.
fn good(looked_up: u64) -> Trace {
    trace(&[
        (ENTRY, None),
        (LOOK_UP, None),
        (LOOK_UP, Some(looked_up)),
        (PIN, None),
        (PIN, Some(0xffff_8880_0000_1000)),
        (FINISH, None),
        // Only 32 bits are told.
        (FINISH, Some(0xdead_beef_0000_0000)),
        (ENTRY, Some(0)),
    ])
}

/// Pins in vain and takes back what it did.
fn bad(looked_up: u64) -> Trace {
    trace(&[
        (ENTRY, None),
        (LOOK_UP, None),
        (LOOK_UP, Some(looked_up)),
        (PIN, None),
        (RELEASE, None),
        (RELEASE, Some(errno(1))),
        (PIN, Some(errno(14))),
        (ENTRY, Some(errno(14))),
    ])
}

fn tree() -> Tree {
    let mut tree = Tree::new(&key());
    for looked_up in [0, errno(2), 0] {
        assert_eq!(tree.add(&good(looked_up), &watched()), Added::Yes);
    }
    tree
}

#[test]
fn a_call_is_followed_to_its_return() {
    let trace = good(errno(2));
    assert_eq!(
        (trace.tid, trace.tgid, trace.entry, trace.outcome),
        (7, 5, ENTRY, Outcome::Good)
    );
    assert_eq!((trace.began_ns, trace.took_ns), (1_000, 7_000));
    assert_eq!(
        trace.steps[1..3],
        [Step::Enters(LOOK_UP), Step::Returns(Outcome::Error(2))]
    );
    assert_eq!(bad(0).outcome, Outcome::Error(14));
    // Who returns nothing returns no error.
    assert_eq!(bad(0).steps[5], Step::Returns(Outcome::Good));
}

#[test]
fn an_error_is_told_as_the_function_tells_it() {
    let of = |value, kind| Outcome::of(value, kind).errno();
    // The upper half of an int is junk; of a pointer it is a part of the value.
    assert_eq!(of(0x1_ffff_fff2, ReturnKind::Int), Some(14));
    assert_eq!(of(0x1_ffff_fff2, ReturnKind::Pointer), None);
    assert_eq!(of(errno(4095), ReturnKind::Pointer), Some(4095));
    assert_eq!(of(errno(4096), ReturnKind::Long), None);
    assert_eq!(of(errno(14), ReturnKind::Nothing), None);
    for kind in [ReturnKind::Int, ReturnKind::Long, ReturnKind::Pointer] {
        assert_eq!(of(0, kind), None);
        assert_eq!(of(0x8000_0000_0000_0000, kind), None);
        assert_eq!(of(0x8000_0000, kind), None);
    }
}

fn taken(weaver: &mut Weaver, steps: &[(u32, Option<u64>)]) -> Vec<Trace> {
    let moments = moments(steps).into_iter();
    moments.filter_map(|moment| weaver.take(moment)).collect()
}

#[test]
fn a_hole_makes_no_trace_and_the_thread_is_followed_again() {
    let whole: &[_] = &[(ENTRY, None), (PIN, None), (PIN, Some(0)), (ENTRY, Some(0))];
    let mut weaver = Weaver::new(&watched());
    let holes: [&[_]; 4] = [
        // The return of `pin` was not seen.
        &[(ENTRY, None), (PIN, None), (ENTRY, Some(0))],
        // Its call was not seen.
        &[(ENTRY, None), (PIN, Some(0)), (ENTRY, Some(0))],
        // They end in the wrong order.
        &[
            (ENTRY, None),
            (LOOK_UP, None),
            (PIN, None),
            (LOOK_UP, Some(0)),
            (PIN, Some(0)),
            (ENTRY, Some(0)),
        ],
        // The end was not seen: the next beginning tells.
        &[(ENTRY, None), (PIN, None), (PIN, Some(0))],
    ];
    for (lost, hole) in (1..).zip(holes) {
        assert_eq!(taken(&mut weaver, hole), [], "{hole:?}");
        assert_eq!(taken(&mut weaver, whole).len(), 1, "after {hole:?}");
        assert_eq!(weaver.lost(), lost, "{hole:?}");
    }
    // Without a beginning nothing is known, and nothing is lost that was ours.
    let no_beginning = [(LOOK_UP, None), (LOOK_UP, Some(0)), (ENTRY, Some(0))];
    assert_eq!(taken(&mut weaver, &no_beginning), []);
    // A function that is not in the set: nobody sends it.
    assert_eq!(taken(&mut weaver, &[(99, None), (u32::MAX, Some(0))]), []);
    assert_eq!(weaver.lost(), 4);
}

#[test]
fn a_call_without_end_takes_no_memory_for_ever() {
    let mut weaver = Weaver::new(&watched());
    let deep = std::iter::repeat_n((PIN, None), MAX_DEPTH + 5);
    let steps: Vec<_> = std::iter::once((ENTRY, None)).chain(deep).collect();
    assert_eq!(taken(&mut weaver, &steps), []);
    assert_eq!(weaver.lost(), 1);
    let around = [(PIN, None), (PIN, Some(0))];
    let long = std::iter::repeat_n(around, 20_000).flatten();
    let ends = [(ENTRY, Some(0))];
    let steps: Vec<_> = std::iter::once((ENTRY, None))
        .chain(long)
        .chain(ends)
        .collect();
    assert_eq!(taken(&mut weaver, &steps), []);
    assert_eq!(weaver.lost(), 2);
    // More threads than are followed.
    let begin = moments(&[(ENTRY, None)])[0];
    for tid in 0..5_000 {
        weaver.take(Moment { tid, ..begin });
    }
    assert_eq!(weaver.lost(), 2 + 5_000 - 4_096);
}

#[test]
fn a_tree_holds_good_calls_alone() {
    let mut tree = tree();
    assert_eq!(tree.add(&bad(0), &watched()), Added::Failed);
    let slow = Trace {
        took_ns: GOOD_WITHIN_NS + 1,
        ..good(0)
    };
    assert_eq!(tree.add(&slow, &watched()), Added::Slow);
    assert_eq!(tree.traces, 3);
    let names: Vec<_> = tree.entries[0]
        .calls
        .iter()
        .map(|n| n.function.as_str())
        .collect();
    // In the order in which they are called.
    assert_eq!(names, ["look_up", "pin", "finish"]);
    let look_up = tree.at(&["entry", "look_up"]).unwrap();
    let returns: Vec<_> = look_up.outcomes.iter().map(|(n, c)| (&**n, *c)).collect();
    assert_eq!(returns, [("ENOENT", 1), ("good", 2)]);
    assert_eq!(tree.at(&["entry", "release"]), None);
    assert_eq!(tree.at(&[]), None);
}

#[test]
fn a_call_that_makes_too_many_places_stays_out() {
    let watched: Vec<Watched> = (0..21_000)
        .map(|number| Watched {
            name: format!("f{number}"),
            entry_of: match number {
                0 => vec!["reg_mr".to_owned()],
                _ => Vec::new(),
            },
            returns: ReturnKind::Int,
        })
        .collect();
    let of = |functions: std::ops::Range<u32>| Trace {
        steps: std::iter::once(Step::Enters(0))
            .chain(functions.flat_map(|f| [Step::Enters(f), Step::Returns(Outcome::Good)]))
            .chain([Step::Returns(Outcome::Good)])
            .collect(),
        ..good(0)
    };
    let mut tree = Tree::new(&key());
    assert_eq!(tree.add(&of(1..8_000), &watched), Added::Yes);
    assert_eq!(tree.add(&of(8_000..16_000), &watched), Added::Yes);
    let before = tree.clone();
    assert_eq!(tree.add(&of(16_000..21_000), &watched), Added::NoRoom);
    assert_eq!(tree, before);
}

#[test]
fn a_tree_comes_back_from_its_json_and_what_is_none_is_refused() {
    let tree = tree();
    let json = serde_json::to_string_pretty(&tree).unwrap();
    assert_eq!(Tree::read(json.as_bytes()).unwrap(), tree);
    for cut in 0..json.len() {
        assert!(Tree::read(&json.as_bytes()[..cut]).is_err(), "{cut}");
    }
    let changed = |from: &str, to: &str| {
        assert!(json.contains(from), "{from}");
        Tree::read(json.replacen(from, to, 1).as_bytes()).unwrap_err()
    };
    assert_eq!(
        changed("\"schema\": 1", "\"schema\": 2"),
        TreeError::Schema(2)
    );
    let content = |error| matches!(error, TreeError::Content(_));
    assert!(content(changed("\"verb\": \"reg_mr\"", "\"verb\": \"\"")));
    assert!(content(changed("\"look_up\"", "\"\"")));
    assert!(content(changed("\"traces\": 3", "\"traces\": 0")));
    let unknown = changed("\"traces\": 3", "\"more\": 1, \"traces\": 3");
    assert!(unknown.to_string().contains("more"), "{unknown}");
    assert!(matches!(
        changed("\"traces\": 3", "\"traces\": -1"),
        TreeError::Json(_)
    ));
    // As deep as a reader could be made to go.
    let deep = format!("{{\"schema\": 1, \"entries\": {}", "[".repeat(100_000));
    assert!(Tree::read(deep.as_bytes()).is_err());
}

#[test]
fn the_deepest_call_can_be_written_and_read() {
    let mut steps = vec![(ENTRY, None)];
    steps.extend(std::iter::repeat_n((PIN, None), MAX_DEPTH - 1));
    steps.extend(std::iter::repeat_n((PIN, Some(0)), MAX_DEPTH - 1));
    steps.push((ENTRY, Some(0)));
    let mut tree = Tree::new(&key());
    assert_eq!(tree.add(&trace(&steps), &watched()), Added::Yes);
    let json = serde_json::to_vec(&tree).unwrap();
    assert_eq!(Tree::read(&json).unwrap(), tree);
}

#[test]
fn counts_that_a_file_exaggerates_do_not_overflow() {
    let json = serde_json::to_string(&tree()).unwrap();
    let json = json.replace("\"traces\":3", &format!("\"traces\":{}", u64::MAX));
    let json = json.replace("\"good\":3", &format!("\"good\":{}", u64::MAX));
    let mut tree = Tree::read(json.as_bytes()).unwrap();
    assert_eq!(tree.add(&good(0), &watched()), Added::Yes);
    assert_eq!(tree.traces, u64::MAX);
}

#[test]
fn the_innermost_unusual_error_is_where_a_failing_call_parts() {
    let fork = fork(&tree(), &bad(errno(2)), &watched());
    assert_eq!(fork.path, ["entry", "pin"]);
    assert_eq!((fork.depth(), fork.outcome), (1, Outcome::Error(14)));
    let usual: Vec<_> = fork.usual.iter().map(|(n, c)| (&**n, *c)).collect();
    assert_eq!((usual, fork.good_calls), (vec![("good", 3)], 3));
    assert_eq!(fork.called_newly.as_deref(), Some("release"));
    assert_eq!(fork.not_reached, [""; 0]);
}

#[test]
fn an_error_beside_the_way_of_the_failure_does_not_decide() {
    // The look-up returns what good calls never had, and the call fails of another thing.
    let fork = fork(&tree(), &bad(errno(13)), &watched());
    assert_eq!(fork.path, ["entry", "pin"]);
    // Nothing else failed with the call's errno: then it does.
    let turned = trace(&[
        (ENTRY, None),
        (LOOK_UP, None),
        (LOOK_UP, Some(errno(13))),
        (ENTRY, Some(errno(22))),
    ]);
    let fork = super::fork(&tree(), &turned, &watched());
    assert_eq!(fork.path, ["entry", "look_up"]);
    assert_eq!(fork.outcome, Outcome::Error(13));
}

#[test]
fn an_error_that_good_calls_have_too_does_not_decide() {
    let refused = trace(&[
        (ENTRY, None),
        (LOOK_UP, None),
        (LOOK_UP, Some(errno(2))),
        (ENTRY, Some(errno(2))),
    ]);
    let fork = fork(&tree(), &refused, &watched());
    assert_eq!((fork.path.len(), fork.depth()), (1, 0));
    // What good calls go on to do tells where it left.
    assert_eq!(fork.not_reached, ["pin", "finish"]);
    assert_eq!(fork.called_newly, None);
}

#[test]
fn an_entry_point_of_which_nothing_is_recorded_says_so() {
    let other = trace(&[(OTHER_ENTRY, None), (OTHER_ENTRY, Some(errno(12)))]);
    let fork = fork(&tree(), &other, &watched());
    assert_eq!(
        (fork.path, fork.good_calls),
        (vec!["other_entry".into()], 0)
    );
    assert!(fork.usual.is_empty());
}

#[test]
fn failing_calls_of_one_kind_have_one_signature() {
    let of = |trace: &Trace| signature(&tree(), trace, &watched());
    // What good calls do too makes no other kind.
    assert_eq!(of(&bad(0)), of(&bad(errno(2))));
    assert_ne!(of(&bad(0)), of(&bad(errno(13))));
    let repeated = trace(&[
        (ENTRY, None),
        (PIN, None),
        (PIN, Some(errno(14))),
        (PIN, None),
        (PIN, Some(errno(14))),
        (ENTRY, Some(errno(14))),
    ]);
    assert_eq!(of(&bad(0)), of(&repeated));
}
