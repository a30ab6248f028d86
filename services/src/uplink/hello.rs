//! Who speaks.

use std::time::SystemTime;

use rdmesh_proto::collector::v1::Hello;
use rdmesh_proto::common::v1::AgentKind;

use crate::host;

/// What stays the same in each Hello of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Identity {
    /// Tracer or shaper.
    pub agent: AgentKind,
    /// The host's name as schedulers know it.
    pub host: String,
    /// The id of the boot.
    pub boot_id: String,
    /// The id of this run of the process: a random UUID.
    pub run_id: String,
    /// The agent's version.
    pub version: String,
    /// Where the agent's own service can be dialled, `host:port`; empty: nowhere.
    pub address: String,
    /// When the process started.
    pub started_at: SystemTime,
}

impl Identity {
    /// An identity with a fresh run id, this build's version, and no address.
    #[must_use]
    pub fn new(agent: AgentKind, host: String, boot_id: String) -> Self {
        Self {
            agent,
            host,
            boot_id,
            run_id: uuid::Uuid::new_v4().to_string(),
            version: crate::VERSION.to_owned(),
            address: String::new(),
            started_at: SystemTime::now(),
        }
    }

    /// A Hello with the clocks as they stand now.
    #[must_use]
    pub fn hello(&self) -> Hello {
        Hello {
            agent: self.agent.into(),
            host: self.host.clone(),
            boot_id: self.boot_id.clone(),
            run_id: self.run_id.clone(),
            version: self.version.clone(),
            address: self.address.clone(),
            started_at: Some(self.started_at.into()),
            clock: Some(host::clock_pair()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_differ_and_a_run_keeps_its_id() {
        let one = Identity::new(AgentKind::Tracer, "h".into(), "b".into());
        let two = Identity::new(AgentKind::Tracer, "h".into(), "b".into());
        assert_ne!(one.run_id, two.run_id);
        let (first, second) = (one.hello(), one.hello());
        assert_eq!(first.run_id, second.run_id);
        assert_eq!(first.agent(), AgentKind::Tracer);
        let boottime = |h: &Hello| h.clock.map(|c| c.boottime_ns);
        assert!(boottime(&second) > boottime(&first));
    }
}
