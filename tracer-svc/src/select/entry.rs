//! What a system call reaches: the handlers of uverbs' ioctl methods and of its
//! write() commands, found in the tables that the modules register.

use std::collections::{BTreeMap, HashMap};

use super::module::Table;
use super::world::{Node, World};

/// By which interface a call comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Interface {
    /// `ioctl()` on /dev/infiniband/uverbsN.
    Ioctl,
    /// `write()` on it, the older one.
    Write,
}

impl Interface {
    /// The name in outputs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ioctl => "ioctl",
            Self::Write => "write",
        }
    }
}

/// One handler of uverbs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) interface: Interface,
    /// `QP_CREATE`, `REG_MR`: without the prefix that all of them have.
    pub(super) method: String,
    pub(super) node: Node,
}

/// `struct uverbs_method_def` of `include/rdma/uverbs_ioctl.h`.
const METHOD: &str = "uverbs_method_def";
/// `struct uapi_definition` of the same file.
const DEFINITION: &str = "uapi_definition";

/// All handlers, in order.
pub(super) fn entries(world: &World<'_>) -> Vec<Entry> {
    let mut out = Vec::new();
    for (number, shapes) in world.shapes.iter().enumerate() {
        let Some(shapes) = shapes else { continue };
        if let Some((bytes, slots)) = shapes.slots(METHOD) {
            for table in &world.modules[number].tables {
                let found = world.read_table(number, table, bytes, &slots);
                out.extend(found.into_iter().map(|(_, _, node)| Entry {
                    interface: Interface::Ioctl,
                    method: ioctl_method(&table.name),
                    node,
                }));
            }
        }
        let Some(layout) = WriteLayout::of(world, number) else {
            continue;
        };
        for table in &world.modules[number].tables {
            out.extend(layout.read(world, number, table));
        }
    }
    out.sort_by(|a, b| {
        let place = |e: &Entry| {
            (
                e.interface,
                e.method.clone(),
                world.name(&e.node).to_owned(),
            )
        };
        place(a).cmp(&place(b))
    });
    out.dedup();
    out
}

/// `ib_uverbs_method_UVERBS_METHOD_QP_CREATE` → `QP_CREATE`.
fn ioctl_method(symbol: &str) -> String {
    symbol
        .rsplit_once("_METHOD_")
        .map_or(symbol, |(_, method)| method)
        .to_owned()
}

/// `IB_USER_VERBS_EX_CMD_CREATE_QP` → `CREATE_QP`.
fn plain_method(name: &str) -> String {
    let prefixes = ["IB_USER_VERBS_EX_CMD_", "IB_USER_VERBS_CMD_"];
    let rest = prefixes.iter().find_map(|prefix| name.strip_prefix(prefix));
    rest.unwrap_or(name).to_owned()
}

/// The method of a handler whose command number the BTF does not name (kernels
/// before 7.0 keep no enum of them): `ib_uverbs_ex_create_qp` → `CREATE_QP`.
fn write_method(handler: &str) -> String {
    let rest = handler.strip_prefix("ib_uverbs_").unwrap_or(handler);
    rest.strip_prefix("ex_")
        .unwrap_or(rest)
        .to_ascii_uppercase()
}

/// Where the parts of a write() command stand in its definition.
struct WriteLayout {
    bytes: u64,
    command: u64,
    extended_bit: u64,
    kind: u64,
    write_kind: u32,
    commands: HashMap<u32, String>,
    extended: HashMap<u32, String>,
    slots: Vec<super::shape::Slot>,
}

impl WriteLayout {
    fn of(world: &World<'_>, number: usize) -> Option<Self> {
        let shapes = world.shapes[number].as_ref()?;
        let (bytes, slots) = shapes.slots(DEFINITION)?;
        let bits = |way: &[&str]| shapes.bit_offset(DEFINITION, way);
        let kinds = shapes.constants("UAPI_DEF_WRITE");
        let (write_kind, _) = kinds.into_iter().next()?;
        let mut commands = shapes.constants("IB_USER_VERBS_CMD_");
        let extended = shapes.constants("IB_USER_VERBS_EX_CMD_");
        // The enum of the commands holds two masks and a flag besides.
        commands.retain(|number, _| *number < 256);
        Some(Self {
            bytes,
            command: bits(&["write", "command_num"])? / 8,
            extended_bit: bits(&["write", "is_ex"])?,
            kind: bits(&["kind"])? / 8,
            write_kind,
            commands,
            extended,
            slots,
        })
    }

    fn read(&self, world: &World<'_>, number: usize, table: &Table) -> Vec<Entry> {
        let mut out = Vec::new();
        let module = &world.modules[number];
        let Some(section) = module.sections.get(&table.section) else {
            return out;
        };
        let byte = |at: u64| {
            let at = usize::try_from(at).ok()?;
            section.bytes.get(at).copied()
        };
        let mut by_element: BTreeMap<u64, Node> = BTreeMap::new();
        for (element, member, node) in world.read_table(number, table, self.bytes, &self.slots) {
            if member == "func_write" {
                by_element.insert(element, node);
            }
        }
        for (element, node) in by_element {
            let start = table.start + element * self.bytes;
            let kind = byte(start + self.kind).map(u32::from);
            let command = (byte(start + self.command), byte(start + self.command + 1));
            let flags = byte(start + self.extended_bit / 8);
            let (Some(kind), (Some(low), Some(high)), Some(flags)) = (kind, command, flags) else {
                continue;
            };
            if kind != self.write_kind {
                continue;
            }
            let command = u32::from(u16::from_le_bytes([low, high]));
            let extended = flags >> (self.extended_bit % 8) & 1 == 1;
            let method = if extended {
                self.extended.get(&command)
            } else {
                self.commands.get(&command)
            };
            let method = method.map_or_else(
                || write_method(world.name(&node)),
                |name| plain_method(name),
            );
            out.push(Entry {
                interface: Interface::Write,
                method,
                node,
            });
        }
        out
    }
}
