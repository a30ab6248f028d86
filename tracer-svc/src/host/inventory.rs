//! The inventory and its changes.

use prost::Message;
use rdmesh_proto::common::v1::ClockPair;
pub use rdmesh_proto::tracer::v1::Inventory;

use super::nldev::DriverNames;
use super::{Roots, devices, kernel, memory};

/// Reads what the host is. `drivers` tells the module of each RDMA device where
/// the kernel does. The id is filled in; `seen_at` is left to [`Inventories`].
#[must_use]
pub fn scan(roots: &Roots, drivers: &DriverNames, clock: &ClockPair) -> Inventory {
    let devices = devices::read(roots, drivers);
    let kernel = kernel::kernel(roots, clock);
    let mut inventory = Inventory {
        id: String::new(),
        seen_at: None,
        peer_memory: Some(kernel::peer_memory(roots, &kernel.release)),
        kernel: Some(kernel),
        gpu: kernel::gpu(roots),
        ofed_version: kernel::ofed_version(roots),
        iommu: Some(memory::iommu(roots, &devices)),
        huge_pages: Some(memory::huge_pages(roots)),
        limits: Some(memory::limits(roots)),
        cgroup: Some(memory::cgroup(roots)),
        devices,
    };
    inventory.id = digest(&inventory);
    inventory
}

/// The inventory in force, and when the host was first seen like that.
#[derive(Debug, Default)]
pub struct Inventories {
    current: Option<Inventory>,
}

impl Inventories {
    /// Takes a scan; returns the inventory to send when it differs from the one
    /// in force. `realtime_ns` is the time of the scan.
    pub fn take(&mut self, mut scanned: Inventory, realtime_ns: u64) -> Option<&Inventory> {
        if self.current.as_ref().is_some_and(|c| c.id == scanned.id) {
            return None;
        }
        scanned.seen_at = Some(kernel::timestamp(realtime_ns));
        self.current = Some(scanned);
        self.current.as_ref()
    }

    /// Id of the inventory in force; empty before the first scan.
    #[must_use]
    pub fn id(&self) -> &str {
        self.current.as_ref().map_or("", |i| i.id.as_str())
    }
}

/// Digest of what makes one host differ from another. Times are left out, and
/// the number of free huge pages, which changes with every job.
fn digest(inventory: &Inventory) -> String {
    let mut content = inventory.clone();
    content.id = String::new();
    content.seen_at = None;
    if let Some(kernel) = &mut content.kernel {
        kernel.booted_at = None;
    }
    if let Some(pages) = &mut content.huge_pages {
        pages.free = 0;
    }
    format!("{:032x}", fnv1a_128(&content.encode_to_vec()))
}

/// FNV-1a, 128 bits (draft-eastlake-fnv). Inventories are not chosen by an
/// adversary, and two hosts alike must have one id.
fn fnv1a_128(bytes: &[u8]) -> u128 {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(OFFSET, |hash, byte| {
        (hash ^ u128::from(*byte)).wrapping_mul(PRIME)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_published_one() {
        assert_eq!(fnv1a_128(b""), 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        assert_eq!(fnv1a_128(b"a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
    }

    #[test]
    fn free_pages_and_times_change_no_id() {
        let mut inventory = Inventory {
            huge_pages: Some(rdmesh_proto::tracer::v1::HugePages {
                total: 8,
                free: 3,
                ..Default::default()
            }),
            ..Default::default()
        };
        let id = digest(&inventory);
        inventory.seen_at = Some(kernel::timestamp(5));
        inventory.huge_pages.as_mut().unwrap().free = 1;
        assert_eq!(digest(&inventory), id);
        inventory.huge_pages.as_mut().unwrap().total = 9;
        assert_ne!(digest(&inventory), id);
    }

    #[test]
    fn only_a_change_is_sent_and_keeps_its_time() {
        let mut inventories = Inventories::default();
        let scan = |id: &str| Inventory {
            id: id.to_owned(),
            ..Default::default()
        };
        assert!(inventories.take(scan("a"), 1_000_000_001).is_some());
        assert!(inventories.take(scan("a"), 2_000_000_000).is_none());
        let seen = inventories
            .take(scan("b"), 3_000_000_000)
            .unwrap()
            .seen_at
            .unwrap();
        assert_eq!((seen.seconds, inventories.id()), (3, "b"));
    }
}
