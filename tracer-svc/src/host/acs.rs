//! Access control services of PCI bridges. Where they are in force, peer-to-peer
//! traffic between a NIC and a GPU takes the way through the root complex.

use std::path::Path;

use super::devices::{class_of, pci_devices};
use super::roots::{Roots, bytes};

/// PCI-to-PCI bridge, base class and sub-class.
const BRIDGE: u32 = 0x0604;
/// Where extended capabilities begin (PCI Express base specification 7.6).
const EXTENDED: usize = 0x100;
/// Extended capability id of ACS (7.7.8).
const ACS: u16 = 0x000d;
/// Control bits that turn peer-to-peer requests and completions upwards:
/// P2P request redirect, P2P completion redirect, upstream forwarding.
const REDIRECTS: u16 = 0x04 | 0x08 | 0x10;
/// Capabilities that are followed, so that a list that runs in a circle ends:
/// 4 KiB of 8-byte headers.
const CAPABILITIES: usize = 480;

/// Bridges that redirect peer-to-peer traffic. Reading the configuration space
/// beyond its first 64 bytes takes CAP_SYS_ADMIN; without it none is seen.
pub(super) fn bridges(roots: &Roots) -> u32 {
    let in_force = |path: &Path| {
        class_of(path).is_some_and(|c| c >> 8 == BRIDGE)
            && bytes(&path.join("config")).is_some_and(|config| redirects(&config))
    };
    let count = pci_devices(roots)
        .iter()
        .filter(|(_, path)| in_force(path))
        .count();
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn redirects(config: &[u8]) -> bool {
    let mut at = EXTENDED;
    for _ in 0..CAPABILITIES {
        let Some(header) = config.get(at..at + 4) else {
            return false;
        };
        let header = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        if header == 0 || header == u32::MAX {
            return false;
        }
        if header & 0xffff == u32::from(ACS) {
            return config.get(at + 6..at + 8).is_some_and(|control| {
                u16::from_le_bytes([control[0], control[1]]) & REDIRECTS != 0
            });
        }
        at = ((header >> 20) & 0xffc) as usize;
        if at < EXTENDED {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(control: u16) -> Vec<u8> {
        let mut config = vec![0; 4096];
        // Advanced error reporting first, ACS behind it.
        config[0x100..0x104]
            .copy_from_slice(&(0x0001 | (1 << 16) | (0x148u32 << 20)).to_le_bytes());
        config[0x148..0x14c].copy_from_slice(&(u32::from(ACS) | (1 << 16)).to_le_bytes());
        config[0x14e..0x150].copy_from_slice(&control.to_le_bytes());
        config
    }

    #[test]
    fn the_control_register_decides() {
        assert!(redirects(&config(0x1d)));
        assert!(!redirects(&config(0x01)));
        assert!(!redirects(&[]));
    }

    #[test]
    fn a_list_in_a_circle_ends() {
        let mut config = vec![0; 4096];
        config[0x100..0x104].copy_from_slice(&(0x0001 | (0x100u32 << 20)).to_le_bytes());
        assert!(!redirects(&config));
    }
}
