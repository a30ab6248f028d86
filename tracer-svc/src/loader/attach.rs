//! From the plan to attached programs.

use std::collections::BTreeMap;
use std::os::fd::AsFd;

use aya_obj::generated::bpf_insn;

use crate::arguments::{Ids, Readable, readable, unseen};
use crate::btf::{Blob, BtfError, Types};
use crate::record::ProbeId;
use crate::resolve::{
    DriverFunction, KernelView, Mechanism, Missing, ModuleView, Plan, Planned, Probe, ProbeState,
    Symbols, find_tables, resolve,
};

use super::arch::REGISTER_ARGUMENTS;
use super::entry::{entry, return_entry};
use super::host::{self, Modules};
use super::link::{self, Beginning};
use super::memory::KernelMemory;
use super::object::FitError;
use super::sys::{self, KernelBtf, Refusal};
use super::{LoadError, MAX_PROBES, Tracer, btf_error};

/// The kernel's error for "not supported" that has no place in errno.h; from a
/// tracing program it means that the function cannot have a trampoline.
const ENOTSUPP: i32 = 524;

/// The BTFs of the modules of one look.
struct ModuleBtfs<'k> {
    kernel: &'k Blob,
    blobs: BTreeMap<String, Blob>,
    /// What is wrong with those that cannot be used.
    broken: BTreeMap<String, String>,
}

impl<'k> ModuleBtfs<'k> {
    fn read(kernel: &'k Blob, modules: &Modules) -> Result<Self, LoadError> {
        let (mut blobs, mut broken) = (BTreeMap::new(), BTreeMap::new());
        for module in &modules.names {
            let Some(bytes) = host::module_btf(module)? else {
                continue;
            };
            // One module of another make must not keep the others from being watched.
            match Blob::parse(bytes, Some(kernel)) {
                Ok(blob) => _ = blobs.insert(module.clone(), blob),
                Err(error) => _ = broken.insert(module.clone(), error.to_string()),
            }
        }
        Ok(Self {
            kernel,
            blobs,
            broken,
        })
    }

    fn types(&self, module: &str) -> Option<Types<'_>> {
        Some(Types::split(self.kernel, self.blobs.get(module)?))
    }
}

const OPS_STRUCT: &[u8] = b"ib_device_ops";

/// Where the structs stand that the program reads.
struct StructIds {
    kernel: Ids,
    /// For each module with BTF: its own before the kernel's.
    modules: BTreeMap<String, Ids>,
}

/// What follows the entry of a probe: one for each module, and one for all
/// kretprobes.
struct Bodies<'b> {
    btfs: &'b ModuleBtfs<'b>,
    ids: &'b StructIds,
    modules: BTreeMap<String, Result<Vec<bpf_insn>, FitError>>,
    returned: Option<Result<Vec<bpf_insn>, FitError>>,
    descriptors: Vec<KernelBtf>,
}

impl Tracer {
    /// Resolves against the modules loaded now and attaches what is new.
    pub(super) fn look(&mut self, kernel: &Blob) -> Result<Vec<ProbeId>, LoadError> {
        let modules = Modules::read(&self.catalogue)?;
        self.choose(modules.may_be_drivers.iter().cloned());
        let btfs = ModuleBtfs::read(kernel, &modules)?;
        let ids = self.struct_ids(&btfs)?;
        let plan = self.plan(&modules, &btfs, &ids.modules)?;
        let mut probes = std::mem::take(&mut self.report.probes);
        let fresh = self.merge(&plan.probes, &mut probes, &modules);
        self.attach_all(&fresh, &mut probes, (&btfs, &ids), &modules)?;
        let program = (&self.template, &self.map_fds);
        self.exits.attach(kernel, program, &self.functions)?;
        self.missing = plan.missing;
        self.tell(probes);
        self.modules = Some(modules);
        let attached = fresh.iter().map(|(id, _)| *id);
        Ok(attached.filter(|id| self.links.contains_key(id)).collect())
    }

