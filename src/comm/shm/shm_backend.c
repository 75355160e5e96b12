#include "comm/shm/shm_backend.h"

#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/collective.h"
#include "comm/shm/shm_segment.h"

/* ---- Tasks ------------------------------------------------------------------------------- */

/* Ranks that counts are given for. */
static int num_ranks(const dt_shm_stream_t *stream)
{
    return stream->size * (stream->cross ? stream->cross->num_nodes : 1);
}

static dt_shm_task_t *acquire_task(dt_shm_backend_t *shm)
{
    dt_shm_task_t *task = shm->free;
    size_t places = (size_t)num_ranks(&shm->stream) + 1;
    if (!task) {
        task = dt_calloc(1, sizeof *task + 2 * places * sizeof task->in_places[0]);
        if (task) {
            task->in_places = (int64_t *)(task + 1);
            task->out_places = task->in_places + places;
        }
        return task;
    }
    shm->free = task->after;
    shm->num_free--;
    *task = (dt_shm_task_t){
        .pieces = task->pieces, .in_places = task->in_places, .out_places = task->out_places};
    return task;
}

static void free_task(dt_shm_task_t *task)
{
    dt_shm_pieces_free(&task->pieces);
    dt_free(task);
}

static void recycle_task(dt_shm_backend_t *shm, dt_shm_task_t *task)
{
    if (shm->num_free == DT_SHM_FREE_MAX) {
        free_task(task);
        return;
    }
    task->after = shm->free;
    shm->free = task;
    shm->num_free++;
}

static dtrain_status_t check(const dt_shm_backend_t *shm, const dt_collective_t *collective)
{
    int size = num_ranks(&shm->stream);
    if (shm->stream.cross && (collective->kind == DT_ALLGATHER || collective->kind == DT_EXCHANGE))
        return dt_fail(DTRAIN_ERR_INTERNAL, "kind %d was given to a node among others",
                       (int)collective->kind);
    return dt_collective_check(collective, size, 1, "the shm backend");
}

static int holds(const dt_shm_backend_t *shm, const void *memory, int64_t count, size_t element)
{
    return count == 0 || dt_shm_heap_holds(shm->heap, memory, (size_t)count * element);
}

/* Whether the others can reach all that they need of this rank's pieces. */
static int is_reachable(const dt_shm_backend_t *shm, const dt_collective_t *collective)
{
    const dt_shm_stream_t *stream = &shm->stream;
    size_t element = dt_dtype_size(collective->reduction.dtype);
    int is_written =
        !stream->cross && (collective->kind == DT_ALLREDUCE ||
                           (collective->kind == DT_REDUCE && collective->root == stream->rank));
    if (collective->kind == DT_BROADCAST && (stream->cross || collective->root != stream->rank))
        return 0;
    if (dt_collective_has_counts(collective)) {
        int64_t count = dt_collective_in_count(collective, stream->rank, num_ranks(stream));
        return holds(shm, collective->pieces[0].in, count, element);
    }
    for (int i = 0; i < collective->num_pieces; i++) {
        const dt_piece_t *piece = &collective->pieces[i];
        if (!holds(shm, piece->in, piece->count, element) ||
            (is_written && !holds(shm, piece->out, piece->count, element)))
            return 0;
    }
    return 1;
}

static void fill_places(const dt_shm_backend_t *shm, dt_shm_task_t *task)
{
    const dt_collective_t *collective = &task->collective;
    int size = num_ranks(&shm->stream);
    if (collective->kind == DT_REDUCE_SCATTER || collective->kind == DT_EXCHANGE)
        dt_schedule_places(collective->counts, size, task->in_places);
    for (int rank = 0; collective->kind == DT_REDUCE && rank <= size; rank++)
        task->in_places[rank] = rank <= collective->root ? 0 : collective->count;
    if (collective->kind == DT_ALLGATHER)
        dt_schedule_places(collective->counts, size, task->out_places);
    if (collective->kind == DT_EXCHANGE)
        dt_schedule_places(collective->recv_counts, size, task->out_places);
}

