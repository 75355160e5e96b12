#include "core/sparse.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "core/gpu.h"
#include "core/stand_in.h"

/* Rows in memory: indices in rising order, and behind them their values. */
typedef struct rows {
    int64_t *indices;
    char *values;
    int64_t count;
} rows_t;

static size_t row_bytes_of(const dt_signature_t *signature)
{
    return (size_t)dt_signature_row_count(signature) *
           dt_dtype_size((dtrain_dtype_t)signature->dtype);
}

/* Bytes of a block of so many rows, whole indices; -1: too many. */
static int64_t block_bytes(int64_t count, size_t row_bytes)
{
    int64_t bytes;
    if (__builtin_mul_overflow(count, (int64_t)(row_bytes + sizeof(int64_t)), &bytes) ||
        bytes > INT64_MAX - (int64_t)sizeof(int64_t))
        return -1;
    int64_t unit = sizeof(int64_t);
    return (bytes + unit - 1) / unit * unit;
}

static rows_t rows_at(void *block, int64_t count)
{
    rows_t rows = {.indices = block,
                   .values = (char *)block + (size_t)count * sizeof(int64_t),
                   .count = count};
    return rows;
}

static dt_reduction_t plain_sum(const dt_signature_t *signature)
{
    dt_reduction_t sum = {.dtype = (dtrain_dtype_t)signature->dtype,
                          .op = DTRAIN_OP_SUM,
                          .divisor = 1,
                          .prescale = 1,
                          .postscale = 1};
    return sum;
}

/* ---- Submission ----------------------------------------------------------------------------- */

/* A row as the caller gave it. */
typedef struct given {
    int64_t index, place;
} given_t;

static int by_index(const void *left, const void *right)
{
    const given_t *a = left, *b = right;
    if (a->index != b->index)
        return a->index < b->index ? -1 : 1;
    return a->place < b->place ? -1 : 1;
}

static dtrain_status_t check(const dt_signature_t *signature, const dt_submission_t *submission)
{
    const dtrain_tensor_t *tensor = submission->tensor;
    const char *kind = dt_kind_name(signature->kind);
    if (signature->op != DTRAIN_OP_SUM && signature->op != DTRAIN_OP_AVERAGE)
        return dt_fail(DTRAIN_ERR_UNSUPPORTED, "%s '%.200s': for sum and average, not for %s", kind,
                       tensor->name, dt_op_name((dtrain_op_t)signature->op));
    if (submission->nnz < 0)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "%s '%.200s': nnz is %" PRId64, kind,
                       tensor->name, submission->nnz);
    int needs_values = submission->nnz > 0 && row_bytes_of(signature) > 0;
    if ((submission->nnz > 0 && !submission->indices) || (needs_values && !tensor->in))
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "%s '%.200s': the %s are NULL, and nnz is %" PRId64, kind, tensor->name,
                       submission->indices ? "values" : "indices", submission->nnz);
    return DTRAIN_OK;
}

static dtrain_status_t check_indices(const dt_signature_t *signature,
                                     const dt_submission_t *submission)
{
    const dtrain_tensor_t *tensor = submission->tensor;
    const char *kind = dt_kind_name(signature->kind);
    for (int64_t i = 0; i < submission->nnz; i++) {
        int64_t index = submission->indices[i];
        if (index < 0 || index >= signature->shape[0])
            return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                           "%s '%.200s': index %" PRId64 " at place %" PRId64
                           ", and the tensor has %" PRId64 " rows",
                           kind, tensor->name, index, i, signature->shape[0]);
    }
    return DTRAIN_OK;
}

/* Copies the rows to `rows` in the order of `given`, those of one index added up along the tree.
 * `sources` is scratch. Returns how many indices there are. */
static int64_t combine(const dt_signature_t *signature, const given_t *given, int64_t count,
                       const char *values, rows_t rows, const void **sources)
{
    size_t row_bytes = row_bytes_of(signature);
    dt_reduction_t sum = plain_sum(signature);
    int64_t made = 0;
    for (int64_t first = 0, end; first < count; first = end, made++) {
        for (end = first; end < count && given[end].index == given[first].index; end++)
            sources[end - first] = values + (size_t)given[end].place * row_bytes;
        void *to = rows.values + (size_t)made * row_bytes;
        rows.indices[made] = given[first].index;
        dt_reduce(&sum, &to, 1, sources, (int)(end - first),
                  (size_t)dt_signature_row_count(signature));
    }
    return made;
}

