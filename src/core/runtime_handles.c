/* What callers ask of their handles: whether, when and how an operation ended, and its output. */
#include <string.h>

#include "base/status.h"
#include "core/completion.h"
#include "core/runtime.h"
#include "core/stranded.h"

/* Whether the caller may see an operation's results: to others it is done once its callback has
 * returned. */
static int is_done(const dt_runtime_t *runtime, dt_operation_t *operation)
{
    uint32_t done = atomic_load(&operation->done);
    return done == DT_DONE || (done == DT_DONE_IN_CALLBACK && dt_is_in_callback(runtime));
}

static dtrain_status_t stale(dtrain_handle_t handle)
{
    return dt_fail(DTRAIN_ERR_INVALID_HANDLE, "handle %#llx is no handle, or was released",
                   (unsigned long long)handle);
}

dtrain_status_t dt_runtime_may_block(const dt_runtime_t *runtime, const char *call)
{
    if (!dt_is_in_callback(runtime))
        return DTRAIN_OK;
    return dt_fail(DTRAIN_ERR_IN_CALLBACK, "%s would block, in an operation's callback", call);
}

dtrain_status_t dt_runtime_poll(dt_runtime_t *runtime, dtrain_handle_t handle, int *done)
{
    dt_operation_t *operation = dt_handle_find(runtime->handles, handle);
    if (!operation)
        return stale(handle);
    *done = is_done(runtime, operation) || dt_is_stranded(runtime);
    return DTRAIN_OK;
}

typedef struct waited {
    const dt_runtime_t *runtime;
    const dtrain_handle_t *handles;
    int count;
    int num_done; /* so many from the first on are */
} waited_t;

/* A handle that is none, or that another thread has released meanwhile, is not waited for. */
static int are_all_done(void *argument)
{
    waited_t *waited = argument;
    for (; waited->num_done < waited->count; waited->num_done++) {
        dtrain_handle_t handle = waited->handles[waited->num_done];
        dt_operation_t *operation = dt_handle_find(waited->runtime->handles, handle);
        if (operation && !is_done(waited->runtime, operation) &&
            atomic_load(&operation->handle) == handle)
            return 0;
    }
    return 1;
}

/* It is not done, and will not be. */
static int is_left(dt_runtime_t *runtime, dt_operation_t *operation)
{
    return dt_is_stranded(runtime) && !is_done(runtime, operation);
}

static dtrain_status_t result_of(dt_runtime_t *runtime, dtrain_handle_t handle)
{
    dt_operation_t *operation = dt_handle_find(runtime->handles, handle);
    dtrain_status_t status;
    char text[DT_ERROR_MAX];
    if (operation && is_left(runtime, operation))
        return dt_stranded_error(runtime);
    if (!operation ||
        dt_handle_result(runtime->handles, operation, handle, &status, text, sizeof text))
        return stale(handle);
    return status == DTRAIN_OK ? status : dt_fail(status, "%s", text);
}

dtrain_status_t dt_runtime_wait(dt_runtime_t *runtime, dtrain_handle_t handle, int timeout_ms)
{
    waited_t waited = {.runtime = runtime, .handles = &handle, .count = 1};
    int64_t deadline_ns = DT_NEVER;
    if (timeout_ms >= 0)
        deadline_ns = runtime->clock.now(runtime->clock.context) + timeout_ms * DT_NS_PER_MS;
    if (!are_all_done(&waited)) {
        dtrain_status_t status = dt_runtime_may_block(runtime, "waiting");
        if (status != DTRAIN_OK)
            return status;
    }
    if (!dt_baton_help(runtime, are_all_done, &waited, deadline_ns) && !dt_is_stranded(runtime))
        return DTRAIN_IN_PROGRESS;
    return result_of(runtime, handle);
}

dtrain_status_t dt_runtime_wait_all(dt_runtime_t *runtime, const dtrain_handle_t *handles, int n,
                                    dtrain_status_t *each)
{
    waited_t waited = {.runtime = runtime, .handles = handles, .count = n};
    dtrain_status_t first = DTRAIN_OK;
    char text[DT_ERROR_MAX];
    if (!are_all_done(&waited)) {
        dtrain_status_t status = dt_runtime_may_block(runtime, "dtrain_wait_all");
        if (status != DTRAIN_OK)
            return status;
    }
    dt_baton_help(runtime, are_all_done, &waited, DT_NEVER);
    for (int i = 0; i < n; i++) {
        dtrain_status_t status = result_of(runtime, handles[i]);
        if (status != DTRAIN_OK && first == DTRAIN_OK) {
            first = status;
            snprintf(text, sizeof text, "%s", dt_last_error());
        }
        if (each)
            each[i] = status;
    }
    return first == DTRAIN_OK ? first : dt_fail(first, "%s", text);
}

