/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What a program is told of its function (the constant that the loader hands to
 * failed(); src/arguments/places.rs has the same numbers), and how a member or an
 * argument is copied into a record.
 */
#ifndef RDMESH_SPEC_H
#define RDMESH_SPEC_H

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
#define READ_CQP_COMMAND 9
#define READ_RCFW_COMMAND 10
#define READ_GDMA_COMMAND 11
#define READ_DMABUF_METHOD 12
#define READ_DEVX_COMMAND 13
#define READ_DEVX_UMEM 14
#define READ_REG_MR_METHOD 15

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

#define SLOT_CQP_REQUEST 0
#define SLOT_RCFW_MESSAGE 0
#define SLOT_GDMA_REQUEST 0
#define SLOT_GDMA_RESPONSE 1

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

#endif
