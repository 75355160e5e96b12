/* topology.h - who is where: fixed when a world is made. */
#ifndef DT_COMM_TOPOLOGY_H
#define DT_COMM_TOPOLOGY_H

#include <stdint.h>

#include <dtrain/dtrain.h>

#define DT_HOST_MAX 64

typedef struct dt_peer {
    char host[DT_HOST_MAX]; /* its name, cut to fit */
    int32_t pid;
    int32_t node; /* nodes are numbered by their lowest rank */
    int32_t local_rank;
} dt_peer_t;

typedef struct dt_topology {
    int rank, size;
    int local_rank, local_size;
    int cross_rank, cross_size;
    int is_homogeneous;
    int num_nodes;
    int local_cores;  /* that the ranks of this node may use, all together; 0: not known */
    dt_peer_t *peers; /* size entries */
} dt_topology_t;

/*
 * Derives all other fields from peers[].node being filled with any number that is equal for
 * ranks of one node (it is renumbered), rank and size. `peers` is taken over, from dt_alloc.
 */
dtrain_status_t dt_topology_make(dt_topology_t *topology, int rank, int size, dt_peer_t *peers);

void dt_topology_free(dt_topology_t *topology);

/* Writes "rank 3 on host gpu7 (pid 4711)" and returns text. */
const char *dt_topology_describe(const dt_topology_t *topology, int rank, char *text, int cap);

#endif
