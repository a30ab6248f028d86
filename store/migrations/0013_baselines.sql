-- Automatic mode: windows that collectors lease to tracers, the baselines that came of
-- them, and where failing calls left good ones.

-- One for each host that recorded it: a fleet records one where it has none.
CREATE TABLE rdmesh_store.baselines (
    host text NOT NULL,
    kernel_release text NOT NULL,
    driver text NOT NULL,
    verb text NOT NULL,
    recorded_at timestamptz NOT NULL,
    received_at timestamptz NOT NULL,
    good_calls bigint NOT NULL,
    functions bigint NOT NULL,
    -- rdmesh.tracer.v1.Baseline with its tree.
    body bytea NOT NULL,
    PRIMARY KEY (host, kernel_release, driver, verb)
);
CREATE INDEX baselines_by_kernel
    ON rdmesh_store.baselines (kernel_release, driver, verb, recorded_at DESC);

CREATE TABLE rdmesh_store.window_leases (
    host text NOT NULL,
    lease_id uuid NOT NULL,
    run_id uuid NOT NULL,
    -- As the contract numbers it: 1 record, 2 capture.
    purpose smallint NOT NULL,
    kernel_release text NOT NULL,
    driver text NOT NULL,
    verbs text[] NOT NULL,
    -- Of the failing call that is waited for; null: good calls are recorded.
    signature_id bigint,
    granted_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    -- Null: it is open, or its host went without a word.
    ended_at timestamptz,
    -- What came of it, in words; empty: a result.
    outcome text NOT NULL,
    PRIMARY KEY (host, lease_id)
);
CREATE INDEX window_leases_open ON rdmesh_store.window_leases (expires_at)
    WHERE ended_at IS NULL;
CREATE INDEX window_leases_by_signature ON rdmesh_store.window_leases (signature_id)
    WHERE signature_id IS NOT NULL;

-- The first failing call of its signature that a window of the host saw.
CREATE TABLE rdmesh_store.forks (
    host text NOT NULL,
    signature_id bigint NOT NULL,
    captured_at timestamptz NOT NULL,
    kernel_release text NOT NULL,
    driver text NOT NULL,
    verb text NOT NULL,
    call_errno integer NOT NULL,
    -- From the entry point to the function, both included.
    path text[] NOT NULL,
    errno integer NOT NULL,
    good_calls bigint NOT NULL,
    baseline_host text NOT NULL,
    baseline_recorded_at timestamptz,
    -- rdmesh.tracer.v1.Fork with its trace.
    body bytea NOT NULL,
    PRIMARY KEY (host, signature_id)
);
CREATE INDEX forks_by_signature ON rdmesh_store.forks (signature_id, captured_at DESC);

CREATE VIEW rdmesh.baselines AS
SELECT b.host AS host,
       b.kernel_release AS kernel_release,
       b.driver AS driver,
       b.verb AS verb,
       b.recorded_at AS recorded_at,
       b.good_calls AS good_calls,
       b.functions AS functions
FROM rdmesh_store.baselines b;

COMMENT ON VIEW rdmesh.baselines IS 'What calls that succeed do in the kernel, as tracers recorded it in automatic mode: one for each kernel, driver and verb of the host that recorded it.';
COMMENT ON COLUMN rdmesh.baselines.host IS 'The host that recorded it.';
COMMENT ON COLUMN rdmesh.baselines.kernel_release IS 'Its kernel, as uname -r tells it.';
COMMENT ON COLUMN rdmesh.baselines.driver IS 'Module of the RDMA driver.';
COMMENT ON COLUMN rdmesh.baselines.verb IS 'What the application asked for: reg_mr, modify_qp, ….';
COMMENT ON COLUMN rdmesh.baselines.recorded_at IS 'End of the window, by the host''s own clock.';
COMMENT ON COLUMN rdmesh.baselines.good_calls IS 'Calls in it.';
COMMENT ON COLUMN rdmesh.baselines.functions IS 'Functions that were watched.';

CREATE VIEW rdmesh.forks AS
SELECT f.host AS host,
       f.signature_id AS signature_id,
       f.captured_at AS captured_at,
       f.kernel_release AS kernel_release,
       f.driver AS driver,
       f.verb AS verb,
       f.call_errno AS call_errno,
       f.path[cardinality(f.path)] AS function,
       cardinality(f.path) - 1 AS depth,
       f.path AS path,
       f.errno AS errno,
       COALESCE((SELECT n.name FROM rdmesh_store.errnos n WHERE n.errno = f.errno), 'errno ' || f.errno) AS errno_name,
       f.good_calls AS good_calls,
       f.baseline_host AS baseline_host,
       f.baseline_recorded_at AS baseline_recorded_at
FROM rdmesh_store.forks f;

COMMENT ON VIEW rdmesh.forks IS 'Where failing calls left good ones: the first of each signature that a window of a host saw in automatic mode.';
COMMENT ON COLUMN rdmesh.forks.host IS 'The host on which it was captured.';
COMMENT ON COLUMN rdmesh.forks.signature_id IS 'The kind of failing call, as in rdmesh.incidents.';
COMMENT ON COLUMN rdmesh.forks.captured_at IS 'When it came, collector time.';
COMMENT ON COLUMN rdmesh.forks.kernel_release IS 'Kernel of the host, as uname -r tells it.';
COMMENT ON COLUMN rdmesh.forks.driver IS 'Module of the RDMA driver.';
COMMENT ON COLUMN rdmesh.forks.verb IS 'What the application asked for: reg_mr, modify_qp, ….';
COMMENT ON COLUMN rdmesh.forks.call_errno IS 'How the call failed, positive.';
COMMENT ON COLUMN rdmesh.forks.function IS 'The first function in which it differs from good calls.';
COMMENT ON COLUMN rdmesh.forks.depth IS 'Calls from the entry point to it; 0: the entry point itself.';
COMMENT ON COLUMN rdmesh.forks.path IS 'From the entry point to it, both included.';
COMMENT ON COLUMN rdmesh.forks.errno IS 'What it returned, positive.';
COMMENT ON COLUMN rdmesh.forks.errno_name IS 'Its name: EFAULT.';
COMMENT ON COLUMN rdmesh.forks.good_calls IS 'Good calls that it was laid beside.';
COMMENT ON COLUMN rdmesh.forks.baseline_host IS 'The host that recorded them.';
COMMENT ON COLUMN rdmesh.forks.baseline_recorded_at IS 'When, by that host''s clock.';
