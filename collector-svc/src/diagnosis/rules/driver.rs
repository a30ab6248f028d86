//! The driver is the innermost that failed, and no command to the firmware did.

use rdmesh_proto::collector::v1::{Confidence, VerdictClass};
use rdmesh_proto::common::v1::{Layer, Verb};

use super::Finding;
use super::errno::{EINVAL, EIO, ENODEV, ENOTSUPP, ENXIO, EOPNOTSUPP};
use crate::diagnosis::select::Deciding;
use crate::diagnosis::watch;
use crate::diagnosis::{Case, Chain};

/// Drivers of devices without firmware commands: nothing below them could be seen.
const SOFTWARE_DRIVERS: [&str; 2] = ["rdma_rxe", "siw"];

fn in_driver(chain: &Chain) -> bool {
    chain.deepest().layer == Layer::Driver
}

/// What lies below the driver and was not watched speaks against every verdict on it.
fn though_below(finding: Finding, chain: &Chain, case: &Case) -> Finding {
    let software = SOFTWARE_DRIVERS.contains(&chain.driver.as_str());
    let mut finding = finding;
    if !software && !watch::watches_layer(case, &chain.host, Layer::Firmware) {
        finding = finding.though(format!(
            "commands to the firmware were not watched on {}: one may have failed below",
            chain.host
        ));
    }
    let pins = matches!(chain.verb, Verb::RegMr | Verb::CreateQp | Verb::CreateCq);
    if pins && !watch::watches_layer(case, &chain.host, Layer::Memory) {
        finding = finding.though(format!(
            "pinning of memory was not watched on {}: it may have failed below",
            chain.host
        ));
    }
    finding
}

/// The device itself went away.
pub(super) fn device_gone(deciding: &Deciding<'_>, _: &Case) -> Option<Finding> {
    let deepest = deciding.chain.deepest();
    if !matches!(deepest.errno, EIO | ENODEV | ENXIO) {
        return None;
    }
    Some(
        Finding::new(VerdictClass::Device, Confidence::Medium)
            .because("the kernel answers so when a device is gone, in reset, or in an error state"),
    )
}

/// Drivers check arguments and the state machine themselves.
pub(super) fn arguments(deciding: &Deciding<'_>, case: &Case) -> Option<Finding> {
    let chain = deciding.chain;
    if !in_driver(chain) || !matches!(chain.deepest().errno, EINVAL | EOPNOTSUPP | ENOTSUPP) {
        return None;
    }
    let mut finding = Finding::new(VerdictClass::ApplicationArguments, Confidence::Medium).because(
        match chain.deepest().errno {
            EINVAL if chain.verb == Verb::ModifyQp => {
                "drivers check the step and its attributes (ib_modify_qp_is_ok) themselves"
            }
            EINVAL => "drivers check arguments and the device's limits themselves",
            _ => "the driver does not offer what was asked for",
        },
    );
    let arguments = &chain.arguments;
    if let Some(step) = arguments.step_in_words() {
        finding = finding.because(step);
    }
    if let Some(sizes) = &arguments.create {
        finding = finding.because(asked(chain.verb, sizes));
    }
    let finding = though_below(finding, chain, case);
    Some(finding)
}

fn asked(verb: Verb, sizes: &crate::diagnosis::CreateSizes) -> String {
    if verb == Verb::CreateCq {
        return format!("asked for: {} completion queue entries", sizes.cqe);
    }
    format!(
        "asked for: max_send_wr {}, max_recv_wr {}, max_send_sge {}, max_recv_sge {}, \
         max_inline_data {}",
        sizes.max_send_wr,
        sizes.max_recv_wr,
        sizes.max_send_sge,
        sizes.max_recv_sge,
        sizes.max_inline_data_bytes
    )
}

/// Any other errno of a driver.
pub(super) fn other(deciding: &Deciding<'_>, case: &Case) -> Option<Finding> {
    let chain = deciding.chain;
    if !in_driver(chain) {
        return None;
    }
    let finding = Finding::new(VerdictClass::Driver, Confidence::Low)
        .because("the driver is the innermost failing call");
    Some(though_below(finding, chain, case))
}
