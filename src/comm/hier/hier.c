#include "comm/hier/hier.h"

#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/collective.h"

/*
 * What a rank sends at most, to all others, of a vector that goes flat by its size. Measured with 2
 * and 3 nodes of 2 ranks on 2 cores: up to a vector of about 4 KiB neither way is faster. Over
 * links of 200 Mbit/s flat takes twice as long from 16 KiB on.
 */
#define FLAT_TRAFFIC (INT64_C(16) << 10)

/* Tasks whose memory is kept. */
#define FREE_MAX 4

/* A collective that was handed on. */
typedef struct hier_task {
    struct hier_task *next; /* of free tasks, or of those given up */
    dtrain_status_t status;
    dt_backend_t *backend; /* that does it */
    dt_task_t *task;
    /* Flat goes one piece: of more, they are here, packed into one. */
    const dt_piece_t *pieces; /* NULL: not packed */
    int num_pieces;
    size_t element_bytes;
    dt_piece_t packed;
    uint8_t *buffer;
    size_t capacity; /* bytes */
} hier_task_t;

typedef struct hier {
    dt_backend_t base;
    dt_backend_t *flat, *by_node;
    uint64_t flat_started, by_node_started;
    int rank, size, local_size;
    int same_order; /* both compute the same bits */
    int64_t flat_bytes;
    int *places; /* of all ranks: node times ranks of a node plus local rank */
    hier_task_t *free;
    int num_free;
    hier_task_t *given_up; /* messages may be written to their buffers until `flat` is gone */
} hier_t;

/* ---- The choice -------------------------------------------------------------------------- */

/* Whether a node's partial result says all that there is to say about its ranks' values. */
static int is_whole_in_parts(const dt_reduction_t *reduction)
{
    if (dt_dtype_is_float(reduction->dtype))
        return dt_dtype_size(reduction->dtype) >= sizeof(float);
    return reduction->op != DTRAIN_OP_AVERAGE && reduction->prescale == 1 &&
           reduction->postscale == 1;
}

static int goes_flat(const hier_t *hier, const dt_collective_t *collective)
{
    const dt_reduction_t *reduction = &collective->reduction;
    int is_short = collective->count <= hier->flat_bytes / (int64_t)dt_dtype_size(reduction->dtype);
    switch (collective->kind) {
    case DT_ALLGATHER:
    case DT_EXCHANGE:
        return 1;
    case DT_BROADCAST:
        return is_short;
    default:
        return !is_whole_in_parts(reduction) ||
               (is_short && (hier->same_order || !dt_dtype_is_float(reduction->dtype)));
    }
}

/* ---- Tasks ------------------------------------------------------------------------------- */

static hier_task_t *acquire_task(hier_t *hier)
{
    hier_task_t *task = hier->free;
    if (!task)
        return dt_calloc(1, sizeof *task);
    hier->free = task->next;
    hier->num_free--;
    return task;
}

static void free_task(hier_task_t *task)
{
    dt_free(task->buffer);
    dt_free(task);
}

static void free_tasks(hier_task_t *task)
{
    while (task) {
        hier_task_t *next = task->next;
        free_task(task);
        task = next;
    }
}

static void recycle_task(hier_t *hier, hier_task_t *task)
{
    if (hier->num_free == FREE_MAX) {
        free_task(task);
        return;
    }
    task->next = hier->free;
    hier->free = task;
    hier->num_free++;
}

static dtrain_status_t reserve(hier_task_t *task, size_t bytes)
{
    if (task->buffer && bytes <= task->capacity)
        return DTRAIN_OK;
    dt_free(task->buffer);
    task->capacity = 0;
    task->buffer = dt_alloc(bytes > 0 ? bytes : 1);
    if (!task->buffer)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory to pack %zu bytes of a collective",
                       bytes);
    task->capacity = bytes;
    return DTRAIN_OK;
}

static void pack(const hier_task_t *task)
{
    uint8_t *to = task->buffer;
    for (int i = 0; i < task->num_pieces; i++) {
        size_t bytes = (size_t)task->pieces[i].count * task->element_bytes;
        if (bytes > 0)
            memcpy(to, task->pieces[i].in, bytes);
        to += bytes;
    }
}

