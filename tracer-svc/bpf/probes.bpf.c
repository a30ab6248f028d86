// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * What runs when a hooked function returns.
 *
 * The entry of each program (load the return value, compare, return) is written
 * by the loader, because it differs by function: see src/loader/entry.rs. It
 * calls failed() only for an error, with the probe's number and what to read of
 * the function's arguments as constants, so that the verifier drops every branch
 * for other kinds. Nothing here runs on the success path.
 */
#include "arch.h"
#include "arguments.h"
#include "record.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Kinds of first argument, set by the loader; src/btf/prototype.rs has the same. */
#define FIRST_OTHER 0
#define FIRST_DEVICE 1
#define FIRST_PD 2
#define FIRST_CQ 3
#define FIRST_QP 4
#define FIRST_AH 5
#define FIRST_BUNDLE 6
/* Not a failure: the first or second argument is a struct ib_event. */
#define FIRST_EVENT 7
#define SECOND_EVENT 8

/* On top of every stack: failed(), the entry, the trampoline. */
#define OWN_FRAMES 3

/* Instead of a specification: a kretprobe, which sees no arguments. */
#define BY_RETURN 0xffffffff

/* Probes of one tracer: the catalogue makes about 70 with three drivers. */
#define MAX_PROBES 512

/* struct ib_device_ops has 110 to 130 members. */
#define KERNEL_COPY_BYTES 2048

struct losses {
	__u64 records_dropped;
	__u64 identities_dropped;
	__u64 overflow;
	__u64 cgroup_overflow;
};

/* The sizes of rings and counter maps are set by the loader. */

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1048576);
} records SEC(".maps");

/* Apart from the records, so that a storm of records cannot crowd them out. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 524288);
} identities SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct count_key);
	__type(value, __u64);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct cgroup_count_key);
	__type(value, __u64);
} cgroup_counts SEC(".maps");

/* By probe; the last entry holds the sum of records_dropped. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_PROBES + 1);
	__type(key, __u32);
	__type(value, struct losses);
} losses SEC(".maps");

/* Processes whose identity was sent. A process that falls out is sent again. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct task_key);
	__type(value, __u8);
} seen SEC(".maps");

/* What may still be told of processes that end until user space puts told back to 0:
 * a host that kills thousands must not fill the ring. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct exit_room);
} exit_room SEC(".maps");

#define EXITS_AT_ONCE 256

static __always_inline struct losses *losses_of(__u32 probe)
{
	return bpf_map_lookup_elem(&losses, &probe);
}

/* The counter of a key, made when it is new; NULL when the map is full. */
static __always_inline __u64 *counter(void *map, const void *key)
{
	__u64 *count = bpf_map_lookup_elem(map, key);
	__u64 zero = 0;

	if (count)
		return count;
	/* Another CPU may insert first: NOEXIST keeps what it counted. */
	bpf_map_update_elem(map, key, &zero, BPF_NOEXIST);
	return bpf_map_lookup_elem(map, key);
}

static __always_inline void count(__u16 probe, __u16 error)
{
	struct count_key key = { .probe = probe, .error = error };
	__u64 *n = counter(&counts, &key);
	struct losses *lost;

	if (n)
		__sync_fetch_and_add(n, 1);
	else if ((lost = losses_of(probe)))
		__sync_fetch_and_add(&lost->overflow, 1);
}

static __always_inline void count_in_cgroup(__u16 probe, __u16 error, __u64 cgroup_id)
{
	struct cgroup_count_key key = {
		.probe = probe, .error = error, .cgroup_id = cgroup_id,
	};
	__u64 *n = counter(&cgroup_counts, &key);
	struct losses *lost;

	if (n)
		__sync_fetch_and_add(n, 1);
	else if ((lost = losses_of(probe)))
		__sync_fetch_and_add(&lost->cgroup_overflow, 1);
}

/* The cgroup that places the task in one v1 hierarchy; NULL for its root or v2. */
static __always_inline struct cgroup *v1_cgroup(struct css_set *set, __u32 subsystem)
{
	struct cgroup_subsys_state **all = ADDRESS(set, subsys);
	struct cgroup_subsys_state *css = NULL;
	struct cgroup *cgroup;

	bpf_probe_read_kernel(&css, sizeof(css), all + subsystem);
	cgroup = READ(css, cgroup);
	if (READ(READ(cgroup, root), hierarchy_id) == 0 || READ(cgroup, level) == 0)
		return NULL;
	return cgroup;
}

