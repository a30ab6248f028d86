//! Probe reports and inventories, validated.

use std::collections::BTreeSet;

use prost::Message;
use rdmesh_proto::common::v1::{Layer, Verb};
use rdmesh_proto::tracer::v1::{
    AttachKind, Inventory, MissingReason, Probe, ProbeReport, ProbeState, RdmaDevice, TracerCost,
};
use rdmesh_store::ingest::{
    InventoryReport, PortAddress, Probe as StoredProbe, ProbeReport as StoredReport,
};
use serde_json::json;
use time::OffsetDateTime;

use crate::ingest::columns::{Refusal, Text, long};
use crate::ingest::limits::{ADDRESSES_MAX, INVENTORY_ROWS_MAX, PROBES_MAX, REASONS_MAX};
use crate::ingest::marks::Marks;
use crate::ingest::snapshot::inventory_id;
use crate::times;

fn bounded(field: &str, found: usize, most: usize) -> Result<(), Refusal> {
    if found > most {
        return Err(Refusal::TooMany {
            field: field.to_owned(),
            found,
            most,
        });
    }
    Ok(())
}

/// Cleans a text in place, so that neither the rows nor the kept message can change a
/// terminal. What had to be changed is marked; only line ends are none of it, for the end
/// of a verifier's log has them.
fn clean(marks: &mut Marks, what: &str, text: &mut String) {
    let line = text.trim_end().replace(['\n', '\r', '\t'], " ");
    let kept = Text::new(line.as_bytes());
    marks.text(what, &kept);
    *text = kept.text;
}

fn clean_report(report: &mut ProbeReport) -> Marks {
    let mut marks = Marks::default();
    clean(&mut marks, "kernel release", &mut report.kernel_release);
    clean(&mut marks, "obstacle", &mut report.obstacle);
    clean(&mut marks, "resolution", &mut report.resolution);
    // No share that a tracer can have measured: it is not shown as one.
    report.cost = report.cost.take().filter(is_measured);
    for driver in &mut report.drivers {
        clean(&mut marks, "driver", driver);
    }
    for probe in &mut report.probes {
        for (what, text) in [
            ("hook", &mut probe.hook),
            ("function", &mut probe.function),
            ("module", &mut probe.module),
            ("reason", &mut probe.reason),
            ("place", &mut probe.found_by),
        ] {
            clean(&mut marks, what, text);
        }
    }
    marks
}

fn is_measured(cost: &TracerCost) -> bool {
    let is_share = |share: f64| share.is_finite() && share >= 0.0;
    is_share(cost.process_cpu_share) && cost.probes_cpu_share.is_none_or(is_share)
}

fn clean_inventory(inventory: &mut Inventory) -> Marks {
    let mut marks = Marks::default();
    let mut texts = vec![("OFED version", &mut inventory.ofed_version)];
    if let Some(kernel) = &mut inventory.kernel {
        texts.push(("kernel release", &mut kernel.release));
        texts.push(("kernel version", &mut kernel.version));
        texts.push(("machine", &mut kernel.machine));
        texts.push(("kernel command line", &mut kernel.command_line));
    }
    for device in &mut inventory.devices {
        texts.push(("device", &mut device.name));
        texts.push(("driver", &mut device.driver));
        texts.push(("driver version", &mut device.driver_version));
        texts.push(("firmware version", &mut device.firmware_version));
        texts.push(("PCI address", &mut device.pci_address));
        texts.push(("board id", &mut device.board_id));
        texts.push(("node GUID", &mut device.node_guid));
        for port in &mut device.ports {
            texts.push(("port state", &mut port.state));
            texts.push(("port state", &mut port.physical_state));
            texts.push(("link layer", &mut port.link_layer));
            texts.push(("network interface", &mut port.netdev));
        }
    }
    if let Some(gpu) = &mut inventory.gpu {
        texts.push(("GPU driver", &mut gpu.name));
        texts.push(("GPU driver", &mut gpu.version));
    }
    let peer = inventory.peer_memory.iter_mut();
    texts.extend(peer.flat_map(|peer| peer.modules.iter_mut().map(|m| ("peer module", m))));
    if let Some(iommu) = &mut inventory.iommu {
        texts.push(("IOMMU mode", &mut iommu.mode));
    }
    if let Some(pages) = &mut inventory.huge_pages {
        texts.push(("huge pages", &mut pages.transparent));
    }
    if let Some(cgroup) = &mut inventory.cgroup {
        texts.push(("cgroup controller", &mut cgroup.controller));
    }
    for (what, text) in texts {
        clean(&mut marks, what, text);
    }
    marks
}

