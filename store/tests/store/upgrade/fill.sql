-- Under the schema up to migration 0016. Numbers of a seed, so that a difference can be seen again.
SET search_path = rdmesh_store;
SET timezone = 'UTC';
DO $$
DECLARE
    parent text;
    monday date;
BEGIN
    FOREACH parent IN ARRAY ARRAY['failures', 'failure_counts', 'signature_hours'] LOOP
        FOR monday IN SELECT generate_series('2026-11-16'::date, '2026-11-30', '7 days')::date LOOP
            EXECUTE format('CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)',
                           parent || '_' || to_char(monday, 'YYYYMMDD'), parent, monday, monday + 7);
        END LOOP;
    END LOOP;
END $$;
SELECT setseed(0.5);

-- Forty rows in a snapshot, whose times begin to cross minutes; a week ends among them.
INSERT INTO failures
SELECT 'gpu-' || n % 5, '2026-11-22 23:30Z'::timestamptz + n / 40 * interval '17.123457 s'
           + random() * interval '70 s',
       ('00000000-0000-0000-0000-00000000000' || n % 5)::uuid, n / 40, n % 40,
       '2026-11-25', '2026-11-20', '2026-11-25', 1 + (random() ^ 8 * 5000000000)::bigint, 2,
       CASE WHEN n % 3 = 0 THEN ARRAY['ib_umem_get', 'x'] ELSE ARRAY['ib_umem_get', 'y', 'z' || n % 4] END,
       CASE WHEN n % 3 = 0 THEN ARRAY['ib_uverbs', 'x'] ELSE ARRAY['', 'y', 'z'] END,
       CASE WHEN n % 3 = 0 THEN ARRAY[1, 2]::smallint[] ELSE ARRAY[1, 2, 3]::smallint[] END,
       CASE WHEN n % 3 = 0 THEN ARRAY[14, 14] ELSE ARRAY[14, 524, 1] END,
       'mlx5_ib', CASE WHEN n % 7 = 0 THEN '' ELSE 'mlx5_' || n % 3 END,
       CASE WHEN n % 7 = 0 THEN '' ELSE 'eth' || n % 2 END, '',
       4000000000 + n % 11, n % 13, 'comm' || n % 3, '/cg' || n % 4,
       CASE WHEN n % 5 <> 0 THEN 'j' || n % 3 END, CASE WHEN n % 5 = 0 THEN 0 ELSE n % 2 END, 0,
       CASE WHEN n % 2 = 1 THEN n % 9 END, n % 8, 1 + n % 2,
       n % 17 = 0, n % 19 = 0, n % 23 = 0,
       CASE WHEN n % 29 = 0 THEN ARRAY['a "mark"', 'b\c'] ELSE '{}' END,
       CASE WHEN n % 6 = 0 THEN jsonb_build_object('mapping', 'none', 'n', n) END
FROM generate_series(0, 4000) n;
UPDATE failures SET last_at = at + random() ^ 6 * interval '5000 s';
UPDATE failures SET host_first_at = at + interval '3.000001 s',
                    host_last_at = last_at + interval '3.000001 s' WHERE seq % 3 <> 0;

INSERT INTO failure_counts
SELECT 'gpu-' || n % 5, '2026-11-22 23:30Z'::timestamptz + n / 40 * interval '17.123457 s',
       ('00000000-0000-0000-0000-00000000000' || n % 5)::uuid, n / 40, n % 40,
       'f' || n % 6, 'm', 1, 1 + n % 3, CASE WHEN n % 2 = 0 THEN '/cg' || n % 3 END,
       CASE WHEN n % 4 = 0 THEN 'j' || n % 3 END, 0, 0, 2,
       1 + (random() ^ 8 * 5000000000)::bigint, 5
FROM generate_series(0, 4000) n;

-- Attempts that begin and end among them, told and not.
INSERT INTO attempts (job_id, requeue, restart, told, started_at, ended_at, first_told_at,
                      updated_at, state)
SELECT 'j' || n % 3, n / 3, 0, n <> 2, '2026-11-22 23:30Z'::timestamptz + n * interval '4 min',
       CASE WHEN n % 2 = 0 THEN '2026-11-22 23:30:10Z'::timestamptz + (n + 1) * interval '3.8 min' END,
       '2026-11-22 23:30Z', '2026-11-23', 4
FROM generate_series(0, 9) n;
INSERT INTO placements
SELECT 'j' || n % 3, n / 3, 0, 'gpu-' || h, '{0}', '{}', '{}', '{}', '2026-11-20'
FROM generate_series(0, 9) n, generate_series(0, 4) h WHERE (n + h) % 3 <> 0;
