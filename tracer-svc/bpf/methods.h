/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Arguments of ioctl methods: attributes in the bundle that every handler gets. The
 * numbers are the kernel's contract with user space (include/uapi/rdma/).
 */
#ifndef RDMESH_METHODS_H
#define RDMESH_METHODS_H

#include "commands.h"
#include "memory.h"

/*
 * Where an attribute stands in the bundle: uapi_key_attr() and uapi_bkey_attr() of
 * include/rdma/uverbs_ioctl.h let those of the core and of a driver alternate.
 */
#define CORE_ATTRIBUTE(number) (2 * (number))
#define DRIVER_ATTRIBUTE(number) (2 * (number) + 1)

/* enum uverbs_attrs_reg_dmabuf_mr_cmd_attr_ids */
#define REG_DMABUF_OFFSET CORE_ATTRIBUTE(2)
#define REG_DMABUF_LENGTH CORE_ATTRIBUTE(3)
#define REG_DMABUF_FD CORE_ATTRIBUTE(5)
#define REG_DMABUF_ACCESS CORE_ATTRIBUTE(6)

/* enum uverbs_attrs_reg_mr_cmd_attr_ids, of 6.17. */
#define REG_MR_ADDRESS CORE_ATTRIBUTE(4)
#define REG_MR_LENGTH CORE_ATTRIBUTE(5)
#define REG_MR_ACCESS CORE_ATTRIBUTE(6)
#define REG_MR_FD CORE_ATTRIBUTE(7)
#define REG_MR_FD_OFFSET CORE_ATTRIBUTE(8)

/* enum mlx5_ib_devx_obj_create_attrs; those of obj_modify have the same numbers. */
#define DEVX_COMMAND_IN DRIVER_ATTRIBUTE(1)
#define DEVX_COMMAND_OUT DRIVER_ATTRIBUTE(2)

/* enum mlx5_ib_devx_umem_reg_attrs */
#define DEVX_UMEM_ADDRESS DRIVER_ATTRIBUTE(1)
#define DEVX_UMEM_LENGTH DRIVER_ATTRIBUTE(2)
#define DEVX_UMEM_ACCESS DRIVER_ATTRIBUTE(3)
#define DEVX_UMEM_DMABUF_FD DRIVER_ATTRIBUTE(6)

/* include/uapi/asm-generic/errno.h: the firmware said no, and its answer was copied. */
#define EREMOTEIO 121

/* An attribute that the caller gave: its value, or where it is; 0 when it gave none. */
static __always_inline int attribute(struct uverbs_attr_bundle *bundle, __u32 number,
				     __u64 *data)
{
	struct uverbs_attr *attr = NULL;
	struct uverbs_ptr_attr *value = NULL;
	unsigned long present = 0;

	*data = 0;
	if (!HAS_FIELD(bundle, attr_present) || !HAS_FIELD(bundle, attrs) ||
	    !HAS_FIELD(attr, ptr_attr) || !HAS_FIELD(value, data))
		return 0;
	if (bpf_probe_read_kernel(&present, sizeof(present), ADDRESS(bundle, attr_present)) ||
	    !(present >> number & 1))
		return 0;
	/* By a distance: aya-obj refuses the size of a struct that a module lacks. */
	attr = ADDRESS(bundle, attrs[0]) +
	       number * (ADDRESS(bundle, attrs[1]) - ADDRESS(bundle, attrs[0]));
	value = ADDRESS(attr, ptr_attr);
	return !bpf_probe_read_kernel(data, sizeof(*data), ADDRESS(value, data));
}

/* Takes a number that the caller gave. */
#define TAKE_ATTRIBUTE(args, to, bit, bundle, number)                          \
	do {                                                                   \
		__u64 __data;                                                  \
                                                                               \
		if (attribute(bundle, number, &__data)) {                      \
			(args)->to = __data;                                   \
			(args)->present |= (bit);                              \
		}                                                              \
	} while (0)

static __always_inline void read_dmabuf_method(struct record *to, void *ctx, __u32 spec)
{
	struct args_reg_mr *args = (void *)to->args;
	struct uverbs_attr_bundle *bundle;
	__u64 value;

	to->args_kind = ARGS_REG_MR;
	if (!argument(ctx, spec, SLOT_BUNDLE, &value))
		return;
	bundle = (void *)value;
	TAKE_ATTRIBUTE(args, dmabuf_offset, MR_DMABUF_OFFSET, bundle, REG_DMABUF_OFFSET);
	TAKE_ATTRIBUTE(args, length, MR_LENGTH, bundle, REG_DMABUF_LENGTH);
	TAKE_ATTRIBUTE(args, access_flags, MR_ACCESS_FLAGS, bundle, REG_DMABUF_ACCESS);
	TAKE_ATTRIBUTE(args, dmabuf_fd, MR_DMABUF_FD, bundle, REG_DMABUF_FD);
}

