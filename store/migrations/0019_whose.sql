-- Whose a failing call is, and what is doubtful about that, is found once for a group where
-- no attempt begins or ends while it goes on, and only else for each of its rows: one look for
-- fourteen rows or a thousand. The rules are those of 0003; so are the columns.
DO $views$
DECLARE
    -- The attempt of what a group `g` says of {at}, why it may be another one's, where {needed}.
    whose CONSTANT text := $whose$
LEFT JOIN LATERAL (
    SELECT a.job_id, a.requeue, a.restart, a.source,
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
         END, '{}') END AS doubts
    FROM (
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
    ) a
    WHERE {needed}
    OFFSET 0) $whose$;
    -- Whether the same is true of all rows of a group `g`: none of the times that the rules
    -- compare with lies between its first and its last.
    steady CONSTANT text := $steady$
CROSS JOIN LATERAL (
    SELECT NOT EXISTS (
        SELECT FROM rdmesh_store.attempt_windows w
        CROSS JOIN LATERAL (VALUES (w.from_at), (w.to_at),
                                   (w.from_at - rdmesh_store.scheduler_slack()),
                                   (w.to_at + rdmesh_store.scheduler_slack())) b (at)
        WHERE w.job_id = g.job_id AND b.at > g.at AND b.at <= g.until)
    AND (g.job_id IS NOT NULL OR NOT EXISTS (
        SELECT FROM rdmesh_store.placements q
        JOIN rdmesh_store.attempt_windows w USING (job_id, requeue, restart)
        CROSS JOIN LATERAL (VALUES (w.from_at), (w.to_at)) b (at)
        WHERE q.host = g.host AND b.at > g.at AND b.at <= g.until)) AS holds
    OFFSET 0
) steady $steady$;
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
       g.job_id AS named_job_id, a.job_id, a.requeue, a.restart,
       g.ranks[m.task] AS rank, g.local_ranks[m.task] AS local_rank,
       a.source, s.expected,
       COALESCE(c.flags, 0) & 1 <> 0 AS swallowed, COALESCE(c.flags, 0) & 2 <> 0 AS incomplete,
       CASE WHEN c.marks IS NULL THEN '{}'::text[]
            ELSE ARRAY(SELECT jsonb_array_elements_text(c.marks::jsonb)) END AS marks,
       c.arguments::jsonb AS arguments,
       a.doubts, g.at AS group_at, g.until AS group_until $columns$;
BEGIN
    EXECUTE 'CREATE OR REPLACE VIEW rdmesh_store.joined_failures AS SELECT' || columns
        || ' FROM rdmesh_store.failure_groups g' || steady
        || replace(replace(whose, '{at}', 'g.at'), '{needed}', 'steady.holds')
        || ' of_group ON true' || rows_of
        || replace(replace(whose, '{at}', 'm.at'), '{needed}', 'NOT steady.holds')
        || ' of_row ON true
CROSS JOIN LATERAL (
    SELECT COALESCE(of_group.job_id, of_row.job_id) AS job_id,
           COALESCE(of_group.requeue, of_row.requeue) AS requeue,
           COALESCE(of_group.restart, of_row.restart) AS restart,
           COALESCE(of_group.source, of_row.source) AS source,
           COALESCE(of_group.doubts, of_row.doubts) AS doubts) a';
END $views$;
