#include "comm/ring/ring_task.h"

#include "base/fault.h"

/* Up to here a broadcast is one message down a tree. */
#define TREE_BYTES (INT64_C(64) << 10)

/* A chain's segments are not cut smaller than this to fill the chain sooner. */
#define CHAIN_SEGMENT_MIN (INT64_C(16) << 10)

/*
 * A segment takes a hop for each rank before the last one gets the first of them, so segments
 * shrink where ranks are many: filling the chain is then at most a fraction of the whole.
 */
static int64_t chain_segment_bytes(const dt_ring_t *ring, const dt_ring_task_t *task)
{
    int64_t bytes = task->count / (4 * (int64_t)ring->p2p->size) * (int64_t)task->element_bytes;
    if (bytes < CHAIN_SEGMENT_MIN)
        bytes = CHAIN_SEGMENT_MIN;
    return bytes < ring->tuning.segment_bytes ? bytes : ring->tuning.segment_bytes;
}

void dt_ring_broadcast_plan(dt_ring_t *ring, dt_ring_task_t *task)
{
    int rank = task->rank;
    int n = task->size;
    int root = task->root;
    task->path = DT_RING_RELAY;
    if (task->count <= TREE_BYTES / (int64_t)task->element_bytes) {
        task->segment = task->count > 0 ? task->count : 1;
        task->parent = dt_schedule_tree_parent(rank, n, root);
        task->num_children = dt_schedule_tree_children(rank, n, root, task->children);
    } else {
        task->segment = dt_schedule_segment(task->count, 1, task->element_bytes,
                                            chain_segment_bytes(ring, task));
        task->parent = dt_schedule_chain_before(rank, n, root);
        task->children[0] = dt_schedule_chain_after(rank, n, root);
        task->num_children = task->children[0] >= 0;
    }
    task->num_rounds = dt_schedule_num_segments(task->count, task->segment);
    task->num_slots = 1;
}

static size_t segment_at(const dt_ring_task_t *task, int64_t k, size_t *length)
{
    dt_span_t span = dt_schedule_cut((dt_span_t){0, task->count}, task->segment, k);
    *length = (size_t)(span.hi - span.lo) * task->element_bytes;
    return (size_t)span.lo * task->element_bytes;
}

static dtrain_status_t receive_segments(dt_ring_t *ring, dt_ring_task_t *task)
{
    dt_ring_queue_t *queue = &task->slots[0].arrivals;
    int tag = dt_ring_tag(ring, task, &task->slots[0], DT_RING_GATHER);
    while (queue->posted < task->num_rounds &&
           dt_ring_queue_has_room(queue, ring->tuning.segments_in_flight)) {
        size_t length;
        size_t at = segment_at(task, queue->posted, &length);
        dt_fault_point(DT_FAULT_BROADCAST);
        dtrain_status_t status =
            dt_ring_queue_receive(queue, ring->p2p, task->parent, tag, task->out + at, length);
        if (status != DTRAIN_OK)
            return status;
    }
    return dt_ring_queue_settle(queue, ring->p2p);
}

/* Passes the first `num_ready` segments on, each to all children before the next. */
static dtrain_status_t send_segments(dt_ring_t *ring, dt_ring_task_t *task, const uint8_t *data,
                                     int64_t num_ready)
{
    dt_ring_queue_t *queue = &task->slots[0].forwards;
    int tag = dt_ring_tag(ring, task, &task->slots[0], DT_RING_GATHER);
    while (queue->posted < num_ready * task->num_children &&
           dt_ring_queue_has_room(queue, DT_RING_QUEUE_MAX)) {
        size_t length;
        size_t at = segment_at(task, queue->posted / task->num_children, &length);
        int child = task->children[queue->posted % task->num_children];
        dt_fault_point(DT_FAULT_BROADCAST);
        dtrain_status_t status =
            dt_ring_queue_send(queue, ring->p2p, child, tag, data + at, length);
        if (status != DTRAIN_OK)
            return status;
    }
    return dt_ring_queue_settle(queue, ring->p2p);
}

dtrain_status_t dt_ring_broadcast_progress(dt_ring_t *ring, dt_ring_task_t *task)
{
    const dt_ring_slot_t *slot = &task->slots[0];
    int is_root = task->parent < 0;
    dtrain_status_t status = DTRAIN_OK;
    if (!is_root)
        status = receive_segments(ring, task);
    if (status != DTRAIN_OK)
        return status;
    int64_t num_ready = is_root ? task->num_rounds : slot->arrivals.done;
    status = send_segments(ring, task, is_root ? task->in : task->out, num_ready);
    if (status != DTRAIN_OK)
        return status;
    int64_t bytes = task->count * (int64_t)task->element_bytes;
    if (is_root && !dt_ring_copy_own(task, task->out, task->in, bytes))
        return DTRAIN_IN_PROGRESS;
    int is_done = num_ready == task->num_rounds &&
                  slot->forwards.done == task->num_rounds * task->num_children;
    return is_done ? DTRAIN_OK : DTRAIN_IN_PROGRESS;
}
