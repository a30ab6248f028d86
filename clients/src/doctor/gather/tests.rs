//! Trees of files as a machine's, as they should be and as they should not.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::Instant;

use rdmesh_tls::authority::{Authority, Request};
use rdmesh_tls::{Role, now};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;

use super::*;
use crate::doctor::facts::{Limit, Place};
use crate::doctor::{Status, examine};

/// Files of a host: path and text.
const HOST: &[(&str, &str)] = &[
    ("proc/sys/kernel/hostname", "gpu-01\n"),
    ("proc/sys/kernel/osrelease", "6.12.48+deb13-amd64\n"),
    ("proc/sys/kernel/kptr_restrict", "1\n"),
    ("proc/self/status", STATUS),
    ("proc/self/limits", LIMITS),
    ("proc/812/comm", "tracer-svc\n"),
    ("proc/812/status", STATUS),
    ("proc/812/limits", LIMITS),
    (
        "proc/812/cgroup",
        "0::/system.slice/rdmesh-tracer.service\n",
    ),
    (
        "proc/812/cmdline",
        "tracer-svc\0--set\0uplink.spool.max_mib=8\0",
    ),
    ("proc/812/environ", "HOME=/x\0RDMESH_TRACER__HOST=gpu-1\0"),
    ("proc/700/comm", "slurmd\n"),
    ("proc/700/limits", LIMITS),
    ("proc/1/comm", "systemd\n"),
    ("proc/3/comm", "chronyd\n"),
    ("sys/kernel/btf/vmlinux", "types"),
    ("sys/kernel/btf/ib_core", "types"),
    ("sys/module/ib_core/initstate", "live\n"),
    ("sys/module/mlx5_ib/initstate", "live\n"),
    ("sys/module/ib_uverbs/version", "built in\n"),
    (
        "sys/kernel/security/lockdown",
        "none [integrity] confidentiality\n",
    ),
    ("sys/class/net/ens1np0/mtu", "9000\n"),
    ("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n"),
    (
        "sys/class/infiniband/mlx5_0/ports/1/phys_state",
        "5: LinkUp\n",
    ),
    (
        "sys/class/infiniband/mlx5_0/ports/1/link_layer",
        "Ethernet\n",
    ),
    (
        "sys/class/infiniband/mlx5_0/ports/1/rate",
        "400 Gb/sec (4X NDR)\n",
    ),
    (
        "sys/class/infiniband/mlx5_0/ports/1/gids/0",
        "fe80:0000:0000:0000:966d:aeff:fec1:7a2e\n",
    ),
    (
        "sys/class/infiniband/mlx5_0/ports/1/gids/1",
        "0000:0000:0000:0000:0000:0000:0000:0000\n",
    ),
    (
        "sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0",
        "ens1np0\n",
    ),
    (
        "etc/passwd",
        "root:x:0:0::/:/bin/sh\nrdmesh:x:998:997::/:/bin/false\n",
    ),
    ("etc/group", "adm:x:4:ada,rdmesh\nrdmesh:x:997:\n"),
    (
        "etc/nccl.conf",
        "# of the site\nNCCL_IB_TIMEOUT=14\nNCCL_IB_HCA = mlx5\nodd\n",
    ),
    (
        "etc/rdmesh/tracer.toml",
        "host = \"by-file\"\n[tls]\nca = \"/etc/rdmesh/ca.crt\"\n\
         certificate = \"/etc/rdmesh/a.crt\"\nkey = \"/etc/rdmesh/a.key\"\n",
    ),
    ("var/lib/rdmesh/tracer/x", ""),
];

const STATUS: &str = "Name:\tx\nPid:\t812\nUid:\t5\t998\t5\t5\nGid:\t5\t997\t5\t5\n\
                      Groups:\t4 20 \nCapEff:\t0000000000200000\nCapBnd:\t000001ffffffffff\n";

const LIMITS: &str = "Limit                     Soft Limit           Hard Limit           Units\n\
                      Max open files            1024                 4096                 files\n\
                      Max locked memory         8388608              8388608              bytes\n";

fn host() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in HOST {
        write(root.path(), path, text.as_bytes());
    }
    root
}

fn write(root: &Path, path: &str, bytes: &[u8]) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

fn question(root: &Path) -> Question {
    Question {
        root: root.to_owned(),
        environment: vec![("NCCL_IB_TIMEOUT".to_owned(), "6".to_owned())],
        home: Some("/home/ada".into()),
        is_shaped: false,
        collector: "127.0.0.1:1".parse(),
        tls: Ok(TlsSettings::default()),
    }
}

/// Files that name the host, with the key as a service needs it.
fn issue(root: &Path) {
    let (authority, own) = Authority::create("site-a", now(), 30).unwrap();
    let request = Request::new(Role::Agent, "gpu-1", now(), 7).unwrap();
    let issued = authority.issue(&request, now()).unwrap();
    write(root, "etc/rdmesh/ca.crt", own.certificate.as_bytes());
    write(root, "etc/rdmesh/a.crt", issued.certificate.as_bytes());
    write(root, "etc/rdmesh/a.key", issued.key.as_bytes());
    let key = root.join("etc/rdmesh/a.key");
    fs::set_permissions(key, PermissionsExt::from_mode(0o600)).unwrap();
}

