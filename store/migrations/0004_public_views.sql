-- What people and programs read: schema `rdmesh`, by the role `rdmesh_reader`.

CREATE VIEW rdmesh.failures AS
SELECT f.host AS host,
       f.at AS first_at,
       f.last_at AS last_at,
       f.host_first_at AS host_first_at,
       f.host_last_at AS host_last_at,
       f.count AS count,
       rdmesh_store.verb_name(f.verb) AS verb,
       f.functions[1] AS function,
       f.modules[1] AS module,
       rdmesh_store.layer_name(f.layers[1]) AS layer,
       f.errnos[1] AS errno,
       COALESCE((SELECT n.name FROM rdmesh_store.errnos n WHERE n.errno = f.errnos[1]), 'errno ' || f.errnos[1]) AS errno_name,
       f.functions AS functions,
       f.modules AS modules,
       (SELECT array_agg(rdmesh_store.layer_name(l.layer) ORDER BY l.step) FROM unnest(f.layers) WITH ORDINALITY l (layer, step)) AS layers,
       f.errnos AS errnos,
       (SELECT array_agg(COALESCE(n.name, 'errno ' || e.errno) ORDER BY e.step) FROM unnest(f.errnos) WITH ORDINALITY e (errno, step) LEFT JOIN rdmesh_store.errnos n USING (errno)) AS errno_names,
       f.driver AS driver,
       f.device AS device,
       f.netdev AS netdev,
       f.pci_address AS pci_address,
       f.tgid AS tgid,
       f.tid AS tid,
       f.comm AS comm,
       f.cgroup_path AS cgroup_path,
       f.job_id AS job_id,
       f.requeue AS requeue,
       f.restart AS restart,
       f.rank AS rank,
       f.local_rank AS local_rank,
       rdmesh_store.source_name(f.source) AS source,
       f.expected AS expected,
       f.swallowed AS swallowed,
       f.incomplete AS incomplete,
       f.marks || f.doubts AS marks,
       f.arguments AS arguments,
       f.run_id AS run_id,
       f.seq AS sequence
FROM rdmesh_store.joined_failures f;

