//! Probe reports and inventories, validated.

use prost::Message;
use rdmesh_proto::tracer::v1::{Inventory, ProbeReport, RdmaDevice};
use rdmesh_store::ingest::{InventoryReport, Probe, ProbeReport as StoredReport};
use serde_json::json;
use time::OffsetDateTime;

use crate::ingest::columns::{Refusal, long, shown};
use crate::ingest::limits::{INVENTORY_ROWS_MAX, PROBES_MAX};
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

fn small(value: i32) -> i16 {
    i16::try_from(value).unwrap_or(0)
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
    let probes = report
        .probes
        .iter()
        .map(|probe| {
            Ok(Probe {
                hook: shown(&probe.hook),
                function: shown(&probe.function),
                module: shown(&probe.module),
                layer: small(probe.layer),
                verb: small(probe.verb),
                logical: probe.logical,
                state: small(probe.state),
                attached_by: small(probe.attached_by),
                reason: shown(&probe.reason),
                failures: long("probe_report.probes.failures", probe.failures)?,
                drops: long("probe_report.probes.drops", probe.drops)?,
                found_by: shown(&probe.found_by),
            })
        })
        .collect::<Result<_, Refusal>>()?;
    Ok(StoredReport {
        kernel_release: shown(&report.kernel_release),
        logical_attached: count("probe_report.logical_attached", report.logical_attached)?,
        logical_total: count("probe_report.logical_total", report.logical_total)?,
        obstacle: shown(&report.obstacle),
        probes,
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
    let gpu = inventory.gpu.as_ref();
    Ok(InventoryReport {
        id: inventory_id("inventory.id", &inventory.id)?,
        seen_at,
        kernel_release: inventory
            .kernel
            .as_ref()
            .map(|k| shown(&k.release))
            .unwrap_or_default(),
        ofed_version: shown(&inventory.ofed_version),
        gpu_driver: gpu
            .map(|gpu| shown(format!("{} {}", gpu.name, gpu.version).trim()))
            .unwrap_or_default(),
        summary: summary(inventory),
        body: inventory.encode_to_vec(),
    })
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
        "peer_memory": peer.map(|p| p.modules.iter().map(|m| shown(m)).collect::<Vec<_>>()),
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
                "state": shown(&port.state),
                "netdev": shown(&port.netdev),
                "rate_bps": port.rate_bps,
                "gids": port.gids,
            })
        })
        .collect();
    json!({
        "name": shown(&device.name),
        "driver": shown(&device.driver),
        "driver_version": shown(&device.driver_version),
        "firmware_version": shown(&device.firmware_version),
        "pci_address": shown(&device.pci_address),
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
    }
}
