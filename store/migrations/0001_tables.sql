-- Tables of the store. Nobody but the collector reads them: people and programs
-- read the views in schema `rdmesh` (migration 0003).
--
-- Enumerations are kept as the numbers of the wire contract (rdmesh.common.v1).
-- Schema `rdmesh_store` is made before, because the list of migrations lives in it.
-- Every large table has `host` in its unique key and is partitioned by week.

CREATE SCHEMA IF NOT EXISTS rdmesh;

CREATE TABLE rdmesh_store.hosts (
    host text PRIMARY KEY,
    first_seen_at timestamptz NOT NULL
);

-- One row for each process of an agent.
CREATE TABLE rdmesh_store.agent_runs (
    host text NOT NULL,
    agent smallint NOT NULL,
    run_id uuid NOT NULL,
    boot_id text NOT NULL,
    version text NOT NULL,
    address text NOT NULL,
    started_at timestamptz NOT NULL,
    first_hello_at timestamptz NOT NULL,
    last_hello_at timestamptz NOT NULL,
    last_seen_at timestamptz NOT NULL,
    -- Sequences that were committed or rejected. One range as long as nothing is
    -- missing: this is what makes the effect of an item exactly-once.
    seqs int8multirange NOT NULL DEFAULT '{}',
    -- Intervals that the run reported on, nanoseconds of its host's boot clock.
    watched int8multirange NOT NULL DEFAULT '{}',
    -- Collector time at which the host's boot clock stood at 0, nanoseconds since 1970.
    boot_epoch_ns bigint,
    -- Host clock minus collector clock, nanoseconds.
    clock_offset_ns bigint,
    clock_jumps integer NOT NULL DEFAULT 0,
    inventory_id text NOT NULL DEFAULT '',
    snapshots bigint NOT NULL DEFAULT 0,
    heartbeats bigint NOT NULL DEFAULT 0,
    rejected bigint NOT NULL DEFAULT 0,
    last_rejection text,
    given_up bigint NOT NULL DEFAULT 0,
    failures bigint NOT NULL DEFAULT 0,
    drops bigint NOT NULL DEFAULT 0,
    unseen bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (host, agent, run_id)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05);

-- The exact snapshot as it came.
CREATE TABLE rdmesh_store.snapshots (
    host text NOT NULL,
    at timestamptz NOT NULL,
    run_id uuid NOT NULL,
    seq bigint NOT NULL,
    started_at timestamptz NOT NULL,
    received_at timestamptz NOT NULL,
    inventory_id text NOT NULL,
    chains integer NOT NULL,
    failures bigint NOT NULL,
    drops bigint NOT NULL,
    unseen bigint NOT NULL,
    chains_left_out bigint NOT NULL,
    marks text[] NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (host, at, run_id, seq)
) PARTITION BY RANGE (at);
-- The body is compressed before it comes here.
ALTER TABLE rdmesh_store.snapshots ALTER COLUMN body SET STORAGE EXTERNAL;

-- A chain, coalesced by signature, task and device within one snapshot.
CREATE TABLE rdmesh_store.failures (
    host text NOT NULL,
    at timestamptz NOT NULL,
    run_id uuid NOT NULL,
    seq bigint NOT NULL,
    ordinal integer NOT NULL,
    last_at timestamptz NOT NULL,
    host_first_at timestamptz NOT NULL,
    host_last_at timestamptz NOT NULL,
    count bigint NOT NULL,
    verb smallint NOT NULL,
    -- Innermost first, all four of the same length.
    functions text[] NOT NULL,
    modules text[] NOT NULL,
    layers smallint[] NOT NULL,
    errnos integer[] NOT NULL,
    driver text NOT NULL,
    device text NOT NULL,
    netdev text NOT NULL,
    pci_address text NOT NULL,
    tgid bigint NOT NULL,
    tid bigint NOT NULL,
    comm text NOT NULL,
    cgroup_path text NOT NULL,
    job_id text,
    requeue bigint NOT NULL,
    restart bigint NOT NULL,
    rank integer,
    local_rank integer,
    source smallint NOT NULL,
    expected boolean NOT NULL,
    swallowed boolean NOT NULL,
    incomplete boolean NOT NULL,
    marks text[] NOT NULL,
    arguments jsonb,
    PRIMARY KEY (host, at, run_id, seq, ordinal)
) PARTITION BY RANGE (at);
CREATE INDEX failures_by_time ON rdmesh_store.failures (at, host);
CREATE INDEX failures_by_job ON rdmesh_store.failures (job_id, at) WHERE job_id IS NOT NULL;

