-- Failing calls are kept in groups instead of a row each: a group holds, as arrays, what one
-- snapshot tells of one attempt within one minute. Texts that repeat themselves stand once,
-- in dictionaries. `rdmesh_store.failures` and `failure_counts`, tables before, are views
-- that take the groups apart, so that everything above them answers as it did.
--
-- What was stored as rows is put into groups here, once; it takes some minutes for a hundred
-- million rows.
--
-- A group lies within one minute of UTC, so that a question about a time finds its groups by
-- their begin: nothing that began at T stands in a group that begins before its minute.

-- Devices of the fleet: hosts of one make name theirs alike.
CREATE TABLE rdmesh_store.devices (
    id bigint PRIMARY KEY,
    device text NOT NULL,
    netdev text NOT NULL,
    pci_address text NOT NULL,
    -- The latest week that has a group with it.
    used_at timestamptz NOT NULL
);

-- A failing function with its errno, as counters tell them.
CREATE TABLE rdmesh_store.returns (
    id bigint PRIMARY KEY,
    function text NOT NULL,
    module text NOT NULL,
    layer smallint NOT NULL,
    errno integer NOT NULL,
    used_at timestamptz NOT NULL
);

-- Of md5, as signature_id is: every collector comes to the same ids.
CREATE FUNCTION rdmesh_store.device_id(device text, netdev text, pci_address text)
    RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ('x' || substr(md5(concat_ws(E'\x1e', device, netdev, pci_address)), 1, 16)
        )::bit(64)::bigint $$;

CREATE FUNCTION rdmesh_store.return_id(function text, module text, layer smallint,
        errno integer) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ('x' || substr(md5(concat_ws(E'\x1e', function, module, layer, errno)), 1, 16)
        )::bit(64)::bigint $$;

CREATE TABLE rdmesh_store.failure_groups (
    host text NOT NULL,
    -- First and last begin of a call in it.
    at timestamptz NOT NULL,
    until timestamptz NOT NULL,
    run_id uuid NOT NULL,
    seq bigint NOT NULL,
    -- Host's own time minus collector time, microseconds; null: host_firsts, host_lasts.
    host_ahead_us bigint,
    job_id text,
    requeue bigint NOT NULL,
    restart bigint NOT NULL,
    source smallint NOT NULL,
    -- Of its first row within the snapshot; the others follow, unless ordinals tell them.
    first_ordinal integer NOT NULL,
    -- By row, 1,024 at most. Microseconds after `at`; from the first call to the last; calls.
    -- Places count from 0; a task's is that in `tgids` and what follows it.
    afters integer[] NOT NULL,
    spans integer[],
    long_spans bigint[],
    -- Both null: one call in each row.
    counts integer[],
    long_counts bigint[],
    signature_places smallint[] NOT NULL,
    task_places smallint[] NOT NULL,
    -- 1: swallowed, 2: incomplete; null: none in any row.
    flags smallint[],
    ordinals integer[],
    host_firsts timestamptz[],
    host_lasts timestamptz[],
    -- JSON by row: a list of texts; what the row's sample says. Null: none in any row.
    marks text[],
    arguments text[],
    -- The signatures that rows point to.
    signatures bigint[] NOT NULL,
    -- The tasks that rows point to. 32 bits without a sign; null: as tgids.
    tgids integer[] NOT NULL,
    tids integer[],
    ranks integer[],
    local_ranks integer[],
    -- Places in `devices` from 1, 0: none; in `texts` from 0. Null: 0 for all.
    device_places smallint[],
    comm_places smallint[],
    cgroup_places smallint[],
    devices bigint[],
    texts text[] NOT NULL
) PARTITION BY RANGE (at);
CREATE INDEX failure_groups_by_host ON rdmesh_store.failure_groups (host, at);
CREATE INDEX failure_groups_by_time ON rdmesh_store.failure_groups (at);
-- Without the time: entries of one job share their key.
CREATE INDEX failure_groups_by_job ON rdmesh_store.failure_groups (job_id)
    WHERE job_id IS NOT NULL;

