//! One program on one function, for measuring what a traced call costs: ours, and
//! what it is compared with.

use std::os::fd::{AsFd, OwnedFd};

use aya_obj::generated::bpf_insn;

use crate::btf::{Blob, Types};
use crate::catalogue::Catalogue;

use super::arch::RETURN_REGISTER_OFFSET;
use super::entry::instruction;
use super::sys::{self, Refusal, Target};
use super::{Events, LoadError, Options, Tracer, btf_error, host, kernel_types, perf};

/// What is put on the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Peer {
    /// The probe of the catalogue, as it is always loaded.
    Own,
    /// A fexit program that does nothing.
    EmptyFexit,
    /// A kretprobe that loads the return value, compares it and returns.
    Kretprobe,
}

/// What is attached; dropping it takes it off.
#[derive(Debug)]
pub enum Priced {
    /// A link or an event.
    Held(OwnedFd),
    /// A tracer with one hook, and what its rings bring.
    Tracing(Box<(Tracer, Events)>),
}

/// Puts a program on one function of a module.
///
/// # Errors
/// The kernel refused it, or the function is not there.
pub fn attach_one(module: &str, function: &str, peer: Peer) -> Result<Priced, LoadError> {
    match peer {
        Peer::Own => own(module, function),
        Peer::EmptyFexit => empty_fexit(module, function).map(Priced::Held),
        Peer::Kretprobe => kretprobe(function).map(Priced::Held),
    }
}

/// Takes every probe off but the one that is asked for.
fn own(module: &str, function: &str) -> Result<Priced, LoadError> {
    let catalogue = Catalogue::built_in().map_err(|error| LoadError::Program(error.to_string()))?;
    let (mut tracer, events) = Tracer::start(catalogue, &Options::default())?;
    let probes = tracer.report.probes.iter();
    let wanted = probes
        .clone()
        .find(|probe| probe.module == module && probe.function == function)
        .map(|probe| probe.id);
    let Some(wanted) = wanted.filter(|id| tracer.links.contains_key(id)) else {
        return Err(LoadError::Program(format!(
            "no probe on {module}:{function}; tracer-svc probes says why"
        )));
    };
    tracer.links.retain(|id, _| *id == wanted);
    Ok(Priced::Tracing(Box::new((tracer, events))))
}

fn empty_fexit(module: &str, function: &str) -> Result<OwnedFd, LoadError> {
    let kernel = kernel_types()?;
    let bytes =
        host::module_btf(module)?.ok_or_else(|| btf_error(module, "the module has none"))?;
    let blob = Blob::parse(bytes, Some(&kernel)).map_err(|error| btf_error(module, error))?;
    let types = Types::split(&kernel, &blob);
    let mut id = None;
    for found in types.own_functions() {
        let (name, found) = found.map_err(|error| btf_error(module, error))?;
        if name == function.as_bytes() {
            id = Some(found);
        }
    }
    let id = id.ok_or_else(|| btf_error(module, format!("no function {function}")))?;
    let all = sys::kernel_btfs().map_err(|error| btf_error(module, error))?;
    let of_module = all.iter().find(|btf| btf.name == module);
    let of_module = of_module.ok_or_else(|| btf_error(module, "not loaded"))?;
    let target = Target::Fexit(id, Some(of_module.fd.as_fd()));
    let program =
        sys::load_program("empty", &empty(), target).map_err(|refusal| refused(&refusal))?;
    sys::attach(program.as_fd()).map_err(|error| LoadError::Program(error.to_string()))
}

fn kretprobe(function: &str) -> Result<OwnedFd, LoadError> {
    let program = sys::load_program("kretprobe", &compare(), Target::Kprobe)
        .map_err(|refusal| refused(&refusal))?;
    perf::attach_kretprobe(perf::At::Name(function), program.as_fd())
        .map_err(|error| LoadError::Program(format!("kretprobe on {function}: {error}")))
}

fn refused(refusal: &Refusal) -> LoadError {
    LoadError::Program(format!("{}: {}", refusal.error, refusal.log))
}

/// return 0
fn empty() -> [bpf_insn; 2] {
    [instruction(0xb4, 0, 0, 0, 0), instruction(0x95, 0, 0, 0, 0)]
}

/// The body of our probes' success path: load, compare, return.
fn compare() -> [bpf_insn; 6] {
    [
        // r2 = the return value; if (u32)r2 < -4095 return 0
        instruction(0x79, 2, 1, RETURN_REGISTER_OFFSET, 0),
        instruction(0xa6, 2, 0, 2, -4095),
        // An error: a longer way to the same end.
        instruction(0xb4, 0, 0, 0, 1),
        instruction(0x95, 0, 0, 0, 0),
        instruction(0xb4, 0, 0, 0, 0),
        instruction(0x95, 0, 0, 0, 0),
    ]
}