/* Sorts and combines the caller's rows into the operation's own block. */
static dtrain_status_t take_rows(dt_operation_t *operation, const dt_submission_t *submission,
                                 int64_t *count)
{
    const dt_signature_t *signature = &operation->signature;
    int64_t nnz = submission->nnz;
    size_t row_bytes = row_bytes_of(signature);
    int64_t bytes = block_bytes(nnz, row_bytes);
    given_t *given = dt_alloc((size_t)(nnz + 1) * sizeof *given);
    const void **sources = dt_alloc((size_t)(nnz + 1) * sizeof *sources);
    operation->sparse->own = bytes < 0 ? NULL : dt_output_alloc(bytes + 1);
    operation->owned = operation->sparse->own;
    dtrain_status_t status = DTRAIN_OK;
    if (!given || !sources || !operation->owned || nnz > INT32_MAX) {
        status = dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for %" PRId64 " rows of '%.200s'",
                         nnz, submission->tensor->name);
    } else {
        for (int64_t i = 0; i < nnz; i++)
            given[i] = (given_t){.index = submission->indices[i], .place = i};
        qsort(given, (size_t)nnz, sizeof *given, by_index);
        rows_t rows = rows_at(operation->owned->data, nnz);
        *count = combine(signature, given, nnz, submission->tensor->in, rows, sources);
        /* With fewer indices the values begin earlier. */
        memmove(rows_at(operation->owned->data, *count).values, rows.values,
                (size_t)*count * row_bytes);
    }
    dt_free(given);
    dt_free(sources);
    return status;
}

/* Of a call whose rows are in host memory. */
static dtrain_status_t fill(dt_operation_t *operation, const dt_submission_t *submission, int size)
{
    dtrain_status_t status = check_indices(&operation->signature, submission);
    if (status != DTRAIN_OK)
        return status;
    operation->splits = dt_calloc(2 * (size_t)size, sizeof *operation->splits);
    operation->num_splits = size;
    operation->sparse = dt_calloc(1, sizeof *operation->sparse);
    if (!operation->splits || !operation->sparse)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for '%.200s'",
                       submission->tensor->name);
    int64_t count = 0;
    status = take_rows(operation, submission, &count);
    for (int rank = 0; rank < size; rank++)
        operation->splits[rank] = count;
    operation->count = count * dt_signature_row_count(&operation->signature);
    operation->bytes = count * (int64_t)row_bytes_of(&operation->signature);
    return status;
}

/* Puts the call before the thread's last error. */
static dtrain_status_t add_name(dtrain_status_t status, const dt_operation_t *operation,
                                const char *name)
{
    char why[DT_ERROR_MAX];
    snprintf(why, sizeof why, "%s", dt_last_error());
    return dt_fail(status, "%s '%.200s': %.700s", dt_kind_name(operation->signature.kind), name,
                   why);
}

/* Of rows on a GPU: copies them to host memory first. */
static dtrain_status_t fill_from_gpu(dt_operation_t *operation, const dt_submission_t *submission,
                                     int size)
{
    const dtrain_tensor_t *tensor = submission->tensor;
    size_t nnz = (size_t)submission->nnz, row_bytes = row_bytes_of(&operation->signature);
    dt_submission_t copied = *submission;
    dtrain_tensor_t values = *tensor;
    void *host_indices = NULL, *host_values = NULL;
    if (block_bytes(submission->nnz, row_bytes) < 0)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for %zu rows", nnz);
    dtrain_status_t status = dt_gpu_fetch(operation->gpu, tensor->stream, submission->indices,
                                          nnz * sizeof(int64_t), &host_indices);
    if (status == DTRAIN_OK)
        status =
            dt_gpu_fetch(operation->gpu, tensor->stream, tensor->in, nnz * row_bytes, &host_values);
    values.in = host_values;
    copied.tensor = &values;
    copied.indices = host_indices;
    if (status == DTRAIN_OK)
        status = fill(operation, &copied, size);
    else
        status = add_name(status, operation, tensor->name);
    dt_free(host_indices);
    dt_free(host_values);
    return status;
}

dtrain_status_t dt_sparse_fill(dt_operation_t *operation, const dt_submission_t *submission,
                               int size)
{
    dtrain_status_t status = check(&operation->signature, submission);
    if (status != DTRAIN_OK)
        return status;
    return operation->gpu ? fill_from_gpu(operation, submission, size)
                          : fill(operation, submission, size);
}

/* ---- Sizes ---------------------------------------------------------------------------------- */

/* Bytes of everyone's blocks, and their rows; -1: too many. */
static int64_t add_up(const dt_operation_t *operation, dt_ranks_t ranks, int64_t *rows)
{
    int64_t total = 0;
    *rows = 0;
    for (int rank = 0; rank < ranks.size; rank++) {
        int64_t count = operation->splits[ranks.size + rank];
        int64_t bytes = block_bytes(count, row_bytes_of(&operation->signature));
        if (bytes < 0 || __builtin_add_overflow(total, bytes, &total))
            return -1;
        *rows += count;
    }
    return total;
}