#[test]
fn a_host_is_read_as_it_is() {
    let root = host();
    issue(root.path());
    let facts = look(&question(root.path()));
    assert_eq!(facts.host, "gpu-01");
    let kernel = facts.kernel.found().unwrap();
    assert_eq!(kernel.release, "6.12.48+deb13-amd64");
    assert_eq!(
        (&kernel.btf, kernel.kptr_restrict),
        (&Looked::Found(5), Some(1))
    );
    assert_eq!(kernel.lockdown, Looked::Found("integrity".to_owned()));
    // What is built in is none of the modules.
    let modules: Vec<_> = kernel
        .modules
        .iter()
        .map(|m| (m.name.as_str(), m.has_btf))
        .collect();
    assert_eq!(modules, [("ib_core", true), ("mlx5_ib", false)]);
    let devices = facts.devices.found().unwrap();
    let port = &devices[0].ports[0];
    assert_eq!(port.state, Looked::Found("ACTIVE".to_owned()));
    assert_eq!((port.netdev.as_str(), &port.gids), ("ens1np0", &vec![0]));
    let shell = facts.shell.found().unwrap();
    assert_eq!((shell.uid, &shell.gids), (998, &vec![997, 4, 20]));
    assert_eq!(shell.memlock, Some(Limit::At(8 << 20)));
    let launchers = facts.launchers.found().unwrap();
    assert_eq!((launchers.len(), launchers[0].pid), (1, 700));
    assert_eq!(facts.clock.daemons, ["chronyd"]);
    // The environment wins over the machine's file.
    let settings = facts.nccl.settings.iter();
    let settings: Vec<_> = settings
        .map(|s| (s.name.as_str(), s.value.as_str()))
        .collect();
    assert_eq!(
        settings,
        [("NCCL_IB_HCA", "mlx5"), ("NCCL_IB_TIMEOUT", "6")]
    );
}

#[test]
fn a_service_is_what_its_file_and_its_process_say() {
    let root = host();
    issue(root.path());
    let facts = look(&question(root.path()));
    let here: Vec<&ServiceFacts> = facts.here().collect();
    assert_eq!(here.len(), 1);
    let tracer = here[0];
    assert_eq!((tracer.service, tracer.has_file), (Service::Tracer, true));
    let settings = tracer.settings.found().unwrap();
    assert_eq!(settings.reports_of, ["gpu-1"]);
    assert_eq!(tracer.running[0].unit, "rdmesh-tracer.service");
    assert_eq!(tracer.running[0].effective, Some(1 << 21));
    assert_eq!(tracer.user, Looked::Found((998, vec![997, 4, 20])));
    let spool = tracer.spool.as_ref().unwrap();
    assert_eq!((spool.max_mib, spool.is_named), (8, false));
    let place = spool.place.found().unwrap();
    // It is not made yet, and would be here.
    assert_eq!(
        (place.is_it, place.path.to_str()),
        (false, Some("/var/lib/rdmesh/tracer"))
    );
    let certificate = tracer.certificate.as_ref().unwrap();
    assert_eq!(certificate.files[2].owner.found().unwrap().mode, 0o600);
    let inspection = certificate.inspection.as_ref().unwrap();
    assert_eq!((&inspection.key, &inspection.chain), (&Ok(()), &Ok(())));
    assert!(inspection.peer.as_ref().unwrap().speaks_for("gpu-1"));
}

#[test]
fn users_are_those_of_the_machine() {
    let root = host();
    assert_eq!(
        process::user(root.path(), "rdmesh"),
        Looked::Found((998, vec![997, 4]))
    );
    assert_eq!(process::user(root.path(), "nobody"), Looked::Absent);
    write(root.path(), "etc/passwd", b"rdmesh:x:many\n\xff\xfe\n");
    assert_eq!(process::user(root.path(), "rdmesh"), Looked::Absent);
}

#[test]
fn a_machine_that_tells_nothing_is_looked_at_all_the_same() {
    let root = tempfile::tempdir().unwrap();
    let facts = look(&question(root.path()));
    assert_eq!(facts.devices, Looked::Absent);
    assert!(matches!(&facts.services, Looked::Unknown(why) if why.contains("/proc")));
    assert!(!examine(&facts).is_empty());
}

