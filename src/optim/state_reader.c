/* state_reader.c - opening a save and putting ranges of tensors together from its files. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "optim/state_disk.h"
#include "optim/state_file.h"

typedef struct state_file {
    char *path;
    dt_state_header_t header;
} state_file_t;

/* An extent and the file that it is in. */
typedef struct located {
    dt_state_extent_t extent;
    const state_file_t *file;
} located_t;

/* A tensor's extents: a run of dt_state.parts, which cover it in order. */
typedef struct tensor {
    size_t first, count;
} tensor_t;

struct dt_state {
    dt_state_head_t head; /* of PATH */
    state_file_t *files;
    uint32_t num_files;
    located_t *parts; /* sorted by name, then by begin */
    size_t num_parts;
    tensor_t *tensors;
    size_t num_tensors;
};

static dtrain_status_t no_memory(void)
{
    return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for the headers of a save");
}

/* ---- Opening: the files ---------------------------------------------------------------------- */

static dtrain_status_t open_shard(dt_state_t *state, const char *path, const uint8_t *index,
                                  uint32_t shard)
{
    state_file_t *file = &state->files[shard];
    file->path = dt_state_shard_path(path, state->head.id, shard, state->head.num_shards);
    if (!file->path)
        return no_memory();
    dtrain_status_t status = dt_state_load_header(file->path, &file->header);
    if (status != DTRAIN_OK)
        return status;
    status = dt_state_check_shard(file->path, &file->header.head, &state->head, shard);
    uint64_t length;
    uint32_t sum;
    dt_state_get_shard(index, shard, &length, &sum);
    if (status == DTRAIN_OK && (length != file->header.head.file_length || sum != file->header.sum))
        status = dt_fail(DTRAIN_ERR_FILE, "%s is not the file that its index names", file->path);
    return status;
}

static dtrain_status_t make_files(dt_state_t *state, uint32_t count)
{
    state->files = dt_calloc(count, sizeof *state->files);
    if (!state->files)
        return no_memory();
    state->num_files = count;
    return DTRAIN_OK;
}

/* `top` is PATH's header; it is moved into `state` where PATH holds the data itself. */
static dtrain_status_t open_files(dt_state_t *state, const char *path, dt_state_header_t *top)
{
    state->head = top->head;
    if (top->head.kind == DT_STATE_DATA) {
        if (top->head.num_shards != 1)
            return dt_fail(DTRAIN_ERR_FILE, "%s is shard %u of %u: open the index instead", path,
                           top->head.shard, top->head.num_shards);
        dtrain_status_t status = make_files(state, 1);
        if (status != DTRAIN_OK)
            return status;
        state->files[0].header = *top;
        top->bytes = NULL;
        state->files[0].path = dt_strdup(path);
        return state->files[0].path ? DTRAIN_OK : no_memory();
    }
    dtrain_status_t status = make_files(state, top->head.num_shards);
    for (uint32_t shard = 0; shard < top->head.num_shards && status == DTRAIN_OK; shard++)
        status = open_shard(state, path, top->bytes, shard);
    return status;
}

/* ---- Opening: the tensors -------------------------------------------------------------------- */

static dtrain_status_t read_parts_of(dt_state_t *state, const state_file_t *file)
{
    uint32_t count = file->header.head.num_records;
    dt_state_extent_t *extents = dt_calloc((size_t)count + 1, sizeof *extents);
    if (!extents)
        return no_memory();
    dtrain_status_t status =
        dt_state_get_extents(file->path, file->header.bytes, &file->header.head, extents);
    for (uint32_t i = 0; i < count && status == DTRAIN_OK; i++)
        state->parts[state->num_parts++] = (located_t){.extent = extents[i], .file = file};
    dt_free(extents);
    return status;
}

static dtrain_status_t read_parts(dt_state_t *state)
{
    size_t count = 1; /* one more, so that nothing is no special case */
    for (uint32_t i = 0; i < state->num_files; i++)
        count += state->files[i].header.head.num_records;
    state->parts = dt_calloc(count, sizeof *state->parts);
    if (!state->parts)
        return no_memory();
    dtrain_status_t status = DTRAIN_OK;
    for (uint32_t i = 0; i < state->num_files && status == DTRAIN_OK; i++)
        status = read_parts_of(state, &state->files[i]);
    return status;
}

