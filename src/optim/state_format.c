#include "optim/state_format.h"

#include <inttypes.h>
#include <string.h>
#include <zlib.h>

#include "base/dtype.h"
#include "base/status.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the format is little-endian");

static const char magic[8] = {'D', 'T', 'R', 'N', 'S', 'T', 'A', 'T'};

/* Where the fixed fields lie. */
enum {
    VERSION = 8,
    KIND = 12,
    FILE_LENGTH = 16,
    HEADER_LENGTH = 24,
    STEP = 32,
    ID = 40,
    SHARD = 48,
    NUM_SHARDS = 52,
    NUM_RECORDS = 56
};

#define SUM_BYTES sizeof(uint32_t)
#define SHARD_BYTES 12        /* of a record in an INDEX */
#define LEAST_EXTENT_BYTES 22 /* a name of one byte, no dimension, no data */
#define MOST_BYTES (INT64_C(1) << 62)

int64_t dt_state_count(dtrain_dtype_t dtype, int ndim, const int64_t *shape)
{
    int64_t most = MOST_BYTES / (int64_t)dt_dtype_size(dtype), count = 1;
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 0 || (shape[i] > 0 && count > most / shape[i]))
            return -1;
        count *= shape[i];
    }
    return count;
}

uint64_t dt_state_bytes(const dt_state_extent_t *extent)
{
    return (uint64_t)(extent->end - extent->begin) * dt_dtype_size(extent->dtype);
}

uint64_t dt_state_chunks(uint64_t bytes)
{
    return bytes / DT_STATE_CHUNK + (bytes % DT_STATE_CHUNK != 0);
}

uint32_t dt_state_sum(const dt_state_extent_t *extent, uint64_t chunk)
{
    uint32_t sum;
    memcpy(&sum, extent->sums + chunk * SUM_BYTES, sizeof sum);
    return sum;
}

/* ---- Writing --------------------------------------------------------------------------------- */

static void put(dt_buffer_t *buffer, const void *value, size_t length)
{
    dt_buffer_append(buffer, value, length);
}

void dt_state_put_begin(dt_buffer_t *header, const dt_state_head_t *head)
{
    uint8_t fixed[DT_STATE_FIXED] = {0};
    const uint32_t version = DT_STATE_VERSION, kind = head->kind;
    memcpy(fixed, magic, sizeof magic);
    memcpy(fixed + VERSION, &version, sizeof version);
    memcpy(fixed + KIND, &kind, sizeof kind);
    memcpy(fixed + STEP, &head->step, sizeof head->step);
    memcpy(fixed + ID, &head->id, sizeof head->id);
    memcpy(fixed + SHARD, &head->shard, sizeof head->shard);
    memcpy(fixed + NUM_SHARDS, &head->num_shards, sizeof head->num_shards);
    put(header, fixed, sizeof fixed);
}

void dt_state_put_extent(dt_buffer_t *header, const dt_state_extent_t *extent, const void *data)
{
    const uint16_t length = (uint16_t)strlen(extent->name);
    const uint8_t dtype = (uint8_t)extent->dtype, ndim = (uint8_t)extent->ndim;
    put(header, &length, sizeof length);
    put(header, extent->name, (size_t)length + 1);
    put(header, &dtype, sizeof dtype);
    put(header, &ndim, sizeof ndim);
    put(header, extent->shape, (size_t)ndim * sizeof *extent->shape);
    put(header, &extent->begin, sizeof extent->begin);
    put(header, &extent->end, sizeof extent->end);
    const char *at = data;
    for (uint64_t left = dt_state_bytes(extent); left > 0;) {
        size_t bytes = left < DT_STATE_CHUNK ? left : DT_STATE_CHUNK;
        uint32_t sum = (uint32_t)crc32_z(0, (const Bytef *)at, bytes);
        put(header, &sum, sizeof sum);
        at += bytes;
        left -= bytes;
    }
}