-- Exact failing returns of one snapshot: of the whole host, of a cgroup, or of both where all
-- of the host's come from one cgroup.
CREATE TABLE rdmesh_store.count_groups (
    host text NOT NULL,
    at timestamptz NOT NULL,
    run_id uuid NOT NULL,
    seq bigint NOT NULL,
    -- They are the host's.
    of_host boolean NOT NULL,
    -- The cgroup whose they are; null: of none.
    cgroup_path text,
    job_id text,
    requeue bigint NOT NULL,
    restart bigint NOT NULL,
    source smallint NOT NULL,
    returns bigint[] NOT NULL,
    deltas integer[],
    long_deltas bigint[]
) PARTITION BY RANGE (at);
CREATE INDEX count_groups_by_host ON rdmesh_store.count_groups (host, at);
CREATE INDEX count_groups_by_job ON rdmesh_store.count_groups (job_id)
    WHERE job_id IS NOT NULL;

-- The snapshot of the same run and week that the body is compressed against; null: none.
ALTER TABLE rdmesh_store.snapshots ADD COLUMN reference_seq bigint;

-- Arrays are compressed where they stand and not moved out of their row, which would cost
-- more than it saves (see also rdmesh_store.compact, for each partition).
DO $storage$
DECLARE
    c record;
BEGIN
    FOR c IN SELECT attrelid::regclass AS of, attname AS name FROM pg_attribute
             WHERE attrelid IN ('rdmesh_store.failure_groups'::regclass,
                                'rdmesh_store.count_groups'::regclass)
               AND attnum > 0 AND attlen = -1 AND attname <> 'host' AND attname <> 'job_id'
    LOOP
        EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET STORAGE MAIN', c.of, c.name);
        BEGIN
            EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET COMPRESSION lz4', c.of, c.name);
        EXCEPTION WHEN feature_not_supported THEN
            NULL; -- This server was built without lz4: its own method does.
        END;
    END LOOP;
END $storage$;

-- Views that stand on the tables, as they are.
CREATE TABLE rdmesh_store.views_again AS
SELECT n AS number, v.name, pg_get_viewdef(v.name::regclass) AS definition,
       obj_description(v.name::regclass, 'pg_class') AS comment,
       (SELECT jsonb_object_agg(a.attname, col_description(a.attrelid, a.attnum))
        FROM pg_attribute a WHERE a.attrelid = v.name::regclass AND a.attnum > 0) AS columns
FROM unnest(ARRAY['rdmesh_store.probe_counts', 'rdmesh.failures', 'rdmesh.failure_totals',
                  'rdmesh.host_failure_totals', 'rdmesh.probes']) WITH ORDINALITY v (name, n);

DROP VIEW rdmesh.failures, rdmesh.failure_totals, rdmesh.host_failure_totals, rdmesh.probes,
    rdmesh_store.attempt_failures, rdmesh_store.attempt_counts, rdmesh_store.joined_failures,
    rdmesh_store.joined_counts, rdmesh_store.probe_counts;
ALTER TABLE rdmesh_store.failures RENAME TO rows_of_failures;
ALTER TABLE rdmesh_store.failure_counts RENAME TO rows_of_counts;

-- When the next attempt of a job started is kept with an attempt, and not looked for each
-- time: every question about who ran when is planned and answered in a fraction of the time.
ALTER TABLE rdmesh_store.attempts ADD COLUMN next_started_at timestamptz;
COMMENT ON COLUMN rdmesh_store.attempts.next_started_at IS
    'The first start after its own of a later attempt of its job; whoever writes a start keeps it.';
UPDATE rdmesh_store.attempts a SET next_started_at = n.started_at
FROM (SELECT e.job_id, e.requeue, e.restart, min(l.started_at) AS started_at
      FROM rdmesh_store.attempts e
      JOIN rdmesh_store.attempts l
          ON l.job_id = e.job_id AND (l.requeue, l.restart) > (e.requeue, e.restart)
             AND l.started_at > e.started_at
      GROUP BY e.job_id, e.requeue, e.restart) n
WHERE (a.job_id, a.requeue, a.restart) = (n.job_id, n.requeue, n.restart);

