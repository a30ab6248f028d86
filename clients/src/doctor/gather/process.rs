//! Processes, as /proc tells of them.

use std::path::{Path, PathBuf};

use super::files::{self, bytes, names, text_or_nothing};
use crate::doctor::facts::{Limit, Looked, Process, Service};

/// Programs that start jobs, or from which people do: what they start has their limits.
const LAUNCHERS: [&str; 8] = [
    "slurmd",
    "containerd",
    "dockerd",
    "crio",
    "kubelet",
    "pbs_mom",
    "sge_execd",
    "sshd",
];

/// Programs that keep the clock, as /proc shortens their names.
const CLOCK_DAEMONS: [&str; 6] = [
    "chronyd",
    "ntpd",
    "systemd-timesyn",
    "ptp4l",
    "phc2sys",
    "timemaster",
];

/// Most bytes of a process's arguments or environment: the kernel's own bound is larger, and no
/// service of ours has so many.
const ARGUMENT_BYTES: u64 = 2 << 20;

/// A process of a service, with what it was told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) process: Process,
    /// Its arguments, its own name first.
    pub(super) arguments: Vec<String>,
    /// Its variables of rdmesh; empty where others may not read them.
    pub(super) variables: Vec<(String, String)>,
}

/// Those that matter here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Processes {
    pub(super) services: Vec<(Service, Told)>,
    pub(super) launchers: Vec<Process>,
    pub(super) clock_daemons: Vec<String>,
}

/// Looks at all of them.
pub(super) fn scan(proc: &Path) -> Looked<Processes> {
    let all = match names(proc) {
        Looked::Found(all) => all,
        Looked::Absent => return Looked::Unknown("there is no /proc".to_owned()),
        Looked::Unknown(why) => return Looked::Unknown(why),
    };
    let mut found = Processes::default();
    for pid in all.iter().filter_map(|name| name.parse::<u32>().ok()) {
        let directory = proc.join(pid.to_string());
        // Arguments and environment of a process that hangs in the kernel can hang their reader:
        // its name cannot, and is all that is read of others.
        let name = text_or_nothing(&directory.join("comm"));
        let service = Service::ALL.into_iter().find(|s| s.program() == name);
        if let Some(service) = service {
            found.services.push((service, told(&directory, pid)));
        } else if LAUNCHERS.contains(&name.as_str()) {
            found.launchers.push(process(&directory, pid));
        } else if CLOCK_DAEMONS.contains(&name.as_str()) {
            found.clock_daemons.push(name);
        }
    }
    // One line for each kind: sshd has a process for each session, and its first is the parent.
    found
        .launchers
        .sort_by(|a, b| (&a.name, a.pid).cmp(&(&b.name, b.pid)));
    found.launchers.dedup_by(|a, b| a.name == b.name);
    found.clock_daemons.sort();
    found.clock_daemons.dedup();
    Looked::Found(found)
}

/// The process that looks.
pub(super) fn own(proc: &Path) -> Looked<Process> {
    let directory = proc.join("self");
    match files::text(&directory.join("status")) {
        Looked::Found(status) => {
            let pid = field(&status, "Pid").and_then(|text| text.parse().ok());
            Looked::Found(process(&directory, pid.unwrap_or(0)))
        }
        Looked::Absent => Looked::Unknown("there is no /proc/self".to_owned()),
        Looked::Unknown(why) => Looked::Unknown(why),
    }
}

fn process(directory: &Path, pid: u32) -> Process {
    let status = text_or_nothing(&directory.join("status"));
    let limits = text_or_nothing(&directory.join("limits"));
    let numbers = |name| {
        let words = field(&status, name).unwrap_or_default().split_whitespace();
        words.filter_map(|word| word.parse::<u32>().ok())
    };
    let mask = |name| u64::from_str_radix(field(&status, name)?, 16).ok();
    // Real, effective, saved, of the file system.
    let mut gids: Vec<u32> = numbers("Gid").skip(1).take(1).collect();
    gids.extend(numbers("Groups"));
    Process {
        pid,
        name: text_or_nothing(&directory.join("comm")),
        unit: unit(&text_or_nothing(&directory.join("cgroup"))),
        uid: numbers("Uid").nth(1).unwrap_or(u32::MAX),
        gids,
        effective: mask("CapEff"),
        bounding: mask("CapBnd"),
        memlock: limit(&limits, "Max locked memory"),
        open_files: limit(&limits, "Max open files"),
    }
}

