use proptest::prelude::*;

use super::*;
use crate::catalogue::{Catalogue, ExpectedRules};
use crate::record::{ARG_WORDS, ArgsKind, COMM_BYTES, DEVICE_BYTES, ProbeId, STACK_DEPTH};

/// Probes of these tests, by number.
const UMEM: u16 = 0;
const DRIVER_REG_MR: u16 = 1;
const UVERBS_REG_MR: u16 = 2;
const DRIVER_MODIFY: u16 = 3;
const CORE_MODIFY: u16 = 4;
const INNER_UVERBS_MODIFY: u16 = 5;
const UVERBS_MODIFY: u16 = 6;
const COMMAND: u16 = 7;
const UVERBS_DMABUF: u16 = 8;

fn places() -> Places {
    let place = |depth, verb, layer| Place {
        depth,
        verb,
        layer,
        is_event: false,
    };
    [
        place(60, Verb::Any, Layer::Memory),
        place(50, Verb::RegMr, Layer::Driver),
        place(0, Verb::RegMr, Layer::Uverbs),
        place(50, Verb::ModifyQp, Layer::Driver),
        place(30, Verb::ModifyQp, Layer::Core),
        place(10, Verb::ModifyQp, Layer::Uverbs),
        place(0, Verb::ModifyQp, Layer::Uverbs),
        place(70, Verb::Any, Layer::Firmware),
        place(0, Verb::RegDmabufMr, Layer::Uverbs),
    ]
    .into_iter()
    .collect()
}

fn record(tid: u32, probe: u16, boot_ns: u64) -> Record {
    Record {
        boot_ns,
        probe: ProbeId(probe),
        errno: 14,
        tgid: 100,
        tid,
        start_boot_ns: 5,
        comm: [0; COMM_BYTES],
        cgroup_id: 1,
        device: [0; DEVICE_BYTES],
        object: 0,
        entry: 7,
        sleeps: 0,
        drops_so_far: 0,
        stack: [0; STACK_DEPTH],
        args_kind: ArgsKind::None,
        args: [0; ARG_WORDS],
    }
}

fn assemble(records: impl IntoIterator<Item = Record>) -> Vec<Chain> {
    let mut assembler = Assembler::new(ExpectedRules::built_in().unwrap());
    let mut chains = Vec::new();
    let mut drops = 0;
    for record in records {
        drops = drops.max(record.drops_so_far);
        assembler.take(record, &places(), |c| chains.push(c));
    }
    assembler.close_all(drops, |c| chains.push(c));
    chains
}

fn probes(chain: &Chain) -> Vec<u16> {
    chain.records.iter().map(|r| r.probe.0).collect()
}

fn shapes(chains: &[Chain]) -> Vec<Vec<u16>> {
    chains.iter().map(probes).collect()
}

#[test]
fn an_unmapped_address_is_one_chain_of_three_layers() {
    let chains = assemble([
        record(1, UMEM, 10),
        record(1, DRIVER_REG_MR, 20),
        record(1, UVERBS_REG_MR, 30),
    ]);
    assert_eq!(shapes(&chains), [vec![UMEM, DRIVER_REG_MR, UVERBS_REG_MR]]);
    assert_eq!(chains[0].verb, Verb::RegMr);
    assert_eq!(chains[0].deepest, Layer::Memory);
    assert_eq!(chains[0].marks, Marks::default());
}

#[test]
fn the_inner_uverbs_function_waits_for_the_outer_one() {
    let chains = assemble([
        record(1, DRIVER_MODIFY, 10),
        record(1, CORE_MODIFY, 11),
        record(1, INNER_UVERBS_MODIFY, 12),
        record(1, UVERBS_MODIFY, 13),
    ]);
    assert_eq!(chains.len(), 1);
    assert!(!chains[0].marks.swallowed);
}

#[test]
fn an_inner_uverbs_function_alone_is_swallowed() {
    let chains = assemble([
        record(1, DRIVER_MODIFY, 10),
        record(1, INNER_UVERBS_MODIFY, 12),
    ]);
    assert_eq!(shapes(&chains), [vec![DRIVER_MODIFY, INNER_UVERBS_MODIFY]]);
    assert!(chains[0].marks.swallowed);
}

