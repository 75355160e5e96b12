#include "comm/ring/ring.h"

#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/collective.h"
#include "comm/p2p_subset.h"
#include "comm/ring/ring_task.h"

#define SEGMENT_BYTES_DEFAULT (INT64_C(256) << 10)
#define SEGMENT_BYTES_MIN (INT64_C(1) << 10)
#define IN_FLIGHT_DEFAULT 4
#define SET_IN_FLIGHT_MAX 4 /* so that a set's few tags are enough for some collectives */

/* What a task stages for its peers at most, by default: segments shrink where ranks are many. */
#define STAGING_BYTES (INT64_C(16) << 20)

/* What a rank sends at most in the one round of a short vector, by default. */
#define DIRECT_TRAFFIC (INT64_C(64) << 10)

/* A rank copies at most this much from its own input to its own output in one call of progress. */
#define COPY_BYTES (INT64_C(1) << 20)

int dt_ring_tag(const dt_ring_t *ring, const dt_ring_task_t *task, const dt_ring_slot_t *slot,
                dt_ring_phase_t phase)
{
    int turn = (int)(task->sequence % (uint64_t)ring->max_tasks);
    int index = (int)(slot - task->slots);
    return (turn * ring->tuning.segments_in_flight + index) * DT_RING_PHASES + (int)phase;
}

/* ---- What the paths share ------------------------------------------------------------ */

dt_span_t dt_ring_owned(const dt_ring_task_t *task, int rank, int64_t round)
{
    const int64_t *places = task->kind == DT_ALLGATHER ? task->out_places : task->in_places;
    if (task->path == DT_RING_DIRECT)
        return (dt_span_t){0, task->kind != DT_REDUCE || rank == task->root ? task->count : 0};
    dt_span_t share = dt_schedule_share(task->count, task->size, rank);
    if (task->kind == DT_REDUCE_SCATTER || task->kind == DT_ALLGATHER)
        share = (dt_span_t){places[rank], places[rank + 1]};
    return dt_schedule_cut(share, task->segment, round);
}

size_t dt_ring_offset(const dt_ring_task_t *task, dt_span_t span)
{
    return (size_t)span.lo * task->element_bytes;
}

size_t dt_ring_length(const dt_ring_task_t *task, dt_span_t span)
{
    return (size_t)(span.hi - span.lo) * task->element_bytes;
}

void dt_ring_next_round(dt_ring_task_t *task, dt_ring_slot_t *slot)
{
    slot->round += task->num_slots;
    slot->reduced = 0;
    dt_ring_queue_reset(&slot->sends);
    dt_ring_queue_reset(&slot->receives);
    dt_ring_queue_reset(&slot->forwards);
    dt_ring_queue_reset(&slot->arrivals);
    task->rounds_left--;
}

