-- Jobs' own logs, what they say beside a verdict, and shares over attempts.
--
-- A log itself is never stored: what is kept is its summary, with the texts of a few
-- lines. What is counted of an attempt is decided when it is diagnosed and stands in
-- its verdict, so that the shares hold when the details have aged out.

CREATE TABLE rdmesh_store.job_logs (
    job_id text NOT NULL,
    requeue bigint NOT NULL,
    restart bigint NOT NULL,
    -- Whose log it is; empty, -1: of the whole attempt, or not told.
    host text NOT NULL,
    rank bigint NOT NULL,
    name text NOT NULL,
    received_at timestamptz NOT NULL,
    digest bytea NOT NULL,
    bytes bigint NOT NULL,
    lines bigint NOT NULL,
    matched bigint NOT NULL,
    rules text NOT NULL,
    class text NOT NULL,
    -- Of the line that decides; where none does, of the first failing call that is left
    -- out on purpose, else of the first consequence, with weight 0.
    weight smallint NOT NULL,
    turn smallint NOT NULL,
    written_at timestamptz,
    line bigint NOT NULL,
    line_class text NOT NULL,
    verb text NOT NULL,
    -- What the verb does: create, register, modify, data, cleanup, read_only or empty.
    kind text NOT NULL,
    -- The verb in the numbers of the contract; 0: no hook watches it.
    kernel_verb smallint NOT NULL,
    errno_name text NOT NULL,
    status text NOT NULL,
    device text NOT NULL,
    peer text NOT NULL,
    line_rank bigint,
    line_host text NOT NULL,
    rule text NOT NULL,
    text text NOT NULL,
    same_lines bigint NOT NULL,
    -- Further causes, counts, the lines that do not decide.
    details jsonb NOT NULL,
    PRIMARY KEY (job_id, requeue, restart, host, rank, name),
    FOREIGN KEY (job_id, requeue, restart) REFERENCES rdmesh_store.attempts ON DELETE CASCADE
);

-- What the logs say beside the verdict, and what is counted of the attempt.
ALTER TABLE rdmesh_store.verdicts
    ADD COLUMN logs bigint NOT NULL DEFAULT 0,
    ADD COLUMN log_class text NOT NULL DEFAULT '',
    ADD COLUMN log_verb text NOT NULL DEFAULT '',
    ADD COLUMN log_errno_name text NOT NULL DEFAULT '',
    ADD COLUMN log_text text NOT NULL DEFAULT '',
    ADD COLUMN log_agreement text NOT NULL DEFAULT '',
    ADD COLUMN log_coverage text NOT NULL DEFAULT '',
    ADD COLUMN misattributed boolean NOT NULL DEFAULT false,
    ADD COLUMN co_signals bigint NOT NULL DEFAULT 0,
    ADD COLUMN told_by text NOT NULL DEFAULT '',
    ADD COLUMN lost_class text NOT NULL DEFAULT '';

-- Attempts are counted by when they ended.
CREATE INDEX attempts_by_end ON rdmesh_store.attempts (ended_at) WHERE ended_at IS NOT NULL;

-- As before, but that a log may be all that named an attempt.
CREATE OR REPLACE VIEW rdmesh_store.described_attempts AS
SELECT a.*,
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

CREATE VIEW rdmesh.job_logs AS
SELECT l.job_id AS job_id,
       l.requeue AS requeue,
       l.restart AS restart,
       l.host AS host,
       NULLIF(l.rank, -1) AS rank,
       l.name AS name,
       l.received_at AS received_at,
       encode(l.digest, 'hex') AS digest,
       l.bytes AS bytes,
       l.lines AS lines,
       l.matched AS matched,
       l.class AS class,
       l.line AS line,
       l.line_class AS line_class,
       l.verb AS verb,
       l.errno_name AS errno_name,
       l.status AS status,
       l.device AS device,
       l.peer AS peer,
       l.line_rank AS line_rank,
       l.line_host AS line_host,
       l.rule AS rule,
       l.text AS text,
       l.same_lines AS same_lines,
       l.written_at AS written_at,
       l.details AS details,
       l.rules AS rules
FROM rdmesh_store.job_logs l;

