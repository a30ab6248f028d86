//! A kernel in miniature for tests: a base BTF, and modules that continue it.

use super::{Blob, Kind, Writer};

/// Ids of the base's types.
pub(crate) const INT: u32 = 1;
pub(crate) const LONG: u32 = 2;
pub(crate) const DEVICE: u32 = 3;
pub(crate) const PD: u32 = 4;
pub(crate) const QP: u32 = 5;
pub(crate) const UDATA: u32 = 6;
pub(crate) const BUNDLE: u32 = 7;
pub(crate) const MR: u32 = 8;
pub(crate) const EVENT: u32 = 9;
/// Pointers to the structs above, in their order.
const FIRST_POINTER: u32 = 10;

/// Id of the pointer to one of the base's structs.
pub(crate) fn pointer(to: u32) -> u32 {
    FIRST_POINTER + to - DEVICE
}

/// vmlinux: integers, the verbs structs (each with one pointer in it), pointers to
/// them.
pub(crate) fn base() -> Blob {
    let mut out = Writer::default();
    let int = out.string(b"int");
    out.add(int, Kind::Int, (0, false), 4, &[32 | 1 << 24]);
    let long = out.string(b"unsigned long");
    out.add(long, Kind::Int, (0, false), 8, &[64]);
    let member = out.string(b"device");
    for name in [
        "ib_device",
        "ib_pd",
        "ib_qp",
        "ib_udata",
        "uverbs_attr_bundle",
        "ib_mr",
        "ib_event",
    ] {
        let name = out.string(name.as_bytes());
        out.add(
            name,
            Kind::Struct,
            (1, false),
            8,
            &[member, FIRST_POINTER, 0],
        );
    }
    for target in DEVICE..=EVENT {
        out.add(0, Kind::Ptr, (0, false), target, &[]);
    }
    Blob::parse(out.finish(), None).unwrap()
}

/// Builds one module.
pub(crate) struct Module {
    out: Writer,
}

impl Module {
    pub(crate) fn on(base: &Blob) -> Self {
        let (types, strings) = base.extent();
        Self {
            out: Writer::continuing(types, strings),
        }
    }

    /// Adds a prototype; gives its id.
    pub(crate) fn prototype(&mut self, returns: u32, arguments: &[u32]) -> u32 {
        let extra: Vec<u32> = arguments.iter().flat_map(|id| [0, *id]).collect();
        let count = u32::try_from(arguments.len()).unwrap();
        self.out
            .add(0, Kind::FuncProto, (count, false), returns, &extra)
    }

    /// Adds a function.
    pub(crate) fn function(&mut self, name: &str, returns: u32, arguments: &[u32]) -> u32 {
        let proto = self.prototype(returns, arguments);
        let name = self.out.string(name.as_bytes());
        self.out.add(name, Kind::Func, (0, false), proto, &[])
    }

    /// Adds `struct ib_device_ops` with a pointer for each operation, eight bytes
    /// apart, behind one pointer of another kind.
    pub(crate) fn ops(&mut self, operations: &[(&str, u32, &[u32])]) -> u32 {
        let owner = self.out.string(b"owner");
        let mut members = vec![owner, pointer(DEVICE), 0];
        let mut at = 64;
        for (name, returns, arguments) in operations {
            let proto = self.prototype(*returns, arguments);
            let pointer = self.out.add(0, Kind::Ptr, (0, false), proto, &[]);
            members.extend([self.out.string(name.as_bytes()), pointer, at]);
            at += 64;
        }
        let name = self.out.string(b"ib_device_ops");
        let count = u32::try_from(operations.len() + 1).unwrap();
        self.out
            .add(name, Kind::Struct, (count, false), at / 8, &members)
    }

    /// Direct access for unusual types.
    pub(crate) fn writer(&mut self) -> &mut Writer {
        &mut self.out
    }

    pub(crate) fn finish(self, base: &Blob) -> Blob {
        Blob::parse(self.out.finish(), Some(base)).unwrap()
    }
}
