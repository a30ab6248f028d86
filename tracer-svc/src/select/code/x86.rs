//! x86-64. Indirect calls of a kernel with retpolines are calls of
//! `__x86_indirect_thunk_REGISTER`; returns are jumps to `__x86_return_thunk`.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
};

use super::{Callee, Convention, Flow, Instruction, Memory, Register, Step};
use crate::select::module::{Relocation, Section, Target};

pub(super) const CONVENTION: Convention = Convention {
    stack: 4,
    returns: 0,
    arguments: &[7, 6, 2, 1, 8, 9],
    scratch: &[0, 1, 2, 6, 7, 8, 9, 10, 11],
};

const STACK: Register = CONVENTION.stack;

/// Calls that change no register that the analysis follows.
const TRANSPARENT: [&str; 2] = ["__fentry__", "__cfi_"];

/// Decodes bytes that stand at `start` of a section.
pub(in crate::select) fn decode(
    code: &Section,
    section: usize,
    start: u64,
    bytes: &[u8],
) -> Vec<Instruction> {
    let mut out = Vec::new();
    let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
    let mut info = InstructionInfoFactory::new();
    let mut native = iced_x86::Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut native);
        if native.is_invalid() {
            break;
        }
        let reader = Reader {
            code,
            section,
            native: &native,
        };
        let mut steps = Vec::new();
        let flow = reader.flow(&mut steps);
        if matches!(flow, Flow::Next) && steps.is_empty() {
            reader.steps(&mut steps, &mut info);
        }
        out.push(Instruction {
            place: (section, native.ip()),
            steps,
            flow,
        });
    }
    out
}

/// Number of a 64-bit register.
fn number(register: iced_x86::Register) -> Option<Register> {
    let full = register.full_register();
    if !full.is_gpr64() {
        return None;
    }
    u8::try_from(full.number()).ok()
}

/// The register that a thunk's name ends with.
fn thunk_register(name: &str) -> Option<Register> {
    let name = name.strip_prefix("__x86_indirect_")?;
    let (_, register) = name.rsplit_once('_')?;
    const NAMES: [&str; 16] = [
        "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12",
        "r13", "r14", "r15",
    ];
    let at = NAMES.iter().position(|n| *n == register)?;
    u8::try_from(at).ok()
}

struct Reader<'c> {
    code: &'c Section,
    section: usize,
    native: &'c iced_x86::Instruction,
}

