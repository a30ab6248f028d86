//! Booting a host: a stock kernel and our initramfs under QEMU's emulation, a serial
//! console to a file, a control channel, and user-mode networking, so that neither
//! root nor hardware virtualisation is needed.

use crate::cache::{self, Lock};
use crate::children::{self, Child};
use crate::control::{Control, Ready};
use crate::kernels::Image;
use crate::progress::Progress;
use crate::scratch::Scratch;
use anyhow::{Context, Result, bail};
use rdmesh_guest::{CONTROL_PORT, cmdline};
use rustix::process::Signal;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::Instant;

/// Hosts at a time on one machine, over all processes: each keeps a core busy.
const MAX_HOSTS: usize = 2;

/// How long to wait for others' hosts to end. The longest test has one for minutes.
const SLOT_LIMIT: Duration = Duration::from_secs(1800);
const SLOT_POLL: Duration = Duration::from_millis(100);

/// A boot takes 4 to 6 s on an idle machine; a loaded one is much slower.
const BOOT_LIMIT: Duration = Duration::from_secs(180);

/// Tries to start QEMU: another program may take the free port that was found, and
/// the emulator itself is not beyond doubt.
const START_ATTEMPTS: u32 = 3;

/// Guest memory, MiB. The initramfs and the tracer's maps fit several times.
const MEMORY_MIB: u32 = 1024;

/// Lines of the serial log that go into an error.
const TAIL_LINES: usize = 25;

/// What a machine is started with.
#[derive(Debug, Clone)]
pub struct Settings<'a> {
    /// Host name in the guest.
    pub name: &'a str,
    /// The kernel.
    pub image: &'a Image,
    /// The initramfs.
    pub initramfs: &'a Path,
    /// A TCP port in the guest that is reached through a free port of this machine.
    pub guest_port: u16,
    /// Control groups: version 1 instead of 2.
    pub cgroup_v1: bool,
    /// One processor whose clock counts instructions (`-icount`), so that a figure
    /// repeats exactly.
    pub counts_instructions: bool,
}

/// A booted machine. It ends when it is dropped.
#[derive(Debug)]
pub struct Machine {
    // Dropped in this order: the child before its directory, the slot last.
    child: Child,
    control: Control,
    ready: Ready,
    serial: PathBuf,
    host_port: u16,
    boot_time: Duration,
    _scratch: Scratch,
    _slot: Lock,
}

/// Whether a kernel's log says that it stopped at its own breakpoint.
fn ran_into_patching(log: &[u8]) -> bool {
    const STOPPED: &[u8] = b"Oops: int3:";
    log.windows(STOPPED.len()).any(|window| window == STOPPED)
}

impl Machine {
    /// Boots a machine and waits until its PID 1 is ready.
    pub async fn boot(settings: &Settings<'_>) -> Result<Self> {
        children::clean_up_on_interrupt()?;
        let slot = take_slot().await?;
        let mut last = None;
        for _ in 0..START_ATTEMPTS {
            let scratch = Scratch::new()?;
            let serial = scratch.path().join("serial.log");
            let host_port = free_port()?;
            let started = Instant::now();
            let mut child = start(settings, scratch.path(), host_port)?;
            let socket = scratch.path().join("control");
            let opened = tokio::select! {
                opened = Control::open(&socket, started + BOOT_LIMIT) => opened,
                status = ended(&mut child) => Err(status),
            };
            match opened {
                Ok((control, ready)) => {
                    return Ok(Self {
                        child,
                        control,
                        ready,
                        serial,
                        host_port,
                        boot_time: started.elapsed(),
                        _scratch: scratch,
                        _slot: slot,
                    });
                }
                Err(mut error) => {
                    let status = child.try_wait().ok().flatten();
                    let ended_itself = status.is_some();
                    if let Some(status) = status {
                        error = error.context(format!("QEMU ended: {status}"));
                    }
                    let said = fs::read_to_string(scratch.path().join("qemu.log"));
                    let said = said.unwrap_or_default();
                    // A taken port, or an emulator that ended before its kernel said
                    // anything (seen once in about a hundred boots).
                    let silent = fs::metadata(&serial).is_ok_and(|log| log.len() == 0);
                    // Or one of the emulator's processors that ran into the breakpoint by
                    // which the kernel patches its own code while another waits (once in
                    // some thousand boots): no kernel of the field has that.
                    let patching = fs::read(&serial).is_ok_and(|log| ran_into_patching(&log));
                    let retry = said.contains("forwarding") || (ended_itself && silent) || patching;
                    last = Some(error.context(format!(
                        "{} did not boot\n{said}{}",
                        settings.image.release,
                        tail(&serial)
                    )));
                    if !retry {
                        break;
                    }
                }
            }
        }
        Err(last.context("no attempt was made")?)
    }

    /// The control channel.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// What the guest said when it was ready.
    pub fn ready(&self) -> &Ready {
        &self.ready
    }

    /// Port of this machine, on 127.0.0.1, that leads to the guest's.
    pub fn host_port(&self) -> u16 {
        self.host_port
    }

    /// From the start of QEMU to ready.
    pub fn boot_time(&self) -> Duration {
        self.boot_time
    }

    /// The last lines of the serial console.
    pub fn serial_tail(&self) -> String {
        tail(&self.serial)
    }

