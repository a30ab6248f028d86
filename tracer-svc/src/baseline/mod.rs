//! What calls that succeed do in the kernel, and the place where one that fails parts
//! from them.
//!
//! For a short window every function that an entry point reaches is watched. Successful
//! calls become a [`Tree`]: which functions they call under which, and how these return.
//! [`fork`] lays a failing call beside it and names the function whose return good calls
//! do not have. An error that good calls have too (a look-up that finds nothing) is normal.
//!
//! Pure: moments in, traces and trees out. It never says why a call failed.

mod fork;
mod shown;
mod signature;
mod trace;
mod tree;

pub use fork::{Fork, fork};
pub use shown::shows;
pub use signature::{Signature, signature};
pub use trace::{MAX_DEPTH, Moment, Outcome, Step, Trace, Watched, Weaver, What};
pub use tree::{Added, GOOD_WITHIN_NS, Key, Node, SCHEMA, Tree, TreeError};

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
