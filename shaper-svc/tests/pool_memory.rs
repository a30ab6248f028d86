//! What is reckoned for the frame pools is enough for them, where it is hardest: without
//! huge pages, on which DPDK lays no buffer across the end of a page of 4 KB.
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

#[test]
fn pools_fit_into_the_memory_that_is_reckoned() {
    let config: ShaperConfig = toml::from_str(CONFIG).unwrap();
    let eal = Eal::start(&EalOptions {
        huge_pages: config.dpdk.huge_pages,
        memory_mb: config.dpdk_memory_bytes().div_ceil(1 << 20),
        pci_devices: Vec::new(),
        file_prefix: format!("rdmesh-pools-{}", std::process::id()),
    })
    .unwrap();
    for name in config.port_names() {
        let pool = Pool::new(&eal, &name, config.pool_of(&name)).unwrap();
        assert_eq!(pool.free_mbufs(), pool.plan().mbufs);
    }
    // What is left is what drivers take beside them, and some for each pool.
    let left = eal.heap_free_bytes();
    assert!(left < ENVIRONMENT_BYTES + (16 << 20), "{} MB", left >> 20);
}
