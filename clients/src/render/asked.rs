//! What a failing call was asked to do, in the words of one cell.

use rdmesh_client::model::arguments::{CallArguments, CreateSizes, FirmwareAnswer, Mapping};

use super::printable::printable;

/// `4096 bytes at 0x7f0000000000, in no mapping`; `QP 17, INIT to RTS`. Empty where
/// nothing was read.
pub(crate) fn asked(arguments: &CallArguments) -> String {
    let mut parts = Vec::new();
    memory(arguments, &mut parts);
    queue_pair(arguments, &mut parts);
    if let Some(create) = &arguments.create {
        sizes(create, &mut parts);
    }
    if let Some(firmware) = &arguments.firmware {
        command(firmware, &mut parts);
    }
    parts.join(", ")
}

fn command(firmware: &FirmwareAnswer, parts: &mut Vec<String>) {
    let opcode = firmware.opcode;
    let object = firmware.object_type.filter(|kind| *kind != 0);
    let object = object.map_or_else(String::new, |kind| format!(" (object type {kind:#x})"));
    if firmware.status != 0 {
        parts.push(format!(
            "firmware command {opcode:#x}{object}: status {:#x}, syndrome {:#x}",
            firmware.status, firmware.syndrome
        ));
    } else if firmware.object_type.is_some() {
        // DEVX: the command is what the application asked for.
        parts.push(format!("DEVX command {opcode:#x}{object}"));
    }
}

fn memory(arguments: &CallArguments, parts: &mut Vec<String>) {
    let at = arguments.address.as_deref().map(printable);
    match (arguments.length_bytes, at) {
        (Some(1), Some(at)) => parts.push(format!("1 byte at {at}")),
        (Some(length), Some(at)) => parts.push(format!("{length} bytes at {at}")),
        (Some(length), None) => parts.push(format!("{length} bytes")),
        (None, Some(at)) => parts.push(format!("at {at}")),
        (None, None) => {}
    }
    if let Some(fd) = arguments.dmabuf_fd {
        parts.push(format!("dmabuf fd {fd}"));
    }
    if let Some(flags) = arguments.access_flags {
        parts.push(format!("access {}", access(flags)));
    }
    match (arguments.mapping, arguments.mapping_of_end) {
        (Some(Mapping::None), _) => parts.push("in no mapping".to_owned()),
        (Some(first), Some(Mapping::None)) => {
            parts.push(format!("{}, its end in no mapping", mapped(first)));
        }
        (Some(first), _) => parts.push(mapped(first).to_owned()),
        (None, _) => {}
    }
}

/// enum ib_access_flags of include/rdma/ib_verbs.h, without its prefix.
const ACCESS_FLAGS: [(u32, &str); 9] = [
    (1 << 0, "LOCAL_WRITE"),
    (1 << 1, "REMOTE_WRITE"),
    (1 << 2, "REMOTE_READ"),
    (1 << 3, "REMOTE_ATOMIC"),
    (1 << 4, "MW_BIND"),
    (1 << 5, "ZERO_BASED"),
    (1 << 6, "ON_DEMAND"),
    (1 << 7, "HUGETLB"),
    (1 << 20, "RELAXED_ORDERING"),
];

/// `LOCAL_WRITE|REMOTE_READ`; bits without a name as a number; `read only` where none is set.
fn access(flags: u32) -> String {
    let set = ACCESS_FLAGS.iter().filter(|(bit, _)| flags & bit != 0);
    let mut names: Vec<String> = set.clone().map(|(_, name)| (*name).to_owned()).collect();
    match flags & !set.fold(0, |known, (bit, _)| known | bit) {
        0 => {}
        others => names.push(format!("{others:#x}")),
    }
    match names.is_empty() {
        true => "read only".to_owned(),
        false => names.join("|"),
    }
}

fn mapped(mapping: Mapping) -> &'static str {
    match mapping {
        Mapping::None => "in no mapping",
        Mapping::Anonymous => "anonymous memory",
        Mapping::File => "a file's memory",
        Mapping::HugePage => "huge pages",
        Mapping::DevicePfn => "a device's pages",
        Mapping::Unspecified | Mapping::Newer(_) => "a mapping of a kind not known here",
    }
}