impl Reader<'_> {
    /// The relocation inside this instruction.
    fn relocation(&self) -> Option<(u64, &Relocation)> {
        let range = self.native.ip()..self.native.next_ip();
        self.code
            .relocations
            .range(range)
            .next()
            .map(|(at, relocation)| (*at, relocation))
    }

    /// Where a relative relocation leads: the distance is counted from the end
    /// of the instruction.
    fn relative(&self) -> Option<Target> {
        let (at, relocation) = self.relocation()?;
        let to_end = self.native.next_ip() - at;
        Some(match &relocation.target {
            Target::At { section, address } => Target::At {
                section: *section,
                address: address.wrapping_add(to_end),
            },
            Target::Extern(name) => Target::Extern(name.clone()),
        })
    }

    fn near_target(&self) -> Target {
        self.relative().unwrap_or(Target::At {
            section: self.section,
            address: self.native.near_branch_target(),
        })
    }

    fn flow(&self, steps: &mut Vec<Step>) -> Flow {
        match self.native.flow_control() {
            FlowControl::Call => {
                steps.extend(self.call().map(Step::Call));
                Flow::Next
            }
            FlowControl::IndirectCall => {
                steps.push(Step::Call(self.indirect()));
                Flow::Next
            }
            FlowControl::IndirectBranch => Flow::Leave(self.indirect()),
            FlowControl::ConditionalBranch => match self.near_target() {
                Target::At { section, address } => Flow::Branch((section, address)),
                Target::Extern(_) => Flow::Next,
            },
            FlowControl::UnconditionalBranch => self.jump(),
            FlowControl::Return => Flow::Return,
            // ud2 is a WARN or a BUG; behind a WARN the code goes on.
            _ => Flow::Next,
        }
    }

    fn call(&self) -> Option<Callee> {
        let target = self.near_target();
        if let Target::Extern(name) = &target {
            if TRANSPARENT.iter().any(|t| name.starts_with(t)) {
                return None;
            }
            if let Some(register) = thunk_register(name) {
                return Some(Callee::Register(register));
            }
        }
        Some(Callee::Direct(target))
    }

    fn jump(&self) -> Flow {
        let target = self.near_target();
        match &target {
            Target::Extern(name) if name == "__x86_return_thunk" => Flow::Return,
            Target::Extern(name) => match thunk_register(name) {
                Some(register) => Flow::Leave(Callee::Register(register)),
                None => Flow::Leave(Callee::Direct(target)),
            },
            Target::At { section, address } => Flow::Jump((*section, *address)),
        }
    }

    fn indirect(&self) -> Callee {
        match self.native.op0_kind() {
            OpKind::Register => {
                number(self.native.op0_register()).map_or(Callee::Computed, Callee::Register)
            }
            OpKind::Memory => self.memory().map_or(Callee::Computed, Callee::Memory),
            _ => Callee::Computed,
        }
    }

    /// The memory operand, when it is one register and a constant.
    fn memory(&self) -> Option<Memory> {
        let native = self.native;
        let plain = native.memory_index() == iced_x86::Register::None
            && native.segment_prefix() == iced_x86::Register::None
            && !native.is_ip_rel_memory_operand()
            && self.relocation().is_none();
        Some(Memory {
            from: plain.then(|| number(native.memory_base())).flatten()?,
            distance: native.memory_displacement64().cast_signed(),
        })
    }

    fn steps(&self, steps: &mut Vec<Step>, info: &mut InstructionInfoFactory) {
        if !self.exact(steps) {
            self.clobber(steps, info);
        }
    }

    /// The instructions that carry addresses. False for all others.
    fn exact(&self, steps: &mut Vec<Step>) -> bool {
        let native = self.native;
        let first = number(native.op0_register());
        let second = number(native.op1_register());
        match (native.code(), native.mnemonic(), first) {
            (Code::Mov_r64_rm64, _, Some(to)) if native.op1_kind() == OpKind::Register => {
                steps.extend(second.map(|from| Step::Move { to, from }));
            }
            (Code::Mov_rm64_r64, _, Some(to)) if native.op0_kind() == OpKind::Register => {
                steps.extend(second.map(|from| Step::Move { to, from }));
            }
            (Code::Mov_r64_rm64, _, Some(to)) => {
                steps.push(match self.memory() {
                    Some(at) => Step::Load { to, at },
                    None => Step::Clobber(to),
                });
            }
            (Code::Mov_rm64_r64, _, _) => {
                if let (Some(at), Some(from)) = (self.memory(), second) {
                    steps.push(Step::Store { from, at });
                }
            }
            (Code::Mov_rm64_imm32 | Code::Mov_r64_imm64, _, Some(to)) => {
                steps.push(self.absolute(to));
            }
            (Code::Lea_r64_m, _, Some(to)) => steps.push(self.lea(to)),
            (_, Mnemonic::Push, _) => self.push(steps),
            (_, Mnemonic::Pop, Some(to)) => steps.extend([
                Step::Load {
                    to,
                    at: on_stack(0),
                },
                grow(8),
            ]),
            (Code::Add_rm64_imm8 | Code::Add_rm64_imm32, _, Some(to)) => {
                steps.push(self.add(to, 1));
            }
            (Code::Add_RAX_imm32, _, _) => steps.push(self.add(0, 1)),
            (Code::Sub_rm64_imm8 | Code::Sub_rm64_imm32, _, Some(to)) => {
                steps.push(self.add(to, -1));
            }
            (code, _, Some(to)) if is_conditional_move(code) => match second {
                Some(from) if native.op1_kind() == OpKind::Register => {
                    steps.push(Step::Maybe { to, from });
                }
                // A load or nothing: what stood there before stays possible.
                _ => {}
            },
            _ => return false,
        }
        true
    }

    fn push(&self, steps: &mut Vec<Step>) {
        steps.push(grow(-8));
        if self.native.op0_kind() == OpKind::Register
            && let Some(from) = number(self.native.op0_register())
        {
            steps.push(Step::Store {
                from,
                at: on_stack(0),
            });
        }
    }

    fn add(&self, to: Register, sign: i64) -> Step {
        if self.relocation().is_some() {
            return Step::Clobber(to);
        }
        let last = self.native.op_count() - 1;
        Step::Add {
            to,
            from: to,
            distance: sign.wrapping_mul(self.native.immediate(last).cast_signed()),
        }
    }

    fn absolute(&self, to: Register) -> Step {
        match self.relocation() {
            Some((_, relocation)) => Step::Address {
                to,
                target: relocation.target.clone(),
            },
            None => Step::Clobber(to),
        }
    }

    fn lea(&self, to: Register) -> Step {
        if self.native.is_ip_rel_memory_operand() {
            return match self.relative() {
                Some(target) => Step::Address { to, target },
                None => Step::Clobber(to),
            };
        }
        match self.memory() {
            Some(at) => Step::Add {
                to,
                from: at.from,
                distance: at.distance,
            },
            None => Step::Clobber(to),
        }
    }

    fn clobber(&self, steps: &mut Vec<Step>, info: &mut InstructionInfoFactory) {
        for used in info.info(self.native).used_registers() {
            let written = !matches!(used.access(), OpAccess::Read | OpAccess::CondRead);
            if let Some(register) = number(used.register())
                && written
            {
                steps.push(Step::Clobber(register));
            }
        }
    }
}

fn is_conditional_move(code: Code) -> bool {
    matches!(
        code,
        Code::Cmove_r64_rm64
            | Code::Cmovne_r64_rm64
            | Code::Cmova_r64_rm64
            | Code::Cmovae_r64_rm64
            | Code::Cmovb_r64_rm64
            | Code::Cmovbe_r64_rm64
            | Code::Cmovg_r64_rm64
            | Code::Cmovge_r64_rm64
            | Code::Cmovl_r64_rm64
            | Code::Cmovle_r64_rm64
            | Code::Cmovs_r64_rm64
            | Code::Cmovns_r64_rm64
    )
}

fn on_stack(distance: i64) -> Memory {
    Memory {
        from: STACK,
        distance,
    }
}

fn grow(distance: i64) -> Step {
    Step::Add {
        to: STACK,
        from: STACK,
        distance,
    }
}
