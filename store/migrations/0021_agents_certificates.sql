-- How long an agent can still show who it is, and how far what it tells is behind.
ALTER TABLE rdmesh_store.agent_runs ADD COLUMN certificate_ends_at timestamptz;

-- Seconds from the end of the last interval that a run told of to when it last told anything.
CREATE FUNCTION rdmesh_store.lag_seconds(watched int8multirange, boot_epoch_ns bigint,
        last_seen_at timestamptz) RETURNS float8 LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN boot_epoch_ns IS NOT NULL AND upper(watched) IS NOT NULL
                THEN GREATEST(0, EXTRACT(epoch FROM last_seen_at)
                                 - (boot_epoch_ns::numeric + upper(watched)) / 1e9)::float8
           END $$;

CREATE OR REPLACE VIEW rdmesh.agents AS
SELECT r.host AS host,
       rdmesh_store.agent_name(r.agent) AS agent,
       r.run_id AS run_id,
       r.boot_id AS boot_id,
       r.version AS version,
       r.address AS address,
       r.started_at AS started_at,
       r.last_seen_at AS last_seen_at,
       r.clock_offset_ns AS clock_offset_ns,
       r.clock_jumps AS clock_jumps,
       r.snapshots AS snapshots,
       r.heartbeats AS heartbeats,
       r.rejected AS rejected,
       r.last_rejection AS last_rejection,
       GREATEST(r.given_up, (SELECT COALESCE(upper(range_merge(r.seqs)) - 1, 0) - COALESCE(sum(upper(s) - lower(s)), 0)::bigint FROM unnest(r.seqs) s)) AS missing,
       r.failures AS failures,
       r.drops AS drops,
       r.unseen AS unseen,
       r.certificate_ends_at AS certificate_ends_at,
       rdmesh_store.lag_seconds(r.watched, r.boot_epoch_ns, r.last_seen_at) AS lag_seconds
FROM rdmesh_store.agent_runs r;
COMMENT ON COLUMN rdmesh.agents.certificate_ends_at IS 'When the certificate ends that it showed when it last connected; null: none, without TLS.';
COMMENT ON COLUMN rdmesh.agents.lag_seconds IS 'How old what it told last was when it came, seconds; null: it told of no interval yet.';
