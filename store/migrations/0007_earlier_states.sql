-- An attempt that is told twice to have ended, in different ways, says so.

-- In which states it was told to have ended before the last one, in the order of the words.
ALTER TABLE rdmesh_store.attempts ADD COLUMN earlier_states smallint[] NOT NULL DEFAULT '{}';

-- As before, with a mark for it.
CREATE OR REPLACE VIEW rdmesh_store.described_attempts AS
SELECT a.job_id, a.requeue, a.restart, a.told, a.name, a.user_name, a.scheduler, a.cluster,
       a.job_class, a.state, a.started_at, a.ended_at, a.exit_code, a.exit_reason, a.labels,
       a.first_told_at, a.updated_at,
       -- A start in the future must not stand above everything for ever.
       LEAST(COALESCE(a.started_at, a.ended_at, a.first_told_at), a.first_told_at) AS listed_at,
       array_remove(ARRAY[
           CASE WHEN NOT a.told THEN 'no scheduler told of it; '
                || CASE WHEN EXISTS (SELECT FROM rdmesh_store.job_logs l
                                     WHERE l.job_id = a.job_id AND l.requeue = a.requeue
                                       AND l.restart = a.restart)
                        THEN 'failing tasks or a log named it' ELSE 'failing tasks named it' END
           END,
           CASE WHEN a.ended_at < a.started_at THEN 'ended before it started' END,
           CASE WHEN a.told AND a.started_at IS NULL AND a.ended_at IS NOT NULL
                THEN 'ended, but nobody told when it started' END,
           CASE WHEN a.told AND a.started_at IS NULL AND a.ended_at IS NULL
                THEN 'placed, but nobody told that it started' END,
           CASE WHEN a.started_at > a.updated_at + interval '1 day'
                THEN 'starts in the future' END,
           CASE WHEN a.state = 3 AND a.exit_code <> 0
                THEN 'completed, with exit code ' || a.exit_code END,
           CASE WHEN a.state = 4 AND a.exit_code = 0 THEN 'failed, with exit code 0' END,
           CASE WHEN a.earlier_states <> '{}' THEN 'told before to have ended otherwise: '
                || (SELECT string_agg(rdmesh_store.state_name(e.state), ', then ' ORDER BY e.n)
                    FROM unnest(a.earlier_states) WITH ORDINALITY e (state, n)) END
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
