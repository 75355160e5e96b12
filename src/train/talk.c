#include "train/talk.h"

#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/status.h"

static dtrain_status_t do_vector(const dt_talk_t *talk, dt_kind_t kind, void *values, int64_t count,
                                 dtrain_dtype_t dtype, dtrain_op_t op, int root)
{
    char name[256];
    snprintf(name, sizeof name, "dtrain.%s", talk->name);
    dtrain_tensor_t tensor = {.struct_size = sizeof tensor,
                              .ndim = 1,
                              .name = name,
                              .in = values,
                              .out = values,
                              .shape = &count,
                              .dtype = dtype,
                              .device = talk->device};
    dtrain_options_t options = {.struct_size = sizeof options, .op = op, .pset = talk->pset};
    dt_submission_t submission = {.kind = kind,
                                  .tensor = &tensor,
                                  .options = &options,
                                  .root = root,
                                  .is_own = 1,
                                  .memory = talk->memory};
    return dt_runtime_do(talk->runtime, &submission, talk->name);
}

dtrain_status_t dt_talk_begin(dt_talk_t *talk, dt_runtime_t *runtime, dtrain_pset_t pset,
                              const char *name)
{
    int rank, size;
    *talk = (dt_talk_t){.runtime = runtime, .pset = pset, .name = name};
    dtrain_status_t status = dt_pset_describe(&runtime->psets, pset, &rank, &size, &talk->root, 1);
    if (status == DTRAIN_OK && rank < 0)
        status = dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "%s: rank %d is not in process set %d", name,
                         runtime->world.topology.rank, pset);
    if (status != DTRAIN_OK) {
        /* Refused as well, and those who are in the set, or made this slip not, learn of it. */
        char text[DT_ERROR_MAX];
        int32_t nothing = 0;
        snprintf(text, sizeof text, "%s", dt_last_error());
        do_vector(talk, DT_KIND_ALLREDUCE, &nothing, 1, DTRAIN_DTYPE_I32, DTRAIN_OP_MIN, 0);
        return dt_fail(status, "%s", text);
    }
    talk->rank = rank;
    talk->size = size;
    return DTRAIN_OK;
}

dtrain_status_t dt_talk_reduce(const dt_talk_t *talk, void *values, int64_t count,
                               dtrain_dtype_t dtype, dtrain_op_t op)
{
    return do_vector(talk, DT_KIND_ALLREDUCE, values, count, dtype, op, 0);
}

dtrain_status_t dt_talk_broadcast(const dt_talk_t *talk, void *bytes, size_t length, int root)
{
    return do_vector(talk, DT_KIND_BROADCAST, bytes, (int64_t)length, DTRAIN_DTYPE_U8,
                     DTRAIN_OP_SUM, root);
}

dtrain_status_t dt_talk_gather(const dt_talk_t *talk, const void *rows, int64_t count,
                               int64_t row_count, dtrain_dtype_t dtype, void *all, int64_t total)
{
    char name[256];
    snprintf(name, sizeof name, "dtrain.%s.rows", talk->name);
    const int64_t shape[2] = {count, row_count};
    dtrain_tensor_t tensor = {.struct_size = sizeof tensor,
                              .ndim = 2,
                              .name = name,
                              .in = rows,
                              .out = all,
                              .out_bytes = total * row_count * (int64_t)dt_dtype_size(dtype),
                              .shape = shape,
                              .dtype = dtype};
    dtrain_options_t options = {.struct_size = sizeof options, .pset = talk->pset};
    dt_submission_t submission = {.kind = DT_KIND_GATHER,
                                  .tensor = &tensor,
                                  .options = &options,
                                  .root = talk->root,
                                  .is_own = 1};
    return dt_runtime_do(talk->runtime, &submission, talk->name);
}

/* An error on its way to the other ranks. */
typedef struct told {
    int32_t status;
    char text[DT_ERROR_MAX];
} told_t;

dtrain_status_t dt_talk_agree(const dt_talk_t *talk, dtrain_status_t status)
{
    told_t told = {.status = status};
    if (status != DTRAIN_OK)
        snprintf(told.text, sizeof told.text, "%s", dt_last_error());
    if (talk->size == 1)
        return status;
    int32_t culprit = status == DTRAIN_OK ? INT32_MAX : talk->runtime->world.topology.rank;
    dtrain_status_t result = dt_talk_reduce(talk, &culprit, 1, DTRAIN_DTYPE_I32, DTRAIN_OP_MIN);
    if (result != DTRAIN_OK)
        return result;
    if (culprit == INT32_MAX)
        return DTRAIN_OK;
    result = dt_talk_broadcast(talk, &told, sizeof told, culprit);
    if (result != DTRAIN_OK)
        return result;
    told.text[sizeof told.text - 1] = '\0';
    return dt_fail((dtrain_status_t)told.status, "rank %d: %.1000s", culprit, told.text);
}

dtrain_status_t dt_talk_compare(const dt_talk_t *talk, uint64_t number, int *differs)
{
    /* The smallest of all, and the largest as the complement of the smallest complement. */
    int64_t ends[2] = {(int64_t)number, (int64_t)~number};
    *differs = 0;
    if (talk->size == 1)
        return DTRAIN_OK;
    dtrain_status_t status = dt_talk_reduce(talk, ends, 2, DTRAIN_DTYPE_I64, DTRAIN_OP_MIN);
    *differs = status == DTRAIN_OK && ends[0] != ~ends[1];
    return status;
}
