//! From the plan to attached programs.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};

use aya_obj::generated::bpf_insn;

use crate::arguments::{Ids, Readable, readable};
use crate::btf::{Blob, BtfError, Types};
use crate::record::ProbeId;
use crate::resolve::{
    DriverFunction, KernelView, Mechanism, Missing, ModuleView, Plan, Planned, Probe, ProbeState,
    Report, Symbols, find_tables, resolve,
};

use super::arch::REGISTER_ARGUMENTS;
use super::entry::entry;
use super::functions::FunctionTypes;
use super::host::{self, Modules};
use super::memory::KernelMemory;
use super::object::FitError;
use super::sys::{self, KernelBtf, Refusal, Target};
use super::{LoadError, MAX_PROBES, Tracer, btf_error};

/// The kernel's error for "not supported" that has no place in errno.h; from a
/// tracing program it means that the function cannot have a trampoline.
const ENOTSUPP: i32 = 524;

/// The BTFs of the modules of one look.
struct ModuleBtfs<'k> {
    kernel: &'k Blob,
    blobs: BTreeMap<String, Blob>,
}

impl<'k> ModuleBtfs<'k> {
    fn read(kernel: &'k Blob, modules: &Modules) -> Result<Self, LoadError> {
        let mut blobs = BTreeMap::new();
        for module in &modules.names {
            if let Some(bytes) = host::module_btf(module)? {
                let blob =
                    Blob::parse(bytes, Some(kernel)).map_err(|error| btf_error(module, error))?;
                blobs.insert(module.clone(), blob);
            }
        }
        Ok(Self { kernel, blobs })
    }

    fn types(&self, module: &str) -> Option<Types<'_>> {
        Some(Types::split(self.kernel, self.blobs.get(module)?))
    }
}

const OPS_STRUCT: &[u8] = b"ib_device_ops";

impl Tracer {
    /// Resolves against the modules loaded now and attaches what is new.
    pub(super) fn look(&mut self, kernel: &Blob) -> Result<Vec<ProbeId>, LoadError> {
        let modules = Modules::read(&self.catalogue)?;
        let btfs = ModuleBtfs::read(kernel, &modules)?;
        let ids = self.struct_ids(&btfs)?;
        let plan = self.plan(&modules, &btfs, &ids)?;
        let mut probes = std::mem::take(&mut self.report.probes);
        let fresh = self.merge(&plan.probes, &mut probes, &modules);
        self.attach_all(&fresh, &mut probes, &btfs, &ids)?;
        self.missing = plan.missing;
        self.report = Report::new(&self.catalogue, probes, &self.missing);
        self.modules = Some(modules);
        let attached = fresh.iter().map(|(id, _)| *id);
        Ok(attached.filter(|id| self.links.contains_key(id)).collect())
    }

    /// For each module, where the structs stand that the program reads: the
    /// module's own before the kernel's.
    fn struct_ids(&self, btfs: &ModuleBtfs<'_>) -> Result<BTreeMap<String, Ids>, LoadError> {
        let mut names = self.template.names.clone();
        names.insert(OPS_STRUCT.to_vec());
        let base = Types::whole(btfs.kernel)
            .locate(&names)
            .map_err(|error| btf_error("vmlinux", error))?;
        let mut out = BTreeMap::new();
        for module in btfs.blobs.keys() {
            let Some(types) = btfs.types(module) else {
                continue;
            };
            let own = types
                .locate(&names)
                .map_err(|error| btf_error(module, error))?;
            let mut ids = base.clone();
            ids.extend(own);
            out.insert(module.clone(), ids);
        }
        Ok(out)
    }

    fn plan(
        &self,
        modules: &Modules,
        btfs: &ModuleBtfs<'_>,
        ids: &BTreeMap<String, Ids>,
    ) -> Result<Plan, LoadError> {
        let symbols = host::symbols(modules);
        let traceable = host::traceable(modules);
        let views: Vec<ModuleView<'_>> = modules
            .names
            .iter()
            .map(|name| ModuleView {
                name,
                types: btfs.types(name),
                ops_struct: ids.get(name).and_then(|ids| ids.get(OPS_STRUCT)).copied(),
                may_be_driver: modules.may_be_drivers.contains(name),
            })
            .collect();
        let tables = self.tables(&views, &symbols)?;
        let view = KernelView {
            modules: views,
            symbols: &symbols,
            traceable: traceable.as_ref(),
            tables: &tables,
        };
        resolve(&self.catalogue, &view).map_err(|error| btf_error("a module", error))
    }

