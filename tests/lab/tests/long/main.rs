//! Tests on real kernels that take minutes: `make probes` runs them.

mod automatic;
mod forks;
