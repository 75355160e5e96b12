#include "comm/mpi/mpi_node.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/hier/hier.h"
#include "comm/mpi/mpi_call.h"
#include "comm/p2p_subset.h"
#include "comm/ring/ring.h"
#include "comm/shm/shm.h"
#include "comm/shm/shm_control.h"

/*
 * Of a chunk on its way between nodes. Two of them exchange it in one round, which is as few bytes
 * as any other way; more do so only as long as it is too short for the bytes to matter.
 */
#define CROSS_ROUND_BYTES (INT64_C(16) << 10)

/* The lowest rank of a node gives up so much before the others, which then hear why. */
#define VERDICT_NS DT_NS_PER_S

/* Where a node meets; `is_there` 0: its lowest rank cannot listen, or its ranks have nothing to
 * share. */
typedef struct meeting {
    int32_t is_there;
    dt_sock_address_t address;
} meeting_t;

/* Tells all ranks where every node meets. */
static dtrain_status_t gather(dt_mpi_bootstrap_t *self, meeting_t *meetings)
{
    MPI_Request request;
    dtrain_status_t status =
        dt_mpi_check(MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, meetings,
                                    (int)sizeof *meetings, MPI_BYTE, self->comm, &request),
                     "MPI_Iallgather");
    return status == DTRAIN_OK ? dt_mpi_bootstrap_await(self, &request, "MPI_Iallgather") : status;
}

static int lowest_of_node(const dt_topology_t *topology)
{
    int rank = 0;
    while (topology->peers[rank].node != topology->peers[topology->rank].node)
        rank++;
    return rank;
}

/* NULL where that is not possible: the reason is in the log. */
static dt_shm_node_t *meet(dt_mpi_bootstrap_t *self, const meeting_t *meeting,
                           dt_sock_listener_t *listener)
{
    const dt_topology_t *topology = &self->world.topology;
    dt_sock_meanwhile_t meanwhile = {dt_mpi_bootstrap_poll, self};
    dt_shm_node_t *node = NULL;
    dtrain_status_t status;
    if (topology->local_rank == 0)
        status = dt_shm_accept(listener, topology->local_size, self->deadline_ns - VERDICT_NS,
                               meanwhile, &node);
    else
        status = dt_shm_connect(&meeting->address, topology->local_rank, topology->local_size,
                                self->deadline_ns, meanwhile, &node);
    if (status != DTRAIN_OK)
        dt_log(DTRAIN_LOG_WARN, "shm", "rank %d shares no memory with its node: %s", self->rank,
               dt_last_error());
    return status == DTRAIN_OK ? node : NULL;
}

/* What only tells more when something goes wrong, or makes small messages faster. */
static dtrain_status_t use_beside_data(dt_mpi_bootstrap_t *self, const dt_shm_node_t *node)
{
    const dt_topology_t *topology = &self->world.topology;
    int *ranks = dt_calloc((size_t)topology->local_size, sizeof *ranks);
    if (!ranks)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory to join the node");
    for (int rank = 0; rank < topology->size; rank++) {
        const dt_peer_t *peer = &topology->peers[rank];
        if (peer->node == topology->peers[self->rank].node)
            ranks[peer->local_rank] = rank;
    }
    dtrain_status_t status = dt_shm_node_boards(node, ranks, topology->size, &self->world.boards);
    if (status == DTRAIN_OK && topology->peers[self->rank].node == topology->peers[0].node)
        status = dt_shm_control_create(node, ranks, topology->size, self->world.control,
                                       &self->world.control);
    dt_free(ranks);
    return status;
}

/* The rest takes the node over. */
static dtrain_status_t use_for_all_data(dt_mpi_bootstrap_t *self, dt_shm_node_t *node)
{
    dt_backend_t *backend;
    dtrain_status_t status = dt_shm_create(node, NULL, &backend);
    if (status != DTRAIN_OK)
        return status;
    self->world.backend->ops->destroy(self->world.backend, 1);
    self->world.backend = backend;
    self->p2p = NULL;
    return DTRAIN_OK;
}

