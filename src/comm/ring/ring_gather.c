/* What every rank has of a round becomes known to all, or to the root. */
#include "comm/ring/ring_task.h"

/* Receives posted ahead of what is passed around. */
#define ARRIVALS_AHEAD 4

/* With more ranks than this, so many messages cost more than the rounds they save. */
#define DIRECT_RANKS_MAX 64

/* ---- Around the ring ----------------------------------------------------------------- */

static dtrain_status_t gather_receives(dt_ring_t *ring, dt_ring_task_t *task, dt_ring_slot_t *slot)
{
    dt_ring_queue_t *queue = &slot->arrivals;
    int peer = dt_schedule_behind(task->rank, task->size, 1);
    int tag = dt_ring_tag(ring, task, slot, DT_RING_GATHER);
    while (queue->posted < task->size - 1 && dt_ring_queue_has_room(queue, ARRIVALS_AHEAD)) {
        int owner = dt_schedule_behind(task->rank, task->size, (int)queue->posted + 1);
        dt_span_t span = dt_ring_owned(task, owner, slot->round);
        dtrain_status_t status = dt_ring_queue_receive(queue, ring->p2p, peer, tag,
                                                       task->out + dt_ring_offset(task, span),
                                                       dt_ring_length(task, span));
        if (status != DTRAIN_OK)
            return status;
    }
    return dt_ring_queue_settle(queue, ring->p2p);
}

/* Where this rank's own segment is to be had: of an allgather, in its input. */
static const uint8_t *own_segment(const dt_ring_task_t *task, dt_span_t span)
{
    size_t offset = dt_ring_offset(task, span);
    if (task->path == DT_RING_PASS)
        return task->in + offset - (size_t)task->out_places[task->rank] * task->element_bytes;
    return task->out + offset;
}

/* Sends on the own segment, then each that arrived, except the last: the next rank's own. */
static dtrain_status_t gather_sends(dt_ring_t *ring, dt_ring_task_t *task, dt_ring_slot_t *slot)
{
    dt_ring_queue_t *queue = &slot->forwards;
    int peer = dt_schedule_ahead(task->rank, task->size, 1);
    int tag = dt_ring_tag(ring, task, slot, DT_RING_GATHER);
    while (queue->posted < task->size - 1 && queue->posted <= slot->arrivals.done &&
           dt_ring_queue_has_room(queue, DT_RING_QUEUE_MAX)) {
        int owner = dt_schedule_behind(task->rank, task->size, (int)queue->posted);
        dt_span_t span = dt_ring_owned(task, owner, slot->round);
        const uint8_t *from =
            owner == task->rank ? own_segment(task, span) : task->out + dt_ring_offset(task, span);
        dtrain_status_t status =
            dt_ring_queue_send(queue, ring->p2p, peer, tag, from, dt_ring_length(task, span));
        if (status != DTRAIN_OK)
            return status;
    }
    return dt_ring_queue_settle(queue, ring->p2p);
}

dtrain_status_t dt_ring_gather(dt_ring_t *ring, dt_ring_task_t *task, dt_ring_slot_t *slot)
{
    dtrain_status_t status = DTRAIN_OK;
    if (!dt_ring_sends_bar_results(task, slot))
        status = gather_receives(ring, task, slot);
    if (status == DTRAIN_OK && slot->reduced)
        status = gather_sends(ring, task, slot);
    return status;
}

int dt_ring_is_gathered(const dt_ring_task_t *task, const dt_ring_slot_t *slot)
{
    return slot->forwards.done == task->size - 1 && slot->arrivals.done == task->size - 1;
}

/* ---- To the root --------------------------------------------------------------------- */

