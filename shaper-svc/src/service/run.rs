//! The sequence from a running data path to the end of the service.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rdmesh_proto::shaper::v1::WireWindow;
use rdmesh_proto::shaper::v1::shaper_service_server::ShaperServiceServer;
use rdmesh_services::limited;
use rdmesh_services::server::{Limits, Listener, Server, ServerError};
use rdmesh_services::shutdown::Closing;
use rdmesh_services::uplink::{Uplink, UplinkHandle};
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use super::grpc::Shaper;
use super::handle::DataPathHandle;
use super::shared::Shared;
use super::watch::{Seen, Watch};
use super::windows::{Labels, Moment, Reporter};
use crate::config::ShaperConfig;

/// How often windows, ends of changes and the poll loop are looked at. Below the
/// shortest interval of windows, so that none is taken late.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How often it is noted that windows are made: the start of an outage after a kill is
/// known that well.
const ALIVE_EVERY: Duration = Duration::from_secs(1);

/// Time for the last windows to reach the collector: a live one on the same site
/// acknowledges within tens of milliseconds, and until the next start no frame passes.
const LAST_WINDOWS: Duration = Duration::from_secs(1);

/// How far back a window tells of the time without a process. What was longer shows as a
/// gap too; readers who join windows with jobs look for their begin within a day.
const LONGEST_ABSENCE_WINDOW: Duration = Duration::from_secs(12 * 3600);

/// Name of the service in the health service.
const SERVICE: &str = "rdmesh.shaper.v1.ShaperService";

/// How the service runs.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// Length of a reporting interval.
    pub window: Duration,
    /// How long the poll loop may stand still before the service gives up.
    pub give_up_after: Option<Duration>,
    /// Time for the end.
    pub grace: Duration,
    /// What one identity may take of the service.
    pub limits: Limits,
}

impl RunOptions {
    /// What a configuration says.
    #[must_use]
    pub fn of(config: &ShaperConfig) -> Self {
        let give_up_after = match config.stalled_exit_seconds {
            0 => None,
            seconds => Some(Duration::from_secs(seconds)),
        };
        Self {
            window: config.window(),
            give_up_after,
            grace: config.server.grace(),
            limits: config.server.limits(),
        }
    }
}

/// Why the service ended other than by request.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The server failed.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The poll loop hangs, and nothing but a new process helps.
    #[error(
        "the poll loop has stood still for {0:?}: a driver hangs; the service ends to be started \
         anew"
    )]
    Stalled(Duration),
    /// A port that had gone can be used again, by a new process.
    #[error("port {0} is back; the service ends to be started anew")]
    PortIsBack(String),
}

/// Serves until `end`, then stops the data path and hands its last windows over.
///
/// # Errors
/// [`RunError`].
pub async fn serve<D>(
    shared: Arc<Shared>,
    mut path: DataPathHandle,
    labels: Vec<Labels>,
    uplink: Uplink,
    listener: Listener,
    options: RunOptions,
    end: impl Future<Output = D>,
) -> Result<(), RunError> {
    let mut server = Server::new();
    server.limit(options.limits).speaks_for(shared.name());
    let ending = server.ending();
    server.add(limited!(ShaperServiceServer::new(Shaper::new(
        Arc::clone(&shared),
        ending.clone()
    ))));
    let health = server.health();
    shared
        .figures()
        .register(&opentelemetry::global::meter("rdmesh.shaper"));
    let mut windows = Windows::new(Arc::clone(&shared), &path, labels, uplink.handle(), options);
    let away_since = shared.ledger().away_since();
    if let Some(since) = away_since {
        windows.report_absence(&path, since, SystemTime::now());
    }

    let ended = {
        let looking = windows.look_until(&path, health, ending);
        let mut looking = std::pin::pin!(looking);
        let serving = server.serve(listener, end, options.grace);
        let mut serving = std::pin::pin!(serving);
        tokio::select! {
            // The server ends the streams, and `looking` with them.
            served = &mut serving => Ok(served?),
            useless = &mut looking => match useless {
                Some(useless) => Err(useless),
                None => Ok(serving.await?),
            },
        }
    };
    let budget = match ended {
        Ok(budget) => budget,
        Err(useless) => {
            // Within the outage that is noted already.
            note_stop(&shared, &useless.to_string());
            windows.note_alive(SystemTime::now());
            path.abandon();
            return Err(useless);
        }
    };
    note_stop(&shared, "the service was stopped");
    let wires = path.links.len();
    (0..wires).for_each(|wire| shared.bypass_in_hardware(wire, true));
    windows.collect(&path, SystemTime::now());
    let stopped = budget.step(
        "stop the data path",
        tokio::task::spawn_blocking(move || {
            path.stop();
            path
        }),
    );
    if let Some(Ok(path)) = stopped.await {
        let now = SystemTime::now();
        windows.collect(&path, now);
        // Until then frames passed, and windows tell of them.
        if let Err(error) = shared.ledger().outage_moved(now) {
            tracing::error!(%error, "the stop is remembered a little too early");
        }
    }
    let drained = uplink.drain(budget.left().min(LAST_WINDOWS)).await;
    if !drained.is_complete() {
        tracing::warn!(?drained, "the collector did not take the last windows");
    }
    Ok(())
}