COMMENT ON VIEW rdmesh.job_logs IS 'What is kept of the logs that were submitted: a row for each log of an attempt. The log itself is not stored.';
COMMENT ON COLUMN rdmesh.job_logs.job_id IS 'The scheduler''s job id.';
COMMENT ON COLUMN rdmesh.job_logs.requeue IS 'How often the scheduler had requeued the job.';
COMMENT ON COLUMN rdmesh.job_logs.restart IS 'How often the launcher had restarted its workers inside that run.';
COMMENT ON COLUMN rdmesh.job_logs.host IS 'Whose log it is; empty: of the whole attempt, or not told.';
COMMENT ON COLUMN rdmesh.job_logs.rank IS 'The same; null: of the whole attempt, or not told.';
COMMENT ON COLUMN rdmesh.job_logs.name IS 'Tells logs of one attempt, host and rank apart.';
COMMENT ON COLUMN rdmesh.job_logs.received_at IS 'When it came.';
COMMENT ON COLUMN rdmesh.job_logs.digest IS 'SHA-256 of the log, hexadecimal.';
COMMENT ON COLUMN rdmesh.job_logs.bytes IS 'Its length.';
COMMENT ON COLUMN rdmesh.job_logs.lines IS 'Lines.';
COMMENT ON COLUMN rdmesh.job_logs.matched IS 'Lines in which a rule found something.';
COMMENT ON COLUMN rdmesh.job_logs.class IS 'What it is evidence of: syscall, network, memory_access, device, gpu, oom, config, hang or cannot_tell.';
COMMENT ON COLUMN rdmesh.job_logs.line IS 'Number of the line that decides; where none does, of the first failing call that is left out on purpose, else of the first consequence; 0: none.';
COMMENT ON COLUMN rdmesh.job_logs.line_class IS 'Class of that line; empty: none.';
COMMENT ON COLUMN rdmesh.job_logs.verb IS 'Its verb or event.';
COMMENT ON COLUMN rdmesh.job_logs.errno_name IS 'Its errno.';
COMMENT ON COLUMN rdmesh.job_logs.status IS 'Its completion status or event.';
COMMENT ON COLUMN rdmesh.job_logs.device IS 'RDMA device that it names.';
COMMENT ON COLUMN rdmesh.job_logs.peer IS 'The other end that it names.';
COMMENT ON COLUMN rdmesh.job_logs.line_rank IS 'Rank that wrote it; null: not told.';
COMMENT ON COLUMN rdmesh.job_logs.line_host IS 'Host that wrote it; empty: not told.';
COMMENT ON COLUMN rdmesh.job_logs.rule IS 'The rule that read it.';
COMMENT ON COLUMN rdmesh.job_logs.text IS 'The text around the message.';
COMMENT ON COLUMN rdmesh.job_logs.same_lines IS 'Lines that say the same.';
COMMENT ON COLUMN rdmesh.job_logs.written_at IS 'When the line says that it was written; a time without an offset is taken as UTC; null: it does not say.';
COMMENT ON COLUMN rdmesh.job_logs.details IS 'Further causes, matched lines by class, the first failing call that is left out on purpose, the first consequence.';
COMMENT ON COLUMN rdmesh.job_logs.rules IS 'Which rules were applied.';

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
       d.told_by AS told_by
FROM rdmesh_store.verdicts d;

COMMENT ON COLUMN rdmesh.diagnoses.logs IS 'Logs of the attempt that had come when it was diagnosed.';
COMMENT ON COLUMN rdmesh.diagnoses.log_class IS 'What they say together; empty: none came.';
COMMENT ON COLUMN rdmesh.diagnoses.log_verb IS 'Verb of the line that decides among them.';
COMMENT ON COLUMN rdmesh.diagnoses.log_errno_name IS 'Its errno.';
COMMENT ON COLUMN rdmesh.diagnoses.log_text IS 'Its text.';
COMMENT ON COLUMN rdmesh.diagnoses.log_agreement IS 'How they stand to the verdict: agrees, consequence, disagrees, silent or alone; empty: none came.';
COMMENT ON COLUMN rdmesh.diagnoses.log_coverage IS 'Whether a probe could show the failing call that they tell: covered, data_path, no_hook, no_probe or not_watched; cleanup and read_only are left out on purpose; empty: they tell no failing call.';
COMMENT ON COLUMN rdmesh.diagnoses.misattributed IS 'The logs file the attempt under the network, and the kernel shows a failing call that is none of the network''s.';
COMMENT ON COLUMN rdmesh.diagnoses.co_signals IS 'Co-signals on its hosts from a minute before it until its end.';
COMMENT ON COLUMN rdmesh.diagnoses.told_by IS 'What told the cause: kernel (a failing call), co_signal, log or nothing.';

