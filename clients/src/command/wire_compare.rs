//! `rdmesh wire compare WIRE A B`.

use std::str::FromStr;

use clap::Args;
use rdmesh_client::wires::{Stretch, WireName};
use rdmesh_client::{AttemptId, AttemptSelector, Client, Moment};

use crate::args::{self, Global};
use crate::exit::{Code, CommandError};
use crate::output::Output;
use crate::render;

/// One side of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Side {
    Attempt(AttemptSelector),
    Time(Moment, Option<Moment>),
}

impl FromStr for Side {
    type Err = String;

    fn from_str(text: &str) -> Result<Side, String> {
        let Some((from, to)) = text.split_once("..") else {
            return match text.parse() {
                Ok(attempt) => Ok(Side::Attempt(attempt)),
                Err(error) => Err(format!(
                    "{error}; write JOB[/ATTEMPT], or FROM..TO such as 2h..1h"
                )),
            };
        };
        let moment = |text: &str| args::moment(text).map_err(|e| e.to_string());
        let from = moment(from)?;
        let to = if to.is_empty() {
            None
        } else {
            Some(moment(to)?)
        };
        if to.is_some_and(|to| to < from) {
            return Err(
                "it ends before it begins; an age counts back from now, so that 2h..1h \
                        is an hour"
                    .to_owned(),
            );
        }
        Ok(Side::Time(from, to))
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
A and B are JOB[/ATTEMPT], or FROM..TO with ages or times (2h..1h, or 10m.. up to now).
Whole windows count, and figures are of valid ones alone. Windows of different engine
versions or shaper configurations are not compared: exit code 1.

Examples:
  rdmesh wire compare gpu-01/vf0 4711 4712
  rdmesh wire compare gpu-01/vf0 2h..1h 1h.. -o json")]
pub(crate) struct CompareArgs {
    /// SHAPER/WIRE, WIRE where only one has that name, or HOST:FUNCTION by what it shapes
    wire: WireName,
    /// The first stretch of time
    a: Side,
    /// The second
    b: Side,
}

pub(super) async fn run(
    args: &CompareArgs,
    global: &Global,
    output: &mut Output,
) -> Result<Code, CommandError> {
    let client = super::connect(global).await?;
    let a = stretch(&args.a, &client).await?;
    let b = stretch(&args.b, &client).await?;
    let comparison = client.compare_wires(&args.wire, &a, &b).await?;
    output.answer(&comparison, render::wires::comparison)?;
    Ok(Code::Answered)
}

/// A job alone means its latest attempt.
async fn stretch(side: &Side, client: &Client) -> Result<Stretch, CommandError> {
    Ok(match side {
        Side::Time(from, to) => Stretch::Time(*from, *to),
        Side::Attempt(selector) => Stretch::Attempt(latest(selector, client).await?),
    })
}

async fn latest(selector: &AttemptSelector, client: &Client) -> Result<AttemptId, CommandError> {
    if !selector.is_latest() {
        return Ok(selector.or_first());
    }
    Ok(client.get_job(selector).await?.job.attempt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_is_an_attempt_or_a_stretch_of_time() {
        let side = |text: &str| text.parse::<Side>();
        assert!(matches!(side("4711/1").unwrap(), Side::Attempt(_)));
        assert!(matches!(side("2h..1h").unwrap(), Side::Time(_, Some(_))));
        assert!(matches!(side("@0..").unwrap(), Side::Time(_, None)));
        assert!(side("1h..2h").unwrap_err().contains("ends before"));
        assert!(side("..").is_err());
        assert!(side("").unwrap_err().contains("FROM..TO"));
    }
}
