//! PID 1 of a lab host. It sets the machine up, says it is ready, and then does
//! what the lab's JSON lines ask for. It never outlives its control channel: when
//! that closes, the machine powers off.

mod boot;
mod process;
mod procfs;
mod reaper;
mod serve;

use anyhow::Result;
use rustix::system::{RebootCommand, reboot};
use std::process::ExitCode;

fn main() -> ExitCode {
    // The same binary, started by itself, prepares a child and becomes its program.
    let mut args = std::env::args().skip(1);
    if args.next().as_deref() == Some(process::BECOME) {
        return process::become_program(args.next());
    }
    if rustix::process::getpid() != rustix::process::Pid::INIT {
        eprintln!("rdmesh-guest-init: this is PID 1 of a lab host; start it with rdmesh-lab");
        return ExitCode::from(2);
    }
    if let Err(error) = run() {
        eprintln!("rdmesh-guest-init: {error:#}");
    }
    match reboot(RebootCommand::PowerOff) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn run() -> Result<()> {
    let settings = boot::mounts()?;
    let reaper = reaper::start();
    boot::modules()?;
    let port = serve::open_port()?;
    match boot::machine(&settings, &reaper) {
        Ok(ready) => serve::until_closed(port, &reaper, &ready),
        Err(error) => serve::report_failure(port, &error),
    }
}
