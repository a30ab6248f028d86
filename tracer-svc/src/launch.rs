//! From a configuration to a running tracer, and to the two commands that only
//! look.

use std::convert::Infallible;
use std::io::{self, Write};
use std::path::Path;

use rdmesh_proto::common::v1::AgentKind;
use rdmesh_proto::tracer::v1::tracer_service_server::TracerServiceServer;
use rdmesh_proto::tracer::v1::watch_failures_response::Event;
use rdmesh_proto::tracer::v1::{ObservedFailure, Probe, ProbeReport, ProbeState};
use rdmesh_services::config::ConfigError;
use rdmesh_services::host::{HostError, boot_id, clock_pair, host_name};
use rdmesh_services::limited;
use rdmesh_services::server::{self, ListenAddress, Listener, Server, ServerError};
use rdmesh_services::shutdown::{Closing, Signals, channel};
use rdmesh_services::telemetry::{Resource, TelemetryError};
use rdmesh_services::tls::{Tls, TlsError};
use rdmesh_services::uplink::{self, CollectorDialer, Identity, Item, Spool, SpoolError, Uplink};

use crate::automatic::{Keeper, Offers, Pace, Surroundings, offers};
use crate::catalogue::{Catalogue, CatalogueError, ExpectedRules};
use crate::cli::Output;
use crate::config::{CostConfig, TracerConfig};
use crate::control::{self, ControlError};
use crate::cost::Statistics;
use crate::host::Roots;
use crate::inspect::{self, InspectError};
use crate::loader::price::{Peer, attach_one};
use crate::loader::{LoadError, Options, Tracer};
use crate::service::{
    Feed, Figures, Kernel, LiveKernel, Outputs, Pipeline, Settings, TracerGrpc, Uevents, Wish,
    failure_json, failure_line, orders, report_json, report_table, run,
};
use crate::signals::{Rules, RulesError};
use crate::window::{LiveField, Shelf, Windows};

/// Where the tracer keeps what outlives it.
const STATE_DIRECTORY: &str = "/var/lib/rdmesh/tracer";

/// For those who watch: they are there and see what it costs.
const UNLIMITED: CostConfig = CostConfig {
    statistics: Statistics::Never,
    budget_percent: 0,
    budget_seconds: 60,
};

/// Why the tracer does not run.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// Wrong usage.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The kernel or this process lacks something.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The machine has no name.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The service cannot be served.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Logs or metrics cannot be set up.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    /// The embedded catalogue is broken.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// The embedded rules of co-signals are broken.
    #[error(transparent)]
    Signals(#[from] RulesError),
    /// The system refused something else.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        error: io::Error,
    },
    /// Whoever read standard output has gone, as `head` does: no failure.
    #[error("nobody reads standard output any more")]
    Unread,
    /// Another tracer has the spool.
    #[error(transparent)]
    Spool(#[from] SpoolError),
    /// Looking at the records failed.
    #[error(transparent)]
    Inspect(#[from] InspectError),
    /// The tracer of this host did not do what it was asked.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The tracing task ended by itself.
    #[error("tracing ended by itself ({0}); report this with the log before it")]
    Ended(String),
}

impl LaunchError {
    /// The exit code; see [`crate::cli::EXIT_CODES`].
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_)
            | Self::Telemetry(_)
            | Self::Tls(_)
            | Self::Host(HostError::Name { .. }) => 2,
            Self::Load(error) | Self::Inspect(InspectError::Load(error)) => error.exit_code(),
            Self::Unread => 0,
            _ => 1,
        }
    }
}

/// Who this run is.
///
/// # Errors
/// The host has no usable name, or no /proc.
pub fn identity(config: &TracerConfig) -> Result<Identity, LaunchError> {
    let mut identity = Identity::new(AgentKind::Tracer, host_name(&config.host)?, boot_id()?);
    identity.address = match (&config.server.listen, config.advertise.as_str()) {
        // A loopback address is of no use to another machine.
        (ListenAddress::Tcp(address), "") if !address.ip().is_loopback() => {
            format!("{}:{}", identity.host, address.port())
        }
        (_, advertise) => advertise.to_owned(),
    };
    Ok(identity)
}

/// For the bench: puts one program on one function, says so, and holds it until a
/// signal ends the process.
///
/// # Errors
/// The kernel refused, or the function is not there.
pub fn hold_priced(function: &str, peer: Peer) -> Result<Infallible, LaunchError> {
    let system = |what| move |error| LaunchError::System { what, error };
    let (module, function) = function.split_once(':').ok_or_else(|| {
        let error = io::Error::other("want MODULE:FUNCTION");
        system("price")(error)
    })?;
    // Nothing is pinned: the kernel takes it off with the process.
    let _held = attach_one(module, function, peer)?;
    let mut out = io::stdout();
    writeln!(out, "attached")
        .and_then(|()| out.flush())
        .map_err(system("price"))?;
    loop {
        std::thread::park();
    }
}

/// Who this run is for metrics.
#[must_use]
pub fn resource(identity: &Identity) -> Resource {
    Resource {
        service: "rdmesh-tracer".to_owned(),
        instance: identity.run_id.clone(),
        host: identity.host.clone(),
    }
}

