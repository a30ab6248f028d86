//! Everything that needs hosts: one program for all of them, since linking is what
//! costs most of a cold build.

mod arguments;
mod attached;
mod end_to_end;
mod guest;
mod layouts;
mod odd;
mod probes;
mod reload;
mod schedulers;
mod select;
mod selection;
mod tracer;
mod verbs;
mod wires;
