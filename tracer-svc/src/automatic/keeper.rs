//! Asks the collector, opens windows, hands in what comes of them.

use std::time::Duration;

use rdmesh_proto::collector::v1::baseline_service_client::BaselineServiceClient;
use rdmesh_proto::collector::v1::lease_window_response::Answer as Leased;
use rdmesh_proto::collector::v1::{
    FinishWindowRequest, LeaseRefusal, LeaseRefusalReason, LeaseWindowRequest, WindowLease,
    WindowPurpose,
};
use rdmesh_proto::tracer::v1 as wire;
use rdmesh_services::shutdown::Closing;
use rdmesh_services::uplink::Dial;
use tokio::time::{Instant, sleep, timeout};
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::offers::{Failing, Sightings};
use super::plan::{Answer, Plan, Wish};
use crate::baseline::{Tree, shows};
use crate::window::{
    Ask, LONGEST_SECONDS, Parted, Purpose, Told, WindowError, Windows, Words, contract,
};

/// How long the collector has for an answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// A collector that does not answer is asked again; its tracers keep their failures meanwhile.
const AWAY: Duration = Duration::from_secs(60);
/// One that does not know the call is older, and stays so for a while.
const OLDER: Duration = Duration::from_secs(3600);
/// After a window of somebody else on this host, or while a driver is reloaded.
const BUSY: Duration = Duration::from_secs(60);
/// How often a result is handed in, and how long between: a collector restarts within
/// seconds, and a lease that nobody ends expires.
const HAND_IN_TIMES: u32 = 4;
const HAND_IN_EVERY: Duration = Duration::from_secs(5);
/// Largest baseline that is handed in or taken, bytes: what the collector takes.
const BASELINE_MAX_BYTES: usize = 2 << 20;

/// Characters of the reason why a window has no result: 1,024 bytes are taken.
const FAILURE_MAX_CHARS: usize = 250;

/// When to look for what is missing.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// First after the beginning: the job that starts with the host makes good calls then.
    pub first: Duration,
    /// And from then on.
    pub every: Duration,
}

impl Pace {
    /// For a host of this name: a fleet that starts together does not ask together.
    #[must_use]
    pub fn of_host(host: &str) -> Self {
        let spread = host.bytes().fold(0_u64, |sum, byte| {
            sum.wrapping_mul(31).wrapping_add(u64::from(byte))
        });
        Self {
            first: Duration::from_secs(30 + spread % 60),
            every: Duration::from_secs(60),
        }
    }
}

/// What the keeper takes from its surroundings.
pub struct Surroundings {
    /// As in the uplink's Hello.
    pub host: String,
    /// The same.
    pub run_id: String,
    /// Reaches the collector.
    pub collector: Box<dyn Dial>,
    /// Drivers with a device; none while modules are let go on request: a window would
    /// keep them.
    pub drivers: Box<dyn Fn() -> Vec<String> + Send + Sync>,
    /// Ends it.
    pub ending: Closing,
    /// When it looks.
    pub pace: Pace,
}

/// Keeps baselines and captures of this host, in automatic mode.
pub struct Keeper {
    around: Surroundings,
    windows: Windows,
    sightings: Sightings,
    plan: Plan,
    /// The collector did not answer the last time: told once.
    is_away: bool,
}

/// What a window had as its result.
enum Came {
    Recorded(Vec<Tree>),
    Captured(Box<Parted>),
}

impl Keeper {
    /// Of these windows; failing calls come by `sightings`.
    #[must_use]
    pub fn new(around: Surroundings, windows: Windows, sightings: Sightings) -> Self {
        Self {
            around,
            windows,
            sightings,
            plan: Plan::default(),
            is_away: false,
        }
    }