/* Puts it at the head of what the operation has. */
static void own(dt_operation_t *operation, dt_output_t *output)
{
    if (!output)
        return;
    output->next = operation->owned;
    operation->owned = output;
}

int dt_sparse_arrange(dt_operation_t *operation, dt_ranks_t ranks, int64_t *needed)
{
    dt_sparse_t *sparse = operation->sparse;
    const dt_signature_t *signature = &operation->signature;
    int64_t rows, all_bytes = add_up(operation, ranks, &rows);
    int64_t dense_bytes =
        dt_signature_count(signature) * (int64_t)dt_dtype_size((dtrain_dtype_t)signature->dtype);
    *needed = all_bytes;
    if (all_bytes < 0 || rows == 0 || dense_bytes == 0)
        return 0;
    sparse->is_dense = all_bytes >= dense_bytes;
    int64_t out_bytes = block_bytes(rows, row_bytes_of(signature));
    if (sparse->is_dense)
        *needed = out_bytes = dense_bytes;
    else
        sparse->all = dt_output_alloc(all_bytes);
    out_bytes += (int64_t)sizeof(int64_t);
    dt_output_t *out = dt_output_alloc(out_bytes);
    if (operation->gpu)
        sparse->out = dt_output_alloc_on(operation->gpu, NULL, out_bytes);
    own(operation, sparse->all);
    own(operation, sparse->out);
    own(operation, out);
    return out && (sparse->is_dense || sparse->all) && (sparse->out || !operation->gpu) ? 0 : -1;
}

/* ---- Carrying it out ------------------------------------------------------------------------ */

typedef struct task {
    dt_staged_t base;
    dt_operation_t *operation;
    dt_ranks_t ranks;
    int64_t *counts;      /* size: bytes of each rank's block */
    const void **sources; /* size: its row, or zeros */
    rows_t *blocks;       /* size: its rows that are not merged yet */
    char *zeros;          /* a row that changes nothing */
} task_t;

static void task_free(dt_staged_t *staged)
{
    task_t *task = (task_t *)staged;
    dt_free(task->counts);
    dt_free(task->sources);
    dt_free(task->blocks);
    dt_free(task->zeros);
    dt_free(task);
}

static void fill_zeros(const dt_operation_t *operation, void *memory, int64_t count)
{
    const dt_signature_t *signature = &operation->signature;
    dt_identity_fill(memory, count, (dtrain_dtype_t)signature->dtype, (dtrain_op_t)signature->op,
                     signature->prescale);
}

/* Writes this rank's rows into a tensor of zeros. */
static void make_dense(const dt_operation_t *operation)
{
    const dt_signature_t *signature = &operation->signature;
    size_t row_bytes = row_bytes_of(signature);
    char *dense = operation->owned->data;
    rows_t rows = rows_at(operation->sparse->own->data, operation->splits[0]);
    fill_zeros(operation, dense, dt_signature_count(signature));
    for (int64_t i = 0; i < rows.count; i++)
        memcpy(dense + (size_t)rows.indices[i] * row_bytes, rows.values + (size_t)i * row_bytes,
               row_bytes);
}

static dtrain_status_t task_next(dt_staged_t *staged, dt_collective_t *collective,
                                 dt_stage_t *stage)
{
    task_t *task = (task_t *)staged;
    dt_operation_t *operation = task->operation;
    memset(collective, 0, sizeof *collective);
    *stage = DT_STAGE_LAST;
    if (operation->sparse->is_dense) {
        make_dense(operation);
        collective->kind = DT_ALLREDUCE;
        collective->reduction = dt_collective_reduction(operation);
        collective->count = dt_signature_count(&operation->signature);
        task->base.piece.in = task->base.piece.out = operation->owned->data;
    } else {
        collective->kind = DT_ALLGATHER;
        collective->reduction = plain_sum(&operation->signature);
        collective->reduction.dtype = DTRAIN_DTYPE_U8;
        collective->counts = task->counts;
        for (int rank = 0; rank < task->ranks.size; rank++)
            collective->count += task->counts[rank];
        task->base.piece.in = operation->sparse->own->data;
        task->base.piece.out = operation->sparse->all->data;
    }
    task->base.piece.count = collective->count;
    collective->pieces = &task->base.piece;
    collective->num_pieces = 1;
    return DTRAIN_OK;
}

