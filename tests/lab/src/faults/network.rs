//! A network namespace with a link to this machine that can be cut.

use std::fs::File;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// This machine's end.
pub(super) const HERE: &str = "10.9.7.1";

/// The namespace's end.
const THERE: &str = "10.9.7.2";

/// Removed, with its link, when it is dropped.
#[derive(Debug)]
pub(super) struct Network {
    namespace: String,
    link: String,
    // The addresses are the same for everybody.
    _alone: File,
}

impl Network {
    /// Lays the link. Waits for another run that has one.
    pub(super) fn lay() -> Result<Self> {
        let path = std::env::temp_dir().join("rdmesh-faults-network.lock");
        let alone = File::create(path)?;
        rustix::fs::flock(&alone, rustix::fs::FlockOperation::LockExclusive)?;
        let network = Self {
            namespace: format!("rdmesh-faults-{}", std::process::id()),
            // Names of interfaces have 15 bytes at most.
            link: format!("rdmf{}", std::process::id() % 10_000_000),
            _alone: alone,
        };
        let (ns, link) = (network.namespace.as_str(), network.link.as_str());
        ip(&["netns", "add", ns])?;
        ip(&["-n", ns, "link", "set", "lo", "up"])?;
        ip(&[
            "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", ns,
        ])?;
        ip(&["addr", "add", &format!("{HERE}/24"), "dev", link])?;
        ip(&[
            "-n",
            ns,
            "addr",
            "add",
            &format!("{THERE}/24"),
            "dev",
            "eth0",
        ])?;
        ip(&["link", "set", link, "up"])?;
        ip(&["-n", ns, "link", "set", "eth0", "up"])?;
        Ok(network)
    }

    /// What `ip netns exec` is told to run a program inside.
    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(super) fn cut(&self) -> Result<()> {
        ip(&["link", "set", &self.link, "down"])
    }

    pub(super) fn mend(&self) -> Result<()> {
        ip(&["link", "set", &self.link, "up"])
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // With the namespace goes its end of the link, and with that the other.
        let _ = ip(&["link", "del", &self.link]);
        let _ = ip(&["netns", "del", &self.namespace]);
    }
}

/// Runs a program that says nothing when it succeeds.
pub(super) fn run(program: &str, args: &[&str]) -> Result<()> {
    let output = Command::new(program)
        .args(args)
        .output()
        .with_context(|| format!("cannot run {program}"))?;
    ensure!(
        output.status.success(),
        "{program} {}: {}",
        args.join(" "),
        String::from_utf8_lossy(&output.stderr).trim_end()
    );
    Ok(())
}

fn ip(args: &[&str]) -> Result<()> {
    run("ip", args)
}
