#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/shm/shm_eager.h"
#include "comm/shm/shm_stream.h"

/*
 * Measured on 2 cores. A vector in library memory is as fast in one round as shared out (DIRECT) at
 * 1.5 KiB, for 2 and 4 ranks. One that is not, in one round as through the arena: at more than 32
 * KiB for 2 ranks and about 24 KiB for 4, since every rank reduces all of it.
 */
#define TINY_BYTES_DEFAULT ((size_t)2 << 10)
#define SMALL_TRAFFIC ((size_t)64 << 10) /* bytes times ranks */

/*
 * Chunks of 32 to 256 KiB are equal for 2 ranks and large vectors. For 4 ranks 16 and 32 KiB are
 * the best: what matters is that all slots of a rank stay in its core's second-level cache. More
 * slots than 4 gain nothing, 2 are slower for short vectors.
 */
#define CHUNK_TRAFFIC ((size_t)128 << 10)
#define CHUNK_BYTES_MIN ((size_t)4 << 10)
#define SLOTS_DEFAULT 4

/*
 * Across nodes a chunk is a message to each of them, and all slots' chunks are on their way at
 * once: what matters is that messages are long enough to be worth their cost, and enough to fill
 * the way.
 */
#define CROSS_TRAFFIC ((size_t)512 << 10)
#define CROSS_CHUNK_BYTES_MIN ((size_t)32 << 10)
#define CROSS_CHUNK_BYTES_MAX ((size_t)128 << 10)
#define CROSS_SLOTS_DEFAULT 8
#define SLOTS_MAX 64

/* What of a heap is left to allocate begins at a multiple of this. */
#define HUGE_PAGE ((size_t)2 << 20)

/* Tasks whose memory is kept. */
#define FREE_MAX 16

typedef struct shm_backend {
    dt_backend_t base;
    dt_shm_node_t *node;
    dt_shm_heap_t *heap;
    dt_shm_stream_t stream;
    dt_shm_eager_t *eager; /* NULL where there are other nodes */
    dt_shm_task_t *free;   /* linked by `after` */
    int num_free;
} shm_backend_t;

/* ---- Layout ------------------------------------------------------------------------------ */

static size_t round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

static size_t at_least(size_t bytes, size_t least)
{
    return bytes < least ? least : bytes;
}

static dt_shm_layout_t default_layout(size_t size, int crosses)
{
    dt_shm_layout_t layout = {.slots = SLOTS_DEFAULT,
                              .tiny_bytes = TINY_BYTES_DEFAULT,
                              .small_bytes = SMALL_TRAFFIC / size,
                              .chunk_bytes = at_least(CHUNK_TRAFFIC / size, CHUNK_BYTES_MIN)};
    if (!crosses)
        return layout;
    /* Every vector is shared out, and has a header. */
    layout.tiny_bytes = layout.small_bytes = 0;
    layout.slots = CROSS_SLOTS_DEFAULT;
    layout.chunk_bytes = at_least(CROSS_TRAFFIC / size, CROSS_CHUNK_BYTES_MIN);
    if (layout.chunk_bytes > CROSS_CHUNK_BYTES_MAX)
        layout.chunk_bytes = CROSS_CHUNK_BYTES_MAX;
    return layout;
}

dt_shm_layout_t dt_shm_layout_make(const dt_shm_tuning_t *tuning, int size, int crosses)
{
    dt_shm_tuning_t wanted = tuning ? *tuning : (dt_shm_tuning_t){0};
    dt_shm_layout_t layout = default_layout((size_t)size, crosses);
    if (crosses)
        wanted.tiny_bytes = wanted.small_bytes = 0;
    if (wanted.tiny_bytes != 0)
        layout.tiny_bytes = wanted.tiny_bytes > 0 ? (size_t)wanted.tiny_bytes : 0;
    if (wanted.small_bytes != 0)
        layout.small_bytes = wanted.small_bytes > 0 ? (size_t)wanted.small_bytes : 0;
    if (wanted.chunk_bytes > 0)
        layout.chunk_bytes = (size_t)wanted.chunk_bytes;
    if (wanted.slots > 0)
        layout.slots = wanted.slots < SLOTS_MAX ? wanted.slots : SLOTS_MAX;
    layout.small_bytes = at_least(layout.small_bytes, layout.tiny_bytes);
    layout.chunk_bytes = round_up(layout.chunk_bytes, DT_SHM_LINE);
    layout.input_bytes = at_least(layout.chunk_bytes * (size_t)(size > 1 ? size - 1 : 1),
                                  round_up(layout.small_bytes, DT_SHM_LINE));
    layout.slot_bytes = layout.input_bytes + layout.chunk_bytes;
    layout.arena_offset = round_up(DT_SHM_MAIL_OFFSET + sizeof(dt_shm_mail_t), DT_SHM_PAGE);
    layout.eager_offset =
        round_up(layout.arena_offset + (size_t)layout.slots * layout.slot_bytes, DT_SHM_PAGE);
    layout.free_offset = round_up(layout.eager_offset + DT_SHM_EAGER_BYTES, HUGE_PAGE);
    return layout;
}

