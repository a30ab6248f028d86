use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::btf::{Blob, Kind, Types};

/// Compiled from `bpf/record.h` by build.rs, for its type information.
static LAYOUT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/layout.o"));

/// Bytes and member offsets of each struct of the header.
fn structs() -> BTreeMap<String, (usize, BTreeMap<String, usize>)> {
    let object = aya_obj::Object::parse(LAYOUT).unwrap();
    let blob = Blob::parse(object.btf.unwrap().to_bytes(), None).unwrap();
    let types = Types::whole(&blob);
    let text = |offset| String::from_utf8(types.string(offset).unwrap().to_vec()).unwrap();
    types
        .own_types()
        .map(Result::unwrap)
        .filter(|(_, found)| found.kind == Kind::Struct)
        .map(|(_, found)| {
            let members = found
                .members()
                .map(|m| (text(m.name), m.bit_offset as usize / 8))
                .collect();
            (text(found.name), (found.size_or_type as usize, members))
        })
        .collect()
}

#[test]
fn offsets_are_those_of_the_c_side() {
    let structs = structs();
    let (bytes, members) = &structs["record"];
    assert_eq!(*bytes, RECORD_BYTES);
    for (name, offset) in RECORD_OFFSETS {
        assert_eq!(members[name], offset, "record.{name}");
    }
    assert_eq!(members["stack"], RECORD_STACK_OFFSET);
    assert_eq!(members.len(), RECORD_OFFSETS.len() + 1);
    let (bytes, members) = &structs["identity"];
    assert_eq!(*bytes, IDENTITY_BYTES);
    for (name, offset) in IDENTITY_OFFSETS {
        assert_eq!(members[name], offset, "identity.{name}");
    }
    assert_eq!(members.len(), IDENTITY_OFFSETS.len() + 1, "and `reserved`");
    assert_eq!(IDENTITY_BYTES, 56 + CGROUP_LEVELS * CGROUP_NAME_BYTES);
    for (name, offsets) in [
        ("args_qp", &QP_OFFSETS[..]),
        ("args_reg_mr", &REG_MR_OFFSETS),
        ("args_create", &CREATE_OFFSETS),
        ("args_command", &COMMAND_OFFSETS),
        ("args_devx", &DEVX_OFFSETS),
    ] {
        let (bytes, members) = &structs[name];
        assert!(*bytes <= ARG_WORDS * 8, "{name} does not fit into a record");
        assert_eq!(members.len(), offsets.len(), "{name}");
        for (member, offset) in offsets {
            assert_eq!(members[*member], *offset, "{name}.{member}");
        }
    }
    // The keys of the counter maps, which the loader reads as bytes.
    assert_eq!(structs["count_key"].0, 8);
    assert_eq!(structs["cgroup_count_key"].0, 16);
    assert_eq!(structs["cgroup_count_key"].1["cgroup_id"], 8);
}

/// Writes words and bytes at the offsets of the tables.
fn put(bytes: &mut [u8], offset: usize, value: &[u8]) {
    bytes[offset..offset + value.len()].copy_from_slice(value);
}

fn record_bytes() -> Vec<u8> {
    let at = BTreeMap::from(RECORD_OFFSETS);
    let mut bytes = vec![0; RECORD_BYTES];
    put(&mut bytes, at["probe"], &7_u16.to_ne_bytes());
    put(&mut bytes, at["error"], &14_u16.to_ne_bytes());
    put(&mut bytes, at["args_kind"], &[1]);
    put(&mut bytes, at["stack_len"], &[2]);
    put(&mut bytes, at["sleeps"], &3_u16.to_ne_bytes());
    put(&mut bytes, at["tgid"], &100_u32.to_ne_bytes());
    put(&mut bytes, at["tid"], &101_u32.to_ne_bytes());
    for (place, name) in [
        "boot_ns",
        "start_boot_ns",
        "cgroup_id",
        "object",
        "entry",
        "drops_so_far",
    ]
    .into_iter()
    .enumerate()
    {
        put(&mut bytes, at[name], &(place as u64 + 1).to_ne_bytes());
    }
    put(&mut bytes, at["comm"], b"nccl");
    put(&mut bytes, at["device"], b"mlx5_0\0old");
    put(&mut bytes, at["args"] + 8, &9_u64.to_ne_bytes());
    // Three addresses, of which two count.
    for place in 0..3 {
        put(&mut bytes, RECORD_STACK_OFFSET + place * 8, &[0xff; 8]);
    }
    bytes
}

#[test]
fn every_field_of_a_record_is_decoded() {
    let record = Record::decode(&record_bytes()).unwrap();
    assert_eq!(record.probe, ProbeId(7));
    assert_eq!(record.errno, 14);
    assert_eq!((record.tgid, record.tid), (100, 101));
    assert_eq!(record.sleeps, 3);
    assert_eq!((record.boot_ns, record.start_boot_ns), (1, 2));
    assert_eq!((record.cgroup_id, record.object), (3, 4));
    assert_eq!((record.entry, record.drops_so_far), (5, 6));
    assert_eq!(record.comm_name(), b"nccl");
    assert_eq!(record.device_name(), b"mlx5_0");
    assert_eq!(
        (record.args_kind, record.args[1]),
        (ArgsKind::AsyncEvent, 9)
    );
    assert_eq!(record.stack[..3], [u64::MAX, u64::MAX, 0]);
}

