//! The wire contract of rdmesh: the types generated from `proto/rdmesh/**`, the file
//! descriptor set that reflection serves, and how errnos and line rates are written.
//!
//! This crate holds what the `.proto` files say and never a rule of its own:
//! validation lives with whoever receives a message.

// Generated code carries the comments of the .proto files where there are any.
#![allow(missing_docs, unreachable_pub)]
#![allow(clippy::all, clippy::pedantic)]

pub mod errno;
pub mod rate;

/// The file descriptor set of every package below, encoded.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/rdmesh.fds"));

/// Words that every part of rdmesh shares.
pub mod common {
    /// Package `rdmesh.common.v1`.
    pub mod v1 {
        tonic::include_proto!("rdmesh.common.v1");
    }
}

/// What agents on GPU hosts see and serve.
pub mod tracer {
    /// Package `rdmesh.tracer.v1`.
    pub mod v1 {
        tonic::include_proto!("rdmesh.tracer.v1");
    }
}

/// What agents on DPUs do and serve.
pub mod shaper {
    /// Package `rdmesh.shaper.v1`.
    pub mod v1 {
        tonic::include_proto!("rdmesh.shaper.v1");
    }
}

/// What the collector takes and answers.
pub mod collector {
    /// Package `rdmesh.collector.v1`.
    pub mod v1 {
        tonic::include_proto!("rdmesh.collector.v1");
    }
}
