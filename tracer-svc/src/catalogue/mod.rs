//! The probe catalogue: which kernel functions are worth a hook, as data.
//!
//! `hooks.toml` names *logical* hooks ("the driver's reg_mr") and where to find
//! each; [`crate::resolve`] turns them into probes of the running kernel.
//! `expected.toml` names failures that are normal.

mod expected;

pub use expected::{ExpectedRule, ExpectedRules};

use serde::{Deserialize, Serialize};

use crate::arguments::Reading;

/// A layer of the kernel's RDMA stack, outermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// `ib_uverbs`: what system calls reach.
    Uverbs,
    /// `ib_core`.
    Core,
    /// The NIC's driver.
    Driver,
    /// Pinning of user and GPU memory.
    Memory,
    /// Commands to the NIC's firmware.
    Firmware,
    /// Outside of the RDMA modules: a selection may reach it, a hook is never there.
    Kernel,
}

impl Layer {
    /// The name in text outputs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Uverbs => "uverbs",
            Self::Core => "core",
            Self::Driver => "driver",
            Self::Memory => "memory",
            Self::Firmware => "firmware",
            Self::Kernel => "kernel",
        }
    }
}

/// The verb that a hooked function serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// `ibv_alloc_pd`
    AllocPd,
    /// `ibv_reg_mr`
    RegMr,
    /// `ibv_reg_dmabuf_mr`
    RegDmabufMr,
    /// `ibv_create_cq`
    CreateCq,
    /// `ibv_create_qp`
    CreateQp,
    /// `ibv_modify_qp`
    ModifyQp,
    /// `ibv_create_ah`
    CreateAh,
    /// DEVX: create a firmware object past the verbs.
    DevxCreate,
    /// DEVX: modify a firmware object past the verbs.
    DevxModify,
    /// DEVX: register memory past the verbs.
    DevxUmem,
    /// Serves several verbs: a record of it belongs to whatever chain it is in.
    Any,
    /// Not a call: the kernel reports an event of a device, QP or CQ.
    AsyncEvent,
}

impl Verb {
    /// The name in text outputs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::AllocPd => "alloc_pd",
            Self::RegMr => "reg_mr",
            Self::RegDmabufMr => "reg_dmabuf_mr",
            Self::CreateCq => "create_cq",
            Self::CreateQp => "create_qp",
            Self::ModifyQp => "modify_qp",
            Self::CreateAh => "create_ah",
            Self::DevxCreate => "devx_create",
            Self::DevxModify => "devx_modify",
            Self::DevxUmem => "devx_umem",
            Self::Any => "any",
            Self::AsyncEvent => "async_event",
        }
    }
}

/// The verbs object that a hooked function makes or changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Object {
    /// Protection domain.
    Pd,
    /// Memory region.
    Mr,
    /// Completion queue.
    Cq,
    /// Queue pair.
    Qp,
    /// Address handle.
    Ah,
    /// None, or none of the above.
    Other,
}

impl Object {
    /// The name in text outputs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pd => "PD",
            Self::Mr => "MR",
            Self::Cq => "CQ",
            Self::Qp => "QP",
            Self::Ah => "AH",
            Self::Other => "-",
        }
    }
}

/// Why a hook is in the catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// One of the thirteen logical hooks of the reference system.
    Thirteen,
    /// What `ib_core` does between the system call and the driver.
    Core,
    /// Address handles.
    AddressHandle,
    /// The firmware command of a driver.
    Firmware,
    /// DEVX methods.
    Devx,
    /// Asynchronous events.
    AsyncEvent,
}

/// When a place of a hook is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The function that the hook means. It counts as missing when absent.
    #[default]
    Main,
    /// Another way to the same verb (the write() ABI, a newer method): attached
    /// where it exists, not missed where it does not.
    Also,
    /// Serves the hook only where the main functions are gone.
    Instead,
}

/// One kernel function.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// Kernel module, as in /proc/modules. Where the module is built into the
    /// kernel the function is looked up there.
    pub module: String,
    /// Function name.
    pub function: String,
    /// When it is used.
    #[serde(default)]
    pub role: Role,
    /// Its own depth, where it stands further in or out than the hook.
    #[serde(default)]
    pub depth: Option<u8>,
    /// What its records tell, where it takes other arguments than the hook's other
    /// functions.
    #[serde(default)]
    pub arguments: Option<Reading>,
}

