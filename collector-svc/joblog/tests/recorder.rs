//! Flight Recorder dumps: versions, both forms, and what they say together.
#![allow(clippy::unwrap_used)]

use std::fmt::Write;

use rdmesh_joblog::flight::{self, Dump, State, Verdict, analyse};

/// One operation: sequence, what, how far.
type Operation = (u64, &'static str, &'static str);

fn json(version: &str, members: &str, operations: &[Operation]) -> Vec<u8> {
    let key = if version.starts_with('1') {
        "seq_id"
    } else {
        "collective_seq_id"
    };
    let mut entries = String::new();
    for (place, (sequence, what, state)) in operations.iter().enumerate() {
        let comma = if place == 0 { "" } else { "," };
        write!(
            entries,
            "{comma}{{\"record_id\":{place},\"pg_id\":0,\"process_group\":[\"0\",\"default_pg\"],\"{key}\":{sequence},\
             \"is_p2p\":false,\"profiling_name\":\"nccl:{what}\",\"state\":\"{state}\",\"time_created_ns\":{},\
             \"frames\":[{{\"name\":\"f\",\"filename\":\"x\",\"line\":1}}],\"input_sizes\":[[3,4]]}}",
            1_000 + sequence
        )
        .unwrap();
    }
    format!(
        "{{\"version\":\"{version}\",\"pg_config\":{{\"0\":{{\"name\":\"0\",\"desc\":\"default_pg\",\"ranks\":\"{members}\"}}}},\
         \"entries\":[{entries}]}}"
    )
    .into_bytes()
}

/// The same as `torch.jit`'s pickler writes it: protocol 2 without globals.
fn pickle(version: &str, members: &str, operations: &[Operation]) -> Vec<u8> {
    fn text(out: &mut Vec<u8>, value: &str) {
        out.push(b'X');
        out.extend(u32::try_from(value.len()).unwrap().to_le_bytes());
        out.extend(value.bytes());
    }
    let mut out = b"\x80\x02}(".to_vec();
    text(&mut out, "version");
    text(&mut out, version);
    text(&mut out, "pg_config");
    out.extend(b"}(");
    text(&mut out, "0");
    out.extend(b"}(");
    text(&mut out, "desc");
    text(&mut out, "default_pg");
    text(&mut out, "ranks");
    text(&mut out, members);
    out.extend(b"uu");
    text(&mut out, "entries");
    out.extend(b"](");
    for (sequence, what, state) in operations {
        out.extend(b"}(");
        text(&mut out, "process_group");
        text(&mut out, "0");
        text(&mut out, "default_pg");
        out.push(0x86);
        text(&mut out, "collective_seq_id");
        out.push(b'J');
        out.extend(i32::try_from(*sequence).unwrap().to_le_bytes());
        text(&mut out, "profiling_name");
        text(&mut out, &format!("nccl:{what}"));
        text(&mut out, "state");
        text(&mut out, state);
        text(&mut out, "is_p2p");
        out.push(0x89);
        text(&mut out, "time_created_ns");
        out.extend([0x8a, 8]);
        out.extend(i64::try_from(1_000 + sequence).unwrap().to_le_bytes());
        out.push(b'u');
    }
    out.extend(b"eu.");
    out
}

const DONE: [Operation; 2] = [
    (1, "broadcast", "completed"),
    (2, "all_reduce", "completed"),
];

fn with_third(state: &'static str) -> Vec<Operation> {
    let mut operations = DONE.to_vec();
    operations.push((3, "all_gather", state));
    operations
}

fn dump(bytes: &[u8], rank: u32) -> Dump {
    flight::read(bytes, Some(rank)).unwrap()
}

