//! Who a failing task is: its attempt and rank, from the environment, the
//! cgroup path, or nothing; with the source.
//!
//! Of an environment only the names of an allow-list are looked at; nothing
//! else of it is kept, logged or sent.

mod attempt;
mod cgroup_path;
mod cgroups;
mod environment;
mod lru;
mod process;
mod registry;

pub use attempt::{Attempt, JOB_ID_BYTES, RefusedValue, Source};
pub use cgroup_path::job_id_of_cgroup_path;
pub use cgroups::{CgroupInfo, Cgroups, Hierarchy};
pub use environment::{EnvironmentReader, FromEnvironment};
pub use process::{ProcessReader, ReadProcessError};
pub use registry::{Refusals, Registry, Who};
