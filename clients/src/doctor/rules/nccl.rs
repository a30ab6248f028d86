//! What is said to NCCL, against the devices of this host and, where a shaper stands before it,
//! against what that needs (docs/shaper.md, "Prepare the host").

use super::Check;
use crate::doctor::Topic;
use crate::doctor::facts::{Device, Facts, Looked, NcclSetting, Port, Service};

/// NCCL's timeout of an acknowledgement is 4.096 µs times two to this power (InfiniBand
/// Architecture Specification, "Local ACK Timeout"): 67 ms, beyond what a full queue of a shaper
/// delays a frame.
const SAFE_TIMEOUT: u32 = 14;

/// The unit of that timeout, ns.
const TIMEOUT_UNIT_NS: u64 = 4_096;

/// Largest value that the field of five bits takes.
const MAX_TIMEOUT: u32 = 31;

pub(super) fn examine(facts: &Facts, checks: &mut Vec<Check>) {
    if !facts.traces() {
        checks.extend(elsewhere(facts));
        return;
    }
    let nccl = &facts.nccl;
    for why in &nccl.unread {
        checks.push(Check::unknown(Topic::Nccl, "NCCL settings", why));
    }
    let before = checks.len();
    for setting in &nccl.settings {
        let odd = match setting.name.as_str() {
            "NCCL_IB_DISABLE" => disabled(setting),
            "NCCL_IB_HCA" => devices(setting, facts),
            "NCCL_SOCKET_IFNAME" => interfaces(setting, facts),
            "NCCL_IB_GID_INDEX" => gid_index(setting, facts),
            "NCCL_IB_TIMEOUT" => timeout(setting, nccl.shaped == Some(true)),
            _ => None,
        };
        checks.extend(odd);
    }
    checks.extend(ece(facts));
    if checks.len() == before {
        checks.push(Check::ok(Topic::Nccl, "NCCL settings", fine(facts)));
    }
}

/// On a DPU alone: its jobs run on the host before it.
fn elsewhere(facts: &Facts) -> Option<Check> {
    let shaper = facts.here().find(|here| here.service == Service::Shaper)?;
    let host = shaper.settings.found().and_then(|s| s.reports_of.last());
    let host = host.map_or("the host", String::as_str);
    Some(Check {
        next: Some(format!("run `rdmesh doctor --shaped` on {host}")),
        ..Check::unknown(
            Topic::Nccl,
            "NCCL settings",
            format!("jobs run on {host}, whose functions are shaped here"),
        )
    })
}

fn said(setting: &NcclSetting) -> String {
    let NcclSetting { name, value, from } = setting;
    format!("{name}={value} ({from})")
}

fn fine(facts: &Facts) -> String {
    let nccl = &facts.nccl;
    let all: Vec<String> = nccl.settings.iter().map(said).collect();
    let told = match all.is_empty() {
        true => "none in the environment or nccl.conf".to_owned(),
        false => super::listed(&all),
    };
    match nccl.shaped {
        Some(true) => format!("{told}; fit for the shaper before this host"),
        Some(false) => told,
        None => format!("{told}; whether a shaper stands before this host is not known: --shaped"),
    }
}

fn disabled(setting: &NcclSetting) -> Option<Check> {
    let is_off = setting.value != "0" && !setting.value.is_empty();
    is_off.then(|| {
        Check::warning(
            Topic::Nccl,
            setting.name.as_str(),
            format!("{}: NCCL makes no use of RDMA", said(setting)),
            format!("take it out of {}", setting.from),
        )
    })
}

/// `^=a,b:1`: without what is named; `=`: whole names, else how they begin.
struct Names<'a> {
    excludes: bool,
    is_exact: bool,
    names: Vec<&'a str>,
}

