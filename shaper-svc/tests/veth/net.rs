//! Three network namespaces: a sender, a receiver, and the shaper between them.

use std::fs::File;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// The sender's address.
pub(crate) const SENDER: &str = "10.9.0.1";

/// The receiver's address, where iperf3 listens.
pub(crate) const SERVER: &str = "10.9.0.2";

/// Removed with everything in it when it is dropped.
#[derive(Debug)]
pub(crate) struct Net {
    tag: String,
    // One test at a time: they share two cores and measure rates.
    _alone: File,
}

impl Net {
    /// Lays the wires.
    pub(crate) fn lay(tag: &str) -> Result<Self> {
        let path = std::env::temp_dir().join("rdmesh-veth-test.lock");
        let alone = File::create(path)?;
        rustix::fs::flock(&alone, rustix::fs::FlockOperation::LockExclusive)?;
        let net = Self {
            tag: format!("{tag}{}", std::process::id()),
            _alone: alone,
        };
        let (a, b, s) = (net.ns("a"), net.ns("b"), net.ns("s"));
        for ns in [&a, &b, &s] {
            ip(&["netns", "add", ns]).context("network namespaces need root")?;
            ip(&["-n", ns, "link", "set", "lo", "up"])?;
        }
        net.join(&a, "in0", SENDER)?;
        net.join_receiver()?;
        Ok(net)
    }

    /// Joins a namespace with the shaper's.
    fn join(&self, ns: &str, inner: &str, address: &str) -> Result<()> {
        let (s, outer) = (self.ns("s"), "eth0");
        ip(&[
            "-n", ns, "link", "add", outer, "type", "veth", "peer", "name", inner, "netns", &s,
        ])?;
        let address = format!("{address}/24");
        ip(&["-n", ns, "addr", "add", &address, "dev", outer])?;
        for (ns, end) in [(ns, outer), (&s, inner)] {
            // Or frames without checksums and above the MTU arrive at the port.
            let off = ["tx", "off", "tso", "off", "gso", "off", "gro", "off"];
            let mut ethtool = in_namespace(ns, "ethtool");
            run(ethtool.args(["-K", end]).args(off))?;
            ip(&["-n", ns, "link", "set", end, "up"])?;
        }
        Ok(())
    }

    /// Joins the receiver with the shaper. The sender forgets the station that it knew.
    pub(crate) fn join_receiver(&self) -> Result<()> {
        self.join(&self.ns("b"), "in1", SERVER)?;
        ip(&["-n", &self.ns("a"), "neigh", "flush", "dev", "eth0"])
    }

    /// Takes the shaper's interface towards the receiver away.
    #[allow(dead_code, reason = "for the tests")]
    pub(crate) fn part_receiver(&self) -> Result<()> {
        ip(&["-n", &self.ns("s"), "link", "del", "in1"])
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
        in_namespace(&self.ns("a"), program)
    }

    /// A program beside the receiver.
    pub(crate) fn receiver(&self, program: &str) -> Command {
        in_namespace(&self.ns("b"), program)
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
        in_namespace(&self.ns("s"), program)
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for which in ["a", "b", "s"] {
            let _ = ip(&["netns", "del", &self.ns(which)]);
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

fn in_namespace(ns: &str, program: &str) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", ns, program]);
    command
}

fn ip(args: &[&str]) -> Result<()> {
    run(Command::new("ip").args(args)).map(|_| ())
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
