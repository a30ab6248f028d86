//! How a hook can be attached to a function.

use serde::{Deserialize, Serialize};

use super::module::Module;
use super::rules::{AttachRule, Rules};
use super::world::{Node, World};

/// The ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// A BPF trampoline on the function's exit.
    Fexit,
    /// A kretprobe.
    Kretprobe,
    /// None.
    Not,
}

impl How {
    /// The name in outputs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Fexit => "fexit",
            Self::Kretprobe => "kretprobe",
            Self::Not => "not",
        }
    }
}

/// How, and why not better.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachable {
    /// The way.
    pub how: How,
    /// Why not fexit; empty for fexit.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

impl Attachable {
    fn new(how: How, why: impl Into<String>) -> Self {
        Self {
            how,
            why: why.into(),
        }
    }
}

/// `6.12.118+deb13-amd64` → (6, 12).
pub(super) fn version(release: &str) -> (u32, u32) {
    let mut parts = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|part| part.parse().unwrap_or(0));
    let major = parts.next().unwrap_or(0);
    (major, parts.next().unwrap_or(0))
}

/// How a hook can be attached to a function.
pub(super) fn attachable(world: &World<'_>, rules: &Rules, node: &Node) -> Attachable {
    let Node::Inside(number, function) = *node else {
        return Attachable::new(How::Not, "not of an RDMA module");
    };
    let module = &world.modules[number];
    let found = &module.functions[function];
    if found.load_time {
        return Attachable::new(How::Not, "runs only while the module loads or unloads");
    }
    if !found.traceable {
        return Attachable::new(How::Not, "notrace: ftrace has no place in it");
    }
    if module.repeated.contains(&found.name) {
        return Attachable::new(How::Not, "the module has two functions of this name");
    }
    if found.name.contains('.') {
        return Attachable::new(How::Kretprobe, "the compiler changed its arguments");
    }
    if module.btf.is_none() {
        return Attachable::new(How::Kretprobe, "the module has no BTF");
    }
    let Some((_, prototype)) = world.described(node) else {
        return Attachable::new(How::Kretprobe, "the BTF does not describe it");
    };
    let Some(rule) = rules.attach.get(module.arch.name()) else {
        return Attachable::new(How::Kretprobe, "no rule for this processor");
    };
    by_version(module, rule, prototype.argument_words)
}

fn by_version(module: &Module, rule: &AttachRule, arguments: u32) -> Attachable {
    let running = version(&module.release);
    let text = |(major, minor): (u32, u32)| format!("{major}.{minor}");
    let arch = module.arch.name();
    if running < rule.fexit_since {
        let since = text(rule.fexit_since);
        return Attachable::new(How::Kretprobe, format!("fexit on {arch} needs {since}"));
    }
    if arguments > rule.most_arguments {
        let why = format!("{arguments} arguments, fexit takes {}", rule.most_arguments);
        return Attachable::new(How::Kretprobe, why);
    }
    if arguments > rule.register_arguments && running < rule.stack_arguments_since {
        let since = text(rule.stack_arguments_since);
        let why = format!(
            "{arguments} arguments, more than {} need {since}",
            rule.register_arguments
        );
        return Attachable::new(How::Kretprobe, why);
    }
    Attachable::new(How::Fexit, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_have_a_version() {
        assert_eq!(version("6.12.118+deb13-amd64"), (6, 12));
        assert_eq!(version("6.1.0-57-arm64"), (6, 1));
        assert_eq!(version("7.3"), (7, 3));
        assert_eq!(version(""), (0, 0));
    }
}
