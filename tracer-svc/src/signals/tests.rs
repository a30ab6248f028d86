//! Co-signals from a /sys and a log that a test makes.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use rdmesh_proto::common::v1::ClockPair;
use rdmesh_proto::tracer::v1::{CoSignalKind, RdmaDevice, RdmaPort};

use super::{Rules, RulesError, Signals};
use crate::host::{Devices, Roots};
use crate::snapshot::CoSignal;

const SECOND: u64 = 1_000_000_000;

struct Host {
    dir: tempfile::TempDir,
    signals: Signals,
}

fn at(seconds: u64) -> ClockPair {
    ClockPair {
        boottime_ns: seconds * SECOND,
        realtime_ns: 0,
    }
}

fn put(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

const PORT: &str = "sys/class/infiniband/mlx5_0/ports/1";

impl Host {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        put(root, &format!("{PORT}/state"), "4: ACTIVE\n");
        put(root, &format!("{PORT}/phys_state"), "5: LinkUp\n");
        put(root, &format!("{PORT}/counters/symbol_error"), "7\n");
        put(root, &format!("{PORT}/counters/port_rcv_data"), "99\n");
        put(root, &format!("{PORT}/hw_counters/out_of_sequence"), "0\n");
        put(root, "kmsg", "6,1,100,-;before the tracer: Link down\n");
        let roots = Roots {
            proc: root.join("proc"),
            sys: root.join("sys"),
            kernel_log: root.join("kmsg"),
        };
        let signals = Signals::new(&roots, Rules::built_in().unwrap(), &at(10));
        Self { dir, signals }
    }

    fn put(&self, path: &str, text: &str) {
        put(self.dir.path(), path, text);
    }

    fn log(&self, lines: &str) {
        let path = self.dir.path().join("kmsg");
        let mut file = OpenOptions::new().append(true).open(path).unwrap();
        file.write_all(lines.as_bytes()).unwrap();
    }

    fn look(&mut self, seconds: u64) -> Vec<CoSignal> {
        let devices = Devices::of_inventory(&[RdmaDevice {
            name: "mlx5_0".into(),
            pci_address: "0000:3b:00.0".into(),
            ports: vec![RdmaPort {
                netdev: "ens1f0np0".into(),
                ..RdmaPort::default()
            }],
            ..RdmaDevice::default()
        }]);
        self.signals.look(&devices, &at(seconds))
    }
}

/// Kind, cause or echo, name, detail, device.
fn told(signals: &[CoSignal]) -> Vec<(CoSignalKind, bool, &str, &str, &str)> {
    signals
        .iter()
        .map(|s| {
            let device = std::str::from_utf8(&s.device).unwrap();
            (s.kind, s.independent, &*s.name, s.detail.as_str(), device)
        })
        .collect()
}

use CoSignalKind::{Device, Host as OfHost, Network, Process};

#[test]
fn a_quiet_host_tells_nothing() {
    let mut host = Host::new();
    assert!(host.signals.reads_log());
    assert_eq!(host.look(15), []);
    host.put(&format!("{PORT}/counters/port_rcv_data"), "5000\n");
    host.log("6,2,200,-;systemd[1]: Started something.\n");
    assert_eq!(host.look(20), []);
}

#[test]
fn a_port_that_goes_down_is_a_cause_and_its_return_is_none() {
    let mut host = Host::new();
    host.put(&format!("{PORT}/state"), "1: DOWN\n");
    host.put(&format!("{PORT}/phys_state"), "3: Disabled\n");
    let down = host.look(15);
    let expected = [
        (
            Network,
            true,
            "port_state",
            "port 1: ACTIVE to DOWN",
            "mlx5_0",
        ),
        (
            Network,
            true,
            "port_phys_state",
            "port 1: LinkUp to Disabled",
            "mlx5_0",
        ),
    ];
    assert_eq!(told(&down), expected);
    // Not after what it may have caused.
    assert!(down.iter().all(|s| s.boot_ns == 10 * SECOND));
    assert_eq!(host.look(20), []);
    host.put(&format!("{PORT}/state"), "4: ACTIVE\n");
    let up = host.look(25);
    let expected = [(
        Network,
        false,
        "port_state",
        "port 1: DOWN to ACTIVE",
        "mlx5_0",
    )];
    assert_eq!(told(&up), expected);
    fs::remove_dir_all(host.dir.path().join("sys/class/infiniband/mlx5_0")).unwrap();
    let gone = host.look(30);
    assert_eq!(
        told(&gone),
        [(Device, true, "port_removed", "port 1", "mlx5_0")]
    );
}

