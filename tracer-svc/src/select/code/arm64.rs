//! 64-bit ARM. Indirect calls are `ldr xN, [xM, #offset]; blr xN`.

use yaxpeax_arch::{Decoder, U8Reader};
use yaxpeax_arm::armv8::a64::{self, InstDecoder, Opcode, Operand, SizeCode};

use super::{Callee, Convention, Flow, Instruction, Memory, Register, Step};
use crate::select::module::{Relocation, Section, Target};

pub(super) const CONVENTION: Convention = Convention {
    stack: 31,
    returns: 0,
    arguments: &[0, 1, 2, 3, 4, 5, 6, 7],
    scratch: &[
        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 30,
    ],
};

/// Register 31 where it is not the stack pointer but zero.
const ZERO: u16 = 31;

/// `ELF for the Arm 64-bit Architecture`: the low twelve bits of an address that
/// an `adrp` before it began.
const R_AARCH64_ADD_ABS_LO12_NC: u32 = 277;

/// Calls that change no register that the analysis follows.
const TRANSPARENT: [&str; 2] = ["_mcount", "ftrace_caller"];

/// Decodes bytes that stand at `start` of a section.
pub(in crate::select) fn decode(
    code: &Section,
    section: usize,
    start: u64,
    bytes: &[u8],
) -> Vec<Instruction> {
    let mut out = Vec::new();
    let decoder = InstDecoder::default();
    for (number, word) in bytes.chunks_exact(4).enumerate() {
        let at = start + 4 * number as u64;
        let mut native = a64::Instruction::default();
        let known = decoder.decode_into(&mut native, &mut U8Reader::new(word));
        let reader = Reader {
            relocation: code.relocations.get(&at),
            at,
            section,
            operands: &native.operands,
        };
        // What the decoder does not know (newer extensions, data between
        // functions) has a fixed length and writes no more than one register.
        let (steps, flow) = match known {
            Ok(()) => reader.read(native.opcode),
            Err(_) => (Vec::new(), Flow::Next),
        };
        out.push(Instruction {
            place: (section, at),
            steps,
            flow,
        });
    }
    out
}

struct Reader<'c> {
    relocation: Option<&'c Relocation>,
    at: u64,
    section: usize,
    operands: &'c [Operand; 4],
}

impl Reader<'_> {
    fn read(&self, opcode: Opcode) -> (Vec<Step>, Flow) {
        let [first, second, third, _] = *self.operands;
        let flow = match opcode {
            Opcode::RET | Opcode::RETAA | Opcode::RETAB | Opcode::ERET => Flow::Return,
            Opcode::BR | Opcode::BRAA | Opcode::BRAB | Opcode::BRAAZ | Opcode::BRABZ => {
                Flow::Leave(register(first).map_or(Callee::Computed, Callee::Register))
            }
            Opcode::B => match self.destination(first) {
                Target::At { section, address } => Flow::Jump((section, address)),
                target @ Target::Extern(_) => Flow::Leave(Callee::Direct(target)),
            },
            Opcode::Bcc(_) => self.branch(first),
            Opcode::CBZ | Opcode::CBNZ => self.branch(second),
            Opcode::TBZ | Opcode::TBNZ => self.branch(third),
            _ => Flow::Next,
        };
        if flow != Flow::Next {
            return (Vec::new(), flow);
        }
        (self.steps(opcode), flow)
    }

    /// Where a relative operand leads, by its relocation if it has one.
    fn destination(&self, operand: Operand) -> Target {
        if let Some(relocation) = self.relocation {
            return relocation.target.clone();
        }
        let distance = match operand {
            Operand::PCOffset(distance) => distance,
            _ => 0,
        };
        Target::At {
            section: self.section,
            address: self.at.wrapping_add_signed(distance),
        }
    }

    fn branch(&self, operand: Operand) -> Flow {
        match self.destination(operand) {
            Target::At { section, address } => Flow::Branch((section, address)),
            Target::Extern(_) => Flow::Next,
        }
    }

    fn steps(&self, opcode: Opcode) -> Vec<Step> {
        let [first, second, third, _] = *self.operands;
        match opcode {
            Opcode::BL => self.call(first),
            Opcode::BLR | Opcode::BLRAA | Opcode::BLRAB | Opcode::BLRAAZ | Opcode::BLRABZ => {
                let callee = register(first).map_or(Callee::Computed, Callee::Register);
                vec![Step::Call(callee)]
            }
            Opcode::ORR => match (wide(first), second, third) {
                // `mov xD, xM`
                (Some(to), Operand::Register(_, ZERO), Operand::RegShift(_, 0, _, from))
                    if from != ZERO =>
                {
                    narrow(from)
                        .map(|from| Step::Move { to, from })
                        .into_iter()
                        .collect()
                }
                _ => written(first),
            },
            Opcode::ADD => self.add(1),
            Opcode::SUB => self.add(-1),
            Opcode::CSEL => match (wide(first), wide(second), wide(third)) {
                (Some(to), Some(a), Some(b)) => {
                    let mut steps = Vec::new();
                    if a != to && b != to {
                        steps.push(Step::Move { to, from: a });
                        steps.push(Step::Maybe { to, from: b });
                    } else {
                        let from = if a == to { b } else { a };
                        steps.push(Step::Maybe { to, from });
                    }
                    steps
                }
                _ => written(first),
            },
            Opcode::LDR | Opcode::LDUR | Opcode::LDAR | Opcode::LDAPR => load(&[first], second),
            Opcode::LDP | Opcode::LDNP => load(&[first, second], third),
            Opcode::STR | Opcode::STUR | Opcode::STLR => store(&[first], second),
            Opcode::STP | Opcode::STNP => store(&[first, second], third),
            _ => self.other(opcode),
        }
    }

    fn call(&self, operand: Operand) -> Vec<Step> {
        let target = self.destination(operand);
        match &target {
            Target::Extern(name) if TRANSPARENT.contains(&name.as_str()) => Vec::new(),
            _ => vec![Step::Call(Callee::Direct(target))],
        }
    }

    /// `add`/`sub` with a constant. The constant of an address that was begun by
    /// `adrp` is a relocation and tells the whole address.
    fn add(&self, sign: i64) -> Vec<Step> {
        let [first, second, third, _] = *self.operands;
        let (Some(to), Some(from)) = (wide(first), wide(second)) else {
            return written(first);
        };
        if let Some(relocation) = self.relocation {
            if relocation.kind == R_AARCH64_ADD_ABS_LO12_NC {
                let target = relocation.target.clone();
                return vec![Step::Address { to, target }];
            }
            return vec![Step::Clobber(to)];
        }
        let constant = match third {
            Operand::Immediate(value) => i64::from(value),
            Operand::ImmShift(value, shift) => i64::from(value) << (shift & 31),
            _ => return vec![Step::Clobber(to)],
        };
        vec![Step::Add {
            to,
            from,
            distance: sign * constant,
        }]
    }

    /// Everything that carries no address.
    fn other(&self, opcode: Opcode) -> Vec<Step> {
        let [first, second, _, _] = *self.operands;
        match opcode {
            Opcode::STRB | Opcode::STRH | Opcode::STURB | Opcode::STURH | Opcode::PRFM => {
                self.write_back()
            }
            _ => {
                // Atomic instructions write the second register as well.
                let reads_memory = self.operands.iter().any(|o| address(*o).is_some());
                let mut steps = written(first);
                if reads_memory {
                    steps.extend(written(second));
                    steps.extend(self.write_back());
                }
                steps
            }
        }
    }

    fn write_back(&self) -> Vec<Step> {
        self.operands
            .iter()
            .filter_map(|operand| address(*operand))
            .filter_map(|address| address.after)
            .collect()
    }
}

