//! The data path: ports, wires, and the loop that moves frames between them.

mod clock;

pub use clock::{Clock, ManualClock, MonotonicClock, TickScale};
