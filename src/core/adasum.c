#include "core/adasum.h"

#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "core/operand.h"
#include "reduce/adasum.h"

typedef struct adasum {
    dt_staged_t base;
    const dt_operation_t *operation;
    dt_ranks_t ranks;
    int is_scattered; /* the exchange was begun */
    int stride;       /* of the level under way; 0: none yet */
    int64_t share;    /* elements of this rank's */
    int64_t *counts;  /* 2 * size */
    char *arrived;    /* size shares, as the tensor's type */
    double *vectors;  /* size shares in double; the tree's results take the lower rank's place */
    double *dots;     /* DT_ADASUM_DOTS a pair of the level */
} adasum_t;

static void adasum_free(dt_staged_t *staged)
{
    adasum_t *adasum = (adasum_t *)staged;
    dt_free(adasum->counts);
    dt_free(adasum->arrived);
    dt_free(adasum->vectors);
    dt_free(adasum->dots);
    dt_free(adasum);
}

static dtrain_dtype_t dtype_of(const adasum_t *adasum)
{
    return (dtrain_dtype_t)adasum->operation->signature.dtype;
}

static double *vector(const adasum_t *adasum, int rank)
{
    return adasum->vectors + rank * adasum->share;
}

static void fill(adasum_t *adasum, dt_collective_t *collective, dt_collective_kind_t kind,
                 dtrain_dtype_t dtype, const void *in, void *out, int64_t count)
{
    memset(collective, 0, sizeof *collective);
    collective->kind = kind;
    collective->reduction = (dt_reduction_t){
        .dtype = dtype, .op = DTRAIN_OP_SUM, .divisor = 1, .prescale = 1, .postscale = 1};
    collective->count = count;
    adasum->base.piece = (dt_piece_t){.in = in, .out = out, .count = count};
    collective->pieces = &adasum->base.piece;
    collective->num_pieces = 1;
}

/* Each rank's elements are shared out. */
static void scatter(adasum_t *adasum, dt_collective_t *collective)
{
    int64_t count = adasum->operation->count;
    int size = adasum->ranks.size;
    int64_t received = adasum->share * size;
    fill(adasum, collective, DT_EXCHANGE, dtype_of(adasum), adasum->operation->host_in,
         adasum->arrived, received > count ? received : count);
    for (int rank = 0; rank < size; rank++) {
        adasum->counts[rank] = dt_rows_of(count, size, rank);
        adasum->counts[size + rank] = adasum->share;
    }
    collective->counts = adasum->counts;
    collective->recv_counts = adasum->counts + size;
}

static void load(adasum_t *adasum)
{
    size_t bytes = (size_t)adasum->share * dt_dtype_size(dtype_of(adasum));
    for (int rank = 0; rank < adasum->ranks.size; rank++)
        dt_adasum_load(dtype_of(adasum), adasum->operation->signature.prescale,
                       adasum->arrived + (size_t)rank * bytes, vector(adasum, rank),
                       (size_t)adasum->share);
}

/* A level's pairs are ranks `low` and `low + stride`, for each multiple of 2 * stride that has one:
 * the canonical tree, from below. */
static void combine(adasum_t *adasum)
{
    int stride = adasum->stride, pair = 0;
    for (int low = 0; low + stride < adasum->ranks.size; low += 2 * stride, pair++)
        dt_adasum_combine(vector(adasum, low), vector(adasum, low + stride), (size_t)adasum->share,
                          adasum->dots + pair * DT_ADASUM_DOTS);
}

static int measure(adasum_t *adasum)
{
    int stride = adasum->stride, pair = 0;
    for (int low = 0; low + stride < adasum->ranks.size; low += 2 * stride, pair++)
        dt_adasum_dots(vector(adasum, low), vector(adasum, low + stride), (size_t)adasum->share,
                       adasum->dots + pair * DT_ADASUM_DOTS);
    return pair;
}

/* All ranks collect the shares of the result. */
static void collect(adasum_t *adasum, dt_collective_t *collective)
{
    const dt_operation_t *operation = adasum->operation;
    int size = adasum->ranks.size;
    size_t element = dt_dtype_size(dtype_of(adasum));
    int64_t before = dt_rows_before(operation->count, size, adasum->ranks.rank);
    char *place = (char *)operation->host_out + (size_t)before * element;
    dt_adasum_store(dtype_of(adasum), operation->signature.postscale, vector(adasum, 0), place,
                    (size_t)adasum->share);
    fill(adasum, collective, DT_ALLGATHER, dtype_of(adasum), place, operation->host_out,
         operation->count);
    collective->counts = adasum->counts;
}

static dtrain_status_t adasum_next(dt_staged_t *staged, dt_collective_t *collective,
                                   dt_stage_t *stage)
{
    adasum_t *adasum = (adasum_t *)staged;
    *stage = DT_STAGE_MORE;
    if (!adasum->is_scattered) {
        adasum->is_scattered = 1;
        scatter(adasum, collective);
        return DTRAIN_OK;
    }
    if (adasum->stride == 0) {
        load(adasum);
        adasum->stride = 1;
    } else {
        combine(adasum);
        adasum->stride *= 2;
    }
    if (adasum->stride < adasum->ranks.size) {
        int pairs = measure(adasum);
        fill(adasum, collective, DT_ALLREDUCE, DTRAIN_DTYPE_F64, adasum->dots, adasum->dots,
             (int64_t)pairs * DT_ADASUM_DOTS);
        return DTRAIN_OK;
    }
    *stage = DT_STAGE_LAST;
    collect(adasum, collective);
    return DTRAIN_OK;
}

dt_staged_t *dt_adasum_create(const dt_operation_t *operation, dt_ranks_t ranks)
{
    adasum_t *adasum = dt_calloc(1, sizeof *adasum);
    if (!adasum)
        return NULL;
    size_t size = (size_t)ranks.size;
    adasum->base.next = adasum_next;
    adasum->base.free = adasum_free;
    adasum->operation = operation;
    adasum->ranks = ranks;
    adasum->share = dt_rows_of(operation->count, ranks.size, ranks.rank);
    size_t elements = (size_t)adasum->share * size + 1; /* never nothing */
    adasum->counts = dt_alloc(2 * size * sizeof *adasum->counts);
    adasum->arrived = dt_alloc(elements * dt_dtype_size(dtype_of(adasum)));
    adasum->vectors = dt_alloc(elements * sizeof *adasum->vectors);
    adasum->dots = dt_alloc((size / 2 + 1) * DT_ADASUM_DOTS * sizeof *adasum->dots);
    if (!adasum->counts || !adasum->arrived || !adasum->vectors || !adasum->dots) {
        adasum_free(&adasum->base);
        return NULL;
    }
    return &adasum->base;
}
