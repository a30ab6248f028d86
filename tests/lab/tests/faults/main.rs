//! Forty rounds of faults; `make faults` runs two hundred.
#![allow(missing_docs)]

use rdmesh_lab::faults;

/// All kinds of faults four times.
const ROUNDS: usize = 40;

#[tokio::test(flavor = "multi_thread")]
async fn every_snapshot_is_stored_once_whatever_fails() {
    let seed = match std::env::var("SEED") {
        Ok(seed) => seed.parse().expect("SEED is a number"),
        Err(_) => u64::from(std::process::id()),
    };
    let outcome = faults::run(seed, ROUNDS, |line| println!("{line}")).await;
    let outcome = outcome.unwrap_or_else(|error| panic!("{error:#}"));
    println!("{outcome:?}");
    assert_eq!(outcome.rounds, ROUNDS);
    assert!(outcome.slowest_recovery < faults::RECOVERED_WITHIN);
    assert!(outcome.found.stored > 1_000, "{outcome:?}");
}