static int in_order(const void *a, const void *b)
{
    const dt_state_extent_t *x = &((const located_t *)a)->extent;
    const dt_state_extent_t *y = &((const located_t *)b)->extent;
    int names = strcmp(x->name, y->name);
    if (names != 0)
        return names;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

static int same_layout(const dt_state_extent_t *extent, dtrain_dtype_t dtype, int32_t ndim,
                       const int64_t *shape)
{
    if (extent->dtype != dtype || extent->ndim != ndim)
        return 0;
    for (int32_t i = 0; i < ndim; i++)
        if (extent->shape[i] != shape[i])
            return 0;
    return 1;
}

/* Whether the parts, in their order, cover the tensor once. */
static dtrain_status_t check_cover(const dt_state_t *state, const tensor_t *tensor)
{
    const dt_state_extent_t *first = &state->parts[tensor->first].extent;
    int64_t covered = 0;
    for (size_t i = 0; i < tensor->count; i++) {
        const located_t *part = &state->parts[tensor->first + i];
        const dt_state_extent_t *extent = &part->extent;
        if (!same_layout(extent, first->dtype, first->ndim, first->shape))
            return dt_fail(DTRAIN_ERR_FILE, "%s: '%.200s' has another type or shape than in %s",
                           part->file->path, extent->name, state->parts[tensor->first].file->path);
        if (extent->begin == extent->end)
            continue;
        if (extent->begin != covered)
            return dt_fail(DTRAIN_ERR_FILE, "%s: '%.200s': elements from %" PRId64 " on are %s",
                           part->file->path, extent->name,
                           extent->begin < covered ? extent->begin : covered,
                           extent->begin < covered ? "there twice" : "missing");
        covered = extent->end;
    }
    int64_t count = dt_state_count(first->dtype, first->ndim, first->shape);
    if (covered != count)
        return dt_fail(DTRAIN_ERR_FILE, "%s: '%.200s': elements from %" PRId64 " on are missing",
                       state->parts[tensor->first].file->path, first->name, covered);
    return DTRAIN_OK;
}

static dtrain_status_t make_tensors(dt_state_t *state)
{
    qsort(state->parts, state->num_parts, sizeof *state->parts, in_order);
    state->tensors = dt_calloc(state->num_parts + 1, sizeof *state->tensors);
    if (!state->tensors)
        return no_memory();
    for (size_t i = 0; i < state->num_parts; i++) {
        if (i == 0 || strcmp(state->parts[i].extent.name, state->parts[i - 1].extent.name) != 0)
            state->tensors[state->num_tensors++].first = i;
        state->tensors[state->num_tensors - 1].count++;
    }
    dtrain_status_t status = DTRAIN_OK;
    for (size_t i = 0; i < state->num_tensors && status == DTRAIN_OK; i++)
        status = check_cover(state, &state->tensors[i]);
    return status;
}

dtrain_status_t dt_state_open(const char *path, dt_state_t **state)
{
    dt_state_t *made = dt_calloc(1, sizeof *made);
    if (!made)
        return no_memory();
    dt_state_header_t top;
    dtrain_status_t status = dt_state_load_header(path, &top);
    if (status == DTRAIN_OK) {
        status = open_files(made, path, &top);
        dt_state_free_header(&top);
    }
    if (status == DTRAIN_OK)
        status = read_parts(made);
    if (status == DTRAIN_OK)
        status = make_tensors(made);
    if (status == DTRAIN_OK)
        *state = made;
    else
        dt_state_close(made);
    return status;
}

void dt_state_close(dt_state_t *state)
{
    if (!state)
        return;
    for (uint32_t i = 0; i < state->num_files; i++) {
        dt_state_free_header(&state->files[i].header);
        dt_free(state->files[i].path);
    }
    dt_free(state->files);
    dt_free(state->parts);
    dt_free(state->tensors);
    dt_free(state);
}

/* ---- Looking --------------------------------------------------------------------------------- */

int64_t dt_state_step(const dt_state_t *state)
{
    return state->head.step;
}

size_t dt_state_num_tensors(const dt_state_t *state)
{
    return state->num_tensors;
}

dt_state_info_t dt_state_info(const dt_state_t *state, size_t index)
{
    const dt_state_extent_t *extent = &state->parts[state->tensors[index].first].extent;
    return (dt_state_info_t){
        .name = extent->name, .dtype = extent->dtype, .ndim = extent->ndim, .shape = extent->shape};
}

static const tensor_t *find(const dt_state_t *state, const char *name)
{
    size_t low = 0, high = state->num_tensors;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const tensor_t *tensor = &state->tensors[middle];
        int order = strcmp(name, state->parts[tensor->first].extent.name);
        if (order == 0)
            return tensor;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* A pass over what was asked for: checks it, or fills it in too. */
typedef struct pass {
    const dt_state_t *state;
    int fills;
    uint8_t *chunk;           /* DT_STATE_CHUNK bytes */
    const state_file_t *file; /* that `fd` is open on; NULL for none */
    int fd;
} pass_t;

static dtrain_status_t open_for(pass_t *pass, const state_file_t *file)
{
    uint64_t size;
    if (pass->file == file)
        return DTRAIN_OK;
    if (pass->file)
        close(pass->fd);
    pass->file = NULL;
    pass->fd = dt_state_open_file(file->path, &size);
    if (pass->fd < 0)
        return DTRAIN_ERR_FILE;
    pass->file = file;
    return DTRAIN_OK;
}

/* Bytes [begin, end) of a part's data, to `to`: whole chunks are read, so that their sums can be
 * checked. */
static dtrain_status_t read_bytes(pass_t *pass, const located_t *part, uint64_t begin, uint64_t end,
                                  uint8_t *to)
{
    const dt_state_extent_t *extent = &part->extent;
    const uint64_t bytes = dt_state_bytes(extent);
    dtrain_status_t status = open_for(pass, part->file);
    for (uint64_t chunk = begin / DT_STATE_CHUNK;
         status == DTRAIN_OK && chunk * DT_STATE_CHUNK < end; chunk++) {
        uint64_t start = chunk * DT_STATE_CHUNK;
        size_t length = bytes - start < DT_STATE_CHUNK ? bytes - start : DT_STATE_CHUNK;
        status = dt_state_read_at(pass->fd, part->file->path, extent->offset + start, pass->chunk,
                                  length);
        if (status == DTRAIN_OK &&
            (uint32_t)crc32_z(0, pass->chunk, length) != dt_state_sum(extent, chunk))
            status = dt_fail(DTRAIN_ERR_FILE,
                             "%s is damaged: '%.200s' between bytes %" PRIu64 " and %" PRIu64
                             " of the file",
                             part->file->path, extent->name, extent->offset + start,
                             extent->offset + start + length);
        if (status == DTRAIN_OK && pass->fills) {
            uint64_t from = begin > start ? begin : start;
            uint64_t until = end < start + length ? end : start + length;
            memcpy(to + (from - begin), pass->chunk + (from - start), until - from);
        }
    }
    return status;
}

static dtrain_status_t check_request(const dt_state_t *state, const dt_state_tensor_t *wanted,
                                     const tensor_t **found)
{
    const tensor_t *tensor = wanted->name ? find(state, wanted->name) : NULL;
    if (!tensor)
        return dt_fail(DTRAIN_ERR_FILE, "%s has no tensor '%.200s'", state->files[0].path,
                       wanted->name ? wanted->name : "");
    const dt_state_extent_t *extent = &state->parts[tensor->first].extent;
    if (!same_layout(extent, wanted->dtype, wanted->ndim, wanted->shape))
        return dt_fail(
            DTRAIN_ERR_FILE, "%s: '%.200s' is %s of %d dimensions and another %s",
            state->files[0].path, wanted->name, dt_dtype_name(extent->dtype), (int)extent->ndim,
            extent->dtype == wanted->dtype ? "shape than asked for" : "type was asked for");
    int64_t count = dt_state_count(extent->dtype, extent->ndim, extent->shape);
    if (wanted->begin < 0 || wanted->end < wanted->begin || wanted->end > count)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "'%.200s': elements %" PRId64 " to %" PRId64 " of %" PRId64, wanted->name,
                       wanted->begin, wanted->end, count);
    *found = tensor;
    return DTRAIN_OK;
}

static dtrain_status_t read_tensor(pass_t *pass, const dt_state_tensor_t *wanted)
{
    const tensor_t *tensor = NULL;
    dtrain_status_t status = check_request(pass->state, wanted, &tensor);
    if (status != DTRAIN_OK)
        return status;
    const uint64_t size = dt_dtype_size(wanted->dtype);
    for (size_t i = 0; i < tensor->count && status == DTRAIN_OK; i++) {
        const located_t *part = &pass->state->parts[tensor->first + i];
        int64_t begin = wanted->begin > part->extent.begin ? wanted->begin : part->extent.begin;
        int64_t end = wanted->end < part->extent.end ? wanted->end : part->extent.end;
        if (begin >= end)
            continue;
        uint8_t *to =
            pass->fills ? (uint8_t *)wanted->data + (uint64_t)(begin - wanted->begin) * size : NULL;
        status = read_bytes(pass, part, (uint64_t)(begin - part->extent.begin) * size,
                            (uint64_t)(end - part->extent.begin) * size, to);
    }
    return status;
}

dtrain_status_t dt_state_read(const dt_state_t *state, const dt_state_tensor_t *tensors,
                              int num_tensors)
{
    pass_t pass = {.state = state, .chunk = dt_alloc(DT_STATE_CHUNK)};
    if (!pass.chunk)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for reading a save");
    dtrain_status_t status = DTRAIN_OK;
    for (pass.fills = 0; pass.fills < 2 && status == DTRAIN_OK; pass.fills++)
        for (int i = 0; i < num_tensors && status == DTRAIN_OK; i++)
            status = read_tensor(&pass, &tensors[i]);
    if (pass.file)
        close(pass.fd);
    dt_free(pass.chunk);
    return status;
}
