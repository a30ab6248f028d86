//! What is reckoned for the frame pools is enough for them without huge pages, where
//! buffers are packed, and where a device on the PCI bus forbids that.
#![allow(clippy::unwrap_used)]
#![cfg(feature = "dpdk")]

use rdmesh_shaper::config::{ENVIRONMENT_BYTES, ShaperConfig};
use rdmesh_shaper::dpdk::{Eal, EalOptions, Pool};

/// Rings that are large against the queue left least to spare.
const CONFIG: &str = r#"
    [dpdk]
    huge_pages = false
    rx_descriptors = 32768
    [[wires]]
    name = "w0"
    in_port = "net_null0"
    out_port = "net_null1"
    queue_frames = 64
"#;

fn fit(devices: &str) {
    let config = CONFIG.replace("huge_pages", &format!("{devices}huge_pages"));
    let config: ShaperConfig = toml::from_str(&config).unwrap();
    let eal = Eal::start(&EalOptions {
        huge_pages: config.dpdk.huge_pages,
        memory_mb: config.dpdk_memory_bytes().div_ceil(1 << 20),
        pci_devices: config.dpdk.pci_devices(),
        file_prefix: format!("rdmesh-pools-{}", std::process::id()),
    })
    .unwrap();
    for name in config.port_names() {
        let pool = Pool::new(&eal, &name, config.pool_of(&name)).unwrap();
        assert_eq!(pool.free_mbufs(), pool.plan().mbufs);
    }
    // What is left is what drivers take beside them, what rounding may add to a buffer,
    // and some for each pool.
    let left = eal.heap_free_bytes();
    let may_be_added = config.pool_bytes() - config.least_pool_bytes();
    let most = ENVIRONMENT_BYTES + may_be_added + (16 << 20);
    assert!(left < most, "{} MB", left >> 20);
}

#[test]
fn packed_pools_fit_into_the_memory_that_is_reckoned() {
    fit("");
}

/// No such device: DPDK is told of one, and finds none.
#[test]
fn pools_on_small_pages_fit_into_the_memory_that_is_reckoned() {
    fit("devices = [\"ffff:ff:1f.7\"]\n    ");
}
