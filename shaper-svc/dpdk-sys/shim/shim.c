/* SPDX-License-Identifier: Apache-2.0 */
/* For the event of a receive ring that fills up; in DPDK since 22.07. */
#define ALLOW_EXPERIMENTAL_API
#include "shim.h"

#include <dirent.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <rte_cycles.h>
#include <rte_devargs.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_flow.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>
#include <rte_mbuf_pool_ops.h>
#include <rte_mempool.h>

#define BURST 64

uint16_t rdmesh_rx_burst(uint16_t port, uint16_t queue, struct rdmesh_frame *frames,
			 uint8_t *scratch, uint16_t max)
{
	struct rte_mbuf *mbufs[BURST];
	uint16_t n = rte_eth_rx_burst(port, queue, mbufs, RTE_MIN(max, BURST));

	for (uint16_t i = 0; i < n; i++) {
		struct rte_mbuf *m = mbufs[i];
		struct rdmesh_frame *f = &frames[i];

		if (i + 3 < n)
			rte_prefetch0(rte_pktmbuf_mtod(mbufs[i + 3], void *));
		f->mbuf = m;
		f->head = rte_pktmbuf_mtod(m, const uint8_t *);
		f->bytes = m->pkt_len;
		f->head_bytes = m->data_len;
		if (unlikely(m->nb_segs > 1 && m->data_len < RDMESH_HEAD_BYTES)) {
			uint32_t want = RTE_MIN(m->pkt_len, (uint32_t)RDMESH_HEAD_BYTES);
			const void *at = rte_pktmbuf_read(m, 0, want,
							  scratch + i * RDMESH_HEAD_BYTES);
			if (at != NULL) {
				f->head = at;
				f->head_bytes = want;
			}
		}
	}
	return n;
}

uint16_t rdmesh_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t n)
{
	uint16_t held = 0;

	while (held < n && mbufs[held] != NULL)
		held++;
	return held ? rte_eth_tx_burst(port, queue, mbufs, held) : 0;
}

void rdmesh_heads(struct rte_mbuf *const *mbufs, struct rdmesh_head *heads, uint16_t n)
{
	for (uint16_t i = 0; i < n; i++) {
		struct rte_mbuf *m = mbufs[i];

		heads[i] = (struct rdmesh_head){
			.at = m ? rte_pktmbuf_mtod(m, uint8_t *) : NULL,
			.bytes = m ? m->data_len : 0,
		};
	}
}

uint16_t rdmesh_free_burst(struct rte_mbuf **mbufs, uint16_t n)
{
	uint16_t freed = 0;

	for (uint16_t i = 0; i < n; i++) {
		if (mbufs[i] == NULL)
			continue;
		rte_pktmbuf_free(mbufs[i]);
		freed++;
	}
	return freed;
}

struct rte_mbuf *rdmesh_mbuf_from(struct rte_mempool *pool, const uint8_t *bytes, uint32_t n,
				  uint16_t segment_bytes)
{
	struct rte_mbuf *head = NULL;
	uint32_t done = 0;

	do {
		struct rte_mbuf *m = rte_pktmbuf_alloc(pool);
		uint16_t part;

		if (m == NULL)
			goto fail;
		part = RTE_MIN((uint32_t)RTE_MIN(segment_bytes, rte_pktmbuf_tailroom(m)), n - done);
		memcpy(rte_pktmbuf_mtod(m, void *), bytes + done, part);
		m->data_len = part;
		m->pkt_len = part;
		done += part;
		if (head == NULL) {
			head = m;
		} else if (rte_pktmbuf_chain(head, m) != 0) {
			rte_pktmbuf_free(m);
			goto fail;
		}
		if (part == 0)
			break;
	} while (done < n);
	return head;
fail:
	rte_pktmbuf_free(head);
	return NULL;
}

uint32_t rdmesh_mbuf_read(const struct rte_mbuf *mbuf, uint8_t *to, uint32_t n)
{
	uint32_t take;
	const void *at;

	if (mbuf == NULL)
		return 0;
	take = RTE_MIN(n, mbuf->pkt_len);
	at = rte_pktmbuf_read(mbuf, 0, take, to);
	if (at != NULL && at != to)
		memcpy(to, at, take);
	return mbuf->pkt_len;
}

uint64_t rdmesh_ticks(void)
{
	return rte_rdtsc();
}

int rdmesh_errno(void)
{
	return rte_errno;
}

struct rte_mempool *rdmesh_pool_create(const char *name, uint32_t mbufs, uint32_t cache,
				       uint16_t data_room, int packed)
{
	struct rte_pktmbuf_pool_private about = { .mbuf_data_room_size = data_room };
	struct rte_mempool *pool = rte_mempool_create_empty(
		name, mbufs, sizeof(struct rte_mbuf) + data_room, cache, sizeof(about),
		SOCKET_ID_ANY, packed ? RTE_MEMPOOL_F_NO_IOVA_CONTIG : 0);
	int rc;

	if (pool == NULL)
		return NULL;
	rc = rte_mempool_set_ops_byname(pool, rte_mbuf_best_mempool_ops(), NULL);
	if (rc == 0) {
		rte_pktmbuf_pool_init(pool, &about);
		rc = rte_mempool_populate_default(pool);
	}
	if (rc < 0) {
		rte_mempool_free(pool);
		rte_errno = -rc;
		return NULL;
	}
	rte_mempool_obj_iter(pool, rte_pktmbuf_init, NULL);
	return pool;
}

