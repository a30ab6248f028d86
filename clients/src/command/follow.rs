//! `rdmesh failures --follow`: failures as they are stored, also across a restart of the
//! collector.

use std::collections::{BTreeSet, VecDeque};

use rdmesh_client::Client;
use rdmesh_client::follow::{Followed, Following};
use rdmesh_client::model::failure::Failure;
use rdmesh_client::queries::FailureFilter;
use serde::Serialize;

use super::outage::Outage;
use super::{MAX_LIMIT, connect};
use crate::args::{Format, Global};
use crate::exit::{Code, CommandError};
use crate::output::{self, Output};
use crate::render::failures;

/// Failures whose places are remembered, so that one that is told twice is shown once:
/// those that came while the list was read.
const REMEMBERED: usize = 10_000;

/// What a program gets where failures were missed.
#[derive(Serialize)]
struct Missed {
    missed: u64,
}

/// Where a failure stands: the agent's run, the snapshot and the place in it.
type Place = (Option<String>, u64, u32);

fn place(failure: &Failure) -> Place {
    (failure.run_id.clone(), failure.sequence, failure.ordinal)
}

/// Shows what comes until `count` failures were shown; none: until somebody ends it.
/// `back`: first those that the filter finds already.
pub(super) async fn run(
    filter: &FailureFilter,
    back: bool,
    count: Option<u32>,
    (client, global): (&Client, &Global),
    output: &mut Output,
) -> Result<Code, CommandError> {
    let mut following = client.follow_failures(filter).await?;
    let mut screen = Screen {
        output,
        shown: BTreeSet::new(),
        order: VecDeque::new(),
        left: count,
    };
    // After the watch has begun, so that nothing falls between the two.
    if back {
        let limit = usize::try_from(MAX_LIMIT).unwrap_or(usize::MAX);
        let page = client.list_failures(filter, limit).await?;
        for failure in page.items.into_iter().rev() {
            if !screen.show(&failure)? {
                return Ok(Code::Answered);
            }
        }
    }
    let mut outage = Outage::default();
    while screen.left != Some(0) {
        let lost = match following.next().await {
            Ok(Some(next)) => {
                outage = Outage::default();
                let goes_on = match next {
                    Followed::Failure(failure) => screen.show(&failure)?,
                    Followed::Missed(missed) => screen.missed(missed)?,
                };
                if !goes_on {
                    return Ok(Code::Answered);
                }
                continue;
            }
            Ok(None) => "the collector has ended".to_owned(),
            Err(error) if error.is_outage() => error.to_string(),
            Err(error) => return Err(error.into()),
        };
        following = again(filter, global, screen.output, &mut outage, &lost).await?;
    }
    Ok(Code::Answered)
}

/// Asks until the collector answers; fails when waiting cannot help.
async fn again(
    filter: &FailureFilter,
    global: &Global,
    output: &Output,
    outage: &mut Outage,
    lost: &str,
) -> Result<Following, CommandError> {
    if outage.is_news() {
        output.remark(&format!(
            "{lost}; asking again until it is back (Ctrl-C ends); what was stored meanwhile is in \
             rdmesh failures"
        ));
    }
    loop {
        tokio::time::sleep(outage.next_pause()).await;
        let asked = async {
            let client = connect(global).await?;
            Ok::<_, CommandError>(client.follow_failures(filter).await?)
        };
        match asked.await {
            Err(error) if error.is_passing() => {}
            other => return other,
        }
    }
}

struct Screen<'a> {
    output: &'a mut Output,
    shown: BTreeSet<Place>,
    order: VecDeque<Place>,
    /// How many more are to be shown; none: all that come.
    left: Option<u32>,
}

impl Screen<'_> {
    /// Whether to go on.
    fn show(&mut self, failure: &Failure) -> Result<bool, CommandError> {
        let place = place(failure);
        if !self.shown.insert(place.clone()) {
            return Ok(true);
        }
        self.order.push_back(place);
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.shown.remove(&oldest);
        }
        let text = match self.output.format {
            Format::Json => output::json_line(failure)?,
            Format::Text => failures::line(failure, &self.output.style),
        };
        self.left = self.left.map(|left| left.saturating_sub(1));
        Ok(self.output.go_on(text.as_bytes())? && self.left != Some(0))
    }

    /// Whether to go on.
    fn missed(&mut self, missed: u64) -> Result<bool, CommandError> {
        match self.output.format {
            Format::Json => {
                let text = output::json_line(&Missed { missed })?;
                Ok(self.output.go_on(text.as_bytes())?)
            }
            Format::Text => {
                self.output.remark(&format!(
                    "{missed} failures came faster than they were shown; rdmesh failures lists them"
                ));
                Ok(true)
            }
        }
    }
}