typedef struct streamed {
    dt_runtime_t *runtime;
    dtrain_handle_t handle;
    void *stream;
    dtrain_status_t status; /* of the last try */
} streamed_t;

static int is_stream_told(void *argument)
{
    streamed_t *streamed = argument;
    dt_operation_t *operation = dt_handle_find(streamed->runtime->handles, streamed->handle);
    streamed->status =
        operation ? dt_gpu_stream_wait(&streamed->runtime->gpu, operation, streamed->stream)
                  : stale(streamed->handle);
    /* An operation that never was in a stream has failed, or had nothing to do: its result is that
     * of any other wait, and there when that is. */
    if (streamed->status == DTRAIN_IN_PROGRESS && is_done(streamed->runtime, operation))
        streamed->status = DTRAIN_OK;
    return streamed->status != DTRAIN_IN_PROGRESS || dt_is_stranded(streamed->runtime);
}

dtrain_status_t dt_runtime_stream_wait(dt_runtime_t *runtime, dtrain_handle_t handle, void *stream)
{
    streamed_t streamed = {.runtime = runtime, .handle = handle, .stream = stream};
    dt_operation_t *operation = dt_handle_find(runtime->handles, handle);
    if (!operation)
        return stale(handle);
    if (!operation->ready)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "dtrain_stream_wait: the tensor is not on a GPU");
    if (!is_stream_told(&streamed)) {
        dtrain_status_t status = dt_runtime_may_block(runtime, "dtrain_stream_wait");
        if (status != DTRAIN_OK)
            return status;
        dt_baton_help(runtime, is_stream_told, &streamed, DT_NEVER);
    }
    if (dt_is_stranded(runtime))
        return dt_stranded_error(runtime);
    /* Of an operation that has failed by now: why. */
    if (streamed.status == DTRAIN_OK && is_done(runtime, operation))
        return result_of(runtime, handle);
    return streamed.status;
}

dtrain_status_t dt_runtime_release(dt_runtime_t *runtime, dtrain_handle_t handle)
{
    dt_operation_t *operation = dt_handle_find(runtime->handles, handle);
    if (operation && is_left(runtime, operation))
        return DTRAIN_OK; /* it stays, with the runtime's memory */
    if (operation && !is_done(runtime, operation))
        return DTRAIN_IN_PROGRESS;
    if (!operation || dt_handle_release(runtime->handles, operation, handle))
        return stale(handle);
    if (!dt_is_in_callback(runtime) && atomic_load(&runtime->phase) == DT_PHASE_RUNNING)
        dt_gpu_sweep(&runtime->gpu);
    return DTRAIN_OK;
}

dtrain_status_t dt_runtime_handle_error(dt_runtime_t *runtime, dtrain_handle_t handle, char *text,
                                        size_t cap)
{
    dt_operation_t *operation = dt_handle_find(runtime->handles, handle);
    if (!operation)
        return stale(handle);
    if (!text || cap == 0)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "dtrain_handle_error: no room for the text");
    dtrain_status_t status;
    text[0] = '\0';
    if (is_left(runtime, operation))
        snprintf(text, cap, "%s", runtime->stranded_text);
    if (is_done(runtime, operation) &&
        dt_handle_result(runtime->handles, operation, handle, &status, text, cap))
        return stale(handle);
    return DTRAIN_OK;
}

dtrain_status_t dt_runtime_do(dt_runtime_t *runtime, const dt_submission_t *submission,
                              const char *call)
{
    dtrain_handle_t handle;
    dt_submission_t waited = *submission;
    waited.will_wait = 1;
    dtrain_status_t status = dt_runtime_may_block(runtime, call);
    if (status == DTRAIN_OK)
        status = dt_runtime_submit(runtime, &waited, &handle);
    if (status != DTRAIN_OK)
        return status;
    status = dt_runtime_wait(runtime, handle, -1);
    dt_runtime_release(runtime, handle);
    return status;
}

typedef struct any {
    dt_runtime_t *runtime;
    const dtrain_handle_t *handles;
    int n, index; /* index: of the first that is done */
} any_t;

static int is_any_done(void *argument)
{
    any_t *any = argument;
    for (int i = 0; i < any->n; i++) {
        if (any->handles[i] == 0)
            continue;
        dt_operation_t *operation = dt_handle_find(any->runtime->handles, any->handles[i]);
        if (operation && !is_done(any->runtime, operation) && !dt_is_stranded(any->runtime))
            continue;
        any->index = i;
        return 1;
    }
    return 0;
}

