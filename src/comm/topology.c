#include "comm/topology.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/status.h"

/* A rank while ranks are grouped by node. */
typedef struct member {
    int32_t node;
    int32_t rank;
} member_t;

static int by_node_then_rank(const void *a, const void *b)
{
    const member_t *x = a;
    const member_t *y = b;
    if (x->node != y->node)
        return x->node < y->node ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/*
 * Gives the ranks of one node, which stand behind each other in ascending order, their local
 * ranks, and puts the lowest of them into peers[].node. Returns how many they are.
 */
static int number_node(dt_peer_t *peers, const member_t *first, int left)
{
    int count = 0;
    while (count < left && first[count].node == first[0].node) {
        dt_peer_t *peer = &peers[first[count].rank];
        peer->node = first[0].rank;
        peer->local_rank = count;
        count++;
    }
    return count;
}

static void number_nodes(dt_topology_t *topology, const member_t *members)
{
    int first_count = 0;
    topology->num_nodes = 0;
    topology->is_homogeneous = 1;
    for (int at = 0; at < topology->size;) {
        int count = number_node(topology->peers, members + at, topology->size - at);
        if (at == 0)
            first_count = count;
        if (count != first_count)
            topology->is_homogeneous = 0;
        at += count;
    }
    /* A lowest rank comes before the others of its node, so theirs is renumbered already. */
    for (int rank = 0; rank < topology->size; rank++) {
        dt_peer_t *peer = &topology->peers[rank];
        peer->node = peer->node == rank ? topology->num_nodes++ : topology->peers[peer->node].node;
    }
}

static void count_neighbours(dt_topology_t *topology)
{
    const dt_peer_t *self = &topology->peers[topology->rank];
    topology->local_rank = self->local_rank;
    topology->local_size = topology->cross_rank = topology->cross_size = 0;
    for (int rank = 0; rank < topology->size; rank++) {
        const dt_peer_t *peer = &topology->peers[rank];
        topology->local_size += peer->node == self->node;
        topology->cross_size += peer->local_rank == self->local_rank;
        topology->cross_rank += peer->local_rank == self->local_rank && peer->node < self->node;
    }
}

dtrain_status_t dt_topology_make(dt_topology_t *topology, int rank, int size, dt_peer_t *peers)
{
    if (size < 1 || rank < 0 || rank >= size) {
        dt_free(peers);
        return dt_fail(DTRAIN_ERR_INTERNAL, "rank %d in a world of size %d", rank, size);
    }
    member_t *members = dt_calloc((size_t)size, sizeof *members);
    if (!members) {
        dt_free(peers);
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory for a world of %d ranks", size);
    }
    for (int i = 0; i < size; i++)
        members[i] = (member_t){.node = peers[i].node, .rank = i};
    qsort(members, (size_t)size, sizeof *members, by_node_then_rank);
    *topology = (dt_topology_t){.rank = rank, .size = size, .peers = peers};
    number_nodes(topology, members);
    count_neighbours(topology);
    dt_free(members);
    return DTRAIN_OK;
}

void dt_topology_free(dt_topology_t *topology)
{
    dt_free(topology->peers);
    *topology = (dt_topology_t){0};
}

const char *dt_topology_describe(const dt_topology_t *topology, int rank, char *text, int cap)
{
    if (rank < 0 || rank >= topology->size) {
        snprintf(text, (size_t)cap, "rank %d", rank);
        return text;
    }
    const dt_peer_t *peer = &topology->peers[rank];
    snprintf(text, (size_t)cap, "rank %d on host %.*s (pid %d)", rank, DT_HOST_MAX, peer->host,
             (int)peer->pid);
    return text;
}
