//! Rebuilds when a migration changes: they are embedded in the library.

fn main() {
    println!("cargo::rerun-if-changed=migrations");
}