#define TRY_V1(name)                                                           \
	if (HAS_ENUM(enum cgroup_subsys_id, name)) {                           \
		cgroup = v1_cgroup(set, ENUM(enum cgroup_subsys_id, name));    \
		if (cgroup)                                                    \
			return cgroup;                                         \
	}

/*
 * Where a scheduler put the task. On a hybrid host the v2 hierarchy holds only
 * systemd's units, so memory on v1 comes first; then v2; then what else of v1
 * places the task.
 */
static __always_inline struct cgroup *cgroup_of(struct task_struct *task)
{
	struct css_set *set = READ(task, cgroups);
	struct cgroup *unified = READ(set, dfl_cgrp);
	struct cgroup *cgroup;

	TRY_V1(memory_cgrp_id)
	if (READ(unified, level) > 0)
		return unified;
	TRY_V1(cpuset_cgrp_id)
	TRY_V1(freezer_cgrp_id)
	TRY_V1(pids_cgrp_id)
	return unified;
}

/* The kernel's id, with the number of a v1 hierarchy in the top 16 bits. */
static __always_inline __u64 cgroup_id_of(struct cgroup *cgroup)
{
	__u64 hierarchy = READ(READ(cgroup, root), hierarchy_id);

	return READ(READ(cgroup, kn), id) | hierarchy << 48;
}

static __always_inline struct kernfs_node *parent_of(struct kernfs_node *node)
{
	struct kernfs_node___6_15 *newer = (void *)node;

	if (HAS_FIELD(newer, __parent))
		return READ(newer, __parent);
	return READ(node, parent);
}

static __always_inline void copy_cgroup_path(struct identity *to, struct kernfs_node *node)
{
	__u8 levels = 0;

#pragma unroll
	for (int i = 0; i < CGROUP_LEVELS; i++) {
		if (node) {
			if (bpf_probe_read_kernel_str(to->cgroup[i], CGROUP_NAME_BYTES,
						      READ(node, name)) < 0)
				to->cgroup[i][0] = 0;
			levels = i + 1;
			node = parent_of(node);
		}
	}
	to->cgroup_levels = levels;
	to->cgroup_cut = node != NULL;
}

#define CHUNK 4096

/* Reads page by page: one page that is not resident costs only itself. */
static __always_inline void copy_environ(struct identity *to, __u64 start, __u64 end,
					 __u32 room)
{
	__u8 *at = (__u8 *)(to + 1);
	__u64 len = end - start;
	__u8 cut = 0;

	if (start == 0 || end < start)
		len = 0;
	if (len > room) {
		len = room;
		cut = 1;
	}
#pragma unroll
	for (int i = 0; i < ENVIRON_LARGE / CHUNK; i++) {
		if (i * CHUNK < room && i * CHUNK < len) {
			__u64 part = len - i * CHUNK;

			if (part > CHUNK)
				part = CHUNK;
			if (bpf_probe_read_user(at + i * CHUNK, part & (2 * CHUNK - 1),
						(void *)(start + i * CHUNK)))
				cut = 1;
		}
	}
	to->environ_len = len;
	to->environ_cut = cut;
}

/* Who failed: read once, used by counters, identity and record. */
struct who {
	__u64 boot_ns;
	__u64 start_boot_ns;
	__u64 cgroup_id;
	__u32 tgid;
	__u32 tid;
	__u8 comm[COMM_BYTES];
};

static __always_inline void fill_identity(struct identity *to, const struct who *who,
					  struct cgroup *cgroup)
{
	to->tgid = who->tgid;
	to->boot_ns = who->boot_ns;
	to->start_boot_ns = who->start_boot_ns;
	to->cgroup_id = who->cgroup_id;
	__builtin_memcpy(to->comm, who->comm, COMM_BYTES);
	copy_cgroup_path(to, READ(cgroup, kn));
}

/*
 * At the first failure of a process: sends what identifies it and wakes the
 * reader. Without room in the ring the process stays unseen and is tried again
 * at its next failure.
 */