/* A ring of the ranks that have this one's local rank, beside the ring of all ranks. */
static dtrain_status_t make_cross_ring(const dt_mpi_bootstrap_t *self, dt_backend_t **ring)
{
    const dt_topology_t *topology = &self->world.topology;
    dt_ring_tuning_t tuning = {.direct_bytes = CROSS_ROUND_BYTES / topology->num_nodes};
    dt_p2p_t *subset = NULL;
    int *ranks = dt_calloc((size_t)topology->num_nodes, sizeof *ranks);
    if (!ranks)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory to join the nodes");
    for (int rank = 0; rank < topology->size; rank++) {
        const dt_peer_t *peer = &topology->peers[rank];
        if (peer->local_rank == topology->local_rank)
            ranks[peer->node] = rank;
    }
    dtrain_status_t status =
        dt_p2p_subset_create(self->p2p, ranks, topology->num_nodes, DT_RING_TAG_COUNT, &subset);
    dt_free(ranks);
    if (topology->num_nodes == 2)
        tuning.direct_bytes = DT_P2P_MESSAGE_MAX;
    return status == DTRAIN_OK ? dt_ring_create(subset, &tuning, ring) : status;
}

static dtrain_status_t use_across_nodes(dt_mpi_bootstrap_t *self, dt_shm_node_t *node)
{
    const dt_topology_t *topology = &self->world.topology;
    dt_shm_cross_t cross = {.node = topology->cross_rank, .num_nodes = topology->num_nodes};
    dt_backend_t *by_node;
    int *ranks = dt_calloc((size_t)topology->size, sizeof *ranks);
    dtrain_status_t status = ranks
                                 ? make_cross_ring(self, &cross.backend)
                                 : dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory to join the nodes");
    if (status != DTRAIN_OK) {
        dt_free(ranks);
        dt_shm_node_free(node);
        return status;
    }
    for (int rank = 0; rank < topology->size; rank++) {
        const dt_peer_t *peer = &topology->peers[rank];
        ranks[peer->node * topology->local_size + peer->local_rank] = rank;
    }
    cross.ranks = ranks;
    status = dt_shm_create_across(node, NULL, &cross, &by_node);
    dt_free(ranks);
    if (status != DTRAIN_OK)
        return status;
    return dt_hier_create(self->world.backend, by_node, topology, NULL, &self->world.backend);
}

static dtrain_status_t use(dt_mpi_bootstrap_t *self, dt_shm_node_t *node)
{
    const dt_topology_t *topology = &self->world.topology;
    dtrain_status_t status = use_beside_data(self, node);
    if (status == DTRAIN_OK && topology->num_nodes == 1)
        return use_for_all_data(self, node);
    if (status == DTRAIN_OK && topology->is_homogeneous) /* so no rank is alone: this one is not */
        return use_across_nodes(self, node);
    dt_shm_node_free(node);
    return status;
}

static dtrain_status_t join(dt_mpi_bootstrap_t *self, meeting_t *meetings)
{
    const dt_topology_t *topology = &self->world.topology;
    dt_sock_listener_t *listener = NULL;
    dt_shm_node_t *node = NULL;
    int is_alone = topology->local_size == 1;
    meeting_t *own = &meetings[self->rank];
    if (topology->local_rank == 0 && !is_alone)
        own->is_there = dt_sock_listen(0, "", &own->address, &listener) == DTRAIN_OK;
    dtrain_status_t status = gather(self, meetings);
    const meeting_t *meeting = &meetings[lowest_of_node(topology)];
    if (status == DTRAIN_OK && meeting->is_there)
        node = meet(self, meeting, listener);
    else
        dt_sock_listener_free(listener);
    dtrain_status_t worst = DTRAIN_OK;
    if (status == DTRAIN_OK)
        status = dt_mpi_bootstrap_agree(self, is_alone || node ? DTRAIN_OK : DTRAIN_ERR_UNSUPPORTED,
                                        &worst);
    if (status != DTRAIN_OK || worst != DTRAIN_OK) {
        dt_shm_node_free(node);
        return status;
    }
    return node ? use(self, node) : DTRAIN_OK;
}

dtrain_status_t dt_mpi_node_join(dt_mpi_bootstrap_t *self)
{
    if (self->config.shared_memory == DTRAIN_SHARED_MEMORY_OFF) /* shared: so on all ranks */
        return DTRAIN_OK;
    dt_fault_point(DT_FAULT_INIT_SHARE);
    meeting_t *meetings = dt_calloc((size_t)self->size, sizeof *meetings);
    self->meetings = meetings;
    dtrain_status_t worst;
    dtrain_status_t status =
        dt_mpi_bootstrap_agree(self, meetings ? DTRAIN_OK : DTRAIN_ERR_OUT_OF_MEMORY, &worst);
    if (status == DTRAIN_OK && worst == DTRAIN_OK)
        status = join(self, meetings);
    else if (status == DTRAIN_OK) {
        self->is_agreed = 1;
        status = dt_fail(worst, "%s has no memory to join its node",
                         meetings ? "another rank" : "this rank");
    }
    return status;
}
