//! The compiled program and its maps.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use aya::Endianness;
use aya::maps::{Array, Map, MapData};
use aya_obj::Object;
use aya_obj::btf::Btf;
use aya_obj::generated::bpf_insn;

use crate::arguments::{self, Program};
use crate::btf::{BtfError, Types, cut};

use super::{LoadError, Options};

/// Probes of one tracer at most: `MAX_PROBES` of `bpf/probes.bpf.c`.
pub(super) const MAX_PROBES: u32 = 512;

/// The program that stands for the entries that the loader writes.
const ENTRY: &str = "entry";
/// The program that stands for the entries below kretprobes.
const RETURNED: &str = "returned";
/// The program that copies kernel memory.
const COPY_KERNEL: &str = "copy_kernel";

/// The parsed program, not yet fitted to a kernel.
pub(super) struct Template {
    object: Object,
    /// The types that it was compiled with.
    pub(super) program: Program,
    /// Structs, unions and enums that the program reads.
    pub(super) names: BTreeSet<Vec<u8>>,
}

/// The kernel's maps by name.
pub(super) type Maps = BTreeMap<String, MapData>;
/// Descriptors of the maps by name, for fitting programs of modules that load
/// later.
pub(super) type MapFds = BTreeMap<String, OwnedFd>;

/// Second descriptors of all maps.
pub(super) fn duplicate(maps: &Maps) -> Result<MapFds, LoadError> {
    let mut out = MapFds::new();
    for (name, map) in maps {
        let fd = map.fd().as_fd().try_clone_to_owned();
        out.insert(name.clone(), fd.map_err(|error| map_error(name, &error))?);
    }
    Ok(out)
}

/// An array map by name.
pub(super) fn open_array<V: aya::Pod>(
    fds: &MapFds,
    name: &str,
) -> Result<Array<MapData, V>, LoadError> {
    let fd = fds
        .get(name)
        .ok_or_else(|| program_error(format!("no map {name} in the object")))?;
    let fd = fd.try_clone().map_err(|error| map_error(name, &error))?;
    let map = MapData::from_fd(fd).map_err(|error| map_error(name, &error))?;
    Array::try_from(Map::Array(map)).map_err(|error| map_error(name, &error))
}

fn map_error(name: &str, error: &dyn std::error::Error) -> LoadError {
    LoadError::Map {
        map: name.to_owned(),
        error: error
            .source()
            .map_or(error.to_string(), ToString::to_string),
    }
}

fn program_error(error: impl std::fmt::Display) -> LoadError {
    LoadError::Program(error.to_string())
}

impl Template {
    pub(super) fn parse() -> Result<Self, LoadError> {
        let object = Object::parse(arguments::object()).map_err(program_error)?;
        let program = Program::embedded().map_err(program_error)?;
        let names = program.names().cloned().collect();
        Ok(Self {
            object,
            program,
            names,
        })
    }

    /// Makes every map, with the sizes of `options`.
    pub(super) fn create_maps(&self, options: &Options) -> Result<Maps, LoadError> {
        let mut maps = Maps::new();
        for (name, definition) in &self.object.maps {
            let entries = match name.as_str() {
                "records" => options.ring_bytes,
                "counts" => options.errno_entries,
                "cgroup_counts" => options.cgroup_entries,
                _ => definition.max_entries(),
            };
            // Without the types of key and value, which would need a BTF in the
            // kernel and serve only bpftool.
            let plain = aya_obj::Map::new_from_params(
                definition.map_type(),
                definition.key_size(),
                definition.value_size(),
                entries,
                definition.map_flags(),
            );
            let map =
                MapData::create(plain, name, None).map_err(|error| map_error(name, &error))?;
            maps.insert(name.clone(), map);
        }
        Ok(maps)
    }

    /// What follows the entry in every probe of one module: `failed()`, fitted to
    /// the layouts that the module was built with.
    pub(super) fn probe_body(
        &self,
        maps: &MapFds,
        types: &Types<'_>,
        ids: &BTreeMap<Vec<u8>, u32>,
    ) -> Result<Vec<bpf_insn>, FitError> {
        self.body(ENTRY, maps, types, ids)
    }

