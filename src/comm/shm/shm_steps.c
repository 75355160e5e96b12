#include <string.h>

#include "base/fault.h"
#include "comm/shm/shm_slots.h"
#include "comm/shm/shm_stream.h"

/* Bytes of a long chunk that are moved at a time; and of one that the kernel copies. */
#define STEP_BYTES ((int64_t)256 << 10)
#define PULL_STEP_BYTES ((int64_t)1 << 20)

/* ---- Fill -------------------------------------------------------------------------------- */

static void pack(dt_shm_stream_t *stream, const dt_shm_task_t *task, dt_span_t span, uint8_t *to)
{
    dt_fault_point(DT_FAULT_PACK);
    dt_shm_pieces_pack(&task->pieces, span, to);
    stream->budget -= (int64_t)dt_shm_pieces_bytes(&task->pieces, span);
}

static void fill_arena(dt_shm_stream_t *stream, const dt_shm_task_t *task, uint64_t chunk)
{
    for (int owner = 0; owner < stream->size; owner++) {
        if (owner != stream->rank)
            pack(stream, task, dt_shm_segment(stream, task, owner, chunk),
                 dt_shm_input(stream, stream->rank, owner, chunk));
    }
}

static int has_counts(const dt_shm_task_t *task)
{
    return task->path == DT_SHM_SCATTER || task->path == DT_SHM_GATHER;
}

dt_shm_step_t dt_shm_fill(dt_shm_stream_t *stream, dt_shm_task_t *task, uint64_t chunk)
{
    if (has_counts(task))
        return dt_shm_counts_fill(stream, task, chunk);
    int relays = task->path == DT_SHM_RELAY && task->collective.root == stream->rank;
    int writes = task->path == DT_SHM_SMALL || task->path == DT_SHM_ARENA ||
                 (relays && !stream->cross); /* across nodes the result's place is used */
    if (!writes)
        return DT_SHM_DONE;
    if (!dt_shm_slot_is_free(stream, DT_SHM_REDUCED, chunk))
        return DT_SHM_WAITS;
    if (task->path == DT_SHM_ARENA)
        fill_arena(stream, task, chunk);
    else
        pack(stream, task,
             task->path == DT_SHM_SMALL ? dt_shm_all(task) : dt_shm_relayed(task, chunk),
             dt_shm_slot(stream, stream->rank, chunk));
    return DT_SHM_DONE;
}

/* ---- Reduce ------------------------------------------------------------------------------ */

/* Of a reduce only the root has an output. */
static int has_output(const dt_shm_stream_t *stream, const dt_shm_task_t *task)
{
    return task->collective.kind != DT_REDUCE || task->collective.root == stream->rank;
}

static void combine(dt_shm_stream_t *stream, const dt_shm_task_t *task, dt_shm_part_t part,
                    int num_destinations)
{
    dt_fault_point(DT_FAULT_REDUCE);
    dt_reduce(&task->collective.reduction, stream->destinations, num_destinations, stream->sources,
              stream->size, (size_t)part.count);
    stream->budget -=
        part.count * (int64_t)task->pieces.element_bytes * (stream->size + num_destinations) / 2;
}

static void reduce_small(dt_shm_stream_t *stream, const dt_shm_task_t *task, uint64_t chunk)
{
    dt_shm_part_t part = dt_shm_pieces_first(&task->pieces, dt_shm_all(task));
    for (; part.count > 0; dt_shm_pieces_next(&task->pieces, &part)) {
        size_t offset = (size_t)part.begin * task->pieces.element_bytes;
        for (int rank = 0; rank < stream->size; rank++)
            stream->sources[rank] = dt_shm_slot(stream, rank, chunk) + offset;
        stream->destinations[0] = dt_shm_pieces_out(&task->pieces, part);
        combine(stream, task, part, 1);
    }
}

