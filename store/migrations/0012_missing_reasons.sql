-- Probes that a passed budget took off, and names that stand twice in a module, are told as
-- such.

CREATE OR REPLACE FUNCTION rdmesh_store.missing_name(reason smallint) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE reason WHEN 1 THEN 'module_not_loaded' WHEN 2 THEN 'no_driver'
        WHEN 3 THEN 'no_such_function' WHEN 4 THEN 'changed_by_compiler'
        WHEN 5 THEN 'not_described' WHEN 6 THEN 'no_btf' WHEN 7 THEN 'not_traceable'
        WHEN 8 THEN 'driver_has_no_operation' WHEN 9 THEN 'no_return_value'
        WHEN 10 THEN 'refused_by_kernel' WHEN 11 THEN 'detached' WHEN 12 THEN 'budget_passed'
        WHEN 13 THEN 'ambiguous' ELSE 'unknown' END $$;

COMMENT ON COLUMN rdmesh.probes.missing_because IS 'The same for programs, in the order of reason: module_not_loaded, no_driver, no_such_function, changed_by_compiler, not_described, no_btf, not_traceable, driver_has_no_operation, no_return_value, refused_by_kernel, detached, budget_passed, ambiguous or unknown; empty: it is attached, or the tracer did not say.';