/* The smallest index that is left in any block; -1: none is. */
static int64_t lowest_index(const task_t *task)
{
    int64_t lowest = -1;
    for (int rank = 0; rank < task->ranks.size; rank++) {
        const rows_t *block = &task->blocks[rank];
        if (block->count > 0 && (lowest < 0 || block->indices[0] < lowest))
            lowest = block->indices[0];
    }
    return lowest;
}

/* Lists each rank's row of an index, or zeros, and passes over it. */
static void take_row(task_t *task, int64_t index, size_t row_bytes)
{
    for (int rank = 0; rank < task->ranks.size; rank++) {
        rows_t *block = &task->blocks[rank];
        task->sources[rank] = task->zeros;
        if (block->count == 0 || block->indices[0] != index)
            continue;
        task->sources[rank] = block->values;
        block->indices++;
        block->values += row_bytes;
        block->count--;
    }
}

/* Adds up everyone's rows into the output: values, and behind them the indices. */
static void merge(task_t *task)
{
    dt_operation_t *operation = task->operation;
    size_t row_bytes = row_bytes_of(&operation->signature);
    size_t row_count = (size_t)dt_signature_row_count(&operation->signature);
    dt_reduction_t reduction = dt_collective_reduction(operation);
    char *at = operation->sparse->all->data;
    int64_t most = 0, made = 0;
    for (int rank = 0; rank < task->ranks.size; rank++) {
        task->blocks[rank] = rows_at(at, operation->splits[task->ranks.size + rank]);
        most += task->blocks[rank].count;
        at += task->counts[rank];
    }
    size_t unit = sizeof(int64_t), values_bytes = (size_t)most * row_bytes;
    char *values = operation->owned->data;
    int64_t *indices = (int64_t *)(values + (values_bytes + unit - 1) / unit * unit);
    for (int64_t index; (index = lowest_index(task)) >= 0; made++) {
        void *to = values + (size_t)made * row_bytes;
        take_row(task, index, row_bytes);
        dt_reduce(&reduction, &to, 1, task->sources, task->ranks.size, row_count);
        indices[made] = index;
    }
    operation->out_rows = made;
    operation->out_indices = indices;
}

static dtrain_status_t task_finish(dt_staged_t *staged)
{
    task_t *task = (task_t *)staged;
    dt_operation_t *operation = task->operation;
    operation->out = operation->owned->data;
    if (operation->sparse->is_dense)
        operation->out_rows = operation->signature.shape[0];
    else
        merge(task);
    /* The output stays, and its place on a GPU behind it; the rest is needed no more. */
    dt_output_t *last = operation->sparse->out ? operation->sparse->out : operation->owned;
    dt_output_free(last->next);
    last->next = NULL;
    operation->sparse->own = operation->sparse->all = NULL;
    return DTRAIN_OK;
}

void *dt_sparse_place(const dt_operation_t *operation, const void **from, size_t *bytes)
{
    const char *values = operation->out, *indices = (const char *)operation->out_indices;
    *from = values;
    *bytes = indices ? (size_t)(indices - values) + (size_t)operation->out_rows * sizeof(int64_t)
                     : (size_t)operation->out_rows * row_bytes_of(&operation->signature);
    return operation->sparse->out->memory;
}

void dt_sparse_move(dt_operation_t *operation)
{
    dt_output_t *host = operation->owned, *out = operation->sparse->out;
    char *memory = out->memory;
    if (operation->out_indices)
        operation->out_indices =
            (const int64_t *)(memory + ((const char *)operation->out_indices - host->data));
    operation->out = memory;
    operation->owned = out;
    host->next = NULL;
    dt_output_free(host);
}

dt_staged_t *dt_sparse_create(dt_operation_t *operation, dt_ranks_t ranks)
{
    task_t *task = dt_calloc(1, sizeof *task);
    if (!task)
        return NULL;
    size_t row_bytes = row_bytes_of(&operation->signature), size = (size_t)ranks.size;
    task->base.next = task_next;
    task->base.finish = task_finish;
    task->base.free = task_free;
    task->operation = operation;
    task->ranks = ranks;
    task->counts = dt_alloc(size * sizeof *task->counts);
    task->sources = dt_alloc(size * sizeof *task->sources);
    task->blocks = dt_alloc(size * sizeof *task->blocks);
    task->zeros = dt_alloc(row_bytes + 1);
    if (!task->counts || !task->sources || !task->blocks || !task->zeros) {
        task_free(&task->base);
        return NULL;
    }
    for (size_t rank = 0; rank < size; rank++)
        task->counts[rank] = block_bytes(operation->splits[size + rank], row_bytes);
    fill_zeros(operation, task->zeros, dt_signature_row_count(&operation->signature));
    return &task->base;
}
