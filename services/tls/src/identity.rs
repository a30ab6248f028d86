//! Names of those who speak: `rdmesh://SITE/ROLE/NAME`, a URI in the certificate's subject
//! alternative names.

use std::fmt;
use std::str::FromStr;

/// How each identity begins.
pub const SCHEME: &str = "rdmesh://";

/// Longest site or name, bytes: a name of DNS.
pub const MAX_NAME_BYTES: usize = 253;

/// What somebody is in the mesh; [`crate::rights`] says what follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// A tracer or a shaper: reports for its own host.
    Agent,
    /// Tells of jobs.
    Scheduler,
    /// May do everything.
    Operator,
    /// Reads.
    Reader,
    /// A collector.
    Collector,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Agent,
        Self::Scheduler,
        Self::Operator,
        Self::Reader,
        Self::Collector,
    ];

    /// As it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Scheduler => "scheduler",
            Self::Operator => "operator",
            Self::Reader => "reader",
            Self::Collector => "collector",
        }
    }

    /// Whether others connect to it.
    #[must_use]
    pub fn serves(self) -> bool {
        matches!(self, Self::Agent | Self::Collector)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a text is no identity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// It has another form.
    #[error("{0:?} is no identity; one is written rdmesh://SITE/ROLE/NAME")]
    Form(String),
    /// The role does not exist.
    #[error("{0:?} is no role; there are agent, scheduler, operator, reader and collector")]
    Role(String),
    /// A site or a name with bytes that it may not have.
    #[error(
        "{0:?} is no name: 1 to {MAX_NAME_BYTES} letters, digits, '.', '_' and '-', a letter or a \
         digit first"
    )]
    Name(String),
}

impl FromStr for Role {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let found = Self::ALL.into_iter().find(|role| role.as_str() == text);
        found.ok_or_else(|| IdentityError::Role(shown(text)))
    }
}

/// Refuses what is no name of a site, a host or a person: it stands in URIs, file names and
/// log lines.
///
/// # Errors
/// [`IdentityError::Name`].
pub fn check_name(text: &str) -> Result<(), IdentityError> {
    let first_is_fine = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    let rest_is_fine = text
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    if first_is_fine && rest_is_fine && text.len() <= MAX_NAME_BYTES {
        return Ok(());
    }
    Err(IdentityError::Name(shown(text)))
}

/// Short enough for a message.
fn shown(text: &str) -> String {
    text.chars().take(80).collect()
}

/// Who somebody is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The mesh to which it belongs.
    pub site: String,
    /// What it is.
    pub role: Role,
    /// Its name: of an agent the host, as the agent reports it.
    pub name: String,
}

impl Identity {
    /// Checks the parts.
    ///
    /// # Errors
    /// [`IdentityError::Name`].
    pub fn new(site: &str, role: Role, name: &str) -> Result<Self, IdentityError> {
        check_name(site)?;
        check_name(name)?;
        Ok(Self {
            site: site.to_owned(),
            role,
            name: name.to_owned(),
        })
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { site, role, name } = self;
        write!(f, "{SCHEME}{site}/{role}/{name}")
    }
}

impl FromStr for Identity {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let form = || IdentityError::Form(shown(text));
        let mut parts = text.strip_prefix(SCHEME).ok_or_else(form)?.split('/');
        let mut part = || parts.next().ok_or_else(form);
        let (site, role, name) = (part()?, part()?, part()?);
        if parts.next().is_some() {
            return Err(form());
        }
        Self::new(site, role.parse()?, name)
    }
}

/// Somebody whose certificate was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Who it is.
    pub identity: Identity,
    /// Hosts of which an agent may report: its own, then those that its certificate names
    /// beside it. Empty for others.
    pub hosts: Vec<String>,
    /// When its certificate ends, seconds since 1970.
    pub not_after: i64,
}

impl Peer {
    /// Whether it is an agent that may say what happens on `host`.
    #[must_use]
    pub fn speaks_for(&self, host: &str) -> bool {
        self.hosts.iter().any(|own| own == host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_read_back_as_written() {
        for role in Role::ALL {
            let identity = Identity::new("site-a.example", role, "gpu-01_b.x").unwrap();
            assert_eq!(identity.to_string().parse(), Ok(identity));
        }
    }

    #[test]
    fn other_texts_are_refused_with_what_to_write() {
        for (bad, words) in [
            ("", "rdmesh://SITE/ROLE/NAME"),
            ("rdmesh://a/agent", "rdmesh://SITE/ROLE/NAME"),
            ("rdmesh://a/agent/b/c", "rdmesh://SITE/ROLE/NAME"),
            ("spiffe://a/agent/b", "rdmesh://SITE/ROLE/NAME"),
            ("rdmesh://a/root/b", "no role"),
            ("rdmesh://a/Agent/b", "no role"),
            ("rdmesh:///agent/b", "no name"),
            ("rdmesh://a/agent/", "no name"),
            ("rdmesh://a/agent/..", "no name"),
            ("rdmesh://a/agent/-x", "no name"),
            ("rdmesh://a/agent/a b", "no name"),
            ("rdmesh://a/agent/x%2fy", "no name"),
            ("rdmesh://a/agent/x'; DROP TABLE y", "no name"),
            ("rdmesh://a/agent/ü", "no name"),
        ] {
            let message = bad.parse::<Identity>().unwrap_err().to_string();
            assert!(message.contains(words), "{bad}: {message}");
        }
        let long = format!("rdmesh://a/agent/{}", "x".repeat(254));
        let message = long.parse::<Identity>().unwrap_err().to_string();
        assert!(message.len() < 250, "{message}");
    }
}
