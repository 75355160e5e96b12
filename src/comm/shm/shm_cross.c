#include <string.h>

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

/* ---- Reduce-scatter: what belongs to one local rank on all nodes --------------------------------
 */

/* A segment of the part of a rank of another node, or this one, in this node's vector. */
static dt_span_t part_of(const dt_shm_stream_t *stream, const dt_shm_task_t *task, int node,
                         int local_rank, uint64_t chunk)
{
    int rank = stream->cross->ranks[node * stream->size + local_rank];
    return dt_shm_part_of(task, task->in_places, rank, chunk);
}

static size_t bytes_of(const dt_shm_task_t *task, dt_span_t span)
{
    return (size_t)(span.hi - span.lo) * task->pieces.element_bytes;
}

static const uint8_t *input_at(const dt_shm_task_t *task, int64_t element)
{
    return (const uint8_t *)task->collective.pieces[0].in +
           (size_t)element * task->pieces.element_bytes;
}

dt_shm_step_t dt_shm_cross_fill(dt_shm_stream_t *stream, dt_shm_task_t *task, uint64_t chunk)
{
    if (task->path != DT_SHM_SCATTER)
        return dt_shm_fill(stream, task, chunk);
    if (task->in_heap)
        return DT_SHM_DONE;
    if (!dt_shm_slot_is_free(stream, DT_SHM_REDUCED, chunk))
        return DT_SHM_WAITS;
    for (int owner = 0; owner < stream->size; owner++) {
        if (owner == stream->rank)
            continue;
        uint8_t *to = dt_shm_input(stream, stream->rank, owner, chunk);
        for (int node = 0; node < stream->cross->num_nodes; node++) {
            dt_span_t span = part_of(stream, task, node, owner, chunk);
            dt_fault_point(DT_FAULT_PACK);
            if (span.lo < span.hi)
                memcpy(to, input_at(task, span.lo), bytes_of(task, span));
            to += bytes_of(task, span);
            stream->budget -= (int64_t)bytes_of(task, span);
        }
    }
    return DT_SHM_DONE;
}

/* ---- Setting out --------------------------------------------------------------------------- */

/*
 * Begins a collective, which may be on the result in the own slot. Whether a rank has nothing to
 * bring depends on its local rank alone, so all its partners in other nodes leave the collective
 * out as well.
 */
static dt_shm_step_t set_out(dt_shm_stream_t *stream, const dt_shm_task_t *task,
                             dt_shm_flight_t *flight)
{
    dt_shm_crossing_t *cross = stream->cross;
    if (flight->piece.count == 0)
        return DT_SHM_DONE;
    dt_collective_t collective = {
        .kind = task->collective.kind,
        .sequence = cross->started,
        .reduction = task->collective.reduction,
        .root = root_node(stream, task),
        .pieces = &flight->piece,
        .num_pieces = 1,
        .count = flight->piece.count,
        .counts = flight->counts,
    };
    collective.reduction.prescale = 1; /* done within the node */
    stream->status = cross->backend->ops->start(cross->backend, &collective, &flight->task);
    if (stream->status != DTRAIN_OK)
        return DT_SHM_WAITS;
    cross->started++;
    return DT_SHM_DONE;
}

static dt_shm_flight_t *flight_of(const dt_shm_stream_t *stream, uint64_t chunk)
{
    return &stream->cross->flights[chunk % (uint64_t)stream->layout.slots];
}

static dt_shm_step_t set_out_in_place(dt_shm_stream_t *stream, const dt_shm_task_t *task,
                                      uint64_t chunk, int64_t count)
{
    dt_shm_flight_t *flight = flight_of(stream, chunk);
    uint8_t *result = dt_shm_result(stream, stream->rank, chunk);
    flight->piece = (dt_piece_t){result, result, count};
    return set_out(stream, task, flight);
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
            stream->sources[rank] = stream->heaps[rank] + where->in + (size_t)part.offset * element;
        } else if (rank != stream->rank) {
            stream->sources[rank] =
                dt_shm_input(stream, rank, stream->rank, chunk) + (size_t)part.begin * element;
        } else {
            stream->sources[rank] = dt_shm_pieces_in(&task->pieces, part);
        }
    }
}

/* Divisor and postscale wait for the other nodes' values, so that the result is rounded as if there
 * were none. */
static dt_reduction_t within_node(const dt_shm_task_t *task)
{
    dt_reduction_t reduction = task->collective.reduction;
    reduction.divisor = 1;
    reduction.postscale = 1;
    return reduction;
}

