/* fusion_buffer.h - small tensors packed behind each other into one buffer, and back. A few
 * buffers, so that one bucket is packed while another is reduced. */
#ifndef DT_CORE_FUSION_BUFFER_H
#define DT_CORE_FUSION_BUFFER_H

#include <stddef.h>
#include <stdint.h>

#include "comm/backend.h"

#define DT_FUSION_BUFFERS 3

typedef struct dt_fusion_buffer {
    void *data;
    int64_t capacity; /* bytes */
    int in_use;
} dt_fusion_buffer_t;

typedef struct dt_fusion_pool {
    dt_fusion_buffer_t buffers[DT_FUSION_BUFFERS];
} dt_fusion_pool_t;

/* A buffer of at least `bytes`, or NULL: all are in use (*failed 0) or memory ran out (1). */
dt_fusion_buffer_t *dt_fusion_acquire(dt_fusion_pool_t *pool, int64_t bytes, int *failed);
void dt_fusion_release(dt_fusion_buffer_t *buffer);
void dt_fusion_pool_free(dt_fusion_pool_t *pool);

/* What the tensors are, and what they are in the buffer: the same, or 16 bits of F32. */
typedef struct dt_packing {
    dtrain_dtype_t dtype, packed;
} dt_packing_t;

/* Copies the pieces' inputs into the buffer; the buffer into the pieces' outputs. */
void dt_fusion_pack(dt_fusion_buffer_t *buffer, const dt_piece_t *pieces, int n,
                    dt_packing_t packing);
void dt_fusion_unpack(const dt_fusion_buffer_t *buffer, const dt_piece_t *pieces, int n,
                      dt_packing_t packing);

#endif
