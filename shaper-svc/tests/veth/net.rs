//! Three network namespaces: a sender, a receiver, and the shaper between them. Whoever is
//! not root is so in a user namespace of the test's own.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Resource, getrlimit};

/// The sender's address.
pub(crate) const SENDER: &str = "10.9.0.1";

/// The receiver's address, where iperf3 listens.
pub(crate) const SERVER: &str = "10.9.0.2";

/// Removed with everything in it when it is dropped.
#[derive(Debug)]
pub(crate) struct Net {
    tag: String,
    /// Where those who are not root are; ends with the test, whatever ends the test.
    inside: Option<Process>,
    // One test at a time: they share two cores and measure rates.
    _alone: File,
}

impl Net {
    /// Lays the wires.
    pub(crate) fn lay(tag: &str) -> Result<Self> {
        let user = rustix::process::geteuid();
        let path = std::env::temp_dir().join(format!("rdmesh-veth-test-{user}.lock"));
        let alone = File::create(path)?;
        rustix::fs::flock(&alone, rustix::fs::FlockOperation::LockExclusive)?;
        let net = Self {
            tag: format!("{tag}{}", std::process::id()),
            inside: if user.is_root() {
                None
            } else {
                Some(user_namespace()?)
            },
            _alone: alone,
        };
        let (a, b, s) = (net.ns("a"), net.ns("b"), net.ns("s"));
        for ns in [&a, &b, &s] {
            net.ip(&["netns", "add", ns])?;
            net.ip(&["-n", ns, "link", "set", "lo", "up"])?;
        }
        net.join(&a, "in0", SENDER)?;
        net.join_receiver()?;
        Ok(net)
    }

    /// Joins a namespace with the shaper's.
    fn join(&self, ns: &str, inner: &str, address: &str) -> Result<()> {
        let (s, outer) = (self.ns("s"), "eth0");
        self.ip(&[
            "-n", ns, "link", "add", outer, "type", "veth", "peer", "name", inner, "netns", &s,
        ])?;
        let address = format!("{address}/24");
        self.ip(&["-n", ns, "addr", "add", &address, "dev", outer])?;
        for (ns, end) in [(ns, outer), (&s, inner)] {
            // Or frames without checksums and above the MTU arrive at the port.
            let off = ["tx", "off", "tso", "off", "gso", "off", "gro", "off"];
            let mut ethtool = self.in_namespace(ns, "ethtool");
            run(ethtool.args(["-K", end]).args(off))?;
            self.ip(&["-n", ns, "link", "set", end, "up"])?;
        }
        Ok(())
    }

    /// Joins the receiver with the shaper. The sender forgets the station that it knew.
    pub(crate) fn join_receiver(&self) -> Result<()> {
        self.join(&self.ns("b"), "in1", SERVER)?;
        self.ip(&["-n", &self.ns("a"), "neigh", "flush", "dev", "eth0"])
    }

    /// Takes the shaper's interface towards the receiver away.
    #[allow(dead_code, reason = "for the tests")]
    pub(crate) fn part_receiver(&self) -> Result<()> {
        self.ip(&["-n", &self.ns("s"), "link", "del", "in1"])
    }

    fn ns(&self, which: &str) -> String {
        format!("rdmesh-{}-{which}", self.tag)
    }

    /// Name of the sender's namespace.
    #[allow(dead_code, reason = "for the measurements")]
    pub(crate) fn sender_name(&self) -> String {
        self.ns("a")
    }

    /// A program beside the sender.
    pub(crate) fn sender(&self, program: &str) -> Command {
        self.in_namespace(&self.ns("a"), program)
    }

    /// A program beside the receiver.
    pub(crate) fn receiver(&self, program: &str) -> Command {
        self.in_namespace(&self.ns("b"), program)
    }

    /// Waits until the receiver answers the sender.
    pub(crate) fn reachable(&self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(20);
        while run(self.sender("ping").args(["-c1", "-W1", SERVER])).is_err() {
            ensure!(Instant::now() < deadline, "no ping comes through");
        }
        Ok(())
    }

    /// iperf3 beside the receiver, once it listens.
    pub(crate) fn iperf_server(&self) -> Result<Process> {
        let mut server = self.receiver("iperf3");
        let server = Process::start(server.arg("-s").stdout(Stdio::null()))?;
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let sockets = run(self.receiver("ss").args(["-Hltn"]))?.stdout;
            if String::from_utf8_lossy(&sockets).contains(":5201") {
                return Ok(server);
            }
            ensure!(Instant::now() < deadline, "iperf3 does not listen");
        }
    }

    /// A program where the shaper is.
    pub(crate) fn between(&self, program: &str) -> Command {
        self.in_namespace(&self.ns("s"), program)
    }

    fn in_namespace(&self, ns: &str, program: &str) -> Command {
        let mut command = self.root("ip");
        command.args(["netns", "exec", ns, program]);
        command
    }

    fn ip(&self, args: &[&str]) -> Result<()> {
        run(self.root("ip").args(args)).map(|_| ())
    }

    /// A program that runs as root, be it only that of the user namespace.
    fn root(&self, program: &str) -> Command {
        let Some(inside) = &self.inside else {
            return Command::new(program);
        };
        let mut command = Command::new("nsenter");
        command
            .args(["--preserve-credentials", "-U", "-n", "-m", "-t"])
            .args([&inside.0.id().to_string(), program]);
        command
    }
}

/// Frames of each ring of a device: many, since a busy machine takes the core away for 50 ms
/// at a time; as many as fit for those who may not lock as much memory. Two devices have
/// four rings.
pub(crate) fn ring_frames() -> u64 {
    const MOST: u64 = 8192;
    const FRAME_BYTES: u64 = 2048;
    if rustix::process::geteuid().is_root() {
        return MOST;
    }
    let limit = getrlimit(Resource::Memlock).current.unwrap_or(u64::MAX);
    1 << (limit / (4 * FRAME_BYTES)).clamp(64, MOST).ilog2()
}

/// A process that is root in a user namespace, and has a `/run` to itself, where network
/// namespaces have their names and DPDK its directory.
fn user_namespace() -> Result<Process> {
    let script = "mount -t tmpfs tmpfs /run && echo ready && exec cat";
    let mut command = Command::new("unshare");
    command
        .args(["-U", "-r", "-n", "-m", "sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut process = Process(command.spawn()?);
    let mut said = String::new();
    if let Some(out) = process.0.stdout.take() {
        BufReader::new(out).read_line(&mut said)?;
    }
    ensure!(
        said == "ready\n",
        "this user may not make namespaces (sysctl user.max_user_namespaces, \
         kernel.apparmor_restrict_unprivileged_userns): run the test as root, or leave it out \
         with -E 'not binary(veth)'"
    );
    Ok(process)
}

impl Drop for Net {
    fn drop(&mut self) {
        for which in ["a", "b", "s"] {
            let _ = self.ip(&["netns", "del", &self.ns(which)]);
        }
    }
}

/// A child that does not outlive the test.
#[derive(Debug)]
pub(crate) struct Process(pub(crate) Child);

impl Process {
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        Ok(Self(command.stdin(Stdio::null()).spawn()?))
    }

    /// SIGKILL, and waits.
    pub(crate) fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs to the end; a failure says what was run and what it said.
pub(crate) fn run(command: &mut Command) -> Result<Output> {
    let output = command
        .output()
        .with_context(|| format!("{command:?} is not installed?"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let out = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success(),
        "{command:?}: {}: {said} {out}",
        output.status
    );
    Ok(output)
}