void dt_state_put_shard(dt_buffer_t *header, uint64_t file_length, uint32_t header_sum)
{
    put(header, &file_length, sizeof file_length);
    put(header, &header_sum, sizeof header_sum);
}

void dt_state_put_end(dt_buffer_t *header, uint32_t num_records, uint64_t data_length)
{
    if (header->failed)
        return;
    uint64_t header_length = header->length + SUM_BYTES;
    uint64_t file_length = header_length + data_length;
    memcpy(header->data + HEADER_LENGTH, &header_length, sizeof header_length);
    memcpy(header->data + FILE_LENGTH, &file_length, sizeof file_length);
    memcpy(header->data + NUM_RECORDS, &num_records, sizeof num_records);
    uint32_t sum = (uint32_t)crc32_z(0, header->data, header->length);
    put(header, &sum, sizeof sum);
}

/* ---- Reading --------------------------------------------------------------------------------- */

static dtrain_status_t damaged(const char *path, const char *what)
{
    return dt_fail(DTRAIN_ERR_FILE, "%s is damaged: %s", path, what);
}

static dtrain_status_t check_length(const char *path, const dt_state_head_t *head, uint64_t size)
{
    if (head->file_length > size)
        return dt_fail(DTRAIN_ERR_FILE, "%s is cut off: %" PRIu64 " of %" PRIu64 " bytes are there",
                       path, size, head->file_length);
    if (head->file_length < size)
        return dt_fail(DTRAIN_ERR_FILE,
                       "%s is damaged: it has %" PRIu64 " bytes instead of %" PRIu64, path, size,
                       head->file_length);
    if (head->header_length < DT_STATE_FIXED + SUM_BYTES || head->header_length > size)
        return damaged(path, "its header has an impossible length");
    uint64_t records = head->header_length - DT_STATE_FIXED - SUM_BYTES;
    int fits = head->kind == DT_STATE_INDEX
                   ? records == (uint64_t)head->num_records * SHARD_BYTES &&
                         head->num_records == head->num_shards && head->header_length == size
                   : head->num_records <= records / LEAST_EXTENT_BYTES;
    return fits ? DTRAIN_OK : damaged(path, "its header has an impossible number of records");
}

dtrain_status_t dt_state_get_head(const char *path, const uint8_t *bytes, uint64_t size,
                                  dt_state_head_t *head)
{
    uint32_t version, kind;
    if (memcmp(bytes, magic, sizeof magic) != 0)
        return dt_fail(DTRAIN_ERR_FILE, "%s is no training state of libdtrain", path);
    memcpy(&version, bytes + VERSION, sizeof version);
    if (version != DT_STATE_VERSION)
        return dt_fail(DTRAIN_ERR_FILE, "%s has format %u; this libdtrain reads format %d", path,
                       version, DT_STATE_VERSION);
    memcpy(&kind, bytes + KIND, sizeof kind);
    if (kind != DT_STATE_DATA && kind != DT_STATE_INDEX)
        return damaged(path, "it is neither data nor an index");
    dt_state_head_t found = {.kind = (dt_state_kind_t)kind};
    memcpy(&found.file_length, bytes + FILE_LENGTH, sizeof found.file_length);
    memcpy(&found.header_length, bytes + HEADER_LENGTH, sizeof found.header_length);
    memcpy(&found.step, bytes + STEP, sizeof found.step);
    memcpy(&found.id, bytes + ID, sizeof found.id);
    memcpy(&found.shard, bytes + SHARD, sizeof found.shard);
    memcpy(&found.num_shards, bytes + NUM_SHARDS, sizeof found.num_shards);
    memcpy(&found.num_records, bytes + NUM_RECORDS, sizeof found.num_records);
    dtrain_status_t status = check_length(path, &found, size);
    if (status == DTRAIN_OK && found.shard >= found.num_shards)
        status = damaged(path, "its shard's number is too high");
    if (status == DTRAIN_OK)
        *head = found;
    return status;
}

