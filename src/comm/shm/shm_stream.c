#include "comm/shm/shm_stream.h"

#include "base/memory.h"
#include "comm/shm/shm_slots.h"

/* What a call of progress moves, so that it takes no longer than about a millisecond. */
#define BUDGET (INT64_C(4) << 20)

/* ---- Counters ---------------------------------------------------------------------------- */

int dt_shm_stream_rank_reached(const dt_shm_stream_t *stream, int rank, dt_shm_event_t event,
                               uint64_t value)
{
    return atomic_load_explicit(&stream->boards[rank]->counters[event].value,
                                memory_order_acquire) >= value;
}

int dt_shm_stream_reached(dt_shm_stream_t *stream, dt_shm_event_t event, uint64_t value)
{
    dt_shm_watch_t *watch = &stream->watches[event];
    if (watch->least >= value)
        return 1;
    uint64_t least = UINT64_MAX;
    int rank = watch->last_behind;
    for (int i = 0; i < stream->size; i++) {
        uint64_t seen = atomic_load_explicit(&stream->boards[rank]->counters[event].value,
                                             memory_order_acquire);
        if (seen < value) {
            watch->last_behind = rank;
            return 0;
        }
        least = seen < least ? seen : least;
        rank = rank + 1 < stream->size ? rank + 1 : 0;
    }
    watch->least = least;
    return 1;
}

static void publish(const dt_shm_stream_t *stream, dt_shm_event_t event, uint64_t value)
{
    atomic_store_explicit(&stream->boards[stream->rank]->counters[event].value, value,
                          memory_order_release);
}

/* ---- The own region ------------------------------------------------------------------------ */

static int has_passed(const dt_shm_past_t *past)
{
    for (int i = 0; i < past->size; i++) {
        if (atomic_load_explicit(&past->left[i]->value, memory_order_acquire) < past->value)
            return 0;
    }
    return 1;
}

/* Where pairs are depends on the layout: an earlier set may have left anything there. */
static void reset_pairs(const dt_shm_stream_t *stream)
{
    for (int rank = 0; rank < stream->size; rank++) {
        dt_shm_pair_t *pair = dt_shm_pair(stream, stream->rank, rank);
        atomic_store_explicit(&pair->sent, 0, memory_order_relaxed);
        atomic_store_explicit(&pair->taken, 0, memory_order_relaxed);
    }
}

int dt_shm_stream_open(dt_shm_stream_t *stream)
{
    if (stream->is_open)
        return 1;
    if (stream->past && !has_passed(stream->past))
        return 0;
    dt_free(stream->past);
    stream->past = NULL;
    stream->is_open = 1;
    reset_pairs(stream);
    dt_shm_pull_introduce(stream);
    publish(stream, DT_SHM_OPENED, stream->base + 1);
    return 1;
}

/* ---- Headers ----------------------------------------------------------------------------- */

const dt_shm_header_t *dt_shm_stream_header(const dt_shm_stream_t *stream, int rank,
                                            const dt_shm_task_t *task)
{
    return &stream->boards[rank]->headers[task->header % DT_SHM_HEADERS];
}

const dt_shm_descriptor_t *dt_shm_stream_descriptor(const dt_shm_stream_t *stream, int rank,
                                                    const dt_shm_task_t *task, int piece)
{
    uint64_t first = dt_shm_stream_header(stream, rank, task)->first;
    return &stream->boards[rank]
                ->descriptors[(first + (uint64_t)piece) % (uint64_t)stream->layout.descriptors];
}

static void free_headers(dt_shm_stream_t *stream)
{
    while (stream->headers_freed < stream->headers_posted &&
           stream->headers_freed < stream->headers_decided) {
        uint64_t at = stream->headers_freed % DT_SHM_HEADERS;
        if (!dt_shm_stream_reached(stream, DT_SHM_REDUCED, stream->header_ends[at]))
            return;
        stream->descriptors_freed = stream->descriptor_ends[at];
        stream->headers_freed++;
    }
}

static size_t bytes_of(const dt_shm_task_t *task)
{
    return (size_t)task->collective.count * task->pieces.element_bytes;
}

/* Whether this rank, the root of a broadcast, has the others read its private memory. That takes
 * 0.85 of the time of the arena at 1 MiB, and at 64 MiB 10 ms where the arena takes 8 to 15. */
static int lends(dt_shm_stream_t *stream, const dt_shm_task_t *task)
{
    const dt_collective_t *collective = &task->collective;
    const dt_shm_layout_t *layout = &stream->layout;
    return collective->kind == DT_BROADCAST && collective->root == stream->rank &&
           !task->reachable && !stream->cross &&
           bytes_of(task) / (size_t)collective->num_pieces >= layout->pull_bytes &&
           collective->num_pieces <= layout->descriptors && dt_shm_pull_works(stream) == 1;
}

static int has_descriptors(const dt_shm_task_t *task)
{
    return task->in_heap || task->is_lent;
}

