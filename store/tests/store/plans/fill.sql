-- Four weeks of 64 hosts, in the shape that collectors store. What rows say is the same in all.
SET search_path = rdmesh_store;
SET timezone = 'UTC';
DO $$
DECLARE
    parent text;
    monday date;
BEGIN
    FOREACH parent IN ARRAY ARRAY['failure_groups', 'count_groups', 'signature_hours', 'snapshots'] LOOP
        FOR monday IN SELECT generate_series('2026-11-02'::date, '2026-11-23', '7 days')::date LOOP
            EXECUTE format('CREATE TABLE IF NOT EXISTS %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)',
                           parent || '_' || to_char(monday, 'YYYYMMDD'), parent, monday, monday + 7);
        END LOOP;
    END LOOP;
END $$;
INSERT INTO signatures
SELECT n, 'mlx5_ib', 2, false, ARRAY['f' || n, 'g'], ARRAY['m', 'm'], ARRAY[1, 5]::smallint[],
       ARRAY[14, 14] FROM generate_series(0, 49) n;
INSERT INTO devices SELECT n, 'mlx5_' || n, 'eth' || n, '0000:0' || n, now() FROM generate_series(0, 7) n;
INSERT INTO returns SELECT n, 'f' || n, 'm', 1, 14, now() FROM generate_series(0, 49) n;
INSERT INTO hosts SELECT 'gpu-' || n, '2026-11-02' FROM generate_series(0, 63) n;
CREATE TEMPORARY TABLE moments AS
SELECT n, 'gpu-' || n % 64 AS host, '2026-11-02'::timestamptz + n * interval '60 s' AS at,
       CASE WHEN n % 10 > 0 THEN (n / 16)::text END AS job
FROM generate_series(0, 40000) n;
INSERT INTO failure_groups (host, at, until, run_id, seq, host_ahead_us, job_id, requeue, restart,
    source, first_ordinal, afters, signature_places, task_places, signatures, tgids,
    device_places, devices, texts)
SELECT host, at, at, '00000000-0000-0000-0000-000000000001', n, 0, job, 0, 0, 1, 0, '{0,0,0}',
       '{0,0,0}', '{0,0,0}', ARRAY[n % 50], '{1}', '{1}', ARRAY[n % 8], '{a}' FROM moments;
INSERT INTO count_groups
SELECT host, at, '00000000-0000-0000-0000-000000000001', n, true, '/job', job, 0, 0, 1,
       ARRAY[n % 50], '{3}', NULL FROM moments;
INSERT INTO signature_hours
SELECT host, date_trunc('hour', at, 'UTC'), n % 50, 3, at, at FROM moments
ON CONFLICT DO NOTHING;
INSERT INTO attempts (job_id, requeue, restart, told, started_at, ended_at, first_told_at,
                      updated_at, state)
SELECT n::text, 0, 0, true, '2026-11-02'::timestamptz + n * interval '16 min',
       '2026-11-02'::timestamptz + (n + 2) * interval '16 min', '2026-11-02', '2026-11-02', 4
FROM generate_series(0, 2500) n;
INSERT INTO placements
SELECT n::text, 0, 0, 'gpu-' || (n * 7 + h) % 64, '{0}', '{}', '{}', '{}', '2026-11-02'
FROM generate_series(0, 2500) n, generate_series(0, 3) h;
INSERT INTO window_leases
SELECT 'gpu-' || n % 64, gen_random_uuid(), gen_random_uuid(), 1 + n % 2, '6.1.' || n % 20,
       'mlx5_ib', '{reg_mr}', CASE WHEN n % 2 = 1 THEN n % 500 END, '2026-11-02', '2026-11-03',
       CASE WHEN n % 1000 <> 0 THEN '2026-11-03'::timestamptz END, ''
FROM generate_series(0, 20000) n;
INSERT INTO forks
SELECT 'gpu-' || n % 64, n, '2026-11-02', '6.1', 'mlx5_ib', 'reg_mr', 14, '{a}', 14, 1, '', NULL, ''
FROM generate_series(0, 20000) n;
INSERT INTO baselines
SELECT 'gpu-' || n, '6.1.' || n % 200, 'mlx5_ib', 'reg_mr', '2026-11-02', '2026-11-02', n, 5, ''
FROM generate_series(0, 20000) n;
ANALYZE;
