//! `rdmesh wire watch`: windows as they come, also across a restart of whoever
//! sends them.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::time::Duration;

use clap::Args;
use rdmesh_client::Moment;
use rdmesh_client::model::wire::SeenWindow;
use rdmesh_client::wires::Windows;

use super::outage::Outage;
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
When the collector goes away it says so once and asks again until it is back.

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
    // Nobody who could send windows from the start on is an error, as everywhere.
    let mut windows = open(args, global).await?;
    let mut screen = Screen::on(output);
    let mut outage = Outage::default();
    let mut patience = FIRST_WINDOW;
    let mut left = args.count.map(NonZeroU64::get);
    while left != Some(0) {
        let next = match tokio::time::timeout(patience, windows.next()).await {
            Ok(next) => next,
            Err(_) => {
                screen.say(NOTHING_YET)?;
                patience = Duration::MAX;
                continue;
            }
        };
        let lost = match next {
            // A collector that is back begins with the last window of each wire.
            Ok(Some(window)) if screen.has_shown(&window) => continue,
            Ok(Some(window)) => {
                outage = Outage::default();
                patience = Duration::MAX;
                if !screen.show(window)? {
                    return Ok(Code::Answered);
                }
                left = left.map(|left| left - 1);
                continue;
            }
            Ok(None) => "whoever sends the windows has ended".to_owned(),
            Err(error) if error.is_passing() => error.to_string(),
            Err(error) => return Err(error.into()),
        };
        windows = again(args, global, &mut screen, &mut outage, &lost).await?;
    }
    Ok(Code::Answered)
}

async fn open(args: &WatchArgs, global: &Global) -> Result<Windows, CommandError> {
    let source = source(&args.at, global).await?;
    Ok(source.watch(args.which.host(), args.which.wire()).await?)
}

/// Asks until somebody answers; fails when waiting cannot help.
async fn again(
    args: &WatchArgs,
    global: &Global,
    screen: &mut Screen<'_>,
    outage: &mut Outage,
    lost: &str,
) -> Result<Windows, CommandError> {
    if outage.is_news() {
        screen.say(&format!(
            "{lost}; asking again until it is back (Ctrl-C ends)"
        ))?;
    }
    loop {
        tokio::time::sleep(outage.next_pause()).await;
        match open(args, global).await {
            Err(error) if error.is_passing() => screen.refresh()?,
            other => return other,
        }
    }
}

/// Where windows are shown.
struct Screen<'a> {
    output: &'a mut Output,
    /// On a terminal alone.
    board: Option<Board>,
    /// When the last window of each wire ended, by shaper and wire.
    shown: BTreeMap<(Option<String>, String), Option<Moment>>,
}

impl<'a> Screen<'a> {
    fn on(output: &'a mut Output) -> Screen<'a> {
        // A terminal: `width` is known of one alone.
        let is_board = output.style.width.is_some() && output.format == Format::Text;
        Screen {
            output,
            board: is_board.then(Board::default),
            shown: BTreeMap::new(),
        }
    }

    fn has_shown(&self, seen: &SeenWindow) -> bool {
        let shown = self.shown.get(&key(seen)).copied().flatten();
        shown.is_some() && shown == seen.window.to
    }

    /// Whether somebody still reads.
    fn show(&mut self, window: SeenWindow) -> Result<bool, CommandError> {
        let style = self.output.style;
        self.shown.insert(key(&window), window.window.to);
        let text = match (self.output.format, &mut self.board) {
            (Format::Json, _) => output::json_line(&window)?,
            (Format::Text, Some(board)) => board.draw(window, &style, Moment::now()),
            (Format::Text, None) => line(&window, &style),
        };
        Ok(self.output.go_on(text.as_bytes())?)
    }

    /// A word to whoever waits: on the board where there is one, which anything
    /// beside it would tear apart.
    fn say(&mut self, text: &str) -> Result<(), CommandError> {
        match &mut self.board {
            None => self.output.remark(text),
            Some(board) => {
                board.note(text);
                self.refresh()?;
            }
        }
        Ok(())
    }

    /// The board anew, for the ages on it.
    fn refresh(&mut self) -> Result<(), CommandError> {
        if let Some(board) = &mut self.board {
            let text = board.redraw(&self.output.style, Moment::now());
            self.output.go_on(text.as_bytes())?;
        }
        Ok(())
    }
}

fn key(seen: &SeenWindow) -> (Option<String>, String) {
    (seen.shaper_host.clone(), seen.window.wire.clone())
}
