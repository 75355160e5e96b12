#include "comm/ring/ring_task.h"

#include "base/fault.h"
#include "base/memory.h"
#include "base/status.h"

/* Once a call of progress has reduced as many bytes of sources, it leaves the rest to the next. */
#define REDUCE_BUDGET (INT64_C(1) << 20)

/* With more ranks than this, so many messages cost more than the round they save. */
#define DIRECT_RANKS_MAX 64

#define STAGING_ALIGN 64

/* ---- Plan --------------------------------------------------------------------------- */

static int goes_direct(const dt_ring_t *ring, const dt_ring_task_t *task)
{
    int64_t limit = ring->tuning.direct_bytes / (int64_t)task->element_bytes;
    return task->kind != DT_REDUCE_SCATTER && task->size > 1 && task->size <= DIRECT_RANKS_MAX &&
           task->count <= limit;
}

/* A stride for each peer, and where the result goes to the root, for it. */
static dtrain_status_t make_staging(dt_ring_task_t *task)
{
    int is_sent = task->kind == DT_REDUCE && task->rank != task->root;
    size_t slot_bytes = task->stride * (size_t)(task->size - 1 + is_sent);
    size_t needed = slot_bytes * (size_t)task->num_slots;
    if (needed > task->staging_bytes) {
        dt_free(task->staging);
        task->staging_bytes = 0;
        task->staging = dt_alloc_aligned(STAGING_ALIGN, needed);
        if (!task->staging)
            return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory to stage %zu bytes of a reduction",
                           needed);
        task->staging_bytes = needed;
    }
    for (int i = 0; needed > 0 && i < task->num_slots; i++)
        task->slots[i].staging = task->staging + (size_t)i * slot_bytes;
    return DTRAIN_OK;
}

/* The length of the longest share; sets the segment. */
static int64_t cut_shares(const dt_ring_t *ring, dt_ring_task_t *task)
{
    int64_t most = ring->tuning.segment_bytes;
    if (task->kind != DT_REDUCE_SCATTER) {
        dt_span_t share = dt_schedule_share(task->count, task->size, 0);
        task->segment = dt_schedule_segment(task->count, task->size, task->element_bytes, most);
        return share.hi - share.lo;
    }
    int64_t longest = dt_schedule_longest(task->in_places, task->size);
    task->segment = dt_schedule_segment(longest, 1, task->element_bytes, most);
    return longest;
}

dtrain_status_t dt_ring_reduction_plan(dt_ring_t *ring, dt_ring_task_t *task)
{
    int64_t longest = task->count;
    if (goes_direct(ring, task)) {
        task->path = DT_RING_DIRECT;
        task->segment = task->count > 0 ? task->count : 1;
    } else {
        task->path = DT_RING_SHARES;
        longest = cut_shares(ring, task);
    }
    task->num_rounds = dt_schedule_num_segments(longest, task->segment);
    task->num_slots = ring->tuning.segments_in_flight;
    if (task->num_rounds < task->num_slots)
        task->num_slots = (int)task->num_rounds;
    size_t segment_bytes = (size_t)task->segment * task->element_bytes;
    task->stride = (segment_bytes + STAGING_ALIGN - 1) / STAGING_ALIGN * STAGING_ALIGN;
    return make_staging(task);
}

/* ---- Reduce-scatter ------------------------------------------------------------------ */

static dtrain_status_t post_receives(dt_ring_t *ring, dt_ring_task_t *task, dt_ring_slot_t *slot)
{
    dt_ring_queue_t *queue = &slot->receives;
    dt_span_t own = dt_ring_owned(task, task->rank, slot->round);
    int tag = dt_ring_tag(ring, task, slot, DT_RING_SCATTER);
    while (queue->posted < task->size - 1 && dt_ring_queue_has_room(queue, DT_RING_QUEUE_MAX)) {
        int peer = dt_schedule_behind(task->rank, task->size, (int)queue->posted + 1);
        size_t at = (size_t)queue->posted * task->stride;
        dtrain_status_t status = dt_ring_queue_receive(
            queue, ring->p2p, peer, tag, slot->staging + at, dt_ring_length(task, own));
        if (status != DTRAIN_OK)
            return status;
    }
    return DTRAIN_OK;
}

static dtrain_status_t post_sends(dt_ring_t *ring, dt_ring_task_t *task, dt_ring_slot_t *slot)
{
    dt_ring_queue_t *queue = &slot->sends;
    int tag = dt_ring_tag(ring, task, slot, DT_RING_SCATTER);
    while (queue->posted < task->size - 1 && dt_ring_queue_has_room(queue, DT_RING_QUEUE_MAX)) {
        int peer = dt_schedule_ahead(task->rank, task->size, (int)queue->posted + 1);
        dt_span_t span = dt_ring_owned(task, peer, slot->round);
        dtrain_status_t status =
            dt_ring_queue_send(queue, ring->p2p, peer, tag, task->in + dt_ring_offset(task, span),
                               dt_ring_length(task, span));
        if (status != DTRAIN_OK)
            return status;
    }
    return DTRAIN_OK;
}