CREATE OR REPLACE VIEW rdmesh_store.attempt_windows AS
SELECT a.job_id, a.requeue, a.restart, a.told,
       a.started_at IS NOT NULL AS start_told, a.ended_at IS NOT NULL AS end_told,
       LEAST(COALESCE(a.started_at, a.first_told_at),
             COALESCE(a.ended_at, a.next_started_at, 'infinity')) AS from_at,
       GREATEST(COALESCE(a.started_at, a.first_told_at),
                COALESCE(a.ended_at, a.next_started_at, 'infinity')) AS to_at
FROM rdmesh_store.attempts a;

DO $views$
DECLARE
    -- Rows of a group `g`.
    rows_of CONSTANT text := $rows$
CROSS JOIN LATERAL unnest(g.afters, g.spans, g.long_spans, g.counts, g.long_counts,
        g.signature_places, g.task_places, g.flags, g.ordinals, g.host_firsts, g.host_lasts,
        g.marks, g.arguments)
    WITH ORDINALITY c (after, span, long_span, count, long_count, signature_place, task_place,
                       flags, ordinal, host_first_at, host_last_at, marks, arguments, place)
CROSS JOIN LATERAL (SELECT g.at + c.after * interval '1 microsecond' AS at,
                           1 + c.task_place AS task) m
LEFT JOIN rdmesh_store.signatures s
    ON s.id = g.signatures[1 + c.signature_place]
LEFT JOIN rdmesh_store.devices d
    ON d.id = g.devices[g.device_places[m.task]] $rows$;
    -- The attempt of what a group `g` says of {at}, and why it may be another one's: the
    -- rules of 0003.
    attempt_of CONSTANT text := $join$
CROSS JOIN LATERAL (
    SELECT COALESCE(g.job_id, p.job_id) AS job_id,
           CASE WHEN g.job_id IS NULL THEN p.requeue
                ELSE COALESCE(n.requeue, g.requeue) END AS requeue,
           CASE WHEN g.job_id IS NULL THEN p.restart
                ELSE COALESCE(n.restart, g.restart) END AS restart,
           CASE WHEN g.job_id IS NOT NULL THEN g.source
                WHEN p.job_id IS NOT NULL THEN 3 ELSE 4 END::smallint AS source
    FROM (SELECT 1) one_row
    LEFT JOIN LATERAL (
        SELECT w.requeue, w.restart
        FROM rdmesh_store.attempt_windows w
        LEFT JOIN rdmesh_store.placements q
            ON q.host = g.host AND q.job_id = w.job_id
               AND q.requeue = w.requeue AND q.restart = w.restart
        WHERE g.job_id IS NOT NULL AND g.requeue = 0 AND g.restart = 0
          AND w.job_id = g.job_id AND w.told AND {at} >= w.from_at AND {at} < w.to_at
        ORDER BY q.host IS NOT NULL DESC,
                 CASE WHEN g.source = 2 AND q.host IS NOT NULL THEN w.from_at END DESC,
                 w.requeue = 0 AND w.restart = 0
                     AND NOT (g.source = 2 AND q.host IS NOT NULL) DESC,
                 w.requeue DESC, w.restart DESC
        LIMIT 1
    ) n ON true
    LEFT JOIN LATERAL (
        SELECT min(q.job_id) AS job_id, min(q.requeue) AS requeue, min(q.restart) AS restart
        FROM rdmesh_store.placements q
        JOIN rdmesh_store.attempt_windows w USING (job_id, requeue, restart)
        WHERE g.job_id IS NULL AND q.host = g.host AND {at} >= w.from_at AND {at} < w.to_at
        HAVING count(*) = 1
    ) p ON true
) a $join$;
    doubts CONSTANT text := $doubts$
