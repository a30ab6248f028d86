/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The few declarations of libbpf's bpf_helpers.h and bpf_core_read.h that the
 * programs need, so that building them takes clang and nothing else.
 */
#ifndef RDMESH_BPF_H
#define RDMESH_BPF_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;

#define SEC(name) __attribute__((section(name), used))
#define __always_inline inline __attribute__((always_inline))
#define __noinline __attribute__((noinline))
#define NULL ((void *)0)

#define __uint(name, val) int(*name)[val]
#define __type(name, val) typeof(val) *name

/* enum bpf_map_type, include/uapi/linux/bpf.h */
#define BPF_MAP_TYPE_HASH 1
#define BPF_MAP_TYPE_ARRAY 2
#define BPF_MAP_TYPE_LRU_HASH 9
#define BPF_MAP_TYPE_RINGBUF 27

#define BPF_ANY 0
#define BPF_NOEXIST 1
#define BPF_RB_NO_WAKEUP 1
#define BPF_RB_FORCE_WAKEUP 2
#define BPF_RB_AVAIL_DATA 0

#define ENOENT 2

struct task_struct;
struct pt_regs;

/* Helper numbers: enum bpf_func_id, include/uapi/linux/bpf.h. */
static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_map_update_elem)(void *map, const void *key, const void *value,
				   __u64 flags) = (void *)2;
static long (*bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
static __u64 (*bpf_get_current_pid_tgid)(void) = (void *)14;
static long (*bpf_get_current_comm)(void *buf, __u32 size) = (void *)16;
static long (*bpf_get_stack)(void *ctx, void *buf, __u32 size, __u64 flags) = (void *)67;
static long (*bpf_probe_read_user)(void *dst, __u32 size, const void *from) = (void *)112;
static long (*bpf_probe_read_kernel)(void *dst, __u32 size, const void *from) = (void *)113;
static long (*bpf_probe_read_kernel_str)(void *dst, __u32 size, const void *from) = (void *)115;
static __u64 (*bpf_ktime_get_boot_ns)(void) = (void *)125;
static void *(*bpf_ringbuf_reserve)(void *ring, __u64 size, __u64 flags) = (void *)131;
static void (*bpf_ringbuf_submit)(void *data, __u64 flags) = (void *)132;
static void (*bpf_ringbuf_discard)(void *data, __u64 flags) = (void *)133;
static __u64 (*bpf_ringbuf_query)(void *ring, __u64 flags) = (void *)134;
static struct task_struct *(*bpf_get_current_task_btf)(void) = (void *)158;
static __u64 (*bpf_get_attach_cookie)(void *ctx) = (void *)174;
static struct pt_regs *(*bpf_task_pt_regs)(struct task_struct *task) = (void *)175;
static long (*bpf_find_vma)(struct task_struct *task, __u64 address, void *callback,
			    void *callback_ctx, __u64 flags) = (void *)180;
static long (*bpf_get_func_arg)(void *ctx, __u32 n, __u64 *value) = (void *)183;
static long (*bpf_get_func_ret)(void *ctx, __u64 *value) = (void *)184;

/*
 * CO-RE. READ copies one member of a kernel struct; its offset is that of the
 * running kernel. A pointer that is not valid reads as zero.
 */
#define READ(ptr, member)                                                      \
	({                                                                     \
		typeof(ptr) __from = (ptr);                                    \
		typeof(__from->member) __value = 0;                            \
		bpf_probe_read_kernel(                                         \
			&__value, sizeof(__value),                             \
			__builtin_preserve_access_index(&__from->member));     \
		__value;                                                       \
	})
#define ADDRESS(ptr, member) ((void *)__builtin_preserve_access_index(&(ptr)->member))
#define BPF_FIELD_BYTE_SIZE 1
#define BPF_FIELD_EXISTS 2
#define FIELD_SIZE(ptr, member) __builtin_preserve_field_info((ptr)->member, BPF_FIELD_BYTE_SIZE)
#define HAS_FIELD(ptr, member) __builtin_preserve_field_info((ptr)->member, BPF_FIELD_EXISTS)
#define BPF_ENUMVAL_EXISTS 0
#define BPF_ENUMVAL_VALUE 1
#define HAS_ENUM(type, name) __builtin_preserve_enum_value(*(type *)name, BPF_ENUMVAL_EXISTS)
#define ENUM(type, name) __builtin_preserve_enum_value(*(type *)name, BPF_ENUMVAL_VALUE)

#endif