CREATE VIEW rdmesh.judged_attempts AS
SELECT a.job_id AS job_id,
       a.requeue AS requeue,
       a.restart AS restart,
       rdmesh_store.state_name(a.state) AS state,
       a.started_at AS started_at,
       a.ended_at AS ended_at,
       -- A verdict from before this migration counts nothing; it is made anew when asked for.
       COALESCE(v.told_by <> '', false) AS diagnosed,
       COALESCE(v.class, '') AS class,
       COALESCE(v.told_by, '') AS told_by,
       COALESCE(v.lost_class, '') AS lost_class,
       COALESCE(v.log_class, '') AS log_class,
       COALESCE(v.log_coverage, '') AS log_coverage,
       COALESCE(v.log_coverage IN ('cleanup', 'read_only'), false) AS log_excluded,
       COALESCE(v.misattributed, false) AS misattributed,
       COALESCE(v.co_signals, 0) AS co_signals,
       g.gpus AS gpus,
       h.gpu_hours AS gpu_hours,
       CASE WHEN v.told_by = 'log' AND v.log_coverage IN ('cleanup', 'read_only') THEN 0
            ELSE h.gpu_hours END AS lost_gpu_hours
FROM rdmesh_store.attempts a
LEFT JOIN rdmesh_store.verdicts v USING (job_id, requeue, restart)
CROSS JOIN LATERAL (
    SELECT NULLIF(sum(CASE WHEN p.gpus <> '{}' THEN cardinality(p.gpus)
                           ELSE cardinality(p.ranks) END), 0) AS gpus
    FROM rdmesh_store.placements p
    WHERE p.job_id = a.job_id AND p.requeue = a.requeue AND p.restart = a.restart
) g
CROSS JOIN LATERAL (
    SELECT CASE WHEN a.ended_at >= a.started_at
                THEN g.gpus * EXTRACT(epoch FROM a.ended_at - a.started_at) / 3600
           END AS gpu_hours
) h
WHERE a.told AND a.ended_at IS NOT NULL
  AND (a.state IN (4, 6, 7, 8) OR a.state = 5 AND v.told_by NOT IN ('', 'nothing'));

COMMENT ON VIEW rdmesh.judged_attempts IS 'Attempts that ended badly (failed, timeout, out_of_memory, node_fail, and those cancelled ones for which a cause was found), with what the shares count of each.';
COMMENT ON COLUMN rdmesh.judged_attempts.job_id IS 'The scheduler''s job id.';
COMMENT ON COLUMN rdmesh.judged_attempts.requeue IS 'How often the scheduler had requeued the job.';
COMMENT ON COLUMN rdmesh.judged_attempts.restart IS 'How often the launcher had restarted its workers inside that run.';
COMMENT ON COLUMN rdmesh.judged_attempts.state IS 'How it ended.';
COMMENT ON COLUMN rdmesh.judged_attempts.started_at IS 'When it started; null: nobody said.';
COMMENT ON COLUMN rdmesh.judged_attempts.ended_at IS 'When it ended.';
COMMENT ON COLUMN rdmesh.judged_attempts.diagnosed IS 'Whether it has a verdict; what ended within a day gets one within seconds, the others when somebody asks.';
COMMENT ON COLUMN rdmesh.judged_attempts.class IS 'Class of the verdict; empty: none.';
COMMENT ON COLUMN rdmesh.judged_attempts.told_by IS 'What told the cause: kernel (a failing call), co_signal, log or nothing.';
COMMENT ON COLUMN rdmesh.judged_attempts.lost_class IS 'Class under which its hours count: the verdict''s where the kernel or a co-signal told it, the log''s where the log alone did, else cannot_tell.';
COMMENT ON COLUMN rdmesh.judged_attempts.log_class IS 'What its logs say; empty: none came.';
COMMENT ON COLUMN rdmesh.judged_attempts.log_coverage IS 'Whether a probe could show the failing call that its logs tell; see rdmesh.diagnoses.';
COMMENT ON COLUMN rdmesh.judged_attempts.log_excluded IS 'Only clean-up or read-only calls failed by its logs.';
COMMENT ON COLUMN rdmesh.judged_attempts.misattributed IS 'Filed under the network by its logs, and the kernel shows a failing call that is none of the network''s.';
COMMENT ON COLUMN rdmesh.judged_attempts.co_signals IS 'Co-signals on its hosts from a minute before it until its end.';
COMMENT ON COLUMN rdmesh.judged_attempts.gpus IS 'GPUs that it was placed on; a host whose GPUs nobody told counts one for each rank; null: not known.';
COMMENT ON COLUMN rdmesh.judged_attempts.gpu_hours IS 'GPUs times hours from start to end; null: not known.';
COMMENT ON COLUMN rdmesh.judged_attempts.lost_gpu_hours IS 'The same; 0 where clean-up or read-only calls are all that tells of it: they go along with waste and do not cause it.';

