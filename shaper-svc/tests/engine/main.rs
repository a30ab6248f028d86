//! Properties of the engine. A failing case prints its seed and its smallest form,
//! and is kept beside this file; `PROPTEST_RNG_SEED=<n>` runs a chosen seed.

mod invariants;
mod model;
mod naive;
mod regressions;
