//! Who speaks, validated.

use rdmesh_proto::collector::v1::Hello;
use rdmesh_proto::common::v1::AgentKind;
use rdmesh_store::ingest::RunKey;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::attempt::{self, BadRequest};
use crate::clock::Reading;
use crate::ingest::limits::SHORT_TEXT_MAX_BYTES;
use crate::ingest::timeline::reading;
use crate::times;

/// A run of an agent, as it introduces itself.
#[derive(Debug, Clone)]
pub(crate) struct Introduction {
    pub(crate) run: RunKey,
    pub(crate) kind: AgentKind,
    pub(crate) boot_id: String,
    pub(crate) version: String,
    pub(crate) address: String,
    pub(crate) started_at: Option<OffsetDateTime>,
    pub(crate) reading: Option<Reading>,
}

impl TryFrom<&Hello> for Introduction {
    type Error = BadRequest;

    fn try_from(hello: &Hello) -> Result<Self, BadRequest> {
        let kind = match hello.agent() {
            AgentKind::Unspecified => {
                let problem = format!("is {}; say tracer or shaper", hello.agent);
                return Err(BadRequest::new("hello.agent", problem));
            }
            kind => kind,
        };
        let run_id = Uuid::parse_str(&hello.run_id).map_err(|_| {
            let problem = format!("is {:?}; write a UUID in text form", hello.run_id);
            BadRequest::new("hello.run_id", problem)
        })?;
        let clock = hello.clock.as_ref();
        let reading = clock
            .map(|clock| reading(Some(clock)))
            .transpose()
            .map_err(|refusal| BadRequest::new("hello.clock", format!("is no pair: {refusal}")))?;
        let short = |field, text| attempt::text(field, text, SHORT_TEXT_MAX_BYTES);
        Ok(Self {
            run: RunKey {
                host: attempt::host("hello.host", &hello.host)?,
                agent: i16::try_from(i32::from(kind)).unwrap_or(0),
                run_id,
            },
            kind,
            boot_id: short("hello.boot_id", &hello.boot_id)?,
            version: short("hello.version", &hello.version)?,
            address: short("hello.address", &hello.address)?,
            started_at: times::optional("hello.started_at", hello.started_at.as_ref())?,
            reading,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            agent: AgentKind::Tracer.into(),
            host: "gpu-01".into(),
            run_id: "6f1f4e4e-8a52-4b53-9c0a-0a0f9a6d7c11".into(),
            ..Hello::default()
        }
    }

    #[test]
    fn a_hello_needs_kind_host_and_run() {
        assert!(Introduction::try_from(&hello()).is_ok());
        for (broken, field) in [
            (
                Hello {
                    agent: 0,
                    ..hello()
                },
                "hello.agent",
            ),
            (
                Hello {
                    agent: 99,
                    ..hello()
                },
                "hello.agent",
            ),
            (
                Hello {
                    host: String::new(),
                    ..hello()
                },
                "hello.host",
            ),
            (
                Hello {
                    host: "../x".into(),
                    ..hello()
                },
                "hello.host",
            ),
            (
                Hello {
                    run_id: "7".into(),
                    ..hello()
                },
                "hello.run_id",
            ),
            (
                Hello {
                    version: "v".repeat(300),
                    ..hello()
                },
                "hello.version",
            ),
        ] {
            let refused = Introduction::try_from(&broken).unwrap_err().to_string();
            assert!(refused.starts_with(field), "{refused}");
        }
    }
}