COMMENT ON VIEW rdmesh.failures IS 'Failing calls, coalesced by signature, task and device within one snapshot. Times are corrected by the host''s estimated clock offset.';
COMMENT ON COLUMN rdmesh.failures.host IS 'The host, as schedulers name it.';
COMMENT ON COLUMN rdmesh.failures.first_at IS 'First such call in the snapshot, collector time.';
COMMENT ON COLUMN rdmesh.failures.last_at IS 'Last such call in the snapshot, collector time.';
COMMENT ON COLUMN rdmesh.failures.host_first_at IS 'The first call by the host''s own clock, uncorrected.';
COMMENT ON COLUMN rdmesh.failures.host_last_at IS 'The last call by the host''s own clock, uncorrected.';
COMMENT ON COLUMN rdmesh.failures.count IS 'How many such calls.';
COMMENT ON COLUMN rdmesh.failures.verb IS 'What the application asked for: reg_mr, modify_qp, ….';
COMMENT ON COLUMN rdmesh.failures.function IS 'The kernel function where the error came into being: the innermost of the chain.';
COMMENT ON COLUMN rdmesh.failures.module IS 'Kernel module of that function; empty: built into the kernel.';
COMMENT ON COLUMN rdmesh.failures.layer IS 'Layer of that function: memory, firmware, driver, core or uverbs.';
COMMENT ON COLUMN rdmesh.failures.errno IS 'The errno of that function, positive.';
COMMENT ON COLUMN rdmesh.failures.errno_name IS 'Its name: EFAULT.';
COMMENT ON COLUMN rdmesh.failures.functions IS 'The whole chain, innermost first.';
COMMENT ON COLUMN rdmesh.failures.modules IS 'Modules of the chain, innermost first.';
COMMENT ON COLUMN rdmesh.failures.layers IS 'Layers of the chain, innermost first.';
COMMENT ON COLUMN rdmesh.failures.errnos IS 'Errnos of the chain, innermost first, positive.';
COMMENT ON COLUMN rdmesh.failures.errno_names IS 'Their names.';
COMMENT ON COLUMN rdmesh.failures.driver IS 'Kernel module of the RDMA driver.';
COMMENT ON COLUMN rdmesh.failures.device IS 'RDMA device: mlx5_0; empty: not known.';
COMMENT ON COLUMN rdmesh.failures.netdev IS 'Network interface of the device; empty: none.';
COMMENT ON COLUMN rdmesh.failures.pci_address IS 'PCI address of the device; empty: none.';
COMMENT ON COLUMN rdmesh.failures.tgid IS 'Process id on the host.';
COMMENT ON COLUMN rdmesh.failures.tid IS 'Thread id on the host.';
COMMENT ON COLUMN rdmesh.failures.comm IS 'Name of the thread. Bytes that are not UTF-8 are replaced; then `marks` says so.';
COMMENT ON COLUMN rdmesh.failures.cgroup_path IS 'Path of the cgroup; empty: not known.';
COMMENT ON COLUMN rdmesh.failures.job_id IS 'The scheduler''s job id; null: no attempt could be named.';
COMMENT ON COLUMN rdmesh.failures.requeue IS 'How often the scheduler had requeued the job.';
COMMENT ON COLUMN rdmesh.failures.restart IS 'How often the launcher had restarted its workers inside that run.';
COMMENT ON COLUMN rdmesh.failures.rank IS 'RANK of the process; null: not known.';
COMMENT ON COLUMN rdmesh.failures.local_rank IS 'LOCAL_RANK of the process; null: not known.';
COMMENT ON COLUMN rdmesh.failures.source IS 'How the attempt is known: environment, cgroup, placement, none or, of a tracer that is newer than the collector, unknown.';
COMMENT ON COLUMN rdmesh.failures.expected IS 'A rule says that this failure is part of normal work.';
COMMENT ON COLUMN rdmesh.failures.swallowed IS 'The error did not reach user space.';
COMMENT ON COLUMN rdmesh.failures.incomplete IS 'Records were dropped while the chain grew.';
COMMENT ON COLUMN rdmesh.failures.marks IS 'What is odd about the row, one text each. The forms, here and in the marks of other views: "its time is more than 35 days before or an hour after its receipt; placed at the receipt"; "the host''s clock jumped by …" (its times come from the boot clock and are right); "TEXT was not storable text (not UTF-8, control characters, or too long); it was changed" for function, module, driver, device, network interface, PCI address, comm, cgroup path and the like; "WHAT NUMBER is not known to this collector (is the agent newer?); stored as unknown" for layer, verb, identity source, mapping and the like; "it lies after the end of its snapshot''s interval"; "it ended more than 10 seconds before its snapshot''s interval began"; "it began more than 60 seconds before its snapshot''s interval"; "rank NUMBER is none; stored as not known", the same for local rank; "it counts one call, and its times lie further apart than those of one call"; "its snapshot''s interval is longer than 10 minutes; only the last 10 count as watched"; "its snapshot''s interval ends after its clock; what lies after it does not count as watched"; "the job id that its task names …" (it names none; the row is joined by cgroup or placement). Computed when asked for, because what schedulers tell late heals them, of a row whose task names its job: "it came before its attempt started"; "it came after its attempt ended"; "it came after the next attempt of its job started"; "its attempt was not placed on this host"; "its task names the job alone, and no attempt of it is known to have run then".';
COMMENT ON COLUMN rdmesh.failures.arguments IS 'What the arguments of one such call said, where a full record was kept.';
COMMENT ON COLUMN rdmesh.failures.run_id IS 'Run of the agent that reported it.';
COMMENT ON COLUMN rdmesh.failures.sequence IS 'Sequence of its snapshot within that run.';

CREATE VIEW rdmesh.failure_totals AS
SELECT c.job_id AS job_id,
       c.requeue AS requeue,
       c.restart AS restart,
       c.host AS host,
       c.function AS function,
       c.module AS module,
       rdmesh_store.layer_name(c.layer) AS layer,
       c.errno AS errno,
       COALESCE(n.name, 'errno ' || c.errno) AS errno_name,
       rdmesh_store.bounded(sum(c.delta)) AS count,
       min(c.at) AS first_at,
       max(c.at) AS last_at
