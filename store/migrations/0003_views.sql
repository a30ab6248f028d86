-- The join, made when it is asked for, and the documented views over it.
--
-- Late job metadata joins by itself, because nothing of the join is stored.

CREATE FUNCTION rdmesh_store.layer_name(layer smallint) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE layer WHEN 1 THEN 'memory' WHEN 2 THEN 'firmware' WHEN 3 THEN 'driver'
        WHEN 4 THEN 'core' WHEN 5 THEN 'uverbs' ELSE 'unknown' END $$;

CREATE FUNCTION rdmesh_store.verb_name(verb smallint) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE verb WHEN 1 THEN 'alloc_pd' WHEN 2 THEN 'reg_mr' WHEN 3 THEN 'reg_dmabuf_mr'
        WHEN 4 THEN 'create_cq' WHEN 5 THEN 'create_qp' WHEN 6 THEN 'modify_qp'
        WHEN 7 THEN 'create_ah' WHEN 8 THEN 'devx_obj_create' WHEN 9 THEN 'devx_obj_modify'
        WHEN 10 THEN 'devx_umem_reg' WHEN 11 THEN 'firmware_command'
        WHEN 12 THEN 'async_event' ELSE 'unknown' END $$;

CREATE FUNCTION rdmesh_store.source_name(source smallint) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE source WHEN 1 THEN 'environment' WHEN 2 THEN 'cgroup' WHEN 3 THEN 'placement'
        WHEN 4 THEN 'none' ELSE 'unknown' END $$;

CREATE FUNCTION rdmesh_store.agent_name(agent smallint) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE agent WHEN 1 THEN 'tracer' WHEN 2 THEN 'shaper' ELSE 'unknown' END $$;

CREATE FUNCTION rdmesh_store.state_name(state smallint) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE state WHEN 2 THEN 'running' WHEN 3 THEN 'completed' WHEN 4 THEN 'failed'
        WHEN 5 THEN 'cancelled' WHEN 6 THEN 'timeout' WHEN 7 THEN 'out_of_memory'
        WHEN 8 THEN 'node_fail' ELSE 'unknown' END $$;

CREATE FUNCTION rdmesh_store.probe_state_name(state smallint) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE state WHEN 1 THEN 'attached' WHEN 2 THEN 'missing' WHEN 3 THEN 'replaced'
        WHEN 4 THEN 'detached' ELSE 'unknown' END $$;

CREATE FUNCTION rdmesh_store.attach_name(kind smallint) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE kind WHEN 1 THEN 'fexit' WHEN 2 THEN 'kretprobe' WHEN 3 THEN 'kretprobe_multi'
        ELSE '' END $$;

CREATE FUNCTION rdmesh_store.missing_name(reason smallint) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE reason WHEN 1 THEN 'module_not_loaded' WHEN 2 THEN 'no_driver'
        WHEN 3 THEN 'no_such_function' WHEN 4 THEN 'changed_by_compiler'
        WHEN 5 THEN 'not_described' WHEN 6 THEN 'no_btf' WHEN 7 THEN 'not_traceable'
        WHEN 8 THEN 'driver_has_no_operation' WHEN 9 THEN 'no_return_value'
        WHEN 10 THEN 'refused_by_kernel' WHEN 11 THEN 'detached' ELSE 'unknown' END $$;

CREATE FUNCTION rdmesh_store.drop_name(kind smallint) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE kind WHEN 1 THEN 'ring_full' WHEN 2 THEN 'counter_map_full'
        WHEN 3 THEN 'unseen' ELSE 'unknown' END $$;

-- Sums stay within 64 bits, whatever was counted. The sum of no rows stays NULL:
-- LEAST would leave it out and answer with the bound.
CREATE FUNCTION rdmesh_store.bounded(sum numeric) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT (CASE WHEN sum > 9223372036854775807 THEN 9223372036854775807 ELSE sum END)::bigint $$;

-- What each probe of a run counted and what it could not hand over.
CREATE VIEW rdmesh_store.probe_counts AS
SELECT c.host, c.run_id, c.function, c.module,
       rdmesh_store.bounded(sum(c.failures)) AS failures,
       rdmesh_store.bounded(sum(c.drops)) AS drops,
       rdmesh_store.bounded(sum(c.unseen)) AS unseen
