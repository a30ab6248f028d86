/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Everything that differs between processors. */
#ifndef RDMESH_ARCH_H
#define RDMESH_ARCH_H

#include "kernel.h"

#if defined(__TARGET_ARCH_x86)

struct pt_regs {
	unsigned long r10;
	unsigned long r8;
	unsigned long dx;
	unsigned long si;
	unsigned long di;
	unsigned long orig_ax;
	unsigned long ip;
	unsigned long sp;
} CORE;

#define FOR_EACH_CALL_REGISTER(regs, use)                                      \
	do {                                                                   \
		use(READ(regs, ip));                                           \
		use(READ(regs, sp));                                           \
		use(READ(regs, orig_ax));                                      \
		use(READ(regs, di));                                           \
		use(READ(regs, si));                                           \
		use(READ(regs, dx));                                           \
		use(READ(regs, r10));                                          \
		use(READ(regs, r8));                                           \
	} while (0)

#elif defined(__TARGET_ARCH_arm64)

struct pt_regs {
	__u64 regs[31];
	__u64 sp;
	__u64 pc;
	__u64 orig_x0;
	__s32 syscallno;
} CORE;

#define FOR_EACH_CALL_REGISTER(regs_, use)                                     \
	do {                                                                   \
		use(READ(regs_, pc));                                          \
		use(READ(regs_, sp));                                          \
		use(READ(regs_, syscallno));                                   \
		use(READ(regs_, orig_x0));                                     \
		use(READ(regs_, regs[1]));                                     \
		use(READ(regs_, regs[2]));                                     \
		use(READ(regs_, regs[3]));                                     \
		use(READ(regs_, regs[4]));                                     \
	} while (0)

#else
#error "no register names for this processor: add them to bpf/arch.h"
#endif

#endif
