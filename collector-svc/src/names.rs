//! Names of the contract's enumerations, as SQL, JSON and people read them.

use rdmesh_proto::common::v1::{AgentKind, Layer, Verb};

/// `reg_mr`, …: the name in the contract without its prefix, in lower case.
pub(crate) fn verb(verb: Verb) -> String {
    without(verb.as_str_name(), "VERB_")
}

/// `memory`, ….
pub(crate) fn layer(layer: Layer) -> String {
    without(layer.as_str_name(), "LAYER_")
}

/// `tracer`, `shaper`.
pub(crate) fn agent(kind: AgentKind) -> String {
    without(kind.as_str_name(), "AGENT_KIND_")
}

/// A name of an enumeration without its prefix, in lower case; `unknown` for the zero of
/// the contract, as SQL and the command line say it.
pub(crate) fn without(name: &str, prefix: &str) -> String {
    match name.strip_prefix(prefix).unwrap_or(name) {
        "UNSPECIFIED" => "unknown".to_owned(),
        name => name.to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_no_prefix() {
        assert_eq!(verb(Verb::RegDmabufMr), "reg_dmabuf_mr");
        assert_eq!(layer(Layer::Uverbs), "uverbs");
        assert_eq!(agent(AgentKind::Tracer), "tracer");
        assert_eq!(layer(Layer::Unspecified), "unknown");
    }
}
