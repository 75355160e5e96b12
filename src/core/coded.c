#include "core/coded.h"

#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/fp_mode.h"
#include "base/memory.h"
#include "base/status.h"
#include "core/operand.h"
#include "core/pset_key.h"
#include "core/response_cache.h"

/* Where each encoded share begins. */
#define ALIGNMENT 8

typedef struct tensor {
    const dt_operation_t *operation;
    const dtrain_codec_t *codec;
    dt_codec_t own;          /* that it is, where it is the library's */
    dt_residual_t *residual; /* NULL: without feedback */
} tensor_t;

/* Memory that is kept for the next time. */
typedef struct block {
    void *data;
    size_t bytes;
} block_t;

struct dt_coded {
    dt_staged_t base;
    dt_coding_t *coding;
    dt_coded_t *next; /* spare */
    dt_ranks_t ranks;
    int stage;
    int n;
    block_t tensors; /* n */
    block_t counts;  /* 2 * size: bytes for, then from each rank */
    block_t coded;   /* all shares, by rank: this rank's tensors', then everyone's results */
    block_t arrived; /* this rank's share of each rank's tensors */
    block_t floats;  /* shares of one tensor: size or 3 */
    block_t sources; /* size: the ranks' places in there */
};

static dt_coded_t *coded_of(dt_staged_t *staged)
{
    return (dt_coded_t *)staged;
}

static tensor_t *tensors_of(const dt_coded_t *coded)
{
    return coded->tensors.data;
}

static void recycle(dt_staged_t *staged)
{
    dt_coded_t *coded = coded_of(staged);
    coded->next = coded->coding->spare;
    coded->coding->spare = coded;
}

static void coded_free(dt_coded_t *coded)
{
    dt_free(coded->tensors.data);
    dt_free(coded->counts.data);
    dt_free(coded->coded.data);
    dt_free(coded->arrived.data);
    dt_free(coded->floats.data);
    dt_free(coded->sources.data);
    dt_free(coded);
}

void dt_coding_free(dt_coding_t *coding)
{
    while (coding->spare) {
        dt_coded_t *coded = coding->spare;
        coding->spare = coded->next;
        coded_free(coded);
    }
    dt_residuals_free(&coding->residuals);
}

/* ---- Sizes ---------------------------------------------------------------------------------- */

static int64_t share_of(const dt_coded_t *coded, const tensor_t *tensor, int rank)
{
    return dt_rows_of(tensor->operation->count, coded->ranks.size, rank);
}

static int64_t offset_of(const dt_coded_t *coded, const tensor_t *tensor, int rank)
{
    return dt_rows_before(tensor->operation->count, coded->ranks.size, rank);
}

