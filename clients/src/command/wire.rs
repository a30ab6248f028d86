//! `rdmesh wire list|set|reset|bypass|watch|compare`.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use rdmesh_client::model::wire::{FleetWire, ShapedWire, ShaperFailure, Wire};
use rdmesh_client::moment;
use rdmesh_client::shaper::ShaperClient;
use rdmesh_client::wires::{NewRate, Note, WireName, Wires};
use rdmesh_proto::rate::{LineRate, RateError};
use serde::Serialize;
use uuid::Uuid;

use super::{wire_compare, wire_watch};
use crate::args::Global;
use crate::exit::{Code, CommandError};
use crate::output::Output;
use crate::render;

#[derive(Debug, Subcommand)]
pub(crate) enum WireCommand {
    /// List wires with their rates, last windows and jobs
    List(ListArgs),
    /// Set the rate of a wire, for a while or until it is reset
    Set(SetArgs),
    /// Put a wire, or all, back to the configured rate
    Reset(ResetArgs),
    /// Send a wire's traffic around the shaper, or through it again
    Bypass(BypassArgs),
    /// Watch windows as they come
    Watch(wire_watch::WatchArgs),
    /// Compare two stretches of time of a wire, such as two jobs
    Compare(wire_compare::CompareArgs),
}

/// Who is asked.
#[derive(Debug, Args)]
pub(crate) struct At {
    /// Ask this shaper itself, without a collector: HOST[:PORT] or unix:/PATH
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) shaper: Option<String>,
}

/// Which wires.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// Of this host: the shaper's, or the shaped one
    #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) host: Option<String>,
    /// Of this name
    #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) wire: Option<String>,
}

impl Which {
    pub(crate) fn host(&self) -> &str {
        self.host.as_deref().unwrap_or_default()
    }

    pub(crate) fn wire(&self) -> &str {
        self.wire.as_deref().unwrap_or_default()
    }
}

/// What goes with every change.
#[derive(Debug, Args)]
struct NoteArgs {
    /// Why, for the shaper's audit record
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Repeat the change that had this id: it is done once; without: a new one
    #[arg(long, value_name = "UUID")]
    request_id: Option<Uuid>,
}