static __always_inline void identify(__u32 probe, const struct who *who,
				     struct task_struct *task, struct cgroup *cgroup)
{
	struct task_key key = { .tgid = who->tgid, .start_boot_ns = who->start_boot_ns };
	struct mm_struct *mm = READ(task, mm);
	__u64 start, end;
	struct identity *to;
	struct losses *lost;
	__u32 room;
	__u8 yes = 1;

	if (!mm || bpf_map_lookup_elem(&seen, &key))
		return;
	start = READ(mm, env_start);
	end = READ(mm, env_end);
	if (end - start <= ENVIRON_SMALL) {
		room = ENVIRON_SMALL;
		to = bpf_ringbuf_reserve(&identities, sizeof(*to) + ENVIRON_SMALL, 0);
	} else {
		room = ENVIRON_LARGE;
		to = bpf_ringbuf_reserve(&identities, sizeof(*to) + ENVIRON_LARGE, 0);
	}
	if (!to) {
		lost = losses_of(probe);
		if (lost)
			__sync_fetch_and_add(&lost->identities_dropped, 1);
		return;
	}
	/* Two threads may fail at once; one identity is enough. */
	if (bpf_map_update_elem(&seen, &key, &yes, BPF_NOEXIST)) {
		bpf_ringbuf_discard(to, BPF_RB_NO_WAKEUP);
		return;
	}
	fill_identity(to, who, cgroup);
	copy_environ(to, start, end, room);
	bpf_ringbuf_submit(to, BPF_RB_FORCE_WAKEUP);
}

/* Names the system call: equal in all returns below one call of one thread. */
static __always_inline __u64 entry_key(struct task_struct *task)
{
	struct pt_regs *regs = bpf_task_pt_regs(task);
	__u64 key = 0;

/* Multiplication by 2^64 / golden ratio spreads every bit of a register. */
#define MIX(value)                                                             \
	do {                                                                   \
		key = (key ^ (__u64)(value)) * 0x9e3779b97f4a7c15ULL;          \
		key ^= key >> 29;                                              \
	} while (0)
	FOR_EACH_CALL_REGISTER(regs, MIX);
#undef MIX
	return key;
}

static __always_inline struct ib_device *device_of_bundle(struct uverbs_attr_bundle *bundle)
{
	struct ib_device *device = READ(READ(bundle, context), device);

	/*
	 * A method that needs no user context leaves it empty. The structs of the
	 * other way are known to ib_uverbs only, not to a driver's own methods.
	 */
	if (!device && HAS_FIELD((struct ib_uverbs_file *)NULL, device) &&
	    HAS_FIELD((struct ib_uverbs_device *)NULL, ib_dev))
		device = READ(READ(READ(bundle, ufile), device), ib_dev);
	return device;
}

static __always_inline struct ib_device *device_of(__u32 first, void *argument)
{
	switch (first) {
	case FIRST_DEVICE:
		return argument;
	case FIRST_PD:
		return READ((struct ib_pd *)argument, device);
	case FIRST_CQ:
		return READ((struct ib_cq *)argument, device);
	case FIRST_QP:
		return READ((struct ib_qp *)argument, device);
	case FIRST_AH:
		return READ((struct ib_ah *)argument, device);
	case FIRST_BUNDLE:
		return device_of_bundle(argument);
	case FIRST_EVENT:
	case SECOND_EVENT:
		return READ((struct ib_event *)argument, device);
	}
	return NULL;
}

static __always_inline void fill_event(struct record *to, struct ib_event *event)
{
	void *element = NULL;

	/* A pointer, or a port number in the low half. */
	bpf_probe_read_kernel(&element, sizeof(element), ADDRESS(event, element));
	to->args_kind = ARGS_ASYNC_EVENT;
	to->args[0] = READ(event, event);
	to->args[1] = (__u64)element;
}

static __always_inline void fill_argument(struct record *to, void *ctx, __u32 first)
{
	struct ib_device *device;
	__u64 argument = 0;

	__builtin_memset(to->device, 0, sizeof(to->device));
	if (first == FIRST_OTHER)
		return;
	if (bpf_get_func_arg(ctx, first == SECOND_EVENT ? 1 : 0, &argument))
		return;
	if (first == FIRST_PD || first == FIRST_CQ || first == FIRST_QP || first == FIRST_AH)
		to->object = argument;
	if (first == FIRST_EVENT || first == SECOND_EVENT)
		fill_event(to, (void *)argument);
	device = device_of(first, (void *)argument);
	if (bpf_probe_read_kernel_str(to->device, DEVICE_BYTES, ADDRESS(device, name)) < 0)
		to->device[0] = 0;
}