#[test]
fn counters_are_told_by_what_they_rose() {
    let mut host = Host::new();
    host.put(&format!("{PORT}/counters/symbol_error"), "10\n");
    host.put(&format!("{PORT}/hw_counters/out_of_sequence"), "4\n");
    let rose = host.look(15);
    let expected = [
        (Network, true, "symbol_error", "port 1: 3 more", "mlx5_0"),
        (
            Network,
            false,
            "out_of_sequence",
            "port 1: 4 more",
            "mlx5_0",
        ),
    ];
    assert_eq!(told(&rose), expected);
    // Cleared, and two more since.
    host.put(&format!("{PORT}/counters/symbol_error"), "2\n");
    assert_eq!(host.look(20)[0].detail, "port 1: 2 more");
    // Not a number, gone, and a device that comes later: nothing is told of the first look.
    host.put(&format!("{PORT}/counters/symbol_error"), "N/A\n");
    fs::remove_file(
        host.dir
            .path()
            .join(format!("{PORT}/hw_counters/out_of_sequence")),
    )
    .unwrap();
    let later = "sys/class/infiniband/mlx5_1/ports/1/counters/link_downed";
    host.put(later, "3\n");
    host.signals.find_devices();
    assert_eq!(host.look(25), []);
    host.put(later, "4\n");
    assert_eq!(told(&host.look(30))[0].4, "mlx5_1");
}

#[test]
fn lines_of_the_log_are_told_by_rule_with_their_device() {
    let mut host = Host::new();
    host.log(
        "6,2,12000000,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,\
         oom_memcg=/slurm/job_4711,task_memcg=/slurm/job_4711/step_0,task=python,pid=311,uid=1000\n\
         4,3,13000000,-;mlx5_core 0000:3b:00.0: mlx5_cmd_out_err:838:(pid 9): CREATE_MKEY(0x200) \
         op_mod(0x0) failed, status bad parameter(0x3), syndrome (0x9b1d1), err(-22)\n \
         SUBSYSTEM=pci\n DEVICE=+pci:0000:3b:00.0\n\
         4,4,13500000,-;mlx5_core 0000:3b:00.0 ens1f0np0: Link down\n\
         6,5,13600000,-;python[311]: segfault at 0 ip 0 sp 0 error 4 in libc.so.6\n",
    );
    let signals = host.look(15);
    let rows = told(&signals);
    let short: Vec<_> = rows.iter().map(|r| (r.0, r.1, r.2, r.4)).collect();
    assert_eq!(
        short,
        [
            (OfHost, true, "oom_kill", ""),
            (Device, false, "firmware_command", "mlx5_0"),
            (Network, true, "link_down", "mlx5_0"),
            (Process, true, "segfault", ""),
        ]
    );
    assert!(rows[0].3.contains("task_memcg=/slurm/job_4711/step_0"));
    // Stamped by a clock that the boot clock is never behind.
    assert!(signals[0].boot_ns >= 12 * SECOND && signals[0].boot_ns <= 15 * SECOND);
}

#[test]
fn hostile_lines_and_too_many_are_bounded() {
    let mut host = Host::new();
    host.log("no head\n;\n1,2;\n6,1,x,-;Link down\n\u{0}\u{0}\n");
    host.log(&format!("6,9,1,-;Link down {}\n", "ä".repeat(1_000)));
    for n in 0..20 {
        host.log(&format!("6,{n},1,-;eth{n}: Link is Down\n"));
    }
    let signals = host.look(15);
    assert_eq!(signals.len(), 8);
    assert!(signals[0].detail.len() <= 240);
    assert_eq!(host.signals.take_left_out(), 13);
    assert_eq!(host.signals.take_left_out(), 0);
    let path = host.dir.path().join("kmsg");
    fs::OpenOptions::new()
        .append(true)
        .open(path)
        .unwrap()
        .write_all(&[0xff; 100_000])
        .unwrap();
    assert_eq!(host.look(20), []);
}

#[test]
fn a_log_that_cannot_be_read_leaves_the_rest() {
    let mut host = Host::new();
    let roots = Roots {
        proc: "/nowhere".into(),
        sys: host.dir.path().join("sys"),
        kernel_log: "/nowhere/kmsg".into(),
    };
    host.signals = Signals::new(&roots, Rules::built_in().unwrap(), &at(10));
    assert!(!host.signals.reads_log());
    host.put(&format!("{PORT}/counters/symbol_error"), "8\n");
    assert_eq!(host.look(15).len(), 1);
}

#[test]
fn rules_with_an_error_are_refused() {
    let empty = "counter = []\n[[log]]\nname = \"all\"\nkind = \"host\"\nindependent = true\n\
                 because = \"\"\n";
    assert!(matches!(Rules::parse(empty), Err(RulesError::Empty(name)) if name == "all"));
    let unknown = "counter = []\nlog = []\ncolour = 1\n";
    let refused = Rules::parse(unknown).unwrap_err().to_string();
    assert!(refused.contains("colour"), "{refused}");
    let rules = Rules::built_in().unwrap();
    // A warning of a driver is an echo; its notices are nothing.
    assert_eq!(
        rules.of_line(4, "infiniband mlx5_0: odd").unwrap().name,
        "driver_message"
    );
    assert_eq!(rules.of_line(6, "infiniband mlx5_0: odd"), None);
}
