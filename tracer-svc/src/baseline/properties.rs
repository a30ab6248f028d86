//! What holds for any moments.

use proptest::prelude::*;

use super::tests::{key, watched};
use super::*;

/// A call as a tree of (function, errno or 0).
#[derive(Clone, Debug)]
struct Call {
    function: u32,
    errno: u16,
    calls: Vec<Call>,
}

/// Functions 1 to 4 are no entry points.
fn inner() -> impl Strategy<Value = Call> {
    let leaf = (1_u32..5, 0_u16..3).prop_map(|(function, errno)| Call {
        function,
        errno,
        calls: Vec::new(),
    });
    leaf.prop_recursive(4, 24, 4, |inner| {
        let parts = (1_u32..5, 0_u16..3, prop::collection::vec(inner, 0..4));
        parts.prop_map(|(function, errno, calls)| Call {
            function,
            errno,
            calls,
        })
    })
}

fn outer() -> impl Strategy<Value = Call> {
    let entry = prop_oneof![Just(0_u32), Just(5)];
    let parts = (entry, 0_u16..2, prop::collection::vec(inner(), 0..4));
    parts.prop_map(|(function, errno, calls)| Call {
        function,
        errno,
        calls,
    })
}

fn moments(call: &Call, tid: u32, out: &mut Vec<Moment>) {
    let moment = |what, at: usize| Moment {
        boot_ns: u64::try_from(at).unwrap(),
        tid,
        tgid: 1,
        function: call.function,
        what,
    };
    out.push(moment(What::Enters, out.len()));
    for inner in &call.calls {
        moments(inner, tid, out);
    }
    let value = (-i64::from(call.errno)).cast_unsigned();
    out.push(moment(What::Returns(value), out.len()));
}

/// Each thread's calls one after the other.
fn threads() -> impl Strategy<Value = Vec<Vec<Moment>>> {
    let thread = prop::collection::vec(outer(), 1..4);
    prop::collection::vec(thread, 1..5).prop_map(|threads| {
        let moments_of = |(tid, calls): (u32, Vec<Call>)| {
            let mut out = Vec::new();
            calls.iter().for_each(|call| moments(call, tid, &mut out));
            out
        };
        (1..).zip(threads).map(moments_of).collect()
    })
}

/// Traces by thread, each thread's in order.
fn weave(moments: impl IntoIterator<Item = Moment>) -> (Vec<Trace>, u64) {
    let mut weaver = Weaver::new(&watched());
    let mut traces: Vec<Trace> = moments
        .into_iter()
        .filter_map(|moment| weaver.take(moment))
        .collect();
    traces.sort_by_key(|trace| trace.tid);
    (traces, weaver.lost())
}

/// The moments of all threads mixed, each thread's in order.
fn mixed(threads: &[Vec<Moment>], choices: &[prop::sample::Index]) -> Vec<Moment> {
    let mut left: Vec<_> = threads
        .iter()
        .map(|t| t.iter().copied().peekable())
        .collect();
    let mut out = Vec::new();
    let mut choices = choices.iter().cycle();
    loop {
        left.retain_mut(|thread| thread.peek().is_some());
        let (false, Some(choice)) = (left.is_empty(), choices.next()) else {
            return out;
        };
        let at = choice.index(left.len());
        out.extend(left[at].next());
    }
}

fn tree_of(traces: &[Trace]) -> Tree {
    let mut tree = Tree::new(&key());
    for trace in traces {
        tree.add(trace, &watched());
    }
    tree
}

fn any_moment() -> impl Strategy<Value = Moment> {
    let what = prop_oneof![
        Just(What::Enters),
        any::<u64>().prop_map(What::Returns),
        (0_u64..20).prop_map(|e| What::Returns(e.wrapping_neg())),
    ];
    (any::<u64>(), 0_u32..3, 0_u32..8, what).prop_map(|(boot_ns, tid, function, what)| Moment {
        boot_ns,
        tid,
        tgid: 1,
        function,
        what,
    })
}

/// Every function that enters returns, and the first to enter is the last to return.
fn is_whole(trace: &Trace) -> bool {
    let mut depth = 0_usize;
    for (at, step) in trace.steps.iter().enumerate() {
        match step {
            Step::Enters(_) => depth += 1,
            Step::Returns(_) => depth -= 1,
        }
        if depth == 0 && at + 1 != trace.steps.len() {
            return false;
        }
    }
    depth == 0 && trace.steps.first() == Some(&Step::Enters(trace.entry))
}

proptest! {
    #[test]
    fn any_mix_of_threads_gives_the_same_traces_and_tree(
        threads in threads(),
        choices in prop::collection::vec(any::<prop::sample::Index>(), 1..64),
    ) {
        let (one_by_one, lost) = weave(threads.concat());
        prop_assert_eq!(lost, 0);
        let (together, lost) = weave(mixed(&threads, &choices));
        prop_assert_eq!(lost, 0);
        prop_assert_eq!(&one_by_one, &together);
        prop_assert_eq!(tree_of(&one_by_one), tree_of(&together));
    }

    #[test]
    fn a_moment_that_is_missing_makes_no_other_trace(
        threads in threads(),
        gone in any::<prop::sample::Index>(),
    ) {
        let (all, _) = weave(threads.concat());
        let mut moments = threads.concat();
        moments.remove(gone.index(moments.len()));
        let (left, _) = weave(moments);
        prop_assert!(left.len() < all.len());
        for trace in &left {
            prop_assert!(all.contains(trace), "{:?}", trace);
        }
    }

    #[test]
    fn any_moments_make_whole_traces_alone(
        moments in prop::collection::vec(any_moment(), 0..200),
    ) {
        let (traces, _) = weave(moments);
        let tree = tree_of(&traces);
        for trace in &traces {
            prop_assert!(is_whole(trace), "{:?}", trace);
            let fork = fork(&tree, trace, &watched());
            prop_assert!(!fork.path.is_empty());
            let failures = signature(&tree, trace, &watched()).failures();
            prop_assert!(trace.outcome == Outcome::Good || failures > 0);
        }
        if tree.traces > 0 {
            let json = serde_json::to_vec(&tree).unwrap();
            prop_assert_eq!(Tree::read(&json).unwrap(), tree);
        }
    }
}