/* An unsigned difference: right for an output that is NULL, which nobody asks for, too. */
static uint64_t offset_of(const uint8_t *heap, const void *memory)
{
    return (uint64_t)((uintptr_t)memory - (uintptr_t)heap);
}

static void write_header(dt_shm_stream_t *stream, const dt_shm_task_t *task)
{
    dt_shm_board_t *board = stream->boards[stream->rank];
    const uint8_t *heap = stream->heaps[stream->rank];
    dt_shm_header_t *header = &board->headers[task->header % DT_SHM_HEADERS];
    header->first = stream->descriptors_used;
    header->in_heaps = (uint64_t)task->in_heap;
    header->is_lent = (uint64_t)task->is_lent;
    for (int i = 0; has_descriptors(task) && i < task->collective.num_pieces; i++) {
        const dt_piece_t *piece = &task->collective.pieces[i];
        uint64_t at = stream->descriptors_used++ % (uint64_t)stream->layout.descriptors;
        board->descriptors[at].in =
            task->is_lent ? (uint64_t)(uintptr_t)piece->in : offset_of(heap, piece->in);
        board->descriptors[at].out = offset_of(heap, piece->out);
    }
    stream->descriptor_ends[task->header % DT_SHM_HEADERS] = stream->descriptors_used;
}

static int has_room(dt_shm_stream_t *stream, const dt_shm_task_t *task)
{
    uint64_t needed = has_descriptors(task) ? (uint64_t)task->collective.num_pieces : 0;
    free_headers(stream);
    return stream->headers_posted - stream->headers_freed < DT_SHM_HEADERS &&
           stream->descriptors_used - stream->descriptors_freed + needed <=
               (uint64_t)stream->layout.descriptors;
}

static void post(dt_shm_stream_t *stream)
{
    while (stream->to_post) {
        dt_shm_task_t *task = stream->to_post;
        if (task->has_header) {
            task->is_lent = lends(stream, task);
            if (!has_room(stream, task))
                return;
            write_header(stream, task);
            publish(stream, DT_SHM_POSTED, ++stream->headers_posted);
        }
        stream->to_post = task->after;
    }
}

/* ---- Paths ------------------------------------------------------------------------------- */

static dt_shm_path_t choose_broadcast(const dt_shm_stream_t *stream, const dt_shm_task_t *task)
{
    int root = task->collective.root;
    if (stream->cross)
        return DT_SHM_RELAY;
    if (stream->size == 1)
        return DT_SHM_FETCH;
    if (!task->has_header)
        return DT_SHM_RELAY;
    if (root == stream->rank)
        return has_descriptors(task) ? DT_SHM_FETCH : DT_SHM_RELAY;
    if (!dt_shm_stream_rank_reached(stream, root, DT_SHM_POSTED, task->header + 1))
        return DT_SHM_UNDECIDED;
    const dt_shm_header_t *header = dt_shm_stream_header(stream, root, task);
    return header->in_heaps || header->is_lent ? DT_SHM_FETCH : DT_SHM_RELAY;
}

/*
 * Of two ranks the root reduces all of a reduce, while the other one only fills: less is copied
 * than if both had a share. Of more, it would have too much to do.
 */
static int is_left_to_root(const dt_shm_stream_t *stream, const dt_shm_task_t *task)
{
    return task->collective.kind == DT_REDUCE && stream->size <= 2 && !stream->cross;
}

/* One rank whose pieces are elsewhere decides for all, so it need not wait to know. */
static dt_shm_path_t choose_reduction(const dt_shm_stream_t *stream, dt_shm_task_t *task)
{
    int is_small = bytes_of(task) <= stream->layout.small_bytes;
    dt_shm_path_t elsewhere = is_small && !stream->cross      ? DT_SHM_SMALL
                              : is_left_to_root(stream, task) ? DT_SHM_SCATTER
                                                              : DT_SHM_ARENA;
    if (!task->has_header || !task->in_heap)
        return elsewhere;
    for (; task->scanned < stream->size; task->scanned++) {
        int rank = task->scanned;
        if (!dt_shm_stream_rank_reached(stream, rank, DT_SHM_POSTED, task->header + 1))
            return DT_SHM_UNDECIDED;
        if (!dt_shm_stream_header(stream, rank, task)->in_heaps)
            return elsewhere;
    }
    return DT_SHM_DIRECT;
}

/* Where each part is read by all, one copy for all of them is less than one for each. */
static dt_shm_path_t choose_allgather(dt_shm_stream_t *stream, const dt_shm_task_t *task)
{
    size_t average = bytes_of(task) / (size_t)stream->size;
    int works = average >= stream->layout.pull_bytes ? dt_shm_pull_works(stream) : 0;
    if (works < 0)
        return DT_SHM_UNDECIDED;
    return works ? DT_SHM_PAIRS : DT_SHM_GATHER;
}

