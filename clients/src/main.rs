//! `rdmesh`: what schedulers and people on call type.

mod args;
mod command;
mod exit;
mod output;
mod render;

fn main() -> std::process::ExitCode {
    let arguments: Vec<std::ffi::OsString> = std::env::args_os().collect();
    let parsed = match args::parse(&arguments) {
        Ok(cli) => cli,
        Err(error) => return exit::usage(&error, &arguments),
    };
    let mut output = output::Output::of_process(&parsed.global);
    let result = command::run(&parsed, &mut output);
    exit::finish(result, &mut output)
}