/* The own share of the chunk. */
static void reduce_in_node(dt_shm_stream_t *stream, const dt_shm_task_t *task, uint64_t chunk,
                           dt_span_t span)
{
    dt_reduction_t reduction = within_node(task);
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

/* One segment of the own share: into the result, behind what is there. */
static void reduce_part(dt_shm_stream_t *stream, const dt_shm_task_t *task, uint64_t chunk,
                        dt_span_t span, size_t offset)
{
    dt_reduction_t reduction = within_node(task);
    void *destination = dt_shm_result(stream, stream->rank, chunk) + offset;
    for (int rank = 0; rank < stream->size; rank++) {
        if (rank != stream->rank)
            stream->sources[rank] = dt_shm_counts_source(
                stream, task, rank, span, dt_shm_input(stream, rank, stream->rank, chunk) + offset);
    }
    stream->sources[stream->rank] = input_at(task, span.lo);
    dt_fault_point(DT_FAULT_REDUCE);
    dt_reduce(&reduction, &destination, 1, stream->sources, stream->size,
              (size_t)(span.hi - span.lo));
    stream->budget -= (int64_t)bytes_of(task, span) * (stream->size + 1) / 2;
}

/* What comes back goes straight into the output: nobody else wants it. */
static dt_shm_step_t scatter(dt_shm_stream_t *stream, const dt_shm_task_t *task, uint64_t chunk)
{
    const dt_shm_crossing_t *cross = stream->cross;
    dt_shm_flight_t *flight = flight_of(stream, chunk);
    int own = cross->ranks[cross->node * stream->size + stream->rank];
    int64_t count = 0;
    for (int node = 0; node < cross->num_nodes; node++) {
        dt_span_t span = part_of(stream, task, node, stream->rank, chunk);
        flight->counts[node] = span.hi - span.lo;
        if (span.lo < span.hi)
            reduce_part(stream, task, chunk, span, (size_t)count * task->pieces.element_bytes);
        count += span.hi - span.lo;
    }
    dt_span_t span = dt_shm_part_of(task, task->in_places, own, chunk);
    size_t offset = (size_t)(span.lo - task->in_places[own]) * task->pieces.element_bytes;
    flight->piece = (dt_piece_t){dt_shm_result(stream, stream->rank, chunk),
                                 (uint8_t *)task->collective.pieces[0].out + offset, count};
    return set_out(stream, task, flight);
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
    return set_out_in_place(stream, task, chunk, span.hi - span.lo);
}

dt_shm_step_t dt_shm_cross_reduce(dt_shm_stream_t *stream, dt_shm_task_t *task, uint64_t chunk)
{
    /* Of all paths and ranks: so no more chunks are under way than there are slots. */
    if (!dt_shm_slot_is_free(stream, DT_SHM_DRAINED, chunk))
        return DT_SHM_WAITS;
    if (task->path == DT_SHM_RELAY)
        return relay(stream, task, chunk);
    if (task->path != DT_SHM_DIRECT && !dt_shm_stream_reached(stream, DT_SHM_FILLED, chunk + 1))
        return DT_SHM_WAITS;
    if (task->path == DT_SHM_SCATTER)
        return scatter(stream, task, chunk);
    dt_span_t span = dt_shm_segment(stream, task, stream->rank, chunk);
    reduce_in_node(stream, task, chunk, span);
    return set_out_in_place(stream, task, chunk, span.hi - span.lo);
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

/* Of a reduce, where the root is elsewhere: but what others read here has to stay until they have.
 */
static dt_shm_step_t drain_nothing(dt_shm_stream_t *stream, const dt_shm_task_t *task,
                                   uint64_t chunk)
{
    if (task->path == DT_SHM_DIRECT && !dt_shm_stream_reached(stream, DT_SHM_REDUCED, chunk + 1))
        return DT_SHM_WAITS;
    return DT_SHM_DONE;
}

dt_shm_step_t dt_shm_cross_drain(dt_shm_stream_t *stream, dt_shm_task_t *task, uint64_t chunk)
{
    if (task->path == DT_SHM_RELAY)
        return drain_relay(stream, task, chunk);
    if (task->path == DT_SHM_SCATTER)
        return dt_shm_counts_drain(stream, task, chunk);
    if (task->collective.kind == DT_REDUCE && !is_root(stream, task))
        return drain_nothing(stream, task, chunk);
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
