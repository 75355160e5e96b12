#include "core/staging.h"

#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/collective.h"

#define ALIGNMENT 4096

/* The same on all ranks: it decides what their collectives are. */
#define CHUNK_BYTES ((int64_t)4 << 20)

typedef struct staging {
    dt_staged_t base;
    dt_staging_pool_t *pool;
    dt_device_t *device;
    dt_collective_t collective; /* of device memory */
    int64_t element, in_count, out_count;
    dt_staging_buffer_t *buffer; /* the input, and behind it the output where that is another */
    char *in, *out;              /* in it */
    int64_t chunk;               /* elements */
    int num_chunks;
    int next_chunk;        /* whose collective comes next */
    int num_out;           /* chunks whose copies out have begun */
    dt_mark_t **copied_in; /* num_chunks */
    dt_mark_t *copied_out; /* behind the last of these */
    dt_copy_t *copies;     /* num_pieces, scratch */
} staging_t;

/* ---- Pinned memory -------------------------------------------------------------------------- */

static dt_staging_buffer_t *make_buffer(dt_staging_pool_t *pool, size_t bytes)
{
    dt_staging_buffer_t *buffer = dt_calloc(1, sizeof *buffer);
    if (!buffer)
        return NULL;
    buffer->bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    buffer->memory = dt_alloc_aligned(ALIGNMENT, buffer->bytes);
    if (buffer->memory &&
        pool->device->ops->pin(pool->device, buffer->memory, buffer->bytes) == DTRAIN_OK)
        return buffer;
    dt_free(buffer->memory);
    dt_free(buffer);
    return NULL;
}

dt_staging_buffer_t *dt_staging_take(dt_staging_pool_t *pool, size_t bytes)
{
    for (dt_staging_buffer_t **at = &pool->spare; *at; at = &(*at)->next) {
        dt_staging_buffer_t *buffer = *at;
        if (buffer->bytes < bytes)
            continue;
        *at = buffer->next;
        return buffer;
    }
    return make_buffer(pool, bytes);
}

void dt_staging_give(dt_staging_pool_t *pool, dt_staging_buffer_t *buffer)
{
    buffer->next = pool->spare;
    pool->spare = buffer;
}

static void free_buffer(dt_staging_pool_t *pool, dt_staging_buffer_t *buffer)
{
    if (pool->device->ops->unpin(pool->device, buffer->memory) == 0)
        dt_free(buffer->memory);
    dt_free(buffer);
}

void dt_staging_pool_free(dt_staging_pool_t *pool)
{
    while (pool->spare) {
        dt_staging_buffer_t *buffer = pool->spare;
        pool->spare = buffer->next;
        free_buffer(pool, buffer);
    }
}

/* ---- Copies --------------------------------------------------------------------------------- */

static int is_out_used(const staging_t *staging, int rank)
{
    const dt_collective_t *collective = &staging->collective;
    switch (collective->kind) {
    case DT_REDUCE:
        return collective->root == rank;
    case DT_BROADCAST:
        return collective->root != rank || collective->pieces[0].out != collective->pieces[0].in;
    default:
        return 1;
    }
}

/* The elements [first, first + count) of the vector that the pieces make up, between them and
 * `host`, where the vector lies. Returns the number of copies. */
static int list_copies(staging_t *staging, int64_t first, int64_t count, int is_out)
{
    int64_t begin = 0;
    int n = 0;
    char *host = is_out ? staging->out : staging->in;
    for (int i = 0; i < staging->collective.num_pieces; i++) {
        const dt_piece_t *piece = &staging->collective.pieces[i];
        int64_t total = staging->collective.num_pieces > 1 ? piece->count
                        : is_out                           ? staging->out_count
                                                           : staging->in_count;
        int64_t from = first > begin ? first : begin;
        int64_t to = first + count < begin + total ? first + count : begin + total;
        const void *device = is_out ? piece->out : piece->in;
        if (from < to && device) {
            char *here = host + from * staging->element;
            char *there = (char *)device + (from - begin) * staging->element;
            staging->copies[n++] = (dt_copy_t){.to = is_out ? there : here,
                                               .from = is_out ? here : there,
                                               .bytes = (size_t)((to - from) * staging->element)};
        }
        begin += total;
    }
    return n;
}

static int64_t count_of_chunk(const staging_t *staging, int chunk, int64_t total)
{
    if (staging->num_chunks == 1)
        return total;
    int64_t left = total - chunk * staging->chunk;
    return left < staging->chunk ? left : staging->chunk;
}

/* All of it is put into the device's stream at once, with a mark behind each chunk. */
static dtrain_status_t copy_in(staging_t *staging, int rank)
{
    const dt_collective_t *collective = &staging->collective;
    int reads = collective->kind != DT_BROADCAST || collective->root == rank;
    dtrain_status_t status = DTRAIN_OK;
    for (int i = 0; i < staging->num_chunks && status == DTRAIN_OK; i++) {
        int64_t count = count_of_chunk(staging, i, staging->in_count);
        int n = reads ? list_copies(staging, i * staging->chunk, count, 0) : 0;
        status =
            staging->device->ops->copy(staging->device, staging->copies, n, collective->ready,
                                       i == 0 ? collective->num_ready : 0, &staging->copied_in[i]);
    }
    return status;
}

static dtrain_status_t copy_out(staging_t *staging, int chunk)
{
    int64_t count = count_of_chunk(staging, chunk, staging->out_count);
    int n = list_copies(staging, chunk * staging->chunk, count, 1);
    dt_mark_t *mark;
    /* Also an output that nobody has put in waits for what the caller's stream held. */
    dtrain_status_t status =
        staging->device->ops->copy(staging->device, staging->copies, n, NULL, 0, &mark);
    if (status != DTRAIN_OK)
        return status;
    dt_mark_drop(staging->copied_out);
    staging->copied_out = mark;
    return DTRAIN_OK;
}

