//! The device's firmware said no.

use rdmesh_proto::collector::v1::{Confidence, VerdictClass};
use rdmesh_proto::common::v1::Layer;

use super::Finding;
use crate::diagnosis::Case;
use crate::diagnosis::select::Deciding;

pub(super) fn command_failed(deciding: &Deciding<'_>, _: &Case) -> Option<Finding> {
    let chain = deciding.chain;
    let answer = chain.arguments.firmware.filter(|answer| answer.status != 0);
    if let Some(answer) = answer {
        let object = answer.object_type.filter(|kind| *kind != 0);
        let object = object.map_or_else(String::new, |kind| format!(" (object type {kind:#x})"));
        let line = format!(
            "the firmware answered command {:#x}{object} with status {:#x}, syndrome {:#x}",
            answer.opcode, answer.status, answer.syndrome
        );
        return Some(Finding::new(VerdictClass::Firmware, Confidence::High).because(line));
    }
    if chain.deepest().layer != Layer::Firmware {
        return None;
    }
    Some(
        Finding::new(VerdictClass::Firmware, Confidence::Medium)
            .because("a command to the firmware is the innermost failing call")
            .though("the firmware's own status was not read, so that the driver's way of asking may be at fault"),
    )
}
