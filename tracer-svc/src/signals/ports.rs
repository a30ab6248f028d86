//! The state of each port, told when it changes.

use std::collections::BTreeMap;

use rdmesh_proto::tracer::v1::CoSignalKind;

use crate::host::Roots;
use crate::snapshot::CoSignal;

/// What a port was when it was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    /// `ACTIVE`, `DOWN`, …: enum ib_port_state.
    logical: String,
    /// `LinkUp`, `Disabled`, `Polling`, …: as sysfs words it.
    physical: String,
}

/// The ports that were there at the last look.
#[derive(Debug, Default)]
pub(super) struct Ports {
    seen: Option<BTreeMap<(String, String), State>>,
}

impl Ports {
    /// What changed since the last look, which was at `since`: nothing tells when in between,
    /// and a cause that is told late would stand after what it caused.
    pub(super) fn look(&mut self, roots: &Roots, since: u64) -> Vec<CoSignal> {
        let now = read(roots);
        let Some(before) = self.seen.replace(now.clone()) else {
            return Vec::new();
        };
        let mut signals = Vec::new();
        for ((device, port), was) in &before {
            let signal = |name: &'static str, independent, detail| CoSignal {
                boot_ns: since,
                kind: CoSignalKind::Network,
                independent,
                name: name.into(),
                detail,
                device: device.clone().into_bytes(),
            };
            let Some(is) = now.get(&(device.clone(), port.clone())) else {
                signals.push(CoSignal {
                    kind: CoSignalKind::Device,
                    ..signal("port_removed", true, format!("port {port}"))
                });
                continue;
            };
            // A port that comes back is no cause of what failed before.
            if was.logical != is.logical {
                let detail = format!("port {port}: {} to {}", was.logical, is.logical);
                signals.push(signal("port_state", is.logical != "ACTIVE", detail));
            }
            if was.physical != is.physical {
                let detail = format!("port {port}: {} to {}", was.physical, is.physical);
                signals.push(signal("port_phys_state", is.physical != "LinkUp", detail));
            }
        }
        signals
    }
}

fn read(roots: &Roots) -> BTreeMap<(String, String), State> {
    super::ports_of(roots)
        .into_iter()
        .map(|(device, port, dir)| {
            let state = State {
                logical: word(&dir.join("state")),
                physical: word(&dir.join("phys_state")),
            };
            ((device, port), state)
        })
        .collect()
}

/// `4: ACTIVE` is `ACTIVE`.
fn word(path: &std::path::Path) -> String {
    let text = crate::host::text(path);
    match text.split_once(':') {
        Some((_, word)) => word.trim().to_owned(),
        None => text,
    }
}