int dt_ring_copy_own(dt_ring_task_t *task, uint8_t *to, const uint8_t *from, int64_t bytes)
{
    if (!to || to == from || task->copied == bytes)
        return 1;
    int64_t length = bytes - task->copied < COPY_BYTES ? bytes - task->copied : COPY_BYTES;
    memcpy(to + task->copied, from + task->copied, (size_t)length);
    task->copied += length;
    return task->copied == bytes;
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
    size_t size = (size_t)ring->p2p->size;
    size_t slots = (size_t)ring->tuning.segments_in_flight * sizeof task->slots[0];
    size_t sources = size * sizeof task->sources[0];
    size_t places = (size + 1) * sizeof task->in_places[0];
    task = dt_calloc(1, sizeof *task + slots + sources + 2 * places);
    if (task) {
        task->sources = (const void **)&task->slots[ring->tuning.segments_in_flight];
        task->in_places = (int64_t *)&task->sources[size];
        task->out_places = &task->in_places[size + 1];
    }
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

static void fill_task(const dt_ring_t *ring, dt_ring_task_t *task,
                      const dt_collective_t *collective)
{
    task->kind = collective->kind;
    task->rank = ring->p2p->rank;
    task->size = ring->p2p->size;
    task->root = collective->root;
    task->sequence = collective->sequence;
    task->reduction = collective->reduction;
    task->element_bytes = dt_dtype_size(collective->reduction.dtype);
    task->count = collective->count;
    task->in = collective->pieces[0].in;
    task->out = collective->pieces[0].out;
    task->copied = 0;
    if (task->kind == DT_REDUCE_SCATTER || task->kind == DT_EXCHANGE)
        dt_schedule_places(collective->counts, task->size, task->in_places);
    if (task->kind == DT_ALLGATHER)
        dt_schedule_places(collective->counts, task->size, task->out_places);
    if (task->kind == DT_EXCHANGE)
        dt_schedule_places(collective->recv_counts, task->size, task->out_places);
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
    if (ring->tasks[collective->sequence % (uint64_t)ring->max_tasks])
        return dt_fail(DTRAIN_ERR_INTERNAL, "more than %d collectives are under way",
                       ring->max_tasks);
    return dt_collective_check(collective, ring->p2p->size, 0, "the ring");
}

static dtrain_status_t plan(dt_ring_t *ring, dt_ring_task_t *task)
{
    switch (task->kind) {
    case DT_BROADCAST:
        dt_ring_broadcast_plan(ring, task);
        return DTRAIN_OK;
    case DT_ALLGATHER:
        dt_ring_allgather_plan(ring, task);
        return DTRAIN_OK;
    case DT_EXCHANGE:
        dt_ring_exchange_plan(ring, task);
        return DTRAIN_OK;
    default:
        return dt_ring_reduction_plan(ring, task);
    }
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
    fill_task(ring, task, collective);
    status = plan(ring, task);
    if (status != DTRAIN_OK) {
        free_task(task);
        return status;
    }
    rewind_slots(task);
    task->status = DTRAIN_IN_PROGRESS;
    ring->tasks[task->sequence % (uint64_t)ring->max_tasks] = task;
    *out = (dt_task_t *)task;
    return DTRAIN_OK;
}

static dtrain_status_t go_on(dt_ring_t *ring, dt_ring_task_t *task)
{
    switch (task->path) {
    case DT_RING_RELAY:
        return dt_ring_broadcast_progress(ring, task);
    case DT_RING_PASS:
        return dt_ring_allgather_progress(ring, task);
    case DT_RING_EXCHANGE:
        return dt_ring_exchange_progress(ring, task);
    default:
        return dt_ring_reduction_progress(ring, task);
    }
}

static dtrain_status_t ring_progress(dt_backend_t *backend, dt_task_t *handle)
{
    dt_ring_t *ring = (dt_ring_t *)backend;
    dt_ring_task_t *task = (dt_ring_task_t *)handle;
    if (task->status == DTRAIN_IN_PROGRESS)
        task->status = go_on(ring, task);
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
    ring->tasks[task->sequence % (uint64_t)ring->max_tasks] = NULL;
    recycle_task(ring, task);
}

static void free_ring(dt_ring_t *ring)
{
    for (int i = 0; i < ring->max_tasks; i++)
        free_task(ring->tasks[i]);
    while (ring->free) {
        dt_ring_task_t *task = ring->free;
        ring->free = task->next;
        free_task(task);
    }
    dt_free(ring);
}

static void ring_destroy(dt_backend_t *backend, int clean)
{
    dt_ring_t *ring = (dt_ring_t *)backend;
    ring->p2p->ops->destroy(ring->p2p, clean);
    if (ring->parent && !clean) {
        ring->next = ring->parent->orphans;
        ring->parent->orphans = ring;
        return;
    }
    while (ring->orphans) {
        dt_ring_t *orphan = ring->orphans;
        ring->orphans = orphan->next;
        free_ring(orphan);
    }
    free_ring(ring);
}

static void ring_linger(dt_backend_t *backend)
{
    dt_p2p_t *p2p = ((dt_ring_t *)backend)->p2p;
    if (p2p->ops->linger)
        p2p->ops->linger(p2p);
}

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
    if (tuning.tag_count <= 0)
        tuning.tag_count = DT_RING_TAG_COUNT;
    if (tuning.segments_in_flight > tuning.tag_count / DT_RING_PHASES)
        tuning.segments_in_flight = tuning.tag_count / DT_RING_PHASES;
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

static dtrain_status_t ring_subset(dt_backend_t *backend, const int *ranks, int num_ranks, int set,
                                   dt_backend_t **subset);

static const dt_backend_ops_t ring_ops = {
    .name = "ring",
    .start = ring_start,
    .progress = ring_progress,
    .release = ring_release,
    .destroy = ring_destroy,
    .linger = ring_linger,
    .subset = ring_subset,
};

dtrain_status_t dt_ring_create(dt_p2p_t *p2p, const dt_ring_tuning_t *tuning,
                               dt_backend_t **backend)
{
    dt_ring_tuning_t filled = fill_tuning(tuning, p2p->size);
    int max_tasks = filled.tag_count / (filled.segments_in_flight * DT_RING_PHASES);
    dt_ring_t *ring = dt_calloc(1, sizeof *ring + (size_t)max_tasks * sizeof ring->tasks[0]);
    if (!ring) {
        p2p->ops->destroy(p2p, 0);
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory for the ring backend");
    }
    ring->base.ops = &ring_ops;
    ring->p2p = p2p;
    ring->wanted = tuning ? *tuning : (dt_ring_tuning_t){0};
    ring->tuning = filled;
    ring->max_tasks = max_tasks;
    *backend = &ring->base;
    return DTRAIN_OK;
}

/* Messages of one pair and tag arrive in the order in which they were sent, so those of a set that
 * was destroyed do not mix with those of the next one that has its tags. */
static dtrain_status_t ring_subset(dt_backend_t *backend, const int *ranks, int num_ranks, int set,
                                   dt_backend_t **subset)
{
    dt_ring_t *parent = (dt_ring_t *)backend;
    dt_ring_tuning_t tuning = parent->wanted;
    int first_tag = DT_RING_SETS_TAG + set % DT_SUBSETS_MAX * DT_RING_SET_TAG_COUNT;
    dt_p2p_t *p2p;
    dtrain_status_t status = dt_p2p_subset_create(parent->p2p, ranks, num_ranks, first_tag, &p2p);
    if (status != DTRAIN_OK)
        return status;
    if (tuning.segments_in_flight > SET_IN_FLIGHT_MAX)
        tuning.segments_in_flight = SET_IN_FLIGHT_MAX;
    tuning.tag_count = DT_RING_SET_TAG_COUNT;
    status = dt_ring_create(p2p, &tuning, subset);
    if (status == DTRAIN_OK)
        ((dt_ring_t *)*subset)->parent = parent;
    return status;
}
