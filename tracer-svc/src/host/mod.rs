//! What the host is: its RDMA devices, and the inventory that a diagnosis
//! compares hosts by.
//!
//! Everything is read from /proc and /sys below roots that tests replace;
//! nothing is started, written or changed.

mod acs;
mod devices;
mod inventory;
mod kernel;
mod memory;
mod nldev;
mod roots;

#[cfg(test)]
mod tests;

pub use devices::{DeviceFacts, Devices};
pub use inventory::{Inventories, Inventory, scan};
pub use nldev::{DriverNames, driver_names};
pub use roots::Roots;
pub(crate) use roots::{names, number, text};
