-- A co-signal may be about one process of a job: its end by a signal. Columns that may be
-- empty are added without rewriting anything, so that ingest goes on meanwhile. (0013 and
-- 0014 may be applied after this one: they touch other tables.)

ALTER TABLE rdmesh_store.co_signals
    ADD COLUMN tgid bigint,
    ADD COLUMN job_id text,
    ADD COLUMN requeue bigint,
    ADD COLUMN restart bigint;

CREATE OR REPLACE VIEW rdmesh.co_signals AS
SELECT s.host AS host,
       s.at AS at,
       CASE s.kind WHEN 1 THEN 'network' WHEN 2 THEN 'device' WHEN 3 THEN 'host' WHEN 4 THEN 'process' ELSE 'unknown' END AS kind,
       s.independent AS independent,
       s.name AS name,
       s.detail AS detail,
       s.device AS device,
       s.marks AS marks,
       s.tgid AS tgid,
       s.job_id AS job_id,
       s.requeue AS requeue,
       s.restart AS restart
FROM rdmesh_store.co_signals s;

COMMENT ON COLUMN rdmesh.co_signals.tgid IS 'The process that it is about; empty: none.';
COMMENT ON COLUMN rdmesh.co_signals.job_id IS 'The job that this process named; empty: it is about the host, or the process named none.';
COMMENT ON COLUMN rdmesh.co_signals.requeue IS 'How often the scheduler had requeued it.';
COMMENT ON COLUMN rdmesh.co_signals.restart IS 'How often its launcher had restarted it.';
