//! Section `[dpdk]`: devices, memory, rings.

use rdmesh_services::config::{Check, Invalid, Validate};
use serde::{Deserialize, Serialize};

use crate::datapath::{FEWER_FRAMES, PoolPlan, buffer_page_bytes};

/// What DPDK itself takes beside the pools, bytes: its heap's bookkeeping and the
/// drivers' rings (32,768 descriptors of 64 bytes in both directions are 4 MB).
pub const ENVIRONMENT_BYTES: u64 = 64 << 20;

/// Most devices: a card with 16 functions is one.
const MAX_DEVICES: usize = 64;

/// Devices, memory and rings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DpdkConfig {
    /// Devices in DPDK's notation: PCI addresses with their arguments, or devices
    /// without a bus (`net_af_packet0,iface=veth0`).
    pub devices: Vec<String>,
    /// Huge pages, as on the card.
    pub huge_pages: bool,
    /// Memory for DPDK, MB; 0: what the wires need.
    pub memory_mb: u64,
    /// Two services on a machine need different ones.
    pub file_prefix: String,
    /// Core of the poll loop, its own; absent: any core, shared with others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// Receive ring of each port, frames. Smaller ones overflow at the first burst.
    pub rx_descriptors: u16,
    /// Send ring of each port, frames. What stands there is out of the shaper's hands.
    pub tx_descriptors: u16,
    /// Count when less than so many percent of a receive ring are free, which only a card
    /// can tell; 0: do not. A card that is set up for it holds its host back then, so
    /// each time makes the window invalid.
    pub rx_low_percent: u8,
    /// Bytes of a frame that one buffer holds; longer frames take several where the
    /// device can.
    pub buffer_bytes: u32,
}

impl Default for DpdkConfig {
    fn default() -> Self {
        Self {
            devices: Vec::new(),
            huge_pages: true,
            memory_mb: 0,
            file_prefix: "rdmesh-shaper".to_owned(),
            cpu: None,
            rx_descriptors: 32_768,
            tx_descriptors: 1024,
            rx_low_percent: 0,
            buffer_bytes: 2048,
        }
    }
}

impl DpdkConfig {
    /// The pool of a port that feeds a wire of so many frames of at most so many bytes.
    #[must_use]
    pub fn pool(&self, queue_frames: u32, frame_bytes: u32) -> PoolPlan {
        PoolPlan::for_wire(
            self.rx_descriptors,
            queue_frames,
            self.tx_descriptors,
            self.buffer_bytes,
            frame_bytes,
        )
    }

    /// Pages that buffers lie on, bytes.
    #[must_use]
    pub fn page_bytes(&self) -> u64 {
        buffer_page_bytes(self.huge_pages, !self.pci_devices().is_empty())
    }

    /// What to do where memory is too little.
    #[must_use]
    pub fn memory_advice(&self) -> &'static str {
        match self.memory_mb {
            0 => FEWER_FRAMES,
            _ => "lower `dpdk.memory_mb`, or set it to 0 for what the wires need",
        }
    }

    /// Devices on the PCI bus, which DPDK has to be told of when it starts.
    #[must_use]
    pub fn pci_devices(&self) -> Vec<String> {
        self.devices
            .iter()
            .filter(|device| is_pci(device))
            .cloned()
            .collect()
    }

    /// Devices without a bus.
    #[must_use]
    pub fn virtual_devices(&self) -> Vec<String> {
        self.devices
            .iter()
            .filter(|device| !is_pci(device))
            .cloned()
            .collect()
    }
}

/// `0000:03:00.0…` or `03:00.0…`.
fn is_pci(device: &str) -> bool {
    let address = device.split(',').next().unwrap_or_default();
    let parts: Vec<&str> = address.split([':', '.']).collect();
    (3..=4).contains(&parts.len())
        && parts
            .iter()
            .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

impl Validate for DpdkConfig {
    fn validate(&self) -> Result<(), Invalid> {
        Check::range(
            "devices (their number)",
            self.devices.len(),
            0..=MAX_DEVICES,
        )?;
        Check::range("rx_descriptors", self.rx_descriptors, 64..=32_768)?;
        Check::range("tx_descriptors", self.tx_descriptors, 64..=32_768)?;
        Check::range("rx_low_percent", self.rx_low_percent, 0..=99)?;
        Check::range("buffer_bytes", self.buffer_bytes, 1024..=16_384)?;
        Check::range("memory_mb", self.memory_mb, 0..=1 << 20)?;
        let fits = |b: u8| b.is_ascii_alphanumeric() || b"-_".contains(&b);
        if self.file_prefix.is_empty() || !self.file_prefix.bytes().all(fits) {
            let allowed = "letters, digits, - and _, at least one";
            return Err(Invalid::new("file_prefix", &self.file_prefix, allowed));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buses_are_told_apart() {
        for pci in ["0000:03:00.0", "03:00.1,representor=vf[0-4]"] {
            assert!(is_pci(pci), "{pci}");
        }
        for other in [
            "net_null0",
            "net_af_packet0,iface=a:b.c",
            "",
            "net_pcap0,rx_pcap=/a.b:c",
        ] {
            assert!(!is_pci(other), "{other}");
        }
    }
}