uint32_t rdmesh_mbuf_footprint(uint16_t data_room)
{
	return rte_mempool_calc_obj_size(sizeof(struct rte_mbuf) + data_room, 0, NULL);
}

int rdmesh_has_driver(const char *device)
{
	struct rte_devargs args = { 0 };
	int rc = rte_devargs_parse(&args, device);

	rte_devargs_reset(&args);
	return rc == 0;
}

uint64_t rdmesh_heap_free(void)
{
	uint64_t bytes = 0;

	for (unsigned int i = 0; i < rte_socket_count(); i++) {
		struct rte_malloc_socket_stats stats;
		int socket = rte_socket_id_by_idx(i);

		if (socket >= 0 && rte_malloc_get_socket_stats(socket, &stats) == 0)
			bytes += stats.heap_freesz_bytes;
	}
	return bytes;
}

int rdmesh_port_limits(uint16_t port, struct rdmesh_port_limits *limits)
{
	struct rte_eth_dev_info info;
	int rc = rte_eth_dev_info_get(port, &info);

	if (rc != 0)
		return rc;
	*limits = (struct rdmesh_port_limits){
		.min_rx_bytes = info.min_rx_bufsize,
		.max_rx_queues = info.max_rx_queues,
		.max_tx_queues = info.max_tx_queues,
		.rx_descriptors_min = info.rx_desc_lim.nb_min,
		.rx_descriptors_max = info.rx_desc_lim.nb_max,
		.tx_descriptors_min = info.tx_desc_lim.nb_min,
		.tx_descriptors_max = info.tx_desc_lim.nb_max,
		.min_mtu = info.min_mtu,
		.max_mtu = info.max_mtu,
	};
	return 0;
}

int rdmesh_port_configure(uint16_t port, uint16_t mtu)
{
	struct rte_eth_conf conf = { 0 };
	struct rte_eth_dev_info info;
	int rc = rte_eth_dev_info_get(port, &info);

	if (rc != 0)
		return rc;
	if (info.max_mtu == UINT16_MAX || mtu <= info.max_mtu)
		conf.rxmode.mtu = mtu;
	/* Frames longer than a buffer arrive and leave in segments. */
	conf.rxmode.offloads = info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_SCATTER;
	conf.txmode.offloads = info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
	return rte_eth_dev_configure(port, 1, 1, &conf);
}

/* What ports said by themselves, from DPDK's interrupt thread. */
static uint64_t filled_up[RTE_MAX_ETHPORTS];
static uint32_t removed[RTE_MAX_ETHPORTS];

static int on_event(uint16_t port, enum rte_eth_event_type event, void *percent, void *ret)
{
	uint16_t queue = 0;
	uint8_t threshold = 0;

	RTE_SET_USED(ret);
	if (port >= RTE_MAX_ETHPORTS)
		return 0;
	if (event == RTE_ETH_EVENT_INTR_RMV) {
		__atomic_store_n(&removed[port], 1, __ATOMIC_RELAXED);
		return 0;
	}
	__atomic_fetch_add(&filled_up[port], 1, __ATOMIC_RELAXED);
	/* The event comes once; asking for it takes it away, setting arms it anew. */
	if (rte_eth_rx_avail_thresh_query(port, &queue, &threshold) == 1)
		rte_eth_rx_avail_thresh_set(port, queue, (uint8_t)(uintptr_t)percent);
	return 0;
}

int rdmesh_port_watch(uint16_t port, uint8_t percent)
{
	void *arg = (void *)(uintptr_t)percent;
	int rc;

	if (port >= RTE_MAX_ETHPORTS)
		return -ENODEV;
	filled_up[port] = 0;
	removed[port] = 0;
	rc = rte_eth_dev_callback_register(port, RTE_ETH_EVENT_INTR_RMV, on_event, arg);
	if (rc != 0 || percent == 0)
		return rc;
	rc = rte_eth_dev_callback_register(port, RTE_ETH_EVENT_RX_AVAIL_THRESH, on_event, arg);
	return rc != 0 ? rc : rte_eth_rx_avail_thresh_set(port, 0, percent);
}

int rdmesh_port_removed(uint16_t port)
{
	return port < RTE_MAX_ETHPORTS && __atomic_load_n(&removed[port], __ATOMIC_RELAXED);
}

int rdmesh_port_link_is_down(uint16_t port)
{
	struct rte_eth_link link;

	return rte_eth_link_get_nowait(port, &link) == 0 &&
	       link.link_status == RTE_ETH_LINK_DOWN;
}