FROM rdmesh_store.joined_counts c LEFT JOIN rdmesh_store.errnos n USING (errno)
GROUP BY c.job_id, c.requeue, c.restart, c.host, c.function, c.module, c.layer, c.errno, n.name;

COMMENT ON VIEW rdmesh.failure_totals IS 'Failing returns of each attempt by host, function and errno, from the counters by cgroup. They count on when details are dropped. Exact, but where rdmesh.drops has rows of kind unseen or counter_map_full for that host and time: then at least so many.';
COMMENT ON COLUMN rdmesh.failure_totals.job_id IS 'The scheduler''s job id; null: no attempt could be named.';
COMMENT ON COLUMN rdmesh.failure_totals.requeue IS 'How often the scheduler had requeued the job.';
COMMENT ON COLUMN rdmesh.failure_totals.restart IS 'How often the launcher had restarted its workers inside that run.';
COMMENT ON COLUMN rdmesh.failure_totals.host IS 'The host.';
COMMENT ON COLUMN rdmesh.failure_totals.function IS 'The kernel function that failed.';
COMMENT ON COLUMN rdmesh.failure_totals.module IS 'Its kernel module; empty: built in.';
COMMENT ON COLUMN rdmesh.failure_totals.layer IS 'Its layer.';
COMMENT ON COLUMN rdmesh.failure_totals.errno IS 'The errno, positive.';
COMMENT ON COLUMN rdmesh.failure_totals.errno_name IS 'Its name.';
COMMENT ON COLUMN rdmesh.failure_totals.count IS 'Failing returns.';
COMMENT ON COLUMN rdmesh.failure_totals.first_at IS 'End of the first interval that counted any, collector time.';
COMMENT ON COLUMN rdmesh.failure_totals.last_at IS 'End of the last interval that counted any, collector time.';

CREATE VIEW rdmesh.host_failure_totals AS
SELECT c.host AS host,
       date_trunc('hour', c.at) AS hour,
       c.function AS function,
       c.module AS module,
       rdmesh_store.layer_name(c.layer) AS layer,
       c.errno AS errno,
       COALESCE(n.name, 'errno ' || c.errno) AS errno_name,
       rdmesh_store.bounded(sum(c.delta)) AS count
FROM rdmesh_store.failure_counts c LEFT JOIN rdmesh_store.errnos n USING (errno)
WHERE c.cgroup_path IS NULL
GROUP BY c.host, date_trunc('hour', c.at), c.function, c.module, c.layer, c.errno, n.name;

COMMENT ON VIEW rdmesh.host_failure_totals IS 'Exact failing returns of each host by hour, function and errno, whatever job they belong to.';
COMMENT ON COLUMN rdmesh.host_failure_totals.host IS 'The host.';
COMMENT ON COLUMN rdmesh.host_failure_totals.hour IS 'Start of the hour, collector time.';
COMMENT ON COLUMN rdmesh.host_failure_totals.function IS 'The kernel function that failed.';
COMMENT ON COLUMN rdmesh.host_failure_totals.module IS 'Its kernel module; empty: built in.';
COMMENT ON COLUMN rdmesh.host_failure_totals.layer IS 'Its layer.';
COMMENT ON COLUMN rdmesh.host_failure_totals.errno IS 'The errno, positive.';
COMMENT ON COLUMN rdmesh.host_failure_totals.errno_name IS 'Its name.';
COMMENT ON COLUMN rdmesh.host_failure_totals.count IS 'Failing returns.';

CREATE VIEW rdmesh.drops AS
SELECT d.host AS host,
       d.at AS at,
       rdmesh_store.drop_name(d.kind) AS kind,
       d.function AS function,
       d.module AS module,
       rdmesh_store.layer_name(d.layer) AS layer,
       d.delta AS count
FROM rdmesh_store.drops d;

