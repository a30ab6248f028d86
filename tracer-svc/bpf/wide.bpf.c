// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Calls and returns of every function that an entry point reaches, in threads that are
 * inside an entry point. On for a short window only: see src/baseline/.
 */
#include "arch.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* struct pt_regs as a kretprobe has it: the word with the function's return value. */
#if defined(__TARGET_ARCH_x86)
#define RETURN_WORD 10
#elif defined(__TARGET_ARCH_arm64)
#define RETURN_WORD 0
#endif

/* Bit of a cookie: the function is an entry point. The rest is its index. */
#define IS_ENTRY (1ULL << 32)

/* src/loader/wide.rs has the same. */
struct moment {
	__u64 boot_ns;
	__u64 value;
	__u32 tid;
	__u32 tgid;
	__u32 function;
	__u32 returns;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4194304);
} moments SEC(".maps");

/* Threads that are inside an entry point. One that dies there falls out. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, __u32);
	__type(value, __u8);
} inside SEC(".maps");

/* Moments that found no room in the ring. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} lost SEC(".maps");

static __always_inline void send(__u64 cookie, __u64 pid_tgid, __u64 value, __u32 returns)
{
	struct moment *to = bpf_ringbuf_reserve(&moments, sizeof(*to), 0);
	__u32 zero = 0;
	__u64 *count;

	if (!to) {
		count = bpf_map_lookup_elem(&lost, &zero);
		if (count)
			__sync_fetch_and_add(count, 1);
		return;
	}
	to->boot_ns = bpf_ktime_get_boot_ns();
	to->value = value;
	to->tid = pid_tgid;
	to->tgid = pid_tgid >> 32;
	to->function = cookie;
	to->returns = returns;
	bpf_ringbuf_submit(to, BPF_RB_NO_WAKEUP);
}

SEC("kprobe/enters")
int enters(void *ctx)
{
	__u64 cookie = bpf_get_attach_cookie(ctx);
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	__u32 tid = pid_tgid;
	__u8 yes = 1;

	if (cookie & IS_ENTRY)
		bpf_map_update_elem(&inside, &tid, &yes, BPF_ANY);
	else if (!bpf_map_lookup_elem(&inside, &tid))
		return 0;
	send(cookie, pid_tgid, 0, 0);
	return 0;
}

SEC("kretprobe/returns")
int returns(__u64 *ctx)
{
	__u64 cookie = bpf_get_attach_cookie(ctx);
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	__u32 tid = pid_tgid;

	if (!bpf_map_lookup_elem(&inside, &tid))
		return 0;
	send(cookie, pid_tgid, ctx[RETURN_WORD], 1);
	if (cookie & IS_ENTRY)
		bpf_map_delete_elem(&inside, &tid);
	return 0;
}