static dtrain_status_t collect_receives(dt_ring_t *ring, dt_ring_task_t *task, dt_ring_slot_t *slot)
{
    dt_ring_queue_t *queue = &slot->arrivals;
    int tag = dt_ring_tag(ring, task, slot, DT_RING_GATHER);
    while (queue->posted < task->size - 1 && dt_ring_queue_has_room(queue, DT_RING_QUEUE_MAX)) {
        int owner = dt_schedule_behind(task->rank, task->size, (int)queue->posted + 1);
        dt_span_t span = dt_ring_owned(task, owner, slot->round);
        dtrain_status_t status = dt_ring_queue_receive(queue, ring->p2p, owner, tag,
                                                       task->out + dt_ring_offset(task, span),
                                                       dt_ring_length(task, span));
        if (status != DTRAIN_OK)
            return status;
    }
    return dt_ring_queue_settle(queue, ring->p2p);
}

static dtrain_status_t collect_send(dt_ring_t *ring, dt_ring_task_t *task, dt_ring_slot_t *slot)
{
    dt_ring_queue_t *queue = &slot->forwards;
    dt_span_t own = dt_ring_owned(task, task->rank, slot->round);
    dtrain_status_t status = DTRAIN_OK;
    if (queue->posted == 0)
        status = dt_ring_queue_send(
            queue, ring->p2p, task->root, dt_ring_tag(ring, task, slot, DT_RING_GATHER),
            slot->staging + (size_t)(task->size - 1) * task->stride, dt_ring_length(task, own));
    return status == DTRAIN_OK ? dt_ring_queue_settle(queue, ring->p2p) : status;
}

dtrain_status_t dt_ring_collect(dt_ring_t *ring, dt_ring_task_t *task, dt_ring_slot_t *slot)
{
    if (task->rank == task->root)
        return dt_ring_sends_bar_results(task, slot) ? DTRAIN_OK
                                                     : collect_receives(ring, task, slot);
    return slot->reduced ? collect_send(ring, task, slot) : DTRAIN_OK;
}

int dt_ring_is_collected(const dt_ring_task_t *task, const dt_ring_slot_t *slot)
{
    if (task->rank == task->root)
        return slot->arrivals.done == task->size - 1;
    return slot->forwards.done == 1;
}

/* ---- Allgather ----------------------------------------------------------------------- */

void dt_ring_allgather_plan(dt_ring_t *ring, dt_ring_task_t *task)
{
    int64_t longest = dt_schedule_longest(task->out_places, task->size);
    int is_short = task->size <= DIRECT_RANKS_MAX &&
                   task->count <= ring->tuning.direct_bytes / (int64_t)task->element_bytes;
    if (is_short || task->size == 1) {
        dt_ring_exchange_plan(ring, task);
        return;
    }
    task->path = DT_RING_PASS;
    task->segment =
        dt_schedule_segment(longest, 1, task->element_bytes, ring->tuning.segment_bytes);
    task->num_rounds = dt_schedule_num_segments(longest, task->segment);
    task->num_slots = ring->tuning.segments_in_flight;
    if (task->num_rounds < task->num_slots)
        task->num_slots = (int)task->num_rounds;
}

static int copy_own(dt_ring_task_t *task)
{
    int64_t element = (int64_t)task->element_bytes;
    int64_t begin = task->out_places[task->rank];
    int64_t count = task->out_places[task->rank + 1] - begin;
    return count == 0 ||
           dt_ring_copy_own(task, task->out + begin * element, task->in, count * element);
}

dtrain_status_t dt_ring_allgather_progress(dt_ring_t *ring, dt_ring_task_t *task)
{
    for (int i = 0; i < task->num_slots; i++) {
        dt_ring_slot_t *slot = &task->slots[i];
        if (slot->round >= task->num_rounds)
            continue;
        slot->reduced = 1; /* the own segment was there from the start */
        dtrain_status_t status = dt_ring_gather(ring, task, slot);
        if (status != DTRAIN_OK)
            return status;
        if (dt_ring_is_gathered(task, slot))
            dt_ring_next_round(task, slot);
    }
    int is_copied = copy_own(task);
    return is_copied && task->rounds_left == 0 ? DTRAIN_OK : DTRAIN_IN_PROGRESS;
}
