/*
 * shm.h - the shared memory of the ranks of one node, and the backend that reduces in it.
 *
 * Every rank brings a heap: a memfd, large and sparse, so that what is not used costs nothing. All
 * ranks of the node map all heaps when the node is set up, which takes one exchange of descriptors
 * over a Unix socket; after it no descriptor is left open, and there was never a name in a file
 * system that a killed process could leave behind. The kernel frees a heap with its last mapping.
 *
 * How it is set up: the lowest rank of the node listens (dt_sock_listen, not between nodes), the
 * address reaches the others by the bootstrap's own means, they connect (dt_shm_connect), the
 * lowest accepts (dt_shm_accept). Ranks are counted within the node here. Both calls succeed on
 * all ranks of the node or fail on all, except when a rank dies or the time is up at the very end:
 * so before anyone uses a node, the bootstrap has all ranks of the job agree that they have one.
 */
#ifndef DT_COMM_SHM_SHM_H
#define DT_COMM_SHM_SHM_H

#include <stddef.h>
#include <stdint.h>

#include "comm/backend.h"
#include "comm/boards.h"
#include "comm/sock/sock_control.h"

/* One rank's view of the node: its number, and where it sees every rank's heap. */
typedef struct dt_shm_node dt_shm_node_t;

/*
 * The lowest rank of the node (0): waits until ranks 1 … size-1 are connected, or the deadline,
 * and shares all heaps out. Frees the listener in every case; NULL for a node of one. Errors:
 * UNSUPPORTED or OUT_OF_MEMORY, with the cause, when some rank cannot have or map such memory;
 * TIMEOUT; COMMUNICATION.
 */
dtrain_status_t dt_shm_accept(dt_sock_listener_t *listener, int size, int64_t deadline_ns,
                              dt_sock_meanwhile_t meanwhile, dt_shm_node_t **node);

/* The other ranks; errors as above. For its reasons to be heard, rank 0's deadline should be
 * earlier. */
dtrain_status_t dt_shm_connect(const dt_sock_address_t *address, int rank, int size,
                               int64_t deadline_ns, dt_sock_meanwhile_t meanwhile,
                               dt_shm_node_t **node);

/*
 * A node within one process and its forks, for tests: nodes[rank] for each of `size` ranks, with
 * heaps of `heap_bytes` (0: the default). Each is freed, or made a backend, on its own.
 */
dtrain_status_t dt_shm_local_group(int size, int64_t heap_bytes, dt_shm_node_t **nodes);

/*
 * The boards of the node's ranks; `ranks` holds, by local rank, their numbers in a world of `size`.
 * They stay for as long as *boards, whatever becomes of the node. OUT_OF_MEMORY.
 */
dtrain_status_t dt_shm_node_boards(const dt_shm_node_t *node, const int *ranks, int size,
                                   dt_boards_t *boards);

/* Gives up a node that no backend was made of. */
void dt_shm_node_free(dt_shm_node_t *node);

/* Sizes that only tests change, the same on all ranks; zero means default. They do not change the
 * bits. */
typedef struct dt_shm_tuning {
    int64_t tiny_bytes;  /* longest vector that goes in one round; -1: none */
    int64_t small_bytes; /* the same where some of it lies outside the heaps; -1: none */
    int64_t chunk_bytes; /* of a share that is in the arena at a time */
    int slots;           /* chunks in the arena at a time */
    int64_t pull_bytes;  /* shortest private memory that a peer reads itself; -1: none */
} dt_shm_tuning_t;

/*
 * The backend of all ranks of the node. Takes the node over, also on error. `tuning` may be NULL.
 * OUT_OF_MEMORY, also when the heaps are too small for what the backend needs itself.
 */
dtrain_status_t dt_shm_create(dt_shm_node_t *node, const dt_shm_tuning_t *tuning,
                              dt_backend_t **backend);

/* The way of a node's ranks to the other nodes, of which all have as many ranks. */
typedef struct dt_shm_cross {
    /* Of the ranks that have this local rank on all nodes; its ranks are the nodes' numbers. */
    dt_backend_t *backend;
    int node, num_nodes;
    /* The ranks that counts are given for: entry node times ranks of a node plus rank in the node
     * is the rank's number among all. Copied; NULL: the same number. */
    const int *ranks;
} dt_shm_cross_t;

/*
 * The backend of all ranks of all nodes: reduces within the node, every local rank its own share,
 * which it then reduces with its like on the other nodes. Takes node and cross->backend over, also
 * on error.
 *
 * Values of an element are combined in the node as by dt_reduce, and then the nodes' results,
 * divided and scaled at the end: all in the element's type, which is the wrong backend for what
 * loses by that. Allgather and exchange are not for it. A root is counted node by node: node times
 * ranks of a node plus rank in the node. `tuning` is the same on all nodes; tiny_bytes and
 * small_bytes have no meaning.
 */
dtrain_status_t dt_shm_create_across(dt_shm_node_t *node, const dt_shm_tuning_t *tuning,
                                     const dt_shm_cross_t *cross, dt_backend_t **backend);

#endif