-- For a time: of the attempts that ended in it; null: open. The views are the same
-- without bounds. Sums are of numeric, so that their order does not matter.

CREATE FUNCTION rdmesh.misattribution_in(from_at timestamptz, to_at timestamptz)
    RETURNS TABLE (filed_as text, misattributed boolean, attempts bigint, gpu_hours float8,
                   of_attempts float8, of_gpu_hours float8, unmeasured bigint)
    LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT g.filed_as, g.misattributed, g.attempts, g.gpu_hours::float8,
           (CASE WHEN g.filed_as <> '' THEN g.attempts
                / NULLIF(sum(g.attempts) FILTER (WHERE g.filed_as <> '') OVER (), 0) END)::float8,
           (CASE WHEN g.filed_as <> '' THEN g.gpu_hours
                / NULLIF(sum(g.gpu_hours) FILTER (WHERE g.filed_as <> '') OVER (), 0) END)::float8,
           g.unmeasured
    FROM (SELECT j.log_class AS filed_as, j.misattributed, count(*) AS attempts,
                 COALESCE(sum(j.gpu_hours), 0) AS gpu_hours,
                 count(*) FILTER (WHERE j.gpu_hours IS NULL) AS unmeasured
          FROM rdmesh.judged_attempts j
          WHERE j.told_by = 'kernel'
            AND j.ended_at >= COALESCE(from_at, '-infinity') AND j.ended_at < COALESCE(to_at, 'infinity')
          GROUP BY j.log_class, j.misattributed) g
    ORDER BY g.filed_as = '', g.misattributed DESC, g.gpu_hours DESC, g.attempts DESC, g.filed_as $$;

CREATE FUNCTION rdmesh.coverage_in(from_at timestamptz, to_at timestamptz)
    RETURNS TABLE (coverage text, excluded boolean, attempts bigint, gpu_hours float8,
                   of_attempts float8, of_gpu_hours float8, unmeasured bigint)
    LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT g.coverage, g.excluded, g.attempts, g.gpu_hours::float8,
           (CASE WHEN NOT g.excluded THEN g.attempts
                / NULLIF(sum(g.attempts) FILTER (WHERE NOT g.excluded) OVER (), 0) END)::float8,
           (CASE WHEN NOT g.excluded THEN g.gpu_hours
                / NULLIF(sum(g.gpu_hours) FILTER (WHERE NOT g.excluded) OVER (), 0) END)::float8,
           g.unmeasured
    FROM (SELECT j.log_coverage AS coverage, j.log_excluded AS excluded, count(*) AS attempts,
                 COALESCE(sum(j.gpu_hours) FILTER (WHERE NOT j.log_excluded), 0) AS gpu_hours,
                 count(*) FILTER (WHERE j.gpu_hours IS NULL) AS unmeasured
          FROM rdmesh.judged_attempts j
          WHERE j.log_coverage <> ''
            AND j.ended_at >= COALESCE(from_at, '-infinity') AND j.ended_at < COALESCE(to_at, 'infinity')
          GROUP BY j.log_coverage, j.log_excluded) g
    ORDER BY g.excluded, g.coverage = 'covered' DESC, g.gpu_hours DESC, g.attempts DESC, g.coverage $$;

