//! `shaper-svc check`: what would keep the service from starting, or a measurement from
//! meaning something, said before anything is touched.

mod devices;
mod places;

use std::fmt::{self, Display, Write as _};

use super::start::{agent_name, wire_bytes};
use crate::config::{ENVIRONMENT_BYTES, ShaperConfig, WireSection};
use crate::datapath::{TooLittleMemory, check_memory};
use crate::rate::LineRate;

/// Receive descriptors below which a burst of a 100G function overflowed the ring of
/// the original shaper: 32,768 are 2.9 ms of 1 KiB frames.
const SAFE_RX_DESCRIPTORS: u16 = 32_768;

/// What the host has to be set to; nothing on the DPU can see it.
const HOST_SETTINGS: [(&str, &str); 3] = [
    (
        "NCCL_IB_ECE_ENABLE=0",
        "else congestion control by round-trip time takes the shaper's queue for congestion and \
         collapses",
    ),
    (
        "NCCL_IB_TIMEOUT=14",
        "at 6 the sender resends after 268 us what is merely queued, with every error counter at \
         zero; windows then say retransmits",
    ),
    (
        "ip link set DEV vf N max_tx_rate MBITS",
        "the function's valve, above the wire's rate; tell it as `valve`",
    ),
];

/// How grave a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grade {
    /// As it should be.
    Fine,
    /// It runs, and what it measures may not be what was meant.
    Doubtful,
    /// It would not start.
    Refused,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How grave.
    pub grade: Grade,
    /// What was found, and what to do.
    pub text: String,
}

/// All that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preflight(pub Vec<Finding>);

impl Preflight {
    /// Looks at a valid configuration on a machine whose `/proc` and `/sys` are under
    /// `root`. Touches nothing.
    #[must_use]
    pub fn look(config: &ShaperConfig, root: &std::path::Path) -> Self {
        let mut findings = vec![name(config), memory(config, root), cpu(config, root)];
        findings.extend(too_little(config));
        findings.push(places::state(config, root));
        findings.extend(places::listen(config, root));
        findings.extend(devices::look(config, root));
        findings.push(ring(config));
        findings.extend(config.wires.iter().map(valve));
        if config.wires.is_empty() {
            let text = "no wires: write at least one [[wires]] section".to_owned();
            findings.push(Finding {
                grade: Grade::Refused,
                text,
            });
        }
        Self(findings)
    }

    /// Whether the service would start, as far as can be seen.
    #[must_use]
    pub fn would_start(&self) -> bool {
        self.0.iter().all(|finding| finding.grade != Grade::Refused)
    }
}

impl Display for Preflight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.0 {
            let grade = match finding.grade {
                Grade::Fine => "ok   ",
                Grade::Doubtful => "check",
                Grade::Refused => "fail ",
            };
            writeln!(f, "{grade}  {}", finding.text)?;
        }
        f.write_str("\nTo be set on the host, where nothing here can see it:\n")?;
        for (setting, why) in HOST_SETTINGS {
            writeln!(f, "  {setting}\n      {why}")?;
        }
        Ok(())
    }
}

fn finding(grade: Grade, text: impl Into<String>) -> Finding {
    let text = text.into();
    Finding { grade, text }
}

fn name(config: &ShaperConfig) -> Finding {
    match agent_name(config) {
        Ok(name) => finding(Grade::Fine, format!("reports as {name}")),
        Err(error) => finding(Grade::Refused, error.to_string()),
    }
}

fn memory(config: &ShaperConfig, root: &std::path::Path) -> Finding {
    let (dpdk, wires) = (config.dpdk_memory_bytes(), wire_bytes(config));
    let is_huge = config.dpdk.huge_pages;
    let (huge, other) = if is_huge {
        (dpdk, wires)
    } else {
        (0, dpdk + wires)
    };
    let Ok(meminfo) = std::fs::read_to_string(root.join("proc/meminfo")) else {
        return finding(
            Grade::Doubtful,
            "the machine does not say how much memory is free",
        );
    };
    match check_memory(&meminfo, huge, other) {
        Ok(()) => {
            let kind = if is_huge { "huge pages" } else { "memory" };
            let megabytes = dpdk.div_ceil(1 << 20);
            finding(
                Grade::Fine,
                format!("{megabytes} MB of {kind} are free for DPDK"),
            )
        }
        Err(error) => {
            let advice = config.dpdk.memory_advice();
            let error = TooLittleMemory { advice, ..error };
            finding(Grade::Refused, error.to_string())
        }
    }
}