static dtrain_status_t shm_start(dt_backend_t *backend, const dt_collective_t *collective,
                                 dt_task_t **out)
{
    dt_shm_backend_t *shm = (dt_shm_backend_t *)backend;
    dtrain_status_t status = check(shm, collective);
    if (status != DTRAIN_OK)
        return status;
    dt_shm_task_t *task = acquire_task(shm);
    if (!task || dt_shm_pieces_set(&task->pieces, collective) != 0) {
        if (task)
            free_task(task);
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory for a collective");
    }
    task->status = DTRAIN_IN_PROGRESS;
    task->collective = *collective;
    task->reachable = is_reachable(shm, collective);
    fill_places(shm, task);
    dt_shm_stream_add(&shm->stream, task);
    *out = (dt_task_t *)task;
    return DTRAIN_OK;
}

static dtrain_status_t shm_progress(dt_backend_t *backend, dt_task_t *handle)
{
    dt_shm_backend_t *shm = (dt_shm_backend_t *)backend;
    dt_shm_task_t *task = (dt_shm_task_t *)handle;
    if (task->status == DTRAIN_IN_PROGRESS)
        dt_shm_stream_drive(&shm->stream);
    if (task->status == DTRAIN_IN_PROGRESS && shm->stream.status != DTRAIN_OK)
        return shm->stream.status;
    return task->status;
}

/* A task that is given up stays where it is: the stream ends with it. */
static void shm_release(dt_backend_t *backend, dt_task_t *handle)
{
    dt_shm_backend_t *shm = (dt_shm_backend_t *)backend;
    dt_shm_task_t *task = (dt_shm_task_t *)handle;
    if (task->status != DTRAIN_OK)
        return;
    if (task->before)
        task->before->after = task->after;
    else
        shm->stream.head = task->after;
    if (task->after)
        task->after->before = task->before;
    else
        shm->stream.tail = task->before;
    recycle_task(shm, task);
}

/* ---- Memory ------------------------------------------------------------------------------ */

static dtrain_status_t shm_allocate(dt_backend_t *backend, size_t bytes, void **memory)
{
    dt_shm_backend_t *shm = (dt_shm_backend_t *)backend;
    void *found = dt_shm_heap_allocate(shm->heap, bytes);
    if (!found)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY,
                       "no room for %zu bytes in the shared memory of this rank, %zu MiB", bytes,
                       shm->node->mapping->bytes >> 20);
    *memory = found;
    return DTRAIN_OK;
}

static int shm_deallocate(dt_backend_t *backend, void *memory)
{
    dt_shm_backend_t *shm = (dt_shm_backend_t *)backend;
    return dt_shm_heap_release(shm->heap, memory);
}

/* ---- Short inputs --------------------------------------------------------------------------- */

static void shm_post(dt_backend_t *backend, uint32_t slot, const void *in, size_t bytes)
{
    dt_shm_eager_post(((dt_shm_backend_t *)backend)->eager, slot, in, bytes);
}

static void shm_take(dt_backend_t *backend, uint32_t slot, const dt_reduction_t *reduction,
                     void *out, size_t count)
{
    dt_shm_eager_take(((dt_shm_backend_t *)backend)->eager, slot, reduction, out, count);
}

static void shm_collect(dt_backend_t *backend, uint32_t slot, void *out, size_t bytes)
{
    dt_shm_eager_collect(((dt_shm_backend_t *)backend)->eager, slot, out, bytes);
}

/* ---- Create and destroy ------------------------------------------------------------------ */

static void free_list(dt_shm_task_t *task)
{
    while (task) {
        dt_shm_task_t *after = task->after;
        free_task(task);
        task = after;
    }
}

static void free_crossing(dt_shm_crossing_t *cross)
{
    if (!cross)
        return;
    dt_free(cross->ranks);
    dt_free(cross->counts);
    dt_free(cross);
}

void dt_shm_backend_free(dt_shm_backend_t *shm)
{
    dt_shm_stream_t *stream = &shm->stream;
    free_list(stream->head);
    free_list(shm->free);
    free_crossing(stream->cross);
    dt_free(stream->past);
    dt_free(stream->heaps);
    dt_free(stream->boards);
    dt_free(stream->channels);
    dt_free(stream->sources);
    dt_free(stream->destinations);
    dt_free(shm->own);
    dt_shm_eager_free(shm->eager);
    dt_free(shm);
}

