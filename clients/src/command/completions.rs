//! `rdmesh completions SHELL`.

use clap::Args;
use clap_complete::Shell;

use crate::args;
use crate::exit::{Code, CommandError};
use crate::output::Output;

const EXAMPLE: &str = "\
Examples:
  rdmesh completions bash > ~/.local/share/bash-completion/completions/rdmesh
  rdmesh completions zsh > \"${fpath[1]}/_rdmesh\"
  rdmesh completions fish > ~/.config/fish/completions/rdmesh.fish";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct CompletionsArgs {
    /// For which shell
    shell: Shell,
}

pub(crate) fn run(args: &CompletionsArgs, output: &mut Output) -> Result<Code, CommandError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut args::grammar(), "rdmesh", &mut script);
    output.write(&script)?;
    Ok(Code::Answered)
}
