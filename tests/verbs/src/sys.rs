//! Declarations made by bindgen; no policy, nothing written by hand.

#![allow(
    unsafe_code,
    missing_docs,
    unreachable_pub,
    dead_code,
    clippy::all,
    clippy::pedantic
)]
#![allow(non_camel_case_types, non_upper_case_globals, non_snake_case)]
#![allow(
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block
)]
#![allow(unsafe_op_in_unsafe_fn, unnecessary_transmutes)]

include!(concat!(env!("OUT_DIR"), "/verbs.rs"));
