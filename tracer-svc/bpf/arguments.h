/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What a failing call was asked to do.
 *
 * Which function takes what, and at which place, differs by function: the loader
 * finds it in the function's own prototype and hands it to failed() as a constant
 * (spec.h). Where a member stands and how wide it is comes from CO-RE, and one that
 * the kernel lacks is left out.
 */
#ifndef RDMESH_ARGUMENTS_H
#define RDMESH_ARGUMENTS_H

#include "commands.h"
#include "memory.h"
#include "methods.h"

/* enum ib_qp_attr_mask and enum ib_ah_flags, include/rdma/ib_verbs.h. */
#define IB_QP_STATE (1 << 0)
#define IB_QP_CUR_STATE (1 << 1)
#define IB_QP_PORT (1 << 5)
#define IB_QP_AV (1 << 7)
#define IB_AH_GRH 1

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
	case READ_CQP_COMMAND:
		return read_cqp_command(to, ctx, spec);
	case READ_RCFW_COMMAND:
		return read_rcfw_command(to, ctx, spec);
	case READ_GDMA_COMMAND:
		return read_gdma_command(to, ctx, spec);
	case READ_DMABUF_METHOD:
		return read_dmabuf_method(to, ctx, spec);
	case READ_DEVX_COMMAND:
		return read_devx_command(to, ctx, spec);
	case READ_DEVX_UMEM:
		return read_devx_umem(to, ctx, spec);
	case READ_REG_MR_METHOD:
		return read_reg_mr_method(to, ctx, spec);
	}
}

/* A function of its own: with its own frame, failed() keeps within the stack. */
static __noinline int read_arguments(struct record *to, void *ctx, __u32 spec)
{
	read_one(to, ctx, spec);
	return 0;
}

#endif