fn identity_bytes(environ: &[u8], levels: &[&[u8]]) -> Vec<u8> {
    let at = BTreeMap::from(IDENTITY_OFFSETS);
    let mut bytes = vec![0; IDENTITY_BYTES];
    let len = u32::try_from(environ.len()).unwrap();
    put(&mut bytes, at["environ_len"], &len.to_ne_bytes());
    put(
        &mut bytes,
        at["cgroup_levels"],
        &[u8::try_from(levels.len()).unwrap()],
    );
    for (level, name) in levels.iter().enumerate() {
        put(&mut bytes, at["cgroup"] + level * CGROUP_NAME_BYTES, name);
    }
    bytes.extend_from_slice(environ);
    // The ring's place is larger than what was needed.
    bytes.resize(bytes.len() + 100, 0xee);
    bytes
}

#[test]
fn an_identity_has_its_environment_and_its_path_from_the_root() {
    let bytes = identity_bytes(b"RANK=3\0X=\xff\0", &[b"step_0\xfe", b"job_42", b""]);
    let identity = Identity::decode(&bytes).unwrap();
    assert_eq!(identity.environ, b"RANK=3\0X=\xff\0");
    assert_eq!(identity.cgroup_path, b"/job_42/step_0\xfe");
    assert!(!identity.environ_cut && !identity.cgroup_cut);
}

#[test]
fn the_root_of_the_hierarchy_is_a_slash() {
    for root in [&b""[..], b"/"] {
        let identity = Identity::decode(&identity_bytes(b"", &[root])).unwrap();
        assert_eq!(identity.cgroup_path, b"/");
    }
}

#[test]
fn debug_output_shows_no_environment() {
    let identity = Identity::decode(&identity_bytes(b"SECRET=1\0", &[b""])).unwrap();
    assert!(!format!("{identity:?}").contains("SECRET"));
}

#[test]
fn what_is_too_short_is_an_error() {
    let error = Record::decode(&record_bytes()[..RECORD_BYTES - 1]).unwrap_err();
    assert!(error.to_string().contains("record of 335 bytes"));
    let mut bytes = identity_bytes(b"", &[]);
    put(&mut bytes, 4, &u32::MAX.to_ne_bytes());
    assert!(Identity::decode(&bytes).is_err());
}

proptest! {
    #[test]
    fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..4096)) {
        let _ = Record::decode(&bytes);
        let _ = Identity::decode(&bytes);
    }
}

/// A record with the given words at byte offsets of its arguments.
fn with_arguments(kind: u8, fields: &[(usize, u32)]) -> Record {
    let mut bytes = record_bytes();
    put(&mut bytes, 4, &[kind]);
    bytes[144..208].fill(0);
    for (offset, value) in fields {
        put(&mut bytes, 144 + offset, &value.to_ne_bytes());
    }
    Record::decode(&bytes).unwrap()
}

#[test]
fn arguments_that_were_not_read_are_absent() {
    // present: qp_number, gid_index.
    let record = with_arguments(2, &[(0, 1 << 1 | 1 << 6), (4, 17), (12, 3), (24, 0)]);
    assert_eq!(
        record.arguments(),
        Some(Arguments::ModifyQp(QpArguments {
            qp_number: Some(17),
            gid_index: Some(0),
            ..QpArguments::default()
        }))
    );
    let record = with_arguments(
        3,
        &[(0, 1 << 2 | 1 << 5), (8, 0x1000), (32, u32::MAX), (36, 1)],
    );
    assert_eq!(
        record.arguments(),
        Some(Arguments::RegMr(RegMrArguments {
            address: Some(0x1000),
            dmabuf_fd: Some(-1),
            mapping: Mapping::None,
            ..RegMrArguments::default()
        }))
    );
    let record = with_arguments(5, &[(0, 1 << 1), (4, 0x500), (8, 9)]);
    assert_eq!(
        record.arguments(),
        Some(Arguments::Command(CommandArguments {
            opcode: Some(0x500),
            ..CommandArguments::default()
        }))
    );
    let record = with_arguments(7, &[(0, 1 << 1 | 1 << 2), (4, 0xa00), (8, 0x1f), (12, 9)]);
    assert_eq!(
        record.arguments(),
        Some(Arguments::Devx(DevxArguments {
            opcode: Some(0xa00),
            object_type: Some(0x1f),
            ..DevxArguments::default()
        }))
    );
    assert_eq!(with_arguments(0, &[]).arguments(), None);
    assert_eq!(with_arguments(1, &[(0, 9)]).arguments(), None);
    assert_eq!(with_arguments(77, &[(0, u32::MAX)]).arguments(), None);
}