/* The others see the heap until they leave too, so nobody is waited for. */
static void shm_destroy(dt_backend_t *backend, int clean)
{
    dt_shm_backend_t *shm = (dt_shm_backend_t *)backend;
    dt_shm_crossing_t *cross = shm->stream.cross;
    if (shm->parent) {
        dt_shm_set_leave(shm, clean);
        dt_shm_backend_free(shm);
        return;
    }
    if (cross) /* first: messages may still be on their way to a slot */
        cross->backend->ops->destroy(cross->backend, clean);
    for (int i = 0; i < DT_SUBSETS_MAX; i++)
        dt_free(shm->pasts[i]);
    dt_shm_heap_free(shm->heap);
    dt_shm_node_free(shm->node);
    dt_shm_backend_free(shm);
}

const dt_backend_ops_t dt_shm_plain_ops = {
    .name = "shm",
    .start = shm_start,
    .progress = shm_progress,
    .release = shm_release,
    .destroy = shm_destroy,
    .allocate = shm_allocate,
    .deallocate = shm_deallocate,
    .subset = dt_shm_subset,
};

/* What is laid out in this node alone is of no use where there are others. */
static const dt_backend_ops_t shm_ops = {
    .name = "shm",
    .start = shm_start,
    .progress = shm_progress,
    .release = shm_release,
    .destroy = shm_destroy,
    .allocate = shm_allocate,
    .deallocate = shm_deallocate,
    .post = shm_post,
    .take = shm_take,
    .collect = shm_collect,
    .subset = dt_shm_subset,
};

int dt_shm_backend_fill_stream(dt_shm_backend_t *shm, int rank, int size, uint8_t *const *heaps,
                               size_t offset)
{
    dt_shm_stream_t *stream = &shm->stream;
    size_t entries = (size_t)size;
    stream->rank = rank;
    stream->size = size;
    stream->heaps = dt_calloc(entries, sizeof *stream->heaps);
    stream->boards = dt_calloc(entries, sizeof *stream->boards);
    stream->channels = dt_calloc(entries, sizeof *stream->channels);
    stream->sources = dt_calloc(entries, sizeof *stream->sources);
    /* Two are needed also in a node of one. */
    stream->destinations = dt_calloc(entries + 1, sizeof *stream->destinations);
    if (!stream->heaps || !stream->boards || !stream->channels || !stream->sources ||
        !stream->destinations)
        return -1;
    for (int i = 0; i < size; i++) {
        stream->heaps[i] = heaps[i];
        stream->boards[i] = (dt_shm_board_t *)(heaps[i] + offset);
    }
    stream->num_chunks = stream->base;
    for (int i = 0; i < DT_SHM_STAGES; i++)
        stream->stages[i].chunk = stream->base;
    stream->headers_made = stream->headers_posted = stream->base;
    stream->headers_freed = stream->headers_decided = stream->base;
    return 0;
}

static int fill_world_stream(dt_shm_backend_t *shm)
{
    const dt_shm_mapping_t *mapping = shm->node->mapping;
    uint8_t **heaps = dt_calloc((size_t)mapping->size, sizeof *heaps);
    if (!heaps)
        return -1;
    for (int rank = 0; rank < mapping->size; rank++)
        heaps[rank] = dt_shm_mapping_heap(mapping, rank);
    int result = dt_shm_backend_fill_stream(shm, shm->node->rank, mapping->size, heaps, 0);
    dt_free(heaps);
    return result;
}

static int make_eager(dt_shm_backend_t *shm)
{
    const dt_shm_stream_t *stream = &shm->stream;
    uint8_t **places = dt_calloc((size_t)stream->size, sizeof *places);
    if (!places)
        return -1;
    for (int rank = 0; rank < stream->size; rank++)
        places[rank] = (uint8_t *)stream->boards[rank] + stream->layout.eager_offset;
    shm->eager = dt_shm_eager_create(places, stream->rank, stream->size);
    dt_free(places);
    return shm->eager ? 0 : -1;
}

