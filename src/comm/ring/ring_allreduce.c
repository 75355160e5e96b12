#include "comm/ring/ring_task.h"

#include "base/fault.h"
#include "base/memory.h"
#include "base/status.h"

/* Once a call of progress has reduced as many bytes of sources, it leaves the rest to the next. */
#define REDUCE_BUDGET (INT64_C(1) << 20)

/* With more ranks than this, so many messages cost more than the round they save. */
#define DIRECT_RANKS_MAX 64

/* Receives posted ahead of the allgather's. */
#define ARRIVALS_AHEAD 4

#define STAGING_ALIGN 64

/* ---- Plan --------------------------------------------------------------------------- */

static int goes_direct(const dt_ring_t *ring, const dt_ring_task_t *task)
{
    int n = ring->p2p->size;
    int64_t limit = ring->tuning.direct_bytes / (int64_t)task->element_bytes;
    return n > 1 && n <= DIRECT_RANKS_MAX && task->count <= limit;
}

static dtrain_status_t make_staging(dt_ring_task_t *task, int num_peers)
{
    size_t slot_bytes = task->stride * (size_t)num_peers;
    size_t needed = slot_bytes * (size_t)task->num_slots;
    if (needed > task->staging_bytes) {
        dt_free(task->staging);
        task->staging_bytes = 0;
        task->staging = dt_alloc_aligned(STAGING_ALIGN, needed);
        if (!task->staging)
            return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory to stage %zu bytes of an allreduce",
                           needed);
        task->staging_bytes = needed;
    }
    for (int i = 0; needed > 0 && i < task->num_slots; i++)
        task->slots[i].staging = task->staging + (size_t)i * slot_bytes;
    return DTRAIN_OK;
}

dtrain_status_t dt_ring_allreduce_plan(dt_ring_t *ring, dt_ring_task_t *task)
{
    int n = ring->p2p->size;
    dt_span_t longest = {0, task->count};
    if (goes_direct(ring, task)) {
        task->path = DT_RING_DIRECT;
        task->segment = task->count > 0 ? task->count : 1;
    } else {
        task->path = DT_RING_SHARES;
        longest = dt_schedule_share(task->count, n, 0);
        task->segment =
            dt_schedule_segment(task->count, n, task->element_bytes, ring->tuning.segment_bytes);
    }
    task->num_rounds = dt_schedule_num_segments(longest.hi - longest.lo, task->segment);
    task->num_slots = ring->tuning.segments_in_flight;
    if (task->num_rounds < task->num_slots)
        task->num_slots = (int)task->num_rounds;
    size_t segment_bytes = (size_t)task->segment * task->element_bytes;
    task->stride = (segment_bytes + STAGING_ALIGN - 1) / STAGING_ALIGN * STAGING_ALIGN;
    return make_staging(task, n - 1);
}

/* ---- Progress ------------------------------------------------------------------------ */

/* What a call of progress works with. */
typedef struct context {
    dt_ring_task_t *task;
    dt_p2p_t *p2p;
    int64_t budget; /* bytes of sources it may still reduce */
} context_t;

/* What a rank reduces in a round. */
static dt_span_t owned_span(const context_t *context, int rank, int64_t round)
{
    const dt_ring_task_t *task = context->task;
    if (task->path == DT_RING_DIRECT)
        return (dt_span_t){0, task->count};
    dt_span_t share = dt_schedule_share(task->count, context->p2p->size, rank);
    return dt_schedule_cut(share, task->segment, round);
}

static size_t offset_of(const dt_ring_task_t *task, dt_span_t span)
{
    return (size_t)span.lo * task->element_bytes;
}

static size_t length_of(const dt_ring_task_t *task, dt_span_t span)
{
    return (size_t)(span.hi - span.lo) * task->element_bytes;
}

static int slot_tag(const context_t *context, const dt_ring_slot_t *slot, dt_ring_phase_t phase)
{
    return dt_ring_tag(context->task, (int)(slot - context->task->slots), phase);
}

