/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the kernel side hands to user space. src/record.rs holds the same
 * offsets as constants, and a test compares them with this file's own BTF.
 */
#ifndef RDMESH_RECORD_H
#define RDMESH_RECORD_H

#define COMM_BYTES 16
#define DEVICE_BYTES 64
#define STACK_DEPTH 16
#define ARG_WORDS 8
/* Deepest cgroup path that is copied. Slurm and Kubernetes use 5 to 9 levels. */
#define CGROUP_LEVELS 12
/* Longest cgroup name that is copied: a Kubernetes scope is about 90 bytes. */
#define CGROUP_NAME_BYTES 128
/* Environment blocks come in two sizes, so that a small one does not take the
 * room of a large one: a batch job's block is 3 to 8 KiB. */
#define ENVIRON_SMALL 4096
#define ENVIRON_LARGE 16384

/* args[0..] of an asynchronous event: event number, element (pointer or port). */
#define ARGS_NONE 0
#define ARGS_ASYNC_EVENT 1
#define ARGS_MODIFY_QP 2
#define ARGS_REG_MR 3
#define ARGS_CREATE 4
#define ARGS_COMMAND 5

struct record {
	__u16 probe;
	__u16 error;
	__u8 args_kind;
	__u8 stack_len;
	__u16 reserved;
	__u32 tgid;
	__u32 tid;
	__u64 boot_ns;
	__u64 start_boot_ns;
	__u64 cgroup_id;
	__u64 object;
	__u64 entry;
	__u64 drops_so_far;
	__u8 comm[COMM_BYTES];
	__u8 device[DEVICE_BYTES];
	__u64 args[ARG_WORDS];
	__u64 stack[STACK_DEPTH];
};

/* Followed by ENVIRON_SMALL or ENVIRON_LARGE bytes of environment. */
struct identity {
	__u32 tgid;
	__u32 environ_len;
	__u64 boot_ns;
	__u64 start_boot_ns;
	__u64 cgroup_id;
	/* 1: part of the environment was longer than the room, or not readable. */
	__u8 environ_cut;
	__u8 cgroup_levels;
	/* 1: the path had more levels than the room. */
	__u8 cgroup_cut;
	__u8 reserved[5];
	__u8 comm[COMM_BYTES];
	/* From the task's cgroup upward, each name NUL-terminated. */
	__u8 cgroup[CGROUP_LEVELS][CGROUP_NAME_BYTES];
};

struct count_key {
	__u16 probe;
	__u16 error;
	__u32 reserved;
};

struct cgroup_count_key {
	__u16 probe;
	__u16 error;
	__u32 reserved;
	__u64 cgroup_id;
};

struct task_key {
	__u32 tgid;
	__u32 reserved;
	__u64 start_boot_ns;
};

#endif
