-- Shaped wires: their windows, their latest state, and which attempts used them.

-- The latest state of each wire, and its last gap: kept with each batch, so that the
-- list of a fleet reads no window.
CREATE TABLE rdmesh_store.wires (
    host text NOT NULL,
    wire text NOT NULL,
    at timestamptz NOT NULL,
    to_at timestamptz NOT NULL,
    run_id uuid NOT NULL,
    seq bigint NOT NULL,
    received_at timestamptz NOT NULL,
    shaped_host text NOT NULL,
    virtual_function text NOT NULL,
    rate_bps bigint NOT NULL,
    configured_rate_bps bigint NOT NULL,
    expires_at timestamptz,
    policy_generation bigint NOT NULL,
    bypass boolean NOT NULL,
    invalid smallint[] NOT NULL,
    sent_bits bigint NOT NULL,
    queue_frames_now bigint NOT NULL,
    queue_frames_p99 bigint NOT NULL,
    waited_ns_p99 bigint NOT NULL,
    windows_given_up bigint NOT NULL,
    engine_version text NOT NULL,
    configuration_hash text NOT NULL,
    marks text[] NOT NULL,
    -- The last time without a window; null: none was seen.
    gap_from_at timestamptz,
    gap_to_at timestamptz,
    body bytea NOT NULL,
    PRIMARY KEY (host, wire)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

CREATE FUNCTION rdmesh_store.invalid_cause_name(cause smallint) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE cause WHEN 1 THEN 'port_dropped' WHEN 2 THEN 'poll_gap'
        WHEN 3 THEN 'retransmits' WHEN 4 THEN 'back_pressure_help'
        WHEN 5 THEN 'data_path_down' ELSE 'unknown' END $$;

-- Shorter ones are none: windows are placed on the collector's clock by an estimate that
-- changes with each connection, by some milliseconds.
CREATE FUNCTION rdmesh_store.shortest_gap() RETURNS interval
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT interval '50 milliseconds' $$;

-- Time between the window of a wire that starts at `started` and the one before it. With
-- the rights of its owner, because readers do not see tables.
CREATE FUNCTION rdmesh_store.wire_gap(shaper text, name text, started timestamptz) RETURNS interval
    LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog AS $$
    SELECT CASE WHEN started - p.to_at >= rdmesh_store.shortest_gap() THEN started - p.to_at END
    FROM rdmesh_store.wire_windows p
    WHERE p.host = shaper AND p.wire = name AND p.at < started
      AND p.at >= started - interval '1 day'
    ORDER BY p.at DESC LIMIT 1 $$;

-- A window as people read it: what rdmesh.wire_windows and rdmesh.job_wires show of it.
CREATE VIEW rdmesh_store.readable_windows AS
SELECT w.host AS host,
       w.shaped_host AS shaped_host,
       w.wire AS wire,
       w.virtual_function AS virtual_function,
       w.at AS from_at,
       w.to_at AS to_at,
       w.rate_bps AS rate_bps,
       w.configured_rate_bps AS configured_rate_bps,
       w.expires_at AS expires_at,
       w.policy_generation AS policy_generation,
       w.bypass AS bypass,
       w.invalid = '{}' AS valid,
       ARRAY(SELECT rdmesh_store.invalid_cause_name(c.cause) FROM unnest(w.invalid) WITH ORDINALITY c (cause, place) ORDER BY c.place) AS invalid_causes,
       w.sent_frames AS sent_frames,
       w.sent_bits AS sent_bits,
       CASE WHEN w.to_at > w.at THEN (w.sent_bits / EXTRACT(epoch FROM w.to_at - w.at))::bigint END AS sent_bps,
       w.queue_frames_now AS queue_frames_now,
       w.queue_frames_p50 AS queue_frames_p50,
       w.queue_frames_p99 AS queue_frames_p99,
       w.queue_frames_max AS queue_frames_max,
       w.waited_ns_p50 AS waited_ns_p50,
       w.waited_ns_p99 AS waited_ns_p99,
       w.waited_ns_max AS waited_ns_max,
       w.catch_up_used_ps AS catch_up_used_ps,
       w.lost_ps AS lost_ps,
       w.ce_marks AS ce_marks,
       w.imissed AS imissed,
       w.rx_nombuf AS rx_nombuf,
       w.tx_not_accepted AS tx_not_accepted,
       w.full_polls AS full_polls,
       w.longest_poll_gap_ns AS longest_poll_gap_ns,
       w.poll_gap_buckets AS poll_gap_buckets,
       w.repeated_frames AS repeated_frames,
       w.repeated_bytes AS repeated_bytes,
       rdmesh_store.wire_gap(w.host, w.wire, w.at) AS gap,
       w.windows_given_up AS windows_given_up,
       w.engine_version AS engine_version,
       w.configuration_hash AS configuration_hash,
       w.run_id AS run_id,
       w.seq AS sequence,
       w.marks AS marks
FROM rdmesh_store.wire_windows w;

CREATE VIEW rdmesh.wire_windows AS SELECT w.* FROM rdmesh_store.readable_windows w;

COMMENT ON VIEW rdmesh.wire_windows IS 'Reporting intervals of shaped wires.';
COMMENT ON COLUMN rdmesh.wire_windows.host IS 'Host of the shaper, as it names itself.';
COMMENT ON COLUMN rdmesh.wire_windows.shaped_host IS 'Host whose virtual function is shaped.';
COMMENT ON COLUMN rdmesh.wire_windows.wire IS 'Name of the wire.';
COMMENT ON COLUMN rdmesh.wire_windows.virtual_function IS 'The virtual function.';
COMMENT ON COLUMN rdmesh.wire_windows.from_at IS 'Start, collector time.';
COMMENT ON COLUMN rdmesh.wire_windows.to_at IS 'End, collector time.';
COMMENT ON COLUMN rdmesh.wire_windows.rate_bps IS 'Line rate, frame overhead included, bit/s; 0: not shaped.';
COMMENT ON COLUMN rdmesh.wire_windows.configured_rate_bps IS 'The rate that a reset goes back to, bit/s; 0: not shaped.';
COMMENT ON COLUMN rdmesh.wire_windows.expires_at IS 'When the rate goes back to the configured one by itself, time of the shaper; null: it does not.';
COMMENT ON COLUMN rdmesh.wire_windows.policy_generation IS 'Grows with each change of the wire.';
COMMENT ON COLUMN rdmesh.wire_windows.bypass IS 'Traffic went around the shaper.';
COMMENT ON COLUMN rdmesh.wire_windows.valid IS 'Whether the window shows the wire that was asked for.';
COMMENT ON COLUMN rdmesh.wire_windows.invalid_causes IS 'Why it does not: port_dropped, poll_gap, retransmits, back_pressure_help, data_path_down.';
COMMENT ON COLUMN rdmesh.wire_windows.sent_frames IS 'Frames sent.';
COMMENT ON COLUMN rdmesh.wire_windows.sent_bits IS 'Bits sent, frame overhead included.';
COMMENT ON COLUMN rdmesh.wire_windows.sent_bps IS 'Mean rate sent, frame overhead included, bit/s; null: the window has no length.';
COMMENT ON COLUMN rdmesh.wire_windows.queue_frames_now IS 'Frames that wait at the end.';
COMMENT ON COLUMN rdmesh.wire_windows.queue_frames_p50 IS 'Frames that wait, median.';
COMMENT ON COLUMN rdmesh.wire_windows.queue_frames_p99 IS 'Frames that wait, 99th percentile.';
COMMENT ON COLUMN rdmesh.wire_windows.queue_frames_max IS 'Frames that wait, most.';
COMMENT ON COLUMN rdmesh.wire_windows.waited_ns_p50 IS 'Time that a frame waited, median, nanoseconds.';
COMMENT ON COLUMN rdmesh.wire_windows.waited_ns_p99 IS 'Time that a frame waited, 99th percentile, nanoseconds.';
COMMENT ON COLUMN rdmesh.wire_windows.waited_ns_max IS 'Time that a frame waited, longest, nanoseconds.';
COMMENT ON COLUMN rdmesh.wire_windows.catch_up_used_ps IS 'Wire time that late polls took from the catch-up, picoseconds.';
COMMENT ON COLUMN rdmesh.wire_windows.lost_ps IS 'Wire time lost because a poll gap used up the catch-up, picoseconds.';
COMMENT ON COLUMN rdmesh.wire_windows.ce_marks IS 'Frames marked Congestion Experienced.';
COMMENT ON COLUMN rdmesh.wire_windows.imissed IS 'Frames that the port dropped because its receive queue was full.';
COMMENT ON COLUMN rdmesh.wire_windows.rx_nombuf IS 'Frames that the port dropped because it had no buffer.';
COMMENT ON COLUMN rdmesh.wire_windows.tx_not_accepted IS 'Frames that the sending port did not take at once; they stayed at the head.';
COMMENT ON COLUMN rdmesh.wire_windows.full_polls IS 'Polls at which the wire was full, so that frames stayed with the port.';
COMMENT ON COLUMN rdmesh.wire_windows.longest_poll_gap_ns IS 'Longest time between two polls, nanoseconds.';
COMMENT ON COLUMN rdmesh.wire_windows.poll_gap_buckets IS 'Poll gaps by powers of two, nanoseconds: [1, 2), [2, 4), ...';
COMMENT ON COLUMN rdmesh.wire_windows.repeated_frames IS 'Frames that a sender sent again, by their PSN.';
COMMENT ON COLUMN rdmesh.wire_windows.repeated_bytes IS 'Bytes of these frames.';
COMMENT ON COLUMN rdmesh.wire_windows.gap IS 'Time without a window before this one; null: the window before ends where this one starts, or there is none within a day.';
COMMENT ON COLUMN rdmesh.wire_windows.windows_given_up IS 'Windows of this run that the shaper gave up so far, because no collector took them.';
COMMENT ON COLUMN rdmesh.wire_windows.engine_version IS 'Version of the engine.';
COMMENT ON COLUMN rdmesh.wire_windows.configuration_hash IS 'Windows with different hashes are not compared.';
COMMENT ON COLUMN rdmesh.wire_windows.run_id IS 'Run of the shaper.';
COMMENT ON COLUMN rdmesh.wire_windows.sequence IS 'Sequence within that run.';
COMMENT ON COLUMN rdmesh.wire_windows.marks IS 'What is odd about it.';

CREATE VIEW rdmesh.wire_gaps AS
SELECT w.host AS host,
       w.shaped_host AS shaped_host,
       w.wire AS wire,
       w.from_at - w.gap AS from_at,
       w.from_at AS to_at,
       w.gap AS gap,
       w.windows_given_up AS windows_given_up
FROM rdmesh.wire_windows w WHERE w.gap IS NOT NULL;

COMMENT ON VIEW rdmesh.wire_gaps IS 'Times without a window of a wire, each before a window that came after all. A wire that is silent now shows in rdmesh.wires. Ask for one host, or a short time.';
COMMENT ON COLUMN rdmesh.wire_gaps.host IS 'Host of the shaper.';
COMMENT ON COLUMN rdmesh.wire_gaps.shaped_host IS 'Host whose virtual function is shaped.';
COMMENT ON COLUMN rdmesh.wire_gaps.wire IS 'Name of the wire.';
COMMENT ON COLUMN rdmesh.wire_gaps.from_at IS 'End of the last window before, collector time.';
COMMENT ON COLUMN rdmesh.wire_gaps.to_at IS 'Start of the first window after, collector time.';
COMMENT ON COLUMN rdmesh.wire_gaps.gap IS 'Its length.';
COMMENT ON COLUMN rdmesh.wire_gaps.windows_given_up IS 'Windows that the run after it had given up so far, because no collector took them.';

CREATE VIEW rdmesh.wires AS
SELECT w.host AS host,
       w.wire AS wire,
       w.shaped_host AS shaped_host,
       w.virtual_function AS virtual_function,
       w.rate_bps AS rate_bps,
       w.configured_rate_bps AS configured_rate_bps,
       w.expires_at AS expires_at,
       w.policy_generation AS policy_generation,
       w.bypass AS bypass,
       w.at AS from_at,
       w.to_at AS to_at,
       now() - w.to_at AS age,
       w.invalid = '{}' AS valid,
       ARRAY(SELECT rdmesh_store.invalid_cause_name(c.cause) FROM unnest(w.invalid) WITH ORDINALITY c (cause, place) ORDER BY c.place) AS invalid_causes,
       CASE WHEN w.to_at > w.at THEN (w.sent_bits / EXTRACT(epoch FROM w.to_at - w.at))::bigint END AS sent_bps,
       w.queue_frames_now AS queue_frames_now,
       w.queue_frames_p99 AS queue_frames_p99,
       w.waited_ns_p99 AS waited_ns_p99,
       w.windows_given_up AS windows_given_up,
       w.gap_from_at AS gap_from_at,
       w.gap_to_at AS gap_to_at,
       w.engine_version AS engine_version,
       w.configuration_hash AS configuration_hash,
       w.marks AS marks
FROM rdmesh_store.wires w;

COMMENT ON VIEW rdmesh.wires IS 'The latest state of each wire, as its last window tells.';
COMMENT ON COLUMN rdmesh.wires.host IS 'Host of the shaper, as it names itself.';
COMMENT ON COLUMN rdmesh.wires.wire IS 'Name of the wire.';
COMMENT ON COLUMN rdmesh.wires.shaped_host IS 'Host whose virtual function is shaped.';
COMMENT ON COLUMN rdmesh.wires.virtual_function IS 'The virtual function.';
COMMENT ON COLUMN rdmesh.wires.rate_bps IS 'Line rate, frame overhead included, bit/s; 0: not shaped.';
COMMENT ON COLUMN rdmesh.wires.configured_rate_bps IS 'The rate that a reset goes back to, bit/s; 0: not shaped.';
COMMENT ON COLUMN rdmesh.wires.expires_at IS 'When the rate goes back to the configured one by itself, time of the shaper; null: it does not.';
COMMENT ON COLUMN rdmesh.wires.policy_generation IS 'Grows with each change of the wire.';
COMMENT ON COLUMN rdmesh.wires.bypass IS 'Traffic goes around the shaper.';
COMMENT ON COLUMN rdmesh.wires.from_at IS 'Start of its last window, collector time.';
COMMENT ON COLUMN rdmesh.wires.to_at IS 'End of its last window, collector time.';
COMMENT ON COLUMN rdmesh.wires.age IS 'How long ago that was. Far more than a window''s length: the shaper is silent.';
COMMENT ON COLUMN rdmesh.wires.valid IS 'Whether that window shows the wire that was asked for.';
COMMENT ON COLUMN rdmesh.wires.invalid_causes IS 'Why it does not.';
COMMENT ON COLUMN rdmesh.wires.sent_bps IS 'Mean rate sent in it, frame overhead included, bit/s; null: it has no length.';
COMMENT ON COLUMN rdmesh.wires.queue_frames_now IS 'Frames that waited at its end.';
COMMENT ON COLUMN rdmesh.wires.queue_frames_p99 IS 'Frames that waited, 99th percentile.';
COMMENT ON COLUMN rdmesh.wires.waited_ns_p99 IS 'Time that a frame waited, 99th percentile, nanoseconds.';
COMMENT ON COLUMN rdmesh.wires.windows_given_up IS 'Windows that the shaper''s run gave up so far, because no collector took them.';
COMMENT ON COLUMN rdmesh.wires.gap_from_at IS 'Start of the last time without a window, collector time; null: none was seen.';
COMMENT ON COLUMN rdmesh.wires.gap_to_at IS 'Its end.';
COMMENT ON COLUMN rdmesh.wires.engine_version IS 'Version of the engine.';
COMMENT ON COLUMN rdmesh.wires.configuration_hash IS 'Windows with different hashes are not compared.';
COMMENT ON COLUMN rdmesh.wires.marks IS 'What is odd about that window.';

-- Windows with the attempts that used the wire: by shaped host, time, and virtual
-- function where the placement names any.
CREATE VIEW rdmesh.job_wires AS
SELECT a.job_id AS job_id,
       a.requeue AS requeue,
       a.restart AS restart,
       CASE WHEN p.virtual_functions <> '{}' THEN 'virtual_function' ELSE 'host' END AS joined_by,
       w.from_at >= a.from_at AND w.to_at <= a.to_at AS whole,
       w.*
FROM rdmesh_store.placements p
JOIN rdmesh_store.attempt_windows a USING (job_id, requeue, restart)
JOIN rdmesh_store.readable_windows w
  ON w.shaped_host = p.host AND w.from_at < a.to_at AND w.to_at > a.from_at
     -- Windows are short: this bound lets old partitions be skipped.
     AND w.from_at >= a.from_at - interval '1 day'
WHERE p.virtual_functions = '{}' OR w.virtual_function = ANY (p.virtual_functions);

COMMENT ON VIEW rdmesh.job_wires IS 'Windows of the wires that attempts used: of the shaped host, while the attempt ran, with its virtual functions or, where the placement names none, all of the host.';
COMMENT ON COLUMN rdmesh.job_wires.job_id IS 'The scheduler''s job id.';
COMMENT ON COLUMN rdmesh.job_wires.requeue IS 'How often the scheduler had requeued the job.';
COMMENT ON COLUMN rdmesh.job_wires.restart IS 'How often the launcher had restarted its workers inside that run.';
COMMENT ON COLUMN rdmesh.job_wires.joined_by IS 'virtual_function: the placement names it; host: the placement names none, so that every wire of the host counts.';
COMMENT ON COLUMN rdmesh.job_wires.whole IS 'Whether all of the window lies in the attempt''s time.';

-- Its other columns are those of a window, and described like them.
DO $comments$
DECLARE
    described record;
BEGIN
    FOR described IN
        SELECT attname, col_description(attrelid, attnum) AS said
        FROM pg_attribute
        WHERE attrelid = 'rdmesh.wire_windows'::regclass AND attnum > 0
    LOOP
        EXECUTE format('COMMENT ON COLUMN rdmesh.job_wires.%I IS %L', described.attname,
                       described.said);
    END LOOP;
END $comments$;

-- Two stretches of time of one wire, side by side. Whole windows only, figures of valid
-- ones alone; a stretch without a window, and windows of different engines or
-- configurations, are an error.
CREATE FUNCTION rdmesh.compare_wire(
    shaper text, name text,
    a_from timestamptz, a_to timestamptz, b_from timestamptz, b_to timestamptz
) RETURNS TABLE (
    stretch text, from_at timestamptz, to_at timestamptz,
    engine_version text, configuration_hash text,
    windows bigint, valid_windows bigint, gaps interval,
    lowest_rate_bps bigint, highest_rate_bps bigint, mean_sent_bps bigint, sent_frames bigint,
    queue_frames_p99 bigint, queue_frames_max bigint, waited_ns_p99 bigint, waited_ns_max bigint,
    ce_marks bigint, lost_ps bigint, repeated_frames bigint
) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog AS $$
#variable_conflict use_column
DECLARE
    kinds text;
    many bigint;
    empty text;
BEGIN
    SELECT string_agg(s.stretch || ' (' || s.from_at || ' to ' || s.to_at || ')', ' and in '
                      ORDER BY s.stretch) INTO empty
    FROM (VALUES ('a', a_from, a_to), ('b', b_from, b_to)) s (stretch, from_at, to_at)
    WHERE NOT EXISTS (SELECT FROM rdmesh.wire_windows w
                      WHERE w.host = shaper AND w.wire = name
                        AND w.from_at >= s.from_at AND w.to_at <= s.to_at);
    IF empty IS NOT NULL THEN
        RAISE EXCEPTION 'wire % of % has no whole window in %', name, shaper, empty
            USING ERRCODE = 'no_data_found',
                  HINT = 'rdmesh.wire_windows shows when it reported.';
    END IF;
    SELECT count(DISTINCT k.kind),
           string_agg(k.stretch || ': ' || k.kind, '; ' ORDER BY k.stretch, k.kind)
    INTO many, kinds
    FROM (SELECT DISTINCT s.stretch, 'engine ' || w.engine_version || ', configuration '
                 || w.configuration_hash AS kind
          FROM (VALUES ('a', a_from, a_to), ('b', b_from, b_to)) s (stretch, from_at, to_at)
          JOIN rdmesh.wire_windows w ON w.host = shaper AND w.wire = name
               AND w.from_at >= s.from_at AND w.to_at <= s.to_at) k;
    IF many > 1 THEN
        RAISE EXCEPTION 'windows of different engines or configurations are not compared (%)', kinds
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Repeat the older run with the engine and configuration of today, or choose stretches of one configuration.';
    END IF;
    RETURN QUERY
    SELECT s.stretch, s.from_at, s.to_at, min(w.engine_version), min(w.configuration_hash),
           count(*), count(*) FILTER (WHERE w.valid),
           COALESCE(sum(w.gap) FILTER (WHERE w.from_at - w.gap >= s.from_at), interval '0'),
           min(w.rate_bps) FILTER (WHERE w.valid), max(w.rate_bps) FILTER (WHERE w.valid),
           (sum(w.sent_bits) FILTER (WHERE w.valid)
            / NULLIF(EXTRACT(epoch FROM sum(w.to_at - w.from_at) FILTER (WHERE w.valid)), 0))::bigint,
           rdmesh_store.bounded(sum(w.sent_frames) FILTER (WHERE w.valid)),
           max(w.queue_frames_p99) FILTER (WHERE w.valid),
           max(w.queue_frames_max) FILTER (WHERE w.valid),
           max(w.waited_ns_p99) FILTER (WHERE w.valid),
           max(w.waited_ns_max) FILTER (WHERE w.valid),
           rdmesh_store.bounded(sum(w.ce_marks) FILTER (WHERE w.valid)),
           rdmesh_store.bounded(sum(w.lost_ps) FILTER (WHERE w.valid)),
           rdmesh_store.bounded(sum(w.repeated_frames) FILTER (WHERE w.valid))
    FROM (VALUES ('a', a_from, a_to), ('b', b_from, b_to)) s (stretch, from_at, to_at)
    JOIN rdmesh.wire_windows w ON w.host = shaper AND w.wire = name
         AND w.from_at >= s.from_at AND w.to_at <= s.to_at
    GROUP BY s.stretch, s.from_at, s.to_at ORDER BY s.stretch;
END $$;

COMMENT ON FUNCTION rdmesh.compare_wire IS 'Two stretches of time of one wire side by side: compare_wire(shaper''s host, wire, a_from, a_to, b_from, b_to). Whole windows only, figures of valid ones alone; of percentiles the highest of a window. Refused when the windows carry different engine versions or configuration hashes.';
