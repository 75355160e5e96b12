/*
 * state_format.h - what a file of training state looks like, and the codec of its header. Any bytes
 * may be fed to the decoder.
 *
 * Little-endian, without padding:
 *
 *     header   "DTRNSTAT", u32 version, u32 kind, u64 bytes of the file, u64 bytes of the header,
 *              i64 step, u64 id, u32 shard, u32 shards, u32 records; the records; u32 CRC-32 of the
 *              header up to here
 *     data     the extents' elements, one extent after the other
 *
 * A DATA file has a record for each extent, which is a range of a tensor's elements: u16 length of
 * the name, the name and a zero, u8 type, u8 dimensions, i64 for each dimension, i64 begin, i64
 * end, and the CRC-32 of each DT_STATE_CHUNK bytes of it. An INDEX file has no data, and a record
 * for each DATA file of the save: u64 bytes of the file, u32 CRC-32 of its header.
 */
#ifndef DT_OPTIM_STATE_FORMAT_H
#define DT_OPTIM_STATE_FORMAT_H

#include <stddef.h>
#include <stdint.h>

#include <dtrain/dtrain.h>

#include "base/buffer.h"

#define DT_STATE_VERSION 1
#define DT_STATE_CHUNK 1048576 /* bytes */
#define DT_STATE_FIXED 60      /* bytes of a header before its records */

typedef enum dt_state_kind { DT_STATE_DATA = 1, DT_STATE_INDEX = 2 } dt_state_kind_t;

typedef struct dt_state_head {
    dt_state_kind_t kind;
    uint64_t file_length;
    uint64_t header_length;
    int64_t step;
    uint64_t id;
    uint32_t shard, num_shards;
    uint32_t num_records;
} dt_state_head_t;

/* Part of a tensor. Read from a header, name and sums point into it. */
typedef struct dt_state_extent {
    const char *name;
    dtrain_dtype_t dtype;
    int32_t ndim;
    int64_t shape[DTRAIN_NDIM_MAX];
    int64_t begin, end;  /* elements */
    uint64_t offset;     /* of its data in the file */
    const uint8_t *sums; /* a u32 for each chunk, at any alignment */
} dt_state_extent_t;

/* Elements of a shape; -1 when a dimension is negative or the bytes would not fit into 2^62. */
int64_t dt_state_count(dtrain_dtype_t dtype, int ndim, const int64_t *shape);

uint64_t dt_state_bytes(const dt_state_extent_t *extent); /* of its data */
uint64_t dt_state_chunks(uint64_t bytes);
uint32_t dt_state_sum(const dt_state_extent_t *extent, uint64_t chunk);

/*
 * Writing: begin, one call a record, end; lengths, the number of records and the checksum are
 * filled in at the end. The buffer's `failed` tells whether memory ran out.
 */
void dt_state_put_begin(dt_buffer_t *header, const dt_state_head_t *head);
void dt_state_put_extent(dt_buffer_t *header, const dt_state_extent_t *extent, const void *data);
void dt_state_put_shard(dt_buffer_t *header, uint64_t file_length, uint32_t header_sum);
void dt_state_put_end(dt_buffer_t *header, uint32_t num_records, uint64_t data_length);

/* Reads the DT_STATE_FIXED first bytes of a file of `size` bytes: OK when it is of this version and
 * the lengths agree. `path` is for the texts, here and below. */
dtrain_status_t dt_state_get_head(const char *path, const uint8_t *bytes, uint64_t size,
                                  dt_state_head_t *head);

/* Checks the whole header, `header_length` bytes, against its checksum, which it gives out. */
dtrain_status_t dt_state_check_sum(const char *path, const uint8_t *header,
                                   const dt_state_head_t *head, uint32_t *sum);

/* Decodes the records of a DATA file; `extents` has room for num_records, which is in proportion to
 * the header's length. */
dtrain_status_t dt_state_get_extents(const char *path, const uint8_t *header,
                                     const dt_state_head_t *head, dt_state_extent_t *extents);

/* What an INDEX says of a shard; its length was checked by dt_state_get_head. */
void dt_state_get_shard(const uint8_t *header, uint32_t shard, uint64_t *file_length,
                        uint32_t *header_sum);

#endif