#[test]
fn a_swallowed_error_does_not_join_the_next_failure() {
    // A driver that falls back after a failed pinning, then another verb fails.
    let chains = assemble([
        record(1, UMEM, 10),
        record(1, DRIVER_REG_MR, 11),
        record(1, UVERBS_MODIFY, 12),
    ]);
    assert_eq!(
        shapes(&chains),
        [vec![UMEM, DRIVER_REG_MR], vec![UVERBS_MODIFY]]
    );
    assert!(chains[0].marks.swallowed && !chains[1].marks.swallowed);
}

#[test]
fn repeated_calls_are_chains_of_their_own() {
    let call = |t| [record(1, DRIVER_REG_MR, t), record(1, UVERBS_REG_MR, t + 1)];
    let chains = assemble(call(10).into_iter().chain(call(20)));
    assert_eq!(chains.len(), 2);
}

#[test]
fn shared_functions_take_the_verb_of_the_outer_record() {
    let chains = assemble([
        record(1, COMMAND, 1),
        record(1, DRIVER_MODIFY, 2),
        record(1, UVERBS_MODIFY, 3),
    ]);
    assert_eq!(
        (chains.len(), chains[0].verb, chains[0].deepest),
        (1, Verb::ModifyQp, Layer::Firmware)
    );
}

#[test]
fn a_long_pause_parts_records_unless_a_neighbour_was_awaited() {
    let late = GAP_NS + 2;
    let slept = |probe, t| Record {
        sleeps: 1,
        ..record(1, probe, t)
    };
    let parted = assemble([record(1, DRIVER_MODIFY, 1), slept(UVERBS_MODIFY, late)]);
    assert_eq!(parted.len(), 2);

    let timed_out = |probe, t| Record {
        errno: ETIMEDOUT,
        ..record(1, probe, t)
    };
    let joined = assemble([
        timed_out(CORE_MODIFY, 1),
        timed_out(UVERBS_MODIFY, 1_000_000_000),
    ]);
    assert_eq!(joined.len(), 1);
    // Another verb gets no such exception.
    let parted = assemble([
        timed_out(DRIVER_REG_MR, 1),
        Record {
            errno: ETIMEDOUT,
            ..slept(UVERBS_REG_MR, late)
        },
    ]);
    assert_eq!(parted.len(), 2);
}

/// A kretprobe takes no stack. On a busy machine the thread had lost its processor
/// for 29 ms between the two returns, and the call came as two chains.
#[test]
fn a_thread_that_lost_its_processor_is_still_in_the_same_call() {
    let outer = |t, sleeps| Record {
        sleeps,
        stack: {
            let mut stack = [0; STACK_DEPTH];
            stack[..3].copy_from_slice(&[91, 40, 30]);
            stack
        },
        ..record(1, UVERBS_REG_MR, t)
    };
    let inner = record(1, DRIVER_REG_MR, 1);
    let shapes_of = |outer| shapes(&assemble([inner.clone(), outer]));
    assert_eq!(
        shapes_of(outer(29_000_000, 0)),
        [vec![DRIVER_REG_MR, UVERBS_REG_MR]]
    );
    assert_eq!(shapes_of(outer(PROVEN_GAP_NS + 2, 0)).len(), 2);
    // It slept: that is how a program pauses before it tries again.
    assert_eq!(shapes_of(outer(29_000_000, 1)).len(), 2);
    // A snapshot in between does not close the chain.
    let mut assembler = Assembler::new(ExpectedRules::default());
    let mut closed = Vec::new();
    assembler.take(inner.clone(), &places(), |c| closed.push(c));
    assembler.close_stale(GAP_NS * 2, 0, |c| closed.push(c));
    assembler.take(outer(GAP_NS * 3, 0), &places(), |c| closed.push(c));
    assert_eq!(shapes(&closed), [vec![DRIVER_REG_MR, UVERBS_REG_MR]]);
}