/* ---- Tasks ------------------------------------------------------------------------------- */

static dt_shm_task_t *acquire_task(shm_backend_t *shm)
{
    dt_shm_task_t *task = shm->free;
    if (!task)
        return dt_calloc(1, sizeof *task);
    shm->free = task->after;
    shm->num_free--;
    dt_shm_pieces_t pieces = task->pieces;
    *task = (dt_shm_task_t){.pieces = pieces};
    return task;
}

static void free_task(dt_shm_task_t *task)
{
    dt_shm_pieces_free(&task->pieces);
    dt_free(task);
}

static void recycle_task(shm_backend_t *shm, dt_shm_task_t *task)
{
    if (shm->num_free == FREE_MAX) {
        free_task(task);
        return;
    }
    task->after = shm->free;
    shm->free = task;
    shm->num_free++;
}

static dtrain_status_t check(const shm_backend_t *shm, const dt_collective_t *collective)
{
    const dt_shm_crossing_t *cross = shm->stream.cross;
    int size = shm->stream.size * (cross ? cross->num_nodes : 1);
    int is_known =
        collective->kind == DT_ALLREDUCE ||
        (collective->kind == DT_BROADCAST && collective->root >= 0 && collective->root < size);
    int64_t count = 0;
    for (int i = 0; i < collective->num_pieces; i++) {
        int64_t more = collective->pieces[i].count;
        count = more < 0 || count < 0 || more > INT64_MAX - count ? -1 : count + more;
    }
    if (!is_known || dt_dtype_size(collective->reduction.dtype) == 0 ||
        collective->num_pieces < 1 || count != collective->count)
        return dt_fail(DTRAIN_ERR_INTERNAL,
                       "the shm backend was given kind %d, type %d, root %d and %d pieces of "
                       "%lld elements",
                       (int)collective->kind, (int)collective->reduction.dtype, collective->root,
                       collective->num_pieces, (long long)collective->count);
    return DTRAIN_OK;
}

/* Whether the others can reach all that they need of this rank's pieces. */
static int is_in_heap(const shm_backend_t *shm, const dt_collective_t *collective)
{
    size_t element = dt_dtype_size(collective->reduction.dtype);
    int is_broadcast = collective->kind == DT_BROADCAST;
    if (is_broadcast && (shm->stream.cross || collective->root != shm->stream.rank))
        return 0;
    for (int i = 0; i < collective->num_pieces; i++) {
        const dt_piece_t *piece = &collective->pieces[i];
        size_t bytes = (size_t)piece->count * element;
        if (bytes == 0)
            continue;
        if (!dt_shm_heap_holds(shm->heap, piece->in, bytes) ||
            (!is_broadcast && !dt_shm_heap_holds(shm->heap, piece->out, bytes)))
            return 0;
    }
    return 1;
}

static dtrain_status_t shm_start(dt_backend_t *backend, const dt_collective_t *collective,
                                 dt_task_t **out)
{
    shm_backend_t *shm = (shm_backend_t *)backend;
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
    task->in_heap = is_in_heap(shm, collective);
    dt_shm_stream_add(&shm->stream, task);
    *out = (dt_task_t *)task;
    return DTRAIN_OK;
}

static dtrain_status_t shm_progress(dt_backend_t *backend, dt_task_t *handle)
{
    shm_backend_t *shm = (shm_backend_t *)backend;
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
    shm_backend_t *shm = (shm_backend_t *)backend;
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
    shm_backend_t *shm = (shm_backend_t *)backend;
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
    shm_backend_t *shm = (shm_backend_t *)backend;
    return dt_shm_heap_release(shm->heap, memory);
}

/* ---- Short inputs --------------------------------------------------------------------------- */

static void shm_post(dt_backend_t *backend, uint32_t slot, const void *in, size_t bytes)
{
    dt_shm_eager_post(((shm_backend_t *)backend)->eager, slot, in, bytes);
}

