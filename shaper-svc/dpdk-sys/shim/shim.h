/* SPDX-License-Identifier: Apache-2.0 */
/* What DPDK has only as inline functions or as structs that change between
 * versions. Calls cross this line per burst, never per frame. */
#ifndef RDMESH_SHIM_H
#define RDMESH_SHIM_H

#include <stddef.h>
#include <stdint.h>

struct rte_mbuf;
struct rte_mempool;
struct rte_flow;

/* Contiguous header bytes that a frame in short segments gets gathered into. */
#define RDMESH_HEAD_BYTES 128

/* One received frame. */
struct rdmesh_frame {
	struct rte_mbuf *mbuf;
	/* First bytes of the frame, contiguous. */
	const uint8_t *head;
	/* Whole frame, without FCS. */
	uint32_t bytes;
	/* How many bytes stand at head. */
	uint16_t head_bytes;
};

struct rdmesh_port_limits {
	uint32_t min_rx_bytes;
	uint16_t max_rx_queues;
	uint16_t max_tx_queues;
	uint16_t rx_descriptors_min;
	uint16_t rx_descriptors_max;
	uint16_t tx_descriptors_min;
	uint16_t tx_descriptors_max;
	uint16_t min_mtu;
	uint16_t max_mtu;
};

struct rdmesh_port_counters {
	uint64_t rx_frames;
	uint64_t tx_frames;
	uint64_t rx_bytes;
	uint64_t tx_bytes;
	/* Dropped by the device because the RX queue was full. */
	uint64_t imissed;
	uint64_t rx_errors;
	uint64_t tx_errors;
	/* Dropped because the pool was empty. */
	uint64_t rx_nombuf;
	/* Times that the receive ring fell below its threshold of free descriptors. */
	uint64_t filled_up;
};

/* Receives up to max frames into frames; scratch holds RDMESH_HEAD_BYTES for each. */
uint16_t rdmesh_rx_burst(uint16_t port, uint16_t queue, struct rdmesh_frame *frames,
			 uint8_t *scratch, uint16_t max);
/* Sends a prefix of the mbufs before the first null. Returns how many the port took. */
uint16_t rdmesh_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t n);
/* The first bytes of a frame that is held, in place. */
struct rdmesh_head {
	uint8_t *at;
	uint16_t bytes;
};
/* Where n frames begin, as far as they lie in their first segments; null for null. */
void rdmesh_heads(struct rte_mbuf *const *mbufs, struct rdmesh_head *heads, uint16_t n);
/* Frees the mbufs that are not null. Returns how many. */
uint16_t rdmesh_free_burst(struct rte_mbuf **mbufs, uint16_t n);
/* An mbuf (or chain, segments of at most segment_bytes) with these bytes;
 * NULL when the pool is empty. */
struct rte_mbuf *rdmesh_mbuf_from(struct rte_mempool *pool, const uint8_t *bytes, uint32_t n,
				  uint16_t segment_bytes);
/* Copies out up to n bytes of an mbuf. Returns its whole length, 0 for null. */
uint32_t rdmesh_mbuf_read(const struct rte_mbuf *mbuf, uint8_t *to, uint32_t n);

uint64_t rdmesh_ticks(void);
int rdmesh_errno(void);

/* Makes a pool of mbufs, as rte_pktmbuf_pool_create does. Packed: buffers may lie across
 * the end of a page, which a device that reaches memory by itself cannot bear. NULL and
 * rte_errno when it cannot be made. */
struct rte_mempool *rdmesh_pool_create(const char *name, uint32_t mbufs, uint32_t cache,
				       uint16_t data_room, int packed);
/* Bytes of pool memory that one mbuf with data_room bytes of room takes. */
uint32_t rdmesh_mbuf_footprint(uint16_t data_room);
/* Not 0: some bus of EAL knows a device of this name. */
int rdmesh_has_driver(const char *device);
/* Free bytes of EAL's heap on all sockets. */
uint64_t rdmesh_heap_free(void);

int rdmesh_port_limits(uint16_t port, struct rdmesh_port_limits *limits);
int rdmesh_port_configure(uint16_t port, uint16_t mtu);
/* Listens for the removal of a port, and, if percent is not 0, for a receive ring with
 * less than so many of its descriptors free. 0, or a negative errno: -ENOTSUP where the
 * device has no such event. */
int rdmesh_port_watch(uint16_t port, uint8_t percent);
/* Not 0: the device said that it goes. */
int rdmesh_port_removed(uint16_t port);
/* Whether the port says that it has no link; 0 where it cannot say. */
int rdmesh_port_link_is_down(uint16_t port);
/* Frames that the kernel dropped before the packet sockets that this process has at an
 * interface, since the last call: what net_af_packet does not count by itself. */
uint64_t rdmesh_packet_drops(unsigned int interface);
int rdmesh_port_counters(uint16_t port, struct rdmesh_port_counters *counters);

/* A transfer rule: what the function behind port in sends goes to port out in
 * hardware. NULL with a message when the device cannot. */
struct rte_flow *rdmesh_bypass_create(uint16_t in, uint16_t out, char *message, size_t n);
int rdmesh_bypass_destroy(uint16_t in, struct rte_flow *flow);

/* size, then each offset in declaration order. */
extern const size_t rdmesh_frame_layout[5];
extern const size_t rdmesh_head_layout[3];
extern const size_t rdmesh_port_limits_layout[10];
extern const size_t rdmesh_port_counters_layout[10];

#endif