    fn tables(
        &self,
        views: &[ModuleView<'_>],
        symbols: &Symbols,
    ) -> Result<Vec<DriverFunction>, LoadError> {
        if !views.iter().any(|v| v.may_be_driver) || symbols.hidden() {
            return Ok(Vec::new());
        }
        let memory = KernelMemory::new(&self.template, &self.map_fds)?;
        let operations: Vec<&str> = self.catalogue.operations().collect();
        find_tables(views, symbols, &operations, &mut |at| memory.read(at))
            .map_err(|error| btf_error("a module", error))
    }

    /// Gives numbers to new probes, marks those whose module is gone, and says
    /// which are to be attached.
    fn merge<'p>(
        &self,
        planned: &'p [Planned],
        probes: &mut Vec<Probe>,
        modules: &Modules,
    ) -> Vec<(ProbeId, &'p Planned)> {
        for probe in probes.iter_mut() {
            if !modules.names.contains(&probe.module) {
                probe.state = ProbeState::Missing(Missing::ModuleNotLoaded(probe.module.clone()));
            }
        }
        let mut fresh = Vec::new();
        for plan in planned {
            let known = probes
                .iter()
                .position(|p| p.module == plan.module && p.function == plan.function);
            let index = known.unwrap_or(probes.len());
            let Some(id) = u16::try_from(index)
                .ok()
                .filter(|n| u32::from(*n) < MAX_PROBES)
            else {
                // The catalogue would have to grow sevenfold; what comes after
                // that limit is simply not watched, and the count shows it.
                break;
            };
            let id = ProbeId(id);
            if known.is_none() {
                let mut hook = self.catalogue.hooks[plan.hook].clone();
                hook.depth = plan.depth;
                probes.push(Probe {
                    id,
                    hook,
                    module: plan.module.clone(),
                    function: plan.function.clone(),
                    found: plan.found,
                    role: plan.role,
                    state: ProbeState::Planned,
                    arguments: Vec::new(),
                });
            }
            if self.held.contains(&plan.module) {
                probes[index].state = ProbeState::Missing(Missing::Detached(plan.module.clone()));
            } else if !self.links.contains_key(&id) {
                fresh.push((id, plan));
            }
        }
        fresh
    }

    fn attach_all(
        &mut self,
        fresh: &[(ProbeId, &Planned)],
        probes: &mut [Probe],
        btfs: &ModuleBtfs<'_>,
        ids: &BTreeMap<String, Ids>,
    ) -> Result<(), LoadError> {
        if fresh.is_empty() {
            return Ok(());
        }
        let descriptors =
            sys::kernel_btfs().map_err(|error| btf_error("the list of modules", error))?;
        let mut bodies: BTreeMap<&str, Result<Vec<bpf_insn>, FitError>> = BTreeMap::new();
        for (id, plan) in fresh {
            let module = plan.module.as_str();
            let body = bodies.entry(module).or_insert_with(|| {
                let (Some(types), Some(ids)) = (btfs.types(module), ids.get(module)) else {
                    return Err(FitError::gone());
                };
                self.template.probe_body(&self.map_fds, &types, ids)
            });
            let state = match body {
                Ok(body) => self.attach_one(*id, plan, body, &descriptors),
                Err(error) => Err(refused(plan, 0, error.to_string())),
            };
            let probe = &mut probes[id.index()];
            probe.state = match state {
                Ok(()) => ProbeState::Attached(Mechanism::Fexit),
                Err(missing) => ProbeState::Missing(missing),
            };
            probe.arguments = self
                .arguments(plan, btfs, ids)
                .map_err(|error| btf_error(module, error))?;
        }
        Ok(())
    }

    /// What the records of a probe can tell of the call's arguments.
    fn arguments(
        &self,
        plan: &Planned,
        btfs: &ModuleBtfs<'_>,
        ids: &BTreeMap<String, Ids>,
    ) -> Result<Vec<Readable>, BtfError> {
        let (Some(places), Some(types), Some(ids)) = (
            &plan.arguments,
            btfs.types(&plan.module),
            ids.get(&plan.module),
        ) else {
            return Ok(Vec::new());
        };
        readable(places, &self.template.program, (&types, ids))
    }

    fn attach_one(
        &mut self,
        id: ProbeId,
        plan: &Planned,
        body: &[bpf_insn],
        descriptors: &[KernelBtf],
    ) -> Result<(), Missing> {
        let module = descriptors
            .iter()
            .find(|d| d.name == plan.module)
            .map(|d| d.fd.as_fd())
            .ok_or_else(|| Missing::ModuleNotLoaded(plan.module.clone()))?;
        let event = self.catalogue.hooks[plan.hook].is_event();
        let mut instructions = entry(id.0, &plan.prototype, plan.arguments.as_ref(), event);
        instructions.extend_from_slice(body);
        let link = load_and_attach(plan, &instructions, &self.functions, module)
            .map_err(|refusal| why_refused(plan, &refusal))?;
        self.links.insert(id, link);
        Ok(())
    }
}

fn load_and_attach(
    plan: &Planned,
    instructions: &[bpf_insn],
    functions: &FunctionTypes,
    module: BorrowedFd<'_>,
) -> Result<std::os::fd::OwnedFd, Refusal> {
    let target = Target::Fexit(plan.prototype.function_id, Some(module));
    let program = sys::load_program_of(&plan.function, instructions, functions, target)?;
    sys::attach(program.as_fd()).map_err(|error| Refusal {
        error,
        log: String::new(),
    })
}

fn refused(plan: &Planned, errno: i32, reason: String) -> Missing {
    Missing::Refused {
        function: plan.function.clone(),
        errno,
        reason,
    }
}

fn why_refused(plan: &Planned, refusal: &Refusal) -> Missing {
    let errno = refusal.error.raw_os_error().unwrap_or(0);
    let reason = if errno == ENOTSUPP && plan.prototype.argument_words > REGISTER_ARGUMENTS {
        format!(
            "{} argument words; this kernel traces functions with {REGISTER_ARGUMENTS} at most",
            plan.prototype.argument_words
        )
    } else if refusal.log.is_empty() {
        refusal.error.to_string()
    } else {
        format!("{}: {}", refusal.error, refusal.log)
    };
    refused(plan, errno, reason)
}
