//! Devices and ports: whether they are there, and whether a wire fits them.

use std::path::{Path, PathBuf};

use super::{Finding, Grade, finding};
use crate::config::{ShaperConfig, WireSection};

/// Arguments of drivers without a bus that no other program has a part in. Others are
/// checked by the driver alone, when the service starts.
const ARGUMENTS: [(&str, &[&str]); 4] = [
    (
        AF_PACKET,
        &[
            "iface",
            "qpairs",
            "blocksz",
            "framesz",
            "framecnt",
            "qdisc_bypass",
        ],
    ),
    ("net_null", &["size", "copy", "no-rx"]),
    (
        "net_pcap",
        &[
            "rx_pcap",
            "tx_pcap",
            "rx_iface",
            "rx_iface_in",
            "tx_iface",
            "iface",
            "phy_mac",
            "infinite_rx",
        ],
    ),
    ("net_ring", &["nodeaction", "internal"]),
];

/// The driver that moves frames through a packet socket of the kernel.
const AF_PACKET: &str = "net_af_packet";

/// Largest payload of a frame that it takes: its longest frame has 1,518 bytes.
const AF_PACKET_MTU_BYTES: u16 = 1500;

/// All of them.
pub(super) fn look(config: &ShaperConfig, root: &Path) -> Vec<Finding> {
    let devices = &config.dpdk.devices;
    let mut findings: Vec<Finding> = devices.iter().filter_map(|d| behind(d, root)).collect();
    findings.extend(devices.iter().filter_map(|device| unknown_argument(device)));
    findings.extend(devices.iter().filter_map(|device| cut_frames(device, root)));
    findings.extend(no_raw_sockets(devices, root));
    for wire in &config.wires {
        for port in [&wire.in_port, &wire.out_port] {
            findings.extend(no_port(wire, port, devices));
            findings.extend(too_long(wire, port));
        }
    }
    findings
}

/// `CAP_NET_RAW`, as a bit of `CapEff` (`linux/capability.h`).
const CAP_NET_RAW: u64 = 1 << 13;

/// A packet socket takes a right.
fn no_raw_sockets(devices: &[String], root: &Path) -> Option<Finding> {
    devices
        .iter()
        .find(|device| name(device).starts_with(AF_PACKET))?;
    let status = std::fs::read_to_string(root.join("proc/self/status")).ok()?;
    let mut lines = status.lines();
    let effective = lines.find_map(|line| line.strip_prefix("CapEff:"))?;
    let effective = u64::from_str_radix(effective.trim(), 16).ok()?;
    (effective & CAP_NET_RAW == 0).then(|| {
        let text = format!("{AF_PACKET} takes CAP_NET_RAW: run as root or as the unit does");
        finding(Grade::Refused, text)
    })
}

fn name(device: &str) -> &str {
    device.split(',').next().unwrap_or_default()
}

fn interface(device: &str) -> Option<&str> {
    let mut parts = device.split(',');
    parts.find_map(|part| part.strip_prefix("iface="))
}

/// As the bus writes it: `0000:03:00.0` of `03:00.0`.
fn address(device: &str) -> Option<String> {
    let name = name(device);
    match name.matches(':').count() {
        0 => None,
        1 => Some(format!("0000:{name}")),
        _ => Some(name.to_owned()),
    }
}

/// The device of the bus, or the interface, that a configured device names.
fn behind(device: &str, root: &Path) -> Option<Finding> {
    let (what, path): (_, PathBuf) = match (interface(device), address(device)) {
        (Some(interface), _) => (interface, root.join("sys/class/net").join(interface)),
        (None, Some(address)) => (name(device), root.join("sys/bus/pci/devices").join(address)),
        (None, None) => return None,
    };
    Some(if path.exists() {
        finding(Grade::Fine, format!("{what} is there"))
    } else {
        let text = format!("{what}, named in dpdk.devices, is not there");
        finding(Grade::Refused, text)
    })
}

fn unknown_argument(device: &str) -> Option<Finding> {
    let driver = ARGUMENTS
        .iter()
        .find(|(driver, _)| device.starts_with(driver));
    let (driver, known) = driver?;
    let mut given = device.split(',').skip(1);
    let unknown = given.find(|part| {
        let key = part.split('=').next().unwrap_or_default();
        !known.contains(&key)
    })?;
    let text = format!(
        "device {device}: {driver} has no argument `{unknown}`; it takes {}",
        known.join(", ")
    );
    Some(finding(Grade::Refused, text))
}

