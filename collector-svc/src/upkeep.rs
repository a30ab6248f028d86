//! What runs beside the calls: migration once Postgres is there, health, partitions,
//! retention.

use std::sync::Arc;
use std::time::Duration;

use rdmesh_services::shutdown::Closing;
use rdmesh_store::jobs::AttemptKey;
use rdmesh_store::{Keep, ReaderRole, Store, StoreError};
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::site::Site;
use crate::{attempt, query};

/// How often Postgres is asked whether it answers. A load balancer learns of an outage
/// within this and its own period.
pub const PING_EVERY: Duration = Duration::from_secs(2);

/// How often partitions are made ahead and old ones dropped. They are made two weeks
/// ahead, so that a day's failures of this task do no harm.
pub const TIDY_EVERY: Duration = Duration::from_secs(3600);

/// How long after the end of an attempt it is diagnosed for `rdmesh.diagnoses`: its
/// hosts' last snapshots come within one interval of five seconds.
pub const DIAGNOSE_AFTER: Duration = Duration::from_secs(8);

/// Attempts that ended longer ago are diagnosed when somebody asks.
const DIAGNOSE_BACK: Duration = Duration::from_secs(24 * 3600);

/// Attempts diagnosed in one round: after an outage of the fleet the rest follow in the
/// next rounds.
const DIAGNOSE_AT_ONCE: u32 = 20;

/// What the upkeep works with.
#[derive(Debug)]
pub struct Upkeep {
    /// Where.
    pub store: Store,
    /// Where health is said.
    pub health: HealthReporter,
    /// Names of the services that need the store.
    pub services: Vec<&'static str>,
    /// How long rows are kept.
    pub keep: Keep,
    /// What the site says for itself.
    pub site: Arc<Site>,
    /// Reads the clock.
    pub now: fn() -> OffsetDateTime,
    /// When to stop.
    pub ending: Closing,
    /// Says that the schema is there.
    pub ready: watch::Sender<bool>,
}

impl Upkeep {
    /// Runs until the end was asked for.
    ///
    /// # Errors
    /// What keeps the schema from being brought up to date for good: a server that is
    /// too old, missing rights, a newer schema.
    pub async fn run(self) -> Result<(), StoreError> {
        tokio::select! {
            () = self.ending.requested() => Ok(()),
            result = self.work() => result,
        }
    }

    async fn work(&self) -> Result<(), StoreError> {
        self.say(false).await;
        self.migrate().await?;
        self.ready.send_replace(true);
        let mut tidy_at = Instant::now();
        let mut away = false;
        loop {
            match self.store.ping().await {
                Ok(()) if away => {
                    tracing::info!("postgres answers again");
                    away = false;
                }
                Ok(()) => {}
                Err(error) => {
                    if !away {
                        tracing::error!(postgres = %self.store.target(), %error, "postgres does not answer; nothing is acknowledged meanwhile");
                    }
                    away = true;
                }
            }
            self.say(!away).await;
            self.site.refresh();
            if !away {
                self.diagnose().await;
            }
            if !away && Instant::now() >= tidy_at {
                self.tidy().await;
                tidy_at = Instant::now() + TIDY_EVERY;
            }
            sleep(PING_EVERY).await;
        }
    }

    /// Until it is done, or cannot be.
    async fn migrate(&self) -> Result<(), StoreError> {
        let mut told = false;
        loop {
            match self.store.migrate().await {
                Ok(ReaderRole::Ready) => {
                    tracing::info!("schema is up to date");
                    return Ok(());
                }
                Ok(ReaderRole::Missing { run }) => {
                    tracing::warn!(
                        %run,
                        "schema is up to date; the read-only role is missing and this role may \
                         not make it: let a superuser run the statement"
                    );
                    return Ok(());
                }
                Err(error) if error.is_retryable() => {
                    if !told {
                        tracing::error!(
                            postgres = %self.store.target(), %error,
                            "postgres does not answer; waiting for it"
                        );
                    }
                    told = true;
                    self.say(false).await;
                    sleep(PING_EVERY).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Says whether the store can be used.
    pub(crate) async fn say(&self, serving: bool) {
        let status = if serving {
            ServingStatus::Serving
        } else {
            ServingStatus::NotServing
        };
        for name in self.services.iter().copied().chain([""]) {
            self.health.set_service_status(name, status).await;
        }
    }

    /// Gives attempts that ended badly their verdict, so that SQL has it unasked.
    async fn diagnose(&self) {
        let now = (self.now)();
        let (since, until) = (now - DIAGNOSE_BACK, now - DIAGNOSE_AFTER);
        let ended = match self.store.undiagnosed(since, until, DIAGNOSE_AT_ONCE).await {
            Ok(ended) => ended,
            Err(error) => {
                tracing::warn!(%error, "attempts that ended were not looked up");
                return;
            }
        };
        for key in ended {
            if let Err(error) = self.diagnose_one(&key, now).await {
                tracing::warn!(attempt = %attempt::written(&key), %error, "attempt was not diagnosed");
            }
        }
    }

    async fn diagnose_one(&self, key: &AttemptKey, now: OffsetDateTime) -> Result<(), StoreError> {
        let Some(found) = self.store.attempt(key).await? else {
            return Ok(());
        };
        let diagnosed =
            query::diagnose_attempt(&self.store, &found, now, &self.site.routes()).await?;
        tracing::info!(
            attempt = %attempt::written(key), class = ?diagnosed.verdict.class,
            rule = diagnosed.verdict.rule, "attempt diagnosed"
        );
        Ok(())
    }

    async fn tidy(&self) {
        let now = (self.now)();
        if let Err(error) = self.store.create_partitions_ahead(now).await {
            tracing::warn!(%error, "partitions were not made ahead; tried again in an hour");
        }
        match self.store.retain(now, self.keep).await {
            Ok(retained) if retained.partitions.is_empty() => {}
            Ok(retained) => {
                tracing::info!(partitions = ?retained.partitions, rows = retained.rows, "old rows dropped");
            }
            Err(error) => {
                tracing::warn!(%error, "old rows were not dropped; tried again in an hour")
            }
        }
    }
}
