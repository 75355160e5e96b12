/*
 * Every pair of ranks for itself. A round is one step of the ring: all segments that go to rank
 * r + s and all that come from r - s. Nobody knows the rounds of others, only the bytes it has with
 * each: both ends cut those into the same segments. A slot waits in a round for two ranks, which
 * may both be in an earlier one of theirs; the rank that is furthest behind in a slot waits for
 * nobody, so all go on.
 */
#include "comm/ring/ring_task.h"

static int step_of(const dt_ring_slot_t *slot)
{
    return (int)slot->round + 1;
}

/* What goes to a rank, in `in`: of an allgather, everything. */
static dt_span_t outgoing(const dt_ring_task_t *task, int peer)
{
    if (task->kind == DT_ALLGATHER)
        return (dt_span_t){0, task->out_places[task->rank + 1] - task->out_places[task->rank]};
    return (dt_span_t){task->in_places[peer], task->in_places[peer + 1]};
}

static dt_span_t incoming(const dt_ring_task_t *task, int peer)
{
    return (dt_span_t){task->out_places[peer], task->out_places[peer + 1]};
}

void dt_ring_exchange_plan(dt_ring_t *ring, dt_ring_task_t *task)
{
    int64_t segment = ring->tuning.segment_bytes / (int64_t)task->element_bytes;
    task->path = DT_RING_EXCHANGE;
    task->segment = segment > 0 ? segment : 1;
    task->num_rounds = task->size - 1;
    task->num_slots = ring->tuning.segments_in_flight;
    if (task->num_rounds < task->num_slots)
        task->num_slots = (int)task->num_rounds;
}

static dtrain_status_t move_out(dt_ring_t *ring, dt_ring_task_t *task, dt_ring_slot_t *slot,
                                int64_t num_segments, dt_span_t whole)
{
    dt_ring_queue_t *queue = &slot->sends;
    int peer = dt_schedule_ahead(task->rank, task->size, step_of(slot));
    int tag = dt_ring_tag(ring, task, slot, DT_RING_SCATTER);
    while (queue->posted < num_segments &&
           dt_ring_queue_has_room(queue, ring->tuning.segments_in_flight)) {
        dt_span_t span = dt_schedule_cut(whole, task->segment, queue->posted);
        dtrain_status_t status =
            dt_ring_queue_send(queue, ring->p2p, peer, tag, task->in + dt_ring_offset(task, span),
                               dt_ring_length(task, span));
        if (status != DTRAIN_OK)
            return status;
    }
    return dt_ring_queue_settle(queue, ring->p2p);
}

static dtrain_status_t move_in(dt_ring_t *ring, dt_ring_task_t *task, dt_ring_slot_t *slot,
                               int64_t num_segments, dt_span_t whole)
{
    dt_ring_queue_t *queue = &slot->receives;
    int peer = dt_schedule_behind(task->rank, task->size, step_of(slot));
    int tag = dt_ring_tag(ring, task, slot, DT_RING_SCATTER);
    while (queue->posted < num_segments &&
           dt_ring_queue_has_room(queue, ring->tuning.segments_in_flight)) {
        dt_span_t span = dt_schedule_cut(whole, task->segment, queue->posted);
        dtrain_status_t status = dt_ring_queue_receive(queue, ring->p2p, peer, tag,
                                                       task->out + dt_ring_offset(task, span),
                                                       dt_ring_length(task, span));
        if (status != DTRAIN_OK)
            return status;
    }
    return dt_ring_queue_settle(queue, ring->p2p);
}

static dtrain_status_t slot_progress(dt_ring_t *ring, dt_ring_task_t *task, dt_ring_slot_t *slot)
{
    dt_span_t out = outgoing(task, dt_schedule_ahead(task->rank, task->size, step_of(slot)));
    dt_span_t in = incoming(task, dt_schedule_behind(task->rank, task->size, step_of(slot)));
    int64_t num_out = dt_schedule_num_segments(out.hi - out.lo, task->segment);
    int64_t num_in = dt_schedule_num_segments(in.hi - in.lo, task->segment);
    dtrain_status_t status = move_in(ring, task, slot, num_in, in);
    if (status == DTRAIN_OK)
        status = move_out(ring, task, slot, num_out, out);
    if (status == DTRAIN_OK && slot->receives.done == num_in && slot->sends.done == num_out)
        dt_ring_next_round(task, slot);
    return status;
}

static int copy_own(dt_ring_task_t *task)
{
    int64_t element = (int64_t)task->element_bytes;
    dt_span_t from = outgoing(task, task->rank);
    dt_span_t to = incoming(task, task->rank);
    return to.lo == to.hi ||
           dt_ring_copy_own(task, task->out + to.lo * element, task->in + from.lo * element,
                            (to.hi - to.lo) * element);
}

dtrain_status_t dt_ring_exchange_progress(dt_ring_t *ring, dt_ring_task_t *task)
{
    for (int i = 0; i < task->num_slots; i++) {
        dt_ring_slot_t *slot = &task->slots[i];
        dtrain_status_t status = DTRAIN_OK;
        if (slot->round < task->num_rounds)
            status = slot_progress(ring, task, slot);
        if (status != DTRAIN_OK)
            return status;
    }
    int is_copied = copy_own(task);
    return is_copied && task->rounds_left == 0 ? DTRAIN_OK : DTRAIN_IN_PROGRESS;
}