static dtrain_status_t post_receives(context_t *context, dt_ring_slot_t *slot)
{
    const dt_ring_task_t *task = context->task;
    dt_p2p_t *p2p = context->p2p;
    dt_ring_queue_t *queue = &slot->receives;
    dt_span_t own = owned_span(context, p2p->rank, slot->round);
    int tag = slot_tag(context, slot, DT_RING_SCATTER);
    while (queue->posted < p2p->size - 1 && dt_ring_queue_has_room(queue, DT_RING_QUEUE_MAX)) {
        int peer = dt_schedule_behind(p2p->rank, p2p->size, (int)queue->posted + 1);
        size_t at = (size_t)queue->posted * task->stride;
        dtrain_status_t status =
            dt_ring_queue_receive(queue, p2p, peer, tag, slot->staging + at, length_of(task, own));
        if (status != DTRAIN_OK)
            return status;
    }
    return DTRAIN_OK;
}

static dtrain_status_t post_sends(context_t *context, dt_ring_slot_t *slot)
{
    const dt_ring_task_t *task = context->task;
    dt_p2p_t *p2p = context->p2p;
    dt_ring_queue_t *queue = &slot->sends;
    int tag = slot_tag(context, slot, DT_RING_SCATTER);
    while (queue->posted < p2p->size - 1 && dt_ring_queue_has_room(queue, DT_RING_QUEUE_MAX)) {
        int peer = dt_schedule_ahead(p2p->rank, p2p->size, (int)queue->posted + 1);
        dt_span_t span = owned_span(context, peer, slot->round);
        dtrain_status_t status = dt_ring_queue_send(
            queue, p2p, peer, tag, task->in + offset_of(task, span), length_of(task, span));
        if (status != DTRAIN_OK)
            return status;
    }
    return DTRAIN_OK;
}

static dtrain_status_t exchange(context_t *context, dt_ring_slot_t *slot)
{
    int64_t num_peers = context->p2p->size - 1;
    dtrain_status_t status = DTRAIN_OK;
    if (slot->sends.done == num_peers && slot->receives.done == num_peers)
        return status;
    if ((status = post_receives(context, slot)) != DTRAIN_OK ||
        (status = post_sends(context, slot)) != DTRAIN_OK ||
        (status = dt_ring_queue_settle(&slot->receives, context->p2p)) != DTRAIN_OK)
        return status;
    return dt_ring_queue_settle(&slot->sends, context->p2p);
}

/*
 * In place, memory that own sends of this round still read must not be written. Only the sends
 * of the same round read what its results go to, and of a share's owner none does.
 */
static int sends_bar_results(const context_t *context, const dt_ring_slot_t *slot)
{
    return context->task->in == context->task->out && slot->sends.done < context->p2p->size - 1;
}

static void reduce(context_t *context, dt_ring_slot_t *slot)
{
    const dt_ring_task_t *task = context->task;
    const dt_p2p_t *p2p = context->p2p;
    int64_t num_peers = p2p->size - 1;
    if (slot->reduced || slot->receives.done < num_peers || context->budget <= 0)
        return;
    if (task->path == DT_RING_DIRECT && sends_bar_results(context, slot))
        return;
    dt_span_t own = owned_span(context, p2p->rank, slot->round);
    if (own.lo < own.hi) {
        void *destination = task->out + offset_of(task, own);
        task->sources[p2p->rank] = task->in + offset_of(task, own);
        for (int step = 1; step <= num_peers; step++)
            task->sources[dt_schedule_behind(p2p->rank, p2p->size, step)] =
                slot->staging + (size_t)(step - 1) * task->stride;
        dt_fault_point(DT_FAULT_REDUCE);
        dt_reduce(&task->reduction, &destination, 1, task->sources, p2p->size,
                  (size_t)(own.hi - own.lo));
        context->budget -= (int64_t)length_of(task, own) * p2p->size;
    }
    slot->reduced = 1;
}

