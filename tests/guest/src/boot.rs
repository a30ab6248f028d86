//! Setting the machine up: file systems, modules, network, soft-RoCE.

use crate::process::Processes;
use crate::reaper::Reaper;
use anyhow::{Context, Result, bail, ensure};
use rdmesh_guest::{Exec, Line, MODULE_LIST, ModuleList, cmdline};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use rustix::system::{finit_module, sethostname, uname};
use std::ffi::CString;
use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

/// Setting up one thing takes milliseconds; under emulation on a busy machine seconds.
const COMMAND_LIMIT: Duration = Duration::from_secs(30);

/// What the kernel command line asks for.
pub(crate) struct Settings {
    host: String,
}

/// Mounts what programs expect.
pub(crate) fn mounts() -> Result<Settings> {
    let plain = [
        ("proc", "/proc", "proc"),
        ("sysfs", "/sys", "sysfs"),
        ("devtmpfs", "/dev", "devtmpfs"),
        ("tmpfs", "/run", "tmpfs"),
        ("tmpfs", "/tmp", "tmpfs"),
        ("debugfs", "/sys/kernel/debug", "debugfs"),
        ("tracefs", "/sys/kernel/tracing", "tracefs"),
        ("bpf", "/sys/fs/bpf", "bpf"),
        ("securityfs", "/sys/kernel/security", "securityfs"),
    ];
    for (source, target, kind) in plain {
        mount_at(source, target, kind, "")?;
    }
    let line = fs::read_to_string("/proc/cmdline")?;
    let option = |name: &str| {
        let mut words = line
            .split_whitespace()
            .rev()
            .filter_map(|word| word.split_once('='));
        words
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value.to_owned())
    };
    match option(cmdline::CGROUP).as_deref() {
        None | Some("v2") => mount_at("cgroup2", "/sys/fs/cgroup", "cgroup2", "")?,
        Some("v1") => mount_cgroup_v1()?,
        Some(other) => bail!("{}: want v1 or v2, not {other}", cmdline::CGROUP),
    }
    Ok(Settings {
        host: option(cmdline::HOST).unwrap_or_else(|| "lab".to_owned()),
    })
}

fn mount_at(source: &str, target: &str, kind: &str, data: &str) -> Result<()> {
    fs::create_dir_all(target).with_context(|| format!("cannot make {target}"))?;
    let data = CString::new(data)?;
    match mount(
        source,
        target,
        kind,
        MountFlags::empty(),
        Some(data.as_c_str()),
    ) {
        // The kernel mounts devtmpfs itself where it is configured to.
        Ok(()) | Err(Errno::BUSY) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot mount {kind} on {target}")),
    }
}

/// The controllers of version 1 that place a process and need no settings. Newer
/// kernels leave out the memory controller of version 1.
fn mount_cgroup_v1() -> Result<()> {
    mount_at("tmpfs", "/sys/fs/cgroup", "tmpfs", "")?;
    let mut mounted = 0;
    for controller in ["memory", "pids"] {
        let target = format!("/sys/fs/cgroup/{controller}");
        match mount_at("cgroup", &target, "cgroup", controller) {
            Ok(()) => mounted += 1,
            Err(error) => {
                eprintln!("rdmesh-guest-init: {error:#}");
                fs::remove_dir(&target)?;
            }
        }
    }
    ensure!(mounted > 0, "this kernel has no version 1 control groups");
    Ok(())
}

/// Loads the modules that every host needs.
pub(crate) fn modules() -> Result<()> {
    for path in module_list()?.boot {
        load_module(Path::new(&path))?;
    }
    Ok(())
}

/// The modules in this initramfs.
pub(crate) fn module_list() -> Result<ModuleList> {
    let list = fs::read(MODULE_LIST).with_context(|| format!("no {MODULE_LIST}"))?;
    serde_json::from_slice(&list).with_context(|| format!("broken {MODULE_LIST}"))
}

/// Loads one module file; one that is loaded already is fine.
pub(crate) fn load_module(path: &Path) -> Result<()> {
    let file = File::open(path).with_context(|| format!("no module {}", path.display()))?;
    match finit_module(&file, c"", 0) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot load {}", path.display())),
    }
}

/// Names the machine, brings the network up and makes the soft-RoCE device.
pub(crate) fn machine(settings: &Settings, reaper: &Reaper) -> Result<Line> {
    sethostname(settings.host.as_bytes()).context("cannot set the host name")?;
    let processes = Processes::new(reaper);
    let steps = [
        "ip link set lo up",
        // The addresses of QEMU's user-mode network.
        "ip address add 10.0.2.15/24 dev eth0",
        "ip link set eth0 up",
        "ip route add default via 10.0.2.2",
        // An address of the documentation range gives the RoCE port a GID.
        "ip address add 192.0.2.1/24 dev dummy0",
        "ip link set dummy0 up",
        "rdma link add rxe0 type rxe netdev dummy0",
    ];
    if !Path::new("/sys/class/net/dummy0").exists() {
        step(
            &processes,
            &["ip", "link", "add", "dummy0", "type", "dummy"],
        )?;
    }
    for line in steps {
        step(&processes, &line.split(' ').collect::<Vec<_>>())?;
    }
    Ok(Line::Ready {
        release: uname().release().to_string_lossy().into_owned(),
        devices: rdma_devices()?,
    })
}

/// Runs one command of the set-up; anything but exit code 0 is an error.
pub(crate) fn step(processes: &Processes, argv: &[&str]) -> Result<()> {
    let exec = Exec {
        argv: argv.iter().map(|&arg| arg.to_owned()).collect(),
        ..Exec::default()
    };
    let exit = processes.run(&exec, COMMAND_LIMIT)?;
    let said = exit.stderr.to_lossy();
    ensure!(
        exit.code == Some(0),
        "{}: {}",
        argv.join(" "),
        said.trim_end()
    );
    Ok(())
}

fn rdma_devices() -> Result<Vec<String>> {
    let mut devices = Vec::new();
    for entry in fs::read_dir("/sys/class/infiniband").context("no RDMA device class")? {
        devices.push(entry?.file_name().to_string_lossy().into_owned());
    }
    devices.sort();
    Ok(devices)
}
