#include "comm/ring/ring.h"

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/ring/ring_task.h"

#define SEGMENT_BYTES_DEFAULT (INT64_C(256) << 10)
#define SEGMENT_BYTES_MIN (INT64_C(1) << 10)
#define IN_FLIGHT_DEFAULT 4

/* What a task stages for its peers at most, by default: segments shrink where ranks are many. */
#define STAGING_BYTES (INT64_C(16) << 20)

/* What a rank sends at most in the one round of a short vector, by default. */
#define DIRECT_TRAFFIC (INT64_C(64) << 10)

int dt_ring_tag(const dt_ring_task_t *task, int slot, dt_ring_phase_t phase)
{
    int turn = (int)(task->sequence % DT_RING_TASKS_MAX);
    return (turn * DT_RING_SLOTS_MAX + slot) * 2 + (int)phase;
}

/* ---- Tasks -------------------------------------------------------------------------- */

/* Memory of tasks is kept, so that a collective costs none once the first few have run. */
static dt_ring_task_t *acquire_task(dt_ring_t *ring)
{
    dt_ring_task_t *task = ring->free;
    if (task) {
        ring->free = task->next;
        ring->num_free--;
        return task;
    }
    size_t slots = (size_t)ring->tuning.segments_in_flight * sizeof task->slots[0];
    size_t sources = (size_t)ring->p2p->size * sizeof task->sources[0];
    task = dt_calloc(1, sizeof *task + slots + sources);
    if (task)
        task->sources = (const void **)&task->slots[ring->tuning.segments_in_flight];
    return task;
}

static void free_task(dt_ring_task_t *task)
{
    if (task)
        dt_free(task->staging);
    dt_free(task);
}

static void recycle_task(dt_ring_t *ring, dt_ring_task_t *task)
{
    if (ring->num_free == DT_RING_FREE_MAX) {
        free_task(task);
        return;
    }
    task->next = ring->free;
    ring->free = task;
    ring->num_free++;
}

static void fill_task(dt_ring_task_t *task, const dt_collective_t *collective)
{
    task->sequence = collective->sequence;
    task->reduction = collective->reduction;
    task->element_bytes = dt_dtype_size(collective->reduction.dtype);
    task->count = collective->count;
    task->in = NULL;
    task->out = NULL;
    if (collective->num_pieces > 0) {
        task->in = collective->pieces[0].in;
        task->out = collective->pieces[0].out;
    }
}

static void rewind_slots(dt_ring_task_t *task)
{
    task->rounds_left = task->num_rounds;
    for (int i = 0; i < task->num_slots; i++) {
        dt_ring_slot_t *slot = &task->slots[i];
        slot->round = i;
        slot->reduced = 0;
        dt_ring_queue_reset(&slot->sends);
        dt_ring_queue_reset(&slot->receives);
        dt_ring_queue_reset(&slot->forwards);
        dt_ring_queue_reset(&slot->arrivals);
    }
}

/* ---- Backend -------------------------------------------------------------------------- */

static dtrain_status_t check(const dt_ring_t *ring, const dt_collective_t *collective)
{
    if (ring->tasks[collective->sequence % DT_RING_TASKS_MAX])
        return dt_fail(DTRAIN_ERR_INTERNAL, "more than %d collectives are under way",
                       DT_RING_TASKS_MAX);
    if (dt_dtype_size(collective->reduction.dtype) == 0 || collective->num_pieces > 1)
        return dt_fail(DTRAIN_ERR_INTERNAL, "the ring was given type %d and %d pieces",
                       (int)collective->reduction.dtype, collective->num_pieces);
    return DTRAIN_OK;
}

static dtrain_status_t ring_start(dt_backend_t *backend, const dt_collective_t *collective,
                                  dt_task_t **out)
{
    dt_ring_t *ring = (dt_ring_t *)backend;
    dtrain_status_t status = check(ring, collective);
    if (status != DTRAIN_OK)
        return status;
    dt_ring_task_t *task = acquire_task(ring);
    if (!task)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory for a collective");
    fill_task(task, collective);
    if (collective->kind == DT_BROADCAST)
        dt_ring_broadcast_plan(ring, task, collective->root);
    else
        status = dt_ring_allreduce_plan(ring, task);
    if (status != DTRAIN_OK) {
        free_task(task);
        return status;
    }
    rewind_slots(task);
    task->status = DTRAIN_IN_PROGRESS;
    ring->tasks[task->sequence % DT_RING_TASKS_MAX] = task;
    *out = (dt_task_t *)task;
    return DTRAIN_OK;
}

