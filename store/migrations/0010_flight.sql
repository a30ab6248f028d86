-- Dumps of PyTorch's Flight Recorder stand among the logs: what is kept of one is enough to
-- say, with those of the other ranks, which rank never entered which collective.

-- Null: it is a log.
ALTER TABLE rdmesh_store.job_logs ADD COLUMN flight jsonb;