/// What is configured against what the wires need.
fn too_little(config: &ShaperConfig) -> Option<Finding> {
    let given_mb = config.dpdk.memory_mb;
    let safe_mb = (ENVIRONMENT_BYTES + config.pool_bytes()).div_ceil(1 << 20);
    if given_mb == 0 || given_mb >= safe_mb {
        return None;
    }
    let text = format!(
        "dpdk.memory_mb = {given_mb}: the wires need up to {safe_mb}; leave it 0 for what they need"
    );
    let is_hopeless = (given_mb << 20) < config.least_pool_bytes();
    let grade = if is_hopeless {
        Grade::Refused
    } else {
        Grade::Doubtful
    };
    Some(finding(grade, text))
}

fn cpu(config: &ShaperConfig, root: &std::path::Path) -> Finding {
    let Some(cpu) = config.dpdk.cpu else {
        return finding(
            Grade::Doubtful,
            "dpdk.cpu is not set: the poll loop shares its core, and gaps of tens of milliseconds \
             make windows invalid",
        );
    };
    let cpus = root.join("sys/devices/system/cpu");
    if !cpus.join(format!("cpu{cpu}")).exists() {
        return finding(
            Grade::Refused,
            format!("dpdk.cpu = {cpu}: there is no such core"),
        );
    }
    let isolated = std::fs::read_to_string(cpus.join("isolated")).unwrap_or_default();
    if contains(&isolated, cpu) {
        return finding(Grade::Fine, format!("core {cpu} is the poll loop's own"));
    }
    let text = format!("core {cpu} is not isolated: boot with isolcpus={cpu} nohz_full={cpu}");
    finding(Grade::Doubtful, text)
}

/// Whether a list such as `2,4-7` has a number in it.
fn contains(list: &str, number: u32) -> bool {
    list.trim().split(',').any(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let bounds = (first.parse::<u32>(), last.parse::<u32>());
        matches!(bounds, (Ok(first), Ok(last)) if (first..=last).contains(&number))
    })
}

fn ring(config: &ShaperConfig) -> Finding {
    let ring = config.dpdk.rx_descriptors;
    if ring >= SAFE_RX_DESCRIPTORS {
        return finding(Grade::Fine, format!("receive rings of {ring} frames"));
    }
    finding(
        Grade::Doubtful,
        format!(
            "receive rings of {ring} frames: a burst at 100 Gbit/s overflows them; set \
             dpdk.rx_descriptors = {SAFE_RX_DESCRIPTORS}"
        ),
    )
}

fn valve(wire: &WireSection) -> Finding {
    let name = &wire.name;
    let bps =
        |text: &crate::config::RateText, field| text.rate(field).ok().flatten().map(LineRate::bps);
    match (bps(&wire.valve, "valve"), bps(&wire.rate, "rate")) {
        (None, _) => finding(
            Grade::Doubtful,
            format!(
                "wire {name}: the function's valve is not told; set max_tx_rate on the function and \
                 `valve` here, or a burst may overflow the receive ring"
            ),
        ),
        (Some(valve), Some(rate)) if valve <= rate => finding(
            Grade::Doubtful,
            format!(
                "wire {name}: the valve of {valve} bit/s is not above the wire's {rate}: the valve's \
                 token bucket shapes, not the wire"
            ),
        ),
        (Some(valve), _) => finding(Grade::Fine, format!("wire {name}: valve of {valve} bit/s")),
    }
}