    /// Until the tracer ends.
    pub async fn run(mut self) {
        let began = Instant::now();
        let mut look_at = began + self.around.pace.first;
        let ending = self.around.ending.clone();
        loop {
            tokio::select! {
                () = ending.requested() => return,
                seen = self.sightings.recv() => match seen {
                    Some(failing) => self.plan.saw(failing, began.elapsed()),
                    None => return,
                },
                () = tokio::time::sleep_until(look_at) => {}
            }
            let mut missing = Vec::new();
            if Instant::now() >= look_at {
                look_at = Instant::now() + self.around.pace.every;
                missing = self.missing(began.elapsed()).await;
            }
            while let Some(wish) = self.plan.next(&missing, began.elapsed()) {
                let answer = self.pursue(&wish).await;
                tracing::debug!(?wish, ?answer, "automatic window");
                self.plan.answered(&wish, answer, began.elapsed());
            }
        }
    }

    /// Verbs without a baseline, by driver.
    async fn missing(&self, now: Duration) -> Vec<(String, Vec<String>)> {
        let drivers = (self.around.drivers)();
        if !self.plan.may_record(&drivers, now) {
            return Vec::new();
        }
        let kept = self.kept().await;
        let missing = drivers.into_iter().map(|driver| {
            let mut verbs = self.plan.worth(&driver);
            verbs.retain(|verb| !kept.iter().any(|t| t.driver == driver && t.verb == *verb));
            (driver, verbs)
        });
        missing.collect()
    }

    /// Baselines of this kernel on the host. Those that cannot be read count as none: a
    /// recording sets them aside, and says so.
    async fn kept(&self) -> Vec<Tree> {
        let (shelf, release) = (self.windows.shelf().clone(), self.windows.release());
        let kept = tokio::task::spawn_blocking(move || shelf.all()).await;
        let mut trees = kept.map_or_else(|_| Vec::new(), |k| k.unwrap_or_default().trees);
        trees.retain(|tree| tree.kernel == release);
        trees
    }

    /// Asks, and does what was granted.
    async fn pursue(&mut self, wish: &Wish) -> Answer {
        if !self.may_watch(wish) {
            return Answer::Later(BUSY);
        }
        let own = match wish {
            Wish::Record { .. } => None,
            Wish::Capture(failing) => {
                let is_it = |t: &Tree| t.driver == failing.driver && t.verb == failing.verb;
                self.kept().await.into_iter().find(is_it)
            }
        };
        let request = self.request(wish, own.is_some());
        let mut client = match self.dial().await {
            Ok(client) => client,
            Err(why) => return self.away(&why, AWAY),
        };
        let answer = match timeout(ANSWER_WITHIN, client.lease_window(request)).await {
            Err(_) => return self.away("no answer in time", AWAY),
            Ok(Err(status)) if status.code() == Code::Unimplemented => {
                return self.away("it is older than this tracer and leases no windows", OLDER);
            }
            Ok(Err(status)) => return self.away(status.message(), AWAY),
            Ok(Ok(answer)) => answer.into_inner().answer,
        };
        // It may take minutes until there is something to say.
        drop(client);
        self.is_away = false;
        match answer {
            Some(Leased::Lease(lease)) => self.use_lease(wish, own, lease).await,
            Some(Leased::Refusal(refusal)) => refused(&refusal),
            None => self.away(
                "its answer cannot be read: it is newer than this tracer",
                OLDER,
            ),
        }
    }

    fn may_watch(&self, wish: &Wish) -> bool {
        (self.around.drivers)().contains(wish.driver())
    }

    fn request(&self, wish: &Wish, has_baseline: bool) -> LeaseWindowRequest {
        let mut request = LeaseWindowRequest {
            host: self.around.host.clone(),
            run_id: self.around.run_id.clone(),
            kernel_release: self.windows.release(),
            driver: wish.driver().clone(),
            has_baseline,
            ..LeaseWindowRequest::default()
        };
        match wish {
            Wish::Record { verbs, .. } => {
                request.set_purpose(WindowPurpose::Record);
                request.verbs.clone_from(verbs);
            }
            Wish::Capture(failing) => {
                request.set_purpose(WindowPurpose::Capture);
                request.verbs = vec![failing.verb.clone()];
                request.set_verb(failing.number);
                request.chain.clone_from(&failing.chain);
            }
        }
        request
    }