static dt_shm_path_t choose(dt_shm_stream_t *stream, dt_shm_task_t *task)
{
    switch (task->collective.kind) {
    case DT_BROADCAST:
        return choose_broadcast(stream, task);
    case DT_REDUCE_SCATTER:
        return DT_SHM_SCATTER;
    case DT_ALLGATHER:
        return choose_allgather(stream, task);
    case DT_EXCHANGE:
        return DT_SHM_PAIRS;
    default:
        return choose_reduction(stream, task);
    }
}

static void decide(dt_shm_stream_t *stream)
{
    while (stream->to_decide) {
        dt_shm_task_t *task = stream->to_decide;
        if (task->has_header && task->header >= stream->headers_posted)
            return;
        task->path = choose(stream, task);
        if (task->path == DT_SHM_UNDECIDED)
            return;
        task->first = stream->num_chunks;
        task->end = stream->num_chunks += dt_shm_task_cut(stream, task);
        if (task->has_header) {
            stream->header_ends[task->header % DT_SHM_HEADERS] = task->end;
            stream->headers_decided++;
        }
        stream->to_decide = task->after;
    }
}

/* ---- Stages ------------------------------------------------------------------------------ */

static void finish_chunk(dt_shm_stream_t *stream, dt_shm_event_t which)
{
    dt_shm_stage_t *stage = &stream->stages[which];
    dt_shm_task_t *task = stage->task;
    publish(stream, which, ++stage->chunk);
    if (stage->chunk < task->end)
        return;
    stage->task = task->after;
    if (which == DT_SHM_DRAINED)
        task->status = DTRAIN_OK;
}

typedef dt_shm_step_t (*work_t)(dt_shm_stream_t *stream, dt_shm_task_t *task, uint64_t chunk);

static const work_t work_alone[DT_SHM_STAGES] = {
    [DT_SHM_FILLED] = dt_shm_fill,
    [DT_SHM_REDUCED] = dt_shm_reduce,
    [DT_SHM_DRAINED] = dt_shm_drain,
};

static const work_t work_across[DT_SHM_STAGES] = {
    [DT_SHM_FILLED] = dt_shm_cross_fill,
    [DT_SHM_REDUCED] = dt_shm_cross_reduce,
    [DT_SHM_CROSSED] = dt_shm_cross,
    [DT_SHM_DRAINED] = dt_shm_cross_drain,
};

/* A stage follows on the heels of the one before it. */
static int has_caught_up(const dt_shm_stream_t *stream, dt_shm_event_t which)
{
    int before = (int)which - 1;
    if (which == DT_SHM_FILLED)
        return 0;
    if (which == DT_SHM_DRAINED && !stream->cross)
        before = DT_SHM_REDUCED;
    return stream->stages[which].chunk == stream->stages[before].chunk;
}

/* 1 when something was done. */
static int step(dt_shm_stream_t *stream, dt_shm_event_t which)
{
    dt_shm_stage_t *stage = &stream->stages[which];
    if (!stage->task || stage->task->path == DT_SHM_UNDECIDED || has_caught_up(stream, which))
        return 0;
    const work_t *work = stream->cross ? work_across : work_alone;
    dt_shm_step_t result = work[which](stream, stage->task, stage->chunk);
    if (result == DT_SHM_DONE)
        finish_chunk(stream, which);
    return result != DT_SHM_WAITS;
}

/* The last stage first: it makes room for the others. */
void dt_shm_stream_drive(dt_shm_stream_t *stream)
{
    int moved = dt_shm_stream_open(stream);
    stream->budget = BUDGET;
    if (moved)
        dt_shm_pull_probe(stream);
    while (moved && stream->budget > 0 && stream->status == DTRAIN_OK) {
        post(stream);
        decide(stream);
        moved = step(stream, DT_SHM_DRAINED);
        if (stream->cross)
            moved |= step(stream, DT_SHM_CROSSED);
        moved |= step(stream, DT_SHM_REDUCED);
        moved |= step(stream, DT_SHM_FILLED);
    }
}

void dt_shm_stream_add(dt_shm_stream_t *stream, dt_shm_task_t *task)
{
    int kind = task->collective.kind;
    task->has_header = bytes_of(task) > stream->layout.tiny_bytes && kind != DT_EXCHANGE;
    task->in_heap = task->reachable && task->has_header &&
                    task->collective.num_pieces <= stream->layout.descriptors;
    if (task->has_header)
        task->header = stream->headers_made++;
    task->before = stream->tail;
    task->after = NULL;
    if (stream->tail)
        stream->tail->after = task;
    else
        stream->head = task;
    stream->tail = task;
    for (int i = 0; i < DT_SHM_STAGES; i++) {
        int is_used = i != DT_SHM_CROSSED || stream->cross;
        if (is_used && !stream->stages[i].task)
            stream->stages[i].task = task;
    }
    if (!stream->to_decide)
        stream->to_decide = task;
    if (!stream->to_post)
        stream->to_post = task;
    if (dt_shm_stream_open(stream))
        post(stream);
}