static dtrain_status_t ring_progress(dt_backend_t *backend, dt_task_t *handle)
{
    dt_ring_t *ring = (dt_ring_t *)backend;
    dt_ring_task_t *task = (dt_ring_task_t *)handle;
    if (task->status == DTRAIN_IN_PROGRESS) {
        if (task->path == DT_RING_RELAY)
            task->status = dt_ring_broadcast_progress(ring, task);
        else
            task->status = dt_ring_allreduce_progress(ring, task);
    }
    return task->status;
}

/* A task that is given up keeps its memory, which messages under way may still be written to,
 * until the transport is gone. */
static void ring_release(dt_backend_t *backend, dt_task_t *handle)
{
    dt_ring_t *ring = (dt_ring_t *)backend;
    dt_ring_task_t *task = (dt_ring_task_t *)handle;
    if (task->status != DTRAIN_OK)
        return;
    ring->tasks[task->sequence % DT_RING_TASKS_MAX] = NULL;
    recycle_task(ring, task);
}

static void ring_destroy(dt_backend_t *backend, int clean)
{
    dt_ring_t *ring = (dt_ring_t *)backend;
    ring->p2p->ops->destroy(ring->p2p, clean);
    for (int i = 0; i < DT_RING_TASKS_MAX; i++)
        free_task(ring->tasks[i]);
    while (ring->free) {
        dt_ring_task_t *task = ring->free;
        ring->free = task->next;
        free_task(task);
    }
    dt_free(ring);
}

static void ring_linger(dt_backend_t *backend)
{
    dt_p2p_t *p2p = ((dt_ring_t *)backend)->p2p;
    if (p2p->ops->linger)
        p2p->ops->linger(p2p);
}

static const dt_backend_ops_t ring_ops = {
    .name = "ring",
    .start = ring_start,
    .progress = ring_progress,
    .release = ring_release,
    .destroy = ring_destroy,
    .linger = ring_linger,
};

/* ---- Create ---------------------------------------------------------------------------- */

static int64_t default_segment_bytes(int n, int in_flight)
{
    int64_t bytes = n > 1 ? STAGING_BYTES / in_flight / (n - 1) : SEGMENT_BYTES_DEFAULT;
    if (bytes < SEGMENT_BYTES_MIN)
        return SEGMENT_BYTES_MIN;
    return bytes < SEGMENT_BYTES_DEFAULT ? bytes : SEGMENT_BYTES_DEFAULT;
}

static dt_ring_tuning_t fill_tuning(const dt_ring_tuning_t *wanted, int n)
{
    dt_ring_tuning_t tuning = wanted ? *wanted : (dt_ring_tuning_t){0};
    if (tuning.segments_in_flight <= 0)
        tuning.segments_in_flight = IN_FLIGHT_DEFAULT;
    if (tuning.segments_in_flight > DT_RING_SLOTS_MAX)
        tuning.segments_in_flight = DT_RING_SLOTS_MAX;
    if (tuning.segment_bytes <= 0)
        tuning.segment_bytes = default_segment_bytes(n, tuning.segments_in_flight);
    if (tuning.segment_bytes > DT_P2P_MESSAGE_MAX)
        tuning.segment_bytes = DT_P2P_MESSAGE_MAX;
    if (tuning.direct_bytes == 0)
        tuning.direct_bytes = n > 1 ? DIRECT_TRAFFIC / (n - 1) : 0;
    if (tuning.direct_bytes > DT_P2P_MESSAGE_MAX)
        tuning.direct_bytes = DT_P2P_MESSAGE_MAX;
    return tuning;
}

dtrain_status_t dt_ring_create(dt_p2p_t *p2p, const dt_ring_tuning_t *tuning,
                               dt_backend_t **backend)
{
    dt_ring_t *ring = dt_calloc(1, sizeof *ring);
    if (!ring) {
        p2p->ops->destroy(p2p, 0);
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory for the ring backend");
    }
    ring->base.ops = &ring_ops;
    ring->p2p = p2p;
    ring->tuning = fill_tuning(tuning, p2p->size);
    *backend = &ring->base;
    return DTRAIN_OK;
}
