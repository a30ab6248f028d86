/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Registrations of memory, and what their addresses map. */
#ifndef RDMESH_MEMORY_H
#define RDMESH_MEMORY_H

#include "spec.h"

/* enum ib_uverbs_buffer_type, include/uapi/rdma/ib_user_ioctl_verbs.h. */
#define BUFFER_DMABUF 0
#define BUFFER_VA 1

/* include/linux/mm.h; as bits in enum vma_flag of newer kernels. */
#define VM_PFNMAP 0x400
#define VM_IO 0x4000
#define VM_HUGETLB 0x400000
#define VM_MIXEDMAP 0x10000000
/* include/uapi/linux/stat.h */
#define S_IFMT 0170000
#define S_IFCHR 0020000

struct mapping {
	__u32 kind;
};

static __always_inline int is_character_device(struct file *file)
{
	if (!HAS_FIELD(file, f_inode) || !HAS_FIELD((struct inode *)NULL, i_mode))
		return 0;
	return (READ(READ(file, f_inode), i_mode) & S_IFMT) == S_IFCHR;
}

/* Called by bpf_find_vma() with the mapping that holds the address. */
static long note_mapping(struct task_struct *task, struct vm_area_struct *vma,
			 struct mapping *to)
{
	unsigned long flags;
	struct file *file;

	if (!HAS_FIELD(vma, vm_flags) || !HAS_FIELD(vma, vm_file))
		return 0;
	flags = READ(vma, vm_flags);
	file = READ(vma, vm_file);
	if (flags & (VM_PFNMAP | VM_IO))
		to->kind = MAPPING_DEVICE;
	else if (flags & VM_MIXEDMAP && is_character_device(file))
		/* Managed memory of a GPU driver; files on persistent memory have
		 * the flag too. */
		to->kind = MAPPING_DEVICE;
	else if (flags & VM_HUGETLB)
		to->kind = MAPPING_HUGE_PAGE;
	else if (file)
		to->kind = MAPPING_FILE;
	else
		to->kind = MAPPING_ANONYMOUS;
	return 0;
}

/* Takes the lock of the mappings if it is free; not known (EBUSY) if it is not. */
static __always_inline __u8 mapping_of(struct task_struct *task, __u64 address)
{
	struct mapping found = { .kind = MAPPING_UNKNOWN };
	long result = bpf_find_vma(task, address, note_mapping, &found, 0);

	if (result == -ENOENT)
		return MAPPING_NONE;
	return found.kind;
}

static __always_inline void look_at_mappings(struct args_reg_mr *args)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 last = args->address + args->length - 1;

	/* A thread of the kernel has no mappings: nothing can be said. */
	if (!(args->present & MR_ADDRESS) || !READ(task, mm))
		return;
	args->mapping = mapping_of(task, args->address);
	/* The whole address space (implicit ODP) has no last byte. */
	if (args->present & MR_LENGTH && args->length && last >= args->address)
		args->mapping_of_end = mapping_of(task, last);
}

static __always_inline void take_buffer_desc(struct args_reg_mr *args,
					     struct ib_uverbs_buffer_desc *desc)
{
	__u32 type;

	if (!HAS_FIELD(desc, type))
		return;
	type = READ(desc, type);
	TAKE(args, length, MR_LENGTH, desc, length);
	if (type == BUFFER_VA) {
		TAKE(args, address, MR_ADDRESS, desc, addr);
	} else if (type == BUFFER_DMABUF) {
		TAKE(args, dmabuf_fd, MR_DMABUF_FD, desc, fd);
		TAKE(args, dmabuf_offset, MR_DMABUF_OFFSET, desc, addr);
	}
}

static __always_inline void read_reg_mr(struct record *to, void *ctx, __u32 spec)
{
	struct args_reg_mr *args = (void *)to->args;
	__u64 value;

	to->args_kind = ARGS_REG_MR;
	TAKE_ARGUMENT(args, address, MR_ADDRESS, ctx, spec, SLOT_MR_ADDRESS);
	TAKE_ARGUMENT(args, length, MR_LENGTH, ctx, spec, SLOT_MR_LENGTH);
	TAKE_ARGUMENT(args, access_flags, MR_ACCESS_FLAGS, ctx, spec, SLOT_MR_ACCESS);
	if (argument(ctx, spec, SLOT_MR_DESC, &value))
		take_buffer_desc(args, (void *)value);
	look_at_mappings(args);
}

static __always_inline void read_reg_dmabuf_mr(struct record *to, void *ctx, __u32 spec)
{
	struct args_reg_mr *args = (void *)to->args;

	to->args_kind = ARGS_REG_MR;
	TAKE_ARGUMENT(args, dmabuf_offset, MR_DMABUF_OFFSET, ctx, spec, SLOT_MR_ADDRESS);
	TAKE_ARGUMENT(args, length, MR_LENGTH, ctx, spec, SLOT_MR_LENGTH);
	TAKE_ARGUMENT(args, access_flags, MR_ACCESS_FLAGS, ctx, spec, SLOT_MR_ACCESS);
	TAKE_ARGUMENT(args, dmabuf_fd, MR_DMABUF_FD, ctx, spec, SLOT_MR_FD);
}

/*
 * ib_uverbs checks the flags before it calls anything that could tell of them: the
 * command still stands where user space put it.
 */
static __always_inline void read_reg_mr_command(struct record *to, void *ctx, __u32 spec)
{
	struct args_reg_mr *args = (void *)to->args;
	struct ib_uverbs_reg_mr *command;
	struct ib_udata *core;
	__u64 value;

	to->args_kind = ARGS_REG_MR;
	if (argument(ctx, spec, SLOT_BUNDLE, &value)) {
		struct uverbs_attr_bundle *bundle = (void *)value;

		if (!HAS_FIELD(bundle, ucore))
			return;
		core = ADDRESS(bundle, ucore);
		if (!HAS_FIELD(core, inbuf))
			return;
		command = (void *)READ(core, inbuf);
		TAKE_USER(args, address, MR_ADDRESS, command, start);
		TAKE_USER(args, length, MR_LENGTH, command, length);
		TAKE_USER(args, access_flags, MR_ACCESS_FLAGS, command, access_flags);
		look_at_mappings(args);
	}
}

#endif
