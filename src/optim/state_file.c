/* state_file.c - writing a save; state_reader.c reads it. */
#include "optim/state_file.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "optim/state_disk.h"

static dtrain_status_t check_tensor(const dt_state_tensor_t *tensor)
{
    size_t length = tensor->name ? strnlen(tensor->name, DTRAIN_NAME_MAX + 1) : 0;
    if (length < 1 || length > DTRAIN_NAME_MAX)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "a tensor's name has 1 to %d bytes",
                       DTRAIN_NAME_MAX);
    if (dt_dtype_size(tensor->dtype) == 0)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "'%.200s': %d is no element type", tensor->name,
                       (int)tensor->dtype);
    if (tensor->ndim < 0 || tensor->ndim > DTRAIN_NDIM_MAX)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "'%.200s' has %d dimensions, not 0 to %d",
                       tensor->name, (int)tensor->ndim, DTRAIN_NDIM_MAX);
    int64_t count = dt_state_count(tensor->dtype, tensor->ndim, tensor->shape);
    if (count < 0)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "'%.200s' has an impossible shape",
                       tensor->name);
    if (tensor->begin < 0 || tensor->end < tensor->begin || tensor->end > count)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "'%.200s': elements %" PRId64 " to %" PRId64 " of %" PRId64, tensor->name,
                       tensor->begin, tensor->end, count);
    return DTRAIN_OK;
}

static dtrain_status_t check_save(const dt_state_save_t *save)
{
    if (save->num_shards < 1 || save->shard < 0 || save->shard >= save->num_shards)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "there is no shard %d of %d", (int)save->shard,
                       (int)save->num_shards);
    return DTRAIN_OK;
}

static dt_state_head_t head_of(dt_state_kind_t kind, const dt_state_save_t *save)
{
    return (dt_state_head_t){.kind = kind,
                             .step = save->step,
                             .id = save->id,
                             .shard = kind == DT_STATE_INDEX ? 0 : (uint32_t)save->shard,
                             .num_shards = (uint32_t)save->num_shards};
}

/* ---- Putting PATH in place ------------------------------------------------------------------- */

/* What PATH is before it is replaced, in case that is the index of a sharded save. */
static dt_state_head_t look_at_old(const char *path)
{
    dt_state_header_t header;
    dt_state_head_t none = {.kind = DT_STATE_DATA};
    if (access(path, F_OK) != 0 || dt_state_load_header(path, &header) != DTRAIN_OK)
        return none;
    dt_state_free_header(&header);
    return header.head;
}

static void remove_old_shards(const char *path, const dt_state_head_t *old, uint64_t new_id)
{
    if (old->kind != DT_STATE_INDEX || old->id == new_id)
        return;
    for (uint32_t shard = 0; shard < old->num_shards; shard++) {
        char *name = dt_state_shard_path(path, old->id, shard, old->num_shards);
        if (name)
            unlink(name);
        dt_free(name);
    }
}

static dtrain_status_t put_in_place(const char *path, uint64_t id, const dt_state_piece_t *pieces,
                                    size_t num_pieces)
{
    dt_state_head_t old = look_at_old(path);
    dtrain_status_t status = dt_state_replace_file(path, pieces, num_pieces);
    if (status == DTRAIN_OK)
        remove_old_shards(path, &old, id);
    return status;
}

/* ---- Data ------------------------------------------------------------------------------------ */

static dt_state_extent_t extent_of(const dt_state_tensor_t *tensor)
{
    dt_state_extent_t extent = {.name = tensor->name,
                                .dtype = tensor->dtype,
                                .ndim = tensor->ndim,
                                .begin = tensor->begin,
                                .end = tensor->end};
    for (int i = 0; i < tensor->ndim; i++)
        extent.shape[i] = tensor->shape[i];
    return extent;
}

