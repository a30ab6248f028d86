//! The schema itself: documentation, rights, keys, migration.

use rdmesh_store::{ReaderRole, StoreError, errno};

use crate::made::{Database, cluster, open};

#[tokio::test]
async fn every_view_and_column_is_documented() {
    let db = Database::new().await;
    let undocumented = db.sql(
        "SELECT c.relname || COALESCE('.' || a.attname, '') \
         FROM pg_class c LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 \
         WHERE c.relnamespace = 'rdmesh'::regnamespace \
           AND (col_description(c.oid, a.attnum) IS NULL OR obj_description(c.oid) IS NULL)",
    );
    assert_eq!(undocumented, "");
    let views = db.sql("SELECT count(*) FROM pg_views WHERE schemaname = 'rdmesh'");
    assert!(views.parse::<u32>().unwrap() >= 13, "{views} views");
}

#[tokio::test]
async fn the_reader_sees_every_view_and_no_table() {
    let db = Database::new().await;
    let views = db.read("SELECT viewname FROM pg_views WHERE schemaname = 'rdmesh'");
    for view in views.lines() {
        db.read(&format!("SELECT * FROM rdmesh.{view} LIMIT 1"));
    }
    for forbidden in [
        "SELECT * FROM rdmesh_store.failures",
        "BEGIN READ WRITE; DELETE FROM rdmesh.jobs",
        "BEGIN READ WRITE; CREATE TABLE rdmesh.t (n int)",
    ] {
        let refused = cluster()
            .psql(&db.name, "rdmesh_reader", forbidden)
            .unwrap_err();
        assert!(
            refused.to_string().contains("permission denied"),
            "{refused}"
        );
    }
}

/// The collector of these tests is a superuser, as one with its own Postgres is.
#[tokio::test]
async fn the_reader_makes_neither_temporary_tables_nor_large_objects() {
    let db = Database::new().await;
    for forbidden in [
        "CREATE TEMPORARY TABLE t (n int)",
        "BEGIN READ WRITE; CREATE TEMPORARY TABLE t (n int)",
        "SELECT lo_create(0)",
        "BEGIN READ WRITE; SELECT lo_creat(-1)",
        "BEGIN READ WRITE; SELECT lo_from_bytea(0, 'x')",
        "BEGIN READ WRITE; SELECT lo_unlink(1)",
    ] {
        let refused = cluster().psql(&db.name, "rdmesh_reader", forbidden);
        let refused = refused.unwrap_err().to_string();
        assert!(
            refused.contains("permission denied") || refused.contains("read-only"),
            "{refused}"
        );
    }
    assert_eq!(db.sql("SELECT count(*) FROM pg_largeobject_metadata"), "0");
}

#[tokio::test]
async fn host_is_in_every_unique_key_of_the_partitioned_tables() {
    let db = Database::new().await;
    let without = db.sql(
        "SELECT i.indexrelid::regclass FROM pg_index i \
         JOIN pg_partitioned_table p ON p.partrelid = i.indrelid \
         WHERE i.indisunique AND NOT EXISTS ( \
             SELECT FROM pg_attribute a WHERE a.attrelid = i.indrelid \
             AND a.attname = 'host' AND a.attnum = ANY (i.indkey))",
    );
    assert_eq!(without, "");
    assert_eq!(db.sql("SELECT count(*) FROM pg_partitioned_table"), "7");
}

/// They grow with the fleet: distributed by host as the partitioned ones are.
#[tokio::test]
async fn host_is_in_every_unique_key_of_the_tables_of_automatic_mode() {
    let db = Database::new().await;
    let tables = "('baselines', 'window_leases', 'forks')";
    let keys = |and: &str| {
        db.sql(&format!(
            "SELECT count(*) FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
             WHERE c.relnamespace = 'rdmesh_store'::regnamespace AND c.relname IN {tables}
               AND i.indisunique {and}"
        ))
    };
    let with_host = "AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = i.indrelid
                     AND a.attname = 'host' AND a.attnum = ANY (i.indkey))";
    assert_eq!((keys("").as_str(), keys(with_host).as_str()), ("3", "3"));
}

