//! One kernel module as the analysis sees it: functions, relocations, tables of
//! data, the places that ftrace can patch, and its BTF.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use object::{
    Architecture, Object, ObjectSection, ObjectSymbol, RelocationFlags, RelocationTarget,
    SectionKind, SymbolKind,
};

use super::SelectError;
use super::files::read_module;
use crate::btf::Blob;

/// Symbols of a module. amdgpu, the largest, has 60,000.
const MAX_SYMBOLS: usize = 1 << 20;
/// A site that ftrace patches stands this far from the function's first byte:
/// after `endbr64` or `bti c`, or with arm64's CALL_OPS before it.
const SITE_DISTANCE: u64 = 16;

/// The processors whose modules can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Arch {
    /// x86-64.
    Amd64,
    /// 64-bit ARM.
    Arm64,
}

impl Arch {
    /// Debian's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }
}

/// Where a relocation leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A place in a section of the same module.
    At { section: usize, address: u64 },
    /// A symbol of another module or of the kernel.
    Extern(String),
}

/// One relocation.
#[derive(Clone, Debug)]
pub(super) struct Relocation {
    pub(super) kind: u32,
    pub(super) target: Target,
}

/// One function symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: String,
    pub(super) section: usize,
    pub(super) start: u64,
    pub(super) end: u64,
    /// Other modules can call it, or could.
    pub(super) global: bool,
    /// ftrace has a place to patch at its start.
    pub(super) traceable: bool,
    /// Runs while the module loads or unloads only.
    pub(super) load_time: bool,
}

/// One object of data with the functions that it points to.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) name: String,
    pub(super) section: usize,
    pub(super) start: u64,
    pub(super) bytes: u64,
}

/// A section's bytes and what it is for.
#[derive(Clone, Debug)]
pub(super) struct Section {
    pub(super) name: String,
    pub(super) code: bool,
    pub(super) bytes: Vec<u8>,
    pub(super) relocations: BTreeMap<u64, Relocation>,
}

/// One kernel module.
#[derive(Debug)]
pub(super) struct Module {
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) arch: Arch,
    /// `uname -r` of the kernel that it is for.
    pub(super) release: String,
    pub(super) depends: Vec<String>,
    pub(super) sections: HashMap<usize, Section>,
    pub(super) functions: Vec<Function>,
    pub(super) by_place: BTreeMap<(usize, u64), usize>,
    /// Ranges of `.cold` parts: they belong to the function that jumps there.
    pub(super) cold: BTreeMap<(usize, u64), u64>,
    pub(super) tables: Vec<Table>,
    /// Places of global functions by name, for the calls of other modules.
    pub(super) exported: HashMap<String, (usize, u64)>,
    /// Names that more than one function of the module bears.
    pub(super) repeated: BTreeSet<String>,
    pub(super) btf: Option<Blob>,
    /// What the BTF continues, where that is not the kernel's: modules that are
    /// built apart from the kernel carry an excerpt of it in `.BTF.base`.
    pub(super) own_base: Option<Blob>,
}

impl Module {
    /// Reads a module. `base` is the kernel's BTF, `kernel` the file it is from.
    ///
    /// # Errors
    /// The file is no module, is cut short, or its BTF is broken.
    pub(super) fn read(
        name: &str,
        path: &Path,
        base: &Blob,
        kernel: &Path,
    ) -> Result<Self, SelectError> {
        let bytes = read_module(path)?;
        Self::parse(name, path, &bytes, base, kernel)
    }

    /// Reads a module from its unpacked bytes.
    ///
    /// # Errors
    /// As [`Module::read`].
    pub(super) fn parse(
        name: &str,
        path: &Path,
        bytes: &[u8],
        base: &Blob,
        kernel: &Path,
    ) -> Result<Self, SelectError> {
        let broken = |reason: String| SelectError::Module {
            path: path.to_owned(),
            reason,
        };
        let file =
            object::File::parse(bytes).map_err(|e| broken(format!("not an ELF file: {e}")))?;
        let arch = architecture(&file, path)?;
        if file.kind() != object::ObjectKind::Relocatable {
            return Err(broken("not a kernel module (not relocatable)".to_owned()));
        }
        let info = mod_info(&file).map_err(&broken)?;
        let sections = sections(&file).map_err(&broken)?;
        let (btf, own_base) = read_btf(&file, path, base, kernel)?;
        let mut out = Self {
            name: name.to_owned(),
            path: path.to_owned(),
            arch,
            release: info.release,
            depends: info.depends,
            sections,
            functions: Vec::new(),
            by_place: BTreeMap::new(),
            cold: BTreeMap::new(),
            tables: Vec::new(),
            exported: HashMap::new(),
            repeated: BTreeSet::new(),
            btf,
            own_base,
        };
        out.add_symbols(&file).map_err(&broken)?;
        out.mark_traceable();
        Ok(out)
    }