CREATE FUNCTION rdmesh.silent_in(from_at timestamptz, to_at timestamptz)
    RETURNS TABLE (silent boolean, attempts bigint, gpu_hours float8,
                   of_attempts float8, of_gpu_hours float8, unmeasured bigint)
    LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT g.silent, g.attempts, g.gpu_hours::float8,
           (g.attempts / NULLIF(sum(g.attempts) OVER (), 0))::float8,
           (g.gpu_hours / NULLIF(sum(g.gpu_hours) OVER (), 0))::float8,
           g.unmeasured
    FROM (SELECT j.co_signals = 0 AS silent, count(*) AS attempts,
                 COALESCE(sum(j.gpu_hours), 0) AS gpu_hours,
                 count(*) FILTER (WHERE j.gpu_hours IS NULL) AS unmeasured
          FROM rdmesh.judged_attempts j
          WHERE j.told_by = 'kernel'
            AND j.ended_at >= COALESCE(from_at, '-infinity') AND j.ended_at < COALESCE(to_at, 'infinity')
          GROUP BY j.co_signals = 0) g
    ORDER BY g.silent DESC $$;

CREATE FUNCTION rdmesh.lost_hours_in(from_at timestamptz, to_at timestamptz)
    RETURNS TABLE (class text, told_by text, coverage text, excluded boolean, attempts bigint,
                   gpu_hours float8, of_attempts float8, of_gpu_hours float8, unmeasured bigint)
    LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT g.class, g.told_by, g.coverage, g.excluded, g.attempts, g.gpu_hours::float8,
           (g.attempts / NULLIF(sum(g.attempts) OVER (), 0))::float8,
           (g.gpu_hours / NULLIF(sum(g.gpu_hours) OVER (), 0))::float8,
           g.unmeasured
    FROM (SELECT l.class, l.told_by, l.coverage,
                 l.coverage IN ('cleanup', 'read_only') AS excluded, count(*) AS attempts,
                 COALESCE(sum(l.lost_gpu_hours), 0) AS gpu_hours,
                 count(*) FILTER (WHERE l.lost_gpu_hours IS NULL) AS unmeasured
          FROM (SELECT j.lost_class AS class, j.told_by, j.lost_gpu_hours,
                       CASE j.told_by WHEN 'kernel' THEN 'covered' WHEN 'log' THEN j.log_coverage
                            ELSE '' END AS coverage
                FROM rdmesh.judged_attempts j
                WHERE j.diagnosed
                  AND j.ended_at >= COALESCE(from_at, '-infinity')
                  AND j.ended_at < COALESCE(to_at, 'infinity')) l
          GROUP BY l.class, l.told_by, l.coverage) g
    ORDER BY g.gpu_hours DESC, g.attempts DESC, g.class, g.told_by, g.coverage $$;

CREATE VIEW rdmesh.misattribution AS SELECT * FROM rdmesh.misattribution_in(NULL, NULL);
CREATE VIEW rdmesh.coverage AS SELECT * FROM rdmesh.coverage_in(NULL, NULL);
CREATE VIEW rdmesh.silent AS SELECT * FROM rdmesh.silent_in(NULL, NULL);
CREATE VIEW rdmesh.lost_hours AS SELECT * FROM rdmesh.lost_hours_in(NULL, NULL);

COMMENT ON FUNCTION rdmesh.misattribution_in(timestamptz, timestamptz) IS 'rdmesh.misattribution of the attempts that ended from from_at until before to_at; null: open.';
COMMENT ON FUNCTION rdmesh.coverage_in(timestamptz, timestamptz) IS 'rdmesh.coverage of the attempts that ended from from_at until before to_at; null: open.';
COMMENT ON FUNCTION rdmesh.silent_in(timestamptz, timestamptz) IS 'rdmesh.silent of the attempts that ended from from_at until before to_at; null: open.';
COMMENT ON FUNCTION rdmesh.lost_hours_in(timestamptz, timestamptz) IS 'rdmesh.lost_hours of the attempts that ended from from_at until before to_at; null: open.';

