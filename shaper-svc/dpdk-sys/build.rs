//! Compiles the shim against the installed DPDK and links the few libraries that
//! the shaper calls. Drivers are not linked: EAL loads them from its plug-in folder.

use std::error::Error;
use std::path::Path;

/// Debian 12's DPDK. Earlier ones lack REPRESENTED_PORT in the shape used here.
const OLDEST: &str = "22.11";

/// What the declarations of `src/lib.rs` and the shim call.
const LIBRARIES: [&str; 7] = [
    "rte_ethdev",
    "rte_mbuf",
    "rte_mempool",
    "rte_ring",
    "rte_kvargs",
    "rte_telemetry",
    "rte_eal",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=shim/shim.c");
    println!("cargo::rerun-if-changed=shim/shim.h");
    let library = pkg_config::Config::new()
        .atleast_version(OLDEST)
        .cargo_metadata(false)
        .env_metadata(true)
        .probe("libdpdk")
        .map_err(|e| {
            format!(
                "DPDK {OLDEST} or later was not found: {e}\n\
                 install it (Debian: apt install libdpdk-dev dpdk-dev), or build without it: \
                 --no-default-features"
            )
        })?;

    let mut build = cc::Build::new();
    println!("cargo::rerun-if-changed=benches/sched.c");
    if std::env::var_os("CARGO_FEATURE_BENCH_SCHED").is_some() {
        build.file("benches/sched.c");
    }
    build
        .file("shim/shim.c")
        .include("shim")
        .includes(&library.include_paths);
    // What DPDK's own cflags say beside the folders; the crate does not pass it on.
    build.flag("-include").flag("rte_config.h");
    if std::env::var("CARGO_CFG_TARGET_ARCH")? == "x86_64" {
        // The instruction set that Debian builds DPDK for; its inline functions need it.
        build.flag("-march=corei7");
    }
    build
        // Its loops over bursts are to take several frames at a time.
        .opt_level(3)
        .flag("-Wno-deprecated-declarations")
        .warnings(true)
        .compile("rdmesh_dpdk_shim");

    for path in &library.link_paths {
        println!("cargo::rustc-link-search=native={}", path.display());
        if Path::new(path).join("librte_eal.so").exists() {
            break;
        }
    }
    if std::env::var_os("CARGO_FEATURE_BENCH_SCHED").is_some() {
        println!("cargo::rustc-link-lib=dylib=rte_sched");
    }
    for name in LIBRARIES {
        println!("cargo::rustc-link-lib=dylib={name}");
    }
    println!("cargo::metadata=version={}", library.version);
    Ok(())
}
