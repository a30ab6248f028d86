-- A verdict outlives the details that it was decided by. It is answered then as it was, in
-- full, and with what windows captured of its failure.
ALTER TABLE rdmesh_store.verdicts
    -- rdmesh.collector.v1.Verdict; null: kept by a collector that kept none.
    ADD COLUMN body bytea,
    -- Of rdmesh_store.signatures: the failing call that decided; null: none did.
    ADD COLUMN signature_id bigint;

-- What zstd has compressed is not tried again.
DO $storage$
DECLARE
    c record;
BEGIN
    FOR c IN SELECT attrelid::regclass AS of FROM pg_attribute
             WHERE attname = 'body' AND attrelid IN (
                 SELECT 'rdmesh_store.snapshots'::regclass UNION ALL
                 SELECT inhrelid FROM pg_inherits
                 WHERE inhparent = 'rdmesh_store.snapshots'::regclass)
    LOOP
        EXECUTE format('ALTER TABLE %s ALTER COLUMN body SET STORAGE EXTERNAL', c.of);
    END LOOP;
END $storage$;
