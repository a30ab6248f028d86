//! The running tracer: from the kernel's events to snapshots on the uplink, the
//! tracer's own gRPC service, and its metrics.

mod arguments;
mod baselines;
mod cost;
mod feed;
mod figures;
mod grpc;
mod kernel;
mod offering;
mod orders;
mod pipeline;
mod probe_report;
mod run;
mod text;
mod uevents;

#[cfg(test)]
mod tests;

pub use feed::{Feed, FeedFull, SUBSCRIBER_EVENTS, SUBSCRIBERS, Subscription};
pub use figures::Figures;
pub use grpc::Tracer as TracerGrpc;
pub use kernel::{Kernel, LiveKernel};
pub use orders::{Done, NotDone, Order, Orders, Wish, orders};
pub use pipeline::{Outputs, Pipeline, Settings};
pub use probe_report::{obstacle, probe_report};
pub use run::{SETTLE, SLOW_SCAN, run};
pub use text::{failure_json, failure_line, report_json, report_table};
pub use uevents::Uevents;