    /// What follows the entry below every kretprobe: `failed_return()`, which reads
    /// types of the kernel alone.
    pub(super) fn return_body(
        &self,
        maps: &MapFds,
        kernel: &Types<'_>,
        ids: &BTreeMap<Vec<u8>, u32>,
    ) -> Result<Vec<bpf_insn>, FitError> {
        self.body(RETURNED, maps, kernel, ids)
    }

    fn body(
        &self,
        program: &str,
        maps: &MapFds,
        types: &Types<'_>,
        ids: &BTreeMap<Vec<u8>, u32>,
    ) -> Result<Vec<bpf_insn>, FitError> {
        let bytes = cut(types, ids.values().copied())?;
        let target = Btf::parse(&bytes, Endianness::default()).map_err(fit_error)?;
        let mut object = self.object.clone();
        object.relocate_btf(&target).map_err(fit_error)?;
        self.link(&mut object, maps)?;
        let own = function(&self.object, program)?.instructions.len();
        let linked = &function(&object, program)?.instructions;
        linked
            .get(own..)
            .filter(|body| !body.is_empty())
            .map(<[bpf_insn]>::to_vec)
            .ok_or_else(|| fit_error(format!("what {program} calls was not linked")))
    }

    /// The program that copies kernel memory, which needs no layout.
    pub(super) fn copy_program(&self, maps: &MapFds) -> Result<Vec<bpf_insn>, FitError> {
        let mut object = self.object.clone();
        // Only this program: the other one needs the kernel's layouts first.
        object.programs.retain(|name, _| name == COPY_KERNEL);
        self.link(&mut object, maps)?;
        Ok(function(&object, COPY_KERNEL)?.instructions.clone())
    }

    fn link(&self, object: &mut Object, maps: &MapFds) -> Result<(), FitError> {
        let sections: HashSet<usize> = object
            .functions
            .keys()
            .map(|(section, _)| *section)
            .collect();
        let by_name = self.object.maps.iter().filter_map(|(name, definition)| {
            let fd = maps.get(name)?.as_raw_fd();
            Some((name.as_str(), fd, definition))
        });
        object
            .relocate_maps(by_name, &sections)
            .map_err(fit_error)?;
        object.relocate_calls(&sections).map_err(fit_error)
    }
}

fn function<'o>(object: &'o Object, name: &str) -> Result<&'o aya_obj::Function, FitError> {
    object
        .programs
        .get(name)
        .and_then(|program| object.functions.get(&program.function_key()))
        .ok_or_else(|| fit_error("a program is missing in the object"))
}

/// The program cannot be fitted to this kernel.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct FitError(String);

impl FitError {
    /// The module went away between two steps.
    pub(super) fn gone() -> Self {
        fit_error("the module is gone")
    }
}

fn fit_error(error: impl std::fmt::Display) -> FitError {
    FitError(error.to_string())
}

impl From<BtfError> for FitError {
    fn from(error: BtfError) -> Self {
        fit_error(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::btf::{Blob, names_in};

    /// mlx5_core, and the kernel itself, know none of the structs of ib_uverbs: whatever
    /// is missing is left out of the records, and no reason to have none.
    #[test]
    fn a_module_may_lack_any_of_the_types() {
        let template = Template::parse().unwrap();
        let own = template.object.btf.as_ref().unwrap().to_bytes();
        let own = Blob::parse(own, None).unwrap();
        let types = Types::whole(&own);
        let ids = types.locate(&names_in(&types).unwrap()).unwrap();
        let fits = |ids: &BTreeMap<Vec<u8>, u32>| {
            let bytes = cut(&types, ids.values().copied()).unwrap();
            let target = Btf::parse(&bytes, Endianness::default()).unwrap();
            template.object.clone().relocate_btf(&target)
        };
        fits(&ids).unwrap();
        for name in ids.keys() {
            let mut less = ids.clone();
            less.remove(name);
            if let Err(error) = fits(&less) {
                panic!("without {}: {error:?}", String::from_utf8_lossy(name));
            }
        }
        let kernel = |name: &[u8]| name == b"task_struct";
        let only: BTreeMap<_, _> = ids.into_iter().filter(|(name, _)| kernel(name)).collect();
        fits(&only).unwrap();
    }
}