#[test]
fn both_forms_and_every_version_say_the_same() {
    for version in ["1.5", "2.1", "2.4", "2.10"] {
        let from_json = dump(&json(version, "[0, 1]", &with_third("started")), 0);
        assert!(from_json.version_known);
        assert_eq!(from_json.entries.len(), 3);
        assert_eq!(from_json.entries[2].state, State::Started);
        assert_eq!(from_json.entries[2].operation, "nccl:all_gather");
        assert_eq!(from_json.groups["0"].ranks, [0, 1]);
        if version.starts_with('2') {
            let from_pickle = dump(&pickle(version, "[0, 1]", &with_third("started")), 0);
            assert_eq!(from_pickle, from_json, "{version}");
        }
    }
    assert!(!dump(&json("3.0", "[0]", &DONE), 0).version_known);
    // The first recorders wrote the list of entries alone.
    let oldest = b"\x80\x02](}(X\x05\x00\x00\x00pg_idK\x00X\x06\x00\x00\x00seq_idK\x07X\x05\x00\x00\x00stateX\x09\x00\x00\x00completedue.";
    let oldest = dump(oldest, 0);
    assert_eq!(
        (oldest.version.as_str(), oldest.entries[0].sequence),
        ("0", 7)
    );
}

#[test]
fn the_rank_that_never_entered_is_named() {
    let waiting = json("2.4", "[0, 1, 2, 3]", &with_third("started"));
    let behind = pickle("2.4", "[0, 1, 2, 3]", &DONE);
    let report = analyse(&[dump(&waiting, 0), dump(&waiting, 1), dump(&behind, 2)]);
    let group = &report.groups[0];
    assert_eq!(group.verdict, Verdict::NotEntered);
    assert_eq!(
        (group.sequence, group.operation.as_str()),
        (3, "nccl:all_gather")
    );
    assert_eq!(
        (&group.entered[..], &group.never_entered[..]),
        (&[0, 1][..], &[2][..])
    );
    assert_eq!((&group.behind[..], group.behind_at), (&[2][..], Some(2)));
    assert_eq!(
        (&report.missing_ranks[..], &group.no_dump[..]),
        (&[3][..], &[3][..])
    );
    assert_eq!(group.description, "default_pg");
    assert_eq!(group.since_ns, 1_003);
}

#[test]
fn a_collective_that_all_entered_and_none_completed_is_told_apart() {
    let waiting = json("2.4", "[0, 1]", &with_third("started"));
    let scheduled = json("2.4", "[0, 1]", &with_third("scheduled"));
    let report = analyse(&[dump(&waiting, 0), dump(&scheduled, 1)]);
    assert_eq!(report.groups[0].verdict, Verdict::NotCompleted);
    assert_eq!(report.groups[0].not_completed, [0, 1]);
    let done = json("2.4", "[0, 1]", &DONE);
    let report = analyse(&[dump(&done, 0), dump(&done, 1)]);
    assert_eq!(report.groups[0].verdict, Verdict::Completed);
}

#[test]
fn different_operations_under_one_number_are_a_mismatch() {
    let mut other = DONE.to_vec();
    other.push((3, "all_reduce", "started"));
    let report = analyse(&[
        dump(&json("2.4", "[0, 1]", &with_third("started")), 0),
        dump(&json("2.4", "[0, 1]", &other), 1),
    ]);
    let group = &report.groups[0];
    assert_eq!((group.verdict, group.sequence), (Verdict::Mismatch, 3));
    assert_eq!(group.other_operations["nccl:all_reduce"], 1);
}

#[test]
fn a_rank_that_entered_nothing_is_behind_all() {
    let waiting = json("2.4", "[0, 1]", &[(0, "barrier", "started")]);
    let nothing = json("2.4", "[0, 1]", &[]);
    let report = analyse(&[dump(&waiting, 0), dump(&nothing, 1)]);
    let group = &report.groups[0];
    assert_eq!((group.verdict, group.sequence), (Verdict::NotEntered, 0));
    assert_eq!(
        (&group.never_entered[..], group.behind_at),
        (&[1][..], None)
    );
}

#[test]
fn what_is_no_dump_is_refused_with_the_reason() {
    let refused = |bytes: &[u8]| flight::read(bytes, None).unwrap_err().to_string();
    assert!(refused(b"{\"entries\": 5}").contains("JSON is refused"));
    assert!(refused(b"{}").contains("no Flight Recorder dump"));
    assert!(refused(b"\x80\x02}.").contains("no Flight Recorder dump"));
    assert!(refused(b"\x80\x02cposix\nsystem\n.").contains("plain data"));
    let cut = pickle("2.4", "[0]", &DONE);
    assert!(refused(&cut[..cut.len() / 2]).contains("not written to its end"));
}
