//! Connecting, migrating, and the store itself.

use std::collections::BTreeSet;
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection, PgConnection, PgPool};

use crate::ingest::KnownWords;
use crate::{ReaderRole, StoreError};

/// Multiranges came with 14, and 15 is the oldest that is tested.
const OLDEST_MAJOR: i32 = 15;

/// Longer than any query of the collector on a healthy store; a runaway one ends.
const STATEMENT_TIMEOUT: &str = "30s";

/// A migration may wait for another collector's and build an index.
const MIGRATION_TIMEOUT: &str = "30min";

/// A connection that was used so recently is taken without a ping. When Postgres restarts, reads
/// are made again for longer than that.
const USED_JUST_NOW: Duration = Duration::from_secs(1);

/// Of several collectors that start together one migrates. Any constant does.
const ADVISORY_LOCK: i64 = 0x7264_6d65_7368_0002;

/// How the store is reached.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// `postgres://…`, or `postgres:///DATABASE?host=/directory` for a Unix socket.
    pub url: String,
    /// Connections at most.
    pub connections: u32,
    /// How long a call waits for a connection.
    pub acquire_timeout: Duration,
}

impl StoreOptions {
    /// Reads the URL as [`Store::new`] does, without preparing anything.
    ///
    /// # Errors
    /// [`StoreError::Url`] when it cannot be read.
    pub fn check_url(&self) -> Result<(), StoreError> {
        parse(&self.url).map(|_| ())
    }
}

fn parse(url: &str) -> Result<PgConnectOptions, StoreError> {
    // The driver takes any scheme.
    if !["postgres://", "postgresql://"]
        .iter()
        .any(|s| url.starts_with(s))
    {
        return Err(StoreError::Url("the scheme is not postgres://".to_owned()));
    }
    PgConnectOptions::from_str(url).map_err(|e| StoreError::Url(e.to_string()))
}

/// The store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    pub(crate) pool: PgPool,
    /// How it is reached, for connections outside of the pool.
    connect: PgConnectOptions,
    /// How long such a connection may take.
    connect_timeout: Duration,
    /// Weeks whose partitions are known to be there (see [`crate::partitions`]).
    pub(crate) weeks: Arc<Mutex<BTreeSet<i32>>>,
    /// What is known to stand in the dictionaries.
    pub(crate) words: Arc<Mutex<KnownWords>>,
}

impl Store {
    /// Prepares a pool without connecting: the collector starts while Postgres is away.
    ///
    /// # Errors
    /// [`StoreError::Url`] when the URL cannot be read.
    pub fn new(options: &StoreOptions) -> Result<Self, StoreError> {
        let connect = parse(&options.url)?
            .application_name("rdmesh-collector")
            .options([
                ("statement_timeout", STATEMENT_TIMEOUT),
                ("timezone", "UTC"),
                // Compiling a query of the join takes seconds, running it milliseconds.
                ("jit", "off"),
                // Starting workers takes longer than most answers.
                ("max_parallel_workers_per_gather", "0"),
                ("search_path", "rdmesh_store"),
            ]);
        let pool = PgPoolOptions::new()
            .max_connections(options.connections)
            .acquire_timeout(options.acquire_timeout)
            // A ping before each query takes as long as most of them; one that has just been
            // used is there, and whoever asks tries again where it is not.
            .test_before_acquire(false)
            .before_acquire(|connection, of| {
                Box::pin(async move {
                    if of.idle_for > USED_JUST_NOW {
                        connection.ping().await?;
                    }
                    Ok(true)
                })
            })
            .connect_lazy_with(connect.clone());
        Ok(Self {
            pool,
            connect,
            connect_timeout: options.acquire_timeout,
            weeks: Arc::default(),
            words: Arc::default(),
        })
    }

    /// Checks the server's version and brings the schema up to date. Runs under an
    /// advisory lock: of several collectors that start together one migrates.
    ///
    /// # Errors
    /// When the server is too old, does not permit it, or holds a newer schema.
    pub async fn migrate(&self) -> Result<ReaderRole, StoreError> {
        // A connection of its own, closed at the end: a migration that fails would leave
        // its lock and its timeout with the session.
        let mut connection = self.connect().await?;
        let migrated = migrate(&mut connection).await;
        connection.close().await?;
        let reader = migrated.map_err(|error| self.naming_role(error))?;
        self.create_partitions_ahead(time::OffsetDateTime::now_utc())
            .await?;
        Ok(reader)
    }

