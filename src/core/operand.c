#include "core/operand.h"

#include <inttypes.h>
#include <stddef.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"

int64_t dt_rows_of(int64_t rows, int size, int rank)
{
    return rows / size + (rank < rows % size);
}

int64_t dt_rows_before(int64_t rows, int size, int rank)
{
    int64_t longer = rows % size;
    return rank * (rows / size) + (rank < longer ? rank : longer);
}

int dt_overlap(const void *a, int64_t a_bytes, const void *b, int64_t b_bytes)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    if (a_bytes <= 0 || b_bytes <= 0)
        return 0;
    return x < y ? y - x < (uintptr_t)a_bytes : x - y < (uintptr_t)b_bytes;
}

/* What this rank reads and writes, in bytes. */
typedef struct extent {
    int64_t in, out;
    int64_t place; /* of the output in the input, in place; negative where it is the other way */
} extent_t;

static int64_t element_bytes(const dt_operation_t *operation)
{
    return (int64_t)dt_dtype_size((dtrain_dtype_t)operation->signature.dtype);
}

static extent_t find_extent(const dt_operation_t *operation, int rank, int size)
{
    const dt_signature_t *signature = &operation->signature;
    int is_root = operation->root == rank;
    extent_t extent = {.in = operation->bytes, .out = operation->bytes};
    int64_t row_bytes = 0;
    if (dt_kind_traits(signature->kind)->deals_rows)
        row_bytes = dt_signature_row_count(signature) * element_bytes(operation);
    switch ((dt_kind_t)signature->kind) {
    case DT_KIND_ALLGATHER:
    case DT_KIND_ALLTOALL:
    case DT_KIND_GATHER:
        extent.out = 0; /* not known yet */
        break;
    case DT_KIND_REDUCE:
        extent.out = is_root ? operation->bytes : 0;
        break;
    case DT_KIND_REDUCESCATTER:
    case DT_KIND_SCATTER:
        extent.out = dt_rows_of(signature->shape[0], size, rank) * row_bytes;
        extent.place = dt_rows_before(signature->shape[0], size, rank) * row_bytes;
        if (signature->kind == DT_KIND_SCATTER && !is_root)
            extent.in = 0;
        break;
    case DT_KIND_COLLECT:
        extent.in = dt_rows_of(signature->shape[0], size, rank) * row_bytes;
        extent.place = -dt_rows_before(signature->shape[0], size, rank) * row_bytes;
        break;
    case DT_KIND_TRANSFER:
        extent.in = is_root ? operation->bytes : 0;
        extent.out = is_root ? 0 : operation->bytes;
        break;
    case DT_KIND_ALLREDUCE:
    case DT_KIND_BROADCAST:
    case DT_KIND_BARRIER:
    case DT_KIND_JOIN:
    case DT_KIND_PSET_ADD:
    case DT_KIND_PSET_REMOVE:
    case DT_KIND_SPARSE:
        break;
    }
    return extent;
}

static int64_t room_of(const dtrain_tensor_t *tensor)
{
    size_t end = offsetof(dtrain_tensor_t, out_bytes) + sizeof tensor->out_bytes;
    return tensor->struct_size >= end ? tensor->out_bytes : 0;
}

/* This rank has none, whatever the caller gave. */
static void drop_output(dt_operation_t *operation)
{
    operation->out = NULL;
    operation->room = 0;
}

/* The buffers, without those that this rank does not use. */
static void take_buffers(dt_operation_t *operation, const dtrain_tensor_t *tensor, int rank)
{
    int is_root = operation->root == rank;
    operation->in = tensor->in;
    operation->out = tensor->out;
    operation->room = room_of(tensor);
    switch ((dt_kind_t)operation->signature.kind) {
    case DT_KIND_BROADCAST: /* one buffer may stand for both */
        if (!is_root || !operation->in)
            operation->in = operation->out;
        if (!operation->out)
            operation->out = (void *)operation->in;
        break;
    case DT_KIND_REDUCE:
    case DT_KIND_GATHER:
        if (!is_root)
            drop_output(operation);
        break;
    case DT_KIND_SCATTER:
        if (!is_root)
            operation->in = NULL;
        break;
    case DT_KIND_TRANSFER:
        if (is_root)
            drop_output(operation);
        else
            operation->in = NULL;
        break;
    default:
        break;
    }
}

static dtrain_status_t provide_output(dt_operation_t *operation, const char *name, int64_t bytes)
{
    operation->owned = dt_output_alloc_on(operation->gpu, operation->in, bytes);
    if (!operation->owned)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY,
                       "%s '%.200s': no memory for an output of %" PRId64 " bytes",
                       dt_kind_name(operation->signature.kind), name, bytes);
    operation->out = operation->owned->memory;
    return DTRAIN_OK;
}