/// One thread for everything: the tracer must cost the host as little as it can.
///
/// # Errors
/// The system refuses an event queue.
pub fn runtime() -> Result<tokio::runtime::Runtime, LaunchError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // Only name look-ups need another thread, and not for long.
        .max_blocking_threads(1)
        .thread_keep_alive(std::time::Duration::from_secs(1))
        .thread_stack_size(256 << 10)
        .build()
        .map_err(|error| LaunchError::System {
            what: "cannot start the event loop",
            error,
        })
}

/// Hears the signals that ask for an end from now on: one that comes while probes are put on
/// is answered when they are on, and nothing is left half done.
///
/// # Errors
/// The system refuses a handler.
pub fn signals(runtime: &tokio::runtime::Runtime) -> Result<Signals, LaunchError> {
    let _inside = runtime.enter();
    Signals::install().map_err(|error| LaunchError::System {
        what: "cannot listen for signals",
        error,
    })
}

/// Attaches the probes of the built-in catalogue. Blocks for up to seconds.
///
/// # Errors
/// [`LoadError`] says what is missing and what to do.
pub fn attach(options: &Options) -> Result<LiveKernel, LaunchError> {
    Ok(LiveKernel::new(Tracer::start(
        Catalogue::built_in()?,
        options,
    )?))
}

/// What the pipeline needs, on this host.
///
/// # Errors
/// The embedded rules are broken.
pub fn settings(cost: CostConfig) -> Result<Settings, LaunchError> {
    let figures = Figures::new(&rustix::system::uname().release().to_string_lossy());
    Ok(Settings {
        roots: Roots::default(),
        clock: Box::new(clock_pair),
        rules: ExpectedRules::built_in()?,
        signal_rules: Rules::built_in()?,
        feed: Feed::default(),
        offers: Offers::default(),
        figures,
        cost,
        process_ns: Box::new(process_ns),
    })
}

/// CPU time of this process: all threads, in and out of the kernel.
fn process_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(nanoseconds)
}

/// Serves and reports until a signal, then sends what is left.
///
/// # Errors
/// The service cannot be served, or tracing ended by itself.
pub async fn serve<K: Kernel + 'static>(
    config: TracerConfig,
    identity: Identity,
    tls: Tls,
    listener: Listener,
    kernel: K,
    mut signals: Signals,
) -> Result<(), LaunchError> {
    let spool = Spool::open(&config.uplink.spool, Path::new(STATE_DIRECTORY))?;
    let mut settings = settings(config.cost.clone())?;
    settings
        .figures
        .register(&opentelemetry::global::meter("rdmesh.tracer"));
    tls.keep_fresh();
    let mut server = Server::new();
    server
        .limit(config.server.limits())
        .speaks_for(&identity.host);
    let (orders_in, orders_out) = orders();
    let shelf = Shelf::at(&config.baseline.directory);
    let windows = Windows::new(LiveField, shelf, server.ending());
    if config.baseline.automatic {
        let figures = settings.figures.clone();
        settings.offers = automatic(
            (&config, &tls),
            &identity,
            &windows,
            figures,
            server.ending(),
        );
    }
    let around = uplink::Surroundings {
        spool,
        ..uplink::Surroundings::over(&config.uplink, &tls)
    };
    let uplink = Uplink::start_in(around, &config.uplink, move || identity.hello());
    let service = TracerGrpc::new(
        settings.figures.clone(),
        settings.feed.clone(),
        orders_in,
        windows,
        server.ending(),
    );
    server.add(limited!(TracerServiceServer::new(service)));
    let uevents = Uevents::open()
        .inspect_err(|error| tracing::warn!(%error, "the kernel's messages cannot be heard; modules are found by the slow scan"))
        .ok();
    let (stop, closing) = channel();
    let pipeline = Pipeline::start(kernel, uplink.handle(), settings);
    let mut tracing_task = tokio::spawn(run(
        pipeline,
        config.interval(),
        uevents,
        Some(orders_out),
        closing,
    ));
    let mut ended = None;
    let end = async {
        tokio::select! {
            signal = signals.received() => tracing::debug!(%signal, "ending"),
            over = &mut tracing_task => ended = Some(over),
        }
    };
    let budget = server.serve(listener, end, config.server.grace()).await?;
    if let Some(over) = ended {
        let why = over.map_or_else(|error| error.to_string(), |()| "no reason".to_owned());
        return Err(LaunchError::Ended(why));
    }
    stop.fire();
    budget.step("last snapshot", tracing_task).await;
    uplink.drain(budget.left()).await;
    Ok(())
}

/// Starts automatic mode beside the tracing; it ends by `ending`.
fn automatic(
    (config, tls): (&TracerConfig, &Tls),
    identity: &Identity,
    windows: &Windows,
    figures: Figures,
    ending: Closing,
) -> Offers {
    let (offers, sightings) = offers();
    let around = Surroundings {
        host: identity.host.clone(),
        run_id: identity.run_id.clone(),
        collector: Box::new(
            CollectorDialer::new(config.uplink.collector.clone()).secured(tls.clone()),
        ),
        drivers: Box::new(move || watchable(figures.probe_report())),
        ending,
        pace: Pace::of_host(&identity.host),
    };
    tokio::spawn(Keeper::new(around, windows.clone(), sightings).run());
    offers
}

