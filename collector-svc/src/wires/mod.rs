//! `rdmesh.collector.v1.WireService`: every shaped wire of the fleet in one place.
//!
//! What is listed, watched and compared comes from the store; what changes a wire is done
//! by its shaper, which is dialled for each call at the address of its Hello.

mod ask;
mod compare;
mod figures;
mod list;
mod select;
mod service;
mod watch;

pub(crate) use ask::Dialer;
pub use figures::WireFigures;
pub use service::Wires;
