-- What a fleet asks: incidents, what foretold a failure, and whether a class rises.
--
-- Functions that look at tables run with their owner's rights: who asks may read nothing
-- but what they answer.

-- What a host is, fact by fact, from when on.
CREATE VIEW rdmesh_store.host_facts AS
SELECT i.host, i.seen_at, i.id, f.fact, f.value
FROM rdmesh_store.inventories i
CROSS JOIN LATERAL (
    SELECT 'kernel', i.kernel_release
    UNION ALL SELECT 'OFED', i.ofed_version
    UNION ALL SELECT 'GPU driver', i.gpu_driver
    UNION SELECT 'driver of ' || (d ->> 'driver'), d ->> 'driver_version'
        FROM jsonb_array_elements(i.summary -> 'devices') d
    UNION SELECT 'firmware of ' || (d ->> 'driver'), d ->> 'firmware_version'
        FROM jsonb_array_elements(i.summary -> 'devices') d
    UNION ALL SELECT 'peer memory', COALESCE(NULLIF((
        SELECT string_agg(m, ', ' ORDER BY m)
        FROM jsonb_array_elements_text(NULLIF(i.summary -> 'peer_memory', 'null')) m), ''), 'none')
    UNION ALL SELECT 'dmabuf', i.summary ->> 'dmabuf'
    UNION ALL SELECT 'IOMMU', i.summary ->> 'iommu'
    UNION ALL SELECT 'ACS bridges', i.summary ->> 'acs_bridges'
    UNION ALL SELECT 'RLIMIT_MEMLOCK', COALESCE(i.summary ->> 'memlock_bytes', 'unlimited')
) f (fact, value)
WHERE f.value <> '';

-- What hosts with a signature in that time share and those without it lack: a fact that
-- nine of ten have, and whose share among the others is lower by 50 points or more. `since`: when
-- the first of them got it, where one of them had been otherwise before.
CREATE FUNCTION rdmesh.shared_by(signature bigint, from_at timestamptz, to_at timestamptz)
    RETURNS TABLE (fact text, value text, since timestamptz, failing bigint, failing_of bigint,
                   healthy bigint, healthy_of bigint)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    WITH failing AS MATERIALIZED (
        SELECT h.host, min(h.first_at) AS at FROM rdmesh_store.signature_hours h
        WHERE h.signature_id = signature AND h.last_at >= from_at AND h.first_at <= to_at
          AND h.at >= date_trunc('hour', from_at, 'UTC') AND h.at <= to_at
        GROUP BY h.host
    ), looked AS MATERIALIZED (
        SELECT host, at, true AS fails FROM failing
        UNION ALL
        SELECT DISTINCT r.host, to_at, false FROM rdmesh_store.agent_runs r
        -- A tracer that starts within an hour after tells of its host all the same.
        WHERE r.agent = 1 AND r.last_seen_at >= from_at
          AND r.first_hello_at <= to_at + interval '1 hour'
          AND NOT EXISTS (SELECT FROM failing f WHERE f.host = r.host)
    ), in_force AS MATERIALIZED (
        SELECT l.host, l.fails, i.seen_at, i.id
        FROM looked l
        CROSS JOIN LATERAL (
            SELECT i.seen_at, i.id FROM rdmesh_store.inventories i WHERE i.host = l.host
            ORDER BY i.seen_at > l.at,
                     CASE WHEN i.seen_at <= l.at THEN i.seen_at END DESC NULLS LAST, i.seen_at
            LIMIT 1) i
    ), counted AS (
        SELECT f.fact, f.value, count(DISTINCT n.host) FILTER (WHERE n.fails) AS failing,
               count(DISTINCT n.host) FILTER (WHERE NOT n.fails) AS healthy
        FROM in_force n JOIN rdmesh_store.host_facts f USING (host, seen_at, id)
        GROUP BY f.fact, f.value
    ), whole AS (
        SELECT count(*) FILTER (WHERE n.fails) AS failing,
               count(*) FILTER (WHERE NOT n.fails) AS healthy
        FROM in_force n
    ), changed AS (
        SELECT b.fact, b.value, min(b.at) AS at
        FROM (SELECT f.fact, f.value, f.host, min(f.seen_at) AS at
              FROM rdmesh_store.host_facts f JOIN failing USING (host)
              GROUP BY f.fact, f.value, f.host) b
        WHERE b.at > (SELECT min(i.seen_at) FROM rdmesh_store.inventories i
                      WHERE i.host = b.host)
        GROUP BY b.fact, b.value
    )
    SELECT c.fact, c.value, h.at, c.failing, w.failing, c.healthy, w.healthy
    FROM counted c CROSS JOIN whole w LEFT JOIN changed h USING (fact, value)
    WHERE w.healthy > 0 AND c.failing * 10 >= w.failing * 9
      AND c.failing::float8 / w.failing - c.healthy::float8 / w.healthy >= 0.5
    ORDER BY c.failing::float8 / w.failing - c.healthy::float8 / w.healthy DESC,
             h.at IS NULL, c.fact, c.value
    LIMIT 8 $$;

