// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* For tests only: its BTF says how record.h is laid out. */
#include "bpf.h"
#include "record.h"

struct record layout_of_record;
struct identity layout_of_identity;
struct count_key layout_of_count_key;
struct cgroup_count_key layout_of_cgroup_count_key;
struct args_qp layout_of_args_qp;
struct args_reg_mr layout_of_args_reg_mr;
struct args_create layout_of_args_create;
struct args_command layout_of_args_command;
struct args_devx layout_of_args_devx;