/* It takes memory of the process or a dmabuf. */
static __always_inline void read_reg_mr_method(struct record *to, void *ctx, __u32 spec)
{
	struct args_reg_mr *args = (void *)to->args;
	struct uverbs_attr_bundle *bundle;
	__u64 value;

	to->args_kind = ARGS_REG_MR;
	if (!argument(ctx, spec, SLOT_BUNDLE, &value))
		return;
	bundle = (void *)value;
	TAKE_ATTRIBUTE(args, address, MR_ADDRESS, bundle, REG_MR_ADDRESS);
	TAKE_ATTRIBUTE(args, length, MR_LENGTH, bundle, REG_MR_LENGTH);
	TAKE_ATTRIBUTE(args, access_flags, MR_ACCESS_FLAGS, bundle, REG_MR_ACCESS);
	TAKE_ATTRIBUTE(args, dmabuf_fd, MR_DMABUF_FD, bundle, REG_MR_FD);
	TAKE_ATTRIBUTE(args, dmabuf_offset, MR_DMABUF_OFFSET, bundle, REG_MR_FD_OFFSET);
	look_at_mappings(args);
}

/*
 * An object made or changed past the verbs. The kernel has its own copy of the
 * command; the answer goes back to the process, and where the firmware refused it is
 * there when the handler returns (drivers/infiniband/hw/mlx5/devx.c).
 */
static __always_inline void read_devx_command(struct record *to, void *ctx, __u32 spec)
{
	struct args_devx *args = (void *)to->args;
	struct uverbs_attr_bundle *bundle;
	__u64 value, at;

	to->args_kind = ARGS_DEVX;
	if (!argument(ctx, spec, SLOT_BUNDLE, &value))
		return;
	bundle = (void *)value;
	if (attribute(bundle, DEVX_COMMAND_IN, &at)) {
		/* struct mlx5_ifc_general_obj_in_cmd_hdr_bits, big endian. */
		struct {
			__u16 opcode;
			__u16 uid;
			__u16 tunnel;
			__u16 object_type;
		} command = {};

		if (!bpf_probe_read_kernel(&command, sizeof(command), (void *)at)) {
			args->opcode = __builtin_bswap16(command.opcode);
			args->object_type = __builtin_bswap16(command.object_type);
			args->present |= DEVX_OPCODE | DEVX_OBJECT_TYPE;
		}
	}
	if (to->error == EREMOTEIO && attribute(bundle, DEVX_COMMAND_OUT, &at)) {
		struct mlx5_answer answer = {};

		if (!bpf_probe_read_user(&answer, sizeof(answer), (void *)at)) {
			args->status = answer.status;
			args->syndrome = __builtin_bswap32(answer.syndrome);
			args->present |= DEVX_STATUS | DEVX_SYNDROME;
		}
	}
}

static __always_inline void read_devx_umem(struct record *to, void *ctx, __u32 spec)
{
	struct args_reg_mr *args = (void *)to->args;
	struct uverbs_attr_bundle *bundle;
	__u64 value;

	to->args_kind = ARGS_REG_MR;
	if (!argument(ctx, spec, SLOT_BUNDLE, &value))
		return;
	bundle = (void *)value;
	TAKE_ATTRIBUTE(args, length, MR_LENGTH, bundle, DEVX_UMEM_LENGTH);
	TAKE_ATTRIBUTE(args, access_flags, MR_ACCESS_FLAGS, bundle, DEVX_UMEM_ACCESS);
	TAKE_ATTRIBUTE(args, dmabuf_fd, MR_DMABUF_FD, bundle, DEVX_UMEM_DMABUF_FD);
	if (args->present & MR_DMABUF_FD) {
		/* The address is then a place in the dmabuf. */
		TAKE_ATTRIBUTE(args, dmabuf_offset, MR_DMABUF_OFFSET, bundle,
			       DEVX_UMEM_ADDRESS);
		return;
	}
	TAKE_ATTRIBUTE(args, address, MR_ADDRESS, bundle, DEVX_UMEM_ADDRESS);
	look_at_mappings(args);
}

#endif