static dtrain_status_t gather_receives(context_t *context, dt_ring_slot_t *slot)
{
    const dt_ring_task_t *task = context->task;
    dt_p2p_t *p2p = context->p2p;
    dt_ring_queue_t *queue = &slot->arrivals;
    int peer = dt_schedule_behind(p2p->rank, p2p->size, 1);
    int tag = slot_tag(context, slot, DT_RING_GATHER);
    if (sends_bar_results(context, slot))
        return DTRAIN_OK;
    while (queue->posted < p2p->size - 1 && dt_ring_queue_has_room(queue, ARRIVALS_AHEAD)) {
        int owner = dt_schedule_behind(p2p->rank, p2p->size, (int)queue->posted + 1);
        dt_span_t span = owned_span(context, owner, slot->round);
        dtrain_status_t status = dt_ring_queue_receive(
            queue, p2p, peer, tag, task->out + offset_of(task, span), length_of(task, span));
        if (status != DTRAIN_OK)
            return status;
    }
    return dt_ring_queue_settle(queue, p2p);
}

/* Sends on the own segment, then each that arrived, except the last: the next rank's own. */
static dtrain_status_t gather_sends(context_t *context, dt_ring_slot_t *slot)
{
    const dt_ring_task_t *task = context->task;
    dt_p2p_t *p2p = context->p2p;
    dt_ring_queue_t *queue = &slot->forwards;
    int peer = dt_schedule_ahead(p2p->rank, p2p->size, 1);
    int tag = slot_tag(context, slot, DT_RING_GATHER);
    while (queue->posted < p2p->size - 1 && queue->posted <= slot->arrivals.done &&
           dt_ring_queue_has_room(queue, DT_RING_QUEUE_MAX)) {
        int owner = dt_schedule_behind(p2p->rank, p2p->size, (int)queue->posted);
        dt_span_t span = owned_span(context, owner, slot->round);
        dtrain_status_t status = dt_ring_queue_send(
            queue, p2p, peer, tag, task->out + offset_of(task, span), length_of(task, span));
        if (status != DTRAIN_OK)
            return status;
    }
    return dt_ring_queue_settle(queue, p2p);
}

static dtrain_status_t gather(context_t *context, dt_ring_slot_t *slot)
{
    dtrain_status_t status = gather_receives(context, slot);
    if (status == DTRAIN_OK && slot->reduced)
        status = gather_sends(context, slot);
    return status;
}

static int round_is_done(const context_t *context, const dt_ring_slot_t *slot)
{
    int64_t num_peers = context->p2p->size - 1;
    if (!slot->reduced || slot->sends.done < num_peers)
        return 0;
    return context->task->path == DT_RING_DIRECT ||
           (slot->forwards.done == num_peers && slot->arrivals.done == num_peers);
}

static void next_round(dt_ring_task_t *task, dt_ring_slot_t *slot)
{
    slot->round += task->num_slots;
    slot->reduced = 0;
    dt_ring_queue_reset(&slot->sends);
    dt_ring_queue_reset(&slot->receives);
    dt_ring_queue_reset(&slot->forwards);
    dt_ring_queue_reset(&slot->arrivals);
    task->rounds_left--;
}

static dtrain_status_t slot_progress(context_t *context, dt_ring_slot_t *slot)
{
    dtrain_status_t status = exchange(context, slot);
    if (status != DTRAIN_OK)
        return status;
    reduce(context, slot);
    if (context->task->path != DT_RING_DIRECT)
        status = gather(context, slot);
    if (status == DTRAIN_OK && round_is_done(context, slot))
        next_round(context->task, slot);
    return status;
}

dtrain_status_t dt_ring_allreduce_progress(dt_ring_t *ring, dt_ring_task_t *task)
{
    context_t context = {.task = task, .p2p = ring->p2p, .budget = REDUCE_BUDGET};
    for (int i = 0; i < task->num_slots; i++) {
        dt_ring_slot_t *slot = &task->slots[i];
        if (slot->round >= task->num_rounds)
            continue;
        dtrain_status_t status = slot_progress(&context, slot);
        if (status != DTRAIN_OK)
            return status;
    }
    return task->rounds_left == 0 ? DTRAIN_OK : DTRAIN_IN_PROGRESS;
}