static dtrain_status_t scatter(dt_ring_t *ring, dt_ring_task_t *task, dt_ring_slot_t *slot)
{
    int64_t num_peers = task->size - 1;
    dtrain_status_t status = DTRAIN_OK;
    if (slot->sends.done == num_peers && slot->receives.done == num_peers)
        return status;
    if ((status = post_receives(ring, task, slot)) != DTRAIN_OK ||
        (status = post_sends(ring, task, slot)) != DTRAIN_OK ||
        (status = dt_ring_queue_settle(&slot->receives, ring->p2p)) != DTRAIN_OK)
        return status;
    return dt_ring_queue_settle(&slot->sends, ring->p2p);
}

int dt_ring_sends_bar_results(const dt_ring_task_t *task, const dt_ring_slot_t *slot)
{
    int is_in_place =
        task->in == task->out && (task->kind == DT_ALLREDUCE || task->kind == DT_REDUCE);
    return is_in_place && slot->sends.done < task->size - 1;
}

static uint8_t *result_of(const dt_ring_task_t *task, const dt_ring_slot_t *slot, dt_span_t own)
{
    size_t offset = dt_ring_offset(task, own);
    if (task->kind == DT_REDUCE_SCATTER)
        return task->out + offset - (size_t)task->in_places[task->rank] * task->element_bytes;
    if (task->kind == DT_REDUCE && task->rank != task->root)
        return slot->staging + (size_t)(task->size - 1) * task->stride;
    return task->out + offset;
}

/*
 * In place, memory that own sends of this round still read must not be written. Only the sends
 * of the same round read what its results go to, and of a share's owner none does.
 */
static void reduce(dt_ring_task_t *task, dt_ring_slot_t *slot, int64_t *budget)
{
    int num_peers = task->size - 1;
    if (slot->reduced || slot->receives.done < num_peers || *budget <= 0)
        return;
    if (task->path == DT_RING_DIRECT && dt_ring_sends_bar_results(task, slot))
        return;
    dt_span_t own = dt_ring_owned(task, task->rank, slot->round);
    if (own.lo < own.hi) {
        void *destination = result_of(task, slot, own);
        task->sources[task->rank] = task->in + dt_ring_offset(task, own);
        for (int step = 1; step <= num_peers; step++)
            task->sources[dt_schedule_behind(task->rank, task->size, step)] =
                slot->staging + (size_t)(step - 1) * task->stride;
        dt_fault_point(DT_FAULT_REDUCE);
        dt_reduce(&task->reduction, &destination, 1, task->sources, task->size,
                  (size_t)(own.hi - own.lo));
        *budget -= (int64_t)dt_ring_length(task, own) * task->size;
    }
    slot->reduced = 1;
}

/* ---- Progress ------------------------------------------------------------------------ */

static int round_is_done(const dt_ring_task_t *task, const dt_ring_slot_t *slot)
{
    if (!slot->reduced || slot->sends.done < task->size - 1)
        return 0;
    if (task->path == DT_RING_DIRECT || task->kind == DT_REDUCE_SCATTER)
        return 1;
    return task->kind == DT_REDUCE ? dt_ring_is_collected(task, slot)
                                   : dt_ring_is_gathered(task, slot);
}

static dtrain_status_t slot_progress(dt_ring_t *ring, dt_ring_task_t *task, dt_ring_slot_t *slot,
                                     int64_t *budget)
{
    dtrain_status_t status = scatter(ring, task, slot);
    if (status != DTRAIN_OK)
        return status;
    reduce(task, slot, budget);
    if (task->path == DT_RING_SHARES && task->kind == DT_ALLREDUCE)
        status = dt_ring_gather(ring, task, slot);
    else if (task->path == DT_RING_SHARES && task->kind == DT_REDUCE)
        status = dt_ring_collect(ring, task, slot);
    if (status == DTRAIN_OK && round_is_done(task, slot))
        dt_ring_next_round(task, slot);
    return status;
}

dtrain_status_t dt_ring_reduction_progress(dt_ring_t *ring, dt_ring_task_t *task)
{
    int64_t budget = REDUCE_BUDGET;
    for (int i = 0; i < task->num_slots; i++) {
        dt_ring_slot_t *slot = &task->slots[i];
        if (slot->round >= task->num_rounds)
            continue;
        dtrain_status_t status = slot_progress(ring, task, slot, &budget);
        if (status != DTRAIN_OK)
            return status;
    }
    return task->rounds_left == 0 ? DTRAIN_OK : DTRAIN_IN_PROGRESS;
}
