/* SPDX-License-Identifier: Apache-2.0 */
/* What DPDK's own hierarchical scheduler costs for the engine's job: frames of many
 * keys (a pipe each), round robin, one wire of 25 Gbit/s for all of them behind a port of
 * 100. The subport is that wire; its bucket is the smallest that keeps the rate (a
 * quarter of it gives 13.6 Gbit/s). */
#include <string.h>

#include <rte_cycles.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_sched.h>

#define BURST 32
#define PORT_RATE (100000000000ULL / 8)
#define WIRE_RATE (25000000000ULL / 8)
#define BUCKET 16000
/* 1 KiB of RoCE payload, and what the wire adds. */
#define FRAME_BYTES 1082
#define OVERHEAD 24
/* Frames that a bucket holds at the most: so many are due at each poll. */
#define STEP_FRAMES 12

static struct rte_sched_port *make(uint32_t pipes, uint32_t places, uint16_t queue)
{
	static struct rte_sched_subport_profile_params profile;
	static struct rte_sched_pipe_params pipe;
	static struct rte_sched_subport_params subport;
	static struct rte_sched_port_params params;
	struct rte_sched_port *port;

	profile = (struct rte_sched_subport_profile_params){
		.tb_rate = WIRE_RATE, .tb_size = BUCKET, .tc_period = 10 };
	pipe = (struct rte_sched_pipe_params){
		.tb_rate = WIRE_RATE, .tb_size = BUCKET, .tc_period = 10, .tc_ov_weight = 1 };
	for (int i = 0; i < RTE_SCHED_TRAFFIC_CLASSES_PER_PIPE; i++)
		profile.tc_rate[i] = pipe.tc_rate[i] = WIRE_RATE;
	for (int i = 0; i < RTE_SCHED_BE_QUEUES_PER_PIPE; i++)
		pipe.wrr_weights[i] = 1;
	subport = (struct rte_sched_subport_params){
		.n_pipes_per_subport_enabled = places, .pipe_profiles = &pipe,
		.n_pipe_profiles = 1, .n_max_pipe_profiles = 1 };
	for (int i = 0; i < RTE_SCHED_TRAFFIC_CLASSES_PER_PIPE; i++)
		subport.qsize[i] = i == RTE_SCHED_TRAFFIC_CLASS_BE ? queue : 64;
	params = (struct rte_sched_port_params){
		.name = "bench", .socket = 0, .rate = PORT_RATE, .mtu = 1522,
		.frame_overhead = OVERHEAD, .n_subports_per_port = 1, .subport_profiles = &profile,
		.n_subport_profiles = 1, .n_max_subport_profiles = 1,
		.n_pipes_per_subport = places };
	port = rte_sched_port_config(&params);
	if (port == NULL || rte_sched_subport_config(port, 0, &subport, 0) != 0)
		return NULL;
	for (uint32_t i = 0; i < pipes; i++)
		if (rte_sched_pipe_config(port, 0, i, 0) != 0)
			return NULL;
	return port;
}

/* Takes frames in until backlog of them wait; returns cycles spent, 0 on failure. */
static uint64_t fill(struct rte_sched_port *port, struct rte_mempool *pool, uint32_t pipes,
		     uint32_t backlog, uint32_t *waiting, uint32_t *key)
{
	struct rte_mbuf *in[BURST];
	uint64_t spent = 1, began;

	while (*waiting + BURST <= backlog) {
		if (rte_pktmbuf_alloc_bulk(pool, in, BURST) != 0)
			return 0;
		for (int i = 0; i < BURST; i++, *key = (*key + 1) % pipes) {
			in[i]->pkt_len = in[i]->data_len = FRAME_BYTES;
			rte_sched_port_pkt_write(port, in[i], 0, *key,
				RTE_SCHED_TRAFFIC_CLASS_BE, 0, RTE_COLOR_GREEN);
		}
		began = rte_rdtsc();
		*waiting += rte_sched_port_enqueue(port, in, BURST);
		spent += rte_rdtsc() - began;
	}
	return spent;
}

/* Nanoseconds per frame, enqueue and dequeue together, for rounds of 2,048 frames at a
 * standing backlog; 0 on success. Each poll comes when STEP_FRAMES are due; the time
 * between polls does not count. places is pipes rounded up to a power of two. */
int rdmesh_sched_bench(struct rte_mempool *pool, uint32_t pipes, uint32_t places,
		       uint32_t backlog, uint16_t queue, double *rounds, int n)
{
	struct rte_sched_port *port = make(pipes, places, queue);
	const uint64_t step = rte_get_tsc_hz() * (FRAME_BYTES + OVERHEAD) * STEP_FRAMES / WIRE_RATE;
	uint64_t due = rte_rdtsc();
	struct rte_mbuf *out[BURST];
	uint32_t waiting = 0, key = 0;

	if (port == NULL)
		return -1;
	if (fill(port, pool, pipes, backlog, &waiting, &key) == 0)
		return -2;
	for (int round = -1; round < n; round++) {
		uint64_t spent = 0, frames = 0;

		while (frames < 2048) {
			uint64_t began;
			int got;

			while (rte_rdtsc() < due)
				rte_pause();
			began = rte_rdtsc();
			due = began + step;
			got = rte_sched_port_dequeue(port, out, BURST);
			spent += rte_rdtsc() - began;
			for (int i = 0; i < got; i++)
				rte_pktmbuf_free(out[i]);
			waiting -= got;
			frames += got;
			began = fill(port, pool, pipes, backlog, &waiting, &key);
			if (began == 0)
				return -2;
			spent += began;
		}
		if (round >= 0)
			rounds[round] = spent * 1e9 / rte_get_tsc_hz() / frames;
	}
	rte_sched_port_free(port);
	return 0;
}