COMMENT ON VIEW rdmesh.drops IS 'What a host could not keep or see. With ring_full only details are missing and the counts are complete; with counter_map_full the counts by errno or cgroup miss some; with unseen no count has them.';
COMMENT ON COLUMN rdmesh.drops.host IS 'The host.';
COMMENT ON COLUMN rdmesh.drops.at IS 'End of the interval, collector time.';
COMMENT ON COLUMN rdmesh.drops.kind IS 'ring_full: records without room in the ring; counter_map_full: failing returns counted without their errno or cgroup; unseen: calls that the kernel did not show to the probe (another task was preempted inside it on the same processor), failed or not.';
COMMENT ON COLUMN rdmesh.drops.function IS 'The kernel function.';
COMMENT ON COLUMN rdmesh.drops.module IS 'Its module.';
COMMENT ON COLUMN rdmesh.drops.layer IS 'Its layer.';
COMMENT ON COLUMN rdmesh.drops.count IS 'How many in this interval.';

CREATE VIEW rdmesh.co_signals AS
SELECT s.host AS host,
       s.at AS at,
       CASE s.kind WHEN 1 THEN 'network' WHEN 2 THEN 'device' WHEN 3 THEN 'host' WHEN 4 THEN 'process' ELSE 'unknown' END AS kind,
       s.independent AS independent,
       s.name AS name,
       s.detail AS detail,
       s.device AS device,
       s.marks AS marks
FROM rdmesh_store.co_signals s;

COMMENT ON VIEW rdmesh.co_signals IS 'Anything else that failed near a failure.';
COMMENT ON COLUMN rdmesh.co_signals.host IS 'The host.';
COMMENT ON COLUMN rdmesh.co_signals.at IS 'When, collector time.';
COMMENT ON COLUMN rdmesh.co_signals.kind IS 'network, device, host, process or unknown.';
COMMENT ON COLUMN rdmesh.co_signals.independent IS 'Whether it can be a cause; else it echoes the same failure.';
COMMENT ON COLUMN rdmesh.co_signals.name IS 'What it is.';
COMMENT ON COLUMN rdmesh.co_signals.detail IS 'Details in words.';
COMMENT ON COLUMN rdmesh.co_signals.device IS 'RDMA device; empty: none.';
COMMENT ON COLUMN rdmesh.co_signals.marks IS 'What is odd about it; the forms of marks stand at rdmesh.failures.marks.';

CREATE VIEW rdmesh.jobs AS
SELECT a.job_id AS job_id,
       a.requeue AS requeue,
       a.restart AS restart,
       a.name AS name,
       a.user_name AS user_name,
       a.scheduler AS scheduler,
       a.cluster AS cluster,
       a.job_class AS job_class,
       rdmesh_store.state_name(a.state) AS state,
       a.started_at AS started_at,
       a.ended_at AS ended_at,
       a.exit_code AS exit_code,
       a.exit_reason AS exit_reason,
       a.labels AS labels,
       a.told AS told,
       a.marks AS marks,
       a.updated_at AS updated_at
FROM rdmesh_store.described_attempts a;