static void shm_take(dt_backend_t *backend, uint32_t slot, const dt_reduction_t *reduction,
                     void *out, size_t count)
{
    dt_shm_eager_take(((shm_backend_t *)backend)->eager, slot, reduction, out, count);
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

/* The others see the heap until they leave too, so nobody is waited for. */
static void shm_destroy(dt_backend_t *backend, int clean)
{
    shm_backend_t *shm = (shm_backend_t *)backend;
    dt_shm_crossing_t *cross = shm->stream.cross;
    if (cross) /* first: messages may still be on their way to a slot */
        cross->backend->ops->destroy(cross->backend, clean);
    dt_free(cross);
    free_list(shm->stream.head);
    free_list(shm->free);
    dt_free(shm->stream.boards);
    dt_free(shm->stream.sources);
    dt_free(shm->stream.destinations);
    dt_shm_eager_free(shm->eager);
    dt_shm_heap_free(shm->heap);
    dt_shm_node_free(shm->node);
    dt_free(shm);
}

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
};

/* What is reduced in this node alone is of no use. */
static const dt_backend_ops_t across_ops = {
    .name = "shm",
    .start = shm_start,
    .progress = shm_progress,
    .release = shm_release,
    .destroy = shm_destroy,
    .allocate = shm_allocate,
    .deallocate = shm_deallocate,
};

static int fill_stream(dt_shm_stream_t *stream, const dt_shm_node_t *node)
{
    size_t size = (size_t)node->mapping->size;
    stream->rank = node->rank;
    stream->size = node->mapping->size;
    stream->boards = dt_calloc(size, sizeof *stream->boards);
    stream->sources = dt_calloc(size, sizeof *stream->sources);
    /* Two are needed also in a node of one. */
    stream->destinations = dt_calloc(size + 1, sizeof *stream->destinations);
    if (!stream->boards || !stream->sources || !stream->destinations)
        return -1;
    for (int rank = 0; rank < stream->size; rank++)
        stream->boards[rank] = (dt_shm_board_t *)dt_shm_mapping_heap(node->mapping, rank);
    return 0;
}

static int make_eager(shm_backend_t *shm)
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

static dt_shm_crossing_t *make_crossing(const dt_shm_cross_t *cross, int slots)
{
    dt_shm_crossing_t *made = dt_calloc(1, sizeof *made + (size_t)slots * sizeof made->flights[0]);
    if (made) {
        made->backend = cross->backend;
        made->node = cross->node;
        made->num_nodes = cross->num_nodes;
    }
    return made;
}

/* Takes over what it is given, also on error. */
static dtrain_status_t fill_backend(shm_backend_t *shm, dt_shm_node_t *node,
                                    const dt_shm_layout_t *layout, dt_shm_crossing_t *crossing)
{
    const dt_shm_mapping_t *mapping = node->mapping;
    shm->base.ops = crossing ? &across_ops : &shm_ops;
    shm->base.takes_pieces = 1;
    shm->node = node;
    shm->stream.layout = *layout;
    shm->stream.cross = crossing;
    shm->heap = dt_shm_heap_create(dt_shm_mapping_heap(mapping, node->rank) + layout->free_offset,
                                   mapping->bytes - layout->free_offset);
    if (!shm->heap || fill_stream(&shm->stream, node) != 0 || (!crossing && make_eager(shm))) {
        shm_destroy(&shm->base, 0);
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory for the shm backend");
    }
    return DTRAIN_OK;
}

/* `cross` may be NULL. */
static dtrain_status_t create(dt_shm_node_t *node, const dt_shm_tuning_t *tuning,
                              const dt_shm_cross_t *cross, dt_backend_t **backend)
{
    size_t heap_bytes = node->mapping->bytes;
    dt_shm_layout_t layout = dt_shm_layout_make(tuning, node->mapping->size, cross != NULL);
    shm_backend_t *shm = dt_calloc(1, sizeof *shm);
    dt_shm_crossing_t *crossing = cross ? make_crossing(cross, layout.slots) : NULL;
    if (!shm || (cross && !crossing) || layout.free_offset >= heap_bytes) {
        dt_free(shm);
        dt_free(crossing);
        if (cross)
            cross->backend->ops->destroy(cross->backend, 0);
        dt_shm_node_free(node);
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY,
                       "no memory for the shm backend, which takes %zu bytes of each rank's %zu of "
                       "shared memory",
                       layout.free_offset, heap_bytes);
    }
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
