/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What a failing call was asked to do.
 *
 * Which function takes what, and at which place, differs by function: the loader
 * finds it in the function's own prototype and hands it to failed() as a constant
 * (src/arguments/places.rs has the same numbers). Where a member stands and how
 * wide it is comes from CO-RE, and one that the kernel lacks is left out.
 */
#ifndef RDMESH_ARGUMENTS_H
#define RDMESH_ARGUMENTS_H

#include "kernel.h"
#include "record.h"

/*
 * The constant: first argument (4 bits), what to read (4 bits), and six places of
 * arguments (4 bits each).
 */
#define FIRST_OF(spec) ((spec) & 15)
#define READ_OF(spec) ((spec) >> 4 & 15)
#define PLACE_OF(spec, slot) ((spec) >> (8 + 4 * (slot)) & 15)
#define NO_PLACE 15

#define READ_NOTHING 0
#define READ_MODIFY_QP 1
#define READ_REG_MR 2
#define READ_REG_DMABUF_MR 3
#define READ_REG_MR_COMMAND 4
#define READ_CREATE_QP 5
#define READ_CREATE_CQ 6
#define READ_ADDRESS_HANDLE 7
#define READ_COMMAND 8

#define SLOT_QP 0
#define SLOT_QP_ATTR 1
#define SLOT_QP_MASK 2
#define SLOT_QP_COMMAND 3

#define SLOT_MR_ADDRESS 0
#define SLOT_MR_LENGTH 1
#define SLOT_MR_ACCESS 2
#define SLOT_MR_FD 3
#define SLOT_MR_DESC 4

#define SLOT_BUNDLE 0
#define SLOT_INIT_ATTR 0

#define SLOT_AH_ATTR 0
#define SLOT_AH_INIT_ATTR 1
#define SLOT_GID_ATTR 2
#define SLOT_DGID 3

#define SLOT_COMMAND_IN 0
#define SLOT_COMMAND_OUT 1
#define SLOT_COMMAND_OPCODE 2

/* enum ib_qp_attr_mask and enum ib_ah_flags, include/rdma/ib_verbs.h. */
#define IB_QP_STATE (1 << 0)
#define IB_QP_CUR_STATE (1 << 1)
#define IB_QP_PORT (1 << 5)
#define IB_QP_AV (1 << 7)
#define IB_AH_GRH 1

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

/*
 * Copies a member of at most eight bytes, whatever its width on this kernel, and
 * notes that it was read.
 */
#define TAKE(args, to, bit, from, member)                                      \
	do {                                                                   \
		if (HAS_FIELD(from, member)) {                                 \
			__u64 __value = 0;                                     \
			__u32 __size = FIELD_SIZE(from, member);               \
			if (__size <= sizeof(__value) &&                       \
			    !bpf_probe_read_kernel(&__value, __size,           \
						   ADDRESS(from, member))) {   \
				(args)->to = __value;                          \
				(args)->present |= (bit);                      \
			}                                                      \
		}                                                              \
	} while (0)

/* The call's argument of a slot; 0 when the function takes none. */
static __always_inline int argument(void *ctx, __u32 spec, __u32 slot, __u64 *value)
{
	__u32 place = PLACE_OF(spec, slot);

	*value = 0;
	return place != NO_PLACE && !bpf_get_func_arg(ctx, place, value);
}

/* Takes the call's argument of a slot as it is. */
#define TAKE_ARGUMENT(args, to, bit, ctx, spec, slot)                          \
	do {                                                                   \
		__u64 __value;                                                 \
                                                                               \
		if (argument(ctx, spec, slot, &__value)) {                     \
			(args)->to = __value;                                  \
			(args)->present |= (bit);                              \
		}                                                              \
	} while (0)

static __always_inline void take_gid(struct args_qp *args, const void *gid)
{
	if (!bpf_probe_read_kernel(args->destination_gid, sizeof(args->destination_gid), gid))
		args->present |= QP_DESTINATION_GID;
}

static __always_inline void take_gid_attr(struct args_qp *args, const struct ib_gid_attr *attr)
{
	if (attr)
		TAKE(args, gid_type, QP_GID_TYPE, attr, gid_type);
}

/* Where packets go and by which of the port's GIDs. */
static __always_inline void take_path(struct args_qp *args, struct rdma_ah_attr *path)
{
	struct ib_global_route *route;

	/* A path without a GRH (InfiniBand within a subnet) has no GIDs. */
	if (!HAS_FIELD(path, ah_flags) || !(READ(path, ah_flags) & IB_AH_GRH))
		return;
	if (!HAS_FIELD(path, grh))
		return;
	route = ADDRESS(path, grh);
	TAKE(args, gid_index, QP_GID_INDEX, route, sgid_index);
	if (HAS_FIELD(route, dgid))
		take_gid(args, ADDRESS(route, dgid));
	if (HAS_FIELD(route, sgid_attr))
		take_gid_attr(args, READ(route, sgid_attr));
}

