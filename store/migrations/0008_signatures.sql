-- Failing calls by host, hour and signature: kept up to date by the ingest, in the
-- transaction that stores the failures, so that questions about weeks of the whole fleet
-- read thousands of rows and not millions.

-- A chain without its times and task. The id is made of the rest.
CREATE TABLE rdmesh_store.signatures (
    id bigint PRIMARY KEY,
    driver text NOT NULL,
    verb smallint NOT NULL,
    -- A rule says that such failures are part of normal work.
    expected boolean NOT NULL,
    -- Innermost first, all four of the same length.
    functions text[] NOT NULL,
    modules text[] NOT NULL,
    layers smallint[] NOT NULL,
    errnos integer[] NOT NULL
);
CREATE INDEX signatures_by_function ON rdmesh_store.signatures ((functions[1]), (errnos[1]));

-- Of md5, because Postgres promises no other hash to stay the same.
CREATE FUNCTION rdmesh_store.signature_id(driver text, verb smallint, expected boolean,
        functions text[], modules text[], layers smallint[], errnos integer[]) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ('x' || substr(md5(concat_ws(E'\x1e', driver, verb, expected,
        array_to_string(functions, E'\x1f'), array_to_string(modules, E'\x1f'),
        array_to_string(layers, E'\x1f'), array_to_string(errnos, E'\x1f'))), 1, 16)
        )::bit(64)::bigint $$;

CREATE TABLE rdmesh_store.signature_hours (
    host text NOT NULL,
    -- Start of the hour.
    at timestamptz NOT NULL,
    signature_id bigint NOT NULL,
    calls bigint NOT NULL,
    first_at timestamptz NOT NULL,
    last_at timestamptz NOT NULL,
    PRIMARY KEY (host, at, signature_id)
) PARTITION BY RANGE (at);
CREATE INDEX signature_hours_by_signature ON rdmesh_store.signature_hours (signature_id, at);

-- What is stored already.
DO $backfill$
DECLARE
    week record;
BEGIN
    FOR week IN
        SELECT replace(c.relname, 'failures_', 'signature_hours_') AS name,
               pg_get_expr(c.relpartbound, c.oid) AS bound
        FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'rdmesh_store.failures'::regclass
    LOOP
        EXECUTE format('CREATE TABLE rdmesh_store.%I PARTITION OF rdmesh_store.signature_hours %s',
                       week.name, week.bound);
    END LOOP;
END $backfill$;

INSERT INTO rdmesh_store.signatures
SELECT DISTINCT ON (f.id) f.id, f.driver, f.verb, f.expected, f.functions, f.modules, f.layers,
       f.errnos
FROM (SELECT DISTINCT rdmesh_store.signature_id(driver, verb, expected, functions, modules,
                                                layers, errnos) AS id,
             driver, verb, expected, functions, modules, layers, errnos
      FROM rdmesh_store.failures) f
ORDER BY f.id;

INSERT INTO rdmesh_store.signature_hours
SELECT host, date_trunc('hour', at, 'UTC'),
       rdmesh_store.signature_id(driver, verb, expected, functions, modules, layers, errnos),
       rdmesh_store.bounded(sum(count)), min(at), max(last_at)
FROM rdmesh_store.failures
GROUP BY 1, 2, 3;

-- Earlier attempts of the job with the same failure, oldest first.
ALTER TABLE rdmesh_store.verdicts ADD COLUMN same_failure text[] NOT NULL DEFAULT '{}';

CREATE OR REPLACE VIEW rdmesh.diagnoses AS
SELECT d.job_id AS job_id,
       d.requeue AS requeue,
       d.restart AS restart,
       d.diagnosed_at AS diagnosed_at,
       d.class AS class,
       rdmesh_store.layer_name(d.layer) AS layer,
       rdmesh_store.verb_name(d.verb) AS verb,
       d.function AS function,
       d.module AS module,
       d.errno AS errno,
       d.errno_name AS errno_name,
       d.hosts AS hosts,
       d.devices AS devices,
       d.first_at AS first_at,
       d.confidence AS confidence,
       d.route_to AS route_to,
       d.rule AS rule,
       d.evidence AS evidence,
       d.against AS against,
       d.unwatched AS unwatched,
       d.summary AS summary,
       d.meaning AS meaning,
       d.next_steps AS next_steps,
       d.failures_looked_at AS failures_looked_at,
       d.failures_total AS failures_total,
       d.logs AS logs,
       d.log_class AS log_class,
       d.log_verb AS log_verb,
       d.log_errno_name AS log_errno_name,
       d.log_text AS log_text,
       d.log_agreement AS log_agreement,
       d.log_coverage AS log_coverage,
       d.misattributed AS misattributed,
       d.co_signals AS co_signals,
       d.told_by AS told_by,
       d.same_failure AS same_failure
FROM rdmesh_store.verdicts d;

COMMENT ON COLUMN rdmesh.diagnoses.same_failure IS 'Earlier attempts of the job with the same failure, oldest first, as JOB/REQUEUE or JOB/REQUEUE.RESTART.';
