// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * For tests only: what a record tells of a call, run as an ordinary program on memory
 * that is made up here. The helpers are stood in for by what they do; struct members
 * are where this compiler puts them, which CO-RE changes at load and layout tests hold
 * on each kernel. It prints a line for each case: its name and the record in hex.
 *
 * With hardware alone a driver gives a command; src/arguments/synthetic.rs says what
 * is to come out.
 */
#include <stdio.h>
#include <string.h>

/* In the place of bpf.h. */
#define RDMESH_BPF_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;

#undef __always_inline
#define __always_inline inline __attribute__((always_inline))
#define __noinline __attribute__((noinline))
#define ENOENT 2

#define ADDRESS(ptr, member) ((void *)&(ptr)->member)
#define FIELD_SIZE(ptr, member) sizeof((ptr)->member)
#define HAS_FIELD(ptr, member) ((void)&(ptr)->member, 1)
#define READ(ptr, member)                                                      \
	({                                                                     \
		typeof(ptr) __from = (ptr);                                    \
		typeof(__from->member) __value = 0;                            \
		bpf_probe_read_kernel(&__value, sizeof(__value),               \
				      ADDRESS(__from, member));                \
		__value;                                                       \
	})

struct task_struct;
struct vm_area_struct;

static long copy(void *to, __u32 size, const void *from)
{
	/* The first page is never mapped: a member of a null pointer. */
	if ((__u64)from < 4096)
		return -14;
	memcpy(to, from, size);
	return 0;
}

#define bpf_probe_read_kernel copy
#define bpf_probe_read_user copy

static long bpf_get_func_arg(void *ctx, __u32 n, __u64 *value)
{
	*value = ((__u64 *)ctx)[n];
	return 0;
}

static struct task_struct *bpf_get_current_task_btf(void);

/* Nothing is mapped anywhere. */
static long bpf_find_vma(struct task_struct *task, __u64 address, void *callback,
			 void *callback_ctx, __u64 flags)
{
	(void)task, (void)address, (void)callback, (void)callback_ctx, (void)flags;
	return -ENOENT;
}

#include "arguments.h"

static struct mm_struct own_memory;
static struct task_struct own_task = { .mm = &own_memory };

static struct task_struct *bpf_get_current_task_btf(void)
{
	return &own_task;
}

/* A bundle with room for every attribute that there can be. */
static union {
	struct uverbs_attr_bundle bundle;
	__u8 room[sizeof(struct uverbs_attr_bundle) + 64 * sizeof(struct uverbs_attr)];
} made;

static void given(__u32 number, __u64 data)
{
	made.bundle.attr_present[0] |= 1UL << number;
	made.bundle.attrs[number].ptr_attr.data = data;
}

static void show(const char *name, __u32 reading, __u16 error, __u64 *arguments)
{
	/* The first arguments, in the order of the slots. */
	__u32 spec = reading << 4 | 0 << 8 | 1 << 12 | 0xffff0000;
	struct record record = { .error = error };

	read_arguments(&record, arguments, spec);
	printf("%s ", name);
	for (__u32 i = 0; i < sizeof(record); i++)
		printf("%02x", ((__u8 *)&record)[i]);
	printf("\n");
	memset(&made, 0, sizeof(made));
}

/* A general object of type 0x1f, and the firmware's refusal. */
static __u8 command[16] = { 0x0a, 0x00, 0, 9, 0, 0, 0x00, 0x1f };
static __u8 refusal[16] = { 0x03, 0, 0, 0, 0x00, 0x5e, 0x9b, 0xb1 };

static void methods(void)
{
	__u64 arguments[2] = { (__u64)&made };

	given(DEVX_COMMAND_IN, (__u64)command);
	given(DEVX_COMMAND_OUT, (__u64)refusal);
	show("devx-refused", READ_DEVX_COMMAND, EREMOTEIO, arguments);
	/* The process's buffer holds what it held before. */
	given(DEVX_COMMAND_IN, (__u64)command);
	given(DEVX_COMMAND_OUT, (__u64)refusal);
	show("devx-without-memory", READ_DEVX_COMMAND, 12, arguments);
	show("devx-without-command", READ_DEVX_COMMAND, 22, arguments);
	given(DEVX_UMEM_ADDRESS, 0x7f0000001000);
	given(DEVX_UMEM_LENGTH, 8192);
	given(DEVX_UMEM_ACCESS, 7);
	show("umem", READ_DEVX_UMEM, 14, arguments);
	given(DEVX_UMEM_ADDRESS, 0x1000);
	given(DEVX_UMEM_LENGTH, 8192);
	given(DEVX_UMEM_DMABUF_FD, (__u64)(__s64)-1);
	show("umem-dmabuf", READ_DEVX_UMEM, 9, arguments);
	given(REG_MR_ADDRESS, 0x7f0000001000);
	given(REG_MR_LENGTH, 4096);
	given(REG_MR_ACCESS, 0);
	show("reg-mr-method", READ_REG_MR_METHOD, 14, arguments);
	given(REG_DMABUF_OFFSET, 0x2000);
	given(REG_DMABUF_LENGTH, 4096);
	given(REG_DMABUF_ACCESS, 1);
	given(REG_DMABUF_FD, 77);
	show("dmabuf-method", READ_DMABUF_METHOD, 95, arguments);
}

static void commands(void)
{
	__u64 mlx5[2] = { (__u64)command, (__u64)refusal };
	struct irdma_cqp_request request = {
		.info = { .cqp_cmd = 10 },
		.compl_info = { .maj_err_code = 0xffff, .min_err_code = 0x8029 },
	};
	__u64 irdma[2] = { (__u64)&request };
	struct cmdq_base base = { .opcode = 0x0c };
	struct creq_qp_event event = { .status = 5 };
	struct bnxt_qplib_cmdqmsg message = { .req = &base, .resp = (void *)&event };
	__u64 bnxt[2] = { (__u64)&message };
	struct gdma_req_hdr gdma = { .req = { .msg_type = 0x30 } };
	struct gdma_resp_hdr response = { .status = 0x40000001 };
	__u64 mana[2] = { (__u64)&gdma, (__u64)&response };

	show("mlx5", READ_COMMAND, 121, mlx5);
	show("irdma-unanswered", READ_CQP_COMMAND, 110, irdma);
	request.compl_info.error = 1;
	show("irdma", READ_CQP_COMMAND, 5, irdma);
	show("bnxt", READ_RCFW_COMMAND, 5, bnxt);
	message.resp = NULL;
	show("bnxt-without-answer", READ_RCFW_COMMAND, 110, bnxt);
	show("mana", READ_GDMA_COMMAND, 71, mana);
}

int main(void)
{
	methods();
	commands();
	return 0;
}