dtrain_status_t dt_runtime_wait_any(dt_runtime_t *runtime, const dtrain_handle_t *handles, int n,
                                    int *index)
{
    int count = 0;
    for (int i = 0; handles && i < n; i++)
        count += handles[i] != 0;
    if (count == 0 || !index)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "dtrain_wait_any: no handle to wait for, or no index");
    any_t any = {.runtime = runtime, .handles = handles, .n = n};
    while (!is_any_done(&any)) {
        dtrain_status_t status = dt_runtime_may_block(runtime, "dtrain_wait_any");
        if (status != DTRAIN_OK)
            return status;
        dt_baton_help(runtime, is_any_done, &any, DT_NEVER);
    }
    *index = any.index;
    return dt_runtime_wait(runtime, handles[any.index], -1);
}

/* The operation of a handle; OK when it is over, and went well, or when all of it is in a stream:
 * then its output's place and size are known. */
static dtrain_status_t find_finished(dt_runtime_t *runtime, dtrain_handle_t handle,
                                     dt_operation_t **found)
{
    dt_operation_t *operation = dt_handle_find(runtime->handles, handle);
    if (!operation)
        return stale(handle);
    *found = operation;
    if (is_left(runtime, operation))
        return dt_stranded_error(runtime);
    if (!is_done(runtime, operation))
        return atomic_load_explicit(&operation->enqueued, memory_order_acquire)
                   ? DTRAIN_OK
                   : DTRAIN_IN_PROGRESS;
    dtrain_status_t status;
    char text[DT_ERROR_MAX];
    if (dt_handle_result(runtime->handles, operation, handle, &status, text, sizeof text))
        return stale(handle);
    return status == DTRAIN_OK ? status : dt_fail(status, "%s", text);
}

dtrain_status_t dt_runtime_output(dt_runtime_t *runtime, dtrain_handle_t handle, const void **data,
                                  int64_t *shape, int *ndim)
{
    dt_operation_t *operation;
    dtrain_status_t status = find_finished(runtime, handle, &operation);
    if (status != DTRAIN_OK)
        return status;
    dt_handle_output_t output;
    if (dt_handle_output(runtime->handles, operation, handle, &output))
        return stale(handle);
    if (output.signature.kind == DT_KIND_BARRIER)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "a barrier has no output");
    if (data)
        *data = output.data;
    if (ndim)
        *ndim = output.signature.ndim;
    for (int i = 0; shape && i < output.signature.ndim; i++)
        shape[i] = output.signature.shape[i];
    if (shape && dt_kind_traits(output.signature.kind)->deals_rows)
        shape[0] = output.rows;
    return DTRAIN_OK;
}

dtrain_status_t dt_runtime_sparse_output(dt_runtime_t *runtime, dtrain_handle_t handle,
                                         const int64_t **indices, const void **values, int64_t *nnz)
{
    dt_operation_t *operation = NULL;
    dtrain_status_t status = find_finished(runtime, handle, &operation);
    if (status != DTRAIN_OK)
        return status;
    dt_handle_output_t output;
    if (dt_handle_output(runtime->handles, operation, handle, &output))
        return stale(handle);
    if (output.signature.kind != DT_KIND_SPARSE)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "dtrain_sparse_output: %s has none",
                       dt_kind_name(output.signature.kind));
    if (!indices || !values || !nnz)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "dtrain_sparse_output: an output is NULL");
    *indices = output.indices;
    *values = output.data;
    *nnz = output.rows;
    return DTRAIN_OK;
}

dtrain_status_t dt_runtime_recv_splits(dt_runtime_t *runtime, dtrain_handle_t handle,
                                       int64_t *splits, int n)
{
    dt_operation_t *operation;
    dtrain_status_t status = find_finished(runtime, handle, &operation);
    if (status != DTRAIN_OK)
        return status;
    if (!dt_kind_traits(operation->signature.kind)->rows_differ)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "dtrain_recv_splits: %s has none",
                       dt_kind_name(operation->signature.kind));
    if (!splits || n != operation->num_splits)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "dtrain_recv_splits: room for %d splits, and there are %d", splits ? n : 0,
                       operation->num_splits);
    if (dt_handle_splits(runtime->handles, operation, handle, splits, n))
        return stale(handle);
    return DTRAIN_OK;
}

dtrain_status_t dt_runtime_result(dt_runtime_t *runtime, dtrain_handle_t handle, dt_kind_t kind,
                                  int *result)
{
    dt_operation_t *operation = dt_handle_find(runtime->handles, handle);
    if (!operation)
        return stale(handle);
    if (operation->signature.kind != kind)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "the handle is not that of a %s",
                       dt_kind_name((uint8_t)kind));
    if (!is_done(runtime, operation))
        return DTRAIN_IN_PROGRESS;
    int value = operation->result;
    dtrain_status_t status;
    char text[DT_ERROR_MAX];
    if (dt_handle_result(runtime->handles, operation, handle, &status, text, sizeof text))
        return stale(handle);
    if (status != DTRAIN_OK)
        return dt_fail(status, "%s", text);
    *result = value;
    return DTRAIN_OK;
}
