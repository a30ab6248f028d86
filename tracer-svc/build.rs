//! Compiles the BPF programs with clang. libbpf's headers are not needed.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Debian 12 has 14 by default, Debian 13 has 19; 14 is the oldest that was tried.
const CLANGS: [&str; 9] = [
    "clang", "clang-19", "clang-18", "clang-17", "clang-16", "clang-15", "clang-14", "clang-20",
    "clang-21",
];

fn main() {
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-env-changed=RDMESH_CLANG");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let arch = match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("x86_64") => "x86",
        Ok("aarch64") => "arm64",
        other => panic!("no BPF register names for {other:?}: add them to tracer-svc/bpf/arch.h"),
    };
    let clang = clang();
    // A test builds the readers with it as an ordinary program.
    println!("cargo:rustc-env=RDMESH_CLANG_FOUND={clang}");
    compile(&clang, arch, "bpf/probes.bpf.c", &out.join("probes.o"));
    compile(&clang, arch, "bpf/wide.bpf.c", &out.join("wide.o"));
    compile(&clang, arch, "bpf/layout.c", &out.join("layout.o"));
}

/// The first clang that knows the BPF target.
fn clang() -> String {
    let named = env::var("RDMESH_CLANG").ok();
    let names = named.iter().map(String::as_str).chain(CLANGS);
    for name in names {
        let targets = Command::new(name).arg("-print-targets").output();
        if targets.is_ok_and(|o| String::from_utf8_lossy(&o.stdout).contains(" bpf ")) {
            return name.to_owned();
        }
    }
    panic!(
        "no clang with the BPF target found (tried {CLANGS:?}): on Debian `apt-get install clang`, \
         or name one with RDMESH_CLANG"
    );
}

fn compile(clang: &str, arch: &str, source: &str, object: &Path) {
    let status = Command::new(clang)
        .args([
            "-O2", "-g", "-Wall", "-Werror", "-target", "bpf", "-mcpu=v3",
        ])
        .arg(format!("-D__TARGET_ARCH_{arch}"))
        .args(["-c", source, "-o"])
        .arg(object)
        .status();
    match status {
        Ok(status) if status.success() => strip(clang, object),
        other => panic!("{clang} could not compile {source}: {other:?}"),
    }
}

/// Drops DWARF and keeps BTF. Only size depends on it, so a missing tool is fine.
fn strip(clang: &str, object: &Path) {
    let tool = clang.replace("clang", "llvm-strip");
    let _ = Command::new(tool).arg("-g").arg(object).status();
}