FROM (SELECT f.host, f.run_id, f.function, f.module, f.delta AS failures,
             0::bigint AS drops, 0::bigint AS unseen
      FROM rdmesh_store.failure_counts f WHERE f.cgroup_path IS NULL
      UNION ALL
      SELECT d.host, d.run_id, d.function, d.module, 0,
             CASE d.kind WHEN 1 THEN d.delta ELSE 0 END,
             CASE d.kind WHEN 3 THEN d.delta ELSE 0 END
      FROM rdmesh_store.drops d WHERE d.kind IN (1, 3)) c
GROUP BY c.host, c.run_id, c.function, c.module;

-- When an attempt ran, as well as it is known: from its start, else from when it was
-- first told; to its end, else to the start of the job's next attempt, else open. An
-- attempt that ended before it started keeps the time between.
CREATE VIEW rdmesh_store.attempt_windows AS
SELECT a.job_id, a.requeue, a.restart, a.told,
       a.started_at IS NOT NULL AS start_told, a.ended_at IS NOT NULL AS end_told,
       LEAST(b.from_at, b.to_at) AS from_at, GREATEST(b.from_at, b.to_at) AS to_at
FROM rdmesh_store.attempts a
CROSS JOIN LATERAL (
    SELECT COALESCE(a.started_at, a.first_told_at) AS from_at,
           COALESCE(a.ended_at,
                    (SELECT min(n.started_at) FROM rdmesh_store.attempts n
                     WHERE n.job_id = a.job_id AND n.told
                       AND (n.requeue, n.restart) > (a.requeue, a.restart)
                       AND n.started_at > a.started_at),
                    'infinity'::timestamptz) AS to_at
) b;

-- Attempts with what is odd about what was told. Computed when asked, so that what
-- comes late heals it.
CREATE VIEW rdmesh_store.described_attempts AS
SELECT a.*,
       -- A start in the future must not stand above everything for ever.
       LEAST(COALESCE(a.started_at, a.ended_at, a.first_told_at), a.first_told_at) AS listed_at,
       array_remove(ARRAY[
           CASE WHEN NOT a.told THEN 'no scheduler told of it; failing tasks named it' END,
           CASE WHEN a.ended_at < a.started_at THEN 'ended before it started' END,
           CASE WHEN a.told AND a.started_at IS NULL AND a.ended_at IS NOT NULL
                THEN 'ended, but nobody told when it started' END,
           CASE WHEN a.told AND a.started_at IS NULL AND a.ended_at IS NULL
                THEN 'placed, but nobody told that it started' END,
           CASE WHEN a.started_at > a.updated_at + interval '1 day'
                THEN 'starts in the future' END,
           CASE WHEN a.state = 3 AND a.exit_code <> 0
                THEN 'completed, with exit code ' || a.exit_code END,
           CASE WHEN a.state = 4 AND a.exit_code = 0 THEN 'failed, with exit code 0' END
       ], NULL)
       -- Each host by name where they are few: a job may have thousands.
       || COALESCE((
           SELECT CASE WHEN count(*) <= 4
                       THEN array_agg('host ' || s.host || ' has never reported' ORDER BY s.host)
                       ELSE ARRAY[count(*) || ' hosts have never reported: '
                                  || array_to_string((array_agg(s.host ORDER BY s.host))[1:4], ', ')
                                  || ' and ' || count(*) - 4 || ' more'] END
           FROM (SELECT p.host FROM rdmesh_store.placements p
                 WHERE p.job_id = a.job_id AND p.requeue = a.requeue AND p.restart = a.restart
                   AND NOT EXISTS (SELECT FROM rdmesh_store.hosts h WHERE h.host = p.host)) s
           HAVING count(*) > 0), '{}') AS marks,
       -- For lists: a job may have thousands of hosts.
       ARRAY(SELECT p.host FROM rdmesh_store.placements p
             WHERE p.job_id = a.job_id AND p.requeue = a.requeue AND p.restart = a.restart
             ORDER BY p.host LIMIT 4) AS first_hosts,
       (SELECT count(*) FROM rdmesh_store.placements p
        WHERE p.job_id = a.job_id AND p.requeue = a.requeue AND p.restart = a.restart)
           AS hosts_total
FROM rdmesh_store.attempts a;