fn note_stop(shared: &Shared, cause: &str) {
    if let Err(error) = shared.ledger().outage_began(SystemTime::now(), cause) {
        tracing::error!(%error, "the stop is not remembered");
    }
}

/// Takes windows from the poll loop and looks after everything that has a time.
struct Windows {
    shared: Arc<Shared>,
    reporters: Vec<Reporter>,
    uplink: UplinkHandle,
    options: RunOptions,
    watch: Watch,
    was_down: Vec<bool>,
    /// Ports without a link at the last look.
    without_link: Vec<usize>,
    alive_at: Option<Instant>,
    is_noted: bool,
}

impl Windows {
    fn new(
        shared: Arc<Shared>,
        path: &DataPathHandle,
        labels: Vec<Labels>,
        uplink: UplinkHandle,
        options: RunOptions,
    ) -> Self {
        let states = path.ports.states();
        let now = SystemTime::now();
        let reporters = labels.into_iter().zip(&path.in_ports);
        let reporters: Vec<_> = reporters
            .map(|(labels, &port)| Reporter::new(labels, &states[port], now))
            .collect();
        Self {
            was_down: vec![false; reporters.len()],
            without_link: Vec::new(),
            shared,
            reporters,
            uplink,
            options,
            watch: Watch::new(Instant::now(), options.give_up_after),
            alive_at: None,
            is_noted: true,
        }
    }