fn queue_pair(arguments: &CallArguments, parts: &mut Vec<String>) {
    if let Some(number) = arguments.qp_number {
        parts.push(format!("QP {number}"));
    }
    let state = |state: &Option<String>| state.as_deref().map(printable);
    match (
        state(&arguments.current_state),
        state(&arguments.asked_state),
    ) {
        (Some(from), Some(to)) => parts.push(format!("{from} to {to}")),
        (None, Some(to)) => parts.push(format!("to {to}")),
        (Some(from), None) => parts.push(format!("in {from}")),
        (None, None) => {}
    }
    if let Some(port) = arguments.port {
        parts.push(format!("port {port}"));
    }
    if let Some(index) = arguments.gid_index {
        let kind = arguments.gid_type.as_deref().map(printable);
        let kind = kind.map_or_else(String::new, |kind| format!(" ({kind})"));
        parts.push(format!("GID index {index}{kind}"));
    }
    if let Some(gid) = &arguments.destination_gid {
        parts.push(format!("peer {}", printable(gid)));
    }
}

fn sizes(create: &CreateSizes, parts: &mut Vec<String>) {
    let asked = [
        (create.cqe, "CQ entries"),
        (create.max_send_wr, "send WRs"),
        (create.max_recv_wr, "receive WRs"),
        (create.max_send_sge, "send SGEs"),
        (create.max_recv_sge, "receive SGEs"),
        (create.max_inline_data_bytes, "inline bytes"),
    ];
    let asked = asked.into_iter().filter(|(count, _)| *count > 0);
    parts.extend(asked.map(|(count, what)| format!("{count} {what}")));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_told_with_what_it_maps() {
        let asked_for = CallArguments {
            mapping: Some(Mapping::Anonymous),
            mapping_of_end: Some(Mapping::None),
            address: Some("0x7f00".to_owned()),
            length_bytes: Some(8_192),
            access_flags: Some(0x9000_0007),
            ..CallArguments::default()
        };
        assert_eq!(
            asked(&asked_for),
            "8192 bytes at 0x7f00, access LOCAL_WRITE|REMOTE_WRITE|REMOTE_READ|0x90000000, \
             anonymous memory, its end in no mapping"
        );
        assert_eq!(access(0), "read only");
        assert_eq!(access(1 << 20), "RELAXED_ORDERING");
    }

    #[test]
    fn a_queue_pair_is_told_with_its_states_and_path() {
        let asked_for = CallArguments {
            qp_number: Some(17),
            current_state: Some("INIT".to_owned()),
            asked_state: Some("RTS".to_owned()),
            port: Some(1),
            gid_index: Some(3),
            gid_type: Some("RoCE v2".to_owned()),
            destination_gid: Some("::ffff:10.0.0.9".to_owned()),
            ..CallArguments::default()
        };
        assert_eq!(
            asked(&asked_for),
            "QP 17, INIT to RTS, port 1, GID index 3 (RoCE v2), peer ::ffff:10.0.0.9"
        );
    }

    #[test]
    fn sizes_and_firmware_are_told_where_they_say_something() {
        let asked_for = CallArguments {
            create: Some(CreateSizes {
                cqe: 1 << 30,
                ..CreateSizes::default()
            }),
            firmware: Some(FirmwareAnswer {
                opcode: 0x500,
                status: 4,
                syndrome: 0x0012_34ab,
                object_type: None,
            }),
            ..CallArguments::default()
        };
        assert_eq!(
            asked(&asked_for),
            "1073741824 CQ entries, firmware command 0x500: status 0x4, syndrome 0x1234ab"
        );
        assert_eq!(asked(&CallArguments::default()), "");
    }

    #[test]
    fn a_devx_command_is_told_with_its_object() {
        let devx = |status, object_type| CallArguments {
            firmware: Some(FirmwareAnswer {
                opcode: 0xa00,
                status,
                syndrome: 7,
                object_type: Some(object_type),
            }),
            ..CallArguments::default()
        };
        assert_eq!(
            asked(&devx(3, 0x1f)),
            "firmware command 0xa00 (object type 0x1f): status 0x3, syndrome 0x7"
        );
        assert_eq!(
            asked(&devx(0, 0x1f)),
            "DEVX command 0xa00 (object type 0x1f)"
        );
        assert_eq!(asked(&devx(0, 0)), "DEVX command 0xa00");
    }

    #[test]
    fn hostile_text_commands_no_terminal() {
        let asked_for = CallArguments {
            asked_state: Some("\u{1b}[2J".to_owned()),
            ..CallArguments::default()
        };
        assert_eq!(asked(&asked_for), "to \\x1b[2J");
    }
}
