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

struct mm_struct {
	unsigned long env_start;
	unsigned long env_end;
} CORE;

struct task_struct {
	int pid;
	int tgid;
	__u64 start_boottime;
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

struct uverbs_attr_bundle {
	struct ib_uverbs_file *ufile;
	struct ib_ucontext *context;
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

#endif