/*
 * The reader is woken when the ring passes half and then again for each further
 * sixteenth, not for every record: a wake-up costs twenty times a record.
 */
static __always_inline __u64 wake_up(void)
{
	__u64 size = bpf_ringbuf_query(&records, 1 /* BPF_RB_RING_SIZE */);
	__u64 used = bpf_ringbuf_query(&records, BPF_RB_AVAIL_DATA);

	/* Each record takes its size and an 8-byte header. */
	if (used > size / 2 && (used & (size / 16 - 1)) < sizeof(struct record) + 8)
		return BPF_RB_FORCE_WAKEUP;
	return BPF_RB_NO_WAKEUP;
}

static __always_inline void drop(__u32 probe)
{
	struct losses *lost = losses_of(probe);

	if (lost)
		__sync_fetch_and_add(&lost->records_dropped, 1);
	lost = losses_of(MAX_PROBES);
	if (lost)
		__sync_fetch_and_add(&lost->records_dropped, 1);
}

/* All of a record but its device, arguments and stack. */
static __always_inline void fill_common(struct record *to, __u32 probe, __u32 error,
					const struct who *who)
{
	struct losses *total;

	to->probe = probe;
	to->error = error;
	to->args_kind = ARGS_NONE;
	to->sleeps = 0;
	to->tgid = who->tgid;
	to->tid = who->tid;
	to->boot_ns = who->boot_ns;
	to->start_boot_ns = who->start_boot_ns;
	to->cgroup_id = who->cgroup_id;
	to->object = 0;
	total = losses_of(MAX_PROBES);
	to->drops_so_far = total ? total->records_dropped : 0;
	__builtin_memcpy(to->comm, who->comm, COMM_BYTES);
	__builtin_memset(to->args, 0, sizeof(to->args));
}

static __always_inline void send(void *ctx, __u32 probe, __u32 error, __u32 spec,
				 const struct who *who, struct task_struct *task)
{
	struct record *to = bpf_ringbuf_reserve(&records, sizeof(*to), 0);
	long stack;

	if (!to) {
		drop(probe);
		return;
	}
	fill_common(to, probe, error, who);
	to->entry = task ? entry_key(task) : 0;
	if (task)
		to->sleeps = READ(task, nvcsw);
	if (spec == BY_RETURN) {
		/* Its stack has trampolines in the place of callers: it would refute chains. */
		__builtin_memset(to->device, 0, sizeof(to->device));
		stack = 0;
	} else {
		fill_argument(to, ctx, FIRST_OF(spec));
		read_arguments(to, ctx, spec);
		stack = bpf_get_stack(ctx, to->stack, sizeof(to->stack), OWN_FRAMES);
	}
	to->stack_len = stack > 0 ? stack / sizeof(__u64) : 0;
	bpf_ringbuf_submit(to, wake_up());
}

/* An event comes from wherever the device's interrupt hit: from nobody. */
static __always_inline int report_event(void *ctx, __u32 probe, __u32 spec)
{
	struct who who = { .boot_ns = bpf_ktime_get_boot_ns() };

	count(probe, 0);
	/* It has no other arguments than its first or second. */
	send(ctx, probe, 0, FIRST_OF(spec), &who, NULL);
	return 0;
}

static __always_inline void fill_who(struct who *who, struct task_struct *task,
				     struct cgroup *cgroup)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();

	who->boot_ns = bpf_ktime_get_boot_ns();
	who->start_boot_ns = READ(READ(task, group_leader), start_boottime);
	who->cgroup_id = cgroup_id_of(cgroup);
	who->tgid = pid_tgid >> 32;
	who->tid = pid_tgid;
	bpf_get_current_comm(who->comm, sizeof(who->comm));
}

