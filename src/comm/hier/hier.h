/*
 * hier.h - the backend of a world of several nodes with the same number of ranks each: it has two
 * others, and hands each collective to one of them.
 *
 *     flat      knows nothing of nodes: every byte of a share crosses the network as often as
 *               there are ranks.
 *     by node   reduces within the nodes first (comm/shm with its crossing): every byte of a share
 *               crosses the network as often as there are nodes.
 *
 * Of the collectives that reduce, and of a broadcast, either does what the other does. An allgather
 * and an exchange go flat: around the ring every byte enters a node once if the node's ranks follow
 * each other, and between two ranks no way is shorter than the direct one. A set of ranks of one
 * node is by_node's, any other is flat.
 *
 * The choice must not show in the bits, or they would depend on what was fused with what. Flat, the
 * order is the canonical one of reduce.h. By node it is a tree over the ranks of each node and then
 * one over nodes, which is the same tree if nodes hold a power of two of consecutive ranks each.
 * So:
 *
 *   - What would be rounded or cut at the nodes' doors goes flat, whatever its size: 16-bit floats,
 *     and integers with a scale or an average.
 *   - Short vectors go flat, in one round, where the two orders are the same one or the order does
 *     not matter: for integers.
 *   - All else goes by node. Where the two orders are not the same one, that is the order of all
 *     32- and 64-bit floats, of any size.
 */
#ifndef DT_COMM_HIER_HIER_H
#define DT_COMM_HIER_HIER_H

#include "comm/backend.h"
#include "comm/topology.h"

/* Sizes that only tests change; zero means default. They do not change the bits. */
typedef struct dt_hier_tuning {
    int64_t flat_bytes; /* longest vector that goes flat by its size; -1: none */
} dt_hier_tuning_t;

/*
 * Takes both backends over: `by_node` also on error, `flat` on success alone. `by_node` counts a
 * root as node times ranks of a node plus local rank, and takes pieces; but parts of a
 * reduce-scatter come in the order of all ranks. On destroy, `flat` goes first, so it may own what
 * the other borrows. The topology is not kept; it is homogeneous. `tuning` may be NULL.
 * OUT_OF_MEMORY.
 */
dtrain_status_t dt_hier_create(dt_backend_t *flat, dt_backend_t *by_node,
                               const dt_topology_t *topology, const dt_hier_tuning_t *tuning,
                               dt_backend_t **backend);

#endif