/* What a share of a tensor takes, with what is left free behind it. */
static size_t coded_bytes(const dt_coded_t *coded, const tensor_t *tensor, int rank)
{
    int64_t bytes = tensor->codec->coded_bytes(tensor->codec, share_of(coded, tensor, rank));
    return ((size_t)bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* The bytes of all tensors' shares for each rank. Returns their sum. */
static size_t fill_counts(const dt_coded_t *coded, int64_t *counts)
{
    size_t total = 0;
    for (int rank = 0; rank < coded->ranks.size; rank++) {
        size_t bytes = 0;
        for (int i = 0; i < coded->n; i++)
            bytes += coded_bytes(coded, &tensors_of(coded)[i], rank);
        counts[rank] = (int64_t)bytes;
        total += bytes;
    }
    return total;
}

/* Elements for what is done with one tensor at a time: the ranks' shares to be added up; the result
 * and what encoding it takes. The first share is the longest. */
static size_t num_floats(const dt_coded_t *coded)
{
    size_t most = 0, vectors = coded->ranks.size > 3 ? (size_t)coded->ranks.size : 3;
    for (int i = 0; i < coded->n; i++) {
        size_t share = (size_t)share_of(coded, &tensors_of(coded)[i], 0);
        most = share > most ? share : most;
    }
    return most * vectors;
}

static int reserve(block_t *block, size_t bytes)
{
    if (block->data && block->bytes >= bytes)
        return 0;
    dt_free(block->data);
    block->bytes = bytes;
    block->data = dt_alloc(bytes + 1); /* never nothing */
    return block->data ? 0 : -1;
}

/* ---- Stages --------------------------------------------------------------------------------- */

/* A share on its way out: its place, and what was left out of it before. */
typedef struct encoding {
    void *out;
    size_t bytes; /* of `out`, with what is left free */
    float *residual;
    float *scratch;
} encoding_t;

static void encode(const tensor_t *tensor, const float *in, int64_t count, encoding_t encoding)
{
    if (encoding.bytes > 0) /* so that what is left free is not whatever was there */
        memset((char *)encoding.out + encoding.bytes - ALIGNMENT, 0, ALIGNMENT);
    if (encoding.residual)
        dt_encode_with_residual(tensor->codec, in, count, encoding.out, encoding.residual,
                                encoding.scratch);
    else
        tensor->codec->encode(tensor->codec, in, count, encoding.out);
}

/* This rank's tensors, share by share. What a rank that has joined puts in has nothing left over
 * to add. */
static void encode_tensors(dt_coded_t *coded)
{
    char *at = coded->coded.data;
    for (int rank = 0; rank < coded->ranks.size; rank++) {
        for (int i = 0; i < coded->n; i++) {
            const tensor_t *tensor = &tensors_of(coded)[i];
            int64_t offset = offset_of(coded, tensor, rank);
            encoding_t encoding = {.out = at,
                                   .bytes = coded_bytes(coded, tensor, rank),
                                   .scratch = coded->floats.data};
            if (tensor->residual && !tensor->operation->stand_in)
                encoding.residual = tensor->residual->tensor + offset;
            encode(tensor, (const float *)tensor->operation->host_in + offset,
                   share_of(coded, tensor, rank), encoding);
            at += encoding.bytes;
        }
    }
}

static dtrain_status_t decode(const dt_coded_t *coded, const tensor_t *tensor, int rank,
                              const void *in, float *out)
{
    int64_t count = share_of(coded, tensor, rank);
    if (tensor->codec->decode(tensor->codec, in, count, out) == 0)
        return DTRAIN_OK;
    char what[DT_KEY_TEXT_MAX];
    const char *key = dt_operation_key(tensor->operation);
    return dt_fail(DTRAIN_ERR_INTERNAL, "allreduce %s: codec %s cannot decode what was encoded",
                   dt_pset_key_describe(key, strlen(key), what, sizeof what), tensor->codec->name);
}

/* Adds up this rank's share of one tensor, into the first of `floats`. Each rank's lies `stride`
 * bytes behind that of the one before. */
static dtrain_status_t add_up(const dt_coded_t *coded, const tensor_t *tensor, const char *arrived,
                              size_t stride)
{
    int64_t share = share_of(coded, tensor, coded->ranks.rank);
    float *vector = coded->floats.data;
    const void **sources = coded->sources.data;
    for (int rank = 0; rank < coded->ranks.size; rank++) {
        dtrain_status_t status = decode(coded, tensor, coded->ranks.rank, arrived, vector);
        if (status != DTRAIN_OK)
            return status;
        sources[rank] = vector;
        vector += share;
        arrived += stride;
    }
    void *result = coded->floats.data;
    dt_reduction_t reduction = dt_collective_reduction(tensor->operation);
    dt_reduce(&reduction, &result, 1, sources, coded->ranks.size, (size_t)share);
    return DTRAIN_OK;
}

/* Reduces what has arrived, and encodes the results at this rank's place. */
static dtrain_status_t reduce(dt_coded_t *coded, char *place)
{
    int me = coded->ranks.rank;
    const char *arrived = coded->arrived.data;
    size_t stride = (size_t)((const int64_t *)coded->counts.data)[me];
    for (int i = 0; i < coded->n; i++) {
        const tensor_t *tensor = &tensors_of(coded)[i];
        int64_t share = share_of(coded, tensor, me);
        dtrain_status_t status = add_up(coded, tensor, arrived, stride);
        if (status != DTRAIN_OK)
            return status;
        encoding_t encoding = {.out = place,
                               .bytes = coded_bytes(coded, tensor, me),
                               .residual = tensor->residual ? tensor->residual->share : NULL,
                               .scratch = (float *)coded->floats.data + share};
        encode(tensor, coded->floats.data, share, encoding);
        place += encoding.bytes;
        arrived += encoding.bytes;
    }
    return DTRAIN_OK;
}

static dtrain_status_t decode_results(const dt_coded_t *coded)
{
    const char *at = coded->coded.data;
    for (int rank = 0; rank < coded->ranks.size; rank++) {
        for (int i = 0; i < coded->n; i++) {
            const tensor_t *tensor = &tensors_of(coded)[i];
            float *out = (float *)tensor->operation->host_out + offset_of(coded, tensor, rank);
            dtrain_status_t status = decode(coded, tensor, rank, at, out);
            if (status != DTRAIN_OK)
                return status;
            at += coded_bytes(coded, tensor, rank);
        }
    }
    return DTRAIN_OK;
}

static dtrain_status_t coded_finish(dt_staged_t *staged)
{
    dt_fp_mode_t mode = dt_fp_mode_enter();
    dtrain_status_t status = decode_results(coded_of(staged));
    dt_fp_mode_leave(mode);
    return status;
}

/* Fills in a collective of bytes. */
static void fill(dt_coded_t *coded, dt_collective_t *collective, dt_collective_kind_t kind,
                 const void *in, void *out)
{
    int64_t *counts = coded->counts.data, total = 0;
    for (int rank = 0; rank < coded->ranks.size; rank++)
        total += counts[rank];
    int64_t received = counts[coded->ranks.size] * coded->ranks.size;
    memset(collective, 0, sizeof *collective);
    collective->kind = kind;
    collective->reduction = (dt_reduction_t){
        .dtype = DTRAIN_DTYPE_U8, .op = DTRAIN_OP_SUM, .divisor = 1, .prescale = 1, .postscale = 1};
    collective->counts = counts;
    collective->count = total;
    if (kind == DT_EXCHANGE) {
        collective->recv_counts = counts + coded->ranks.size;
        collective->count = total > received ? total : received;
    }
    coded->base.piece = (dt_piece_t){.in = in, .out = out, .count = collective->count};
    collective->pieces = &coded->base.piece;
    collective->num_pieces = 1;
}

static dtrain_status_t coded_next(dt_staged_t *staged, dt_collective_t *collective,
                                  dt_stage_t *stage)
{
    dt_coded_t *coded = coded_of(staged);
    dtrain_status_t status = DTRAIN_OK;
    dt_fp_mode_t mode = dt_fp_mode_enter();
    if (coded->stage++ == 0) {
        *stage = DT_STAGE_MORE;
        encode_tensors(coded);
        fill(coded, collective, DT_EXCHANGE, coded->coded.data, coded->arrived.data);
    } else {
        *stage = DT_STAGE_LAST;
        char *place = coded->coded.data;
        for (int rank = 0; rank < coded->ranks.rank; rank++)
            place += ((const int64_t *)coded->counts.data)[rank];
        status = reduce(coded, place);
        fill(coded, collective, DT_ALLGATHER, place, coded->coded.data);
    }
    dt_fp_mode_leave(mode);
    return status;
}

/* ---- Made ready ----------------------------------------------------------------------------- */

static int take_tensor(const dt_coded_t *coded, const dt_operation_t *operation, tensor_t *tensor)
{
    tensor->operation = operation;
    tensor->codec = operation->codec;
    tensor->residual = NULL;
    if (!tensor->codec) {
        if (dt_codec_make(operation->signature.codec, &tensor->own) != DTRAIN_OK)
            return -1; /* never: it was made so when it was submitted */
        tensor->codec = &tensor->own.base;
    }
    if (!(tensor->codec->flags & DTRAIN_CODEC_FEEDBACK))
        return 0;
    tensor->residual = dt_residual_of(&coded->coding->residuals, operation,
                                      share_of(coded, tensor, coded->ranks.rank));
    return tensor->residual ? 0 : -1;
}

static int prepare(dt_coded_t *coded, dt_operation_t *const *operations)
{
    size_t size = (size_t)coded->ranks.size;
    if (reserve(&coded->tensors, (size_t)coded->n * sizeof(tensor_t)) ||
        reserve(&coded->counts, 2 * size * sizeof(int64_t)) ||
        reserve(&coded->sources, size * sizeof(void *)))
        return -1;
    for (int i = 0; i < coded->n; i++) {
        if (take_tensor(coded, operations[i], &tensors_of(coded)[i]))
            return -1;
    }
    int64_t *counts = coded->counts.data;
    size_t total = fill_counts(coded, counts);
    for (size_t rank = 0; rank < size; rank++)
        counts[size + rank] = counts[coded->ranks.rank];
    if (reserve(&coded->coded, total) ||
        reserve(&coded->arrived, size * (size_t)counts[coded->ranks.rank]) ||
        reserve(&coded->floats, num_floats(coded) * sizeof(float)))
        return -1;
    return 0;
}

dt_staged_t *dt_coded_create(dt_coding_t *coding, dt_operation_t *const *operations, int n,
                             dt_ranks_t ranks)
{
    dt_coded_t *coded = coding->spare;
    if (coded)
        coding->spare = coded->next;
    else
        coded = dt_calloc(1, sizeof *coded);
    if (!coded)
        return NULL;
    coded->base.next = coded_next;
    coded->base.finish = coded_finish;
    coded->base.free = recycle;
    coded->coding = coding;
    coded->ranks = ranks;
    coded->stage = 0;
    coded->n = n;
    if (prepare(coded, operations)) {
        recycle(&coded->base);
        return NULL;
    }
    return &coded->base;
}

/* ---- Submission ----------------------------------------------------------------------------- */

dtrain_dtype_t dt_coded_cast(const dt_operation_t *operation)
{
    dt_codec_t own;
    if (!operation->signature.codec[0] || operation->codec ||
        dt_codec_make(operation->signature.codec, &own) != DTRAIN_OK)
        return (dtrain_dtype_t)0;
    return own.cast;
}

static dtrain_status_t check_use(const dt_signature_t *signature, const char *codec,
                                 const char *name)
{
    const char *kind = dt_kind_name(signature->kind);
    if (signature->kind != DT_KIND_ALLREDUCE)
        return dt_fail(DTRAIN_ERR_UNSUPPORTED, "%s '%.200s': codec %s: codecs are for allreduces",
                       kind, name, codec);
    if (signature->dtype != DTRAIN_DTYPE_F32)
        return dt_fail(DTRAIN_ERR_UNSUPPORTED, "%s '%.200s': codec %s: of float32, not of %s", kind,
                       name, codec, dt_dtype_name((dtrain_dtype_t)signature->dtype));
    if (signature->op != DTRAIN_OP_SUM && signature->op != DTRAIN_OP_AVERAGE)
        return dt_fail(DTRAIN_ERR_UNSUPPORTED,
                       "%s '%.200s': codec %s: for sum and average, not for %s", kind, name, codec,
                       dt_op_name((dtrain_op_t)signature->op));
    return DTRAIN_OK;
}

dtrain_status_t dt_coded_describe(dt_operation_t *operation, const dtrain_codec_t *codec,
                                  const char *name)
{
    dt_signature_t *signature = &operation->signature;
    const char *kind = dt_kind_name(signature->kind);
    dtrain_status_t status = dt_codec_check(codec);
    if (status != DTRAIN_OK) {
        char why[DT_ERROR_MAX];
        snprintf(why, sizeof why, "%s", dt_last_error());
        return dt_fail(status, "%s '%.200s': %.700s", kind, name, why);
    }
    status = check_use(signature, codec->name, name);
    if (status != DTRAIN_OK)
        return status;
    int64_t bytes = codec->coded_bytes(codec, operation->count);
    if (bytes < 0)
        return dt_fail(DTRAIN_ERR_UNSUPPORTED, "%s '%.200s': codec %s: not for so many elements",
                       kind, name, codec->name);
    memcpy(signature->codec, codec->name, strlen(codec->name));
    signature->coded_bytes = bytes;
    operation->codec = dt_codec_is_own(codec->name) ? NULL : codec;
    return DTRAIN_OK;
}
