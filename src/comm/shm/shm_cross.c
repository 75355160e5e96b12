#include "base/fault.h"
#include "comm/shm/shm_slots.h"
#include "comm/shm/shm_stream.h"

/* ---- Broadcast: who has the root's share --------------------------------------------------- */

/* Roots are counted node by node. */
static int root_node(const dt_shm_stream_t *stream, const dt_shm_task_t *task)
{
    return task->collective.root / stream->size;
}

/* The rank of this node that gets the root's chunks from it, or is the root. */
static int relay_rank(const dt_shm_stream_t *stream, const dt_shm_task_t *task)
{
    return task->collective.root % stream->size;
}

static int is_root(const dt_shm_stream_t *stream, const dt_shm_task_t *task)
{
    return root_node(stream, task) == stream->cross->node &&
           relay_rank(stream, task) == stream->rank;
}

/* ---- Setting out --------------------------------------------------------------------------- */

/*
 * Begins a collective on the result in the own slot. Whether a rank has nothing to bring depends on
 * its local rank alone, so all its partners in other nodes leave the collective out as well.
 */
static dt_shm_step_t set_out(dt_shm_stream_t *stream, const dt_shm_task_t *task, uint64_t chunk,
                             int64_t count)
{
    dt_shm_crossing_t *cross = stream->cross;
    dt_shm_flight_t *flight = &cross->flights[chunk % (uint64_t)stream->layout.slots];
    uint8_t *result = dt_shm_result(stream, stream->rank, chunk);
    if (count == 0)
        return DT_SHM_DONE;
    flight->piece = (dt_piece_t){result, result, count};
    dt_collective_t collective = {
        .kind = task->collective.kind,
        .sequence = cross->started,
        .reduction = task->collective.reduction,
        .root = root_node(stream, task),
        .pieces = &flight->piece,
        .num_pieces = 1,
        .count = count,
    };
    collective.reduction.prescale = 1; /* done within the node */
    stream->status = cross->backend->ops->start(cross->backend, &collective, &flight->task);
    if (stream->status != DTRAIN_OK)
        return DT_SHM_WAITS;
    cross->started++;
    return DT_SHM_DONE;
}

/* ---- Reduce ------------------------------------------------------------------------------- */

static void point_at_sources(dt_shm_stream_t *stream, const dt_shm_task_t *task, uint64_t chunk,
                             dt_shm_part_t part)
{
    size_t element = task->pieces.element_bytes;
    for (int rank = 0; rank < stream->size; rank++) {
        if (task->path == DT_SHM_DIRECT) {
            const dt_shm_descriptor_t *where =
                dt_shm_stream_descriptor(stream, rank, task, part.piece);
            stream->sources[rank] =
                (const uint8_t *)stream->boards[rank] + where->in + (size_t)part.offset * element;
        } else if (rank != stream->rank) {
            stream->sources[rank] =
                dt_shm_input(stream, rank, stream->rank, chunk) + (size_t)part.begin * element;
        } else {
            stream->sources[rank] = dt_shm_pieces_in(&task->pieces, part);
        }
    }
}

/* The own share of the chunk. Divisor and postscale wait for the other nodes' values, so that the
 * result is rounded as if there were none. */
static void reduce_in_node(dt_shm_stream_t *stream, const dt_shm_task_t *task, uint64_t chunk,
                           dt_span_t span)
{
    dt_reduction_t reduction = task->collective.reduction;
    reduction.divisor = 1;
    reduction.postscale = 1;
    dt_shm_part_t part = dt_shm_pieces_first(&task->pieces, span);
    for (; part.count > 0; dt_shm_pieces_next(&task->pieces, &part)) {
        point_at_sources(stream, task, chunk, part);
        void *destination = dt_shm_result(stream, stream->rank, chunk) +
                            (size_t)part.begin * task->pieces.element_bytes;
        dt_fault_point(DT_FAULT_REDUCE);
        dt_reduce(&reduction, &destination, 1, stream->sources, stream->size, (size_t)part.count);
    }
    stream->budget -= (int64_t)dt_shm_pieces_bytes(&task->pieces, span) * (stream->size + 1) / 2;
}