-- A signature on many hosts: an incident begins where it had been silent for a day. Hosts
-- of one job alone are its own affair unless it has many.
CREATE FUNCTION rdmesh_store.incidents(from_at timestamptz, to_at timestamptz, signature bigint)
    RETURNS TABLE (signature_id bigint, first_at timestamptz, last_at timestamptz, hosts bigint,
                   attempts bigint, calls bigint, first_hosts text[])
    LANGUAGE sql STABLE AS $$
    WITH hours AS (
        SELECT h.signature_id, h.at, min(h.first_at) AS first_at, max(h.last_at) AS last_at
        FROM rdmesh_store.signature_hours h
        -- Not `signature IS NULL OR …`, which no index serves.
        WHERE h.signature_id = ANY (CASE WHEN signature IS NULL
                  THEN ARRAY(SELECT s.id FROM rdmesh_store.signatures s WHERE NOT s.expected)
                  ELSE ARRAY[signature] END)
          AND h.at >= COALESCE(from_at, '-infinity') AND h.at < COALESCE(to_at, 'infinity')
        GROUP BY h.signature_id, h.at
    ), begun AS (
        SELECT h.*, h.at - lag(h.at) OVER (PARTITION BY h.signature_id ORDER BY h.at)
                    <= interval '24 hours' AS goes_on
        FROM hours h
    ), numbered AS (
        SELECT b.*, count(*) FILTER (WHERE b.goes_on IS NOT TRUE)
                        OVER (PARTITION BY b.signature_id ORDER BY b.at) AS number
        FROM begun b
    ), spans AS MATERIALIZED (
        SELECT n.signature_id, min(n.first_at) AS first_at, max(n.last_at) AS last_at,
               min(n.at) AS from_hour, max(n.at) AS to_hour
        FROM numbered n JOIN rdmesh_store.signatures s ON s.id = n.signature_id
        WHERE NOT s.expected
        GROUP BY n.signature_id, n.number
    )
    SELECT p.signature_id, p.first_at, p.last_at, c.hosts, a.attempts, c.calls, c.first_hosts
    FROM spans p
    CROSS JOIN LATERAL (
        SELECT count(*) AS hosts, rdmesh_store.bounded(sum(o.calls)) AS calls,
               (array_agg(o.host ORDER BY o.host))[1:4] AS first_hosts
        FROM (SELECT h.host, sum(h.calls) AS calls
              FROM rdmesh_store.signature_hours h
              WHERE h.signature_id = p.signature_id AND h.at BETWEEN p.from_hour AND p.to_hour
              GROUP BY h.host) o
    ) c
    CROSS JOIN LATERAL (
        -- Without attempt_windows, whose rows cost a look at the job's next attempt each.
        SELECT count(DISTINCT (w.job_id, w.requeue, w.restart)) AS attempts
        FROM (SELECT h.host, min(h.first_at) AS at FROM rdmesh_store.signature_hours h
              WHERE c.hosts >= 8 AND h.signature_id = p.signature_id
                AND h.at BETWEEN p.from_hour AND p.to_hour
              GROUP BY h.host) f
        JOIN rdmesh_store.placements q ON q.host = f.host
        JOIN rdmesh_store.attempts w USING (job_id, requeue, restart)
        WHERE f.at >= COALESCE(w.started_at, w.first_told_at)
          AND f.at < COALESCE(w.ended_at, 'infinity')
    ) a
    WHERE c.hosts >= 8 $$;