/// A memory operand of a register and a constant.
struct Address {
    at: Memory,
    /// Moves the register before the access.
    before: Option<Step>,
    /// Moves the register after the access.
    after: Option<Step>,
}

fn address(operand: Operand) -> Option<Address> {
    let moved = |register: Register, distance: i32| Step::Add {
        to: register,
        from: register,
        distance: i64::from(distance),
    };
    match operand {
        Operand::RegPreIndex(from, distance, false) => Some(Address {
            at: Memory {
                from: narrow(from)?,
                distance: i64::from(distance),
            },
            before: None,
            after: None,
        }),
        Operand::RegPreIndex(from, distance, true) => Some(Address {
            at: Memory {
                from: narrow(from)?,
                distance: 0,
            },
            before: Some(moved(narrow(from)?, distance)),
            after: None,
        }),
        Operand::RegPostIndex(from, distance) => Some(Address {
            at: Memory {
                from: narrow(from)?,
                distance: 0,
            },
            before: None,
            after: Some(moved(narrow(from)?, distance)),
        }),
        _ => None,
    }
}

/// Registers that lie one after another in memory.
fn load(to: &[Operand], from: Operand) -> Vec<Step> {
    let Some(address) = address(from) else {
        return to.iter().flat_map(|o| written(*o)).collect();
    };
    let mut steps: Vec<Step> = address.before.into_iter().collect();
    let mut distance = address.at.distance;
    let mut loads = Vec::new();
    for operand in to {
        match wide(*operand) {
            Some(to) => loads.push(Step::Load {
                to,
                at: Memory {
                    distance,
                    ..address.at
                },
            }),
            None => loads.extend(written(*operand)),
        }
        distance += 8;
    }
    // `ldp x0, x1, [x0]` reads both before it writes one.
    if let [Step::Load { to, at }, _] = loads.as_slice()
        && *to == at.from
    {
        loads.reverse();
    }
    steps.extend(loads);
    steps.extend(address.after);
    steps
}

fn store(from: &[Operand], to: Operand) -> Vec<Step> {
    let Some(address) = address(to) else {
        return Vec::new();
    };
    let mut steps: Vec<Step> = address.before.into_iter().collect();
    let mut distance = address.at.distance;
    for operand in from {
        if let Some(from) = wide(*operand) {
            steps.push(Step::Store {
                from,
                at: Memory {
                    distance,
                    ..address.at
                },
            });
        }
        distance += 8;
    }
    steps.extend(address.after);
    steps
}

/// A general register of any width, the stack pointer where it may stand, and
/// never the zero register.
fn register(operand: Operand) -> Option<Register> {
    match operand {
        Operand::Register(_, number) if number != ZERO => narrow(number),
        Operand::RegisterOrSP(_, number) => narrow(number),
        _ => None,
    }
}

/// As [`register`], 64 bits wide.
fn wide(operand: Operand) -> Option<Register> {
    match operand {
        Operand::Register(SizeCode::X, _) | Operand::RegisterOrSP(SizeCode::X, _) => {
            register(operand)
        }
        _ => None,
    }
}

fn written(operand: Operand) -> Vec<Step> {
    register(operand).map(Step::Clobber).into_iter().collect()
}

fn narrow(number: u16) -> Option<Register> {
    u8::try_from(number).ok().filter(|n| *n < 32)
}
