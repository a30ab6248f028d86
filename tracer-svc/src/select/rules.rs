//! The rules as data: `rules.toml`, read and checked.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::SelectError;
use super::module::Arch;

/// All rules of a selection.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// Modules of each layer.
    pub layers: Layers,
    /// Pointers without a type.
    pub untyped: Untyped,
    /// Rule 1.
    pub read_only: Words,
    /// Rule 2.
    pub generic: Generic,
    /// Rule 3.
    pub clean_up: Words,
    /// Rule 4: who creates and changes objects.
    #[serde(rename = "verb")]
    pub verbs: Vec<VerbRule>,
    /// Rule 4: the way to the hardware.
    pub hardware: Hardware,
    /// How hooks are attached, by processor.
    pub attach: BTreeMap<String, AttachRule>,
}

/// Modules of the layers above the driver.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layers {
    /// What system calls reach.
    pub uverbs: Vec<String>,
    /// The verbs core.
    pub core: Vec<String>,
}

/// A member without a type, and the structs that it leads to.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Untyped {
    /// `struct.member`.
    pub holder: String,
    /// Names of structs.
    pub leads_to: Vec<String>,
}

/// Words of methods and of function names.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Words {
    /// Words of an entry point's method.
    pub methods: Vec<String>,
    /// Words of a function's name.
    pub names: Vec<String>,
}

/// Rule 2.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Generic {
    /// A function that more entry points than this share pass through serves
    /// everybody, in percent.
    pub share_percent: usize,
    /// Words of a function's name.
    pub names: Vec<String>,
}

/// One verb of rule 4.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VerbRule {
    /// Name, as in the catalogue.
    pub name: String,
    /// The object that it makes or changes.
    pub object: String,
    /// Methods of uverbs, without their prefix.
    pub methods: Vec<String>,
    /// Members of `struct ib_device_ops`.
    pub operations: Vec<String>,
    /// Of each list one word must be in the name of a driver's function for it
    /// to be on the way to the hardware; no lists, no such functions.
    pub names: Vec<Vec<String>>,
    /// `none` when the verb is kept and not chosen.
    pub group: String,
    /// Why it is not chosen.
    #[serde(default)]
    pub because: String,
}

/// The way to the hardware.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hardware {
    /// Who pins memory, by what it returns.
    pub memory: Vec<MemoryRule>,
    /// The struct that address resolution fills in.
    pub address: String,
    /// Words of the names of address resolution, where the BTF says nothing.
    pub address_names: Vec<String>,
    /// Words of the names of what address resolution waits in: hooked where resolution
    /// itself is a copy that the compiler made, which fexit cannot serve.
    pub address_inner: Vec<String>,
    /// Which hook address resolution is, by a word of its name.
    pub address_hooks: Vec<AddressRule>,
    /// Functions that send commands to a NIC.
    pub commands: Vec<String>,
}

/// One kind of address resolution.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddressRule {
    /// One of these is in the function's name.
    pub words: Vec<String>,
    /// Name of the hook.
    pub hook: String,
}

/// One kind of pinned memory.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryRule {
    /// The struct that is returned.
    pub returns: String,
    /// Name of the logical hook.
    pub hook: String,
    /// Its group in the catalogue.
    pub group: String,
    /// The outer functions that have errors of their own.
    #[serde(default)]
    pub outer: Option<OuterRule>,
}

/// Who returns what an inner function made, and can fail besides.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OuterRule {
    /// It calls one of these itself.
    pub calls: Vec<String>,
    /// Name of its hook.
    pub hook: String,
    /// Its group in the catalogue.
    pub group: String,
}

/// What BPF trampolines can do on one processor.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttachRule {
    /// First kernel on which fexit attaches to a module's function.
    pub fexit_since: (u32, u32),
    /// Arguments in registers.
    pub register_arguments: u32,
    /// First kernel whose trampoline copies arguments from the stack.
    pub stack_arguments_since: (u32, u32),
    /// `MAX_BPF_FUNC_ARGS` of `include/linux/bpf.h`.
    pub most_arguments: u32,
}

impl Rules {
    /// The rules that are compiled in.
    ///
    /// # Errors
    /// Never for a released binary: a test parses them.
    pub fn built_in() -> Result<Self, SelectError> {
        Self::parse(include_str!("rules.toml"))
    }

    /// Reads rules.
    ///
    /// # Errors
    /// Not TOML of this shape, or a verb stands twice.
    pub fn parse(text: &str) -> Result<Self, SelectError> {
        let rules: Self = toml::from_str(text).map_err(|e| SelectError::Rules(e.to_string()))?;
        let mut names = std::collections::BTreeSet::new();
        for verb in &rules.verbs {
            if !names.insert(&verb.name) {
                return Err(SelectError::Rules(format!(
                    "verb {} stands twice",
                    verb.name
                )));
            }
        }
        for arch in [Arch::Amd64, Arch::Arm64] {
            if !rules.attach.contains_key(arch.name()) {
                return Err(SelectError::Rules(format!("no [attach.{}]", arch.name())));
            }
        }
        Ok(rules)
    }
}

impl Untyped {
    /// This is the member without a type.
    pub(super) fn is_at(&self, owner: &str, member: &str) -> bool {
        self.holder.split_once('.') == Some((owner, member))
    }
}

/// What kind of call an entry point is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Creates or changes one of the five objects; verbs by number.
    Verbs(Vec<usize>),
    /// Reads.
    ReadOnly,
    /// Ends an object.
    CleanUp,
    /// Something that rule 4 does not keep.
    Other,
}

impl Rules {
    /// What an entry point does, by its method.
    pub(super) fn effect(&self, method: &str) -> Effect {
        let verbs: Vec<usize> = self
            .verbs
            .iter()
            .enumerate()
            .filter(|(_, verb)| verb.methods.iter().any(|m| m == method))
            .map(|(number, _)| number)
            .collect();
        let has = |words: &[String]| method.split('_').any(|w| words.iter().any(|x| x == w));
        if !verbs.is_empty() {
            Effect::Verbs(verbs)
        } else if has(&self.clean_up.methods) {
            Effect::CleanUp
        } else if has(&self.read_only.methods) {
            Effect::ReadOnly
        } else {
            Effect::Other
        }
    }
}

/// The word of a list that stands in a function's name between underscores or
/// digits: `rdma_put_gid_attr` has `put`, `input_gid` has not.
pub(super) fn word_in<'w>(name: &str, words: &'w [String]) -> Option<&'w str> {
    let parts: Vec<&str> = name
        .split(|c: char| !c.is_ascii_alphabetic())
        .filter(|part| !part.is_empty())
        .collect();
    words
        .iter()
        .map(String::as_str)
        .find(|word| parts.contains(word))
}