CREATE FUNCTION rdmesh.incidents_in(from_at timestamptz, to_at timestamptz)
    RETURNS TABLE (signature_id bigint, first_at timestamptz, last_at timestamptz, verb text,
                   function text, module text, layer text, errno integer, errno_name text,
                   driver text, functions text[], errnos integer[], hosts bigint,
                   attempts bigint, calls bigint, first_hosts text[], shared text[])
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT i.signature_id, i.first_at, i.last_at, rdmesh_store.verb_name(s.verb), s.functions[1],
           s.modules[1], rdmesh_store.layer_name(s.layers[1]), s.errnos[1],
           COALESCE((SELECT n.name FROM rdmesh_store.errnos n WHERE n.errno = s.errnos[1]),
                    'errno ' || s.errnos[1]),
           s.driver, s.functions, s.errnos, i.hosts, i.attempts, i.calls, i.first_hosts,
           ARRAY(SELECT b.fact || ' is ' || b.value
                        || COALESCE(' since ' || to_char(b.since AT TIME ZONE 'UTC',
                                                         'YYYY-MM-DD HH24:MI"Z"'), '')
                        || ': ' || b.failing || ' of ' || b.failing_of || ' failing hosts, '
                        || b.healthy || ' of ' || b.healthy_of || ' others'
                 FROM rdmesh.shared_by(i.signature_id, i.first_at, i.last_at) b)
    FROM rdmesh_store.incidents(from_at, to_at, NULL) i
    JOIN rdmesh_store.signatures s ON s.id = i.signature_id
    ORDER BY i.hosts DESC, i.first_at, i.signature_id $$;

-- Failing calls of the whole fleet by signature, from sums by hour: of a month as fast as of
-- a day. Hours count as a whole.
CREATE FUNCTION rdmesh.signature_totals_in(from_at timestamptz, to_at timestamptz)
    RETURNS TABLE (verb text, function text, module text, layer text, errno integer,
                   errno_name text, driver text, functions text[], errnos integer[],
                   expected boolean, hosts bigint, calls bigint, first_at timestamptz,
                   last_at timestamptz)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT rdmesh_store.verb_name(s.verb), s.functions[1], s.modules[1],
           rdmesh_store.layer_name(s.layers[1]), s.errnos[1],
           COALESCE((SELECT n.name FROM rdmesh_store.errnos n WHERE n.errno = s.errnos[1]),
                    'errno ' || s.errnos[1]),
           s.driver, s.functions, s.errnos, s.expected, t.hosts, t.calls, t.first_at, t.last_at
    FROM (SELECT o.signature_id, count(*) AS hosts,
                 rdmesh_store.bounded(sum(o.calls)) AS calls,
                 min(o.first_at) AS first_at, max(o.last_at) AS last_at
          -- Hosts first: counting distinct ones sorts every row.
          FROM (SELECT h.signature_id, h.host, sum(h.calls) AS calls,
                       min(h.first_at) AS first_at, max(h.last_at) AS last_at
                FROM rdmesh_store.signature_hours h
                WHERE h.at >= COALESCE(date_trunc('hour', from_at, 'UTC'), '-infinity')
                  AND h.at < COALESCE(to_at, 'infinity')
                GROUP BY h.signature_id, h.host) o
          GROUP BY o.signature_id) t
    JOIN rdmesh_store.signatures s ON s.id = t.signature_id
    ORDER BY t.calls DESC, s.id $$;

-- A signature that rose on a host before an attempt failed of it there.
CREATE FUNCTION rdmesh.precursors_in(from_at timestamptz, to_at timestamptz)
    RETURNS TABLE (job_id text, requeue bigint, restart bigint, host text, function text,
                   errno integer, errno_name text, rose_at timestamptz, failed_at timestamptz,
                   lead_seconds float8, calls_day_before bigint, calls_day_earlier bigint)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT v.job_id, v.requeue, v.restart, o.host, v.function, v.errno, v.errno_name,
           r.rose_at, v.first_at, EXTRACT(epoch FROM v.first_at - r.rose_at)::float8,
           r.day_before, r.day_earlier
    FROM rdmesh.judged_attempts j
    JOIN rdmesh_store.verdicts v USING (job_id, requeue, restart)
    CROSS JOIN LATERAL unnest(v.hosts) o (host)
    CROSS JOIN LATERAL (
        SELECT min(h.first_at) FILTER (WHERE h.at >= b.begins - interval '24 hours') AS rose_at,
               COALESCE(rdmesh_store.bounded(sum(h.calls)
                   FILTER (WHERE h.at >= b.begins - interval '24 hours')), 0) AS day_before,
               COALESCE(rdmesh_store.bounded(sum(h.calls)
                   FILTER (WHERE h.at < b.begins - interval '24 hours')), 0) AS day_earlier
        FROM (SELECT LEAST(COALESCE(j.started_at, v.first_at), v.first_at) AS begins) b
        JOIN rdmesh_store.signature_hours h
            ON h.host = o.host AND h.last_at < b.begins
               AND h.at >= b.begins - interval '48 hours' AND h.at < b.begins
        JOIN rdmesh_store.signatures s ON s.id = h.signature_id
        WHERE s.functions[1] = v.function AND s.errnos[1] = v.errno
    ) r
    WHERE j.told_by = 'kernel' AND v.first_at IS NOT NULL
      AND j.ended_at >= COALESCE(from_at, '-infinity') AND j.ended_at < COALESCE(to_at, 'infinity')
      AND r.day_before > 2 * r.day_earlier
    ORDER BY v.first_at DESC, v.job_id, v.requeue, v.restart, o.host $$;

