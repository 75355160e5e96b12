/* Reduce-scatter and allgather within a node: parts by counts, one synchronisation a chunk. */
#include <string.h>

#include "base/fault.h"
#include "comm/shm/shm_slots.h"
#include "comm/shm/shm_stream.h"

static size_t bytes_of(const dt_shm_task_t *task, dt_span_t span)
{
    return (size_t)(span.hi - span.lo) * task->pieces.element_bytes;
}

static const uint8_t *input_at(const dt_shm_task_t *task, int64_t element)
{
    return (const uint8_t *)task->collective.pieces[0].in +
           (size_t)element * task->pieces.element_bytes;
}

static uint8_t *output_at(const dt_shm_task_t *task, int64_t element)
{
    return (uint8_t *)task->collective.pieces[0].out + (size_t)element * task->pieces.element_bytes;
}

/* ---- Fill -------------------------------------------------------------------------------- */

static void copy(dt_shm_stream_t *stream, void *to, const void *from, size_t bytes)
{
    if (bytes > 0 && to != from)
        memcpy(to, from, bytes);
    stream->budget -= (int64_t)bytes;
}

/* The own segment of an allgather, in the input. */
static dt_span_t gathered(const dt_shm_stream_t *stream, const dt_shm_task_t *task, uint64_t chunk)
{
    int64_t begin = task->out_places[stream->rank];
    dt_span_t span = dt_shm_part_of(task, task->out_places, stream->rank, chunk);
    return (dt_span_t){span.lo - begin, span.hi - begin};
}

dt_shm_step_t dt_shm_counts_fill(dt_shm_stream_t *stream, dt_shm_task_t *task, uint64_t chunk)
{
    if (task->in_heap)
        return DT_SHM_DONE;
    if (!dt_shm_slot_is_free(stream, DT_SHM_REDUCED, chunk))
        return DT_SHM_WAITS;
    dt_fault_point(DT_FAULT_PACK);
    if (task->path == DT_SHM_GATHER) {
        dt_span_t span = gathered(stream, task, chunk);
        copy(stream, dt_shm_slot(stream, stream->rank, chunk), input_at(task, span.lo),
             bytes_of(task, span));
        return DT_SHM_DONE;
    }
    for (int owner = 0; owner < stream->size; owner++) {
        dt_span_t span = dt_shm_part_of(task, task->in_places, owner, chunk);
        if (owner != stream->rank)
            copy(stream, dt_shm_input(stream, stream->rank, owner, chunk), input_at(task, span.lo),
                 bytes_of(task, span));
    }
    return DT_SHM_DONE;
}

/* ---- Reduce ------------------------------------------------------------------------------ */

/* A rank has posted its header before it fills, and keeps it until all have reduced. */
const uint8_t *dt_shm_counts_source(const dt_shm_stream_t *stream, const dt_shm_task_t *task,
                                    int rank, dt_span_t span, const uint8_t *copy)
{
    if (!task->has_header || !dt_shm_stream_header(stream, rank, task)->in_heaps)
        return copy;
    return stream->heaps[rank] + dt_shm_stream_descriptor(stream, rank, task, 0)->in +
           (size_t)span.lo * task->pieces.element_bytes;
}

static void scatter(dt_shm_stream_t *stream, const dt_shm_task_t *task, uint64_t chunk)
{
    dt_span_t span = dt_shm_part_of(task, task->in_places, stream->rank, chunk);
    if (span.lo == span.hi)
        return;
    for (int rank = 0; rank < stream->size; rank++) {
        if (rank != stream->rank)
            stream->sources[rank] = dt_shm_counts_source(
                stream, task, rank, span, dt_shm_input(stream, rank, stream->rank, chunk));
    }
    stream->sources[stream->rank] = input_at(task, span.lo);
    stream->destinations[0] = output_at(task, span.lo - task->in_places[stream->rank]);
    dt_fault_point(DT_FAULT_REDUCE);
    dt_reduce(&task->collective.reduction, stream->destinations, 1, stream->sources, stream->size,
              (size_t)(span.hi - span.lo));
    stream->budget -= (int64_t)bytes_of(task, span) * (stream->size + 1) / 2;
}

/* Each rank begins with another one, so that they do not all read the same memory. */
static void gather(dt_shm_stream_t *stream, const dt_shm_task_t *task, uint64_t chunk)
{
    for (int step = 0; step < stream->size; step++) {
        int rank = dt_schedule_ahead(stream->rank, stream->size, step);
        dt_span_t span = dt_shm_part_of(task, task->out_places, rank, chunk);
        dt_span_t own = {span.lo - task->out_places[rank], span.hi - task->out_places[rank]};
        const uint8_t *from =
            rank == stream->rank
                ? input_at(task, own.lo)
                : dt_shm_counts_source(stream, task, rank, own, dt_shm_slot(stream, rank, chunk));
        dt_fault_point(DT_FAULT_UNPACK);
        copy(stream, output_at(task, span.lo), from, bytes_of(task, span));
    }
}

dt_shm_step_t dt_shm_counts_reduce(dt_shm_stream_t *stream, dt_shm_task_t *task, uint64_t chunk)
{
    if (!dt_shm_stream_reached(stream, DT_SHM_FILLED, chunk + 1))
        return DT_SHM_WAITS;
    if (task->path == DT_SHM_GATHER)
        gather(stream, task, chunk);
    else
        scatter(stream, task, chunk);
    return DT_SHM_DONE;
}

/* ---- Drain ------------------------------------------------------------------------------- */

dt_shm_step_t dt_shm_counts_drain(dt_shm_stream_t *stream, dt_shm_task_t *task, uint64_t chunk)
{
    if (task->in_heap && !dt_shm_stream_reached(stream, DT_SHM_REDUCED, chunk + 1))
        return DT_SHM_WAITS;
    return DT_SHM_DONE;
}
