//! The data path: ports, wires, and the loop that moves frames between them.
//!
//! ```text
//!            Latest: orders              Mailbox: windows
//!  service ───────────────────> WireLink ───────────────────> service
//!                                  │
//!  in port ─ receive, classify ─> Route: engine::Wire ─ peek, transmit, commit ─> out port
//! ```
//!
//! [`DataPath::turn`] is the whole of it; [`DataPath::run`] repeats it on a thread.

mod clock;
mod gaps;
pub mod handoff;
mod link;
mod marking;
mod memory;
mod order;
mod relay;
mod repeats;
mod route;
mod window;

pub use clock::{Clock, ManualClock, MonotonicClock, TickScale};
pub use gaps::GAP_BUCKETS;
pub use link::{ThreadLink, WireLink};
pub use marking::Marking;
pub use memory::{
    FEWER_FRAMES, HUGE_PAGE_BYTES, POOL_CACHE, PoolPlan, TooLittleMemory, buffer_page_bytes,
    check_memory, on_pages,
};
pub use order::Order;
pub use relay::{DataPath, DataPathError, Pacing};
pub use repeats::{REPEATED_QPS, Repeated};
pub use route::{RouteConfig, wire_memory_bytes};
pub use window::WindowCounts;
