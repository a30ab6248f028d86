//! The initramfs of a lab host: our PID 1, the programs under test with the shared
//! libraries that they need on this machine, the kernel modules, `ip` and `rdma`.

use crate::kernels::Image;
use crate::programs;
use anyhow::{Context, Result, bail, ensure};
use cpio::newc;
use rdmesh_guest::{MODULE_LIST, ModuleList};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What PID 1 loads before it reports ready: the virtio devices, the dummy network
/// device and soft-RoCE on it. 6.1's soft-RoCE asks the crypto layer for crc32.
const BOOT_MODULES: [&str; 8] = [
    "virtio_pci",
    "virtio_console",
    "virtio_net",
    "crc32_generic",
    "dummy",
    "ib_uverbs",
    "rdma_rxe",
    "crc32c_generic",
];

/// Boot modules that some kernels build in or no longer have.
const OPTIONAL_MODULES: [&str; 2] = ["crc32_generic", "crc32c_generic"];

const DIRECTORY: u32 = 0o040_755;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_777;

/// Collects what goes into an initramfs, then writes it.
#[derive(Debug, Default)]
pub struct Initramfs {
    entries: BTreeMap<PathBuf, Entry>,
}

#[derive(Debug)]
enum Entry {
    Directory,
    Symlink(String),
    Data { data: Vec<u8>, mode: u32 },
}

impl Initramfs {
    /// What every host needs: PID 1, `ip`, `rdma`, the verbs library with the
    /// soft-RoCE provider, and the modules: those of the boot and `extra` ones that
    /// a test loads itself.
    pub fn for_kernel(image: &Image, extra: &[&str]) -> Result<Self> {
        let mut initramfs = Self::default();
        for below in ["bin", "sbin", "lib", "lib64"] {
            let target = format!("usr/{below}");
            initramfs.insert(below.into(), Entry::Symlink(target.clone()));
            initramfs.directories(Path::new(&target));
        }
        for directory in ["dev", "proc", "sys", "run", "tmp", "etc"] {
            initramfs.insert(directory.into(), Entry::Directory);
        }
        initramfs.own_program("rdmesh-guest-init", "/usr/sbin/rdmesh-guest-init")?;
        initramfs.insert(
            "init".into(),
            Entry::Symlink("usr/sbin/rdmesh-guest-init".into()),
        );
        for tool in ["ip", "rdma"] {
            let path = find_tool(tool)?;
            initramfs.program(&path, &format!("/usr/sbin/{tool}"))?;
        }
        initramfs.own_program("rdmesh-verbs", "/usr/bin/rdmesh-verbs")?;
        initramfs.rxe_provider()?;
        initramfs.modules(image, extra)?;
        Ok(initramfs)
    }

    /// Adds one of the workspace's programs.
    pub fn own_program(&mut self, name: &str, to: &str) -> Result<()> {
        self.program(&programs::find(name)?, to)
    }

    /// Adds a file of this machine; a dynamic program brings its libraries and
    /// leaves its debug information behind.
    pub fn program(&mut self, from: &Path, to: &str) -> Result<()> {
        let libraries = libraries_of(from)?;
        for library in &libraries {
            if !self.entries.contains_key(&guest_path(library)) {
                self.file(library, library)?;
            }
        }
        if libraries.is_empty() {
            return self.file(from, Path::new(to));
        }
        self.data(to, stripped(from)?, 0o755);
        Ok(())
    }

    /// Adds a file with the given contents.
    pub fn data(&mut self, to: &str, data: Vec<u8>, mode: u32) {
        self.insert(guest_path(Path::new(to)), Entry::Data { data, mode });
    }

    fn file(&mut self, from: &Path, to: &Path) -> Result<()> {
        let data = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
        let mode = fs::metadata(from)?.permissions().mode() & 0o777;
        self.insert(guest_path(to), Entry::Data { data, mode });
        Ok(())
    }

    fn insert(&mut self, path: PathBuf, entry: Entry) {
        if let Some(parent) = path.parent() {
            self.directories(parent);
        }
        self.entries.insert(path, entry);
    }

    fn directories(&mut self, path: &Path) {
        for directory in path.ancestors().filter(|path| !path.as_os_str().is_empty()) {
            self.entries
                .entry(directory.to_path_buf())
                .or_insert(Entry::Directory);
        }
    }