COMMENT ON VIEW rdmesh.misattribution IS 'Of the attempts for which the kernel shows the failing call: under which class their logs file them.';
COMMENT ON COLUMN rdmesh.misattribution.filed_as IS 'Class of the logs; empty: none came.';
COMMENT ON COLUMN rdmesh.misattribution.misattributed IS 'Filed under the network while the failing call is none of the network''s.';
COMMENT ON COLUMN rdmesh.misattribution.attempts IS 'Attempts.';
COMMENT ON COLUMN rdmesh.misattribution.gpu_hours IS 'Their GPU hours, as far as known.';
COMMENT ON COLUMN rdmesh.misattribution.of_attempts IS 'Share of the attempts that have a log; null: none of them.';
COMMENT ON COLUMN rdmesh.misattribution.of_gpu_hours IS 'Share of those attempts'' GPU hours.';
COMMENT ON COLUMN rdmesh.misattribution.unmeasured IS 'Attempts whose GPU hours are not known.';

COMMENT ON VIEW rdmesh.coverage IS 'Failing calls that logs tell, an attempt counted once, by whether a probe could show them.';
COMMENT ON COLUMN rdmesh.coverage.coverage IS 'covered, data_path, no_hook, no_probe or not_watched; cleanup and read_only are left out on purpose.';
COMMENT ON COLUMN rdmesh.coverage.excluded IS 'Left out of the shares: clean-up and read-only calls.';
COMMENT ON COLUMN rdmesh.coverage.attempts IS 'Attempts.';
COMMENT ON COLUMN rdmesh.coverage.gpu_hours IS 'Their GPU hours, as far as known; excluded ones carry none.';
COMMENT ON COLUMN rdmesh.coverage.of_attempts IS 'Share of the attempts that are not excluded; null: excluded.';
COMMENT ON COLUMN rdmesh.coverage.of_gpu_hours IS 'Share of those attempts'' GPU hours.';
COMMENT ON COLUMN rdmesh.coverage.unmeasured IS 'Attempts whose GPU hours are not known.';

COMMENT ON VIEW rdmesh.silent IS 'Of the attempts for which the kernel shows the failing call: near how many nothing else was seen.';
COMMENT ON COLUMN rdmesh.silent.silent IS 'No co-signal of any kind was seen on its hosts from a minute before it until its end.';
COMMENT ON COLUMN rdmesh.silent.attempts IS 'Attempts.';
COMMENT ON COLUMN rdmesh.silent.gpu_hours IS 'Their GPU hours, as far as known.';
COMMENT ON COLUMN rdmesh.silent.of_attempts IS 'Share of the attempts.';
COMMENT ON COLUMN rdmesh.silent.of_gpu_hours IS 'Share of the GPU hours.';
COMMENT ON COLUMN rdmesh.silent.unmeasured IS 'Attempts whose GPU hours are not known.';

COMMENT ON VIEW rdmesh.lost_hours IS 'GPU hours of the attempts that ended badly, by class, each attempt counted once.';
COMMENT ON COLUMN rdmesh.lost_hours.class IS 'The verdict''s class where the kernel or a co-signal told it, the log''s where the log alone did, else cannot_tell.';
COMMENT ON COLUMN rdmesh.lost_hours.told_by IS 'kernel, co_signal, log or nothing.';
COMMENT ON COLUMN rdmesh.lost_hours.coverage IS 'Whether a probe showed (kernel) or could show (log) the failing call; empty: no failing call tells of it.';
COMMENT ON COLUMN rdmesh.lost_hours.excluded IS 'Clean-up and read-only calls: they carry no hours.';
COMMENT ON COLUMN rdmesh.lost_hours.attempts IS 'Attempts.';
COMMENT ON COLUMN rdmesh.lost_hours.gpu_hours IS 'Their GPU hours, as far as known.';
COMMENT ON COLUMN rdmesh.lost_hours.of_attempts IS 'Share of the attempts.';
COMMENT ON COLUMN rdmesh.lost_hours.of_gpu_hours IS 'Share of the GPU hours.';
COMMENT ON COLUMN rdmesh.lost_hours.unmeasured IS 'Attempts whose GPU hours are not known.';