/// Looks at this machine and writes what was found to `output`; whether the service
/// would start.
///
/// # Errors
/// When `output` cannot be written.
pub fn run(config: &ShaperConfig, output: &mut impl std::io::Write) -> std::io::Result<bool> {
    let mut preflight = Preflight::look(config, std::path::Path::new("/"));
    preflight.0.extend(places::in_use(config));
    #[cfg(feature = "dpdk")]
    preflight.0.extend(devices::without_driver(config));
    #[cfg(not(feature = "dpdk"))]
    preflight.0.push(finding(
        Grade::Refused,
        super::start::StartError::NoPorts.to_string(),
    ));
    let mut text = String::new();
    // Writing to memory.
    let _ = write!(text, "{preflight}");
    output.write_all(text.as_bytes())?;
    Ok(preflight.would_start())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn machine() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let cpus = root.path().join("sys/devices/system/cpu");
        let meminfo = "MemAvailable: 8388608 kB\nHugePages_Free: 2048\nHugepagesize: 2048 kB\n";
        fs::create_dir_all(root.path().join("proc")).unwrap();
        fs::create_dir_all(root.path().join("var/lib")).unwrap();
        fs::write(root.path().join("proc/meminfo"), meminfo).unwrap();
        fs::create_dir_all(cpus.join("cpu2")).unwrap();
        fs::write(cpus.join("isolated"), "2,4-7\n").unwrap();
        fs::create_dir_all(root.path().join("sys/bus/pci/devices/0000:03:00.0")).unwrap();
        root
    }

    fn config() -> ShaperConfig {
        toml::from_str(
            r#"
            name = "dpu-1"
            [dpdk]
            devices = ["03:00.0,representor=vf[0-1]"]
            cpu = 2
            [[wires]]
            name = "vf0"
            in_port = "0000:03:00.0_representor_vf0"
            out_port = "0000:03:00.0"
            rate = "25gbit"
            valve = "40gbit"
            "#,
        )
        .unwrap()
    }

    fn texts(config: &ShaperConfig, grade: Grade) -> String {
        let root = machine();
        let found = Preflight::look(config, root.path()).0;
        let of_it = found.into_iter().filter(|finding| finding.grade == grade);
        of_it.map(|finding| finding.text + "\n").collect()
    }

    #[test]
    fn a_machine_that_is_set_up_has_nothing_to_check() {
        let root = machine();
        let preflight = Preflight::look(&config(), root.path());
        assert!(preflight.would_start(), "{preflight}");
        assert_eq!(texts(&config(), Grade::Doubtful), "");
        let text = preflight.to_string();
        for (setting, _) in HOST_SETTINGS {
            assert!(text.contains(setting), "{text}");
        }
        assert!(contains("0-1,5", 5) && !contains("0-1,5", 4) && !contains("\n", 0));
    }

    #[test]
    fn what_would_be_refused_is_told_before() {
        let mut config = config();
        config.dpdk.cpu = Some(3);
        config.dpdk.devices = vec![
            "0000:04:00.0".to_owned(),
            "net_af_packet0,iface=nosuch0".to_owned(),
            "net_null0".to_owned(),
        ];
        config.wires[0].in_port = "net_null0".to_owned();
        config.wires[0].out_port = "net_af_packet0".to_owned();
        config.wires[0].queue_frames = 1 << 24;
        let refused = texts(&config, Grade::Refused);
        for words in ["no such core", "0000:04:00.0", "nosuch0", "huge pages"] {
            assert!(refused.contains(words), "{words} in {refused}");
        }
        assert_eq!(refused.lines().count(), 4, "{refused}");
        config.wires[0].queue_frames = 262_144;
        config.dpdk.memory_mb = 1;
        assert!(texts(&config, Grade::Refused).contains("memory_mb = 1: the wires need up to"));
        config.dpdk.memory_mb = 880;
        assert!(texts(&config, Grade::Doubtful).contains("memory_mb = 880"));
        config.dpdk.memory_mb = 900_000;
        assert!(texts(&config, Grade::Refused).contains("lower `dpdk.memory_mb`"));
        let none = ShaperConfig::default();
        assert!(texts(&none, Grade::Refused).contains("no wires"));
    }

    #[test]
    fn what_spoils_a_measurement_is_told_before() {
        let mut config = config();
        config.dpdk.cpu = None;
        config.dpdk.rx_descriptors = 1024;
        config.wires[0].valve.0 = "25gbit".to_owned();
        let doubtful = texts(&config, Grade::Doubtful);
        for words in ["dpdk.cpu", "32768", "not above"] {
            assert!(doubtful.contains(words), "{words} in {doubtful}");
        }
        config.wires[0].valve.0.clear();
        assert!(texts(&config, Grade::Doubtful).contains("max_tx_rate"));
    }
}