uint64_t rdmesh_packet_drops(unsigned int interface)
{
	uint64_t drops = 0;
	DIR *open_files = opendir("/proc/self/fd");
	struct dirent *entry;

	if (open_files == NULL)
		return 0;
	while ((entry = readdir(open_files)) != NULL) {
		int fd = atoi(entry->d_name);
		struct sockaddr_ll at = { 0 };
		socklen_t at_bytes = sizeof(at);
		struct tpacket_stats stats = { 0 };
		socklen_t stats_bytes = sizeof(stats);

		if (entry->d_name[0] == '.' ||
		    getsockname(fd, (struct sockaddr *)&at, &at_bytes) != 0 ||
		    at.sll_family != AF_PACKET || at.sll_ifindex != (int)interface)
			continue;
		/* Asking sets them back to 0. */
		if (getsockopt(fd, SOL_PACKET, PACKET_STATISTICS, &stats, &stats_bytes) == 0)
			drops += stats.tp_drops;
	}
	closedir(open_files);
	return drops;
}

int rdmesh_port_counters(uint16_t port, struct rdmesh_port_counters *counters)
{
	struct rte_eth_stats stats;
	int rc = rte_eth_stats_get(port, &stats);

	if (rc != 0)
		return rc;
	*counters = (struct rdmesh_port_counters){
		.rx_frames = stats.ipackets,
		.tx_frames = stats.opackets,
		.rx_bytes = stats.ibytes,
		.tx_bytes = stats.obytes,
		.imissed = stats.imissed,
		.rx_errors = stats.ierrors,
		.tx_errors = stats.oerrors,
		.rx_nombuf = stats.rx_nombuf,
		.filled_up = __atomic_load_n(&filled_up[port], __ATOMIC_RELAXED),
	};
	return 0;
}

struct rte_flow *rdmesh_bypass_create(uint16_t in, uint16_t out, char *message, size_t n)
{
	const struct rte_flow_attr attr = { .transfer = 1 };
	const struct rte_flow_item_ethdev from = { .port_id = in };
	const struct rte_flow_action_ethdev to = { .port_id = out };
	const struct rte_flow_item pattern[] = {
		{ .type = RTE_FLOW_ITEM_TYPE_REPRESENTED_PORT, .spec = &from },
		{ .type = RTE_FLOW_ITEM_TYPE_END },
	};
	const struct rte_flow_action actions[] = {
		{ .type = RTE_FLOW_ACTION_TYPE_REPRESENTED_PORT, .conf = &to },
		{ .type = RTE_FLOW_ACTION_TYPE_END },
	};
	struct rte_flow_error error = { 0 };
	struct rte_flow *flow = rte_flow_create(in, &attr, pattern, actions, &error);

	if (flow == NULL && n > 0)
		snprintf(message, n, "%s (%s)", error.message ? error.message : "no reason given",
			 rte_strerror(rte_errno));
	return flow;
}

int rdmesh_bypass_destroy(uint16_t in, struct rte_flow *flow)
{
	struct rte_flow_error error;

	return rte_flow_destroy(in, flow, &error);
}

#define AT(type, field) offsetof(struct type, field)

const size_t rdmesh_frame_layout[5] = {
	sizeof(struct rdmesh_frame), AT(rdmesh_frame, mbuf), AT(rdmesh_frame, head),
	AT(rdmesh_frame, bytes), AT(rdmesh_frame, head_bytes),
};

const size_t rdmesh_head_layout[3] = {
	sizeof(struct rdmesh_head), AT(rdmesh_head, at), AT(rdmesh_head, bytes),
};

const size_t rdmesh_port_limits_layout[10] = {
	sizeof(struct rdmesh_port_limits),
	AT(rdmesh_port_limits, min_rx_bytes),
	AT(rdmesh_port_limits, max_rx_queues),
	AT(rdmesh_port_limits, max_tx_queues),
	AT(rdmesh_port_limits, rx_descriptors_min),
	AT(rdmesh_port_limits, rx_descriptors_max),
	AT(rdmesh_port_limits, tx_descriptors_min),
	AT(rdmesh_port_limits, tx_descriptors_max),
	AT(rdmesh_port_limits, min_mtu),
	AT(rdmesh_port_limits, max_mtu),
};

const size_t rdmesh_port_counters_layout[10] = {
	sizeof(struct rdmesh_port_counters),
	AT(rdmesh_port_counters, rx_frames),
	AT(rdmesh_port_counters, tx_frames),
	AT(rdmesh_port_counters, rx_bytes),
	AT(rdmesh_port_counters, tx_bytes),
	AT(rdmesh_port_counters, imissed),
	AT(rdmesh_port_counters, rx_errors),
	AT(rdmesh_port_counters, tx_errors),
	AT(rdmesh_port_counters, rx_nombuf),
	AT(rdmesh_port_counters, filled_up),
};