/* ---- As the executor sees it ---------------------------------------------------------------- */

static void staging_free(dt_staged_t *staged)
{
    staging_t *staging = (staging_t *)staged;
    for (int i = 0; staging->copied_in && i < staging->num_chunks; i++)
        dt_mark_drop(staging->copied_in[i]);
    dt_mark_drop(staging->copied_out);
    if (staging->buffer)
        dt_staging_give(staging->pool, staging->buffer);
    dt_free(staging->copied_in);
    dt_free(staging->copies);
    dt_free(staging);
}

static void fill_chunk(staging_t *staging, int chunk, dt_collective_t *collective)
{
    *collective = staging->collective;
    collective->ready = NULL;
    collective->num_ready = 0;
    int64_t offset = chunk * staging->chunk * staging->element;
    int is_whole = staging->num_chunks == 1;
    staging->base.piece = (dt_piece_t){
        .in = staging->in + offset, .out = staging->out + offset, .count = collective->count};
    if (!is_whole)
        staging->base.piece.count = count_of_chunk(staging, chunk, collective->count);
    collective->count = staging->base.piece.count;
    collective->pieces = &staging->base.piece;
    collective->num_pieces = 1;
}

static dtrain_status_t staging_next(dt_staged_t *staged, dt_collective_t *collective,
                                    dt_stage_t *stage)
{
    staging_t *staging = (staging_t *)staged;
    dtrain_status_t status = DTRAIN_OK;
    for (; staging->num_out < staging->next_chunk && status == DTRAIN_OK; staging->num_out++)
        status = copy_out(staging, staging->num_out);
    if (status == DTRAIN_OK)
        status =
            staging->device->ops->reached(staging->device, staging->copied_in[staging->next_chunk]);
    if (status == DTRAIN_IN_PROGRESS) {
        *stage = DT_STAGE_WAIT;
        return DTRAIN_OK;
    }
    if (status != DTRAIN_OK)
        return status;
    fill_chunk(staging, staging->next_chunk++, collective);
    *stage = staging->next_chunk == staging->num_chunks ? DT_STAGE_LAST : DT_STAGE_MORE;
    return DTRAIN_OK;
}

static dtrain_status_t staging_end(dt_staged_t *staged)
{
    staging_t *staging = (staging_t *)staged;
    dtrain_status_t status = DTRAIN_OK;
    for (; staging->num_out < staging->num_chunks && status == DTRAIN_OK; staging->num_out++)
        status = copy_out(staging, staging->num_out);
    return status == DTRAIN_OK ? staging->device->ops->reached(staging->device, staging->copied_out)
                               : status;
}

static dt_mark_t *staging_enqueued(dt_staged_t *staged)
{
    staging_t *staging = (staging_t *)staged;
    return staging->num_out == staging->num_chunks ? staging->copied_out : NULL;
}

/* ---- Making --------------------------------------------------------------------------------- */

static int is_elementwise(const dt_collective_t *collective)
{
    return collective->kind == DT_ALLREDUCE || collective->kind == DT_REDUCE ||
           collective->kind == DT_BROADCAST;
}

static dtrain_status_t lay_out(staging_t *staging, int rank, int size)
{
    const dt_collective_t *collective = &staging->collective;
    staging->element = (int64_t)dt_dtype_size(collective->reduction.dtype);
    staging->in_count = dt_collective_in_count(collective, rank, size);
    staging->out_count = dt_collective_out_count(collective, rank, size);
    staging->chunk = CHUNK_BYTES / staging->element;
    staging->num_chunks = 1;
    if (is_elementwise(collective) && collective->count > staging->chunk)
        staging->num_chunks = (int)((collective->count + staging->chunk - 1) / staging->chunk);
    size_t in_bytes = (size_t)((staging->in_count * staging->element + 63) / 64 * 64);
    size_t out_bytes =
        is_elementwise(collective) ? 0 : (size_t)(staging->out_count * staging->element);
    staging->buffer = dt_staging_take(staging->pool, in_bytes + out_bytes + 64);
    staging->copied_in = dt_calloc((size_t)staging->num_chunks, sizeof *staging->copied_in);
    staging->copies = dt_alloc((size_t)collective->num_pieces * sizeof *staging->copies);
    if (!staging->buffer || !staging->copied_in || !staging->copies)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory to stage %zu bytes of a GPU's tensors",
                       in_bytes + out_bytes);
    staging->in = staging->buffer->memory;
    staging->out = is_elementwise(collective) ? staging->in : staging->in + in_bytes;
    if (!is_out_used(staging, rank))
        staging->out_count = 0;
    return DTRAIN_OK;
}

dtrain_status_t dt_staging_create(dt_staging_pool_t *pool, dt_device_t *device,
                                  const dt_collective_t *collective, int rank, int size,
                                  dt_staged_t **staged)
{
    staging_t *staging = dt_calloc(1, sizeof *staging);
    if (!staging)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory to stage a tensor");
    pool->device = device;
    staging->base.next = staging_next;
    staging->base.free = staging_free;
    staging->base.end = staging_end;
    staging->base.enqueued = staging_enqueued;
    staging->pool = pool;
    staging->device = device;
    staging->collective = *collective;
    dtrain_status_t status = lay_out(staging, rank, size);
    if (status == DTRAIN_OK)
        status = copy_in(staging, rank);
    if (status == DTRAIN_OK)
        *staged = &staging->base;
    else
        staging_free(&staging->base);
    return status;
}
