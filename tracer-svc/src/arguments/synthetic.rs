//! What the readers of `bpf/` tell of calls that only hardware makes: the same code,
//! built as an ordinary program and run on memory that `bpf/readings_test.c` makes up.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::record::{Arguments, CommandArguments, DevxArguments, Mapping, Record, RegMrArguments};

/// Name of each case, and what its record tells.
fn told() -> BTreeMap<String, Arguments> {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("readings");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("bpf/readings_test.c");
    let built = Command::new(env!("RDMESH_CLANG_FOUND"))
        .args(["-O1", "-Wall", "-Werror", "-Wno-unused-function"])
        // It marks structs for BPF alone.
        .args(["-Wno-unknown-attributes", "-Wno-ignored-attributes"])
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{said}");
    let output = Command::new(&program).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let line = |line: &str| {
        let (name, hex) = line.split_once(' ').unwrap();
        let record = Record::decode(&bytes(hex)).unwrap();
        (name.to_owned(), record.arguments().unwrap())
    };
    text.lines().map(line).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<char> = hex.chars().collect();
    let byte = |pair: &[char]| u8::from_str_radix(&String::from_iter(pair), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn command(opcode: u32, status: Option<u32>, syndrome: Option<u32>) -> Arguments {
    Arguments::Command(CommandArguments {
        opcode: Some(opcode),
        status,
        syndrome,
    })
}

fn devx(status: Option<u32>, syndrome: Option<u32>) -> Arguments {
    Arguments::Devx(DevxArguments {
        opcode: Some(0xa00),
        object_type: Some(0x1f),
        status,
        syndrome,
    })
}

#[test]
fn what_hardware_alone_makes_is_read_as_its_driver_lays_it_out() {
    let region = |region| Arguments::RegMr(region);
    let nowhere = RegMrArguments {
        address: Some(0x7f00_0000_1000),
        mapping: Mapping::None,
        mapping_of_end: Mapping::None,
        ..RegMrArguments::default()
    };
    let wanted = [
        ("devx-refused", devx(Some(3), Some(0x005e_9bb1))),
        ("devx-without-memory", devx(None, None)),
        (
            "devx-without-command",
            Arguments::Devx(DevxArguments::default()),
        ),
        (
            "umem",
            region(RegMrArguments {
                length: Some(8192),
                access_flags: Some(7),
                ..nowhere
            }),
        ),
        (
            "umem-dmabuf",
            region(RegMrArguments {
                length: Some(8192),
                dmabuf_fd: Some(-1),
                dmabuf_offset: Some(0x1000),
                ..RegMrArguments::default()
            }),
        ),
        (
            "reg-mr-method",
            region(RegMrArguments {
                length: Some(4096),
                access_flags: Some(0),
                ..nowhere
            }),
        ),
        (
            "dmabuf-method",
            region(RegMrArguments {
                length: Some(4096),
                access_flags: Some(1),
                dmabuf_fd: Some(77),
                dmabuf_offset: Some(0x2000),
                ..RegMrArguments::default()
            }),
        ),
        ("mlx5", command(0xa00, Some(3), Some(0x005e_9bb1))),
        ("irdma-unanswered", command(10, None, None)),
        ("irdma", command(10, Some(0xffff), Some(0x8029))),
        ("bnxt", command(0x0c, Some(5), None)),
        ("bnxt-without-answer", command(0x0c, None, None)),
        ("mana", command(0x30, Some(0x4000_0001), None)),
    ];
    let told = told();
    for (name, wanted) in &wanted {
        assert_eq!(told.get(*name), Some(wanted), "{name}");
    }
    assert_eq!(told.len(), wanted.len());
}