static __always_inline void report_failure(void *ctx, __u32 probe, __u32 spec, __u64 returned)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct cgroup *cgroup = cgroup_of(task);
	__u32 error = -(__u32)returned & 0xfff;
	struct who who = {};

	fill_who(&who, task, cgroup);
	count(probe, error);
	count_in_cgroup(probe, error, who.cgroup_id);
	identify(probe, &who, task, cgroup);
	send(ctx, probe, error, spec, &who, task);
}

/*
 * Called for an error, or for an event. The return value is read again here: in
 * the entry it may have the type of a kernel pointer, which BPF does not let be
 * turned into a number.
 */
static __noinline int failed(void *ctx, __u32 probe, __u32 spec)
{
	__u32 first = FIRST_OF(spec);
	__u64 returned = 0;

	if (first == FIRST_EVENT || first == SECOND_EVENT)
		return report_event(ctx, probe, spec);
	bpf_get_func_ret(ctx, &returned);
	report_failure(ctx, probe, spec, returned);
	return 0;
}

/*
 * The same below a kretprobe: where the function has no BTF, so that neither a
 * trampoline can be built nor an argument be found. It reads no type of a module.
 */
static __noinline int failed_return(void *ctx, __u32 probe, __u64 returned)
{
	report_failure(ctx, probe, BY_RETURN, returned);
	return 0;
}

static __always_inline int takes_room(void)
{
	__u32 zero = 0;
	struct exit_room *room = bpf_map_lookup_elem(&exit_room, &zero);

	if (!room)
		return 0;
	/* Two processors may both pass: a few more are told then. */
	if (room->told >= EXITS_AT_ONCE) {
		__sync_fetch_and_add(&room->left_out, 1);
		return 0;
	}
	__sync_fetch_and_add(&room->told, 1);
	return 1;
}

/*
 * The last thread of a process that ends by a signal, while its memory is still there.
 * The code is what wait(2) tells: the signal in seven bits, and whether a core was dumped.
 * It takes nothing else: the compiler would leave out what is not used, and shift the rest.
 */
static __noinline int ended(__u64 code)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct cgroup *cgroup = cgroup_of(task);
	struct record *to;
	struct who who = {};

	if (!READ(task, mm) || !takes_room())
		return 0;
	fill_who(&who, task, cgroup);
	identify(EXIT_PROBE, &who, task, cgroup);
	to = bpf_ringbuf_reserve(&records, sizeof(*to), 0);
	if (!to) {
		drop(EXIT_PROBE);
		return 0;
	}
	fill_common(to, EXIT_PROBE, 0, &who);
	to->entry = 0;
	to->stack_len = 0;
	__builtin_memset(to->device, 0, sizeof(to->device));
	to->args_kind = ARGS_EXIT;
	to->args[0] = code & 0x7f;
	to->args[1] = code >> 7 & 1;
	bpf_ringbuf_submit(to, wake_up());
	return 0;
}

/*
 * Stands for the entry that the loader writes; it keeps failed() in the object.
 * The arguments are hidden from the compiler, which would otherwise know them for
 * the only ones and put them into failed() as constants.
 */
SEC("fexit/entry")
int entry(void *ctx)
{
	__u32 probe = 0, spec = FIRST_OTHER;

	asm volatile("" : "+r"(probe), "+r"(spec));
	return failed(ctx, probe, spec);
}

/* Stands for the entry below a kretprobe, and keeps failed_return(). */
SEC("kretprobe/returned")
int returned(void *ctx)
{
	__u64 value = 0;
	__u32 probe = 0;

	asm volatile("" : "+r"(probe), "+r"(value));
	return failed_return(ctx, probe, value);
}

/* Stands for the entry at the end of a process, and keeps ended(). */
SEC("fexit/exited")
int exited(void *ctx)
{
	__u64 code = 0;

	asm volatile("" : "+r"(code));
	return ended(code);
}

/*
 * Run once by the loader, never attached: copies kernel memory, for reading a
 * driver's table of operations. ctx: address.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u8[KERNEL_COPY_BYTES]);
} kernel_copy SEC(".maps");

SEC("raw_tp/copy_kernel")
int copy_kernel(__u64 *ctx)
{
	__u32 zero = 0;
	void *to = bpf_map_lookup_elem(&kernel_copy, &zero);

	if (!to)
		return -1;
	return bpf_probe_read_kernel(to, KERNEL_COPY_BYTES, (void *)ctx[0]);
}
