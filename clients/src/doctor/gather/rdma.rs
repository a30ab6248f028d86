//! RDMA devices.

use std::net::Ipv6Addr;
use std::path::Path;

use super::files::{names, names_or_none, text, text_or_nothing};
use crate::doctor::facts::{Device, Looked, Port};

/// Devices that are looked at: a host with a function for each of 1,024 virtual machines has as
/// many.
const MAX_DEVICES: usize = 1_100;

/// Ports of a device, and places of a port's GID table, at most: the kernel's own bounds are 255
/// and, on the devices of the field, 256.
const MAX_PORTS: usize = 255;
const MAX_GIDS: usize = 1_024;

pub(super) fn devices(sys: &Path) -> Looked<Vec<Device>> {
    let class = sys.join("class/infiniband");
    match names(&class) {
        Looked::Found(all) => Looked::Found(
            all.into_iter()
                .take(MAX_DEVICES)
                .map(|name| Device {
                    ports: ports(&class.join(&name).join("ports")),
                    name,
                })
                .collect(),
        ),
        Looked::Absent => Looked::Absent,
        Looked::Unknown(why) => Looked::Unknown(why),
    }
}

fn ports(directory: &Path) -> Vec<Port> {
    let numbers = names_or_none(directory);
    let numbers = numbers.iter().filter_map(|name| name.parse().ok());
    let mut ports: Vec<Port> = numbers
        .take(MAX_PORTS)
        .map(|number: u32| port(&directory.join(number.to_string()), number))
        .collect();
    ports.sort_by_key(|port| port.number);
    ports
}

fn port(directory: &Path, number: u32) -> Port {
    let word = |file: &str| text_or_nothing(&directory.join(file));
    let interfaces = directory.join("gid_attrs/ndevs");
    let netdev = names_or_none(&interfaces)
        .iter()
        .take(MAX_GIDS)
        .map(|place| text_or_nothing(&interfaces.join(place)))
        .find(|name| !name.is_empty());
    Port {
        number,
        state: text(&directory.join("state")).map(|text| after_colon(&text)),
        physical: after_colon(&word("phys_state")),
        link_layer: word("link_layer"),
        rate: word("rate"),
        netdev: netdev.unwrap_or_default(),
        gids: gids(&directory.join("gids")),
    }
}

/// Places that hold an address.
fn gids(directory: &Path) -> Vec<u32> {
    let places = names_or_none(directory);
    let mut used: Vec<u32> = places
        .iter()
        .take(MAX_GIDS)
        .filter(|place| {
            let gid: Result<Ipv6Addr, _> = text_or_nothing(&directory.join(place)).parse();
            gid.is_ok_and(|gid| !gid.is_unspecified())
        })
        .filter_map(|place| place.parse().ok())
        .collect();
    used.sort_unstable();
    used
}

/// "4: ACTIVE" → "ACTIVE".
fn after_colon(text: &str) -> String {
    let state = text.split_once(':').map_or(text, |(_, state)| state);
    state.trim().to_owned()
}