/// Drivers with a device; none while probes are off on request or for their cost: a window
/// would keep a module that is to go, and cost more.
fn watchable(report: ProbeReport) -> Vec<String> {
    let is_off = |probe: &Probe| probe.state() == ProbeState::Detached;
    match report.probes.iter().any(is_off) {
        true => Vec::new(),
        false => report.drivers,
    }
}

/// Has the tracer that runs on this host do something, and prints what it did.
///
/// # Errors
/// No tracer answers, it refuses, or standard output is closed.
pub async fn order(config: &TracerConfig, wish: Wish) -> Result<(), LaunchError> {
    let tls = Tls::open(&config.tls)?;
    print(&control::order(&config.server.listen, &tls, wish).await?)
}

/// Binds the tracer's own service.
///
/// # Errors
/// The address is taken or not allowed.
pub async fn bind(config: &TracerConfig, tls: &Tls) -> Result<Listener, LaunchError> {
    Ok(server::bind_with(&config.server, tls).await?)
}

/// Prints which probes serve on the running kernel.
///
/// # Errors
/// Standard output is closed.
pub fn print_probes<K: Kernel>(kernel: K, output: Output) -> Result<(), LaunchError> {
    let settings = settings(CostConfig::default())?;
    let figures = settings.figures.clone();
    drop(Pipeline::start(kernel, Nowhere, settings));
    let report = figures.probe_report();
    print(&match output {
        Output::Text => report_table(&report),
        Output::Json => format!("{:#}\n", report_json(&report)),
    })
}

/// Prints each failure until a signal.
///
/// # Errors
/// Standard output is closed, or tracing ended by itself.
pub async fn watch<K: Kernel + 'static>(
    kernel: K,
    output: Output,
    expected: bool,
    mut signals: Signals,
) -> Result<(), LaunchError> {
    let settings = settings(UNLIMITED)?;
    let figures = settings.figures.clone();
    let feed = settings.feed.clone();
    let mut failures = feed
        .subscribe(expected)
        .map_err(|full| LaunchError::Ended(full.to_string()))?;
    let (stop, closing) = channel();
    let pipeline = Pipeline::start(kernel, Nowhere, settings);
    let report = figures.probe_report();
    eprintln!(
        "(watching; {} of {} logical hooks are served, see tracer-svc probes)",
        report.logical_attached, report.logical_total
    );
    let interval = std::time::Duration::from_secs(1);
    let tracing_task = tokio::spawn(run(pipeline, interval, Uevents::open().ok(), None, closing));
    loop {
        let response = tokio::select! {
            _ = signals.received() => break,
            response = failures.next() => response,
        };
        match response.and_then(|r| r.event) {
            Some(Event::Failure(failure)) => print(&line(&failure, output))?,
            Some(Event::Missed(missed)) => {
                eprintln!("({missed} failures came faster than they are printed)")
            }
            None => break,
        }
    }
    stop.fire();
    tracing_task
        .await
        .map_err(|error| LaunchError::Ended(error.to_string()))?;
    if output == Output::Text {
        eprint!("{}", totals(&figures.probe_report()));
    }
    Ok(())
}

/// The exact counts of the run, for functions that failed.
fn totals(report: &ProbeReport) -> String {
    let failed = report
        .probes
        .iter()
        .filter(|p| p.failures > 0 || p.unseen > 0);
    let line = |p: &Probe| {
        let unseen = match p.unseen {
            0 => String::new(),
            unseen => format!(", {unseen} calls unseen (the kernel preempted the probe)"),
        };
        format!(
            "{}: {} failures, {} records dropped{unseen}\n",
            p.function, p.failures, p.drops
        )
    };
    failed.map(line).collect()
}

/// Prints each record until a signal, then the counters.
///
/// # Errors
/// The kernel refused, or standard output is closed.
pub async fn watch_records(options: &Options, mut signals: Signals) -> Result<(), LaunchError> {
    let until = async move {
        signals.received().await;
    };
    Ok(inspect::watch(&mut io::stdout(), options, until).await?)
}

fn line(failure: &ObservedFailure, output: Output) -> String {
    match output {
        Output::Text => format!("{}\n", failure_line(failure)),
        Output::Json => format!("{}\n", failure_json(failure)),
    }
}

/// Prints for whoever reads standard output.
///
/// # Errors
/// [`LaunchError::Unread`] when nobody does any more; a full disk.
pub fn print(text: &str) -> Result<(), LaunchError> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => LaunchError::Unread,
            _ => LaunchError::System {
                what: "cannot write to standard output",
                error,
            },
        })
}

/// For commands that only look: nothing leaves the host.
struct Nowhere;

impl Outputs for Nowhere {
    fn push(&mut self, _item: Item) {}

    fn given_up(&self) -> u64 {
        0
    }
}