static void unpack(const hier_task_t *task)
{
    const uint8_t *from = task->buffer;
    for (int i = 0; i < task->num_pieces; i++) {
        size_t bytes = (size_t)task->pieces[i].count * task->element_bytes;
        if (bytes > 0 && task->pieces[i].out)
            memcpy(task->pieces[i].out, from, bytes);
        from += bytes;
    }
}

/* Makes one piece of many, in *collective. */
static dtrain_status_t make_one_piece(const hier_t *hier, hier_task_t *task,
                                      dt_collective_t *collective)
{
    task->pieces = NULL;
    if (collective->num_pieces == 1)
        return DTRAIN_OK;
    task->element_bytes = dt_dtype_size(collective->reduction.dtype);
    dtrain_status_t status = reserve(task, (size_t)collective->count * task->element_bytes);
    if (status != DTRAIN_OK)
        return status;
    task->pieces = collective->pieces;
    task->num_pieces = collective->num_pieces;
    task->packed = (dt_piece_t){task->buffer, task->buffer, collective->count};
    if (collective->kind == DT_ALLREDUCE || collective->root == hier->rank)
        pack(task);
    collective->pieces = &task->packed;
    collective->num_pieces = 1;
    return DTRAIN_OK;
}

/* ---- Backend ----------------------------------------------------------------------------- */

static dtrain_status_t start_flat(hier_t *hier, hier_task_t *task, dt_collective_t collective)
{
    dtrain_status_t status = make_one_piece(hier, task, &collective);
    if (status != DTRAIN_OK)
        return status;
    collective.sequence = hier->flat_started;
    task->backend = hier->flat;
    status = hier->flat->ops->start(hier->flat, &collective, &task->task);
    hier->flat_started += status == DTRAIN_OK;
    return status;
}

static dtrain_status_t start_by_node(hier_t *hier, hier_task_t *task, dt_collective_t collective)
{
    collective.sequence = hier->by_node_started;
    if (collective.kind == DT_BROADCAST || collective.kind == DT_REDUCE)
        collective.root = hier->places[collective.root];
    task->pieces = NULL;
    task->backend = hier->by_node;
    dtrain_status_t status = hier->by_node->ops->start(hier->by_node, &collective, &task->task);
    hier->by_node_started += status == DTRAIN_OK;
    return status;
}

static dtrain_status_t hier_start(dt_backend_t *backend, const dt_collective_t *collective,
                                  dt_task_t **out)
{
    hier_t *hier = (hier_t *)backend;
    dtrain_status_t status = dt_collective_check(collective, hier->size, 1, "a world of nodes");
    if (status != DTRAIN_OK)
        return status;
    hier_task_t *task = acquire_task(hier);
    if (!task)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory for a collective");
    status = goes_flat(hier, collective) ? start_flat(hier, task, *collective)
                                         : start_by_node(hier, task, *collective);
    if (status != DTRAIN_OK) {
        recycle_task(hier, task);
        return status;
    }
    task->status = DTRAIN_IN_PROGRESS;
    *out = (dt_task_t *)task;
    return DTRAIN_OK;
}

static dtrain_status_t hier_progress(dt_backend_t *backend, dt_task_t *handle)
{
    hier_task_t *task = (hier_task_t *)handle;
    (void)backend;
    if (task->status == DTRAIN_OK)
        return DTRAIN_OK;
    task->status = task->backend->ops->progress(task->backend, task->task);
    if (task->status == DTRAIN_OK && task->pieces)
        unpack(task);
    return task->status;
}

static void hier_release(dt_backend_t *backend, dt_task_t *handle)
{
    hier_t *hier = (hier_t *)backend;
    hier_task_t *task = (hier_task_t *)handle;
    task->backend->ops->release(task->backend, task->task);
    if (task->status == DTRAIN_OK) {
        recycle_task(hier, task);
        return;
    }
    task->next = hier->given_up;
    hier->given_up = task;
}

