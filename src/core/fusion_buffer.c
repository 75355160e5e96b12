#include "core/fusion_buffer.h"

#include <string.h>

#include "base/dtype.h"
#include "base/fault.h"
#include "base/memory.h"

#define ALIGNMENT 4096

static int resize(dt_fusion_buffer_t *buffer, int64_t bytes)
{
    int64_t capacity = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    void *data = dt_alloc_aligned(ALIGNMENT, (size_t)capacity);
    if (!data)
        return -1;
    dt_free(buffer->data);
    buffer->data = data;
    buffer->capacity = capacity;
    return 0;
}

dt_fusion_buffer_t *dt_fusion_acquire(dt_fusion_pool_t *pool, int64_t bytes, int *failed)
{
    *failed = 0;
    for (int i = 0; i < DT_FUSION_BUFFERS; i++) {
        dt_fusion_buffer_t *buffer = &pool->buffers[i];
        if (buffer->in_use)
            continue;
        if (buffer->capacity < bytes && resize(buffer, bytes)) {
            *failed = 1;
            return NULL;
        }
        buffer->in_use = 1;
        return buffer;
    }
    return NULL;
}

void dt_fusion_release(dt_fusion_buffer_t *buffer)
{
    buffer->in_use = 0;
}

void dt_fusion_pool_free(dt_fusion_pool_t *pool)
{
    for (int i = 0; i < DT_FUSION_BUFFERS; i++)
        dt_free(pool->buffers[i].data);
}

void dt_fusion_pack(dt_fusion_buffer_t *buffer, const dt_piece_t *pieces, int n,
                    dt_packing_t packing)
{
    char *at = buffer->data;
    size_t element = dt_dtype_size(packing.packed);
    dt_fault_point(DT_FAULT_PACK);
    for (int i = 0; i < n; i++) {
        size_t count = (size_t)pieces[i].count;
        if (count == 0)
            continue; /* where all are empty, `at` is NULL */
        if (packing.packed == packing.dtype)
            memcpy(at, pieces[i].in, count * element);
        else
            dt_narrow(packing.packed, pieces[i].in, at, count);
        at += count * element;
    }
}

void dt_fusion_unpack(const dt_fusion_buffer_t *buffer, const dt_piece_t *pieces, int n,
                      dt_packing_t packing)
{
    const char *at = buffer->data;
    size_t element = dt_dtype_size(packing.packed);
    dt_fault_point(DT_FAULT_UNPACK);
    for (int i = 0; i < n; i++) {
        size_t count = (size_t)pieces[i].count;
        if (count == 0)
            continue;
        if (packing.packed == packing.dtype)
            memcpy(pieces[i].out, at, count * element);
        else
            dt_widen(packing.packed, at, pieces[i].out, count);
        at += count * element;
    }
}
