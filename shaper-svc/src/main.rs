//! `shaper-svc`.

fn main() {}