impl<'a> Names<'a> {
    fn of(value: &'a str) -> Names<'a> {
        let (excludes, rest) = match value.strip_prefix('^') {
            Some(rest) => (true, rest),
            None => (false, value),
        };
        let (is_exact, rest) = match rest.strip_prefix('=') {
            Some(rest) => (true, rest),
            None => (false, rest),
        };
        let names = rest.split(',').map(str::trim);
        Names {
            excludes,
            is_exact,
            names: names.filter(|name| !name.is_empty()).collect(),
        }
    }

    fn is(&self, written: &str, name: &str) -> bool {
        match self.is_exact {
            true => name == written,
            false => name.starts_with(written),
        }
    }

    /// Those that nothing has.
    fn strangers(&self, known: &[&str]) -> Vec<String> {
        let bare = |name: &&str| {
            name.split_once(':')
                .map_or(*name, |(bare, _)| bare)
                .to_owned()
        };
        let names = self.names.iter().map(bare);
        names
            .filter(|written| !known.iter().any(|name| self.is(written, name)))
            .collect()
    }
}

fn devices(setting: &NcclSetting, facts: &Facts) -> Option<Check> {
    let devices = match &facts.devices {
        Looked::Found(devices) => devices.as_slice(),
        Looked::Absent => &[],
        Looked::Unknown(_) => return None,
    };
    let known: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
    strangers(setting, &known, "RDMA device", "`rdma dev` lists them")
}

fn interfaces(setting: &NcclSetting, facts: &Facts) -> Option<Check> {
    let known: Vec<&str> = facts
        .nccl
        .interfaces
        .as_ref()?
        .iter()
        .map(String::as_str)
        .collect();
    strangers(setting, &known, "network interface", "`ip link` lists them")
}

/// Names of what is not there. To leave out what is not there does no harm.
fn strangers(setting: &NcclSetting, known: &[&str], what: &str, lists: &str) -> Option<Check> {
    let names = Names::of(&setting.value);
    let strangers = names.strangers(known);
    if names.excludes || strangers.is_empty() {
        return None;
    }
    let found = format!(
        "{}: there is no {what} {}",
        said(setting),
        super::listed(&strangers)
    );
    let next = format!("name those of this host in {}; {lists}", setting.from);
    Some(match strangers.len() == names.names.len() {
        true => Check::problem(Topic::Nccl, setting.name.as_str(), found, next),
        false => Check::warning(Topic::Nccl, setting.name.as_str(), found, next),
    })
}

fn gid_index(setting: &NcclSetting, facts: &Facts) -> Option<Check> {
    // -1: NCCL chooses.
    let index: i64 = match setting.value.trim().parse() {
        Ok(index) => index,
        Err(_) => return Some(no_number(setting)),
    };
    let index = u32::try_from(index).ok()?;
    let lacks = |port: &&Port| {
        let is_used = port.state.found().is_some_and(|state| state == "ACTIVE");
        is_used && port.link_layer == "Ethernet" && !port.gids.contains(&index)
    };
    let of_device = |device: &Device| {
        let ports: Vec<&Port> = device.ports.iter().filter(lacks).collect();
        let named = ports
            .iter()
            .map(|port| format!("{} port {}", device.name, port.number));
        named.collect::<Vec<String>>()
    };
    let without: Vec<String> = facts.devices.found()?.iter().flat_map(of_device).collect();
    (!without.is_empty()).then(|| {
        Check::problem(
            Topic::Nccl,
            setting.name.as_str(),
            format!(
                "{}: there is no GID at that place of {}",
                said(setting),
                super::listed(&without)
            ),
            format!(
                "take it out of {}, so that NCCL chooses, or name a place that `show_gids` or \
                 /sys/class/infiniband/DEVICE/ports/1/gids has on every device",
                setting.from
            ),
        )
    })
}

fn no_number(setting: &NcclSetting) -> Check {
    Check::warning(
        Topic::Nccl,
        setting.name.as_str(),
        format!("{}: that is no number", said(setting)),
        format!("mend or remove it in {}", setting.from),
    )
}

fn timeout(setting: &NcclSetting, is_shaped: bool) -> Option<Check> {
    let power: u32 = match setting.value.trim().parse() {
        Ok(power) if power <= MAX_TIMEOUT => power,
        _ => return Some(no_number(setting)),
    };
    if power >= SAFE_TIMEOUT {
        return None;
    }
    let microseconds = (TIMEOUT_UNIT_NS << power) / 1_000;
    let found = format!(
        "{}: after {microseconds} us without an acknowledgement the card sends again what is \
         merely queued, with every error counter at zero",
        said(setting)
    );
    let next = format!(
        "set NCCL_IB_TIMEOUT={SAFE_TIMEOUT} or more in {}",
        setting.from
    );
    Some(match is_shaped {
        true => Check::problem(Topic::Nccl, setting.name.as_str(), found, next),
        false => Check::warning(Topic::Nccl, setting.name.as_str(), found, next),
    })
}

/// Congestion control by round-trip time takes the shaper's queue for congestion.
fn ece(facts: &Facts) -> Option<Check> {
    let name = "NCCL_IB_ECE_ENABLE";
    if facts.nccl.shaped != Some(true) {
        return None;
    }
    let set = facts
        .nccl
        .settings
        .iter()
        .find(|setting| setting.name == name);
    let found = match set {
        Some(setting) if setting.value.trim() == "0" => return None,
        Some(setting) => said(setting),
        None => format!("{name} is not set"),
    };
    Some(Check::problem(
        Topic::Nccl,
        name,
        format!(
            "{found}: behind a shaper, congestion control by round-trip time takes its queue for \
             congestion, and collapses"
        ),
        format!("{name}=0 in the jobs' environment, or in /etc/nccl.conf"),
    ))
}
