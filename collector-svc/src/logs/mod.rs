//! Jobs' own logs: taken as a stream, read once, and forgotten but for what they say.
//!
//! | module | what it does |
//! |---|---|
//! | `intake` | the stream: bounds, places, what becomes of a log that ends early |
//! | `reading` | bytes to a summary, on a thread of its own, in constant memory |
//! | `kept` | what is stored of a summary, and what the contract has of it |

mod intake;
pub(crate) mod kept;
mod reading;

pub(crate) use intake::Intake;