-- Exact failing returns: by (probe, errno) where cgroup_path is null, by (probe,
-- errno, cgroup) where it is not.
CREATE TABLE rdmesh_store.failure_counts (
    host text NOT NULL,
    at timestamptz NOT NULL,
    run_id uuid NOT NULL,
    seq bigint NOT NULL,
    ordinal integer NOT NULL,
    function text NOT NULL,
    module text NOT NULL,
    layer smallint NOT NULL,
    errno integer NOT NULL,
    cgroup_path text,
    job_id text,
    requeue bigint NOT NULL,
    restart bigint NOT NULL,
    source smallint NOT NULL,
    delta bigint NOT NULL,
    total bigint NOT NULL,
    PRIMARY KEY (host, at, run_id, seq, ordinal)
) PARTITION BY RANGE (at);
CREATE INDEX failure_counts_by_job ON rdmesh_store.failure_counts (job_id, at)
    WHERE job_id IS NOT NULL;

-- What a host could not keep or see: records without room in the ring (kind 1),
-- failing returns without room in the finer counters (kind 2), calls that the kernel
-- did not show to a probe (kind 3).
CREATE TABLE rdmesh_store.drops (
    host text NOT NULL,
    at timestamptz NOT NULL,
    run_id uuid NOT NULL,
    seq bigint NOT NULL,
    ordinal integer NOT NULL,
    kind smallint NOT NULL,
    function text NOT NULL,
    module text NOT NULL,
    layer smallint NOT NULL,
    delta bigint NOT NULL,
    total bigint NOT NULL,
    PRIMARY KEY (host, at, run_id, seq, ordinal)
) PARTITION BY RANGE (at);

CREATE TABLE rdmesh_store.co_signals (
    host text NOT NULL,
    at timestamptz NOT NULL,
    run_id uuid NOT NULL,
    seq bigint NOT NULL,
    ordinal integer NOT NULL,
    kind smallint NOT NULL,
    independent boolean NOT NULL,
    name text NOT NULL,
    detail text NOT NULL,
    device text NOT NULL,
    marks text[] NOT NULL,
    PRIMARY KEY (host, at, run_id, seq, ordinal)
) PARTITION BY RANGE (at);

CREATE TABLE rdmesh_store.wire_windows (
    host text NOT NULL,
    at timestamptz NOT NULL,
    run_id uuid NOT NULL,
    seq bigint NOT NULL,
    to_at timestamptz NOT NULL,
    wire text NOT NULL,
    shaped_host text NOT NULL,
    virtual_function text NOT NULL,
    rate_bps bigint NOT NULL,
    configured_rate_bps bigint NOT NULL,
    expires_at timestamptz,
    policy_generation bigint NOT NULL,
    sent_frames bigint NOT NULL,
    sent_bits bigint NOT NULL,
    queue_frames_now bigint NOT NULL,
    queue_frames_p50 bigint NOT NULL,
    queue_frames_p99 bigint NOT NULL,
    queue_frames_max bigint NOT NULL,
    waited_ns_p50 bigint NOT NULL,
    waited_ns_p99 bigint NOT NULL,
    waited_ns_max bigint NOT NULL,
    catch_up_used_ps bigint NOT NULL,
    lost_ps bigint NOT NULL,
    ce_marks bigint NOT NULL,
    imissed bigint NOT NULL,
    rx_nombuf bigint NOT NULL,
    tx_not_accepted bigint NOT NULL,
    full_polls bigint NOT NULL,
    longest_poll_gap_ns bigint NOT NULL,
    poll_gap_buckets bigint[] NOT NULL,
    repeated_frames bigint NOT NULL,
    repeated_bytes bigint NOT NULL,
    windows_given_up bigint NOT NULL,
    invalid smallint[] NOT NULL,
    bypass boolean NOT NULL,
    engine_version text NOT NULL,
    configuration_hash text NOT NULL,
    marks text[] NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (host, at, run_id, seq)
) PARTITION BY RANGE (at);
CREATE INDEX wire_windows_by_shaped_host ON rdmesh_store.wire_windows (shaped_host, at);

