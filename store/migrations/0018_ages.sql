-- How long what is kept, questions about a time that find their groups, and more than one
-- Postgres.

-- Since when the details of each kind are whole: retention notes what it dropped. Null: none
-- has aged out.
CREATE TABLE rdmesh_store.ages (
    kind text PRIMARY KEY,
    kept_from timestamptz
);
INSERT INTO rdmesh_store.ages (kind) VALUES ('exact'), ('detail'), ('hours');

CREATE VIEW rdmesh.ages AS
SELECT a.kind AS kind,
       CASE a.kind WHEN 'exact' THEN 'rdmesh.snapshots, and the snapshots as they came'
           WHEN 'hours' THEN 'rdmesh.signature_totals, rdmesh.incidents, rdmesh.precursors'
           ELSE 'rdmesh.failures, rdmesh.failure_totals, rdmesh.host_failure_totals, '
                'rdmesh.drops, rdmesh.co_signals, rdmesh.wire_windows' END AS views,
       a.kept_from AS kept_from
FROM rdmesh_store.ages a;

COMMENT ON VIEW rdmesh.ages IS 'Since when what is kept: an answer about a time before it misses what has aged out. Details go before sums by hour, and exact snapshots before both.';
COMMENT ON COLUMN rdmesh.ages.kind IS 'exact, detail or hours.';
COMMENT ON COLUMN rdmesh.ages.views IS 'What stands on it.';
COMMENT ON COLUMN rdmesh.ages.kept_from IS 'What is older has aged out; null: nothing has.';

-- rdmesh.failures with its condition on the time where the groups are found.
DO $in$
DECLARE
    path text := current_setting('search_path');
    definition text;
BEGIN
    PERFORM set_config('search_path', 'pg_catalog', true);
    definition := rtrim(pg_get_viewdef('rdmesh.failures'::regclass), ';');
    PERFORM set_config('search_path', path, true);
    EXECUTE 'CREATE FUNCTION rdmesh.failures_in(from_at timestamptz, to_at timestamptz)
        RETURNS SETOF rdmesh.failures
        LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $f$'
        || definition || '
        WHERE f.at >= COALESCE(from_at, ''-infinity'') AND f.at < COALESCE(to_at, ''infinity'')
          AND f.group_at > COALESCE(from_at, ''-infinity'') - interval ''1 minute''
          AND f.group_at < COALESCE(to_at, ''infinity'') $f$';
END $in$;
COMMENT ON FUNCTION rdmesh.failures_in(timestamptz, timestamptz) IS 'rdmesh.failures whose first call was from from_at until before to_at; null: open. Of a time it reads nothing else, where a condition on the view reads everything.';

-- Where the Citus extension is, tables that grow with the fleet are distributed by host, so
-- that a host's rows stand together, and metadata are on every node. It may be called as
-- often as one likes; without the extension it does nothing. Returns what it did.
CREATE FUNCTION rdmesh_store.distribute() RETURNS text[] LANGUAGE plpgsql AS $distribute$
DECLARE
    of_all CONSTANT text[] := ARRAY['attempts', 'placements', 'job_logs', 'verdicts', 'errnos',
                                    'signatures', 'devices', 'returns', 'ages'];
    by_host CONSTANT text[] := ARRAY['hosts', 'agent_runs', 'snapshots', 'failure_groups',
        'count_groups', 'drops', 'co_signals', 'wire_windows', 'signature_hours', 'inventories',
        'probe_reports', 'probes', 'baselines', 'window_leases', 'forks', 'addresses', 'wires'];
    done text[] := '{}';
    name text;
    known boolean;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_proc WHERE proname = 'create_distributed_table')
       OR to_regclass('pg_dist_partition') IS NULL THEN
        RETURN done;
    END IF;
    FOREACH name IN ARRAY of_all || by_host LOOP
        EXECUTE 'SELECT EXISTS (SELECT FROM pg_dist_partition WHERE logicalrelid = $1)'
            INTO known USING ('rdmesh_store.' || name)::regclass;
        CONTINUE WHEN known;
        IF name = ANY (of_all) THEN
            EXECUTE 'SELECT create_reference_table($1)'
                USING ('rdmesh_store.' || name)::regclass;
        ELSE
            EXECUTE 'SELECT create_distributed_table($1, $2, colocate_with => $3)'
                USING ('rdmesh_store.' || name)::regclass, 'host',
                      CASE WHEN name = by_host[1] THEN 'default'
                           ELSE 'rdmesh_store.' || by_host[1] END;
        END IF;
        done := done || name;
    END LOOP;
    RETURN done;
END $distribute$;