CASE WHEN g.job_id IS NULL THEN '{}'::text[]
     ELSE COALESCE((
         SELECT array_remove(ARRAY[
             CASE WHEN w.start_told AND {at} < w.from_at - rdmesh_store.scheduler_slack()
                  THEN 'it came before its attempt started' END,
             CASE WHEN {at} >= w.to_at + rdmesh_store.scheduler_slack()
                  THEN 'it came after ' || CASE WHEN w.end_told THEN 'its attempt ended'
                       ELSE 'the next attempt of its job started' END END,
             CASE WHEN EXISTS (SELECT FROM rdmesh_store.placements q
                               WHERE q.job_id = w.job_id AND q.requeue = w.requeue
                                 AND q.restart = w.restart)
                   AND NOT EXISTS (SELECT FROM rdmesh_store.placements q
                                   WHERE q.job_id = w.job_id AND q.requeue = w.requeue
                                     AND q.restart = w.restart AND q.host = g.host)
                  THEN 'its attempt was not placed on this host' END], NULL)
         FROM rdmesh_store.attempt_windows w
         WHERE w.job_id = g.job_id AND w.requeue = a.requeue AND w.restart = a.restart
           AND w.told),
         CASE WHEN g.requeue = 0 AND g.restart = 0
                   AND EXISTS (SELECT FROM rdmesh_store.attempts o
                               WHERE o.job_id = g.job_id AND o.told)
              THEN ARRAY['its task names the job alone, and no attempt of it is known to have run then']
         END, '{}') END $doubts$;
    columns CONSTANT text := $columns$
       g.host, m.at, g.run_id, g.seq,
       COALESCE(c.ordinal, g.first_ordinal + c.place::integer - 1) AS ordinal,
       m.at + COALESCE(c.span, c.long_span, 0) * interval '1 microsecond' AS last_at,
       COALESCE(c.host_first_at, m.at + g.host_ahead_us * interval '1 microsecond')
           AS host_first_at,
       COALESCE(c.host_last_at,
                m.at + (COALESCE(c.span, c.long_span, 0) + g.host_ahead_us)
                       * interval '1 microsecond') AS host_last_at,
       COALESCE(c.count, c.long_count, 1) AS count,
       s.verb, s.functions, s.modules, s.layers, s.errnos, s.driver,
       COALESCE(d.device, '') AS device, COALESCE(d.netdev, '') AS netdev,
       COALESCE(d.pci_address, '') AS pci_address,
       g.tgids[m.task]::bigint & 4294967295 AS tgid,
       COALESCE(g.tids[m.task], g.tgids[m.task])::bigint & 4294967295 AS tid,
       g.texts[1 + COALESCE(g.comm_places[m.task], 0)] AS comm,
       g.texts[1 + COALESCE(g.cgroup_places[m.task], 0)] AS cgroup_path,
       g.job_id$job$, g.ranks[m.task] AS rank, g.local_ranks[m.task] AS local_rank,
       $source$ AS source, s.expected,
       COALESCE(c.flags, 0) & 1 <> 0 AS swallowed, COALESCE(c.flags, 0) & 2 <> 0 AS incomplete,
       CASE WHEN c.marks IS NULL THEN '{}'::text[]
            ELSE ARRAY(SELECT jsonb_array_elements_text(c.marks::jsonb)) END AS marks,
       c.arguments::jsonb AS arguments $columns$;
BEGIN
    EXECUTE 'CREATE VIEW rdmesh_store.failures AS SELECT'
        || replace(replace(columns, '$job$', ', g.requeue, g.restart'), '$source$', 'g.source')
        || ', g.at AS group_at, g.until AS group_until FROM rdmesh_store.failure_groups g'
        || rows_of;
    EXECUTE 'CREATE VIEW rdmesh_store.joined_failures AS SELECT'
        || replace(replace(columns, '$job$',
                           ' AS named_job_id, a.job_id, a.requeue, a.restart'),
                   '$source$', 'a.source')
        || ', ' || replace(doubts, '{at}', 'm.at') || ' AS doubts, g.at AS group_at, g.until AS group_until
FROM rdmesh_store.failure_groups g' || rows_of || replace(attempt_of, '{at}', 'm.at');
    EXECUTE 'CREATE VIEW rdmesh_store.joined_counts AS
SELECT g.host, g.at, g.run_id, g.seq, c.place::integer AS ordinal, f.function, f.module, f.layer,
       f.errno, g.cgroup_path, COALESCE(c.delta, c.long_delta) AS delta,
       g.job_id AS named_job_id, a.job_id, a.requeue, a.restart, a.source
FROM rdmesh_store.count_groups g
CROSS JOIN LATERAL unnest(g.returns, g.deltas, g.long_deltas)
    WITH ORDINALITY c (return_id, delta, long_delta, place)
LEFT JOIN rdmesh_store.returns f ON f.id = c.return_id' || replace(attempt_of, '{at}', 'g.at') || '
WHERE g.cgroup_path IS NOT NULL';
END $views$;

