//! What can go wrong, and the one place where SQLSTATE is mapped.

use std::time::Duration;

/// Why the store could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Postgres is not there, is starting, is shutting down, or has no room for
    /// another connection.
    #[error("Postgres cannot be reached ({0}); it is tried again")]
    Unavailable(String),
    /// Another transaction was in the way.
    #[error("another transaction was in the way ({0}); it is tried again")]
    Conflict(String),
    /// A row's week has no partition, for instance because another collector has just
    /// dropped it.
    #[error("no partition takes the row ({0}); it is tried again")]
    NoPartition(String),
    /// A query ran longer than it may.
    #[error("the query ran longer than it may ({0}); ask for less: a shorter time, one host")]
    TooSlow(String),
    /// Postgres refused a value: the item that holds it can never be stored.
    #[error("Postgres refused a value: {0}")]
    Data(String),
    /// A value in the database is not of the kind that this build reads.
    #[error(
        "a value in the database cannot be read ({0}); was it written by another version, or by \
         hand?"
    )]
    Unreadable(String),
    /// The role may not do this.
    #[error(
        "the database role may not do this ({0}); let the collector's role own the database: \
         ALTER DATABASE … OWNER TO …"
    )]
    Permission(String),
    /// The session may only read.
    #[error(
        "the database session may only read ({0}); let the collector connect as the role that \
         owns the database, and not as one that is read-only such as rdmesh_reader, and to the \
         primary server, not to a standby"
    )]
    ReadOnly(String),
    /// The disk, the memory or a quota of Postgres is used up.
    #[error("Postgres has no room left ({0}); free disk space or shorten the retention")]
    NoRoom(String),
    /// The schema is not the one of this build.
    #[error("the schema does not fit this collector: {0}")]
    Schema(String),
    /// The server is older than rdmesh needs.
    #[error("Postgres {found} is too old; rdmesh needs {needed} or later")]
    ServerTooOld {
        /// Major version of the server.
        found: i32,
        /// Oldest major version that works.
        needed: i32,
    },
    /// The database URL cannot be read.
    #[error(
        "the database URL cannot be read ({0}); write postgres://USER:PASSWORD@HOST:PORT/DATABASE, \
         or postgres:///DATABASE?host=/run/postgresql for a Unix socket"
    )]
    Url(String),
    /// Windows that are not compared, or none to compare.
    #[error("{0}")]
    NotComparable(String),
    /// An item of a run that never said Hello.
    #[error("a run is not known; the agent must say Hello first")]
    UnknownRun,
    /// Anything else.
    #[error("Postgres: {0}")]
    Other(String),
}

impl StoreError {
    /// Whether the same call may succeed when it is made again.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Unavailable(_) | Self::Conflict(_) | Self::NoPartition(_) | Self::NoRoom(_)
        )
    }

    /// Whether an item itself is at fault, so that others of its batch can be stored.
    pub fn is_about_data(&self) -> bool {
        matches!(self, Self::Data(_))
    }

    /// How long to wait before it is tried again.
    pub fn retry_after(&self) -> Duration {
        match self {
            Self::Conflict(_) | Self::NoPartition(_) => Duration::from_millis(5),
            Self::NoRoom(_) => Duration::from_secs(5),
            _ => Duration::from_millis(200),
        }
    }

    /// By SQLSTATE (PostgreSQL documentation, appendix A).
    fn from_sqlstate(code: &str, message: String) -> Self {
        match code {
            // Lost connections, too many of them, shutting down, starting up.
            "53300" | "57P01" | "57P02" | "57P03" => Self::Unavailable(message),
            "40001" | "40P01" | "55P03" => Self::Conflict(message),
            "23514" if message.contains("no partition") => Self::NoPartition(message),
            "57014" => Self::TooSlow(message),
            // Raised by rdmesh.compare_wire.
            "55000" | "P0002" => Self::NotComparable(message),
            "42501" => Self::Permission(message),
            "25006" => Self::ReadOnly(message),
            "42P01" | "42703" | "42883" | "3F000" => Self::Schema(message),
            _ => match code.get(..2) {
                Some("08") => Self::Unavailable(message),
                Some("53") => Self::NoRoom(message),
                // 54: a value that is too large for an index or a row.
                Some("22" | "23" | "54") => Self::Data(message),
                _ => Self::Other(format!("{message} (SQLSTATE {code})")),
            },
        }
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        match &error {
            sqlx::Error::Database(database) => {
                let message = database.message().to_owned();
                match database.code() {
                    Some(code) => Self::from_sqlstate(&code, message),
                    None => Self::Other(message),
                }
            }
            sqlx::Error::Io(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed
            // The server went away in the middle of an answer.
            | sqlx::Error::Protocol(_) => Self::Unavailable(error.to_string()),
            sqlx::Error::Configuration(_) => Self::Url(error.to_string()),
            sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => {
                Self::Unreadable(error.to_string())
            }
            sqlx::Error::ColumnNotFound(_) => Self::Schema(error.to_string()),
            _ => Self::Other(error.to_string()),
        }
    }
}

impl From<sqlx::migrate::MigrateError> for StoreError {
    fn from(error: sqlx::migrate::MigrateError) -> Self {
        use sqlx::migrate::MigrateError;
        match error {
            MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => error.into(),
            MigrateError::VersionMissing(version) => Self::Schema(format!(
                "migration {version} was applied by a newer collector; upgrade this one"
            )),
            MigrateError::VersionMismatch(version) => Self::Schema(format!(
                "migration {version} was applied with another text; this is a different build"
            )),
            other => Self::Schema(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sqlstates_say_whether_to_try_again() {
        let retryable = |code: &str, message: &str| {
            StoreError::from_sqlstate(code, message.to_owned()).is_retryable()
        };
        for code in [
            "08006", "57P01", "57P03", "53300", "40001", "40P01", "53100",
        ] {
            assert!(retryable(code, "x"), "{code}");
        }
        assert!(retryable(
            "23514",
            "no partition of relation \"failures\" found for row"
        ));
        for code in ["23514", "22021", "42501", "42P01", "57014", "XX000"] {
            assert!(!retryable(code, "x"), "{code}");
        }
    }

    #[test]
    fn a_value_that_cannot_be_read_is_no_fault_of_who_asks() {
        let error = StoreError::from(sqlx::Error::ColumnDecode {
            index: "\"layer\"".into(),
            source: "unexpected null".into(),
        });
        assert!(matches!(&error, StoreError::Unreadable(_)), "{error:?}");
        assert!(!error.is_about_data() && !error.is_retryable());
        assert!(error.to_string().contains("layer"), "{error}");
    }

    #[test]
    fn a_bad_value_is_the_items_own_fault() {
        assert!(StoreError::from_sqlstate("22021", "invalid byte".into()).is_about_data());
        assert!(!StoreError::from_sqlstate("57P01", "shutdown".into()).is_about_data());
    }
}
