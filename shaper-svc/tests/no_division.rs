//! No division on the way of a frame: read from the machine code of this very program,
//! which holds the engine and the classifier as they are compiled for the service.
//!
//! From each way in (push, peek, commit, classify) all functions are followed that can be
//! reached, but for those that end in a panic. Needs `objdump` (binutils, which every
//! Rust linker has beside it).
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::num::NonZero;
use std::process::Command;

use rdmesh_shaper::classify::Classifier;
use rdmesh_shaper::engine::{BURST, Frame, Speed, Wire, WireConfig};
use rdmesh_shaper::rate::LineRate;

#[inline(never)]
fn way_in_of_a_burst(wire: &mut Wire, frames: &[Frame]) -> usize {
    wire.push(frames)
}

#[inline(never)]
fn way_in_of_a_frame(wire: &mut Wire, frame: Frame) -> bool {
    wire.intake().push(frame).is_ok()
}

#[inline(never)]
fn way_out(wire: &mut Wire, now_ps: u64, takes: usize) -> usize {
    let burst = wire.peek(now_ps);
    let offered = burst.departures().len();
    burst.commit(takes);
    offered
}

#[inline(never)]
fn way_out_in_vain(wire: &mut Wire, now_ps: u64) -> usize {
    wire.peek(now_ps).departures().len()
}

#[inline(never)]
fn key_of_a_frame(classifier: &Classifier, head: &[u8]) -> u64 {
    classifier.classify(head).key
}

/// What the search has to find.
#[inline(never)]
fn a_division(a: u64, b: NonZero<u64>) -> u64 {
    a / b
}

/// A division of 128 bits is a function of its own.
#[inline(never)]
fn a_wide_division(a: u128, b: NonZero<u128>) -> u128 {
    a / b
}

const WAYS: [&str; 5] = [
    "way_in_of_a_burst",
    "way_in_of_a_frame",
    "way_out",
    "way_out_in_vain",
    "key_of_a_frame",
];

/// Uses all of them, so that they are there; with values that the compiler cannot know,
/// so that they are whole.
fn walk_the_ways() {
    let speed = Speed::Rate(LineRate::new(black_box(7_000_000_001)).unwrap());
    let config = WireConfig {
        queue_frames: 64,
        sub_queues: 2,
        ..WireConfig::new(speed, 1500)
    };
    let mut wire = Wire::new(&config, 0).unwrap();
    let frame = |key| Frame {
        handle: key,
        key,
        arrived_ps: 0,
        len: 1000,
        is_cnp: false,
    };
    let frames: Vec<Frame> = (0..5).map(frame).collect();
    assert_eq!(way_in_of_a_burst(&mut wire, black_box(&frames)), 5);
    assert!(way_in_of_a_frame(&mut wire, black_box(frame(5))));
    assert_eq!(way_out_in_vain(&mut wire, black_box(0)), 1);
    assert_eq!(way_out(&mut wire, black_box(1 << 40), black_box(BURST)), 6);
    let classifier = Classifier::new(black_box(1));
    assert_ne!(key_of_a_frame(&classifier, black_box(&[0; 64])), 0);
    let two = black_box(NonZero::new(2).unwrap());
    assert_eq!(a_division(black_box(7), two), 3);
    let wide = black_box(NonZero::new(1 << 70).unwrap());
    assert_eq!(a_wide_division(black_box(7 << 70), wide), 7);
}

/// Where a call or a jump leads.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Target {
    Function(u64),
    /// Through a table that the loader fills.
    Slot(u64),
    Unknown(String),
}

#[derive(Debug, Default)]
struct Function {
    name: String,
    divisions: Vec<String>,
    targets: Vec<Target>,
}

#[derive(Debug)]
struct Program {
    functions: BTreeMap<u64, Function>,
    /// What the loader writes where: a function of this program, or the name of another's.
    slots: BTreeMap<u64, Result<u64, String>>,
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).ok()
}

/// `0000000000151a80 <name>:`
fn heading(line: &str) -> Option<(u64, &str)> {
    let (address, name) = line.split_once(" <")?;
    Some((hex(address)?, name.strip_suffix(">:")?))
}

/// An instruction of x86-64 or AArch64 in the words of objdump.
fn read_instruction(function: &mut Function, text: &str) {
    let mut words = text.split_whitespace();
    let prefixes = ["lock", "rep", "repz", "notrack", "bnd", "addr32", "data16"];
    let Some(mnemonic) = words.find(|word| !prefixes.contains(word)) else {
        return;
    };
    if mnemonic.contains("div") {
        function.divisions.push(text.to_owned());
        return;
    }
    let is_call = ["call", "callq", "bl", "blr"].contains(&mnemonic);
    let is_jump = mnemonic.starts_with('j')
        || mnemonic.starts_with("b.")
        || ["b", "cbz", "cbnz", "tbz", "tbnz"].contains(&mnemonic);
    if !is_call && !is_jump {
        return;
    }
    let operands = words.collect::<Vec<_>>().join(" ");
    let slot = operands.split_once("# ").map(|(_, slot)| slot);
    let to = slot.unwrap_or(&operands);
    let to = to.split(" <").next().unwrap_or_default();
    let address = to.rsplit([' ', ',']).next().and_then(hex);
    function.targets.extend(match (address, slot) {
        (Some(address), None) => Some(Target::Function(address)),
        (Some(address), Some(_)) => Some(Target::Slot(address)),
        // A jump through a register is a `match` within the function.
        (None, _) => is_call.then(|| Target::Unknown(text.to_owned())),
    });
}

