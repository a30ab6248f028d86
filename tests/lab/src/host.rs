//! A lab host: builds the initramfs, boots the machine, and drives it.

use crate::control::Ready;
use crate::initramfs::Initramfs;
use crate::kernels::{self, Kernel};
use crate::progress::Progress;
use crate::qemu::{Machine, Settings};
use crate::scratch::Scratch;
use anyhow::{Context, Result, bail, ensure};
use rdmesh_guest::{Clocks, Command, Exec, Exit, ProcessStat, Reply, Text};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The tracer's gRPC port in the guest.
pub const TRACER_PORT: u16 = 7401;

/// Small requests answer at once; under load on an emulated machine, in seconds.
const SHORT: Duration = Duration::from_secs(60);

/// The guest's answer follows its own time limit by at most this much.
const ANSWER_GRACE: Duration = Duration::from_secs(30);

/// What a host is made of, beyond what every host has.
#[derive(Debug, Clone, Default)]
pub struct HostPlan {
    /// Programs of the workspace, by name, put into `/usr/bin`.
    pub own_programs: Vec<String>,
    /// Files of this machine and where they go; programs bring their libraries.
    pub files: Vec<(PathBuf, String)>,
    /// Further files by their contents: path in the guest, contents, mode.
    pub data: Vec<(String, Vec<u8>, u32)>,
    /// Kernel modules that the test loads itself.
    pub modules: Vec<String>,
    /// Modules whose types are taken out, as out-of-tree builds leave them out.
    pub without_btf: Vec<String>,
    /// Control groups of version 1 instead of 2.
    pub cgroup_v1: bool,
    /// A clock that counts instructions; see [`Settings::counts_instructions`].
    pub counts_instructions: bool,
}

/// A booted host. It ends when it is dropped.
#[derive(Debug)]
pub struct Host {
    name: String,
    version: String,
    initramfs_bytes: u64,
    machine: Machine,
    _scratch: Scratch,
}

impl Host {
    /// Fetches the kernel, builds the initramfs and boots.
    pub async fn boot(
        name: &str,
        kernel: Kernel,
        plan: &HostPlan,
        progress: Progress,
    ) -> Result<Self> {
        let image = tokio::task::spawn_blocking(move || kernels::fetch(kernel, progress)).await??;
        let scratch = Scratch::new()?;
        let archive = scratch.path().join("initramfs");
        let extra: Vec<&str> = plan.modules.iter().map(String::as_str).collect();
        let mut initramfs = Initramfs::for_kernel(&image, &extra)?;
        for program in &plan.own_programs {
            initramfs.own_program(program, &format!("/usr/bin/{program}"))?;
        }
        for (from, to) in &plan.files {
            initramfs.program(from, to)?;
        }
        for (to, data, mode) in &plan.data {
            initramfs.data(to, data.clone(), *mode);
        }
        for module in &plan.without_btf {
            initramfs.take_btf(module)?;
        }
        let initramfs_bytes = initramfs.write(&archive)?;
        let step = progress.step(format!("booting Debian {} as {name}", image.version));
        let machine = Machine::boot(&Settings {
            name,
            image: &image,
            initramfs: &archive,
            guest_port: TRACER_PORT,
            cgroup_v1: plan.cgroup_v1,
            counts_instructions: plan.counts_instructions,
        })
        .await?;
        step.done();
        let version = image.version;
        Ok(Self {
            name: name.to_owned(),
            version,
            initramfs_bytes,
            machine,
            _scratch: scratch,
        })
    }

    /// Host name in the guest.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Debian's version of the kernel.
    pub fn kernel_version(&self) -> &str {
        &self.version
    }

    /// Kernel release and RDMA devices.
    pub fn ready(&self) -> &Ready {
        self.machine.ready()
    }

    /// Size of the initramfs, bytes.
    pub fn initramfs_bytes(&self) -> u64 {
        self.initramfs_bytes
    }

    /// From the start of QEMU to ready.
    pub fn boot_time(&self) -> Duration {
        self.machine.boot_time()
    }

    /// Where the tracer's gRPC is reached from this machine.
    pub fn tracer_address(&self) -> String {
        format!("127.0.0.1:{}", self.machine.host_port())
    }

    /// The machine below.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The last lines of the serial console, for an error.
    pub fn serial_tail(&self) -> String {
        self.machine.serial_tail()
    }

    /// Runs a program as root; an exit code other than 0 is an error that shows what
    /// it wrote.
    pub async fn exec(&self, argv: &[&str]) -> Result<Exit> {
        let argv: Vec<String> = argv.iter().map(|&arg| arg.to_owned()).collect();
        let shown = argv.join(" ");
        let exit = self
            .run(
                Exec {
                    argv,
                    ..Exec::default()
                },
                SHORT,
            )
            .await?;
        let (out, err) = (exit.stdout.to_lossy(), exit.stderr.to_lossy());
        ensure!(
            exit.code == Some(0),
            "{shown}: exit {:?}\n{out}{err}",
            exit.code
        );
        Ok(exit)
    }