#[test]
fn another_entry_or_object_is_another_call() {
    let other_entry = Record {
        entry: 8,
        ..record(1, UVERBS_REG_MR, 2)
    };
    assert_eq!(
        assemble([record(1, DRIVER_REG_MR, 1), other_entry]).len(),
        2
    );

    let with = |object, probe, t| Record {
        object,
        ..record(1, probe, t)
    };
    assert_eq!(
        assemble([with(5, DRIVER_MODIFY, 1), with(6, CORE_MODIFY, 2)]).len(),
        2
    );
    // A function without the object in hand lies between two that have it.
    let chains = assemble([
        with(5, DRIVER_MODIFY, 1),
        with(0, INNER_UVERBS_MODIFY, 2),
        with(5, UVERBS_MODIFY, 3),
    ]);
    assert_eq!(chains.len(), 1);
}

#[test]
fn a_call_that_makes_an_object_has_its_parent_in_hand_too() {
    let with = |object, probe, t| Record {
        object,
        ..record(1, probe, t)
    };
    let chains = assemble([with(5, DRIVER_REG_MR, 1), with(6, UVERBS_REG_MR, 2)]);
    assert_eq!(chains.len(), 1);
}

/// The driver wrote its error to a serial console between the two returns.
#[test]
fn a_slow_console_does_not_part_what_the_stacks_prove() {
    let with = |probe, t, frames: &[u64]| {
        let mut r = record(1, probe, t);
        r.stack[..frames.len()].copy_from_slice(frames);
        r
    };
    let inner = with(DRIVER_REG_MR, 1, &[90, 50, 40, 30, 20]);
    let outer = |t| with(UVERBS_REG_MR, t, &[91, 40, 30, 20]);
    assert_eq!(assemble([inner.clone(), outer(14_000_000)]).len(), 1);
    assert_eq!(assemble([inner.clone(), outer(PROVEN_GAP_NS + 2)]).len(), 2);
    // A snapshot in between does not close the chain either.
    let mut assembler = Assembler::new(ExpectedRules::default());
    let mut closed = Vec::new();
    assembler.take(inner, &places(), |c| closed.push(c));
    assembler.close_stale(GAP_NS * 2, 0, |c| closed.push(c));
    assembler.take(outer(GAP_NS * 3), &places(), |c| closed.push(c));
    assert_eq!(shapes(&closed), [vec![DRIVER_REG_MR, UVERBS_REG_MR]]);
}

#[test]
fn another_caller_is_another_call() {
    let with = |probe, t, frames: &[u64]| {
        let mut r = record(1, probe, t);
        r.stack[..frames.len()].copy_from_slice(frames);
        r
    };
    let inner = with(DRIVER_REG_MR, 1, &[90, 50, 40, 30, 20]);
    assert_eq!(
        assemble([inner.clone(), with(UVERBS_REG_MR, 2, &[91, 40, 30, 20])]).len(),
        1
    );
    assert_eq!(
        assemble([inner, with(UVERBS_REG_MR, 2, &[91, 41, 31, 21])]).len(),
        2
    );
}

#[test]
fn lost_records_make_a_chain_incomplete() {
    let with = |drops_so_far, probe, t| Record {
        drops_so_far,
        ..record(1, probe, t)
    };
    // While it grew.
    let chains = assemble([
        with(3, DRIVER_REG_MR, GAP_NS * 2),
        with(4, UVERBS_REG_MR, GAP_NS * 2 + 1),
    ]);
    assert!(chains[0].marks.incomplete);
    // Just before it began: its inner part may be gone.
    let chains = assemble([
        with(0, UVERBS_REG_MR, 1),
        with(1, UVERBS_REG_MR, 20),
        with(1, UVERBS_REG_MR, GAP_NS * 2),
    ]);
    let incomplete: Vec<bool> = chains.iter().map(|c| c.marks.incomplete).collect();
    assert_eq!(incomplete, [false, true, false]);
    // After it: the record that would have closed it may be gone.
    let mut assembler = Assembler::new(ExpectedRules::default());
    assembler.take(record(1, UMEM, 1), &places(), |_| {
        panic!("nothing closes it")
    });
    let mut closed = Vec::new();
    assembler.close_stale(PROVEN_GAP_NS * 2, 9, |c| closed.push(c));
    assert!(closed[0].marks.swallowed && closed[0].marks.incomplete);
}