/* The state is the driver's own: only its programs know the struct. */
static __always_inline void take_current_state(struct args_qp *args, void *qp)
{
	struct rxe_qp *rxe = qp;
	struct mlx5_ib_qp *mlx5 = qp;
	struct mlx4_ib_qp *mlx4 = qp;
	struct irdma_qp *irdma = qp;

	if (HAS_FIELD(rxe, attr)) {
		struct ib_qp_attr *attr = ADDRESS(rxe, attr);

		TAKE(args, current_state, QP_CURRENT_STATE, attr, qp_state);
	}
	TAKE(args, current_state, QP_CURRENT_STATE, mlx5, state);
	TAKE(args, current_state, QP_CURRENT_STATE, mlx4, state);
	TAKE(args, current_state, QP_CURRENT_STATE, irdma, ibqp_state);
}

/* Members that the mask leaves out may hold anything. */
static __always_inline void take_qp_attr(struct args_qp *args, struct ib_qp_attr *attr)
{
	__u32 mask = args->attribute_mask;

	if (mask & IB_QP_STATE)
		TAKE(args, asked_state, QP_ASKED_STATE, attr, qp_state);
	if (mask & IB_QP_CUR_STATE && !(args->present & QP_CURRENT_STATE))
		TAKE(args, current_state, QP_CURRENT_STATE, attr, cur_qp_state);
	if (mask & IB_QP_AV && HAS_FIELD(attr, ah_attr)) {
		struct rdma_ah_attr *path = ADDRESS(attr, ah_attr);

		TAKE(args, port, QP_PORT, path, port_num);
		take_path(args, path);
	}
	if (mask & IB_QP_PORT)
		TAKE(args, port, QP_PORT, attr, port_num);
}

/* The command as ib_uverbs has copied it from user space. */
static __always_inline void take_qp_command(struct args_qp *args,
					    struct ib_uverbs_ex_modify_qp *command)
{
	struct ib_uverbs_modify_qp *base;
	__u32 mask;

	if (!HAS_FIELD(command, base))
		return;
	base = ADDRESS(command, base);
	TAKE(args, attribute_mask, QP_ATTRIBUTE_MASK, base, attr_mask);
	mask = args->attribute_mask;
	if (mask & IB_QP_STATE)
		TAKE(args, asked_state, QP_ASKED_STATE, base, qp_state);
	if (mask & IB_QP_CUR_STATE)
		TAKE(args, current_state, QP_CURRENT_STATE, base, cur_qp_state);
	if (mask & IB_QP_AV && HAS_FIELD(base, dest)) {
		struct ib_uverbs_qp_dest *dest = ADDRESS(base, dest);

		TAKE(args, port, QP_PORT, dest, port_num);
		if (HAS_FIELD(dest, is_global) && READ(dest, is_global)) {
			TAKE(args, gid_index, QP_GID_INDEX, dest, sgid_index);
			if (HAS_FIELD(dest, dgid))
				take_gid(args, ADDRESS(dest, dgid));
		}
	}
	if (mask & IB_QP_PORT)
		TAKE(args, port, QP_PORT, base, port_num);
}

static __always_inline void read_modify_qp(struct record *to, void *ctx, __u32 spec)
{
	struct args_qp *args = (void *)to->args;
	__u64 value;

	to->args_kind = ARGS_MODIFY_QP;
	if (argument(ctx, spec, SLOT_QP, &value)) {
		struct ib_qp *qp = (void *)value;

		TAKE(args, qp_number, QP_NUMBER, qp, qp_num);
		take_current_state(args, qp);
	}
	if (argument(ctx, spec, SLOT_QP_MASK, &value)) {
		args->attribute_mask = value;
		args->present |= QP_ATTRIBUTE_MASK;
		if (argument(ctx, spec, SLOT_QP_ATTR, &value))
			take_qp_attr(args, (void *)value);
	}
	if (argument(ctx, spec, SLOT_QP_COMMAND, &value))
		take_qp_command(args, (void *)value);
}

static __always_inline void read_address_handle(struct record *to, void *ctx, __u32 spec)
{
	struct args_qp *args = (void *)to->args;
	struct rdma_ah_attr *path = NULL;
	__u64 value;

	to->args_kind = ARGS_ADDRESS_HANDLE;
	if (argument(ctx, spec, SLOT_AH_ATTR, &value)) {
		path = (void *)value;
	} else if (argument(ctx, spec, SLOT_AH_INIT_ATTR, &value)) {
		struct rdma_ah_init_attr *init = (void *)value;

		if (HAS_FIELD(init, ah_attr))
			path = READ(init, ah_attr);
	}
	if (path) {
		TAKE(args, port, QP_PORT, path, port_num);
		take_path(args, path);
	}
	if (argument(ctx, spec, SLOT_GID_ATTR, &value)) {
		struct ib_gid_attr *attr = (void *)value;

		take_gid_attr(args, attr);
		TAKE(args, gid_index, QP_GID_INDEX, attr, index);
		TAKE(args, port, QP_PORT, attr, port_num);
	}
	if (argument(ctx, spec, SLOT_DGID, &value))
		take_gid(args, (void *)value);
}

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