-- Each class's share by step: hour, day, week or month, of UTC.
CREATE FUNCTION rdmesh.classes_in(from_at timestamptz, to_at timestamptz, step text)
    RETURNS TABLE (step_at timestamptz, class text, attempts bigint, gpu_hours float8,
                   of_attempts float8, of_gpu_hours float8, unmeasured bigint)
    LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT g.step_at, g.class, g.attempts, g.gpu_hours::float8,
           (g.attempts / NULLIF(sum(g.attempts) OVER (PARTITION BY g.step_at), 0))::float8,
           (g.gpu_hours / NULLIF(sum(g.gpu_hours) OVER (PARTITION BY g.step_at), 0))::float8,
           g.unmeasured
    FROM (SELECT date_trunc(step, j.ended_at, 'UTC') AS step_at, j.lost_class AS class,
                 count(*) AS attempts, COALESCE(sum(j.lost_gpu_hours), 0) AS gpu_hours,
                 count(*) FILTER (WHERE j.lost_gpu_hours IS NULL) AS unmeasured
          FROM rdmesh.judged_attempts j
          WHERE j.diagnosed
            AND j.ended_at >= COALESCE(from_at, '-infinity') AND j.ended_at < COALESCE(to_at, 'infinity')
          GROUP BY 1, 2) g
    ORDER BY g.step_at, g.attempts DESC, g.class $$;

-- The earlier half of the steps against the later half: a class rises, or falls, where its
-- shares differ by more than twice the error that so many attempts leave.
CREATE FUNCTION rdmesh.class_trends_in(from_at timestamptz, to_at timestamptz, step text)
    RETURNS TABLE (class text, attempts bigint, of_attempts float8, earlier float8, later float8,
                   trend text)
    LANGUAGE sql STABLE PARALLEL SAFE AS $$
    WITH rows AS MATERIALIZED (
        SELECT c.step_at, c.class, c.attempts FROM rdmesh.classes_in(from_at, to_at, step) c
    ), halves AS (
        SELECT s.step_at, ntile(2) OVER (ORDER BY s.step_at) AS half
        FROM (SELECT DISTINCT step_at FROM rows) s
    ), whole AS (
        SELECT sum(r.attempts) FILTER (WHERE h.half = 1)::float8 AS first,
               sum(r.attempts) FILTER (WHERE h.half = 2)::float8 AS second
        FROM rows r JOIN halves h USING (step_at)
    ), parts AS (
        SELECT r.class, sum(r.attempts) AS attempts,
               COALESCE(sum(r.attempts) FILTER (WHERE h.half = 1), 0)::float8 AS first,
               COALESCE(sum(r.attempts) FILTER (WHERE h.half = 2), 0)::float8 AS second
        FROM rows r JOIN halves h USING (step_at) GROUP BY r.class
    ), shares AS (
        SELECT p.class, p.attempts, w.first + COALESCE(w.second, 0) AS of,
               p.first / NULLIF(w.first, 0) AS earlier, p.second / NULLIF(w.second, 0) AS later,
               (p.first + p.second) / NULLIF(w.first + w.second, 0) AS share,
               1 / NULLIF(w.first, 0) + 1 / NULLIF(w.second, 0) AS weight
        FROM parts p CROSS JOIN whole w
    )
    SELECT s.class, s.attempts::bigint, (s.attempts / NULLIF(s.of, 0))::float8, s.earlier, s.later,
           CASE WHEN s.share IS NULL OR s.share IN (0, 1) THEN 'steady'
                WHEN s.later - s.earlier > 2 * sqrt(s.share * (1 - s.share) * s.weight)
                THEN 'rises'
                WHEN s.earlier - s.later > 2 * sqrt(s.share * (1 - s.share) * s.weight)
                THEN 'falls'
                ELSE 'steady' END
    FROM shares s ORDER BY s.attempts DESC, s.class $$;

