//! What kind of line it is, and whether it may decide.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Serialize, Serializer};

/// What a line is evidence of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// A verb or another call of the RDMA control path failed.
    Syscall,
    /// Something could not be given back: a consequence or harmless.
    Cleanup,
    /// The fabric, a port or a route.
    Network,
    /// Local or remote protection and access errors: PCIe ACS, stale
    /// registrations; not the network.
    MemoryAccess,
    /// A NIC that reports a fatal event.
    Device,
    /// A GPU or its driver.
    Gpu,
    /// Host or GPU memory ran out.
    Oom,
    /// Configuration of the job, container or host.
    Config,
    /// Something waited until a limit ran out.
    Hang,
    /// The consequence of an error that another line or rank tells.
    FollowOn,
    /// Nothing can be told from it.
    CannotTell,
}

impl Class {
    /// Every class, in the order in which counts are shown.
    pub const ALL: [Class; 11] = [
        Class::Syscall,
        Class::Network,
        Class::MemoryAccess,
        Class::Device,
        Class::Gpu,
        Class::Oom,
        Class::Config,
        Class::Hang,
        Class::Cleanup,
        Class::FollowOn,
        Class::CannotTell,
    ];

    /// The name in rules, JSON and SQL.
    pub const fn name(self) -> &'static str {
        match self {
            Class::Syscall => "syscall",
            Class::Cleanup => "cleanup",
            Class::Network => "network",
            Class::MemoryAccess => "memory_access",
            Class::Device => "device",
            Class::Gpu => "gpu",
            Class::Oom => "oom",
            Class::Config => "config",
            Class::Hang => "hang",
            Class::FollowOn => "follow_on",
            Class::CannotTell => "cannot_tell",
        }
    }

    /// Whether a line of this class can be the cause of anything.
    pub const fn is_root(self) -> bool {
        !matches!(self, Class::Cleanup | Class::FollowOn | Class::CannotTell)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A text that names no class.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no class; write one of syscall, cleanup, network, memory_access, device, gpu, oom, config, hang, follow_on, cannot_tell"
)]
pub struct ClassError(String);

impl FromStr for Class {
    type Err = ClassError;

    fn from_str(text: &str) -> Result<Class, ClassError> {
        Class::ALL
            .into_iter()
            .find(|class| class.name() == text)
            .ok_or_else(|| ClassError(text.to_owned()))
    }
}

/// What a verb does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Makes an object.
    Create,
    /// Registers memory.
    Register,
    /// Moves an object to another state.
    Modify,
    /// Posts or polls: the data path, which enters no kernel.
    Data,
    /// Gives something back.
    Cleanup,
    /// Asks only.
    ReadOnly,
}

impl Kind {
    /// The class of a failure of such a verb.
    pub const fn class(self) -> Class {
        match self {
            Kind::Cleanup => Class::Cleanup,
            _ => Class::Syscall,
        }
    }

    /// The name in rules and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Create => "create",
            Kind::Register => "register",
            Kind::Modify => "modify",
            Kind::Data => "data",
            Kind::Cleanup => "cleanup",
            Kind::ReadOnly => "read_only",
        }
    }

    /// The kind of that name.
    pub fn from_name(text: &str) -> Option<Kind> {
        [
            Kind::Create,
            Kind::Register,
            Kind::Modify,
            Kind::Data,
            Kind::Cleanup,
            Kind::ReadOnly,
        ]
        .into_iter()
        .find(|kind| kind.name() == text)
    }
}

/// Where no time decides: whether a line tells what broke, or what others saw of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Turn {
    /// Something broke where the line was written.
    Broke,
    /// The other end gave no answer: a completion whose retries ran out, a connection
    /// that came to nothing. The end that broke tells more.
    NoAnswer,
    /// Something waited for others until a limit ran out.
    Waited,
}

impl Turn {
    /// Of a line of that class about that verb.
    pub fn of(class: Class, verb: Option<&str>) -> Turn {
        match (class, verb) {
            (Class::Hang, _) => Turn::Waited,
            (Class::Network, Some("poll_cq" | "connect" | "socket connect")) => Turn::NoAnswer,
            _ => Turn::Broke,
        }
    }
}

/// How much a line weighs when a summary is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Weight {
    /// Never decides: consequences, clean-up, read-only calls, generic lines.
    Never,
    /// Decides only where nothing else does: retries, notices.
    Weak,
    /// A cause.
    Root,
}

/// Name of a rule; cheap to copy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId(Arc<str>);

impl RuleId {
    /// The rule of that name.
    pub fn new(name: &str) -> RuleId {
        RuleId(Arc::from(name))
    }
}

impl Deref for RuleId {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for RuleId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for class in Class::ALL {
            assert_eq!(class.name().parse::<Class>(), Ok(class));
            assert_eq!(
                serde_json::to_value(class).unwrap(),
                serde_json::json!(class.name())
            );
        }
        assert!("flush".parse::<Class>().is_err());
    }

    #[test]
    fn causes_come_before_what_others_saw_of_them() {
        let port = Turn::of(Class::Network, Some("async event"));
        let retries = Turn::of(Class::Network, Some("poll_cq"));
        let waited = Turn::of(Class::Hang, Some("watchdog"));
        assert!(port == Turn::of(Class::Oom, None) && port < retries && retries < waited);
    }

    #[test]
    fn consequences_are_no_roots() {
        assert!(!Class::FollowOn.is_root() && !Class::Cleanup.is_root());
        assert!(Class::Hang.is_root() && Class::Syscall.is_root());
    }
}