static dtrain_status_t check_buffers(dt_operation_t *operation, const char *name,
                                     const extent_t *extent)
{
    const dt_kind_traits_t *traits = dt_kind_traits(operation->signature.kind);
    if (extent->out > 0 && !operation->out && operation->room == 0 && traits->deals_rows) {
        dtrain_status_t status = provide_output(operation, name, extent->out);
        if (status != DTRAIN_OK)
            return status;
    }
    if (!operation->out && operation->room > 0)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "%s '%.200s': the output buffer is NULL, and out_bytes is %" PRId64,
                       traits->name, name, operation->room);
    int needs_input = extent->in > 0 && !operation->in;
    if (needs_input || (extent->out > 0 && !operation->out))
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "%s '%.200s': the %s buffer is NULL, and the tensor has %" PRId64
                       " elements",
                       traits->name, name, needs_input ? "input" : "output", operation->count);
    if (!traits->rows_differ && !operation->owned && operation->room > 0 &&
        operation->room < extent->out)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "%s '%.200s': the output has room for %" PRId64 " bytes, and needs %" PRId64,
                       traits->name, name, operation->room, extent->out);
    const char *place = (const char *)operation->in + (operation->in ? extent->place : 0);
    int is_in_place = place == operation->out && operation->signature.kind != DT_KIND_SCATTER;
    if (!is_in_place && dt_overlap(operation->in, extent->in, operation->out, extent->out))
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "%s '%.200s': input and output overlap without being the same", traits->name,
                       name);
    return DTRAIN_OK;
}

/* The rows that go to each rank, before those that are to come from each. */
static dtrain_status_t fill_splits(dt_operation_t *operation, const dt_submission_t *submission,
                                   int64_t rows, int size)
{
    const char *name = submission->tensor->name;
    operation->splits = dt_calloc(2 * (size_t)size, sizeof *operation->splits);
    operation->num_splits = size;
    if (!operation->splits)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for '%.200s'", name);
    for (int rank = 0; rank < size; rank++)
        operation->splits[rank] = rows;
    if (operation->signature.kind != DT_KIND_ALLTOALL)
        return DTRAIN_OK;
    if (!submission->splits) {
        if (rows % size != 0)
            return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                           "alltoall '%.200s': %" PRId64 " rows cannot be shared out evenly over "
                           "%d ranks, and no splits are given",
                           name, rows, size);
        for (int rank = 0; rank < size; rank++)
            operation->splits[rank] = rows / size;
        return DTRAIN_OK;
    }
    if (submission->num_splits != size)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "alltoall '%.200s': %d splits for %d ranks",
                       name, submission->num_splits, size);
    int64_t left = rows;
    for (int rank = 0; rank < size; rank++) {
        int64_t split = submission->splits[rank];
        if (split < 0 || split > left)
            return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                           "alltoall '%.200s': the split for rank %d is %" PRId64 ", with %" PRId64
                           " of %" PRId64 " rows left",
                           name, rank, split, left, rows);
        operation->splits[rank] = split;
        left -= split;
    }
    if (left > 0)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "alltoall '%.200s': the splits add up to %" PRId64 ", and there are %" PRId64
                       " rows",
                       name, rows - left, rows);
    return DTRAIN_OK;
}

/* Rows of this rank alone: they are in no signature. */
static dtrain_status_t fill_rows(dt_operation_t *operation, const dt_submission_t *submission,
                                 int size)
{
    int64_t rows = submission->tensor->shape[0];
    if (rows < 0 || __builtin_mul_overflow(operation->count, rows, &operation->count) ||
        __builtin_mul_overflow(operation->bytes, rows, &operation->bytes))
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "%s '%.200s': a first extent of %" PRId64
                       " is negative, or makes more than 2^63 bytes",
                       dt_kind_name(operation->signature.kind), submission->tensor->name, rows);
    return fill_splits(operation, submission, rows, size);
}

dtrain_status_t dt_operand_fill(dt_operation_t *operation, const dt_submission_t *submission,
                                int rank, int size)
{
    const dtrain_tensor_t *tensor = submission->tensor;
    const dt_signature_t *signature = &operation->signature;
    take_buffers(operation, tensor, rank);
    operation->count = dt_signature_count(signature);
    operation->bytes = operation->count * element_bytes(operation);
    if (operation->room < 0)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "%s '%.200s': out_bytes is %" PRId64,
                       dt_kind_name(signature->kind), tensor->name, operation->room);
    if (dt_kind_traits(signature->kind)->rows_differ) {
        dtrain_status_t status = fill_rows(operation, submission, size);
        if (status != DTRAIN_OK)
            return status;
    }
    extent_t extent = find_extent(operation, rank, size);
    if (dt_kind_traits(signature->kind)->deals_rows)
        operation->out_rows = signature->kind == DT_KIND_COLLECT
                                  ? signature->shape[0]
                                  : dt_rows_of(signature->shape[0], size, rank);
    return check_buffers(operation, tensor->name, &extent);
}