/* The header, into `header`, and the pieces of the file: header, then data. */
static dtrain_status_t lay_out(const dt_state_save_t *save, const dt_state_tensor_t *tensors,
                               int num_tensors, dt_buffer_t *header, dt_state_piece_t *pieces)
{
    dt_state_head_t head = head_of(DT_STATE_DATA, save);
    uint64_t data_length = 0;
    dt_state_put_begin(header, &head);
    for (int i = 0; i < num_tensors; i++) {
        dt_state_extent_t extent = extent_of(&tensors[i]);
        dt_state_put_extent(header, &extent, tensors[i].data);
        pieces[i + 1] = (dt_state_piece_t){tensors[i].data, dt_state_bytes(&extent)};
        data_length += dt_state_bytes(&extent);
    }
    dt_state_put_end(header, (uint32_t)num_tensors, data_length);
    pieces[0] = (dt_state_piece_t){header->data, header->length};
    return header->failed ? dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for a header")
                          : DTRAIN_OK;
}

static dtrain_status_t write_pieces(const char *path, const dt_state_save_t *save,
                                    const dt_state_piece_t *pieces, size_t num_pieces)
{
    if (save->num_shards == 1)
        return put_in_place(path, save->id, pieces, num_pieces);
    char *name =
        dt_state_shard_path(path, save->id, (uint32_t)save->shard, (uint32_t)save->num_shards);
    if (!name)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for a name");
    dtrain_status_t status = dt_state_replace_file(name, pieces, num_pieces);
    dt_free(name);
    return status;
}

dtrain_status_t dt_state_write(const char *path, const dt_state_save_t *save,
                               const dt_state_tensor_t *tensors, int num_tensors)
{
    dtrain_status_t status = check_save(save);
    for (int i = 0; i < num_tensors && status == DTRAIN_OK; i++)
        status = check_tensor(&tensors[i]);
    if (status != DTRAIN_OK)
        return status;
    dt_buffer_t header = {0};
    size_t num_pieces = (size_t)num_tensors + 1;
    dt_state_piece_t *pieces = dt_calloc(num_pieces, sizeof *pieces);
    if (!pieces)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for %d tensors", num_tensors);
    status = lay_out(save, tensors, num_tensors, &header, pieces);
    if (status == DTRAIN_OK)
        status = write_pieces(path, save, pieces, num_pieces);
    dt_buffer_free(&header);
    dt_free(pieces);
    return status;
}

/* ---- Index ----------------------------------------------------------------------------------- */

static dtrain_status_t put_shard(const char *path, const dt_state_head_t *save, uint32_t shard,
                                 dt_buffer_t *index)
{
    char *name = dt_state_shard_path(path, save->id, shard, save->num_shards);
    if (!name)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for a name");
    dt_state_header_t header;
    dtrain_status_t status = dt_state_load_header(name, &header);
    if (status == DTRAIN_OK) {
        status = dt_state_check_shard(name, &header.head, save, shard);
        dt_state_put_shard(index, header.head.file_length, header.sum);
        dt_state_free_header(&header);
    }
    dt_free(name);
    return status;
}

dtrain_status_t dt_state_write_index(const char *path, const dt_state_save_t *save)
{
    if (save->num_shards < 1)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "%d shards", (int)save->num_shards);
    dt_state_head_t head = head_of(DT_STATE_INDEX, save);
    dt_buffer_t index = {0};
    dtrain_status_t status = DTRAIN_OK;
    dt_state_put_begin(&index, &head);
    for (uint32_t shard = 0; shard < head.num_shards && status == DTRAIN_OK; shard++)
        status = put_shard(path, &head, shard, &index);
    dt_state_put_end(&index, head.num_shards, 0);
    if (status == DTRAIN_OK && index.failed)
        status = dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for an index");
    if (status == DTRAIN_OK) {
        dt_state_piece_t piece = {index.data, index.length};
        status = put_in_place(path, save->id, &piece, 1);
    }
    dt_buffer_free(&index);
    return status;
}