fn told(directory: &Path, pid: u32) -> Told {
    let parts = |file: &str| -> Vec<String> {
        let bytes = bytes(&directory.join(file), ARGUMENT_BYTES);
        let bytes = bytes.found().cloned().unwrap_or_default();
        let parts = bytes
            .split(|byte| *byte == 0)
            .filter(|part| !part.is_empty());
        parts
            .map(|part| String::from_utf8_lossy(part).into_owned())
            .collect()
    };
    let variables = parts("environ").into_iter().filter_map(|part| {
        let (name, value) = part.split_once('=')?;
        let is_ours = name.starts_with("RDMESH_");
        is_ours.then(|| (name.to_owned(), value.to_owned()))
    });
    Told {
        process: process(directory, pid),
        variables: variables.collect(),
        arguments: parts("cmdline"),
    }
}

/// The value of `Name:\tvalue`.
fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let value = status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.map(str::trim)
}

/// The soft limit in a line of /proc/PID/limits.
fn limit(limits: &str, name: &str) -> Option<Limit> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(Limit::Unlimited),
        number => number.parse().ok().map(Limit::At),
    }
}

/// `0::/system.slice/rdmesh-tracer.service` → `rdmesh-tracer.service`.
fn unit(cgroup: &str) -> String {
    let parts = cgroup.lines().flat_map(|line| line.rsplit('/'));
    let mut units = parts.filter(|part| part.ends_with(".service"));
    units.next().unwrap_or_default().to_owned()
}

/// A user's number and groups, by /etc/passwd and /etc/group.
pub(super) fn user(root: &Path, name: &str) -> Looked<(u32, Vec<u32>)> {
    if name == "root" {
        return Looked::Found((0, vec![0]));
    }
    let table = |file: &str| -> Looked<String> {
        let path: PathBuf = files::under(root, file);
        let read = bytes(&path, files::CONFIGURATION_BYTES);
        read.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    };
    let users = match table("etc/passwd") {
        Looked::Found(users) => users,
        Looked::Absent => return Looked::Absent,
        Looked::Unknown(why) => return Looked::Unknown(why),
    };
    let row = users
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|row| row.first() == Some(&name));
    let number = |row: &[&str], at: usize| row.get(at).and_then(|text| text.parse::<u32>().ok());
    let Some((uid, gid)) = row.and_then(|row| Some((number(&row, 2)?, number(&row, 3)?))) else {
        return Looked::Absent;
    };
    let groups = table("etc/group").found().cloned().unwrap_or_default();
    let others = groups.lines().filter_map(|line| {
        let row: Vec<&str> = line.split(':').collect();
        let is_in = row.get(3)?.split(',').any(|member| member == name);
        is_in.then(|| number(&row, 2)).flatten()
    });
    Looked::Found((uid, [gid].into_iter().chain(others).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_found_in_both_versions_of_cgroups() {
        assert_eq!(
            unit("0::/system.slice/rdmesh-tracer.service"),
            "rdmesh-tracer.service"
        );
        let v1 = "9:cpu:/\n1:name=systemd:/system.slice/slurmd.service/step\n";
        assert_eq!(unit(v1), "slurmd.service");
        assert_eq!(unit("0::/user.slice/session-3.scope"), "");
    }

    #[test]
    fn limits_are_read_where_they_stand() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
                      Max locked memory         8388608              unlimited            bytes\n\
                      Max open files            unlimited            unlimited            files\n";
        assert_eq!(
            limit(limits, "Max locked memory"),
            Some(Limit::At(8_388_608))
        );
        assert_eq!(limit(limits, "Max open files"), Some(Limit::Unlimited));
        assert_eq!(limit("Max open files   many\n", "Max open files"), None);
        assert_eq!(limit("", "Max open files"), None);
    }
}