impl NoteArgs {
    fn note(&self) -> Note {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Note {
            request_id: self.request_id.unwrap_or_else(Uuid::new_v4).to_string(),
            reason: self.reason.clone().unwrap_or_default(),
            user: set("USER")
                .or_else(|| set("LOGNAME"))
                .unwrap_or_else(|| format!("uid {}", rustix::process::getuid().as_raw())),
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  rdmesh wire list
  rdmesh wire list --host gpu-01
  rdmesh wire list --shaper dpu-01 -o json | jq '.wires[].wire.rate_bps'")]
pub(crate) struct ListArgs {
    #[command(flatten)]
    which: Which,
    /// Show what is stored, without asking the shapers
    #[arg(long, conflicts_with = "shaper")]
    stored: bool,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Args)]
#[command(after_help = "\
RATE is a line rate as tc writes it, frame overhead included: 10gbit, 2.5gbit,
200mbit; 1mbit to 200gbit.

Examples:
  rdmesh wire set gpu-01/vf0 10gbit --for 10m --reason 'straggler study'
  rdmesh wire set gpu-01:vf0 200mbit
  rdmesh wire set vf0 25gbit --shaper dpu-01")]
pub(crate) struct SetArgs {
    /// SHAPER/WIRE, WIRE where only one has that name, or HOST:FUNCTION by what it shapes
    wire: WireName,
    /// The line rate
    #[arg(value_parser = rate)]
    rate: LineRate,
    /// Back to the configured rate by itself after this, such as 10m; at most 30d
    #[arg(long = "for", value_name = "TIME", value_parser = moment::parse_span)]
    expires_after: Option<Duration>,
    /// Also a rate that the data path was measured not to keep
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    note: NoteArgs,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("target").required(true))]
#[command(after_help = "\
Examples:
  rdmesh wire reset gpu-01/vf0
  rdmesh wire reset --all --reason 'end of the study'")]
pub(crate) struct ResetArgs {
    /// SHAPER/WIRE, WIRE where only one has that name, or HOST:FUNCTION by what it shapes
    #[arg(group = "target")]
    wire: Option<WireName>,
    /// Every wire; with --shaper, every one of that shaper
    #[arg(long, group = "target")]
    all: bool,
    #[command(flatten)]
    note: NoteArgs,
    #[command(flatten)]
    at: At,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  rdmesh wire bypass gpu-01/vf0 on --reason 'card under suspicion'
  rdmesh wire bypass gpu-01/vf0 off")]
pub(crate) struct BypassArgs {
    /// SHAPER/WIRE, WIRE where only one has that name, or HOST:FUNCTION by what it shapes
    wire: WireName,
    /// on: around the shaper; off: through it again
    #[arg(value_name = "STATE")]
    bypass: Switch,
    #[command(flatten)]
    note: NoteArgs,
    #[command(flatten)]
    at: At,
}

/// The answer to `wire list`.
#[derive(Debug, Serialize)]
pub(crate) struct WireList {
    pub(crate) wires: Vec<FleetWire>,
    /// One shaper was asked, not the fleet.
    #[serde(skip)]
    pub(crate) of_one_shaper: bool,
    /// Whether a name was asked for, and not all.
    #[serde(skip)]
    pub(crate) asked_for_some: bool,
}

/// The answer to what changes one wire.
#[derive(Debug, Serialize)]
pub(crate) struct WireChange {
    pub(crate) shaper_host: Option<String>,
    pub(crate) wire: Option<Wire>,
    /// Absent for a request that was done before, and for a bypass.
    pub(crate) in_force_after_ns: Option<u64>,
    /// With `--request-id` the change can be repeated.
    pub(crate) request_id: String,
}

/// The answer to `wire reset`.
#[derive(Debug, Serialize)]
pub(crate) struct WireReset {
    pub(crate) wires: Vec<ShapedWire>,
    pub(crate) failures: Vec<ShaperFailure>,
    pub(crate) request_id: String,
}

fn rate(text: &str) -> Result<LineRate, RateError> {
    text.parse()
}

pub(crate) async fn run(
    command: &WireCommand,
    global: &Global,
    output: &mut Output,
) -> Result<Code, CommandError> {
    match command {
        WireCommand::List(args) => list(args, global, output).await,
        WireCommand::Set(args) => set(args, global, output).await,
        WireCommand::Reset(args) => reset(args, global, output).await,
        WireCommand::Bypass(args) => bypass(args, global, output).await,
        WireCommand::Watch(args) => wire_watch::run(args, global, output).await,
        WireCommand::Compare(args) => wire_compare::run(args, global, output).await,
    }
}

/// The fleet's collector, or the one shaper that is named.
pub(super) async fn source(at: &At, global: &Global) -> Result<Wires, CommandError> {
    match &at.shaper {
        None => Ok(Wires::Fleet(super::connect(global).await?)),
        Some(_) if global.collector.is_some() => Err(CommandError::Usage(
            "--collector and --shaper both say whom to ask; give one".to_owned(),
        )),
        Some(text) => {
            let client =
                ShaperClient::connect_over(&super::links(global)?, text, global.timeout()).await?;
            Ok(Wires::Shaper(client))
        }
    }
}

async fn list(args: &ListArgs, global: &Global, output: &mut Output) -> Result<Code, CommandError> {
    let source = source(&args.at, global).await?;
    let (host, wire) = (args.which.host(), args.which.wire());
    let list = WireList {
        wires: source.list(host, wire, args.stored).await?,
        of_one_shaper: args.at.shaper.is_some(),
        asked_for_some: !host.is_empty() || !wire.is_empty(),
    };
    output.answer(&list, render::wires::list)?;
    // A wrong letter must not read as good news.
    if list.wires.is_empty() && list.asked_for_some {
        return Ok(Code::NotFound);
    }
    Ok(Code::Answered)
}

async fn set(args: &SetArgs, global: &Global, output: &mut Output) -> Result<Code, CommandError> {
    let source = source(&args.at, global).await?;
    let note = args.note.note();
    let rate = NewRate {
        rate_bps: args.rate.bps(),
        expires_after: args.expires_after,
        force: args.force,
    };
    let set = source.set_rate(&args.wire, rate, &note).await?;
    let change = WireChange {
        shaper_host: set.shaped.shaper_host,
        wire: set.shaped.wire,
        in_force_after_ns: set.in_force_after_ns,
        request_id: note.request_id,
    };
    output.answer(&change, render::wires::change)?;
    Ok(Code::Answered)
}

async fn bypass(
    args: &BypassArgs,
    global: &Global,
    output: &mut Output,
) -> Result<Code, CommandError> {
    let source = source(&args.at, global).await?;
    let note = args.note.note();
    let around = args.bypass == Switch::On;
    let shaped = source.set_bypass(&args.wire, around, &note).await?;
    let change = WireChange {
        shaper_host: shaped.shaper_host,
        wire: shaped.wire,
        in_force_after_ns: None,
        request_id: note.request_id,
    };
    output.answer(&change, render::wires::change)?;
    Ok(Code::Answered)
}

/// Where several shapers were asked and one failed, the code is that of a failure.
async fn reset(
    args: &ResetArgs,
    global: &Global,
    output: &mut Output,
) -> Result<Code, CommandError> {
    let source = source(&args.at, global).await?;
    let note = args.note.note();
    let done = source.reset(args.wire.as_ref(), &note).await?;
    let complete = done.failures.is_empty();
    let reset = WireReset {
        wires: done.wires,
        failures: done.failures,
        request_id: note.request_id,
    };
    output.answer(&reset, render::wires::reset)?;
    Ok(if complete {
        Code::Answered
    } else {
        Code::Failed
    })
}