CREATE VIEW rdmesh_store.failure_counts AS
SELECT g.host, g.at, g.run_id, g.seq, c.place::integer AS ordinal,
       r.function, r.module, r.layer, r.errno,
       NULL::text AS cgroup_path, NULL::text AS job_id, 0::bigint AS requeue,
       0::bigint AS restart, 0::smallint AS source,
       COALESCE(c.delta, c.long_delta) AS delta
FROM rdmesh_store.count_groups g
CROSS JOIN LATERAL unnest(g.returns, g.deltas, g.long_deltas)
    WITH ORDINALITY c (return_id, delta, long_delta, place)
LEFT JOIN rdmesh_store.returns r ON r.id = c.return_id
WHERE g.of_host
UNION ALL
SELECT g.host, g.at, g.run_id, g.seq, c.place::integer,
       r.function, r.module, r.layer, r.errno,
       g.cgroup_path, g.job_id, g.requeue, g.restart, g.source,
       COALESCE(c.delta, c.long_delta)
FROM rdmesh_store.count_groups g
CROSS JOIN LATERAL unnest(g.returns, g.deltas, g.long_deltas)
    WITH ORDINALITY c (return_id, delta, long_delta, place)
LEFT JOIN rdmesh_store.returns r ON r.id = c.return_id
WHERE g.cgroup_path IS NOT NULL;

DO $again$
DECLARE
    v record;
    c record;
BEGIN
    FOR v IN SELECT * FROM rdmesh_store.views_again ORDER BY number LOOP
        EXECUTE format('CREATE VIEW %s AS %s', v.name, v.definition);
        IF v.comment IS NOT NULL THEN
            EXECUTE format('COMMENT ON VIEW %s IS %L', v.name, v.comment);
        END IF;
        FOR c IN SELECT key, value FROM jsonb_each_text(v.columns) WHERE value IS NOT NULL LOOP
            EXECUTE format('COMMENT ON COLUMN %s.%I IS %L', v.name, c.key, c.value);
        END LOOP;
    END LOOP;
END $again$;
DROP TABLE rdmesh_store.views_again;

-- As in 0003, but that groups are found by the times in which an attempt was alone.
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
      AND r.group_at > s.from_at - interval '1 minute' AND r.group_at < s.to_at
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

-- What was stored as rows, week by week.
INSERT INTO rdmesh_store.devices
SELECT rdmesh_store.device_id(device, netdev, pci_address), device, netdev, pci_address, max(at)
FROM rdmesh_store.rows_of_failures
WHERE device <> '' OR netdev <> '' OR pci_address <> ''
GROUP BY device, netdev, pci_address
ON CONFLICT (id) DO NOTHING;

INSERT INTO rdmesh_store.returns
SELECT rdmesh_store.return_id(function, module, layer, errno), function, module, layer, errno,
       max(at)
FROM rdmesh_store.rows_of_counts GROUP BY function, module, layer, errno
ON CONFLICT (id) DO NOTHING;

INSERT INTO rdmesh_store.signatures
SELECT rdmesh_store.signature_id(driver, verb, expected, functions, modules, layers, errnos),
       driver, verb, expected, functions, modules, layers, errnos
FROM (SELECT DISTINCT driver, verb, expected, functions, modules, layers, errnos
      FROM rdmesh_store.rows_of_failures) f
ON CONFLICT (id) DO NOTHING;

-- As a number without a sign is kept.
CREATE FUNCTION rdmesh_store.as_int4(number bigint) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT (CASE WHEN number > 2147483647 THEN number - 4294967296 ELSE number END)::integer $$;
CREATE FUNCTION rdmesh_store.microseconds(span interval) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT (EXTRACT(epoch FROM span) * 1000000)::bigint $$;

DO $convert$
DECLARE
    week record;