/// How a function tells an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Returns {
    /// By a negative number.
    #[default]
    Int,
    /// By an error pointer.
    Pointer,
}

/// One logical hook.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hook {
    /// `layer.verb`, unique.
    pub name: String,
    /// Why it is here.
    pub group: Group,
    /// The verb.
    pub verb: Verb,
    /// The verbs object.
    pub object: Object,
    /// The layer.
    pub layer: Layer,
    /// Distance from user space: 0 is the function that a system call reaches,
    /// larger is further in. Chains move to smaller depths.
    pub depth: u8,
    /// What its records tell of the call's arguments; none: nothing.
    #[serde(default)]
    pub arguments: Option<Reading>,
    /// The functions, when they have fixed names.
    #[serde(default)]
    pub places: Vec<Place>,
    /// The member of `struct ib_device_ops`, when the function is the driver's.
    #[serde(default)]
    pub operation: Option<String>,
    /// How its functions tell an error, for a module that has no BTF to tell it.
    #[serde(default)]
    pub returns: Returns,
    /// A member that newer kernels have beside it, for the calls of user space: a
    /// driver may have either or both.
    #[serde(default)]
    pub user_operation: Option<String>,
}

impl Hook {
    /// A record of this hook ends a chain.
    #[must_use]
    pub fn ends_chain(&self) -> bool {
        self.depth == 0 && self.layer == Layer::Uverbs
    }

    /// The hook reports events and not failures: every call leaves a record.
    #[must_use]
    pub fn is_event(&self) -> bool {
        self.group == Group::AsyncEvent
    }
}

/// The whole catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Catalogue {
    /// All logical hooks, in the order of the file.
    pub hooks: Vec<Hook>,
    /// Modules that use ib_core and are no drivers.
    pub not_drivers: Vec<String>,
}

/// The catalogue's text cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// Not the expected TOML.
    #[error("catalogue: {0}")]
    Syntax(#[from] toml::de::Error),
    /// A rule of the catalogue is broken.
    #[error("catalogue: hook {hook}: {rule}")]
    Rule {
        /// Name of the hook.
        hook: String,
        /// What is wrong.
        rule: &'static str,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    not_drivers: Vec<String>,
    hook: Vec<Hook>,
}

impl Catalogue {
    /// The catalogue that is compiled in.
    ///
    /// # Errors
    /// Never for a released binary: a test parses it.
    pub fn built_in() -> Result<Self, CatalogueError> {
        Self::parse(include_str!("hooks.toml"))
    }

    /// Members of `struct ib_device_ops` that hooks ask for.
    pub fn operations(&self) -> impl Iterator<Item = &str> {
        self.hooks.iter().flat_map(|h| {
            let user = h.user_operation.as_deref();
            h.operation.as_deref().into_iter().chain(user)
        })
    }

    /// Modules that hooks name.
    pub fn modules(&self) -> impl Iterator<Item = &str> {
        self.hooks
            .iter()
            .flat_map(|h| &h.places)
            .map(|p| p.module.as_str())
    }

    /// Reads a catalogue.
    ///
    /// # Errors
    /// The text is not TOML of this shape, or a hook has no way to be found, or
    /// two of them, or its name twice.
    pub fn parse(text: &str) -> Result<Self, CatalogueError> {
        let file: File = toml::from_str(text)?;
        let mut names = std::collections::HashSet::new();
        for hook in &file.hook {
            let rule = match (&hook.operation, hook.places.is_empty()) {
                _ if !names.insert(hook.name.as_str()) => "name occurs twice",
                _ if hook.layer == Layer::Kernel => "is in no layer of RDMA",
                (Some(_), false) => "has both `places` and `operation`",
                (None, true) => "has neither `places` nor `operation`",
                (None, _) if hook.user_operation.is_some() => {
                    "has `user_operation` without `operation`"
                }
                _ => continue,
            };
            return Err(CatalogueError::Rule {
                hook: hook.name.clone(),
                rule,
            });
        }
        Ok(Self {
            hooks: file.hook,
            not_drivers: file.not_drivers,
        })
    }
}

#[cfg(test)]
mod tests;