/// In place of each file of a host, in turn: a pipe that nobody writes to, an endless device, a
/// directory, garbage, a large file, a link to itself, nothing.
#[test]
fn no_odd_file_hangs_or_breaks_it() {
    let garbage: Vec<u8> = (0..=255).cycle().take(9_000).collect();
    let begun = Instant::now();
    for (path, _) in HOST {
        let root = host();
        issue(root.path());
        let at = root.path().join(path);
        let makes: [&dyn Fn(); 7] = [
            &|| mknodat(CWD, &at, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap(),
            &|| symlink("/dev/zero", &at).unwrap(),
            &|| fs::create_dir(&at).unwrap(),
            &|| fs::write(&at, &garbage).unwrap(),
            &|| fs::File::create(&at).unwrap().set_len(1 << 33).unwrap(),
            &|| symlink(&at, &at).unwrap(),
            &|| {},
        ];
        for make in makes {
            match at.symlink_metadata() {
                Ok(meta) if meta.is_dir() => fs::remove_dir_all(&at).unwrap(),
                Ok(_) => fs::remove_file(&at).unwrap(),
                Err(_) => {}
            }
            make();
            let facts = files_alone(root.path());
            assert!(!examine(&facts).is_empty());
        }
    }
    // No part was waited for to its bound.
    let rounds = u32::try_from(HOST.len() * 7).unwrap();
    assert!(begun.elapsed() < PART_WITHIN * rounds / 4);
}

/// Without programs, which have nothing to do with the tree and take their time.
fn files_alone(root: &Path) -> Facts {
    let (proc, sys) = (files::under(root, "/proc"), files::under(root, "/sys"));
    let processes = process::scan(&proc);
    let told: Vec<Told> = match processes.found() {
        Some(processes) => processes
            .services
            .iter()
            .map(|(_, told)| told.clone())
            .collect(),
        None => Vec::new(),
    };
    let told: Vec<&Told> = told.iter().collect();
    let file = files::bytes(
        &root.join("etc/rdmesh/tracer.toml"),
        files::CONFIGURATION_BYTES,
    );
    let text = file.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let text = text.found().cloned().unwrap_or_default();
    let settings = settings::settings(Service::Tracer, &text, told.first().copied(), "gpu-01");
    if let Ok(settings) = &settings {
        disk::spool(root, settings);
        let paths = settings.tls.clone().unwrap_or_default();
        disk::certificate(root, &paths, now());
    }
    Facts {
        kernel: Looked::Found(kernel::look(&proc, &sys)),
        shell: process::own(&proc),
        devices: rdma::devices(&sys),
        launchers: processes.map(|processes| processes.launchers),
        nccl: nccl::look(root, &[], None, Some(true)),
        now: now(),
        ..Facts::default()
    }
}

#[test]
fn odd_names_and_odd_configurations_are_told() {
    let root = host();
    let class = root.path().join("sys/class/infiniband");
    fs::create_dir_all(class.join(std::ffi::OsStr::from_bytes(b"mlx\xff_9/ports/1"))).unwrap();
    fs::create_dir_all(class.join("mlx5_1\u{1b}[31m/ports/x")).unwrap();
    fs::create_dir_all(class.join("mlx5_2/ports/99999999999")).unwrap();
    write(root.path(), "etc/rdmesh/tracer.toml", b"[tls\n");
    let facts = look(&question(root.path()));
    let devices = facts.devices.found().unwrap();
    assert_eq!(devices.len(), 3);
    assert!(devices[1..].iter().all(|device| device.ports.is_empty()));
    let told = facts.here().next().unwrap();
    assert!(matches!(&told.settings, Looked::Unknown(why) if why.contains("tracer.toml")));
    let checks = examine(&facts);
    assert!(checks.iter().any(|check| check.status != Status::Ok));
}

#[test]
fn certificates_in_pipes_are_not_waited_for() {
    let root = host();
    issue(root.path());
    let at = root.path().join("etc/rdmesh/a.crt");
    fs::remove_file(&at).unwrap();
    mknodat(CWD, &at, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let paths = [
        "/etc/rdmesh/ca.crt",
        "/etc/rdmesh/a.crt",
        "/etc/rdmesh/a.key",
    ];
    let certificate = disk::certificate(root.path(), &paths.map(PathBuf::from), now());
    assert_eq!(certificate.inspection, None);
    let why = certificate.files[1].unreadable.as_ref().unwrap();
    assert!(why.contains("no regular file"), "{why}");
}

#[test]
fn a_spool_that_is_no_directory_is_told() {
    let root = host();
    write(root.path(), "srv/spool", b"");
    let settings = |spool: &str| crate::doctor::facts::Settings {
        spool: spool.into(),
        ..Default::default()
    };
    let place = |spool| disk::spool(root.path(), &settings(spool)).place;
    assert!(matches!(place("/srv/spool"), Looked::Unknown(why) if why.contains("no directory")));
    assert!(matches!(
        place("/srv/spool/x"),
        Looked::Unknown(_) | Looked::Found(_)
    ));
    let Looked::Found(Place { is_it, path, .. }) = place("/srv/a/b/c") else {
        panic!("the nearest directory above it");
    };
    assert_eq!((is_it, path), (false, "/srv".into()));
}

#[test]
fn what_the_shapers_own_look_says_is_told_apart() {
    let lines = "ok     state is kept in /x\ncheck  core 2 is not isolated\nfail   no wires\n\
                 To be set on the host:\n  NCCL_IB_ECE_ENABLE=0\n";
    let told: Vec<_> = lines.lines().filter_map(preflight_line).collect();
    assert_eq!(told.len(), 2);
    assert!(!told[0].is_refused && told[1].is_refused);
    assert_eq!(told[1].text, "no wires");
}
