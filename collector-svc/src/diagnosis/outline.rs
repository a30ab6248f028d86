//! A verdict without its evidence: what a chain, or a class alone, gives.

use rdmesh_proto::collector::v1::{Confidence, VerdictClass};
use rdmesh_proto::common::v1::{Layer, Verb};
use rdmesh_store::errno;

use crate::diagnosis::meanings::{Key, Meaning, Meanings};
use crate::diagnosis::transition::Step;
use crate::diagnosis::{Chain, Verdict};

/// The fields that a chain and a class give.
pub(super) fn from_chain(
    chain: &Chain,
    class: VerdictClass,
    confidence: Confidence,
    rule: &'static str,
) -> Verdict {
    let deepest = chain.deepest();
    let errno_name = errno::name(deepest.errno);
    let meanings = Meanings::built_in();
    let key = Key {
        class,
        layer: deepest.layer,
        verb: chain.verb,
        errno_name: &errno_name,
        mapping: chain.arguments.mapping,
        rule,
        step_allowed: chain.arguments.step().map(|step| step != Step::Forbidden),
    };
    let meaning = meanings.find(key);
    let fill = |text: &str| filled(text, chain, &errno_name);
    Verdict {
        class,
        layer: deepest.layer,
        verb: chain.verb,
        function: deepest.function.clone(),
        module: deepest.module.clone(),
        errno: deepest.errno,
        hosts: vec![chain.host.clone()],
        devices: Vec::new(),
        first_at: Some(chain.first_at),
        confidence,
        route_to: meanings.route(class),
        rule,
        evidence: Vec::new(),
        against: Vec::new(),
        unwatched: Vec::new(),
        summary: meaning.map(|m| m.short.clone()).unwrap_or_default(),
        meaning: meaning.map(|m| fill(&m.means)).unwrap_or_default(),
        next_steps: meaning
            .map(|m| m.next.iter().map(|n| fill(n)).collect())
            .unwrap_or_default(),
        chain: chain.steps.clone(),
        failures_looked_at: 0,
        failures_total: 0,
        log: None,
        same_failure: Vec::new(),
        errno_name,
    }
}

/// Puts the failure's own names into a text.
fn filled(text: &str, chain: &Chain, errno_name: &str) -> String {
    let deepest = chain.deepest();
    let or = |text: &str, otherwise: &str| {
        if text.is_empty() {
            otherwise.to_owned()
        } else {
            text.to_owned()
        }
    };
    text.replace("{host}", &chain.host)
        .replace("{device}", &or(&chain.device, "DEVICE"))
        .replace("{function}", &deepest.function)
        .replace("{module}", &or(&deepest.module, "the kernel"))
        .replace("{driver}", &or(&chain.driver, "DRIVER"))
        .replace("{errno}", errno_name)
        .replace("{comm}", &chain.comm)
        .replace("{pid}", &chain.tgid.to_string())
}

/// Where no chain decides.
pub(super) fn nothing(class: VerdictClass) -> Verdict {
    let meanings = Meanings::built_in();
    let key = Key {
        class,
        layer: Layer::Unspecified,
        verb: Verb::Unspecified,
        errno_name: "",
        mapping: None,
        rule: "",
        step_allowed: None,
    };
    let meaning: Option<&Meaning> = meanings.find(key);
    Verdict {
        class,
        layer: Layer::Unspecified,
        verb: Verb::Unspecified,
        function: String::new(),
        module: String::new(),
        errno: 0,
        errno_name: String::new(),
        hosts: Vec::new(),
        devices: Vec::new(),
        first_at: None,
        confidence: Confidence::Low,
        route_to: meanings.route(class),
        rule: "",
        evidence: Vec::new(),
        against: Vec::new(),
        unwatched: Vec::new(),
        summary: String::new(),
        meaning: meaning.map(|m| m.means.clone()).unwrap_or_default(),
        next_steps: meaning.map(|m| m.next.clone()).unwrap_or_default(),
        chain: Vec::new(),
        failures_looked_at: 0,
        failures_total: 0,
        log: None,
        same_failure: Vec::new(),
    }
}