COMMENT ON VIEW rdmesh.jobs IS 'Attempts of jobs, as schedulers told them or failing tasks named them.';
COMMENT ON COLUMN rdmesh.jobs.job_id IS 'The scheduler''s job id.';
COMMENT ON COLUMN rdmesh.jobs.requeue IS 'How often the scheduler had requeued the job.';
COMMENT ON COLUMN rdmesh.jobs.restart IS 'How often the launcher had restarted its workers inside that run.';
COMMENT ON COLUMN rdmesh.jobs.name IS 'Name of the job.';
COMMENT ON COLUMN rdmesh.jobs.user_name IS 'Who owns it.';
COMMENT ON COLUMN rdmesh.jobs.scheduler IS 'Which scheduler.';
COMMENT ON COLUMN rdmesh.jobs.cluster IS 'Which cluster.';
COMMENT ON COLUMN rdmesh.jobs.job_class IS 'A class of the site''s own.';
COMMENT ON COLUMN rdmesh.jobs.state IS 'running, completed, failed, cancelled, timeout, out_of_memory, node_fail or unknown.';
COMMENT ON COLUMN rdmesh.jobs.started_at IS 'When it started; null: nobody said.';
COMMENT ON COLUMN rdmesh.jobs.ended_at IS 'When it ended; null: it has not, or nobody said.';
COMMENT ON COLUMN rdmesh.jobs.exit_code IS 'Exit code; null: not told.';
COMMENT ON COLUMN rdmesh.jobs.exit_reason IS 'Why it ended, in the words of the scheduler.';
COMMENT ON COLUMN rdmesh.jobs.labels IS 'Labels of the scheduler''s own.';
COMMENT ON COLUMN rdmesh.jobs.told IS 'False: no scheduler spoke of it; failing tasks named it.';
COMMENT ON COLUMN rdmesh.jobs.marks IS 'What is odd about what was told, computed when it is asked for: no scheduler told of it; ended before it started; ended or placed without a start; starts in the future; an exit code that does not fit the state; hosts that have never reported, by name or, where there are more than four, counted.';
COMMENT ON COLUMN rdmesh.jobs.updated_at IS 'When something was told last.';

CREATE VIEW rdmesh.placements AS
SELECT p.job_id AS job_id,
       p.requeue AS requeue,
       p.restart AS restart,
       p.host AS host,
       p.ranks AS ranks,
       p.devices AS devices,
       p.gpus AS gpus,
       p.virtual_functions AS virtual_functions,
       p.placed_at AS placed_at
FROM rdmesh_store.placements p;

COMMENT ON VIEW rdmesh.placements IS 'Which attempt ran on which host.';
COMMENT ON COLUMN rdmesh.placements.job_id IS 'The scheduler''s job id.';
COMMENT ON COLUMN rdmesh.placements.requeue IS 'How often the scheduler had requeued the job.';
COMMENT ON COLUMN rdmesh.placements.restart IS 'How often the launcher had restarted its workers inside that run.';
COMMENT ON COLUMN rdmesh.placements.host IS 'The host.';
COMMENT ON COLUMN rdmesh.placements.ranks IS 'Ranks there.';
COMMENT ON COLUMN rdmesh.placements.devices IS 'RDMA devices that it may use there; empty: not told.';
COMMENT ON COLUMN rdmesh.placements.gpus IS 'GPUs there.';
COMMENT ON COLUMN rdmesh.placements.virtual_functions IS 'Virtual functions there.';
COMMENT ON COLUMN rdmesh.placements.placed_at IS 'When it was told.';

CREATE VIEW rdmesh.agents AS
SELECT r.host AS host,
       rdmesh_store.agent_name(r.agent) AS agent,
       r.run_id AS run_id,
       r.boot_id AS boot_id,
       r.version AS version,
       r.address AS address,
       r.started_at AS started_at,
       r.last_seen_at AS last_seen_at,
       r.clock_offset_ns AS clock_offset_ns,
       r.clock_jumps AS clock_jumps,
       r.snapshots AS snapshots,
       r.heartbeats AS heartbeats,
       r.rejected AS rejected,
       r.last_rejection AS last_rejection,
       GREATEST(r.given_up, (SELECT COALESCE(upper(range_merge(r.seqs)) - 1, 0) - COALESCE(sum(upper(s) - lower(s)), 0)::bigint FROM unnest(r.seqs) s)) AS missing,
       r.failures AS failures,
       r.drops AS drops,
       r.unseen AS unseen
FROM rdmesh_store.agent_runs r;