/// Ports are called like their devices; those of a card begin with its address.
fn no_port(wire: &WireSection, port: &str, devices: &[String]) -> Option<Finding> {
    let makes = |device: &String| match address(device) {
        Some(address) => port.starts_with(&address),
        None => port == name(device),
    };
    if devices.iter().any(makes) {
        return None;
    }
    let names = devices.iter().map(|device| name(device));
    let text = format!(
        "wire {}: no device in dpdk.devices makes port {port}; ports are called like their \
         devices: {}",
        wire.name,
        names.collect::<Vec<_>>().join(", ")
    );
    Some(finding(Grade::Refused, text))
}

fn too_long(wire: &WireSection, port: &str) -> Option<Finding> {
    if !port.starts_with(AF_PACKET) || wire.mtu <= AF_PACKET_MTU_BYTES {
        return None;
    }
    let text = format!(
        "wire {}: port {port} takes an mtu of at most {AF_PACKET_MTU_BYTES}, and the wire has {}",
        wire.name, wire.mtu
    );
    Some(finding(Grade::Refused, text))
}

/// The driver hands on the beginning of a longer frame, and counts nothing.
fn cut_frames(device: &str, root: &Path) -> Option<Finding> {
    let interface = interface(device).filter(|_| device.starts_with(AF_PACKET))?;
    let mtu = std::fs::read_to_string(root.join("sys/class/net").join(interface).join("mtu"));
    let mtu: u32 = mtu.ok()?.trim().parse().ok()?;
    let text = format!(
        "{interface} has an MTU of {mtu}: {AF_PACKET} cuts frames of more than \
         {AF_PACKET_MTU_BYTES} bytes without counting them; `ip link set {interface} mtu \
         {AF_PACKET_MTU_BYTES}`"
    );
    (mtu > AF_PACKET_MTU_BYTES.into()).then(|| finding(Grade::Doubtful, text))
}

/// Devices that no driver of DPDK serves. Starts DPDK without a device and without huge
/// pages, since it alone knows its drivers.
#[cfg(feature = "dpdk")]
pub(super) fn without_driver(config: &ShaperConfig) -> Vec<Finding> {
    use crate::dpdk::{Eal, EalOptions};
    let devices = config.dpdk.virtual_devices();
    if devices.is_empty() {
        return Vec::new();
    }
    let options = EalOptions {
        huge_pages: false,
        // No pool is made.
        memory_mb: 16,
        pci_devices: Vec::new(),
        file_prefix: format!("rdmesh-check-{}", std::process::id()),
    };
    let eal = match Eal::start(&options) {
        Ok(eal) => eal,
        Err(error) => return vec![finding(Grade::Doubtful, error.to_string())],
    };
    let unknown = devices.iter().filter(|device| !eal.has_driver(device));
    unknown
        .map(|device| {
            let text = format!("device {device}: DPDK has no driver of that name on this machine");
            finding(Grade::Refused, text)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(devices: &[&str], wire: &str) -> String {
        let text = format!(
            "[dpdk]\ndevices = {devices:?}\n[[wires]]\nname = \"w0\"\nin_port = \"net_null0\"\n{wire}"
        );
        let config: ShaperConfig = toml::from_str(&text).unwrap();
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("sys/class/net/in0")).unwrap();
        std::fs::write(root.path().join("sys/class/net/in0/mtu"), "9000\n").unwrap();
        let found = look(&config, root.path()).into_iter();
        let bad = found.filter(|finding| finding.grade != Grade::Fine);
        bad.map(|finding| finding.text + "\n").collect()
    }

    #[test]
    fn ports_and_arguments_that_no_device_has_are_told() {
        let null = ["net_null0,size=64", "net_null1"];
        assert_eq!(refused(&null, "out_port = \"net_null1\""), "");
        let told = refused(&null, "out_port = \"nope\"");
        assert!(
            told.contains("port nope") && told.contains("net_null0, net_null1"),
            "{told}"
        );
        let told = refused(
            &["net_null0,foo=1", "net_null1"],
            "out_port = \"net_null1\"",
        );
        assert!(
            told.contains("`foo=1`") && told.contains("size, copy"),
            "{told}"
        );
        let card = ["net_null0", "03:00.0,representor=vf[0-1]"];
        for port in ["0000:03:00.0", "0000:03:00.0_representor_vf1"] {
            let told = refused(&card, &format!("out_port = \"{port}\""));
            assert!(!told.contains("makes port"), "{told}");
        }
    }

    #[test]
    fn frames_that_a_packet_socket_does_not_carry_are_told() {
        let devices = ["net_null0", "net_af_packet0,iface=in0,qdisc_bypass=0"];
        let told = refused(&devices, "out_port = \"net_af_packet0\"\nmtu = 9000");
        assert!(told.contains("mtu of at most 1500"), "{told}");
        assert!(told.contains("in0 has an MTU of 9000"), "{told}");
    }
}