#[tokio::test]
async fn errno_names_in_sql_are_those_of_the_library() {
    let db = Database::new().await;
    let in_sql = db.sql("SELECT errno, name, description FROM rdmesh_store.errnos ORDER BY 1");
    let in_library: Vec<String> = errno::ERRNOS
        .iter()
        .map(|(n, name, text)| format!("{n}|{name}|{text}"))
        .collect();
    assert_eq!(in_sql, in_library.join("\n"));
}

#[tokio::test]
async fn collectors_that_start_together_migrate_once() {
    let name = cluster().new_database().unwrap();
    let url = cluster().url(&name);
    let (one, other) = (open(&url), open(&url));
    let (first, second) = tokio::join!(one.migrate(), other.migrate());
    assert_eq!(first.unwrap(), ReaderRole::Ready);
    assert_eq!(second.unwrap(), ReaderRole::Ready);
    one.ping().await.unwrap();
}

#[tokio::test]
async fn a_role_that_may_not_make_roles_is_told_what_to_run() {
    let name = cluster().new_database().unwrap();
    let script = format!(
        "CREATE ROLE plain LOGIN; ALTER DATABASE {name} OWNER TO plain; \
         ALTER SCHEMA public OWNER TO plain"
    );
    // Another test of this process may have made the reader already.
    cluster().psql(&name, "rdmesh", &script).unwrap();
    let there = cluster()
        .psql(
            &name,
            "rdmesh",
            "SELECT 1 FROM pg_roles WHERE rolname = 'rdmesh_reader'",
        )
        .unwrap();
    let role = open(&cluster().url_as(&name, "plain"))
        .migrate()
        .await
        .unwrap();
    if there.trim().is_empty() {
        assert!(matches!(&role, ReaderRole::Missing { run } if run.contains("CREATE ROLE")));
    } else {
        assert_eq!(role, ReaderRole::Ready);
    }
}

#[tokio::test]
async fn regression_a_role_that_may_only_read_is_named_with_the_way_out() {
    let db = Database::new().await;
    let reader = open(&cluster().url_as(&db.name, "rdmesh_reader"));
    let refused = reader.migrate().await.unwrap_err();
    assert!(matches!(refused, StoreError::ReadOnly(_)), "{refused:?}");
    let message = refused.to_string();
    for part in ["role rdmesh_reader", "owns the database", "standby"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let name = cluster().new_database().unwrap();
    cluster()
        .psql(&name, "rdmesh", "CREATE ROLE stranger LOGIN")
        .unwrap();
    let refused = open(&cluster().url_as(&name, "stranger")).migrate().await;
    let message = refused.unwrap_err().to_string();
    for part in ["role stranger", "ALTER DATABASE"] {
        assert!(message.contains(part), "{part}: {message}");
    }
}

#[tokio::test]
async fn a_newer_schema_is_refused_with_what_to_do() {
    let db = Database::new().await;
    db.sql(
        "INSERT INTO rdmesh_store._sqlx_migrations (version, description, success, checksum, execution_time) \
         VALUES (9999, 'later', true, '', 0)",
    );
    let refused = db.store.migrate().await.unwrap_err();
    assert!(
        refused.to_string().contains("upgrade this one"),
        "{refused}"
    );
}

#[tokio::test]
async fn an_unreadable_url_says_how_to_write_one() {
    let refused = rdmesh_store::Store::new(&rdmesh_store::StoreOptions {
        url: "mysql://x".into(),
        connections: 1,
        acquire_timeout: std::time::Duration::from_secs(1),
    })
    .unwrap_err();
    assert!(
        refused.to_string().contains("postgres:///DATABASE?host="),
        "{refused}"
    );
}