COMMENT ON VIEW rdmesh.agents IS 'Every run of every agent that ever reported.';
COMMENT ON COLUMN rdmesh.agents.host IS 'The host.';
COMMENT ON COLUMN rdmesh.agents.agent IS 'tracer or shaper.';
COMMENT ON COLUMN rdmesh.agents.run_id IS 'The process of the agent.';
COMMENT ON COLUMN rdmesh.agents.boot_id IS 'The boot of its host.';
COMMENT ON COLUMN rdmesh.agents.version IS 'Its version.';
COMMENT ON COLUMN rdmesh.agents.address IS 'Where it can be dialled; empty: nowhere.';
COMMENT ON COLUMN rdmesh.agents.started_at IS 'When it started, by its own clock.';
COMMENT ON COLUMN rdmesh.agents.last_seen_at IS 'When something came from it last, collector time.';
COMMENT ON COLUMN rdmesh.agents.clock_offset_ns IS 'Host clock minus collector clock, nanoseconds; null: not known.';
COMMENT ON COLUMN rdmesh.agents.clock_jumps IS 'How often the host''s clock was seen to jump.';
COMMENT ON COLUMN rdmesh.agents.snapshots IS 'Snapshots stored.';
COMMENT ON COLUMN rdmesh.agents.heartbeats IS 'Intervals without failures.';
COMMENT ON COLUMN rdmesh.agents.rejected IS 'Items that were refused.';
COMMENT ON COLUMN rdmesh.agents.last_rejection IS 'Why the last one was refused.';
COMMENT ON COLUMN rdmesh.agents.missing IS 'Items that never came: given up by the agent, or holes in the sequence.';
COMMENT ON COLUMN rdmesh.agents.failures IS 'Failing returns counted.';
COMMENT ON COLUMN rdmesh.agents.drops IS 'Records dropped on the host.';
COMMENT ON COLUMN rdmesh.agents.unseen IS 'Calls that the kernel did not show to the probes, failed or not; where it is not 0, counts are lower bounds.';

CREATE VIEW rdmesh.probes AS
SELECT p.host AS host,
       p.hook AS hook,
       p.function AS function,
       p.module AS module,
       rdmesh_store.layer_name(p.layer) AS layer,
       rdmesh_store.verb_name(p.verb) AS verb,
       p.logical AS logical,
       rdmesh_store.probe_state_name(p.state) AS state,
       rdmesh_store.attach_name(p.attached_by) AS attached_by,
       p.reason AS reason,
       ARRAY(SELECT rdmesh_store.missing_name(m.because) FROM unnest(p.missing_because) WITH ORDINALITY m (because, place) ORDER BY m.place) AS missing_because,
       p.found_by AS found_by,
       CASE WHEN p.state IN (1, 4) THEN GREATEST(p.failures, c.failures) ELSE 0 END AS failures,
       CASE WHEN p.state IN (1, 4) THEN GREATEST(p.drops, c.drops) ELSE 0 END AS drops,
       CASE WHEN p.state IN (1, 4) THEN GREATEST(p.unseen, c.unseen) ELSE 0 END AS unseen,
       p.received_at AS reported_at,
       q.marks AS marks
FROM rdmesh_store.probes p
LEFT JOIN rdmesh_store.probe_reports q USING (host, received_at, run_id, seq)
LEFT JOIN rdmesh_store.probe_counts c USING (host, run_id, function, module);

COMMENT ON VIEW rdmesh.probes IS 'The probes that each host reported last.';
COMMENT ON COLUMN rdmesh.probes.host IS 'The host.';
COMMENT ON COLUMN rdmesh.probes.hook IS 'Name of the hook in the catalogue.';
COMMENT ON COLUMN rdmesh.probes.function IS 'Kernel function.';
COMMENT ON COLUMN rdmesh.probes.module IS 'Its module; empty: built in.';
COMMENT ON COLUMN rdmesh.probes.layer IS 'Its layer.';
COMMENT ON COLUMN rdmesh.probes.verb IS 'Its verb.';
COMMENT ON COLUMN rdmesh.probes.logical IS 'One of the thirteen logical hooks.';
COMMENT ON COLUMN rdmesh.probes.state IS 'attached, missing, replaced or detached.';
COMMENT ON COLUMN rdmesh.probes.attached_by IS 'fexit, kretprobe, kretprobe_multi or empty.';
COMMENT ON COLUMN rdmesh.probes.reason IS 'Why it is missing, or what replaced it.';
COMMENT ON COLUMN rdmesh.probes.missing_because IS 'The same for programs, in the order of reason: module_not_loaded, no_driver, no_such_function, changed_by_compiler, not_described, no_btf, not_traceable, driver_has_no_operation, no_return_value, refused_by_kernel, detached or unknown; empty: it is attached, or the tracer did not say.';
COMMENT ON COLUMN rdmesh.probes.found_by IS 'How its place was found.';
COMMENT ON COLUMN rdmesh.probes.failures IS 'Failing returns counted since its run began.';
COMMENT ON COLUMN rdmesh.probes.drops IS 'Records dropped since its run began.';
COMMENT ON COLUMN rdmesh.probes.unseen IS 'Calls that the kernel did not show to it since its run began, failed or not.';
COMMENT ON COLUMN rdmesh.probes.reported_at IS 'When the report came.';
COMMENT ON COLUMN rdmesh.probes.marks IS 'What is odd about the whole report; the forms of marks stand at rdmesh.failures.marks.';