static void hier_destroy(dt_backend_t *backend, int clean)
{
    hier_t *hier = (hier_t *)backend;
    hier->flat->ops->destroy(hier->flat, clean);
    hier->by_node->ops->destroy(hier->by_node, clean);
    free_tasks(hier->free);
    free_tasks(hier->given_up);
    dt_free(hier->places);
    dt_free(hier);
}

static dtrain_status_t hier_allocate(dt_backend_t *backend, size_t bytes, void **memory)
{
    dt_backend_t *by_node = ((hier_t *)backend)->by_node;
    return by_node->ops->allocate(by_node, bytes, memory);
}

static int hier_deallocate(dt_backend_t *backend, void *memory)
{
    dt_backend_t *by_node = ((hier_t *)backend)->by_node;
    return by_node->ops->deallocate(by_node, memory);
}

/* What crosses nodes goes over the same transport in both. */
static void hier_linger(dt_backend_t *backend)
{
    hier_t *hier = (hier_t *)backend;
    if (hier->flat->ops->linger)
        hier->flat->ops->linger(hier->flat);
}

/* Ranks of one node, this one's, share its memory; others get a ring. */
static dtrain_status_t hier_subset(dt_backend_t *backend, const int *ranks, int num_ranks, int set,
                                   dt_backend_t **subset)
{
    hier_t *hier = (hier_t *)backend;
    int node = hier->places[hier->rank] / hier->local_size;
    int *local_ranks = dt_calloc((size_t)num_ranks, sizeof *local_ranks);
    int is_near = 1;
    if (!local_ranks)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory for a set of %d ranks", num_ranks);
    for (int i = 0; i < num_ranks; i++) {
        int is_rank = ranks[i] >= 0 && ranks[i] < hier->size;
        is_near &= is_rank && hier->places[ranks[i]] / hier->local_size == node;
        local_ranks[i] = is_rank ? hier->places[ranks[i]] % hier->local_size : -1;
    }
    dt_backend_t *by_node = hier->by_node;
    dtrain_status_t status =
        is_near ? by_node->ops->subset(by_node, local_ranks, num_ranks, set, subset)
                : hier->flat->ops->subset(hier->flat, ranks, num_ranks, set, subset);
    dt_free(local_ranks);
    return status;
}

static const dt_backend_ops_t hier_ops = {
    .name = "hier",
    .start = hier_start,
    .progress = hier_progress,
    .release = hier_release,
    .destroy = hier_destroy,
    .allocate = hier_allocate,
    .deallocate = hier_deallocate,
    .linger = hier_linger,
    .subset = hier_subset,
};

/* ---- Create ------------------------------------------------------------------------------ */

static void place_ranks(hier_t *hier, const dt_topology_t *topology)
{
    int local_size = topology->local_size;
    hier->same_order = (local_size & (local_size - 1)) == 0;
    for (int rank = 0; rank < topology->size; rank++) {
        const dt_peer_t *peer = &topology->peers[rank];
        hier->places[rank] = peer->node * local_size + peer->local_rank;
        hier->same_order &= hier->places[rank] == rank;
    }
}

dtrain_status_t dt_hier_create(dt_backend_t *flat, dt_backend_t *by_node,
                               const dt_topology_t *topology, const dt_hier_tuning_t *tuning,
                               dt_backend_t **backend)
{
    hier_t *hier = dt_calloc(1, sizeof *hier);
    int *places = dt_calloc((size_t)topology->size, sizeof *places);
    if (!hier || !places) {
        dt_free(hier);
        dt_free(places);
        by_node->ops->destroy(by_node, 0);
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory for a world of nodes");
    }
    *hier = (hier_t){.flat = flat, .by_node = by_node, .places = places};
    hier->base = (dt_backend_t){.ops = &hier_ops, .takes_pieces = 1};
    hier->rank = topology->rank;
    hier->size = topology->size;
    hier->local_size = topology->local_size;
    hier->flat_bytes = FLAT_TRAFFIC / topology->size;
    if (tuning && tuning->flat_bytes != 0)
        hier->flat_bytes = tuning->flat_bytes > 0 ? tuning->flat_bytes : 0;
    place_ranks(hier, topology);
    *backend = &hier->base;
    return DTRAIN_OK;
}