    /// The soft-RoCE provider, which libibverbs opens by itself.
    fn rxe_provider(&mut self) -> Result<()> {
        let verbs = programs::find("rdmesh-verbs")?;
        let library = libraries_of(&verbs)?
            .into_iter()
            .find(|path| path.to_string_lossy().contains("libibverbs.so"))
            .context("rdmesh-verbs is not linked with libibverbs")?;
        let providers = library.with_file_name("libibverbs");
        let entries = fs::read_dir(&providers)
            .with_context(|| format!("no {} (package ibverbs-providers)", providers.display()))?;
        let provider = entries
            .flatten()
            .map(|entry| entry.path())
            .find(|path| path.to_string_lossy().contains("/librxe-rdmav"))
            .context("no soft-RoCE provider: install ibverbs-providers")?;
        let to = provider.to_string_lossy().into_owned();
        self.program(&provider, &to)?;
        let driver = "/etc/libibverbs.d/rxe.driver";
        self.file(Path::new(driver), Path::new(driver))
    }

    fn modules(&mut self, image: &Image, extra: &[&str]) -> Result<()> {
        let tree = ModuleTree::read(image)?;
        let mut list = ModuleList::default();
        let mut seen = BTreeSet::new();
        for name in BOOT_MODULES {
            if tree.is_builtin(name) || (OPTIONAL_MODULES.contains(&name) && !tree.has(name)) {
                continue;
            }
            for module in tree.in_load_order(name)? {
                let path = self.module(&tree, &module)?;
                if seen.insert(path.clone()) {
                    list.boot.push(path);
                }
            }
        }
        for &name in extra {
            let mut paths = Vec::new();
            for module in tree.in_load_order(name)? {
                paths.push(self.module(&tree, &module)?);
            }
            list.on_request.insert(name.to_owned(), paths);
        }
        self.data(MODULE_LIST, serde_json::to_vec_pretty(&list)?, 0o644);
        Ok(())
    }

    /// Takes the types out of a module that is in the archive.
    pub fn take_btf(&mut self, module: &str) -> Result<()> {
        let name = format!("{module}.ko");
        let found = self
            .entries
            .iter_mut()
            .find(|(path, _)| path.file_name().is_some_and(|file| *file == *name));
        let Some((_, Entry::Data { data, .. })) = found else {
            bail!("module {module} is not in the initramfs");
        };
        let file = tempfile::NamedTempFile::new()?;
        fs::write(file.path(), &*data)?;
        // The kernel's signature behind the file goes too; nobody asks for it here.
        let objcopy = Command::new("objcopy")
            .args(["--remove-section", ".BTF"])
            .arg(file.path())
            .status();
        ensure!(
            objcopy.context("objcopy (package binutils)")?.success(),
            "objcopy {module}.ko"
        );
        *data = fs::read(file.path())?;
        Ok(())
    }

    fn module(&mut self, tree: &ModuleTree, module: &str) -> Result<String> {
        let name = module.rsplit('/').next().unwrap_or(module);
        let plain = name.split_once(".ko").map_or(name, |(stem, _)| stem);
        let release = tree.root.file_name().context("no release")?;
        let release = release.to_string_lossy();
        let to = format!("/usr/lib/modules/{release}/{plain}.ko");
        if !self.entries.contains_key(&guest_path(Path::new(&to))) {
            self.data(&to, decompressed(&tree.root.join(module))?, 0o644);
        }
        Ok(to)
    }

    /// Writes the archive, uncompressed: under emulation unpacking costs more than
    /// reading. Gives its size in bytes.
    pub fn write(&self, path: &Path) -> Result<u64> {
        let file = File::create(path)?;
        let mut out = BufWriter::new(file);
        for (inode, (path, entry)) in (1..).zip(&self.entries) {
            let (mode, data): (u32, &[u8]) = match entry {
                Entry::Directory => (DIRECTORY, &[]),
                Entry::Symlink(target) => (SYMLINK, target.as_bytes()),
                Entry::Data { data, mode } => (REGULAR | mode, data),
            };
            let name = path.to_str().context("initramfs paths are UTF-8")?;
            let builder = newc::Builder::new(name).ino(inode).mode(mode).nlink(1);
            let size = u32::try_from(data.len()).with_context(|| format!("{name} is too big"))?;
            let mut writer = builder.write(out, size);
            writer.write_all(data)?;
            out = writer.finish()?;
        }
        newc::trailer(out)?.flush()?;
        Ok(fs::metadata(path)?.len())
    }
}