    fn struct_ids(&self, btfs: &ModuleBtfs<'_>) -> Result<StructIds, LoadError> {
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
        Ok(StructIds {
            kernel: base,
            modules: out,
        })
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
                broken: btfs.broken.get(name).map(String::as_str),
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
        &mut self,
        planned: &'p [Planned],
        probes: &mut Vec<Probe>,
        modules: &Modules,
    ) -> Vec<(ProbeId, &'p Planned)> {
        for probe in probes.iter_mut() {
            if !modules.loaded(&probe.module) {
                probe.state = ProbeState::Missing(Missing::ModuleNotLoaded(probe.module.clone()));
            }
            // What hangs on a module that went is let go, also when another one of
            // its name is there.
            if let Some(link) = self.links.get(&probe.id)
                && link.loaded != modules.identity(&probe.module)
            {
                self.links.remove(&probe.id);
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
                    not_by_fexit: None,
                    address_hidden: false,
                    arguments: Vec::new(),
                });
            }
            if let Some(why) = &self.stopped {
                probes[index].state = ProbeState::Missing(why.clone());
            } else if self.held.contains_key(&plan.module) {
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
        (btfs, ids): (&ModuleBtfs<'_>, &StructIds),
        modules: &Modules,
    ) -> Result<(), LoadError> {
        if fresh.is_empty() {
            return Ok(());
        }
        let mut bodies = Bodies {
            btfs,
            ids,
            modules: BTreeMap::new(),
            returned: None,
            descriptors: sys::kernel_btfs()
                .map_err(|error| btf_error("the list of modules", error))?,
        };
        for (id, plan) in fresh {
            let loaded = modules.identity(&plan.module);
            let tried = self.attach_one(*id, plan, &mut bodies, loaded);
            let probe = &mut probes[id.index()];
            probe.arguments = self
                .arguments(plan, btfs, &ids.modules)
                .map_err(|error| btf_error(&plan.module, error))?;
            match tried {
                Ok((mechanism, not_by_fexit)) => {
                    if not_by_fexit.is_some() {
                        probe.arguments = probe.hook.arguments.map(unseen).unwrap_or_default();
                    }
                    probe.address_hidden =
                        mechanism == Mechanism::Kretprobe && plan.address.is_none();
                    probe.state = ProbeState::Attached(mechanism);
                    probe.not_by_fexit = not_by_fexit;
                }
                Err(missing) => probe.state = ProbeState::Missing(missing),
            }
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

    /// By fexit where that can be, else by a kretprobe, with the reason.
    fn attach_one(
        &mut self,
        id: ProbeId,
        plan: &Planned,
        bodies: &mut Bodies<'_>,
        loaded: Option<u64>,
    ) -> Result<(Mechanism, Option<Missing>), Missing> {
        let why = match &plan.not_by_fexit {
            Some(why) => why.clone(),
            None => match self.attach_exit(id, plan, bodies, loaded) {
                Ok(()) => return Ok((Mechanism::Fexit, None)),
                Err(why) => why,
            },
        };
        // A kretprobe does not see the event that it would tell.
        if self.catalogue.hooks[plan.hook].is_event() {
            return Err(why);
        }
        match self.attach_return(id, plan, bodies, loaded) {
            Ok(mechanism) => Ok((mechanism, Some(why))),
            // Of two refusals the first says what is wrong with the function.
            Err(_) if plan.not_by_fexit.is_none() => Err(why),
            Err(refusal) => Err(refusal),
        }
    }

    fn attach_exit(
        &mut self,
        id: ProbeId,
        plan: &Planned,
        bodies: &mut Bodies<'_>,
        loaded: Option<u64>,
    ) -> Result<(), Missing> {
        let module = plan.module.as_str();
        let event = self.catalogue.hooks[plan.hook].is_event();
        let mut instructions = entry(id.0, &plan.prototype, plan.arguments.as_ref(), event);
        let body = bodies
            .modules
            .entry(module.to_owned())
            .or_insert_with(|| {
                let (Some(types), Some(ids)) =
                    (bodies.btfs.types(module), bodies.ids.modules.get(module))
                else {
                    return Err(FitError::gone());
                };
                self.template.probe_body(&self.map_fds, &types, ids)
            })
            .as_ref()
            .map_err(|error| refused(plan, 0, error.to_string()))?;
        instructions.extend_from_slice(body);
        let btf = bodies
            .descriptors
            .iter()
            .find(|d| d.name == module)
            .map(|d| d.fd.as_fd())
            .ok_or_else(|| Missing::ModuleNotLoaded(plan.module.clone()))?;
        let at = (plan.prototype.function_id, btf);
        let link = link::at_exit(&plan.function, &instructions, &self.functions, at, loaded)
            .map_err(|refusal| why_refused(plan, &refusal))?;
        self.links.insert(id, link);
        Ok(())
    }

    fn attach_return(
        &mut self,
        id: ProbeId,
        plan: &Planned,
        bodies: &mut Bodies<'_>,
        loaded: Option<u64>,
    ) -> Result<Mechanism, Missing> {
        let body = bodies
            .returned
            .get_or_insert_with(|| {
                let types = Types::whole(bodies.btfs.kernel);
                self.template
                    .return_body(&self.map_fds, &types, &bodies.ids.kernel)
            })
            .as_ref()
            .map_err(|error| refused(plan, 0, error.to_string()))?;
        let mut instructions = return_entry(id.0, plan.prototype.returns);
        instructions.extend_from_slice(body);
        let of = Beginning {
            module: &plan.module,
            function: &plan.function,
            address: plan.address,
        };
        let (link, mechanism) = link::at_return(of, &instructions, &self.functions, loaded)
            .map_err(|refusal| why_refused(plan, &refusal))?;
        self.links.insert(id, link);
        Ok(mechanism)
    }
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