static void reduce_segment(dt_shm_stream_t *stream, const dt_shm_task_t *task, uint64_t chunk)
{
    dt_span_t span = dt_shm_segment(stream, task, stream->rank, chunk);
    int is_shared = stream->size > 1 && task->collective.kind == DT_ALLREDUCE;
    dt_shm_part_t part = dt_shm_pieces_first(&task->pieces, span);
    for (; part.count > 0; dt_shm_pieces_next(&task->pieces, &part)) {
        size_t offset = (size_t)part.begin * task->pieces.element_bytes;
        int num_destinations = 0;
        for (int rank = 0; rank < stream->size; rank++) {
            if (rank != stream->rank)
                stream->sources[rank] = dt_shm_input(stream, rank, stream->rank, chunk) + offset;
        }
        stream->sources[stream->rank] = dt_shm_pieces_in(&task->pieces, part);
        if (has_output(stream, task))
            stream->destinations[num_destinations++] = dt_shm_pieces_out(&task->pieces, part);
        if (is_shared || num_destinations == 0)
            stream->destinations[num_destinations++] =
                dt_shm_result(stream, stream->rank, chunk) + offset;
        combine(stream, task, part, num_destinations);
    }
}

/* Returns how many destinations there are. */
static int point_at_heaps(dt_shm_stream_t *stream, const dt_shm_task_t *task, dt_shm_part_t part)
{
    int num_destinations = 0;
    size_t offset = (size_t)part.offset * task->pieces.element_bytes;
    for (int rank = 0; rank < stream->size; rank++) {
        const dt_shm_descriptor_t *where = dt_shm_stream_descriptor(stream, rank, task, part.piece);
        stream->sources[rank] = stream->heaps[rank] + where->in + offset;
        if (task->collective.kind != DT_REDUCE || task->collective.root == rank)
            stream->destinations[num_destinations++] = stream->heaps[rank] + where->out + offset;
    }
    return num_destinations;
}

/* The next elements of a long chunk, `whole`, that are moved at a time. */
static dt_span_t next_of(const dt_shm_task_t *task, dt_span_t whole, int64_t step_bytes)
{
    int64_t most = step_bytes / (int64_t)task->pieces.element_bytes;
    dt_span_t span = {whole.lo + task->done, whole.hi};
    if (span.hi - span.lo > most)
        span.hi = span.lo + most;
    return span;
}

static dt_shm_step_t reduce_direct(dt_shm_stream_t *stream, dt_shm_task_t *task)
{
    dt_span_t share = dt_shm_share(stream, task, stream->rank);
    dt_span_t span = next_of(task, share, STEP_BYTES);
    dt_shm_part_t part = dt_shm_pieces_first(&task->pieces, span);
    for (; part.count > 0; dt_shm_pieces_next(&task->pieces, &part)) {
        int num_destinations = point_at_heaps(stream, task, part);
        combine(stream, task, part, num_destinations);
    }
    task->done += span.hi - span.lo;
    return span.hi < share.hi ? DT_SHM_MOVED : DT_SHM_DONE;
}

static void copy_own(dt_shm_stream_t *stream, const dt_shm_task_t *task, dt_span_t span)
{
    dt_shm_pieces_copy(&task->pieces, span);
    stream->budget -= (int64_t)dt_shm_pieces_bytes(&task->pieces, span);
}

/* DONE; or WAITS, as dt_shm_pull. */
static dt_shm_step_t copy_from_root(dt_shm_stream_t *stream, const dt_shm_task_t *task,
                                    dt_span_t span, int is_lent)
{
    int root = task->collective.root;
    size_t element = task->pieces.element_bytes;
    dt_shm_part_t part = dt_shm_pieces_first(&task->pieces, span);
    for (; part.count > 0; dt_shm_pieces_next(&task->pieces, &part)) {
        uint64_t from = dt_shm_stream_descriptor(stream, root, task, part.piece)->in +
                        (uint64_t)part.offset * element;
        size_t bytes = (size_t)part.count * element;
        void *to = dt_shm_pieces_out(&task->pieces, part);
        if (!is_lent)
            memcpy(to, stream->heaps[root] + from, bytes);
        else if (dt_shm_pull(stream, root, to, from, bytes) != DT_SHM_DONE)
            return DT_SHM_WAITS;
    }
    stream->budget -= (int64_t)dt_shm_pieces_bytes(&task->pieces, span);
    return DT_SHM_DONE;
}