    /// Looks until the end is asked for (`None`), or nothing but a new process helps.
    async fn look_until(
        &mut self,
        path: &DataPathHandle,
        health: HealthReporter,
        ending: Closing,
    ) -> Option<RunError> {
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = ending.requested() => return None,
                _ = ticks.tick() => {}
            }
            let now = SystemTime::now();
            match self.look(path, now) {
                Seen::Nothing => {}
                Seen::Down(_) => {
                    health
                        .set_service_status(SERVICE, ServingStatus::NotServing)
                        .await;
                }
                Seen::Up => {
                    health
                        .set_service_status(SERVICE, ServingStatus::Serving)
                        .await
                }
                Seen::GiveUp(still) => return Some(RunError::Stalled(still)),
                Seen::Back(port) => return Some(RunError::PortIsBack(port)),
            }
            self.look_at_links(path);
            self.collect(path, now);
            self.expire(now);
            self.note_alive(now);
        }
    }

    fn look(&mut self, path: &DataPathHandle, now: SystemTime) -> Seen {
        let thread = &path.thread;
        let gone = path.ports.gone();
        let seen = self.watch.look(
            thread.turns(),
            thread.fault(),
            gone.as_ref(),
            Instant::now(),
        );
        self.shared.figures().set_down(self.watch.is_down());
        let noted = match &seen {
            Seen::Down(cause) => {
                tracing::error!(cause, "the data path is down");
                self.was_down.fill(true);
                // A device that can carries the frames from here on.
                let wires = self.reporters.len();
                (0..wires).for_each(|wire| self.shared.bypass_in_hardware(wire, true));
                self.shared.ledger().outage_began(now, cause)
            }
            Seen::Up => {
                tracing::info!("the data path runs again");
                for wire in 0..self.reporters.len() {
                    let asked = self.shared.ledger().wires()[wire].bypass;
                    self.shared.bypass_in_hardware(wire, asked);
                }
                self.shared.ledger().outage_ended(now)
            }
            Seen::Nothing | Seen::GiveUp(_) | Seen::Back(_) => Ok(()),
        };
        if let Err(error) = noted {
            tracing::error!(%error, "an outage is not remembered");
        }
        seen
    }

    /// A port without a link takes frames as long as its ring has room, and they leave in a
    /// burst when the link is there again: what a window says of that time is not what the
    /// wire carried.
    fn look_at_links(&mut self, path: &DataPathHandle) {
        let without = path.ports.without_link();
        if without != self.without_link {
            let states = path.ports.states();
            let names = |ports: &[usize]| -> Vec<String> {
                ports
                    .iter()
                    .map(|&port| states[port].name.clone())
                    .collect()
            };
            if without.is_empty() {
                tracing::info!(ports = ?names(&self.without_link), "the links are up again");
            } else {
                tracing::error!(ports = ?names(&without), "no link; windows are marked");
            }
        }
        for wire in 0..self.reporters.len() {
            let ports = [path.in_ports[wire], path.out_ports[wire]];
            self.was_down[wire] |= ports.iter().any(|port| without.contains(port));
        }
        self.without_link = without;
    }

    /// Takes what the poll loop has closed; a wire that does not report gets windows
    /// that say so.
    fn collect(&mut self, path: &DataPathHandle, now: SystemTime) {
        let mut states = None;
        for wire in 0..self.reporters.len() {
            while let Some(counts) = path.links[wire].take_window() {
                let port = &states.get_or_insert_with(|| path.ports.states())[path.in_ports[wire]];
                let at = self.moment(wire, path, now);
                let window = self.reporters[wire].window(&counts, port, at);
                self.report(wire, window);
            }
            let silent_for = now.duration_since(self.reporters[wire].reported_to());
            let silent = silent_for.unwrap_or_default() > 2 * self.options.window;
            if silent && self.watch.is_down() {
                let port = &states.get_or_insert_with(|| path.ports.states())[path.in_ports[wire]];
                let at = self.moment(wire, path, now);
                let window = self.reporters[wire].silent(port, at);
                self.report(wire, window);
            }
        }
    }

    fn moment(&mut self, wire: usize, path: &DataPathHandle, now: SystemTime) -> Moment {
        Moment {
            now,
            now_ps: path.clock.now_ps(),
            was_down: std::mem::replace(&mut self.was_down[wire], self.watch.is_down()),
            // Nothing but windows goes up from here.
            given_up: self.uplink.status().items_given_up,
        }
    }

    /// A window of each wire for the time before this process, in which no frame passed.
    fn report_absence(&mut self, path: &DataPathHandle, since: SystemTime, now: SystemTime) {
        let states = path.ports.states();
        let since = since.max(now - LONGEST_ABSENCE_WINDOW).min(now);
        for wire in 0..self.reporters.len() {
            let at = self.moment(wire, path, now);
            let port = &states[path.in_ports[wire]];
            let window = self.reporters[wire].absent(since, port, at);
            self.report(wire, window);
        }
    }

    fn report(&mut self, wire: usize, mut window: WireWindow) {
        self.shared.describe(wire, &mut window);
        self.shared.publish(wire, &window);
        if let Err(error) = self.uplink.push(window) {
            tracing::error!(%error, "a window is not reported");
        }
        // So that no later process tells of this time again.
        self.alive_at = None;
    }

    fn expire(&self, now: SystemTime) {
        let (ended, kept) = self.shared.ledger().expire(now);
        if !ended.is_empty() {
            tracing::info!(wires = ?ended, "back at the configured rate");
        }
        if let Err(error) = kept {
            tracing::error!(%error, "the end of a change is not remembered");
        }
    }

    fn note_alive(&mut self, now: SystemTime) {
        if self.alive_at.is_some_and(|at| at.elapsed() < ALIVE_EVERY) {
            return;
        }
        self.alive_at = Some(Instant::now());
        let (noted, fault) = {
            let mut ledger = self.shared.ledger();
            (ledger.note_alive(now), ledger.fault())
        };
        self.shared.figures().set_state_fault(fault.is_some());
        // Once: it is tried every second.
        if let Err(error) = &noted
            && self.is_noted
        {
            tracing::error!(%error, "it is not noted that windows are made");
        }
        self.is_noted = noted.is_ok();
    }
}