CREATE VIEW rdmesh.signature_totals AS SELECT * FROM rdmesh.signature_totals_in(NULL, NULL);
CREATE VIEW rdmesh.incidents AS SELECT * FROM rdmesh.incidents_in(NULL, NULL);
CREATE VIEW rdmesh.precursors AS SELECT * FROM rdmesh.precursors_in(NULL, NULL);
CREATE VIEW rdmesh.classes AS SELECT * FROM rdmesh.classes_in(NULL, NULL, 'week');
CREATE VIEW rdmesh.class_trends AS SELECT * FROM rdmesh.class_trends_in(NULL, NULL, 'week');

COMMENT ON FUNCTION rdmesh.shared_by(bigint, timestamptz, timestamptz) IS 'What the hosts with that signature (rdmesh.incidents.signature_id) share in that time, and other hosts whose tracers reported lack, by their inventories.';
COMMENT ON FUNCTION rdmesh.incidents_in(timestamptz, timestamptz) IS 'rdmesh.incidents of the hours from from_at until before to_at; null: open.';
COMMENT ON FUNCTION rdmesh.precursors_in(timestamptz, timestamptz) IS 'rdmesh.precursors of the attempts that ended from from_at until before to_at; null: open.';
COMMENT ON FUNCTION rdmesh.classes_in(timestamptz, timestamptz, text) IS 'rdmesh.classes of the attempts that ended from from_at until before to_at, by hour, day, week or month.';
COMMENT ON FUNCTION rdmesh.class_trends_in(timestamptz, timestamptz, text) IS 'rdmesh.class_trends of the attempts that ended from from_at until before to_at, by hour, day, week or month.';

COMMENT ON VIEW rdmesh.incidents IS 'The same failure on eight hosts or more. An incident begins where its signature had been silent for a day.';
COMMENT ON COLUMN rdmesh.incidents.signature_id IS 'The signature, for rdmesh.shared_by.';
COMMENT ON COLUMN rdmesh.incidents.first_at IS 'First such call.';
COMMENT ON COLUMN rdmesh.incidents.last_at IS 'Last such call.';
COMMENT ON COLUMN rdmesh.incidents.verb IS 'What the application asked for.';
COMMENT ON COLUMN rdmesh.incidents.function IS 'The kernel function where the error came into being.';
COMMENT ON COLUMN rdmesh.incidents.module IS 'Its module; empty: built in.';
COMMENT ON COLUMN rdmesh.incidents.layer IS 'Its layer.';
COMMENT ON COLUMN rdmesh.incidents.errno IS 'Its errno, positive.';
COMMENT ON COLUMN rdmesh.incidents.errno_name IS 'Its name.';
COMMENT ON COLUMN rdmesh.incidents.driver IS 'Kernel module of the RDMA driver.';
COMMENT ON COLUMN rdmesh.incidents.functions IS 'The whole chain, innermost first.';
COMMENT ON COLUMN rdmesh.incidents.errnos IS 'Errnos of the chain.';
COMMENT ON COLUMN rdmesh.incidents.hosts IS 'Hosts.';
COMMENT ON COLUMN rdmesh.incidents.attempts IS 'Attempts that were placed on those hosts when each of them failed so first.';
COMMENT ON COLUMN rdmesh.incidents.calls IS 'Failing calls.';
COMMENT ON COLUMN rdmesh.incidents.first_hosts IS 'The first four hosts by name.';
COMMENT ON COLUMN rdmesh.incidents.shared IS 'What those hosts share and others, whose tracers reported at that time, lack; with when the first of them got it.';

