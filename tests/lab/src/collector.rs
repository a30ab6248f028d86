//! A collector of the lab's own: a free port of loopback, a configuration file made
//! for it, a database of the private cluster.

use crate::children::{self, Child};
use crate::{programs, until};
use anyhow::{Context, Result, bail};
use rdmesh_client::{Client, CollectorAddress};
use rustix::process::Signal;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

/// Migrations of an empty database take a second or two on a loaded machine.
const SERVING_LIMIT: Duration = Duration::from_secs(60);

/// Lines of the log that go into an error.
const TAIL_LINES: usize = 20;

/// A running collector. It is stopped on drop.
#[derive(Debug)]
pub struct Collector {
    child: Mutex<Child>,
    port: u16,
    log: PathBuf,
}

impl Collector {
    /// Starts it and waits until its health is SERVING.
    pub async fn start(directory: &Path, database_url: &str) -> Result<Self> {
        Self::start_at(directory, database_url, free_port()?).await
    }

    /// Starts it at a given port; for a restart in the same place.
    pub async fn start_at(directory: &Path, database_url: &str, port: u16) -> Result<Self> {
        let program = programs::find("collector-svc")?;
        let config = directory.join("collector.toml");
        // Automatic mode, for hosts whose tracer asks for it.
        let text = format!(
            "[server]\nlisten = \"127.0.0.1:{port}\"\n\n[database]\nurl = \"{database_url}\"\n\n\
             [baseline]\nhosts_at_once = 1\nwindow_seconds = 20\n"
        );
        fs::write(&config, text)?;
        let log = directory.join("collector.log");
        let file = File::options().create(true).append(true).open(&log)?;
        let child = children::spawn(program, Signal::TERM, None, |command| {
            command.arg("--config").arg(&config);
            if let Ok(errors) = file.try_clone() {
                command.stdout(file).stderr(errors);
            }
        })?;
        let collector = Self {
            child: Mutex::new(child),
            port,
            log,
        };
        let serving = until::holds("collector-svc SERVING", SERVING_LIMIT, || {
            collector.serves()
        });
        serving.await.with_context(|| collector.log_tail())?;
        Ok(collector)
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Its port on this machine.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A client of it.
    pub async fn client(&self) -> Result<Client> {
        let address: CollectorAddress = self.address().parse()?;
        Ok(Client::connect(address).await?)
    }

    /// The last lines of its log, for an error.
    pub fn log_tail(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let from = lines.len().saturating_sub(TAIL_LINES);
        format!("collector-svc says:\n{}", lines[from..].join("\n"))
    }

    /// Stops it as its operator would, and waits for its end.
    pub fn stop(self) {
        self.child
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .stop();
    }

    async fn serves(&self) -> Result<bool> {
        let status = self
            .child
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .try_wait()?;
        if let Some(status) = status {
            bail!("collector-svc ended: {status}");
        }
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address()))?;
        let Ok(channel) = endpoint.connect().await else {
            return Ok(false);
        };
        let answer = HealthClient::new(channel)
            .check(HealthCheckRequest::default())
            .await;
        Ok(answer.is_ok_and(|answer| answer.get_ref().status() == ServingStatus::Serving))
    }
}

fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("no free port")?;
    Ok(listener.local_addr()?.port())
}