static dt_shm_step_t relay(dt_shm_stream_t *stream, const dt_shm_task_t *task, uint64_t chunk)
{
    dt_span_t span = dt_shm_relayed(task, chunk);
    if (relay_rank(stream, task) != stream->rank)
        return DT_SHM_DONE;
    dt_fault_point(DT_FAULT_BROADCAST);
    if (is_root(stream, task)) {
        dt_shm_pieces_pack(&task->pieces, span, dt_shm_result(stream, stream->rank, chunk));
        stream->budget -= (int64_t)dt_shm_pieces_bytes(&task->pieces, span);
    }
    return set_out(stream, task, chunk, span.hi - span.lo);
}

dt_shm_step_t dt_shm_cross_reduce(dt_shm_stream_t *stream, dt_shm_task_t *task, uint64_t chunk)
{
    /* Of all paths and ranks: so no more chunks are under way than there are slots. */
    if (!dt_shm_slot_is_free(stream, DT_SHM_DRAINED, chunk))
        return DT_SHM_WAITS;
    if (task->path == DT_SHM_RELAY)
        return relay(stream, task, chunk);
    if (task->path == DT_SHM_ARENA && !dt_shm_stream_reached(stream, DT_SHM_FILLED, chunk + 1))
        return DT_SHM_WAITS;
    dt_span_t span = dt_shm_segment(stream, task, stream->rank, chunk);
    reduce_in_node(stream, task, chunk, span);
    return set_out(stream, task, chunk, span.hi - span.lo);
}

/* ---- Cross -------------------------------------------------------------------------------- */

static void move_flight(dt_shm_stream_t *stream, dt_shm_flight_t *flight)
{
    dt_backend_t *backend = stream->cross->backend;
    dtrain_status_t status = backend->ops->progress(backend, flight->task);
    if (status == DTRAIN_IN_PROGRESS)
        return;
    if (status == DTRAIN_OK) {
        backend->ops->release(backend, flight->task);
        flight->task = NULL;
    }
    stream->status = status;
}

dt_shm_step_t dt_shm_cross(dt_shm_stream_t *stream, dt_shm_task_t *task, uint64_t chunk)
{
    dt_shm_flight_t *flights = stream->cross->flights;
    uint64_t slots = (uint64_t)stream->layout.slots;
    uint64_t end = stream->stages[DT_SHM_REDUCED].chunk;
    (void)task;
    for (uint64_t at = chunk; at < end && stream->status == DTRAIN_OK; at++) {
        if (flights[at % slots].task)
            move_flight(stream, &flights[at % slots]);
    }
    return flights[chunk % slots].task ? DT_SHM_WAITS : DT_SHM_DONE;
}

/* ---- Drain -------------------------------------------------------------------------------- */

static dt_shm_step_t drain_relay(dt_shm_stream_t *stream, const dt_shm_task_t *task, uint64_t chunk)
{
    int from = relay_rank(stream, task);
    dt_span_t span = dt_shm_relayed(task, chunk);
    if (is_root(stream, task))
        dt_shm_pieces_copy(&task->pieces, span);
    else if (!dt_shm_stream_rank_reached(stream, from, DT_SHM_CROSSED, chunk + 1))
        return DT_SHM_WAITS;
    else
        dt_shm_pieces_unpack(&task->pieces, span, dt_shm_result(stream, from, chunk));
    stream->budget -= (int64_t)dt_shm_pieces_bytes(&task->pieces, span);
    return DT_SHM_DONE;
}

dt_shm_step_t dt_shm_cross_drain(dt_shm_stream_t *stream, dt_shm_task_t *task, uint64_t chunk)
{
    if (task->path == DT_SHM_RELAY)
        return drain_relay(stream, task, chunk);
    if (!dt_shm_stream_reached(stream, DT_SHM_CROSSED, chunk + 1))
        return DT_SHM_WAITS;
    for (int owner = 0; owner < stream->size; owner++) {
        dt_span_t span = dt_shm_segment(stream, task, owner, chunk);
        dt_fault_point(DT_FAULT_UNPACK);
        dt_shm_pieces_unpack(&task->pieces, span, dt_shm_result(stream, owner, chunk));
        stream->budget -= (int64_t)dt_shm_pieces_bytes(&task->pieces, span);
    }
    return DT_SHM_DONE;
}
