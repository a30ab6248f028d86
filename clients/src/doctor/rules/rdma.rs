//! RDMA devices and their ports.

use super::Check;
use crate::doctor::Topic;
use crate::doctor::facts::{Device, Facts, Looked, Port, Service};

/// The state of a port that carries traffic (`enum ib_port_state`).
const ACTIVE: &str = "ACTIVE";

/// Devices that one line names: more are counted.
const NAMED: usize = 8;

pub(super) fn examine(facts: &Facts, checks: &mut Vec<Check>) {
    if !facts.traces() && !facts.has(Service::Shaper) {
        return;
    }
    let check = "RDMA devices";
    let devices = match &facts.devices {
        Looked::Found(devices) if !devices.is_empty() => devices,
        Looked::Unknown(why) => {
            checks.push(Check::unknown(Topic::Rdma, check, why));
            return;
        }
        Looked::Found(_) | Looked::Absent => {
            checks.push(none(facts));
            return;
        }
    };
    let (mut active, mut seen) = (Vec::new(), 0);
    for device in devices {
        seen += device.ports.len();
        if device.ports.iter().any(is_active) {
            active.push(device);
        }
        checks.extend(device.ports.iter().filter_map(|port| odd(device, port)));
    }
    if active.is_empty() && seen > 0 {
        let count = devices.len();
        checks.push(Check::problem(
            Topic::Rdma,
            check,
            format!("of {count} none has an ACTIVE port: no job can use RDMA here"),
            "see what each port says below, and `rdma link`; a port needs a cable, a switch that \
             has the other end up, and `ip link set DEV up`, with InfiniBand a subnet manager",
        ));
    } else if !active.is_empty() {
        checks.push(Check::ok(Topic::Rdma, check, working(&active)));
    } else {
        let why = format!("of {} none tells its ports", devices.len());
        checks.push(Check::unknown(Topic::Rdma, check, why));
    }
}

fn none(facts: &Facts) -> Check {
    let core = facts.kernel.found().is_some_and(|k| k.has_rdma_core);
    let found = match core {
        true => "none, though the kernel's RDMA core is there",
        false => "none, and the kernel's RDMA core (ib_core) is not loaded",
    };
    let next = "load the NIC's RDMA driver (`modprobe mlx5_ib`, `modprobe irdma`, …) and look into \
                the kernel's log; `rdma dev` lists what is there";
    // A tracer without devices waits, and watches nothing.
    match facts.has(Service::Tracer) {
        true => Check::problem(Topic::Rdma, "RDMA devices", found, next),
        false => Check::warning(Topic::Rdma, "RDMA devices", found, next),
    }
}

fn is_active(port: &Port) -> bool {
    port.state.found().is_some_and(|state| state == ACTIVE)
}

/// `8 with an ACTIVE port: mlx5_0 (400 Gb/sec (4X NDR), Ethernet, ens1np0), …`.
fn working(active: &[&Device]) -> String {
    let mut named: Vec<String> = active
        .iter()
        .take(NAMED)
        .map(|device| {
            let port = device.ports.iter().find(|port| is_active(port));
            let port = port.cloned().unwrap_or_default();
            let facts = [port.rate, port.link_layer, port.netdev];
            let facts: Vec<String> = facts.into_iter().filter(|fact| !fact.is_empty()).collect();
            match facts.is_empty() {
                true => device.name.clone(),
                false => format!("{} ({})", device.name, facts.join(", ")),
            }
        })
        .collect();
    if let Some(more) = active.len().checked_sub(NAMED).filter(|more| *more > 0) {
        named.push(format!("{more} more"));
    }
    format!(
        "{} with an ACTIVE port: {}",
        active.len(),
        super::listed(&named)
    )
}

/// What is odd about a port.
fn odd(device: &Device, port: &Port) -> Option<Check> {
    let check = format!("{} port {}", device.name, port.number);
    let state = match &port.state {
        Looked::Found(state) => state.as_str(),
        Looked::Absent => return Some(Check::unknown(Topic::Rdma, check, "it tells no state")),
        Looked::Unknown(why) => return Some(Check::unknown(Topic::Rdma, check, why)),
    };
    let is_ethernet = port.link_layer == "Ethernet";
    let netdev = match port.netdev.as_str() {
        "" => "its network device".to_owned(),
        name => name.to_owned(),
    };
    let physical = match port.physical.as_str() {
        "" => String::new(),
        physical => format!(" ({physical})"),
    };
    match state {
        ACTIVE if is_ethernet && (port.netdev.is_empty() || port.gids.is_empty()) => {
            Some(Check::warning(
                Topic::Rdma,
                check,
                "ACTIVE, without an address (GID): RoCE connects to nobody from it",
                format!("give {netdev} an IP address; `rdma link` names it"),
            ))
        }
        ACTIVE => None,
        "INIT" if !is_ethernet => Some(Check::warning(
            Topic::Rdma,
            check,
            "INIT: no subnet manager has set it up",
            "start a subnet manager in this fabric (opensm, or the switch's own); `sminfo` asks \
             for it",
        )),
        "DOWN" | "INIT" | "ARMED" | "ACTIVE_DEFER" => Some(Check::warning(
            Topic::Rdma,
            check,
            format!("{state}{physical}"),
            format!(
                "set {netdev} up (`ip link set DEV up`); if it stays so, look at cable, \
                 transceiver and switch port. Nothing is wrong with a port that is not used"
            ),
        )),
        other => {
            let why = format!("its state reads {other:?}");
            Some(Check::unknown(Topic::Rdma, check, why))
        }
    }
}