/// The path inside the archive: relative, below `usr` where Debian merged it.
fn guest_path(path: &Path) -> PathBuf {
    let path = path.strip_prefix("/").unwrap_or(path);
    let first = path
        .components()
        .next()
        .map(|part| part.as_os_str().to_owned());
    match first.as_deref().and_then(|first| first.to_str()) {
        Some("bin" | "sbin" | "lib" | "lib64") => Path::new("usr").join(path),
        _ => path.to_path_buf(),
    }
}

fn find_tool(name: &str) -> Result<PathBuf> {
    let paths = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(|at| Path::new(at).join(name));
    let found = paths.into_iter().find(|path| path.exists());
    found.with_context(|| format!("no {name}: install iproute2"))
}

/// The shared libraries of a program, the dynamic linker among them. None for a
/// static program or a script.
fn libraries_of(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd")
        .arg(program)
        .env("LC_ALL", "C")
        .output()
        .context("ldd")?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let said = format!("{text}{}", String::from_utf8_lossy(&output.stderr));
        ensure!(
            said.contains("not a dynamic"),
            "ldd {}: {}",
            program.display(),
            said.trim_end()
        );
        return Ok(Vec::new());
    }
    let mut libraries = Vec::new();
    for line in text.lines().map(str::trim) {
        ensure!(!line.contains("not found"), "{}: {line}", program.display());
        let path = line.split_once(" => ").map_or(line, |(_, path)| path);
        let path = path.split_once(" (").map_or(path, |(path, _)| path);
        if path.starts_with('/') {
            libraries.push(PathBuf::from(path));
        }
    }
    Ok(libraries)
}

fn stripped(program: &Path) -> Result<Vec<u8>> {
    let out = tempfile::NamedTempFile::new()?;
    let strip = Command::new("strip")
        .arg("-o")
        .args([out.path(), program])
        .status();
    ensure!(
        strip.context("strip (package binutils)")?.success(),
        "strip {}",
        program.display()
    );
    Ok(fs::read(out.path())?)
}

fn decompressed(module: &Path) -> Result<Vec<u8>> {
    let program = match module.extension().and_then(|extension| extension.to_str()) {
        Some("ko") => return Ok(fs::read(module)?),
        Some("xz") => "xz",
        Some("zst") => "zstd",
        _ => bail!("{}: unknown compression", module.display()),
    };
    let output = Command::new(program).arg("-dc").arg(module).output();
    let output = output.with_context(|| format!("cannot start {program}: install it"))?;
    ensure!(
        output.status.success(),
        "{program} -dc {}: failed",
        module.display()
    );
    Ok(output.stdout)
}

/// What `modules.dep` and `modules.builtin` say.
struct ModuleTree {
    root: PathBuf,
    dependencies: BTreeMap<String, (String, Vec<String>)>,
    builtin: BTreeSet<String>,
}

impl ModuleTree {
    fn read(image: &Image) -> Result<Self> {
        let read = |name: &str| {
            let path = image.modules.join(name);
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        let mut dependencies = BTreeMap::new();
        for line in read("modules.dep")?.lines() {
            let (module, needs) = line.split_once(':').context("modules.dep: no colon")?;
            let needs = needs.split_whitespace().map(str::to_owned).collect();
            dependencies.insert(module_name(module), (module.to_owned(), needs));
        }
        let builtin = read("modules.builtin")?.lines().map(module_name).collect();
        Ok(Self {
            root: image.modules.clone(),
            dependencies,
            builtin,
        })
    }

    fn has(&self, name: &str) -> bool {
        self.dependencies.contains_key(name)
    }

    fn is_builtin(&self, name: &str) -> bool {
        self.builtin.contains(name)
    }

    /// Paths of a module and all it needs, in load order.
    fn in_load_order(&self, name: &str) -> Result<Vec<String>> {
        let found = self.dependencies.get(name);
        let (module, needs) = found.with_context(|| format!("this kernel has no module {name}"))?;
        // depmod lists a module after those that need it, so the last comes first.
        Ok(needs.iter().rev().chain([module]).cloned().collect())
    }
}

/// `kernel/drivers/…/virtio-rng.ko.xz` is called `virtio_rng`.
fn module_name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split_once(".ko")
        .map_or(file, |(stem, _)| stem)
        .replace('-', "_")
}