/* Counts and their memory for every slot's flight; NULL: no memory. */
static dt_shm_crossing_t *make_crossing(const dt_shm_cross_t *cross, int local_size, int slots)
{
    size_t nodes = (size_t)cross->num_nodes;
    size_t ranks = nodes * (size_t)local_size;
    dt_shm_crossing_t *made = dt_calloc(1, sizeof *made + (size_t)slots * sizeof made->flights[0]);
    if (!made)
        return NULL;
    made->backend = cross->backend;
    made->node = cross->node;
    made->num_nodes = cross->num_nodes;
    made->ranks = dt_calloc(ranks, sizeof *made->ranks);
    made->counts = dt_calloc(nodes * (size_t)slots, sizeof *made->counts);
    if (!made->ranks || !made->counts) {
        free_crossing(made);
        return NULL;
    }
    for (size_t i = 0; i < ranks; i++)
        made->ranks[i] = cross->ranks ? cross->ranks[i] : (int)i;
    for (int slot = 0; slot < slots; slot++)
        made->flights[slot].counts = made->counts + (size_t)slot * nodes;
    return made;
}

/* Takes over what it is given, also on error. */
static dtrain_status_t fill_backend(dt_shm_backend_t *shm, dt_shm_node_t *node,
                                    const dt_shm_layout_t *layout, dt_shm_crossing_t *crossing)
{
    const dt_shm_mapping_t *mapping = node->mapping;
    size_t free_offset = dt_shm_layout_free_offset(layout, mapping->bytes);
    shm->base.ops = crossing ? &dt_shm_plain_ops : &shm_ops;
    shm->base.takes_pieces = 1;
    shm->node = node;
    shm->stream.layout = *layout;
    shm->stream.cross = crossing;
    shm->sets_offset = layout->end;
    shm->set_bytes = dt_shm_layout_set_bytes(layout, mapping->bytes);
    shm->heap = dt_shm_heap_create(dt_shm_mapping_heap(mapping, node->rank) + free_offset,
                                   mapping->bytes - free_offset);
    if (!shm->heap || fill_world_stream(shm) != 0 || (!crossing && make_eager(shm) != 0)) {
        shm_destroy(&shm->base, 0);
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory for the shm backend");
    }
    dt_shm_stream_open(&shm->stream);
    return DTRAIN_OK;
}

/* `cross` may be NULL. */
static dtrain_status_t create(dt_shm_node_t *node, const dt_shm_tuning_t *tuning,
                              const dt_shm_cross_t *cross, dt_backend_t **backend)
{
    size_t heap_bytes = node->mapping->bytes;
    int size = node->mapping->size;
    dt_shm_layout_t layout = dt_shm_layout_make(tuning, size, cross ? cross->num_nodes : 0);
    size_t free_offset = dt_shm_layout_free_offset(&layout, heap_bytes);
    dt_shm_backend_t *shm = dt_calloc(1, sizeof *shm);
    dt_shm_crossing_t *crossing = cross ? make_crossing(cross, size, layout.slots) : NULL;
    if (!shm || (cross && !crossing) || free_offset >= heap_bytes) {
        dt_free(shm);
        free_crossing(crossing);
        if (cross)
            cross->backend->ops->destroy(cross->backend, 0);
        dt_shm_node_free(node);
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY,
                       "no memory for the shm backend, which takes %zu bytes of each rank's %zu of "
                       "shared memory",
                       free_offset, heap_bytes);
    }
    shm->tuning = tuning ? *tuning : (dt_shm_tuning_t){0};
    dtrain_status_t status = fill_backend(shm, node, &layout, crossing);
    if (status == DTRAIN_OK)
        *backend = &shm->base;
    return status;
}

dtrain_status_t dt_shm_create(dt_shm_node_t *node, const dt_shm_tuning_t *tuning,
                              dt_backend_t **backend)
{
    return create(node, tuning, NULL, backend);
}

dtrain_status_t dt_shm_create_across(dt_shm_node_t *node, const dt_shm_tuning_t *tuning,
                                     const dt_shm_cross_t *cross, dt_backend_t **backend)
{
    return create(node, tuning, cross, backend);
}
