//! The read-only role.

use sqlx::{Connection, PgConnection};

use crate::StoreError;

/// The role that sees the views of schema `rdmesh` and nothing else.
pub const READER_ROLE: &str = "rdmesh_reader";

/// Longest query of the read-only role: a report over months takes seconds; what runs
/// longer was forgotten by somebody. A session may set another one.
const READER_TIMEOUT: &str = "2min";

/// Whether the read-only role is usable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReaderRole {
    /// It exists and may read the views.
    Ready,
    /// The collector's role may not make it; this is what a superuser has to run.
    Missing {
        /// A statement for psql.
        run: String,
    },
}

/// Makes the role when permitted, and grants it the views.
pub(crate) async fn ensure(connection: &mut PgConnection) -> Result<ReaderRole, StoreError> {
    let exists: bool =
        sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)")
            .bind(READER_ROLE)
            .fetch_one(&mut *connection)
            .await?;
    if !exists && !create(connection).await? {
        return Ok(ReaderRole::Missing {
            run: format!("CREATE ROLE {READER_ROLE} LOGIN; -- then restart the collector"),
        });
    }
    for grant in [
        format!("GRANT USAGE ON SCHEMA rdmesh TO {READER_ROLE}"),
        format!("GRANT SELECT ON ALL TABLES IN SCHEMA rdmesh TO {READER_ROLE}"),
    ] {
        sqlx::query(&grant).execute(&mut *connection).await?;
    }
    restrain(connection).await?;
    Ok(ReaderRole::Ready)
}

/// Functions that make or change large objects, which every role may call. They belong to
/// the superuser who made the cluster: only such a role can take them away. From Postgres 16
/// on a read-only transaction refuses them, before it does not.
const LARGE_OBJECT_WRITERS: &[&str] = &[
    "lo_create(oid)",
    "lo_creat(integer)",
    "lo_from_bytea(oid, bytea)",
    "lo_put(oid, bigint, bytea)",
    "lo_truncate(integer, integer)",
    "lo_truncate64(integer, bigint)",
    "lo_unlink(oid)",
    "lowrite(integer, bytea)",
];

/// What the role may do beyond reading the views is taken away as far as the collector's
/// role may: temporary tables, writing, large objects (needs a superuser; README.md says
/// what such a one runs), queries without an end, and the compiler of plans. A role or a database that somebody
/// else made stays as that one wants it.
async fn restrain(connection: &mut PgConnection) -> Result<(), StoreError> {
    for statement in [
        "REVOKE TEMPORARY ON DATABASE %I FROM PUBLIC".to_owned(),
        format!("ALTER ROLE {READER_ROLE} IN DATABASE %I SET default_transaction_read_only = on"),
        format!(
            "ALTER ROLE {READER_ROLE} IN DATABASE %I SET statement_timeout = ''{READER_TIMEOUT}''"
        ),
        // Compiling a plan of the views costs seconds; running it seldom does.
        format!("ALTER ROLE {READER_ROLE} IN DATABASE %I SET jit = off"),
    ]
    .into_iter()
    .chain(
        LARGE_OBJECT_WRITERS.iter().map(|function| {
            format!("REVOKE EXECUTE ON FUNCTION pg_catalog.{function} FROM PUBLIC")
        }),
    ) {
        sqlx::query(&format!(
            "DO $do$ BEGIN EXECUTE format('{statement}', current_database());
             EXCEPTION WHEN insufficient_privilege THEN NULL; END $do$"
        ))
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}

/// Whether the role is there afterwards. Roles belong to the whole cluster: another
/// database's collector may make it at the same moment.
async fn create(connection: &mut PgConnection) -> Result<bool, StoreError> {
    let mut transaction = connection.begin().await?;
    let created = sqlx::query(&format!("CREATE ROLE {READER_ROLE} LOGIN"))
        .execute(&mut *transaction)
        .await;
    match created {
        Ok(_) => {
            transaction.commit().await?;
            Ok(true)
        }
        Err(sqlx::Error::Database(error)) => {
            let code = error.code().unwrap_or_default().into_owned();
            transaction.rollback().await?;
            match code.as_str() {
                // duplicate_object; unique_violation when both were made at once.
                "42710" | "23505" => Ok(true),
                // insufficient_privilege
                "42501" => Ok(false),
                _ => Err(sqlx::Error::Database(error).into()),
            }
        }
        Err(error) => Err(error.into()),
    }
}
