#include "hier_world.h"

#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "comm/hier/hier.h"
#include "comm/loopback/loopback.h"
#include "comm/p2p_subset.h"

/* What the variant's functions work with. */
typedef struct context {
    hier_world_t *world;
    dt_loopback_t *loopback;
} context_t;

static int node_of(const hier_world_t *world, int rank)
{
    return world->is_scattered ? rank % world->num_nodes : rank / world->local_size;
}

static int rank_at(const hier_world_t *world, int node, int local_rank)
{
    return world->is_scattered ? local_rank * world->num_nodes + node
                               : node * world->local_size + local_rank;
}

static void open_nodes(const hier_world_t *world, int64_t heap_bytes, dt_shm_node_t **nodes)
{
    for (int node = 0; node < world->num_nodes; node++) {
        dt_shm_node_t *group[SHM_WORLD_MAX];
        if (dt_shm_local_group(world->local_size, heap_bytes, group) != DTRAIN_OK)
            abort();
        for (int i = 0; i < world->local_size; i++)
            nodes[rank_at(world, node, i)] = group[i];
    }
}

static void make_nodes(const shm_world_t *shm, int64_t heap_bytes, dt_shm_node_t **nodes)
{
    open_nodes(((context_t *)shm->variant->context)->world, heap_bytes, nodes);
}

static void make_topology(const hier_world_t *world, int rank, dt_topology_t *topology)
{
    int size = world->num_nodes * world->local_size;
    dt_peer_t *peers = dt_calloc((size_t)size, sizeof *peers);
    if (!peers)
        abort();
    for (int i = 0; i < size; i++)
        peers[i].node = node_of(world, i);
    if (dt_topology_make(topology, rank, size, peers) != DTRAIN_OK)
        abort();
}

static dt_backend_t *open_rank(const context_t *context, int rank, dt_shm_node_t *node)
{
    hier_world_t *world = context->world;
    dt_backend_t *backend;
    dt_topology_t topology;
    dt_p2p_t *all, *some;
    dt_backend_t *flat, *by_node;
    int ranks[SHM_WORLD_MAX];
    dt_hier_tuning_t tuning = {.flat_bytes = world->flat_bytes};
    make_topology(world, rank, &topology);
    for (int i = 0; i < world->num_nodes; i++)
        ranks[i] = rank_at(world, i, topology.local_rank);
    if (dt_loopback_p2p(context->loopback, rank, &all) != DTRAIN_OK)
        abort();
    all = jitter_p2p_create(all, world->seed + (uint64_t)rank,
                            world->fail_after > 0 ? world->fail_after : -1, &world->reports[rank]);
    int numbers[SHM_WORLD_MAX];
    dt_shm_cross_t cross = {
        .node = topology.cross_rank, .num_nodes = topology.num_nodes, .ranks = numbers};
    for (int i = 0; i < topology.size; i++)
        numbers[i] = rank_at(world, i / world->local_size, i % world->local_size);
    if (!all || dt_ring_create(all, &world->ring, &flat) != DTRAIN_OK ||
        dt_p2p_subset_create(all, ranks, world->num_nodes, DT_RING_TAG_COUNT, &some) != DTRAIN_OK ||
        dt_ring_create(some, &world->ring, &cross.backend) != DTRAIN_OK ||
        dt_shm_create_across(node, &world->tuning, &cross, &by_node) != DTRAIN_OK ||
        dt_hier_create(flat, by_node, &topology, &tuning, &backend) != DTRAIN_OK)
        abort();
    dt_topology_free(&topology);
    return backend;
}

static void make_backend(const shm_world_t *shm, int rank, dt_shm_node_t *node,
                         dt_backend_t **backend)
{
    *backend = open_rank(shm->variant->context, rank, node);
}

/* A node that holds a power of two of consecutive ranks changes nothing. */
static int is_flat_order(const hier_world_t *world, const dt_reduction_t *reduction)
{
    int is_even = (world->local_size & (world->local_size - 1)) == 0 && !world->is_scattered;
    return is_even || !dt_dtype_is_float(reduction->dtype) ||
           dt_dtype_size(reduction->dtype) < sizeof(float);
}

static void reduce_nodes(const hier_world_t *world, const dt_reduction_t *reduction, void **vectors,
                         int64_t count)
{
    const void *partials[SHM_WORLD_MAX];
    dt_reduction_t within = *reduction, between = *reduction;
    within.divisor = 1;
    within.postscale = 1;
    between.prescale = 1;
    for (int node = 0; node < world->num_nodes; node++) {
        const void *sources[SHM_WORLD_MAX];
        for (int i = 0; i < world->local_size; i++)
            sources[i] = vectors[rank_at(world, node, i)];
        void *partial = vectors[rank_at(world, node, 0)];
        dt_reduce(&within, &partial, 1, sources, world->local_size, (size_t)count);
        partials[node] = partial;
    }
    dt_reduce(&between, vectors, 1, partials, world->num_nodes, (size_t)count);
}

static void reduce_in_order(const hier_world_t *world, const dt_reduction_t *reduction,
                            void **vectors, int64_t count)
{
    int size = world->num_nodes * world->local_size;
    if (is_flat_order(world, reduction))
        dt_reduce(reduction, vectors, 1, (const void *const *)vectors, size, (size_t)count);
    else
        reduce_nodes(world, reduction, vectors, count);
}

static void reduce(const shm_world_t *shm, const dt_reduction_t *reduction, void **vectors,
                   int64_t count)
{
    reduce_in_order(((context_t *)shm->variant->context)->world, reduction, vectors, count);
}

int hier_world_run(hier_world_t *world, const shm_task_t *tasks, int num_tasks)
{
    int size = world->num_nodes * world->local_size;
    context_t context = {.world = world, .loopback = dt_loopback_create(size, 1)};
    const shm_variant_t variant = {make_nodes, make_backend, reduce, &context};
    shm_world_t shm = {.size = size,
                       .seed = world->seed,
                       .driver = world->driver,
                       .tuning = world->tuning,
                       .variant = &variant};
    if (!context.loopback || size > SHM_WORLD_MAX)
        abort();
    memset(world->reports, 0, sizeof world->reports);
    int result = shm_world_run(&shm, tasks, num_tasks);
    memcpy(world->why, shm.why, sizeof world->why);
    dt_loopback_free(context.loopback);
    return result;
}

static void reduce_backends(const backend_world_t *world, const dt_reduction_t *reduction,
                            void **vectors, int64_t count)
{
    reduce_in_order(world->context, reduction, vectors, count);
}

void hier_world_open(hier_world_t *world, backend_world_t *backends)
{
    dt_shm_node_t *nodes[SHM_WORLD_MAX];
    int size = world->num_nodes * world->local_size;
    context_t context = {.world = world, .loopback = dt_loopback_create(size, 1)};
    if (!context.loopback || size > BACKEND_WORLD_MAX)
        abort();
    memset(world->reports, 0, sizeof world->reports);
    *backends = (backend_world_t){.size = size,
                                  .seed = world->seed,
                                  .has_threads = world->driver == SHM_THREADS,
                                  .reduce = reduce_backends,
                                  .context = world};
    open_nodes(world, SHM_WORLD_HEAP, nodes);
    for (int rank = 0; rank < size; rank++)
        backends->backends[0][rank] = open_rank(&context, rank, nodes[rank]);
    world->loopback = context.loopback;
}

void hier_world_close(hier_world_t *world, backend_world_t *backends)
{
    for (int rank = 0; rank < backends->size; rank++)
        backends->backends[0][rank]->ops->destroy(backends->backends[0][rank], 1);
    dt_loopback_free(world->loopback);
}