static dt_shm_step_t reduce_fetch(dt_shm_stream_t *stream, dt_shm_task_t *task)
{
    int root = task->collective.root;
    int is_lent = task->has_header && dt_shm_stream_header(stream, root, task)->is_lent != 0;
    dt_span_t span = next_of(task, dt_shm_all(task), is_lent ? PULL_STEP_BYTES : STEP_BYTES);
    dt_fault_point(DT_FAULT_BROADCAST);
    if (root == stream->rank)
        copy_own(stream, task, span);
    else if (copy_from_root(stream, task, span, is_lent) != DT_SHM_DONE)
        return DT_SHM_WAITS;
    task->done += span.hi - span.lo;
    return span.hi < task->collective.count ? DT_SHM_MOVED : DT_SHM_DONE;
}

static dt_shm_step_t reduce_relay(dt_shm_stream_t *stream, const dt_shm_task_t *task,
                                  uint64_t chunk)
{
    int root = task->collective.root;
    dt_span_t span = dt_shm_relayed(task, chunk);
    if (root == stream->rank) {
        dt_fault_point(DT_FAULT_BROADCAST);
        copy_own(stream, task, span);
        return DT_SHM_DONE;
    }
    if (!dt_shm_stream_rank_reached(stream, root, DT_SHM_FILLED, chunk + 1))
        return DT_SHM_WAITS;
    dt_fault_point(DT_FAULT_BROADCAST);
    dt_shm_pieces_unpack(&task->pieces, span, dt_shm_slot(stream, root, chunk));
    stream->budget -= (int64_t)dt_shm_pieces_bytes(&task->pieces, span);
    return DT_SHM_DONE;
}

dt_shm_step_t dt_shm_reduce(dt_shm_stream_t *stream, dt_shm_task_t *task, uint64_t chunk)
{
    switch (task->path) {
    case DT_SHM_DIRECT: /* decided when all had posted: no need to wait for `filled` */
        return reduce_direct(stream, task);
    case DT_SHM_FETCH:
        return reduce_fetch(stream, task);
    case DT_SHM_RELAY:
        return reduce_relay(stream, task, chunk);
    case DT_SHM_SCATTER:
    case DT_SHM_GATHER:
        return dt_shm_counts_reduce(stream, task, chunk);
    case DT_SHM_PAIRS:
        return dt_shm_pairs(stream, task);
    case DT_SHM_SMALL:
        if (!has_output(stream, task))
            return DT_SHM_DONE;
        if (!dt_shm_stream_reached(stream, DT_SHM_FILLED, chunk + 1))
            return DT_SHM_WAITS;
        reduce_small(stream, task, chunk);
        return DT_SHM_DONE;
    default: /* ARENA */
        if (!dt_shm_stream_reached(stream, DT_SHM_FILLED, chunk + 1) ||
            !dt_shm_slot_is_free(stream, DT_SHM_DRAINED, chunk))
            return DT_SHM_WAITS;
        reduce_segment(stream, task, chunk);
        return DT_SHM_DONE;
    }
}

/* ---- Drain ------------------------------------------------------------------------------- */

static void drain_arena(dt_shm_stream_t *stream, const dt_shm_task_t *task, uint64_t chunk)
{
    for (int owner = 0; owner < stream->size; owner++) {
        if (owner == stream->rank)
            continue;
        dt_span_t span = dt_shm_segment(stream, task, owner, chunk);
        dt_fault_point(DT_FAULT_UNPACK);
        dt_shm_pieces_unpack(&task->pieces, span, dt_shm_result(stream, owner, chunk));
        stream->budget -= (int64_t)dt_shm_pieces_bytes(&task->pieces, span);
    }
}

dt_shm_step_t dt_shm_drain(dt_shm_stream_t *stream, dt_shm_task_t *task, uint64_t chunk)
{
    int drains = task->path == DT_SHM_ARENA && has_output(stream, task);
    int waits = task->path == DT_SHM_DIRECT || drains ||
                (task->path == DT_SHM_FETCH && task->collective.root == stream->rank);
    if (waits && !dt_shm_stream_reached(stream, DT_SHM_REDUCED, chunk + 1))
        return DT_SHM_WAITS;
    if (has_counts(task))
        return dt_shm_counts_drain(stream, task, chunk);
    if (drains)
        drain_arena(stream, task, chunk);
    return DT_SHM_DONE;
}
