//! Only the kernel's entry and core failed: the call was refused before any driver.

use rdmesh_proto::collector::v1::{Confidence, VerdictClass};
use rdmesh_proto::common::v1::Layer;

use super::Finding;
use super::errno::{EACCES, EAGAIN, ENOMEM, ENOSPC, EPERM};
use crate::diagnosis::Case;
use crate::diagnosis::select::Deciding;
use crate::diagnosis::watch;

pub(super) fn refused(deciding: &Deciding<'_>, case: &Case) -> Option<Finding> {
    let chain = deciding.chain;
    let at_entry = matches!(chain.deepest().layer, Layer::Core | Layer::Uverbs);
    if !at_entry || chain.reaches(Layer::Driver) {
        return None;
    }
    let watched = watch::watches_verb(case, &chain.host, Layer::Driver, chain.verb);
    let confidence = if watched {
        Confidence::Medium
    } else {
        Confidence::Low
    };
    let class = match chain.deepest().errno {
        EPERM | EACCES => VerdictClass::Configuration,
        ENOMEM | EAGAIN | ENOSPC => VerdictClass::MemoryLimits,
        _ => VerdictClass::ApplicationArguments,
    };
    let mut finding = Finding::new(class, confidence);
    if watched {
        finding = finding.because("the driver's own function is watched there and did not fail");
    } else {
        finding = finding.though(format!(
            "the driver's function for this call was not watched on {}: it may have failed below",
            chain.host
        ));
    }
    let arguments = &chain.arguments;
    if let Some(step) = arguments.step_in_words() {
        finding = finding.because(step);
    }
    Some(finding)
}
