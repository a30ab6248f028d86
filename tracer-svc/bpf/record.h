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

/* What the words of args hold: one of the structs below. */
#define ARGS_NONE 0
/* [event number, element (pointer or port)] */
#define ARGS_ASYNC_EVENT 1
#define ARGS_MODIFY_QP 2
#define ARGS_REG_MR 3
#define ARGS_CREATE 4
#define ARGS_COMMAND 5
/* struct args_qp, of which only the path is known. */
#define ARGS_ADDRESS_HANDLE 6
#define ARGS_DEVX 7
/* How a process ended: [signal, 1 if its core was dumped]; no failure. */
#define ARGS_EXIT 8

/* In the place of a probe's number, where a process ended by a signal. */
#define EXIT_PROBE 0xffff

/* What an address maps; 0: not known. The numbers are the contract's. */
#define MAPPING_UNKNOWN 0
#define MAPPING_NONE 1
#define MAPPING_ANONYMOUS 2
#define MAPPING_FILE 3
#define MAPPING_HUGE_PAGE 4
#define MAPPING_DEVICE 5

/* A bit of `present` for each member that was read; its place is the member's. */

struct args_qp {
	__u32 present;
	__u32 qp_number;
	__u32 current_state;
	__u32 asked_state;
	__u32 attribute_mask;
	__u32 port;
	__u32 gid_index;
	__u32 gid_type;
	__u8 destination_gid[16];
};

#define QP_NUMBER (1 << 1)
#define QP_CURRENT_STATE (1 << 2)
#define QP_ASKED_STATE (1 << 3)
#define QP_ATTRIBUTE_MASK (1 << 4)
#define QP_PORT (1 << 5)
#define QP_GID_INDEX (1 << 6)
#define QP_GID_TYPE (1 << 7)
#define QP_DESTINATION_GID (1 << 8)

struct args_reg_mr {
	__u32 present;
	__u32 access_flags;
	__u64 address;
	__u64 length;
	__u64 dmabuf_offset;
	__s32 dmabuf_fd;
	/* Of the first and of the last byte. */
	__u8 mapping;
	__u8 mapping_of_end;
	__u8 reserved[2];
};

#define MR_ACCESS_FLAGS (1 << 1)
#define MR_ADDRESS (1 << 2)
#define MR_LENGTH (1 << 3)
#define MR_DMABUF_OFFSET (1 << 4)
#define MR_DMABUF_FD (1 << 5)

struct args_create {
	__u32 present;
	__u32 cqe;
	__u32 max_send_wr;
	__u32 max_recv_wr;
	__u32 max_send_sge;
	__u32 max_recv_sge;
	__u32 max_inline_data;
	__u32 completion_vector;
	__u32 qp_type;
	__u32 reserved;
};

#define CREATE_CQE (1 << 1)
#define CREATE_MAX_SEND_WR (1 << 2)
#define CREATE_MAX_RECV_WR (1 << 3)
#define CREATE_MAX_SEND_SGE (1 << 4)
#define CREATE_MAX_RECV_SGE (1 << 5)
#define CREATE_MAX_INLINE_DATA (1 << 6)
#define CREATE_COMPLETION_VECTOR (1 << 7)
#define CREATE_QP_TYPE (1 << 8)

struct args_command {
	__u32 present;
	__u32 opcode;
	__u32 status;
	__u32 syndrome;
};

#define COMMAND_OPCODE (1 << 1)
#define COMMAND_STATUS (1 << 2)
#define COMMAND_SYNDROME (1 << 3)

struct args_devx {
	__u32 present;
	__u32 opcode;
	__u32 object_type;
	__u32 status;
	__u32 syndrome;
};

#define DEVX_OPCODE (1 << 1)
#define DEVX_OBJECT_TYPE (1 << 2)
#define DEVX_STATUS (1 << 3)
#define DEVX_SYNDROME (1 << 4)

struct record {
	__u16 probe;
	__u16 error;
	__u8 args_kind;
	__u8 stack_len;
	/* How often the thread has slept, modulo 2^16. */
	__u16 sleeps;
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

struct exit_room {
	__u64 told;
	__u64 left_out;
};

struct task_key {
	__u32 tgid;
	__u32 reserved;
	__u64 start_boot_ns;
};

#endif