    async fn dial(&self) -> Result<BaselineServiceClient<Channel>, String> {
        let channel = timeout(ANSWER_WITHIN, self.around.collector.dial()).await;
        let channel = channel
            .map_err(|_| "no connection in time".to_owned())?
            .map_err(|error| error.to_string())?;
        Ok(BaselineServiceClient::new(channel).max_decoding_message_size(2 * BASELINE_MAX_BYTES))
    }

    /// Told once, however long it lasts.
    fn away(&mut self, why: &str, again: Duration) -> Answer {
        if !std::mem::replace(&mut self.is_away, true) {
            tracing::info!(
                why,
                "the collector was not asked for a window; tried again later"
            );
        }
        Answer::Quiet(again)
    }

    /// Opens the window, and hands in what comes of it.
    async fn use_lease(&mut self, wish: &Wish, own: Option<Tree>, lease: WindowLease) -> Answer {
        let (lease_id, of_host) = (lease.lease_id.clone(), lease.baseline_host.clone());
        let (host, recorded_at) = match (&own, &lease.baseline) {
            (Some(tree), _) => (self.around.host.clone(), Some(contract::recorded_at(tree))),
            (None, Some(told)) => (of_host, told.recorded_at),
            (None, None) => (String::new(), None),
        };
        let result = match self.asked(wish, own, lease) {
            Err(why) => Err(why),
            Ok(ask) => match self.windows.open(ask) {
                Err(error) => Err(error),
                Ok(words) => outcome(words, wish).await,
            },
        };
        let mut handed_in = FinishWindowRequest {
            host: self.around.host.clone(),
            lease_id,
            ..FinishWindowRequest::default()
        };
        let answer = match result {
            Ok(Came::Recorded(trees)) => {
                let baselines = trees.iter().map(|tree| contract::baseline(tree, true));
                handed_in.baselines = baselines.filter(is_small).collect();
                if handed_in.baselines.is_empty() {
                    handed_in.failure = "the baseline is too large to be handed in".to_owned();
                }
                Answer::Done
            }
            Ok(Came::Captured(parted)) => {
                handed_in.fork = Some(contract::fork(&parted));
                handed_in.baseline_host = host;
                handed_in.baseline_recorded_at = recorded_at;
                Answer::Done
            }
            Err(error) => {
                let text = error.to_string();
                let plain = text.chars().filter(|c| !c.is_control());
                handed_in.failure = plain.take(FAILURE_MAX_CHARS).collect();
                match error {
                    WindowError::Busy { .. } => Answer::Later(BUSY),
                    _ => Answer::Nothing,
                }
            }
        };
        tracing::info!(
            ?answer,
            failure = handed_in.failure,
            "automatic window ended"
        );
        self.hand_in(handed_in).await;
        answer
    }

    /// The window of a lease.
    fn asked(
        &self,
        wish: &Wish,
        own: Option<Tree>,
        lease: WindowLease,
    ) -> Result<Ask, WindowError> {
        if !self.may_watch(wish) {
            return Err(WindowError::Closed("its driver went, or is let go"));
        }
        let purpose = match wish {
            Wish::Record { .. } => Purpose::Record,
            Wish::Capture(_) => Purpose::Diff,
        };
        let beside = match (purpose, own, lease.baseline) {
            (Purpose::Record, ..) => Vec::new(),
            (Purpose::Diff, Some(tree), _) => vec![tree],
            (Purpose::Diff, None, Some(told)) => {
                let tree = contract::tree(told).map_err(|error| {
                    WindowError::Asked(format!("the collector's baseline is none: {error}"))
                })?;
                vec![tree]
            }
            (Purpose::Diff, None, None) => {
                return Err(WindowError::Asked(
                    "the collector gave no baseline".to_owned(),
                ));
            }
        };
        Ok(Ask {
            purpose,
            verbs: lease.verbs,
            driver: Some(wish.driver().clone()),
            seconds: lease.seconds.clamp(1, LONGEST_SECONDS),
            beside,
        })
    }

