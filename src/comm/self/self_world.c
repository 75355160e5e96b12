#include "comm/self/self_world.h"

#include <string.h>
#include <unistd.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/collective.h"

/* Collectives are complete once started, so all tasks are alike and one stands for them. */
struct dt_task {
    dtrain_status_t status; /* [const] OK */
};

typedef struct self_backend {
    dt_backend_t base;
    dt_task_t task;
} self_backend_t;

/* Among one rank every kind is one of two. Only a broadcast may have no place for its result. */
static void do_piece(const dt_collective_t *collective, const dt_piece_t *piece, int64_t count)
{
    const dt_reduction_t *reduction = &collective->reduction;
    void *destination = piece->out;
    const void *source = piece->in;
    int reduces = collective->kind == DT_ALLREDUCE || collective->kind == DT_REDUCE ||
                  collective->kind == DT_REDUCE_SCATTER;
    if (count == 0 || !destination)
        return;
    if (reduces)
        dt_reduce(reduction, &destination, 1, &source, 1, (size_t)count);
    else if (destination != source)
        memcpy(destination, source, (size_t)count * dt_dtype_size(reduction->dtype));
}

static dtrain_status_t self_start(dt_backend_t *backend, const dt_collective_t *collective,
                                  dt_task_t **task)
{
    self_backend_t *self = (self_backend_t *)backend;
    dtrain_status_t status = dt_collective_check(collective, 1, 1, "a world of one rank");
    if (status != DTRAIN_OK)
        return status;
    int has_counts = dt_collective_has_counts(collective);
    for (int i = 0; i < collective->num_pieces; i++) {
        const dt_piece_t *piece = &collective->pieces[i];
        do_piece(collective, piece, has_counts ? collective->counts[0] : piece->count);
    }
    *task = &self->task;
    return DTRAIN_OK;
}

static dtrain_status_t self_progress(dt_backend_t *backend, dt_task_t *task)
{
    (void)backend;
    return task->status;
}

static void self_release(dt_backend_t *backend, dt_task_t *task)
{
    (void)backend;
    (void)task;
}

static void self_destroy(dt_backend_t *backend, int clean)
{
    (void)clean;
    dt_free(backend);
}

static const dt_backend_ops_t self_ops = {
    .name = "self",
    .start = self_start,
    .progress = self_progress,
    .release = self_release,
    .destroy = self_destroy,
};

static dtrain_status_t make_topology(dt_topology_t *topology)
{
    dt_peer_t *peer = dt_calloc(1, sizeof *peer);
    if (!peer)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory for a world of one rank");
    /* A name that is too long fails too, and leaves as much of it as fits. */
    if (gethostname(peer->host, sizeof peer->host - 1) != 0 && peer->host[0] == '\0')
        strcpy(peer->host, "localhost");
    peer->pid = (int32_t)getpid();
    return dt_topology_make(topology, 0, 1, peer);
}

dtrain_status_t dt_self_join(dt_world_t *world)
{
    self_backend_t *self = dt_calloc(1, sizeof *self);
    if (!self)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory for a world of one rank");
    self->base.ops = &self_ops;
    self->base.takes_pieces = 1;
    dt_world_t joined = {.backend = &self->base};
    dtrain_status_t status = make_topology(&joined.topology);
    if (status != DTRAIN_OK) {
        dt_free(self);
        return status;
    }
    *world = joined;
    return DTRAIN_OK;
}
