//! What a selection is: the same in memory, as JSON and, shortened, as a table.

use serde::{Deserialize, Serialize};

use super::attach::Attachable;
use crate::catalogue::Layer;

/// Version of the JSON. Another one is refused by `--diff`.
pub const SCHEMA: u32 = 1;

/// What became of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Kept, and worth a hook.
    Chosen,
    /// Kept by rule 4, and served by a chosen one.
    Kept,
    /// Not reached or not traceable, or removed by a rule.
    Removed,
}

impl Verdict {
    /// The name in outputs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Chosen => "chosen",
            Self::Kept => "kept",
            Self::Removed => "removed",
        }
    }
}

/// The rule that decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// ftrace cannot patch it.
    Traceable,
    /// 1: reads and changes nothing.
    ReadOnly,
    /// 2: serves everybody.
    Generic,
    /// 3: ends objects or counts references.
    CleanUp,
    /// 4: creates, changes, or talks to the hardware; or does none of that.
    Keep,
}

impl Rule {
    /// The name in outputs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Traceable => "traceable",
            Self::ReadOnly => "1 read-only",
            Self::Generic => "2 generic",
            Self::CleanUp => "3 clean-up",
            Self::Keep => "4 keep",
        }
    }
}

/// One reached function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionRow {
    /// Function name.
    pub function: String,
    /// Its module, `vmlinux` for what is outside.
    pub module: String,
    /// Layer.
    pub layer: Layer,
    /// The verbs that reach it.
    pub verbs: Vec<String>,
    /// Calls from the nearest entry point; 0 is one.
    pub depth: u32,
    /// How many entry points reach it.
    pub entry_points: usize,
    /// What became of it.
    pub verdict: Verdict,
    /// By which rule.
    pub rule: Rule,
    /// Why.
    pub why: String,
    /// The logical hooks that it serves; none when not chosen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<String>,
    /// How a hook could be attached.
    pub attach: Attachable,
    /// What the records of a hook on it would tell of the call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
    /// And what this kernel does not let them tell, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments_absent: Vec<String>,
}

/// One module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleRow {
    /// Name.
    pub module: String,
    /// Layer of its functions.
    pub layer: Layer,
    /// Functions.
    pub functions: usize,
    /// Those that ftrace can patch.
    pub traceable: usize,
    /// It carries BTF.
    pub has_btf: bool,
}

/// One handler of uverbs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryRow {
    /// `ioctl` or `write`.
    pub interface: String,
    /// Method, e.g. `QP_CREATE`.
    pub method: String,
    /// Function name.
    pub function: String,
    /// Its module.
    pub module: String,
    /// `creates or changes`, `read-only`, `clean-up`, `other`.
    pub effect: String,
    /// Functions of RDMA modules that it reaches, itself included.
    pub reached: usize,
    /// Names of kept functions that it reaches, by depth.
    pub kept: Vec<String>,
}

/// How many functions each step leaves. Counted are functions of the modules
/// under drivers/infiniband: uverbs, core and the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Funnel {
    /// All functions.
    pub all: usize,
    /// ftrace can patch them.
    pub traceable: usize,
    /// An entry point reaches them.
    pub reachable: usize,
    /// Left by rule 1.
    pub after_read_only: usize,
    /// Left by rule 2.
    pub after_generic: usize,
    /// Left by rule 3.
    pub after_clean_up: usize,
    /// Left by rule 4.
    pub kept: usize,
    /// Functions with a hook.
    pub chosen: usize,
}

/// The way of one verb through the rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerbRow {
    /// Name.
    pub verb: String,
    /// Its counts; `all` is what its entry points reach at any depth.
    pub reachable: usize,
    /// As `reachable`, at most [`NEAR_DEPTH`] calls from the entry point.
    pub near: usize,
    /// Left by rule 4.
    pub kept: usize,
    /// Functions with a hook.
    pub chosen: usize,
    /// Why it is not chosen; empty when it is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub because: String,
}

/// Calls from the entry point that [`VerbRow::near`] counts: the driver's
/// operation of modify_qp and what it calls itself.
pub const NEAR_DEPTH: u32 = 5;

/// One logical hook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookRow {
    /// `layer.verb`, as in the catalogue.
    pub hook: String,
    /// Its group in the catalogue.
    pub group: String,
    /// `module:function`, in order.
    pub functions: Vec<String>,
    /// The best way to attach one of them.
    pub how: super::attach::How,
    /// Why it is not served; empty when it is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub missing: String,
}

/// A whole selection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selection {
    /// [`SCHEMA`].
    pub schema: u32,
    /// `uname -r` of the kernel.
    pub release: String,
    /// `amd64` or `arm64`.
    pub arch: String,
    /// The driver whose operations were followed.
    pub driver: String,
    /// Modules that were analysed.
    pub modules: Vec<ModuleRow>,
    /// Modules that these depend on and that were not there.
    pub absent_modules: Vec<String>,
    /// The funnel of uverbs, core and driver.
    pub funnel: Funnel,
    /// Functions of the firmware layer that are reached.
    pub firmware_reachable: usize,
    /// Of those, left by rule 4. They are listed, and not counted in the funnel.
    #[serde(default)]
    pub firmware_kept: usize,
    /// Of those, with a hook.
    #[serde(default)]
    pub firmware_chosen: usize,
    /// Functions outside of the RDMA modules that are called.
    pub outside_reachable: usize,
    /// Indirect calls that could not be followed, `function: through what`.
    pub unresolved: Vec<String>,
    /// Verbs of rule 4.
    pub verbs: Vec<VerbRow>,
    /// Logical hooks.
    pub hooks: Vec<HookRow>,
    /// Entry points.
    pub entries: Vec<EntryRow>,
    /// All functions that are reached, by layer and name.
    pub functions: Vec<FunctionRow>,
}