BEGIN
    FOR week IN
        SELECT c.relname AS old, replace(c.relname, 'failures_', 'failure_groups_') AS name,
               pg_get_expr(c.relpartbound, c.oid) AS bound
        FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'rdmesh_store.rows_of_failures'::regclass
    LOOP
        EXECUTE format('CREATE TABLE rdmesh_store.%I PARTITION OF rdmesh_store.failure_groups %s
                        WITH (toast_tuple_target = 128)', week.name, week.bound);
        EXECUTE format($sql$
INSERT INTO rdmesh_store.failure_groups
    (host, at, until, run_id, seq, host_ahead_us, job_id, requeue, restart, source,
     first_ordinal, afters, spans, long_spans, counts, long_counts, signature_places,
     task_places, flags, ordinals, host_firsts, host_lasts, marks, arguments, signatures, tgids,
     tids, ranks, local_ranks, device_places, comm_places, cgroup_places, devices, texts)
SELECT host, group_at, max(at), run_id, seq,
       CASE WHEN bool_and(ahead = least_ahead AND last_ahead = least_ahead)
            THEN min(least_ahead) END,
       job_id, requeue, restart, source, min(ordinal),
       array_agg(rdmesh_store.microseconds(at - group_at)::integer ORDER BY ordinal),
       CASE WHEN max(span) <= 2147483647 THEN array_agg(CASE WHEN span <= 2147483647 THEN span::integer END ORDER BY ordinal) END,
       CASE WHEN max(span) > 2147483647 THEN array_agg(span ORDER BY ordinal) END,
       CASE WHEN max(count) BETWEEN 2 AND 2147483647
            THEN array_agg(CASE WHEN count <= 2147483647 THEN count::integer END ORDER BY ordinal) END,
       CASE WHEN max(count) > 2147483647 THEN array_agg(count ORDER BY ordinal) END,
       array_agg((signature - 1)::smallint ORDER BY ordinal),
       array_agg((task - 1)::smallint ORDER BY ordinal),
       CASE WHEN bool_or(swallowed OR incomplete)
            THEN array_agg((swallowed::integer + 2 * incomplete::integer)::smallint
                           ORDER BY ordinal) END,
       CASE WHEN max(ordinal) - min(ordinal) + 1 <> count(*)
            THEN array_agg(ordinal ORDER BY ordinal) END,
       CASE WHEN NOT bool_and(ahead = least_ahead AND last_ahead = least_ahead)
            THEN array_agg(host_first_at ORDER BY ordinal) END,
       CASE WHEN NOT bool_and(ahead = least_ahead AND last_ahead = least_ahead)
            THEN array_agg(host_last_at ORDER BY ordinal) END,
       CASE WHEN bool_or(marks <> '{}')
            THEN array_agg(CASE WHEN marks <> '{}' THEN to_json(marks)::text END
                           ORDER BY ordinal) END,
       CASE WHEN bool_or(arguments IS NOT NULL)
            THEN array_agg(arguments::text ORDER BY ordinal) END,
       array_agg(signature_id ORDER BY signature) FILTER (WHERE of_signature = 1),
       array_agg(rdmesh_store.as_int4(tgid) ORDER BY task) FILTER (WHERE of_task = 1),
       array_agg(rdmesh_store.as_int4(tid) ORDER BY task) FILTER (WHERE of_task = 1),
       array_agg(rank ORDER BY task) FILTER (WHERE of_task = 1),
       array_agg(local_rank ORDER BY task) FILTER (WHERE of_task = 1),
       array_agg(CASE WHEN device_id IS NULL THEN 0 ELSE device_place END::smallint
                 ORDER BY task) FILTER (WHERE of_task = 1),
       array_agg((comm_place - 1)::smallint ORDER BY task) FILTER (WHERE of_task = 1),
       array_agg((comms + cgroup_place - 1)::smallint ORDER BY task)
           FILTER (WHERE of_task = 1),
       array_agg(device_id ORDER BY device_place)
           FILTER (WHERE of_device = 1 AND device_id IS NOT NULL),
       array_agg(comm ORDER BY comm_place) FILTER (WHERE of_comm = 1)
           || array_agg(cgroup_path ORDER BY cgroup_place) FILTER (WHERE of_cgroup = 1)
FROM (
    SELECT p.*, max(comm_place) OVER whole AS comms, min(at) OVER whole AS group_at,
           min(ahead) OVER whole AS least_ahead
    FROM (
        SELECT k.*,
               rdmesh_store.microseconds(last_at - at) AS span,
               rdmesh_store.microseconds(host_first_at - at) AS ahead,
               rdmesh_store.microseconds(host_last_at - last_at) AS last_ahead,
               dense_rank() OVER (whole ORDER BY signature_id) AS signature,
               row_number() OVER (whole_signature) AS of_signature,
               dense_rank() OVER (whole ORDER BY tgid, tid, comm, cgroup_path, rank, local_rank,
                                                 device_id) AS task,
               row_number() OVER (whole_task) AS of_task,
               dense_rank() OVER (whole ORDER BY device_id NULLS LAST) AS device_place,
               row_number() OVER (whole_device) AS of_device,
               dense_rank() OVER (whole ORDER BY comm) AS comm_place,
               row_number() OVER (whole_comm) AS of_comm,
               dense_rank() OVER (whole ORDER BY cgroup_path) AS cgroup_place,
               row_number() OVER (whole_cgroup) AS of_cgroup
        FROM (
            SELECT f.*, date_trunc('minute', f.at, 'UTC') AS minute, f.ordinal / 1024 AS chunk,
                   rdmesh_store.signature_id(f.driver, f.verb, f.expected, f.functions,
                                             f.modules, f.layers, f.errnos) AS signature_id,
                   CASE WHEN f.device <> '' OR f.netdev <> '' OR f.pci_address <> ''
                        THEN rdmesh_store.device_id(f.device, f.netdev, f.pci_address)
                   END AS device_id
            FROM rdmesh_store.%I f) k
        WINDOW whole AS (PARTITION BY host, run_id, seq, minute, chunk, job_id, requeue, restart,
                                      source),
            whole_signature AS (PARTITION BY host, run_id, seq, minute, chunk, job_id, requeue, restart,
                                source, signature_id),
            whole_task AS (PARTITION BY host, run_id, seq, minute, chunk, job_id, requeue, restart,
                           source, tgid, tid, comm, cgroup_path, rank, local_rank, device_id),
            whole_device AS (PARTITION BY host, run_id, seq, minute, chunk, job_id, requeue, restart,
                             source, device_id),
            whole_comm AS (PARTITION BY host, run_id, seq, minute, chunk, job_id, requeue, restart,
                           source, comm),
            whole_cgroup AS (PARTITION BY host, run_id, seq, minute, chunk, job_id, requeue, restart,
                             source, cgroup_path)) p
    WINDOW whole AS (PARTITION BY host, run_id, seq, minute, chunk, job_id, requeue, restart, source)
) g
GROUP BY host, run_id, seq, minute, chunk, job_id, requeue, restart, source, group_at $sql$, week.old);
    END LOOP;
    FOR week IN
        SELECT c.relname AS old, replace(c.relname, 'failure_counts_', 'count_groups_') AS name,
               pg_get_expr(c.relpartbound, c.oid) AS bound
        FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'rdmesh_store.rows_of_counts'::regclass
    LOOP
        EXECUTE format('CREATE TABLE rdmesh_store.%I PARTITION OF rdmesh_store.count_groups %s
                        WITH (toast_tuple_target = 128)', week.name, week.bound);
        EXECUTE format($sql$
INSERT INTO rdmesh_store.count_groups
    (host, at, run_id, seq, of_host, cgroup_path, job_id, requeue, restart, source, returns,
     deltas, long_deltas)
SELECT host, at, run_id, seq, cgroup_path IS NULL, cgroup_path, job_id, requeue, restart, source,
       array_agg(rdmesh_store.return_id(function, module, layer, errno) ORDER BY ordinal),
       CASE WHEN max(delta) <= 2147483647 THEN array_agg(CASE WHEN delta <= 2147483647 THEN delta::integer END ORDER BY ordinal) END,
       CASE WHEN max(delta) > 2147483647 THEN array_agg(delta ORDER BY ordinal) END
FROM rdmesh_store.%I
GROUP BY host, at, run_id, seq, cgroup_path, job_id, requeue, restart, source $sql$, week.old);
    END LOOP;
END $convert$;

DROP TABLE rdmesh_store.rows_of_failures, rdmesh_store.rows_of_counts;
DROP FUNCTION rdmesh_store.as_int4(bigint),
    rdmesh_store.microseconds(interval);