    fn add_symbols(&mut self, file: &object::File<'_>) -> Result<(), String> {
        let mut aliases: BTreeMap<(usize, u64), Function> = BTreeMap::new();
        for (number, symbol) in file.symbols().enumerate() {
            if number > MAX_SYMBOLS {
                return Err(format!("more than {MAX_SYMBOLS} symbols"));
            }
            let Some(section) = symbol.section_index() else {
                continue;
            };
            let name = symbol
                .name()
                .map_err(|e| format!("symbol {number}: {e}"))?
                .to_owned();
            let (start, size) = (symbol.address(), symbol.size());
            let Some(place) = self.sections.get(&section.0) else {
                continue;
            };
            let end = start.saturating_add(size);
            if end > place.bytes.len() as u64 && symbol.kind() == SymbolKind::Text {
                return Err(format!("function {name} lies outside of its section"));
            }
            match symbol.kind() {
                SymbolKind::Text if place.code && size > 0 => {
                    if name.ends_with(".cold") || name.contains(".cold.") {
                        self.cold.insert((section.0, start), end);
                    } else if !name.starts_with("__pfx_") {
                        let load_time =
                            place.name.starts_with(".init") || place.name.starts_with(".exit");
                        let found = Function {
                            name,
                            section: section.0,
                            start,
                            end,
                            global: symbol.is_global(),
                            traceable: false,
                            load_time,
                        };
                        add_alias(&mut aliases, &mut self.exported, found);
                    }
                }
                SymbolKind::Data if !place.code && size > 0 => self.tables.push(Table {
                    name,
                    section: section.0,
                    start,
                    bytes: size,
                }),
                _ => {}
            }
        }
        self.finish_functions(aliases);
        self.tables
            .sort_by(|a, b| (a.section, a.start, &a.name).cmp(&(b.section, b.start, &b.name)));
        Ok(())
    }

    fn finish_functions(&mut self, aliases: BTreeMap<(usize, u64), Function>) {
        let mut names = BTreeSet::new();
        for (place, function) in aliases {
            let index = self.functions.len();
            self.by_place.insert(place, index);
            if !names.insert(function.name.clone()) {
                self.repeated.insert(function.name.clone());
            }
            self.functions.push(function);
        }
    }

    /// Marks the functions that ftrace lists in `__mcount_loc` (x86) or
    /// `__patchable_function_entries` (arm64); see `FTRACE_CALLSITE_SECTION` in
    /// `include/linux/module.h`.
    fn mark_traceable(&mut self) {
        let wanted = match self.arch {
            Arch::Amd64 => "__mcount_loc",
            Arch::Arm64 => "__patchable_function_entries",
        };
        let mut sites: BTreeSet<(usize, u64)> = BTreeSet::new();
        for section in self.sections.values().filter(|s| s.name == wanted) {
            for relocation in section.relocations.values() {
                if let Target::At { section, address } = relocation.target {
                    sites.insert((section, address));
                }
            }
        }
        let mut before = (0, 0);
        for function in &mut self.functions {
            // Not before the end of the function that stands in front.
            let free = if before.0 == function.section {
                before.1
            } else {
                0
            };
            let low = function.start.saturating_sub(SITE_DISTANCE).max(free);
            let high = (function.start + SITE_DISTANCE).min(function.end);
            // In a damaged module functions may overlap.
            function.traceable = low < high
                && sites
                    .range((function.section, low)..(function.section, high))
                    .next()
                    .is_some();
            before = (function.section, function.end);
        }
    }

    /// The function that begins at a place.
    pub(super) fn function_at(&self, section: usize, address: u64) -> Option<usize> {
        self.by_place.get(&(section, address)).copied()
    }

    /// The function that other modules call by a name.
    pub(super) fn exported_function(&self, name: &str) -> Option<usize> {
        self.by_place.get(self.exported.get(name)?).copied()
    }

    /// The function whose body covers a place.
    pub(super) fn function_around(&self, section: usize, address: u64) -> Option<usize> {
        let (_, index) = self
            .by_place
            .range(..=(section, address))
            .next_back()
            .filter(|((s, _), _)| *s == section)?;
        (address < self.functions[*index].end).then_some(*index)
    }

    /// End of the `.cold` part that covers a place, with its start.
    pub(super) fn cold_around(&self, section: usize, address: u64) -> Option<(u64, u64)> {
        let ((s, start), end) = self.cold.range(..=(section, address)).next_back()?;
        (*s == section && address < *end).then_some((*start, *end))
    }
}

fn add_alias(
    aliases: &mut BTreeMap<(usize, u64), Function>,
    exported: &mut HashMap<String, (usize, u64)>,
    found: Function,
) {
    let place = (found.section, found.start);
    if found.global {
        exported.insert(found.name.clone(), place);
    }
    match aliases.get_mut(&place) {
        Some(other) if other.global || !found.global => other.end = other.end.max(found.end),
        _ => {
            aliases.insert(place, found);
        }
    }
}