#[test]
fn what_fails_while_hooks_come_or_go_is_incomplete() {
    let mut assembler = Assembler::new(ExpectedRules::default());
    // The start, and twice as many changes since as are remembered.
    assembler.hooks_changed(0..=1_000);
    let places = places();
    let mut closed = Vec::new();
    let mut fails = |assembler: &mut Assembler, probe, boot_ns| {
        assembler.take(record(1, probe, boot_ns), &places, |c| closed.push(c));
        assembler.close_all(0, |c| closed.push(c));
        let marks = closed.pop().unwrap().marks;
        (marks.incomplete, marks.swallowed)
    };
    assert_eq!(fails(&mut assembler, UVERBS_REG_MR, 500), (true, false));
    // The outer hook may have been missing: nothing says that somebody swallowed it.
    assert_eq!(fails(&mut assembler, UMEM, 500), (true, false));
    // It entered before the last hook stood.
    assert_eq!(fails(&mut assembler, UVERBS_REG_MR, 1_001), (true, false));
    let settled = 1_001 + GAP_NS;
    assert_eq!(
        fails(&mut assembler, UVERBS_REG_MR, settled),
        (false, false)
    );
    assert_eq!(fails(&mut assembler, UMEM, settled), (false, true));
    for n in 1..=16 {
        let at = n * GAP_NS * 10;
        assembler.hooks_changed(at..=at + 5);
        assert_eq!(fails(&mut assembler, UVERBS_REG_MR, at - 1), (false, false));
        assert_eq!(fails(&mut assembler, UVERBS_REG_MR, at), (true, false));
        assert_eq!(fails(&mut assembler, UVERBS_REG_MR, at + 5), (true, false));
    }
}

#[test]
fn a_pending_chain_is_closed_only_when_nothing_can_join_it() {
    let mut assembler = Assembler::new(ExpectedRules::default());
    let mut closed = Vec::new();
    assembler.take(record(1, UMEM, 100), &places(), |c| closed.push(c));
    assembler.close_stale(100 + PROVEN_GAP_NS, 0, |c| closed.push(c));
    assert_eq!((closed.len(), assembler.open_chains()), (0, 1));
    assembler.close_stale(101 + PROVEN_GAP_NS, 0, |c| closed.push(c));
    assert_eq!((closed.len(), assembler.open_chains()), (1, 0));
    assert!(closed[0].marks.swallowed && !closed[0].marks.incomplete);
}

#[test]
fn a_flood_of_threads_is_bounded_and_marked() {
    let mut assembler = Assembler::with_limit(ExpectedRules::default(), 2);
    let mut closed = Vec::new();
    for tid in 0..5 {
        assembler.take(record(tid, UMEM, u64::from(tid)), &places(), |c| {
            closed.push(c)
        });
    }
    assert_eq!(assembler.open_chains(), 2);
    let tids: Vec<u32> = closed.iter().map(|c| c.records[0].tid).collect();
    assert_eq!(tids, [0, 1, 2]);
    assert!(closed.iter().all(|c| c.marks.incomplete));
}

#[test]
fn the_question_for_dmabuf_is_marked_and_kept() {
    let ask = Record {
        errno: 9,
        ..record(1, UVERBS_DMABUF, 1)
    };
    let chains = assemble([ask]);
    assert!(chains[0].marks.expected);
    assert!(!assemble([record(1, UVERBS_DMABUF, 1)])[0].marks.expected);
}

#[test]
fn a_record_of_an_unknown_probe_is_kept_as_its_own_chain() {
    let chains = assemble([
        record(1, UMEM, 1),
        record(1, 999, 2),
        record(1, UVERBS_REG_MR, 3),
    ]);
    assert_eq!(
        shapes(&chains),
        [vec![UMEM], vec![999], vec![UVERBS_REG_MR]]
    );
    assert!(chains[1].marks.incomplete);
}