/// Each reason once; one that a newer tracer knows and we do not is 0, "unknown".
fn missing_because(probe: &Probe, marks: &mut Marks) -> Result<Vec<i32>, Refusal> {
    let told = &probe.missing_because;
    bounded(
        "probe_report.probes.missing_because",
        told.len(),
        REASONS_MAX,
    )?;
    let mut reasons = Vec::with_capacity(told.len());
    for reason in told {
        let reason = marks.known::<MissingReason>("reason", *reason).into();
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    Ok(reasons)
}

/// The probes of a host.
pub(crate) fn probe_report(report: &ProbeReport) -> Result<StoredReport, Refusal> {
    bounded("probe_report.probes", report.probes.len(), PROBES_MAX)?;
    bounded(
        "probe_report.drivers",
        report.drivers.len(),
        INVENTORY_ROWS_MAX,
    )?;
    let count = |field: &str, value: u32| {
        i32::try_from(value).map_err(|_| Refusal::value(field, value, "0 to 2147483647"))
    };
    if report.logical_attached > report.logical_total {
        let allowed = "at most probe_report.logical_total";
        let field = "probe_report.logical_attached";
        return Err(Refusal::value(field, report.logical_attached, allowed));
    }
    let mut report = report.clone();
    let mut marks = clean_report(&mut report);
    // The kept message is answered as it stands: it says the same as the rows.
    for probe in &mut report.probes {
        probe.layer = marks.known::<Layer>("layer", probe.layer).into();
        probe.verb = marks.known::<Verb>("verb", probe.verb).into();
        probe.state = marks.known::<ProbeState>("state", probe.state).into();
        probe.attached_by = marks
            .known::<AttachKind>("attachment", probe.attached_by)
            .into();
        probe.missing_because = missing_because(probe, &mut marks)?;
    }
    let small = |number: i32| i16::try_from(number).unwrap_or(0);
    let probes = report
        .probes
        .iter()
        .map(|probe| {
            Ok(StoredProbe {
                hook: probe.hook.clone(),
                function: probe.function.clone(),
                module: probe.module.clone(),
                layer: small(probe.layer),
                verb: small(probe.verb),
                logical: probe.logical,
                state: small(probe.state),
                attached_by: small(probe.attached_by),
                reason: probe.reason.clone(),
                failures: long("probe_report.probes.failures", probe.failures)?,
                drops: long("probe_report.probes.drops", probe.drops)?,
                unseen: long("probe_report.probes.unseen", probe.unseen)?,
                found_by: probe.found_by.clone(),
                missing_because: probe.missing_because.iter().map(|n| small(*n)).collect(),
            })
        })
        .collect::<Result<_, Refusal>>()?;
    Ok(StoredReport {
        kernel_release: report.kernel_release.clone(),
        logical_attached: count("probe_report.logical_attached", report.logical_attached)?,
        logical_total: count("probe_report.logical_total", report.logical_total)?,
        obstacle: report.obstacle.clone(),
        probes,
        marks: marks.into_vec(),
        body: report.encode_to_vec(),
    })
}

/// What a host is. Without a time it is like this since it was received.
pub(crate) fn inventory(
    inventory: &Inventory,
    received_at: OffsetDateTime,
) -> Result<InventoryReport, Refusal> {
    if inventory.id.is_empty() {
        return Err(Refusal::missing("inventory.id"));
    }
    bounded(
        "inventory.devices",
        inventory.devices.len(),
        INVENTORY_ROWS_MAX,
    )?;
    for device in &inventory.devices {
        bounded(
            "inventory.devices.ports",
            device.ports.len(),
            INVENTORY_ROWS_MAX,
        )?;
    }
    let seen_at = times::optional("inventory.seen_at", inventory.seen_at.as_ref())
        .map_err(Refusal::Time)?
        .unwrap_or(received_at);
    let mut inventory = inventory.clone();
    let marks = clean_inventory(&mut inventory);
    let addresses = addresses(&inventory)?;
    let gpu = inventory.gpu.as_ref();
    Ok(InventoryReport {
        id: inventory_id("inventory.id", &inventory.id)?,
        seen_at,
        kernel_release: inventory
            .kernel
            .as_ref()
            .map(|kernel| kernel.release.clone())
            .unwrap_or_default(),
        ofed_version: inventory.ofed_version.clone(),
        gpu_driver: gpu
            .map(|gpu| format!("{} {}", gpu.name, gpu.version).trim().to_owned())
            .unwrap_or_default(),
        summary: summary(&inventory),
        marks: marks.into_vec(),
        addresses,
        body: inventory.encode_to_vec(),
    })
}

/// GIDs of all ports, each once.
fn addresses(inventory: &Inventory) -> Result<Vec<PortAddress>, Refusal> {
    let mut all = BTreeSet::new();
    for device in &inventory.devices {
        for port in &device.ports {
            let field = "inventory.devices.ports.addresses";
            bounded(field, port.addresses.len(), ADDRESSES_MAX)?;
            for gid in &port.addresses {
                let Ok(gid) = <[u8; 16]>::try_from(gid.as_slice()) else {
                    let found = format!("{} bytes", gid.len());
                    return Err(Refusal::value(field, found, "16 bytes"));
                };
                all.insert(PortAddress {
                    gid,
                    device: device.name.clone(),
                    port: port.number.into(),
                });
            }
        }
    }
    Ok(all.into_iter().collect())
}

/// What SQL users see of an inventory.
fn summary(inventory: &Inventory) -> String {
    let devices: Vec<_> = inventory.devices.iter().map(device).collect();
    let limits = inventory.limits.as_ref();
    let peer = inventory.peer_memory.as_ref();
    let iommu = inventory.iommu.as_ref();
    json!({
        "devices": devices,
        "memlock_bytes": limits.and_then(|limits| limits.memlock_bytes),
        "peer_memory": peer.map(|peer| &peer.modules),
        "dmabuf": peer.map(|peer| peer.dmabuf),
        "iommu": iommu.map(|iommu| iommu.enabled),
        "acs_bridges": iommu.map(|iommu| iommu.acs_bridges),
        "huge_pages": inventory.huge_pages.as_ref().map(|pages| pages.total),
        "cgroup_version": inventory.cgroup.as_ref().map(|cgroup| cgroup.version),
    })
    .to_string()
}

fn device(device: &RdmaDevice) -> serde_json::Value {
    let ports: Vec<_> = device
        .ports
        .iter()
        .map(|port| {
            json!({
                "number": port.number,
                "state": port.state,
                "netdev": port.netdev,
                "rate_bps": port.rate_bps,
                "gids": port.gids,
            })
        })
        .collect();
    json!({
        "name": device.name,
        "driver": device.driver,
        "driver_version": device.driver_version,
        "firmware_version": device.firmware_version,
        "pci_address": device.pci_address,
        "ports": ports,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::macros::datetime;

    #[test]
    fn an_inventory_without_id_is_refused_and_without_time_is_of_now() {
        let now = datetime!(2026-11-25 12:00 UTC);
        let refused = inventory(&Inventory::default(), now).unwrap_err();
        assert_eq!(refused.to_string(), "inventory.id is missing");
        let named = Inventory {
            id: "ab".into(),
            ..Inventory::default()
        };
        let stored = inventory(&named, now).unwrap();
        assert_eq!(stored.seen_at, now);
        assert!(
            stored.summary.contains("\"devices\":[]"),
            "{}",
            stored.summary
        );
    }

    #[test]
    fn a_report_is_cleaned_and_says_what_was_odd() {
        let probe = Probe {
            function: "ib\u{1b}[31m".into(),
            reason: "refused:\nlast line\n".into(),
            layer: 99,
            missing_because: vec![8, 8, 77],
            ..Probe::default()
        };
        let sent = ProbeReport {
            probes: vec![probe],
            cost: Some(TracerCost {
                process_cpu_share: f64::NAN,
                probes_cpu_share: None,
            }),
            resolution: "kernel x\ny".into(),
            ..ProbeReport::default()
        };
        let stored = probe_report(&sent).unwrap();
        assert_eq!(stored.probes[0].function, "ib\u{FFFD}[31m");
        assert_eq!(stored.probes[0].reason, "refused: last line");
        assert_eq!(stored.probes[0].layer, 0);
        assert_eq!(stored.probes[0].missing_because, [8, 0]);
        assert_eq!(
            stored.marks,
            [
                "function was not storable text (not UTF-8, control characters, or too long); it \
                 was changed",
                "layer 99 is not known to this collector (is the agent newer?); stored as unknown",
                "reason 77 is not known to this collector (is the agent newer?); stored as \
                 unknown",
            ]
        );
        let kept = ProbeReport::decode(stored.body.as_slice()).unwrap();
        assert_eq!(kept.probes[0].function, "ib\u{FFFD}[31m");
        assert_eq!((kept.resolution.as_str(), kept.cost), ("kernel x y", None));
        assert_eq!(
            (kept.probes[0].layer, &kept.probes[0].missing_because[..]),
            (0, &[8, 0][..])
        );
    }

    #[test]
    fn text_with_nul_does_not_reach_postgres() {
        let device = RdmaDevice {
            name: "mlx\0".into(),
            ..RdmaDevice::default()
        };
        let named = Inventory {
            id: "ab".into(),
            devices: vec![device],
            ..Inventory::default()
        };
        let stored = inventory(&named, OffsetDateTime::UNIX_EPOCH).unwrap();
        assert!(!stored.summary.contains("\\u0000"), "{}", stored.summary);
        assert!(stored.marks[0].starts_with("device was not storable"));
        let kept = Inventory::decode(stored.body.as_slice()).unwrap();
        assert_eq!(kept.devices[0].name, "mlx\u{FFFD}");
    }
}