    /// Waits until the guest has powered itself off.
    pub async fn wait_off(&mut self, limit: Duration) -> Result<()> {
        let off = tokio::time::timeout(limit, async {
            while self.child.try_wait()?.is_none() {
                tokio::time::sleep(SLOT_POLL).await;
            }
            Ok(())
        });
        off.await.context("the guest did not power off")?
    }
}

/// Completes when QEMU ends, which it should not.
async fn ended(child: &mut Child) -> anyhow::Error {
    loop {
        match child.try_wait() {
            Ok(None) => tokio::time::sleep(SLOT_POLL).await,
            Ok(Some(status)) => return anyhow::anyhow!("QEMU ended: {status}"),
            Err(error) => return error.into(),
        }
    }
}

fn start(settings: &Settings<'_>, directory: &Path, host_port: u16) -> Result<Child> {
    let shown = |path: &Path| path.display().to_string();
    let within = |name: &str| shown(&directory.join(name));
    let cgroup = if settings.cgroup_v1 { "v1" } else { "v2" };
    // Without a watchdog for soft lockups: under emulation on a loaded machine the
    // kernel mistakes waiting for a hang.
    let append = format!(
        "console=ttyS0,115200 quiet panic=-1 mitigations=off random.trust_cpu=on \
         tsc=reliable no_timer_check nosoftlockup {}={} {}={cgroup}",
        cmdline::HOST,
        settings.name,
        cmdline::CGROUP,
    );
    let memory = MEMORY_MIB.to_string();
    let control_socket = format!(
        "socket,id=control,path={},server=on,wait=off",
        within("control")
    );
    let control_port = format!("virtserialport,chardev=control,name={CONTROL_PORT}");
    let network = format!(
        "user,id=net,ipv6=off,hostfwd=tcp:127.0.0.1:{host_port}-:{}",
        settings.guest_port
    );
    let serial = format!("file:{}", within("serial.log"));
    let (kernel, initramfs) = (shown(&settings.image.vmlinuz), shown(settings.initramfs));
    let processors = if settings.counts_instructions {
        "-accel tcg,thread=single -icount shift=0,sleep=off -smp 1"
    } else {
        "-accel tcg,thread=multi -smp 2"
    };
    let mut args: Vec<&str> = processors.split_whitespace().collect();
    let machine = "-cpu max -M q35 -nodefaults -no-user-config -display none -no-reboot";
    args.extend(machine.split_whitespace());
    args.extend(["-m", &memory, "-kernel", &kernel, "-initrd", &initramfs]);
    args.extend(["-append", &append, "-serial", &serial]);
    args.extend(["-device", "virtio-serial-pci", "-chardev", &control_socket]);
    args.extend(["-device", &control_port, "-netdev", &network]);
    args.extend(["-device", "virtio-net-pci,netdev=net,romfile="]);
    let log = fs::File::create(directory.join("qemu.log"))?;
    children::spawn("qemu-system-x86_64", Signal::KILL, None, |command| {
        command
            .args(&args)
            .stdout(std::process::Stdio::null())
            .stderr(log);
    })
    .context("QEMU (package qemu-system-x86)")
}

fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("no free port")?;
    Ok(listener.local_addr()?.port())
}

/// Waits until a host may boot, and says so where it has to wait. The slot is taken by
/// [`Machine::boot`]: another run may still be faster.
pub async fn wait_for_slot(progress: Progress) -> Result<()> {
    let say = || {
        progress.note(&format!(
            "waiting for a free slot: {MAX_HOSTS} hosts at a time run on a machine, over all \
             lab runs"
        ));
    };
    free_slot(&cache::directory()?, say).await.map(|_| ())
}

async fn take_slot() -> Result<Lock> {
    free_slot(&cache::directory()?, || ()).await
}

/// The lock of a free slot; `full` is called once when there is none yet.
async fn free_slot(directory: &Path, full: impl FnOnce()) -> Result<Lock> {
    let mut full = Some(full);
    let deadline = Instant::now() + SLOT_LIMIT;
    loop {
        for slot in 0..MAX_HOSTS {
            if let Some(lock) = Lock::try_take(&directory.join(format!("host-slot-{slot}")))? {
                return Ok(lock);
            }
        }
        if let Some(full) = full.take() {
            full();
        }
        if Instant::now() >= deadline {
            bail!("other lab runs on this machine hold all {MAX_HOSTS} host slots");
        }
        tokio::time::sleep(SLOT_POLL).await;
    }
}

fn tail(path: &Path) -> String {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(TAIL_LINES);
    lines[from..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_stopped_at_its_own_breakpoint_is_known() {
        let log = b"[    1.341490] Oops: int3: 0000 [#2] SMP NOPTI\r\n[    1.342101] Kernel panic";
        assert!(ran_into_patching(log));
        assert!(!ran_into_patching(
            b"[    1.341490] Oops: general protection fault\r\n"
        ));
    }

    #[tokio::test]
    async fn a_third_host_says_that_it_waits_and_boots_when_one_ends() {
        let directory = tempfile::tempdir().unwrap();
        let never = || panic!("a slot is free");
        let first = free_slot(directory.path(), never).await.unwrap();
        let second = free_slot(directory.path(), never).await.unwrap();
        let mut said = false;
        let third = free_slot(directory.path(), || {
            said = true;
            drop(first);
        });
        let third = third.await.unwrap();
        assert!(said);
        drop((second, third));
    }
}