fn architecture(file: &object::File<'_>, path: &Path) -> Result<Arch, SelectError> {
    match file.architecture() {
        Architecture::X86_64 if file.is_little_endian() => Ok(Arch::Amd64),
        Architecture::Aarch64 if file.is_little_endian() => Ok(Arch::Arm64),
        other => Err(SelectError::Machine {
            path: path.to_owned(),
            machine: format!("{other:?}"),
        }),
    }
}

struct ModInfo {
    release: String,
    depends: Vec<String>,
}

fn mod_info(file: &object::File<'_>) -> Result<ModInfo, String> {
    let section = file
        .section_by_name(".modinfo")
        .ok_or("not a kernel module (no .modinfo)")?;
    let data = section.data().map_err(|e| format!(".modinfo: {e}"))?;
    let mut out = ModInfo {
        release: String::new(),
        depends: Vec::new(),
    };
    for line in data.split(|b| *b == 0) {
        let line = String::from_utf8_lossy(line);
        match line.split_once('=') {
            Some(("vermagic", value)) => {
                value
                    .split(' ')
                    .next()
                    .unwrap_or_default()
                    .clone_into(&mut out.release);
            }
            Some(("depends", value)) => {
                let names = value.split(',').filter(|n| !n.is_empty());
                out.depends = names.map(|n| n.replace('-', "_")).collect();
            }
            _ => {}
        }
    }
    if out.release.is_empty() {
        return Err("not a kernel module (no vermagic)".to_owned());
    }
    Ok(out)
}

fn sections(file: &object::File<'_>) -> Result<HashMap<usize, Section>, String> {
    let mut out = HashMap::new();
    for section in file.sections() {
        let name = section
            .name()
            .map_err(|e| format!("section {}: {e}", section.index().0))?;
        let code = section.kind() == SectionKind::Text;
        let wanted =
            code || matches!(
                section.kind(),
                SectionKind::Data | SectionKind::ReadOnlyData | SectionKind::ReadOnlyDataWithRel
            ) || name == "__mcount_loc"
                || name == "__patchable_function_entries";
        if !wanted || name.starts_with(".debug") {
            continue;
        }
        let bytes = section.data().map_err(|e| format!("{name}: {e}"))?;
        let relocations = relocations(file, &section).map_err(|e| format!("{name}: {e}"))?;
        out.insert(
            section.index().0,
            Section {
                name: name.to_owned(),
                code,
                bytes: bytes.to_vec(),
                relocations,
            },
        );
    }
    Ok(out)
}

fn relocations<'d>(
    file: &object::File<'d>,
    section: &object::Section<'d, '_>,
) -> Result<BTreeMap<u64, Relocation>, String> {
    let mut out = BTreeMap::new();
    for (at, relocation) in section.relocations() {
        let RelocationFlags::Elf { r_type } = relocation.flags() else {
            continue;
        };
        let RelocationTarget::Symbol(index) = relocation.target() else {
            continue;
        };
        let symbol = file
            .symbol_by_index(index)
            .map_err(|e| format!("relocation at {at:#x}: {e}"))?;
        let addend = relocation.addend();
        let target = match symbol.section_index() {
            Some(section) => Target::At {
                section: section.0,
                address: symbol.address().wrapping_add_signed(addend),
            },
            None => Target::Extern(
                symbol
                    .name()
                    .map_err(|e| format!("relocation at {at:#x}: {e}"))?
                    .to_owned(),
            ),
        };
        out.insert(
            at,
            Relocation {
                kind: r_type,
                target,
            },
        );
    }
    Ok(out)
}

/// A module's BTF, and its own base where it has one.
type OwnTypes = (Option<Blob>, Option<Blob>);

fn read_btf(
    file: &object::File<'_>,
    path: &Path,
    base: &Blob,
    kernel: &Path,
) -> Result<OwnTypes, SelectError> {
    let read = |name: &str, base: Option<&Blob>| {
        let Some(section) = file.section_by_name(name) else {
            return Ok(None);
        };
        let data = section.data().map_err(|e| SelectError::Module {
            path: path.to_owned(),
            reason: format!("{name}: {e}"),
        })?;
        let blob = Blob::parse(data.to_vec(), base).map_err(|reason| SelectError::Btf {
            path: path.to_owned(),
            reason,
            remedy: "copy the file again from its package; where it is whole, \
                     a newer tracer-svc may know what this one does not",
        })?;
        Ok(Some(blob))
    };
    let own_base = read(".BTF.base", None)?;
    let base = own_base.as_ref().unwrap_or(base);
    let Some(own) = read(".BTF", Some(base))? else {
        return Ok((None, None));
    };
    super::shape::belongs(base, &own).map_err(|reason| SelectError::ForeignBtf {
        path: path.to_owned(),
        kernel: kernel.to_owned(),
        reason,
    })?;
    Ok((Some(own), own_base))
}