COMMENT ON VIEW rdmesh.precursors IS 'Failures that foretold those of an attempt: its signature had risen on the host, to more than twice the calls of the day before, before the attempt began.';
COMMENT ON COLUMN rdmesh.precursors.job_id IS 'The scheduler''s job id.';
COMMENT ON COLUMN rdmesh.precursors.requeue IS 'How often the scheduler had requeued the job.';
COMMENT ON COLUMN rdmesh.precursors.restart IS 'How often the launcher had restarted its workers inside that run.';
COMMENT ON COLUMN rdmesh.precursors.host IS 'The host.';
COMMENT ON COLUMN rdmesh.precursors.function IS 'The function that decided.';
COMMENT ON COLUMN rdmesh.precursors.errno IS 'Its errno, positive.';
COMMENT ON COLUMN rdmesh.precursors.errno_name IS 'Its name.';
COMMENT ON COLUMN rdmesh.precursors.rose_at IS 'First such call on the host within a day before the attempt began.';
COMMENT ON COLUMN rdmesh.precursors.failed_at IS 'First failure of the attempt.';
COMMENT ON COLUMN rdmesh.precursors.lead_seconds IS 'Seconds between the two.';
COMMENT ON COLUMN rdmesh.precursors.calls_day_before IS 'Such calls on the host in the 24 hours before the attempt began.';
COMMENT ON COLUMN rdmesh.precursors.calls_day_earlier IS 'The same in the 24 hours before those.';

COMMENT ON VIEW rdmesh.classes IS 'Attempts that ended badly by week and class.';
COMMENT ON COLUMN rdmesh.classes.step_at IS 'Start of the week, UTC.';
COMMENT ON COLUMN rdmesh.classes.class IS 'As in rdmesh.lost_hours.';
COMMENT ON COLUMN rdmesh.classes.attempts IS 'Attempts.';
COMMENT ON COLUMN rdmesh.classes.gpu_hours IS 'Their GPU hours, as far as known.';
COMMENT ON COLUMN rdmesh.classes.of_attempts IS 'Share of the week''s attempts.';
COMMENT ON COLUMN rdmesh.classes.of_gpu_hours IS 'Share of the week''s GPU hours.';
COMMENT ON COLUMN rdmesh.classes.unmeasured IS 'Attempts whose GPU hours are not known.';

COMMENT ON VIEW rdmesh.class_trends IS 'Whether the share of a class rises: the later half of the weeks against the earlier half.';
COMMENT ON COLUMN rdmesh.class_trends.class IS 'As in rdmesh.lost_hours.';
COMMENT ON COLUMN rdmesh.class_trends.attempts IS 'Attempts.';
COMMENT ON COLUMN rdmesh.class_trends.of_attempts IS 'Share of all attempts.';
COMMENT ON COLUMN rdmesh.class_trends.earlier IS 'Share in the earlier half.';
COMMENT ON COLUMN rdmesh.class_trends.later IS 'Share in the later half; null: there is only one week.';
COMMENT ON COLUMN rdmesh.class_trends.trend IS 'rises, falls or steady: whether the two differ by more than twice the error that so many attempts leave.';

COMMENT ON FUNCTION rdmesh.signature_totals_in(timestamptz, timestamptz) IS 'rdmesh.signature_totals of the hours from from_at until before to_at; null: open.';
COMMENT ON VIEW rdmesh.signature_totals IS 'Failing calls of the whole fleet by signature, from sums by host and hour.';
COMMENT ON COLUMN rdmesh.signature_totals.verb IS 'What the application asked for.';
COMMENT ON COLUMN rdmesh.signature_totals.function IS 'The kernel function where the error came into being.';
COMMENT ON COLUMN rdmesh.signature_totals.module IS 'Its module; empty: built in.';
COMMENT ON COLUMN rdmesh.signature_totals.layer IS 'Its layer.';
COMMENT ON COLUMN rdmesh.signature_totals.errno IS 'Its errno, positive.';
COMMENT ON COLUMN rdmesh.signature_totals.errno_name IS 'Its name.';
COMMENT ON COLUMN rdmesh.signature_totals.driver IS 'Kernel module of the RDMA driver.';
COMMENT ON COLUMN rdmesh.signature_totals.functions IS 'The whole chain, innermost first.';
COMMENT ON COLUMN rdmesh.signature_totals.errnos IS 'Errnos of the chain.';
COMMENT ON COLUMN rdmesh.signature_totals.expected IS 'A rule says that such failures are part of normal work.';
COMMENT ON COLUMN rdmesh.signature_totals.hosts IS 'Hosts.';
COMMENT ON COLUMN rdmesh.signature_totals.calls IS 'Failing calls.';
COMMENT ON COLUMN rdmesh.signature_totals.first_at IS 'First such call.';
COMMENT ON COLUMN rdmesh.signature_totals.last_at IS 'Last such call.';