/* As TAKE, from the memory of the process. */
#define TAKE_USER(args, to, bit, from, member)                                 \
	do {                                                                   \
		if (HAS_FIELD(from, member)) {                                 \
			__u64 __value = 0;                                     \
			__u32 __size = FIELD_SIZE(from, member);               \
			if (__size <= sizeof(__value) &&                       \
			    !bpf_probe_read_user(&__value, __size,             \
						 ADDRESS(from, member))) {     \
				(args)->to = __value;                          \
				(args)->present |= (bit);                      \
			}                                                      \
		}                                                              \
	} while (0)

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

static __always_inline void read_create_qp(struct record *to, void *ctx, __u32 spec)
{
	struct args_create *args = (void *)to->args;
	struct ib_qp_cap *cap;
	__u64 value;

	to->args_kind = ARGS_CREATE;
	if (argument(ctx, spec, SLOT_INIT_ATTR, &value)) {
		struct ib_qp_init_attr *attr = (void *)value;

		TAKE(args, qp_type, CREATE_QP_TYPE, attr, qp_type);
		if (!HAS_FIELD(attr, cap))
			return;
		cap = ADDRESS(attr, cap);
		TAKE(args, max_send_wr, CREATE_MAX_SEND_WR, cap, max_send_wr);
		TAKE(args, max_recv_wr, CREATE_MAX_RECV_WR, cap, max_recv_wr);
		TAKE(args, max_send_sge, CREATE_MAX_SEND_SGE, cap, max_send_sge);
		TAKE(args, max_recv_sge, CREATE_MAX_RECV_SGE, cap, max_recv_sge);
		TAKE(args, max_inline_data, CREATE_MAX_INLINE_DATA, cap, max_inline_data);
	}
}

static __always_inline void read_create_cq(struct record *to, void *ctx, __u32 spec)
{
	struct args_create *args = (void *)to->args;
	__u64 value;

	to->args_kind = ARGS_CREATE;
	if (argument(ctx, spec, SLOT_INIT_ATTR, &value)) {
		struct ib_cq_init_attr *attr = (void *)value;

		TAKE(args, cqe, CREATE_CQE, attr, cqe);
		TAKE(args, completion_vector, CREATE_COMPLETION_VECTOR, attr, comp_vector);
	}
}

/*
 * mlx5: the command begins with its opcode (16 bits), the answer with a byte of
 * status and, behind four bytes, the syndrome (32 bits), big endian
 * (include/linux/mlx5/mlx5_ifc.h). mlx4 has the opcode as an argument.
 */
static __always_inline void read_command(struct record *to, void *ctx, __u32 spec)
{
	struct args_command *args = (void *)to->args;
	__u64 value;

	to->args_kind = ARGS_COMMAND;
	if (argument(ctx, spec, SLOT_COMMAND_IN, &value)) {
		__u16 opcode = 0;

		if (!bpf_probe_read_kernel(&opcode, sizeof(opcode), (void *)value)) {
			args->opcode = __builtin_bswap16(opcode);
			args->present |= COMMAND_OPCODE;
		}
	}
	if (argument(ctx, spec, SLOT_COMMAND_OUT, &value)) {
		struct {
			__u8 status;
			__u8 reserved[3];
			__u32 syndrome;
		} answer = {};

		if (!bpf_probe_read_kernel(&answer, sizeof(answer), (void *)value)) {
			args->status = answer.status;
			args->syndrome = __builtin_bswap32(answer.syndrome);
			args->present |= COMMAND_STATUS | COMMAND_SYNDROME;
		}
	}
	if (argument(ctx, spec, SLOT_COMMAND_OPCODE, &value)) {
		args->opcode = (__u16)value;
		args->present |= COMMAND_OPCODE;
	}
}

static __always_inline void read_one(struct record *to, void *ctx, __u32 spec)
{
	switch (READ_OF(spec)) {
	case READ_MODIFY_QP:
		return read_modify_qp(to, ctx, spec);
	case READ_REG_MR:
		return read_reg_mr(to, ctx, spec);
	case READ_REG_DMABUF_MR:
		return read_reg_dmabuf_mr(to, ctx, spec);
	case READ_REG_MR_COMMAND:
		return read_reg_mr_command(to, ctx, spec);
	case READ_CREATE_QP:
		return read_create_qp(to, ctx, spec);
	case READ_CREATE_CQ:
		return read_create_cq(to, ctx, spec);
	case READ_ADDRESS_HANDLE:
		return read_address_handle(to, ctx, spec);
	case READ_COMMAND:
		return read_command(to, ctx, spec);
	}
}

/* A function of its own: with its own frame, failed() keeps within the stack. */
static __noinline int read_arguments(struct record *to, void *ctx, __u32 spec)
{
	read_one(to, ctx, spec);
	return 0;
}

#endif
