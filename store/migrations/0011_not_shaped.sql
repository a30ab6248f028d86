-- A window of a wire that nothing shaped, because it was bypassed or stopped, says so.

CREATE OR REPLACE FUNCTION rdmesh_store.invalid_cause_name(cause smallint) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE cause WHEN 1 THEN 'port_dropped' WHEN 2 THEN 'poll_gap'
        WHEN 3 THEN 'retransmits' WHEN 4 THEN 'back_pressure_help'
        WHEN 5 THEN 'data_path_down' WHEN 6 THEN 'not_shaped' ELSE 'unknown' END $$;

COMMENT ON COLUMN rdmesh.wire_windows.invalid_causes IS 'Why it does not: port_dropped, poll_gap, retransmits, back_pressure_help, data_path_down, not_shaped.';