CREATE VIEW rdmesh.inventories AS
SELECT i.host AS host,
       i.seen_at AS seen_at,
       i.id AS inventory_id,
       i.kernel_release AS kernel_release,
       i.ofed_version AS ofed_version,
       i.gpu_driver AS gpu_driver,
       i.summary AS summary,
       i.marks AS marks
FROM rdmesh_store.inventories i;

COMMENT ON VIEW rdmesh.inventories IS 'What each host was, from when on.';
COMMENT ON COLUMN rdmesh.inventories.host IS 'The host.';
COMMENT ON COLUMN rdmesh.inventories.seen_at IS 'From when on, by the host''s clock.';
COMMENT ON COLUMN rdmesh.inventories.inventory_id IS 'Digest of the content.';
COMMENT ON COLUMN rdmesh.inventories.kernel_release IS 'Kernel release.';
COMMENT ON COLUMN rdmesh.inventories.ofed_version IS 'Version of an out-of-tree OFED stack; empty: in-tree drivers.';
COMMENT ON COLUMN rdmesh.inventories.gpu_driver IS 'GPU driver and version; empty: none.';
COMMENT ON COLUMN rdmesh.inventories.summary IS 'Devices, limits, memory paths.';
COMMENT ON COLUMN rdmesh.inventories.marks IS 'What is odd about it; the forms of marks stand at rdmesh.failures.marks.';

CREATE VIEW rdmesh.snapshots AS
SELECT s.host AS host,
       s.at AS ended_at,
       s.started_at AS started_at,
       s.received_at AS received_at,
       s.run_id AS run_id,
       s.seq AS sequence,
       s.inventory_id AS inventory_id,
       s.chains AS chains,
       s.failures AS failures,
       s.drops AS drops,
       s.unseen AS unseen,
       s.chains_left_out AS chains_left_out,
       s.marks AS marks
FROM rdmesh_store.snapshots s;

COMMENT ON VIEW rdmesh.snapshots IS 'One row for each snapshot that was stored.';
COMMENT ON COLUMN rdmesh.snapshots.host IS 'The host.';
COMMENT ON COLUMN rdmesh.snapshots.ended_at IS 'End of the interval, collector time.';
COMMENT ON COLUMN rdmesh.snapshots.started_at IS 'Start of the interval, collector time.';
COMMENT ON COLUMN rdmesh.snapshots.received_at IS 'When it came.';
COMMENT ON COLUMN rdmesh.snapshots.run_id IS 'Run of the agent.';
COMMENT ON COLUMN rdmesh.snapshots.sequence IS 'Sequence within that run.';
COMMENT ON COLUMN rdmesh.snapshots.inventory_id IS 'The inventory in force.';
COMMENT ON COLUMN rdmesh.snapshots.chains IS 'Rows that it has in rdmesh.failures.';
COMMENT ON COLUMN rdmesh.snapshots.failures IS 'Failing returns counted in the interval.';
COMMENT ON COLUMN rdmesh.snapshots.drops IS 'Records dropped in the interval.';
COMMENT ON COLUMN rdmesh.snapshots.unseen IS 'Calls in the interval that the kernel did not show to the probes, failed or not.';
COMMENT ON COLUMN rdmesh.snapshots.chains_left_out IS 'Chains beyond the snapshot''s limit.';
COMMENT ON COLUMN rdmesh.snapshots.marks IS 'What is odd about it, or about any text or number in it, counters and co-signals included; the forms of marks stand at rdmesh.failures.marks.';

