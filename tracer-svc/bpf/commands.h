/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Commands that a driver gives to its NIC, where the function that returns the error
 * holds command and answer (docs/tracer.md tells which vendors' do).
 */
#ifndef RDMESH_COMMANDS_H
#define RDMESH_COMMANDS_H

#include "spec.h"

/* mlx5: a byte of status and, behind three more, the syndrome, big endian. */
struct mlx5_answer {
	__u8 status;
	__u8 reserved[3];
	__u32 syndrome;
};

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
		struct mlx5_answer answer = {};

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

/*
 * irdma: the answer is filled in when the completion comes, and `error` says that it
 * tells of one. The major code stands as the status, the minor as the syndrome.
 */
static __always_inline void read_cqp_command(struct record *to, void *ctx, __u32 spec)
{
	struct args_command *args = (void *)to->args;
	struct irdma_cqp_request *request;
	struct irdma_cqp_compl_info *answer;
	struct cqp_cmds_info *command;
	__u64 value;

	to->args_kind = ARGS_COMMAND;
	if (!argument(ctx, spec, SLOT_CQP_REQUEST, &value))
		return;
	request = (void *)value;
	if (HAS_FIELD(request, info)) {
		command = ADDRESS(request, info);
		TAKE(args, opcode, COMMAND_OPCODE, command, cqp_cmd);
	}
	if (!HAS_FIELD(request, compl_info))
		return;
	answer = ADDRESS(request, compl_info);
	if (!HAS_FIELD(answer, error) || !READ(answer, error))
		return;
	TAKE(args, status, COMMAND_STATUS, answer, maj_err_code);
	TAKE(args, syndrome, COMMAND_SYNDROME, answer, min_err_code);
}

/* bnxt_re: command and answer are the caller's; an answer that never came is zero. */
static __always_inline void read_rcfw_command(struct record *to, void *ctx, __u32 spec)
{
	struct args_command *args = (void *)to->args;
	struct bnxt_qplib_cmdqmsg *message;
	struct creq_qp_event *answer;
	struct cmdq_base *command;
	__u64 value;

	to->args_kind = ARGS_COMMAND;
	if (!argument(ctx, spec, SLOT_RCFW_MESSAGE, &value))
		return;
	message = (void *)value;
	if (HAS_FIELD(message, req)) {
		command = READ(message, req);
		TAKE(args, opcode, COMMAND_OPCODE, command, opcode);
	}
	if (HAS_FIELD(message, resp)) {
		/* All answers begin as this one: the driver reads them so. */
		answer = (void *)READ(message, resp);
		TAKE(args, status, COMMAND_STATUS, answer, status);
	}
}

/* mana: the same, with a header that all requests and all responses begin with. */
static __always_inline void read_gdma_command(struct record *to, void *ctx, __u32 spec)
{
	struct args_command *args = (void *)to->args;
	__u64 value;

	to->args_kind = ARGS_COMMAND;
	if (argument(ctx, spec, SLOT_GDMA_REQUEST, &value)) {
		struct gdma_req_hdr *request = (void *)value;

		if (HAS_FIELD(request, req)) {
			struct gdma_msg_hdr *header = ADDRESS(request, req);

			TAKE(args, opcode, COMMAND_OPCODE, header, msg_type);
		}
	}
	if (argument(ctx, spec, SLOT_GDMA_RESPONSE, &value)) {
		struct gdma_resp_hdr *response = (void *)value;

		TAKE(args, status, COMMAND_STATUS, response, status);
	}
}

#endif
