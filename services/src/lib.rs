//! What every rdmesh service needs: configuration, telemetry, a gRPC server with
//! health and reflection, an orderly end, and the agents' uplink to the collector.
//!
//! This crate never knows a domain: it moves snapshots and windows without
//! looking into them, and no rule about failures, wires or jobs lives here.
//!
//! | module | what a service takes from it |
//! |---|---|
//! | [`config`] | one structure from file, environment and flags |
//! | [`telemetry`] | logs, OTLP metrics, the process's own cost |
//! | [`server`] | a tonic server with health, reflection and limits |
//! | [`shutdown`] | signals and the sequence in which a service ends |
//! | [`tls`] | certificates of a service, kept fresh; what is allowed without |
//! | [`uplink`] | the agents' ingest client |
//! | [`host`] | host name, boot id, clock pair |
//! | [`causes`] | an error and its causes as one line |
#![forbid(unsafe_code)]

pub mod causes;
pub mod config;
pub mod host;
pub mod server;
pub mod shutdown;
pub mod telemetry;
pub mod tls;
pub mod uplink;

/// The version of this build, as `Hello`, `--version` and `service.version` tell it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
