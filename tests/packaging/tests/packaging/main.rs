//! What a site installs.

mod configuration;
mod manifests;
mod units;
