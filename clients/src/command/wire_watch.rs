//! `rdmesh wire watch`: windows as they come.

use std::num::NonZeroU64;
use std::time::Duration;

use clap::Args;
use rdmesh_client::Moment;

use super::wire::{At, Which, source};
use crate::args::{Format, Global};
use crate::exit::{Code, CommandError};
use crate::output::{self, Output};
use crate::render::wires_watch::{Board, line};

/// A shaper sends a window each second; who sees none by then is told so.
const FIRST_WINDOW: Duration = Duration::from_secs(3);

const NOTHING_YET: &str = "no wire has sent a window yet; waiting for the first \
                           (rdmesh wire list shows which wires are known)";

#[derive(Debug, Args)]
#[command(after_help = "\
In a terminal each wire has one line, which is redrawn; into a pipe each window is a
line; with -o json each window is an object on a line of its own. Ends with Ctrl-C.

Examples:
  rdmesh wire watch
  rdmesh wire watch --host gpu-01 --wire vf0
  rdmesh wire watch -n 12 -o json | jq '.sent_bps'")]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    which: Which,
    /// End after this many windows
    #[arg(short = 'n', long, value_name = "N")]
    count: Option<NonZeroU64>,
    #[command(flatten)]
    at: At,
}

pub(super) async fn run(
    args: &WatchArgs,
    global: &Global,
    output: &mut Output,
) -> Result<Code, CommandError> {
    let source = source(&args.at, global).await?;
    let mut windows = source.watch(args.which.host(), args.which.wire()).await?;
    // A terminal: `width` is known of one alone.
    let mut board = output.style.width.is_some().then(Board::default);
    let mut patience = FIRST_WINDOW;
    let mut left = args.count.map(NonZeroU64::get);
    while left != Some(0) {
        let window = match tokio::time::timeout(patience, windows.next()).await {
            Ok(window) => window?,
            Err(_) => {
                output.remark(NOTHING_YET);
                windows.next().await?
            }
        };
        let Some(window) = window else {
            return Err(CommandError::Ended);
        };
        patience = Duration::MAX;
        let now = Moment::now();
        let text = match (output.format, &mut board) {
            (Format::Json, _) => output::json_line(&window)?,
            (Format::Text, Some(board)) => board.draw(window, &output.style, now),
            (Format::Text, None) => line(&window, &output.style),
        };
        if !output.go_on(text.as_bytes())? {
            return Ok(Code::Answered);
        }
        left = left.map(|left| left - 1);
    }
    Ok(Code::Answered)
}