-- What a host was, from when on.
CREATE TABLE rdmesh_store.inventories (
    host text NOT NULL,
    id text NOT NULL,
    seen_at timestamptz NOT NULL,
    received_at timestamptz NOT NULL,
    kernel_release text NOT NULL,
    ofed_version text NOT NULL,
    gpu_driver text NOT NULL,
    summary jsonb NOT NULL,
    marks text[] NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (host, seen_at, id)
);

CREATE TABLE rdmesh_store.probe_reports (
    host text NOT NULL,
    received_at timestamptz NOT NULL,
    run_id uuid NOT NULL,
    seq bigint NOT NULL,
    kernel_release text NOT NULL,
    logical_attached integer NOT NULL,
    logical_total integer NOT NULL,
    obstacle text NOT NULL,
    marks text[] NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (host, received_at, run_id, seq)
);

-- The probes of the report that came last from a host.
CREATE TABLE rdmesh_store.probes (
    host text NOT NULL,
    ordinal integer NOT NULL,
    run_id uuid NOT NULL,
    seq bigint NOT NULL,
    received_at timestamptz NOT NULL,
    hook text NOT NULL,
    function text NOT NULL,
    module text NOT NULL,
    layer smallint NOT NULL,
    verb smallint NOT NULL,
    logical boolean NOT NULL,
    state smallint NOT NULL,
    attached_by smallint NOT NULL,
    reason text NOT NULL,
    failures bigint NOT NULL,
    drops bigint NOT NULL,
    unseen bigint NOT NULL,
    found_by text NOT NULL,
    missing_because smallint[] NOT NULL,
    PRIMARY KEY (host, ordinal)
);

-- Job metadata: small, reference tables.
CREATE TABLE rdmesh_store.attempts (
    job_id text NOT NULL,
    requeue bigint NOT NULL,
    restart bigint NOT NULL,
    -- False: no scheduler spoke of it; failing tasks named it.
    told boolean NOT NULL,
    name text NOT NULL DEFAULT '',
    user_name text NOT NULL DEFAULT '',
    scheduler text NOT NULL DEFAULT '',
    cluster text NOT NULL DEFAULT '',
    job_class text NOT NULL DEFAULT '',
    state smallint NOT NULL DEFAULT 1,
    started_at timestamptz,
    ended_at timestamptz,
    exit_code integer,
    exit_reason text NOT NULL DEFAULT '',
    labels jsonb NOT NULL DEFAULT '{}',
    first_told_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (job_id, requeue, restart)
);
-- Newest first, as jobs are listed.
CREATE INDEX attempts_by_time ON rdmesh_store.attempts
    ((LEAST(COALESCE(started_at, ended_at, first_told_at), first_told_at)) DESC,
     job_id, requeue, restart);

-- What was told lately, for the diagnosis of attempts that ended.
CREATE INDEX attempts_by_update ON rdmesh_store.attempts (updated_at);

CREATE TABLE rdmesh_store.placements (
    job_id text NOT NULL,
    requeue bigint NOT NULL,
    restart bigint NOT NULL,
    host text NOT NULL,
    ranks bigint[] NOT NULL,
    devices text[] NOT NULL,
    gpus text[] NOT NULL,
    virtual_functions text[] NOT NULL,
    placed_at timestamptz NOT NULL,
    PRIMARY KEY (job_id, requeue, restart, host),
    FOREIGN KEY (job_id, requeue, restart) REFERENCES rdmesh_store.attempts ON DELETE CASCADE
);
CREATE INDEX placements_by_host ON rdmesh_store.placements (host);

-- The last verdict on an attempt.
CREATE TABLE rdmesh_store.verdicts (
    job_id text NOT NULL,
    requeue bigint NOT NULL,
    restart bigint NOT NULL,
    diagnosed_at timestamptz NOT NULL,
    class text NOT NULL,
    layer smallint NOT NULL,
    verb smallint NOT NULL,
    function text NOT NULL,
    module text NOT NULL,
    errno integer NOT NULL,
    errno_name text NOT NULL,
    hosts text[] NOT NULL,
    devices text[] NOT NULL,
    first_at timestamptz,
    confidence text NOT NULL,
    route_to text NOT NULL,
    rule text NOT NULL,
    evidence text[] NOT NULL,
    against text[] NOT NULL,
    unwatched text[] NOT NULL,
    summary text NOT NULL,
    meaning text NOT NULL,
    next_steps text[] NOT NULL,
    failures_looked_at bigint NOT NULL,
    failures_total bigint NOT NULL,
    PRIMARY KEY (job_id, requeue, restart)
);