#[test]
fn every_hook_of_the_catalogue_has_a_way_out() {
    // A verb whose outermost hook is not at depth 0 would never close a chain.
    let hooks = Catalogue::built_in().unwrap().hooks;
    let failing = hooks.iter().filter(|h| !h.is_event());
    let verbs: std::collections::HashSet<Verb> = failing
        .map(|h| h.verb)
        .filter(|v| *v != Verb::Any)
        .collect();
    for verb in verbs {
        assert!(
            hooks.iter().any(|h| h.verb == verb && h.depth == 0),
            "{verb:?}"
        );
    }
}

const ETIMEDOUT: u16 = 110;

/// Probe, pause before it, entry, object, and how often the thread has slept.
type Step = (u16, u64, u64, u64, u16);

/// Records of up to four threads; each thread's times go forward.
fn threads() -> impl Strategy<Value = Vec<Vec<Record>>> {
    let step = (
        0u16..10,
        prop_oneof![0u64..1000, Just(GAP_NS * 2), Just(PROVEN_GAP_NS * 2)],
        0u64..3,
        0u64..3,
        0u16..2,
    );
    let thread = proptest::collection::vec(step, 0..12);
    proptest::collection::vec(thread, 1..5).prop_map(|threads| {
        let of_thread = |(tid, steps): (usize, Vec<Step>)| {
            let mut now = 0;
            steps
                .into_iter()
                .map(|(probe, pause, entry, object, sleeps)| {
                    now += pause;
                    Record {
                        entry,
                        object,
                        sleeps,
                        ..record(u32::try_from(tid).unwrap(), probe, now)
                    }
                })
                .collect()
        };
        threads.into_iter().enumerate().map(of_thread).collect()
    })
}

fn interleave(threads: &[Vec<Record>], choices: &[usize]) -> Vec<Record> {
    let mut queues: Vec<std::collections::VecDeque<Record>> = threads
        .iter()
        .map(|t| t.iter().cloned().collect())
        .collect();
    let mut out = Vec::new();
    let mut choices = choices.iter().cycle();
    while queues.iter().any(|q| !q.is_empty()) {
        let waiting: Vec<usize> = (0..queues.len())
            .filter(|i| !queues[*i].is_empty())
            .collect();
        let pick = waiting[choices.next().unwrap() % waiting.len()];
        out.extend(queues[pick].pop_front());
    }
    out
}

proptest! {
    #[test]
    fn interleaving_threads_changes_no_chain(threads in threads(), choices in proptest::collection::vec(0usize..64, 1..40)) {
        let mixed = assemble(interleave(&threads, &choices));
        for (tid, alone) in threads.iter().enumerate() {
            let tid = u32::try_from(tid).unwrap();
            let of_thread: Vec<Chain> = mixed.iter().filter(|c| c.records[0].tid == tid).cloned().collect();
            prop_assert_eq!(of_thread, assemble(alone.iter().cloned()));
        }
    }

    #[test]
    fn every_record_is_in_exactly_one_chain(threads in threads(), choices in proptest::collection::vec(0usize..64, 1..40), limit in 1usize..4) {
        let records = interleave(&threads, &choices);
        let mut assembler = Assembler::with_limit(ExpectedRules::default(), limit);
        let mut chains = Vec::new();
        for record in &records {
            assembler.take(record.clone(), &places(), |c| chains.push(c));
            prop_assert!(assembler.open_chains() <= limit);
        }
        assembler.close_all(0, |c| chains.push(c));
        prop_assert_eq!(assembler.open_chains(), 0);
        let key = |r: &Record| (r.tid, r.boot_ns, r.probe.0, r.entry, r.object);
        let mut given: Vec<_> = records.iter().map(key).collect();
        let mut got: Vec<_> = chains.iter().flat_map(|c| c.records.iter().map(key)).collect();
        given.sort_unstable();
        got.sort_unstable();
        prop_assert_eq!(given, got);
        for chain in &chains {
            let depths: Vec<u8> = chain.records.iter().map(|r| places().get(r.probe).map_or(255, |p| p.depth)).collect();
            prop_assert!(depths.windows(2).all(|w| w[1] < w[0]), "a chain moves outward: {depths:?}");
        }
    }
}