    /// A collector that restarts meanwhile gets it all the same.
    async fn hand_in(&self, result: FinishWindowRequest) {
        let mut why = String::new();
        for left in (0..HAND_IN_TIMES).rev() {
            match self.hand_in_once(result.clone()).await {
                Ok(()) => return,
                Err(status) => {
                    status.message().clone_into(&mut why);
                    // What it refuses it refuses again.
                    let is_final = matches!(
                        status.code(),
                        Code::InvalidArgument | Code::NotFound | Code::Unimplemented
                    );
                    if is_final || left == 0 {
                        break;
                    }
                }
            }
            tokio::select! {
                () = self.around.ending.requested() => break,
                () = sleep(HAND_IN_EVERY) => {}
            }
        }
        tracing::warn!(why, "what came of a window was not handed in");
    }

    async fn hand_in_once(&self, result: FinishWindowRequest) -> Result<(), Status> {
        let mut client = self.dial().await.map_err(Status::unavailable)?;
        timeout(ANSWER_WITHIN, client.finish_window(result))
            .await
            .map_err(|_| Status::deadline_exceeded("no answer in time"))?
            .map(drop)
    }
}

fn is_small(baseline: &wire::Baseline) -> bool {
    prost::Message::encoded_len(baseline) <= BASELINE_MAX_BYTES
}

fn refused(refusal: &LeaseRefusal) -> Answer {
    let after = Duration::from_secs(refusal.again_after_seconds.max(1).into());
    match refusal.reason() {
        LeaseRefusalReason::Off
        | LeaseRefusalReason::FleetBusy
        | LeaseRefusalReason::HostBusy
        | LeaseRefusalReason::Unspecified => Answer::Quiet(after),
        LeaseRefusalReason::NoBaseline => Answer::NoBaseline(after),
        LeaseRefusalReason::Recorded
        | LeaseRefusalReason::Captured
        | LeaseRefusalReason::NotSeen => Answer::Later(after),
    }
}

/// Listens until the window has ended: with its time, or with the call that was waited for.
/// When it returns nothing of the window is left in the kernel.
async fn outcome(mut words: Words, wish: &Wish) -> Result<Came, WindowError> {
    let (mut trees, mut captured, mut failed) = (Vec::new(), None, None);
    while let Some(word) = words.recv().await {
        match word {
            Ok(Told::Recorded(tree)) => trees.push(tree),
            Ok(Told::Parted(parted)) if captured.is_none() && is_it(wish, &parted) => {
                captured = Some(parted);
                // Closes the window; what it still has to say is not needed.
                words.close();
            }
            Ok(Told::Parted(_) | Told::Progress(_)) => {}
            Err(error) => failed = Some(error),
        }
    }
    match (captured, failed) {
        (Some(parted), _) => Ok(Came::Captured(parted)),
        (None, Some(error)) => Err(error),
        (None, None) if trees.is_empty() => Err(WindowError::Asked(
            "no such call came within the window".to_owned(),
        )),
        (None, None) => Ok(Came::Recorded(trees)),
    }
}

fn is_it(wish: &Wish, parted: &Parted) -> bool {
    let Wish::Capture(Failing { chain, verb, .. }) = wish else {
        return false;
    };
    let chain: Vec<(&str, u32)> = chain
        .iter()
        .map(|step| (step.function.as_str(), step.errno))
        .collect();
    parted.verb == *verb && shows(&parted.trace, &parted.names, &chain)
}
