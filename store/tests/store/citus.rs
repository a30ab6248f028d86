//! More than one Postgres: what the Citus extension demands of tables, read from the catalogue,
//! and what the migrations do where it is there. Citus itself is in no distribution that these
//! tests run on; a stand-in of its two functions refuses what its documentation says that it
//! refuses (Citus 13, "Creating and Modifying Distributed Objects").

use crate::made::{Database, NOW, at, chain, hello, nobody, run, snapshot};

/// Tables that are distributed, as `rdmesh_store.distribute` names them.
async fn distributed(db: &Database) -> Vec<String> {
    db.sql(STAND_IN);
    let told = db.sql("SELECT array_to_string(rdmesh_store.distribute(), ',')");
    let told = told.split(',').map(str::to_owned).collect();
    db.store.migrate().await.unwrap();
    told
}

/// Notes what it is called with, and refuses what Citus refuses: unique keys and primary keys
/// without the column of distribution, foreign keys from reference tables or to tables that
/// are neither reference tables nor distributed alike, identity columns that are not bigint,
/// a missing column, a partition instead of its parent.
const STAND_IN: &str = r#"
CREATE TABLE pg_dist_partition (logicalrelid regclass PRIMARY KEY, partkey text);
CREATE FUNCTION refuse(of regclass, key text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    bad text;
BEGIN
    SELECT string_agg(i.indexrelid::regclass::text, ', ') INTO bad FROM pg_index i
    WHERE i.indrelid = of AND key IS NOT NULL AND (i.indisunique OR i.indisexclusion)
      AND NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = of AND a.attname = key
                      AND a.attnum = ANY (i.indkey));
    IF bad IS NOT NULL THEN RAISE 'unique without the distribution column: %', bad; END IF;
    SELECT string_agg(c.conname, ', ') INTO bad FROM pg_constraint c
    LEFT JOIN pg_dist_partition d ON d.logicalrelid = c.confrelid
    WHERE c.contype = 'f' AND c.conrelid = of
      AND (d.logicalrelid IS NULL OR key IS NULL AND d.partkey IS NOT NULL);
    IF bad IS NOT NULL THEN RAISE 'foreign key to a table that is not there: %', bad; END IF;
    SELECT string_agg(c.conname, ', ') INTO bad FROM pg_constraint c
    WHERE c.contype = 'f' AND c.confrelid = of AND key IS NOT NULL;
    IF bad IS NOT NULL THEN RAISE 'foreign key to a distributed table: %', bad; END IF;
    SELECT string_agg(a.attname, ', ') INTO bad FROM pg_attribute a
    WHERE a.attrelid = of AND a.attidentity <> '' AND a.atttypid <> 'bigint'::regtype;
    IF bad IS NOT NULL THEN RAISE 'identity that is not bigint: %', bad; END IF;
    IF (SELECT relispartition FROM pg_class WHERE oid = of) THEN RAISE 'a partition: %', of; END IF;
    IF EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = of AND NOT t.tgisinternal) THEN
        RAISE 'a trigger on %', of;
    END IF;
    IF key IS NOT NULL AND NOT EXISTS (SELECT FROM pg_attribute a
            WHERE a.attrelid = of AND a.attname = key AND a.attnotnull AND a.attnum > 0) THEN
        RAISE '% has no column %', of, key;
    END IF;
END $$;
CREATE FUNCTION create_reference_table(of regclass) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM refuse(of, NULL);
    INSERT INTO pg_dist_partition VALUES (of, NULL);
END $$;
CREATE FUNCTION create_distributed_table(of regclass, key text, colocate_with text)
    RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM refuse(of, key);
    IF colocate_with <> 'default' AND NOT EXISTS (SELECT FROM pg_dist_partition
            WHERE logicalrelid = colocate_with::regclass AND partkey = key) THEN
        RAISE 'colocated with %, which is not distributed', colocate_with;
    END IF;
    INSERT INTO pg_dist_partition VALUES (of, key);
END $$;
"#;

#[tokio::test]
async fn every_table_is_distributed_by_host_or_stands_on_every_node() {
    let db = Database::new().await;
    let mut told = distributed(&db).await;
    told.sort();
    // `_sqlx_migrations` is the coordinator's own.
    let all = db.sql(
        "SELECT string_agg(relname, ',' ORDER BY relname) FROM pg_class \
         WHERE relnamespace = 'rdmesh_store'::regnamespace AND relkind IN ('r', 'p') \
           AND NOT relispartition AND relname <> '_sqlx_migrations'",
    );
    assert_eq!(told.join(","), all);
    // Whatever is partitioned grows with the fleet.
    let whole = db.sql(
        "SELECT count(*) FROM pg_partitioned_table p \
         LEFT JOIN pg_dist_partition d ON d.logicalrelid = p.partrelid \
         WHERE d.partkey IS DISTINCT FROM 'host'",
    );
    assert_eq!(whole, "0");
}

#[tokio::test]
async fn a_second_time_and_without_the_extension_nothing_is_done() {
    let db = Database::new().await;
    let nothing = "SELECT cardinality(rdmesh_store.distribute())";
    assert_eq!(db.sql(nothing), "0");
    assert!(distributed(&db).await.len() > 20);
    assert_eq!(db.sql(nothing), "0");
    // And rows come in as before.
    let run = run("gpu-01", 1);
    hello(&db.store, &run).await;
    let chains = vec![chain(NOW, nobody()), chain(at(1), nobody())];
    let item = snapshot(&run, 1, chains, vec![], vec![]);
    db.store.ingest(&[item]).await.unwrap();
    assert_eq!(db.read("SELECT count(*) FROM rdmesh.failures"), "2");
}

/// The stand-in sees what it is to see.
#[tokio::test]
async fn what_citus_refuses_is_noticed() {
    for (bad, why) in [
        (
            "CREATE UNIQUE INDEX ON rdmesh_store.baselines (kernel_release)",
            "unique without",
        ),
        (
            "ALTER TABLE rdmesh_store.attempts ADD FOREIGN KEY (name) REFERENCES rdmesh_store.hosts",
            "foreign key to a",
        ),
        (
            "ALTER TABLE rdmesh_store.forks ADD COLUMN n integer GENERATED ALWAYS AS IDENTITY",
            "identity that is not bigint",
        ),
    ] {
        let db = Database::new().await;
        db.sql(STAND_IN);
        let script = format!("{bad}; SELECT rdmesh_store.distribute()");
        let refused = crate::made::cluster().psql(&db.name, "rdmesh", &script);
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains(why), "{bad}: {refused}");
    }
}
