/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The shapes of the kernel's structs as far as the programs read them. Only
 * names matter here: offsets come from the running kernel's BTF at load.
 *
 * The loader hands CO-RE a cut of the kernel's BTF that holds exactly the structs
 * named here, so a struct that is read must be declared in this file.
 */
#ifndef RDMESH_KERNEL_H
#define RDMESH_KERNEL_H

#include "bpf.h"

#define CORE __attribute__((preserve_access_index))

/* Tasks */

struct inode {
	unsigned short i_mode;
} CORE;

struct file {
	struct inode *f_inode;
} CORE;

struct vm_area_struct {
	unsigned long vm_flags;
	struct file *vm_file;
} CORE;

struct mm_struct {
	unsigned long env_start;
	unsigned long env_end;
} CORE;

struct task_struct {
	int pid;
	int tgid;
	__u64 start_boottime;
	unsigned long nvcsw;
	struct task_struct *group_leader;
	struct mm_struct *mm;
	struct css_set *cgroups;
} CORE;

/* Control groups */

struct kernfs_node {
	struct kernfs_node *parent;
	const char *name;
	__u64 id;
} CORE;

/* 6.15 renamed the parent. */
struct kernfs_node___6_15 {
	struct kernfs_node *__parent;
} CORE;

struct cgroup_root {
	int hierarchy_id;
} CORE;

struct cgroup {
	struct kernfs_node *kn;
	int level;
	struct cgroup_root *root;
} CORE;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
} CORE;

struct css_set {
	struct cgroup_subsys_state *subsys[1];
	struct cgroup *dfl_cgrp;
} CORE;

enum cgroup_subsys_id {
	cpuset_cgrp_id,
	memory_cgrp_id,
	freezer_cgrp_id,
	pids_cgrp_id,
};

/* RDMA */

struct ib_device {
	char name[64];
} CORE;

struct ib_pd {
	struct ib_device *device;
} CORE;

struct ib_cq {
	struct ib_device *device;
} CORE;

struct ib_qp {
	struct ib_device *device;
	__u32 qp_num;
} CORE;

struct ib_ah {
	struct ib_device *device;
} CORE;

struct ib_ucontext {
	struct ib_device *device;
} CORE;

struct ib_uverbs_device {
	struct ib_device *ib_dev;
} CORE;

struct ib_uverbs_file {
	struct ib_uverbs_device *device;
} CORE;

struct ib_udata {
	const void *inbuf;
} CORE;

/* One attribute of an ioctl method. */
struct uverbs_ptr_attr {
	__u64 data;
} CORE;

struct uverbs_attr {
	struct uverbs_ptr_attr ptr_attr;
} CORE;

struct uverbs_attr_bundle {
	struct ib_udata ucore;
	struct ib_uverbs_file *ufile;
	struct ib_ucontext *context;
	/* A bit for each attribute, 63 at most. */
	unsigned long attr_present[1];
	/* The kernel's has no length; aya-obj takes no index into one like that here. */
	struct uverbs_attr attrs[2];
} CORE;

enum ib_event_type {
	IB_EVENT_CQ_ERR,
};

struct ib_event {
	struct ib_device *device;
	union {
		struct ib_cq *cq;
		struct ib_qp *qp;
		__u32 port_num;
	} element;
	enum ib_event_type event;
} CORE;

/* Arguments of verbs. Each member is looked for by itself: see src/arguments/. */

union ib_gid {
	__u8 raw[16];
} CORE;

enum ib_gid_type {
	IB_GID_TYPE_IB,
};

struct ib_gid_attr {
	enum ib_gid_type gid_type;
	__u16 index;
	__u32 port_num;
} CORE;

struct ib_global_route {
	const struct ib_gid_attr *sgid_attr;
	union ib_gid dgid;
	__u8 sgid_index;
} CORE;

struct rdma_ah_attr {
	struct ib_global_route grh;
	__u32 port_num;
	__u8 ah_flags;
} CORE;

struct rdma_ah_init_attr {
	struct rdma_ah_attr *ah_attr;
} CORE;

enum ib_qp_state {
	IB_QPS_RESET,
};

struct ib_qp_attr {
	enum ib_qp_state qp_state;
	enum ib_qp_state cur_qp_state;
	struct rdma_ah_attr ah_attr;
	__u32 port_num;
} CORE;

struct ib_qp_cap {
	__u32 max_send_wr;
	__u32 max_recv_wr;
	__u32 max_send_sge;
	__u32 max_recv_sge;
	__u32 max_inline_data;
} CORE;

enum ib_qp_type {
	IB_QPT_RC,
};

struct ib_qp_init_attr {
	struct ib_qp_cap cap;
	enum ib_qp_type qp_type;
} CORE;

struct ib_cq_init_attr {
	unsigned int cqe;
	__u32 comp_vector;
} CORE;

/* 7.3: where a region's memory is. */
struct ib_uverbs_buffer_desc {
	__u32 type;
	__s32 fd;
	__u64 addr;
	__u64 length;
} CORE;

/* Commands of user space, include/uapi/rdma/ib_user_verbs.h. */

struct ib_uverbs_reg_mr {
	__u64 start;
	__u64 length;
	__u32 access_flags;
} CORE;

struct ib_uverbs_qp_dest {
	__u8 dgid[16];
	__u8 sgid_index;
	__u8 is_global;
	__u8 port_num;
} CORE;

struct ib_uverbs_modify_qp {
	struct ib_uverbs_qp_dest dest;
	__u32 attr_mask;
	__u8 qp_state;
	__u8 cur_qp_state;
	__u8 port_num;
} CORE;

struct ib_uverbs_ex_modify_qp {
	struct ib_uverbs_modify_qp base;
} CORE;

/*
 * Drivers' queue pairs, which begin with the core's (INIT_RDMA_OBJ_SIZE demands
 * it). They are set when a change has worked, so that at a failing return they
 * hold the old state.
 */

struct rxe_qp {
	struct ib_qp_attr attr;
} CORE;

struct mlx5_ib_qp {
	__u8 state;
} CORE;

struct mlx4_ib_qp {
	__u8 state;
} CORE;

struct irdma_qp {
	enum ib_qp_state ibqp_state;
} CORE;

/* Commands to a NIC and its answers, where drivers have structs for them. */

struct cqp_cmds_info {
	__u8 cqp_cmd;
} CORE;

struct irdma_cqp_compl_info {
	__u16 maj_err_code;
	__u16 min_err_code;
	_Bool error;
} CORE;

struct irdma_cqp_request {
	struct cqp_cmds_info info;
	struct irdma_cqp_compl_info compl_info;
} CORE;

struct cmdq_base {
	__u8 opcode;
} CORE;

struct creq_base {
	__u8 type;
} CORE;

struct creq_qp_event {
	__u8 status;
} CORE;

struct bnxt_qplib_cmdqmsg {
	struct cmdq_base *req;
	struct creq_base *resp;
} CORE;

struct gdma_msg_hdr {
	__u32 msg_type;
} CORE;

struct gdma_req_hdr {
	struct gdma_msg_hdr req;
} CORE;

struct gdma_resp_hdr {
	__u32 status;
} CORE;

#endif
