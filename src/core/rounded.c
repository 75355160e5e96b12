#include "core/rounded.h"

#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "core/collective.h"
#include "core/fusion_buffer.h"

typedef struct rounded {
    dt_staged_t base;
    dt_operation_t *const *operations;
    int n;
    int64_t count; /* elements of all */
    dtrain_dtype_t dtype;
    dt_piece_t *pieces; /* n */
    dt_fusion_buffer_t buffer;
} rounded_t;

static void rounded_free(dt_staged_t *staged)
{
    rounded_t *rounded = (rounded_t *)staged;
    dt_free(rounded->pieces);
    dt_free(rounded->buffer.data);
    dt_free(rounded);
}

static dt_packing_t packing_of(const rounded_t *rounded)
{
    return (dt_packing_t){.dtype = DTRAIN_DTYPE_F32, .packed = rounded->dtype};
}

static dtrain_status_t rounded_next(dt_staged_t *staged, dt_collective_t *collective,
                                    dt_stage_t *stage)
{
    rounded_t *rounded = (rounded_t *)staged;
    for (int i = 0; i < rounded->n; i++) {
        const dt_operation_t *operation = rounded->operations[i];
        rounded->pieces[i] = (dt_piece_t){
            .in = operation->host_in, .out = operation->host_out, .count = operation->count};
    }
    dt_fusion_pack(&rounded->buffer, rounded->pieces, rounded->n, packing_of(rounded));
    memset(collective, 0, sizeof *collective);
    collective->kind = DT_ALLREDUCE;
    collective->reduction = dt_collective_reduction(rounded->operations[0]);
    collective->reduction.dtype = rounded->dtype;
    collective->count = rounded->count;
    rounded->base.piece = (dt_piece_t){
        .in = rounded->buffer.data, .out = rounded->buffer.data, .count = rounded->count};
    collective->pieces = &rounded->base.piece;
    collective->num_pieces = 1;
    *stage = DT_STAGE_LAST;
    return DTRAIN_OK;
}

static dtrain_status_t rounded_finish(dt_staged_t *staged)
{
    rounded_t *rounded = (rounded_t *)staged;
    dt_fusion_unpack(&rounded->buffer, rounded->pieces, rounded->n, packing_of(rounded));
    return DTRAIN_OK;
}

dt_staged_t *dt_rounded_create(dt_operation_t *const *operations, int n, dtrain_dtype_t dtype)
{
    rounded_t *rounded = dt_calloc(1, sizeof *rounded);
    if (!rounded)
        return NULL;
    rounded->base.next = rounded_next;
    rounded->base.finish = rounded_finish;
    rounded->base.free = rounded_free;
    rounded->operations = operations;
    rounded->n = n;
    rounded->dtype = dtype;
    for (int i = 0; i < n; i++)
        rounded->count += operations[i]->count;
    rounded->pieces = dt_alloc((size_t)n * sizeof *rounded->pieces);
    rounded->buffer.data =
        dt_alloc_aligned(64, (size_t)(rounded->count + 1) * dt_dtype_size(dtype));
    if (!rounded->pieces || !rounded->buffer.data) {
        rounded_free(&rounded->base);
        return NULL;
    }
    return &rounded->base;
}