dtrain_status_t dt_state_check_sum(const char *path, const uint8_t *header,
                                   const dt_state_head_t *head, uint32_t *sum)
{
    uint32_t stored;
    size_t length = head->header_length - SUM_BYTES;
    memcpy(&stored, header + length, sizeof stored);
    if ((uint32_t)crc32_z(0, header, length) != stored)
        return damaged(path, "the checksum of its header is wrong");
    *sum = stored;
    return DTRAIN_OK;
}

typedef struct cursor {
    const uint8_t *at, *end;
} cursor_t;

/* The next `length` bytes, or NULL past the end. */
static const uint8_t *take(cursor_t *cursor, uint64_t length)
{
    if ((uint64_t)(cursor->end - cursor->at) < length)
        return NULL;
    const uint8_t *bytes = cursor->at;
    cursor->at += length;
    return bytes;
}

static int get(cursor_t *cursor, void *value, size_t length)
{
    const uint8_t *bytes = take(cursor, length);
    if (bytes)
        memcpy(value, bytes, length);
    return bytes != NULL;
}

static int get_name(cursor_t *cursor, const char **name)
{
    uint16_t length;
    if (!get(cursor, &length, sizeof length) || length < 1 || length > DTRAIN_NAME_MAX)
        return 0;
    const uint8_t *bytes = take(cursor, (uint64_t)length + 1);
    if (!bytes || memchr(bytes, 0, (size_t)length + 1) != bytes + length)
        return 0;
    *name = (const char *)bytes;
    return 1;
}

static int get_extent(cursor_t *cursor, dt_state_extent_t *extent)
{
    uint8_t dtype, ndim;
    *extent = (dt_state_extent_t){0};
    if (!get_name(cursor, &extent->name) || !get(cursor, &dtype, sizeof dtype) ||
        !get(cursor, &ndim, sizeof ndim) || ndim > DTRAIN_NDIM_MAX ||
        dt_dtype_size((dtrain_dtype_t)dtype) == 0)
        return 0;
    extent->dtype = (dtrain_dtype_t)dtype;
    extent->ndim = ndim;
    if (!get(cursor, extent->shape, ndim * sizeof *extent->shape) ||
        !get(cursor, &extent->begin, sizeof extent->begin) ||
        !get(cursor, &extent->end, sizeof extent->end))
        return 0;
    int64_t count = dt_state_count(extent->dtype, ndim, extent->shape);
    if (extent->begin < 0 || extent->end < extent->begin || extent->end > count)
        return 0;
    extent->sums = take(cursor, dt_state_chunks(dt_state_bytes(extent)) * SUM_BYTES);
    return extent->sums != NULL;
}

dtrain_status_t dt_state_get_extents(const char *path, const uint8_t *header,
                                     const dt_state_head_t *head, dt_state_extent_t *extents)
{
    cursor_t cursor = {.at = header + DT_STATE_FIXED,
                       .end = header + head->header_length - SUM_BYTES};
    uint64_t offset = head->header_length;
    for (uint32_t i = 0; i < head->num_records; i++) {
        if (!get_extent(&cursor, &extents[i]))
            return damaged(path, "its header makes no sense");
        extents[i].offset = offset;
        if (dt_state_bytes(&extents[i]) > head->file_length - offset)
            return damaged(path, "its data is shorter than its header says");
        offset += dt_state_bytes(&extents[i]);
    }
    if (cursor.at != cursor.end || offset != head->file_length)
        return damaged(path, "its header leaves bytes without a meaning");
    return DTRAIN_OK;
}

void dt_state_get_shard(const uint8_t *header, uint32_t shard, uint64_t *file_length,
                        uint32_t *header_sum)
{
    const uint8_t *record = header + DT_STATE_FIXED + (size_t)shard * SHARD_BYTES;
    memcpy(file_length, record, sizeof *file_length);
    memcpy(header_sum, record + sizeof *file_length, sizeof *header_sum);
}
