//! Tests on real kernels that take minutes: `make probes` runs them all, `make test` one.

mod forks;