-- Which attempt a row belongs to:
-- 1. the attempt that its environment or cgroup named. Where only the job is named (0/0):
--    a. the job's attempt that was placed on the host and ran at that time; of several,
--       0/0 itself where an environment named it, else the last to begin, because the path
--       of a cgroup never tells a requeue;
--    b. else the job's attempt that ran at that time, 0/0 itself first;
-- 2. else the only attempt that was placed on the host at that time;
-- 3. else none.
-- The source stays what named the job.
--
-- The join is written once, for failures and for counts, and put into both views: a
-- function would look at the tables with the rights of whoever reads the view.
--
-- Of a row that is named it says in `doubts` why it may be another attempt's: it is kept
-- where its task says that it belongs, and marked.

-- Schedulers tell whole seconds, by clocks of their own: by so much a failure may stand
-- outside of its attempt's time.
CREATE FUNCTION rdmesh_store.scheduler_slack() RETURNS interval
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT interval '2 seconds' $$;

DO $views$
DECLARE
    attempt_of CONSTANT text := $join$
CROSS JOIN LATERAL (
    SELECT COALESCE(f.job_id, p.job_id) AS job_id,
           CASE WHEN f.job_id IS NULL THEN p.requeue
                ELSE COALESCE(n.requeue, f.requeue) END AS requeue,
           CASE WHEN f.job_id IS NULL THEN p.restart
                ELSE COALESCE(n.restart, f.restart) END AS restart,
           CASE WHEN f.job_id IS NOT NULL THEN f.source
                WHEN p.job_id IS NOT NULL THEN 3 ELSE 4 END::smallint AS source
    FROM (SELECT 1) one_row
    LEFT JOIN LATERAL (
        SELECT w.requeue, w.restart
        FROM rdmesh_store.attempt_windows w
        LEFT JOIN rdmesh_store.placements q
            ON q.host = f.host AND q.job_id = w.job_id
               AND q.requeue = w.requeue AND q.restart = w.restart
        WHERE f.job_id IS NOT NULL AND f.requeue = 0 AND f.restart = 0
          AND w.job_id = f.job_id AND w.told AND f.at >= w.from_at AND f.at < w.to_at
        ORDER BY q.host IS NOT NULL DESC,
                 CASE WHEN f.source = 2 AND q.host IS NOT NULL THEN w.from_at END DESC,
                 w.requeue = 0 AND w.restart = 0
                     AND NOT (f.source = 2 AND q.host IS NOT NULL) DESC,
                 w.requeue DESC, w.restart DESC
        LIMIT 1
    ) n ON true
    LEFT JOIN LATERAL (
        SELECT min(q.job_id) AS job_id, min(q.requeue) AS requeue, min(q.restart) AS restart
        FROM rdmesh_store.placements q
        JOIN rdmesh_store.attempt_windows w USING (job_id, requeue, restart)
        WHERE f.job_id IS NULL AND q.host = f.host AND f.at >= w.from_at AND f.at < w.to_at
        HAVING count(*) = 1
    ) p ON true
) a $join$;
    doubts CONSTANT text := $doubts$
CASE WHEN f.job_id IS NULL THEN '{}'::text[]
     ELSE COALESCE((
         SELECT array_remove(ARRAY[
             CASE WHEN w.start_told AND f.at < w.from_at - rdmesh_store.scheduler_slack()
                  THEN 'it came before its attempt started' END,
             CASE WHEN f.at >= w.to_at + rdmesh_store.scheduler_slack()
                  THEN 'it came after ' || CASE WHEN w.end_told THEN 'its attempt ended'
                       ELSE 'the next attempt of its job started' END END,
             CASE WHEN EXISTS (SELECT FROM rdmesh_store.placements q
                               WHERE q.job_id = w.job_id AND q.requeue = w.requeue
                                 AND q.restart = w.restart)
                   AND NOT EXISTS (SELECT FROM rdmesh_store.placements q
                                   WHERE q.job_id = w.job_id AND q.requeue = w.requeue
                                     AND q.restart = w.restart AND q.host = f.host)
                  THEN 'its attempt was not placed on this host' END], NULL)
         FROM rdmesh_store.attempt_windows w
         WHERE w.job_id = f.job_id AND w.requeue = a.requeue AND w.restart = a.restart
           AND w.told),
         CASE WHEN f.requeue = 0 AND f.restart = 0
                   AND EXISTS (SELECT FROM rdmesh_store.attempts o
                               WHERE o.job_id = f.job_id AND o.told)
              THEN ARRAY['its task names the job alone, and no attempt of it is known to have run then']
         END, '{}') END $doubts$;