CREATE VIEW rdmesh.diagnoses AS
SELECT d.job_id AS job_id,
       d.requeue AS requeue,
       d.restart AS restart,
       d.diagnosed_at AS diagnosed_at,
       d.class AS class,
       rdmesh_store.layer_name(d.layer) AS layer,
       rdmesh_store.verb_name(d.verb) AS verb,
       d.function AS function,
       d.module AS module,
       d.errno AS errno,
       d.errno_name AS errno_name,
       d.hosts AS hosts,
       d.devices AS devices,
       d.first_at AS first_at,
       d.confidence AS confidence,
       d.route_to AS route_to,
       d.rule AS rule,
       d.evidence AS evidence,
       d.against AS against,
       d.unwatched AS unwatched,
       d.summary AS summary,
       d.meaning AS meaning,
       d.next_steps AS next_steps,
       d.failures_looked_at AS failures_looked_at,
       d.failures_total AS failures_total
FROM rdmesh_store.verdicts d;

COMMENT ON VIEW rdmesh.diagnoses IS 'The last verdict on each attempt that was diagnosed.';
COMMENT ON COLUMN rdmesh.diagnoses.job_id IS 'The scheduler''s job id.';
COMMENT ON COLUMN rdmesh.diagnoses.requeue IS 'How often the scheduler had requeued the job.';
COMMENT ON COLUMN rdmesh.diagnoses.restart IS 'How often the launcher had restarted its workers inside that run.';
COMMENT ON COLUMN rdmesh.diagnoses.diagnosed_at IS 'When.';
COMMENT ON COLUMN rdmesh.diagnoses.class IS 'Class of the cause.';
COMMENT ON COLUMN rdmesh.diagnoses.layer IS 'Layer where the error came into being.';
COMMENT ON COLUMN rdmesh.diagnoses.verb IS 'What the application asked for.';
COMMENT ON COLUMN rdmesh.diagnoses.function IS 'The deepest failing function; empty: none decided.';
COMMENT ON COLUMN rdmesh.diagnoses.module IS 'Its module.';
COMMENT ON COLUMN rdmesh.diagnoses.errno IS 'Positive; 0: no errno decided.';
COMMENT ON COLUMN rdmesh.diagnoses.errno_name IS 'Its name.';
COMMENT ON COLUMN rdmesh.diagnoses.hosts IS 'Hosts concerned, the first to fail first.';
COMMENT ON COLUMN rdmesh.diagnoses.devices IS 'Devices concerned.';
COMMENT ON COLUMN rdmesh.diagnoses.first_at IS 'First failure, collector time.';
COMMENT ON COLUMN rdmesh.diagnoses.confidence IS 'low, medium or high.';
COMMENT ON COLUMN rdmesh.diagnoses.route_to IS 'Whom to call.';
COMMENT ON COLUMN rdmesh.diagnoses.rule IS 'The rule that decided.';
COMMENT ON COLUMN rdmesh.diagnoses.evidence IS 'What speaks for it.';
COMMENT ON COLUMN rdmesh.diagnoses.against IS 'What speaks against it.';
COMMENT ON COLUMN rdmesh.diagnoses.unwatched IS 'What could have been seen and was not watched.';
COMMENT ON COLUMN rdmesh.diagnoses.summary IS 'One sentence.';
COMMENT ON COLUMN rdmesh.diagnoses.meaning IS 'What it means.';
COMMENT ON COLUMN rdmesh.diagnoses.next_steps IS 'What to check next.';
COMMENT ON COLUMN rdmesh.diagnoses.failures_looked_at IS 'Rows of rdmesh.failures that were looked at: the first of the attempt.';
COMMENT ON COLUMN rdmesh.diagnoses.failures_total IS 'Rows of rdmesh.failures that the attempt had when it was diagnosed; 50000: so many or more.';
