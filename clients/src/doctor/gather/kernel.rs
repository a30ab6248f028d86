//! The kernel.

use std::path::Path;

use super::files::{names_or_none, size, text, text_or_nothing};
use crate::doctor::facts::{Kernel, Looked, Module};

/// Modules of the RDMA stack: those that the catalogue has hooks in, and drivers of
/// drivers/infiniband with what they stand on.
const RDMA_MODULES: [&str; 24] = [
    "ib_core",
    "ib_uverbs",
    "rdma_cm",
    "rdma_ucm",
    "mlx5_core",
    "mlx5_ib",
    "mlx4_core",
    "mlx4_ib",
    "bnxt_re",
    "irdma",
    "mana",
    "mana_ib",
    "efa",
    "erdma",
    "hns_roce_hw_v2",
    "qedr",
    "iw_cxgb4",
    "ocrdma",
    "vmw_pvrdma",
    "usnic_verbs",
    "ib_mthca",
    "hfi1",
    "rdma_rxe",
    "siw",
];

/// Of which all others make use.
const CORE: &str = "ib_core";

pub(super) fn look(proc: &Path, sys: &Path) -> Kernel {
    let settings = proc.join("sys/kernel");
    let btf = sys.join("kernel/btf");
    let types = names_or_none(&btf);
    let modules = sys.join("module");
    // What is built in has a directory too, and no state.
    let is_loaded = |name: &&str| modules.join(name).join("initstate").exists();
    let loaded = RDMA_MODULES.iter().filter(|name| is_loaded(name));
    Kernel {
        release: text_or_nothing(&settings.join("osrelease")),
        machine: std::env::consts::ARCH.to_owned(),
        btf: size(&btf.join("vmlinux")),
        modules: loaded
            .map(|name| Module {
                name: (*name).to_owned(),
                has_btf: types.iter().any(|known| known == name),
            })
            .collect(),
        has_rdma_core: modules.join(CORE).is_dir() || sys.join("class/infiniband").is_dir(),
        lockdown: lockdown(sys),
        kptr_restrict: text_or_nothing(&settings.join("kptr_restrict"))
            .parse()
            .ok(),
    }
}

/// "none [integrity] confidentiality" → "integrity".
fn lockdown(sys: &Path) -> Looked<String> {
    let security = sys.join("kernel/security");
    match text(&security.join("lockdown")) {
        Looked::Found(modes) => {
            let chosen = modes
                .split_once('[')
                .and_then(|(_, rest)| rest.split_once(']'));
            match chosen {
                Some((mode, _)) => Looked::Found(mode.to_owned()),
                None => Looked::Unknown(format!("lockdown reads {modes:?}")),
            }
        }
        // The list of security modules is there wherever securityfs is.
        Looked::Absent if security.join("lsm").exists() => Looked::Absent,
        Looked::Absent => Looked::Unknown("securityfs is not mounted here".to_owned()),
        Looked::Unknown(why) => Looked::Unknown(why),
    }
}