BEGIN
    EXECUTE $view$
CREATE VIEW rdmesh_store.joined_failures AS
SELECT f.host, f.at, f.run_id, f.seq, f.ordinal, f.last_at, f.host_first_at, f.host_last_at,
       f.count, f.verb, f.functions, f.modules, f.layers, f.errnos, f.driver, f.device,
       f.netdev, f.pci_address, f.tgid, f.tid, f.comm, f.cgroup_path,
       f.job_id AS named_job_id, a.job_id, a.requeue, a.restart,
       f.rank, f.local_rank, a.source,
       f.expected, f.swallowed, f.incomplete, f.marks, f.arguments, $view$ || doubts || $view$ AS doubts
FROM rdmesh_store.failures f $view$ || attempt_of;
    EXECUTE $view$
CREATE VIEW rdmesh_store.joined_counts AS
SELECT f.host, f.at, f.run_id, f.seq, f.ordinal, f.function, f.module, f.layer, f.errno,
       f.cgroup_path, f.delta,
       f.job_id AS named_job_id, a.job_id, a.requeue, a.restart, a.source
FROM rdmesh_store.failure_counts f $view$ || attempt_of
        || ' WHERE f.cgroup_path IS NOT NULL';
END $views$;

-- The times in which an attempt alone was placed on a host: rows of these times that
-- nobody named are its own (rule 2 above).
CREATE VIEW rdmesh_store.sole_spans AS
SELECT p.job_id, p.requeue, p.restart, p.host, lower(s.span) AS from_at, upper(s.span) AS to_at
FROM rdmesh_store.placements p
JOIN rdmesh_store.attempt_windows w USING (job_id, requeue, restart)
CROSS JOIN LATERAL unnest(
    tstzmultirange(tstzrange(w.from_at, w.to_at)) - COALESCE((
        SELECT range_agg(tstzrange(v.from_at, v.to_at))
        FROM rdmesh_store.placements q
        JOIN rdmesh_store.attempt_windows v USING (job_id, requeue, restart)
        WHERE q.host = p.host AND (q.job_id, q.requeue, q.restart) <> (p.job_id, p.requeue, p.restart)
          AND v.from_at < w.to_at AND v.to_at > w.from_at), '{}')
) s (span);

-- The rows of the joined views that have an attempt, to count them. Asked for by job: rows
-- that name it are found by index, the others by the times in which it was alone, so that
-- no placement is looked at for each row. OFFSET 0 keeps it so: Postgres would read all
-- rows of a host and compare their times afterwards, because it takes the times in which
-- an attempt was alone for a hundred.
CREATE VIEW rdmesh_store.attempt_failures AS
SELECT f.host, f.at, f.run_id, f.seq, f.ordinal, f.functions, f.errnos, f.device, f.expected,
       f.named_job_id AS job_id, f.requeue, f.restart
FROM rdmesh_store.joined_failures f WHERE f.named_job_id IS NOT NULL
UNION ALL
SELECT s.host, f.at, f.run_id, f.seq, f.ordinal, f.functions, f.errnos, f.device, f.expected,
       s.job_id, s.requeue, s.restart
FROM rdmesh_store.sole_spans s
CROSS JOIN LATERAL (
    SELECT * FROM rdmesh_store.failures r
    WHERE r.host = s.host AND r.at >= s.from_at AND r.at < s.to_at AND r.job_id IS NULL
    OFFSET 0
) f;

CREATE VIEW rdmesh_store.attempt_counts AS
SELECT c.host, c.function, c.module, c.layer, c.errno, c.delta,
       c.named_job_id AS job_id, c.requeue, c.restart
FROM rdmesh_store.joined_counts c WHERE c.named_job_id IS NOT NULL
UNION ALL
SELECT s.host, c.function, c.module, c.layer, c.errno, c.delta,
       s.job_id, s.requeue, s.restart
FROM rdmesh_store.sole_spans s
CROSS JOIN LATERAL (
    SELECT * FROM rdmesh_store.failure_counts r
    WHERE r.host = s.host AND r.at >= s.from_at AND r.at < s.to_at
      AND r.job_id IS NULL AND r.cgroup_path IS NOT NULL
    OFFSET 0
) c;