    /// Runs a program to its end, whatever its exit code; killed after `limit`.
    pub async fn run(&self, exec: Exec, limit: Duration) -> Result<Exit> {
        let timeout_ms = milliseconds(limit);
        self.exit(Command::Run { exec, timeout_ms }, limit).await
    }

    /// Starts a program and leaves it running; gives its pid.
    pub async fn spawn(&self, exec: Exec) -> Result<i32> {
        match self.ask(Command::Spawn { exec }, SHORT).await? {
            Reply::Spawned { pid } => Ok(pid),
            other => unexpected(&other),
        }
    }

    /// Waits for a program that was spawned.
    pub async fn wait(&self, pid: i32, limit: Duration) -> Result<Exit> {
        self.exit(
            Command::Wait {
                pid,
                timeout_ms: milliseconds(limit),
            },
            limit,
        )
        .await
    }

    /// Sends a signal by its number.
    pub async fn kill(&self, pid: i32, signal: i32) -> Result<()> {
        self.done(Command::Kill { pid, signal }).await
    }

    /// Writes a file in the guest.
    pub async fn write_file(&self, path: &str, data: impl Into<Text>, mode: u32) -> Result<()> {
        self.done(Command::WriteFile {
            path: path.to_owned(),
            data: data.into(),
            mode,
        })
        .await
    }

    /// Reads the end of a file in the guest.
    pub async fn read_file(&self, path: &str) -> Result<Text> {
        match self
            .ask(
                Command::ReadFile {
                    path: path.to_owned(),
                },
                SHORT,
            )
            .await?
        {
            Reply::File { data, .. } => Ok(data),
            other => unexpected(&other),
        }
    }

    /// What a spawned process has written so far, both streams.
    pub async fn read_output(&self, pid: i32) -> Result<Text> {
        match self.ask(Command::ReadOutput { pid }, SHORT).await? {
            Reply::File { data, .. } => Ok(data),
            other => unexpected(&other),
        }
    }

    /// Memory and context switches of a process.
    pub async fn process_stat(&self, pid: i32) -> Result<ProcessStat> {
        match self.ask(Command::ProcessStat { pid }, SHORT).await? {
            Reply::ProcessStat(stat) => Ok(stat),
            other => unexpected(&other),
        }
    }

    /// Both clocks of the guest.
    pub async fn clocks(&self) -> Result<Clocks> {
        match self.ask(Command::Clocks, SHORT).await? {
            Reply::Clocks(clocks) => Ok(clocks),
            other => unexpected(&other),
        }
    }

    /// BPF programs in the kernel, by the symbols that it has for them: those of
    /// programs, and of the functions within.
    pub async fn bpf_programs(&self) -> Result<Vec<String>> {
        // They stand at the end of the list, behind all modules.
        let symbols = self.read_file("/proc/kallsyms").await?.to_lossy();
        let programs = symbols.lines().filter_map(|line| {
            let mut words = line.split_ascii_whitespace().skip(2);
            let (name, module) = (words.next()?, words.next()?);
            (module == "[bpf]" && name.starts_with("bpf_prog_")).then(|| name.to_owned())
        });
        Ok(programs.collect())
    }

    /// A command whose answer is only that it was done.
    pub async fn done(&self, command: Command) -> Result<()> {
        match self.ask(command, SHORT).await? {
            Reply::Done => Ok(()),
            other => unexpected(&other),
        }
    }

    /// Powers off and waits for it.
    pub async fn power_off(mut self) -> Result<()> {
        // The machine may be gone before its answer is.
        let _ = self.ask(Command::Poweroff, ANSWER_GRACE).await;
        self.machine.wait_off(SHORT).await
    }

    async fn exit(&self, command: Command, limit: Duration) -> Result<Exit> {
        match self.ask(command, limit + ANSWER_GRACE).await? {
            Reply::Exit(exit) => Ok(exit),
            other => unexpected(&other),
        }
    }

    async fn ask(&self, command: Command, limit: Duration) -> Result<Reply> {
        let answer = self.machine.control().ask(command, limit).await;
        answer.with_context(|| format!("host {}", self.name))
    }
}

fn unexpected<T>(reply: &Reply) -> Result<T> {
    bail!("the guest answered {reply:?}")
}

fn milliseconds(limit: Duration) -> u64 {
    u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)
}

/// Where a file given on the command line goes: `FROM` keeps its name in
/// `/usr/bin`, `FROM:TO` says.
pub fn parse_addition(text: &str) -> Result<(PathBuf, String)> {
    let (from, to) = match text.split_once(':') {
        Some((from, to)) => (PathBuf::from(from), to.to_owned()),
        None => {
            let from = PathBuf::from(text);
            let name = from
                .file_name()
                .context("a file has a name")?
                .to_string_lossy();
            let to = format!("/usr/bin/{name}");
            (from, to)
        }
    };
    ensure!(from.is_file(), "no file {}", from.display());
    ensure!(
        Path::new(&to).is_absolute(),
        "{to}: want an absolute path in the guest"
    );
    Ok((from, to))
}
