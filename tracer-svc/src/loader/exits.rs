//! The program at the end of processes: not a probe of the catalogue, since nothing fails
//! there. It tells of those that a signal ended, while their environment can still be read.
//!
//! The place is `acct_collect(exitcode, group_dead)` (kernel/acct.c), which `do_exit()` of
//! kernel/exit.c calls for every thread before it gives up its memory; the scheduler's
//! tracepoint comes after that on older kernels. It is there with `CONFIG_BSD_PROCESS_ACCT`,
//! which distributions set.

use aya::maps::Array;
use aya::maps::MapData;
use aya_obj::generated::bpf_insn;

use super::entry::exit_entry;
use super::functions::FunctionTypes;
use super::link::{self, Link};
use super::object::{self, MapFds, Template};
use super::{LoadError, btf_error};
use crate::btf::{Blob, BtfError, Types, parameters};

const FUNCTION: &str = "acct_collect";
const ARGUMENTS: [&[u8]; 2] = [b"exitcode", b"group_dead"];

/// Bytes of `struct exit_room`.
const ROOM_BYTES: usize = 16;

/// The program, and what it may still tell.
pub(super) struct Exits {
    room: Array<MapData, [u8; ROOM_BYTES]>,
    link: Option<Link>,
    /// Taken off by request, until it is allowed again.
    off: bool,
    /// Why it is not attached was told.
    told: bool,
}

impl Exits {
    pub(super) fn new(maps: &MapFds) -> Result<Self, LoadError> {
        Ok(Self {
            room: object::open_array(maps, "exit_room")?,
            link: None,
            off: false,
            told: false,
        })
    }

    /// Attaches it, unless it is. A kernel that has no place for it is told once; the
    /// tracer goes on without.
    pub(super) fn attach(
        &mut self,
        kernel: &Blob,
        (template, maps): (&Template, &MapFds),
        functions: &FunctionTypes,
    ) -> Result<(), LoadError> {
        if self.link.is_some() || self.off {
            return Ok(());
        }
        let types = Types::whole(kernel);
        let found = find(&types).map_err(|error| btf_error("vmlinux", error))?;
        let refusal = match found {
            None => format!("{FUNCTION} is not there, or takes other arguments"),
            Some(id) => {
                let instructions = instructions(&types, (template, maps))?;
                match link::at_kernel_exit(FUNCTION, &instructions, functions, id) {
                    Ok(link) => {
                        self.link = Some(link);
                        return Ok(());
                    }
                    Err(refusal) => format!("{}: {}", refusal.error, refusal.log),
                }
            }
        };
        if !std::mem::replace(&mut self.told, true) {
            tracing::warn!(why = refusal, "ends of processes by a signal are not told");
        }
        Ok(())
    }

    /// Takes it off until [`Exits::allow`].
    pub(super) fn detach(&mut self) {
        self.link = None;
        self.off = true;
    }

    pub(super) fn allow(&mut self) {
        self.off = false;
    }

    /// Gives new room; returns how many ends found none since the tracer's start.
    pub(super) fn give_room(&mut self) -> Result<u64, LoadError> {
        let failed = |error: aya::maps::MapError| LoadError::Map {
            map: "exit_room".to_owned(),
            error: error.to_string(),
        };
        let mut room = self.room.get(&0, 0).map_err(failed)?;
        let (told, left_out) = room.split_at_mut(size_of::<u64>());
        let before = u64::from_ne_bytes(told.try_into().unwrap_or_default());
        let left_out = u64::from_ne_bytes((&*left_out).try_into().unwrap_or_default());
        if before > 0 {
            told.fill(0);
            self.room.set(0, room, 0).map_err(failed)?;
        }
        Ok(left_out)
    }
}

/// Its id in the kernel's BTF, if it takes what the program reads.
fn find(types: &Types<'_>) -> Result<Option<u32>, BtfError> {
    for function in types.own_functions() {
        let (name, id) = function?;
        if name == FUNCTION.as_bytes() {
            let parameters = parameters(types, id)?;
            let names = parameters.iter().map(|(name, ..)| *name);
            return Ok(names.eq(ARGUMENTS).then_some(id));
        }
    }
    Ok(None)
}

fn instructions(
    types: &Types<'_>,
    (template, maps): (&Template, &MapFds),
) -> Result<Vec<bpf_insn>, LoadError> {
    let ids = types
        .locate(&template.names)
        .map_err(|error| btf_error("vmlinux", error))?;
    let body = template
        .exit_body(maps, types, &ids)
        .map_err(|error| LoadError::Program(error.to_string()))?;
    let mut instructions = exit_entry();
    instructions.extend(body);
    Ok(instructions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::btf::{Kind, Writer};

    fn kernel(function: &str, arguments: [&str; 2]) -> Blob {
        let mut out = Writer::default();
        let name = out.string(b"long");
        let long = out.add(name, Kind::Int, (0, false), 8, &[64 | 1 << 24]);
        let words: Vec<u32> = arguments
            .iter()
            .flat_map(|argument| [out.string(argument.as_bytes()), long])
            .collect();
        let proto = out.add(0, Kind::FuncProto, (2, false), 0, &words);
        let name = out.string(function.as_bytes());
        out.add(name, Kind::Func, (0, false), proto, &[]);
        Blob::parse(out.finish(), None).unwrap()
    }

    #[test]
    fn the_place_is_found_by_name_and_arguments() {
        let found = |blob: &Blob| find(&Types::whole(blob)).unwrap();
        let arguments = ["exitcode", "group_dead"];
        assert_eq!(found(&kernel(FUNCTION, arguments)), Some(3));
        assert_eq!(found(&kernel("acct_process", arguments)), None);
        assert_eq!(found(&kernel(FUNCTION, ["task", "code"])), None);
    }
}