    /// Says which role it is that may not do something.
    fn naming_role(&self, error: StoreError) -> StoreError {
        let told = |message| format!("role {}: {message}", self.connect.get_username());
        match error {
            StoreError::Permission(message) => StoreError::Permission(told(message)),
            StoreError::ReadOnly(message) => StoreError::ReadOnly(told(message)),
            other => other,
        }
    }

    /// A connection of its own. Where the pool only says that it waited in vain, this
    /// says why.
    async fn connect(&self) -> Result<PgConnection, StoreError> {
        let connecting = PgConnection::connect_with(&self.connect);
        match tokio::time::timeout(self.connect_timeout, connecting).await {
            Ok(connected) => Ok(connected?),
            Err(_) => Err(StoreError::Unavailable(format!(
                "no answer within {:?}",
                self.connect_timeout
            ))),
        }
    }

    /// Where Postgres is sought: server and database, without the password.
    #[must_use]
    pub fn target(&self) -> String {
        let server = match self.connect.get_socket() {
            Some(directory) => format!("{} port {}", directory.display(), self.connect.get_port()),
            None => format!("{}:{}", self.connect.get_host(), self.connect.get_port()),
        };
        let user = self.connect.get_username();
        let database = self.connect.get_database().unwrap_or(user);
        format!("{server}, database {database}, role {user}")
    }

    /// Whether Postgres answers.
    ///
    /// # Errors
    /// What keeps it from answering.
    pub async fn ping(&self) -> Result<(), StoreError> {
        match sqlx::query("SELECT 1").execute(&self.pool).await {
            Ok(_) => Ok(()),
            Err(sqlx::Error::PoolTimedOut) => {
                // Either all connections are busy, or none can be made: try one.
                self.connect().await?.close().await?;
                Err(sqlx::Error::PoolTimedOut.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A transaction to read in. A question about one job is planned once for each connection:
    /// its rows are found by the job's index whatever the job is, and planning the join costs
    /// as much as running it.
    pub(crate) async fn reading(
        &self,
        of_one_job: bool,
    ) -> Result<sqlx::Transaction<'static, sqlx::Postgres>, StoreError> {
        let mut transaction = self.pool.begin().await?;
        if of_one_job {
            sqlx::query("SET LOCAL plan_cache_mode = force_generic_plan")
                .execute(&mut *transaction)
                .await?;
        }
        Ok(transaction)
    }

    /// Closes all connections.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}

async fn migrate(connection: &mut PgConnection) -> Result<ReaderRole, StoreError> {
    let version: i32 = sqlx::query_scalar("SELECT current_setting('server_version_num')::int")
        .fetch_one(&mut *connection)
        .await?;
    let major = version / 10_000;
    if major < OLDEST_MAJOR {
        return Err(StoreError::ServerTooOld {
            found: major,
            needed: OLDEST_MAJOR,
        });
    }
    sqlx::query(&format!("SET statement_timeout = '{MIGRATION_TIMEOUT}'"))
        .execute(&mut *connection)
        .await?;
    // What is there already is no news.
    sqlx::query("SET client_min_messages = warning")
        .execute(&mut *connection)
        .await?;
    sqlx::query("SELECT pg_advisory_lock($1)")
        .bind(ADVISORY_LOCK)
        .execute(&mut *connection)
        .await?;
    // The list of migrations lives here too, so that it is found whatever the role's
    // own search path is.
    sqlx::query("CREATE SCHEMA IF NOT EXISTS rdmesh_store")
        .execute(&mut *connection)
        .await?;
    sqlx::migrate!("./migrations")
        .run_direct(&mut *connection)
        .await?;
    // Without Citus it does nothing; with it, the tables that a migration has brought.
    let distributed: Vec<String> = sqlx::query_scalar("SELECT rdmesh_store.distribute()")
        .fetch_one(&mut *connection)
        .await?;
    if !distributed.is_empty() {
        tracing::info!(tables = ?distributed, "tables distributed by host");
    }
    crate::reader::ensure(connection).await
}