fn said(tool: &str, flags: &[&str]) -> Option<String> {
    let program = std::env::current_exe().unwrap();
    let output = Command::new(tool).args(flags).arg(program).output().ok()?;
    String::from_utf8(output.stdout).ok()
}

impl Program {
    fn read() -> Self {
        let cross = format!("{}-linux-gnu-objdump", std::env::consts::ARCH);
        let flags = ["-d", "-C", "--no-show-raw-insn"];
        let known = |text: &String| text.contains("no_division::way_out");
        let (tool, text) = ["objdump", &cross]
            .into_iter()
            .find_map(|tool| Some((tool, said(tool, &flags).filter(known)?)))
            .expect("no objdump reads this program: install binutils");
        let mut functions = BTreeMap::<u64, Function>::new();
        for line in text.lines() {
            if let Some((address, name)) = heading(line) {
                functions.entry(address).or_default().name = name.to_owned();
            } else if let Some((_, instruction)) = line.split_once(":\t")
                && let Some(mut last) = functions.last_entry()
            {
                read_instruction(last.get_mut(), instruction);
            }
        }
        let relocations = said(tool, &["-R"]).unwrap();
        let slots = relocations.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            let (at, _, what) = (hex(words.next()?)?, words.next()?, words.next()?);
            let own = what.strip_prefix("*ABS*+").and_then(hex);
            Some((at, own.ok_or_else(|| what.to_owned())))
        });
        let slots = slots.collect();
        Self { functions, slots }
    }

    fn find(&self, name: &str) -> u64 {
        let full = format!("no_division::{name}");
        let mut found = self.functions.iter().filter(|(_, function)| {
            // An older mangling ends in a hash.
            let rest = function.name.strip_prefix(&full);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::h"))
        });
        *found.next().expect(name).0
    }

    /// The function of this program that a target leads to; none for C's copying of
    /// memory, and for what ends in a panic.
    fn function_of(&self, from: &Function, target: &Target) -> Option<u64> {
        let at = match target {
            Target::Function(at) => Ok(*at),
            Target::Slot(at) => self.slots.get(at).cloned().expect("a slot of the loader"),
            Target::Unknown(text) => panic!("{}: a call to anywhere: {text}", from.name),
        };
        let name = match &at {
            // Within a function: a loop or a branch.
            Ok(at) => &self.functions.get(at)?.name,
            Err(name) => name,
        };
        let copies = name.starts_with("mem") || name.contains("_Unwind_Resume");
        let ends = ["panic", "_fail", "unwrap_failed", "expect_failed"];
        if copies || ends.iter().any(|end| name.contains(end)) {
            return None;
        }
        assert!(
            at.is_ok() && !name.ends_with("@plt"),
            "{}: {name}",
            from.name
        );
        at.ok()
    }

    /// All functions that can be reached from one.
    fn reached_from(&self, name: &str) -> Vec<&Function> {
        let (mut seen, mut open) = (BTreeSet::new(), vec![self.find(name)]);
        while let Some(address) = open.pop() {
            if seen.insert(address) {
                let from = &self.functions[&address];
                let targets = from.targets.iter();
                open.extend(targets.filter_map(|target| self.function_of(from, target)));
            }
        }
        seen.iter()
            .map(|address| &self.functions[address])
            .collect()
    }
}

#[test]
fn the_way_of_a_frame_has_no_division() {
    walk_the_ways();
    let program = Program::read();
    let mut names = BTreeSet::new();
    for way in WAYS {
        for function in program.reached_from(way) {
            let Function {
                name, divisions, ..
            } = function;
            assert!(divisions.is_empty(), "{way} leads to {name}: {divisions:?}");
            names.insert(name.as_str());
        }
    }
    // The search went where frames go, and sees a division where there is one.
    for name in ["admit_uncommon", "pick_burst", "take_back_some"] {
        assert!(names.iter().any(|other| other.contains(name)), "{names:#?}");
    }
    for name in ["a_division", "a_wide_division"] {
        let reached = program.reached_from(name);
        let divides = |function: &&Function| !function.divisions.is_empty();
        assert!(reached.iter().any(divides), "{reached:#?}");
    }
}
