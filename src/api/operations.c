/* operations.c - collectives and handles: dtrain.h says what each does. */
#include "api/world.h"
#include "base/status.h"

static dtrain_status_t submit(const dt_submission_t *submission, dtrain_handle_t *handle)
{
    dtrain_status_t status = DTRAIN_OK;
    dt_runtime_t *runtime = dt_api_enter(&status);
    if (!runtime)
        return status;
    status = dt_runtime_submit(runtime, submission, handle);
    dt_api_leave();
    return status;
}

dtrain_status_t dtrain_allreduce_async(const dtrain_tensor_t *tensor,
                                       const dtrain_options_t *options, dtrain_handle_t *handle)
{
    dt_submission_t submission = {.kind = DT_KIND_ALLREDUCE, .tensor = tensor, .options = options};
    return submit(&submission, handle);
}

dtrain_status_t dtrain_broadcast_async(const dtrain_tensor_t *tensor, int root,
                                       const dtrain_options_t *options, dtrain_handle_t *handle)
{
    dt_submission_t submission = {
        .kind = DT_KIND_BROADCAST, .tensor = tensor, .options = options, .root = root};
    return submit(&submission, handle);
}

dtrain_status_t dtrain_barrier_async(const dtrain_options_t *options, dtrain_handle_t *handle)
{
    dt_submission_t submission = {.kind = DT_KIND_BARRIER, .options = options};
    return submit(&submission, handle);
}

/* Submit, wait, release. */
static dtrain_status_t run(dt_submission_t *submission)
{
    dtrain_status_t status = DTRAIN_OK;
    dt_runtime_t *runtime = dt_api_enter(&status);
    if (!runtime)
        return status;
    dtrain_handle_t handle;
    submission->will_wait = 1;
    status = dt_runtime_submit(runtime, submission, &handle);
    if (status == DTRAIN_OK) {
        status = dt_runtime_wait(runtime, handle, -1);
        dt_runtime_release(runtime, handle);
    }
    dt_api_leave();
    return status;
}

dtrain_status_t dtrain_allreduce(const char *name, const void *in, void *out, int64_t count,
                                 dtrain_dtype_t dtype, dtrain_op_t op)
{
    dtrain_tensor_t tensor = {.struct_size = sizeof tensor,
                              .ndim = 1,
                              .name = name,
                              .in = in,
                              .out = out,
                              .shape = &count,
                              .dtype = dtype};
    dtrain_options_t options = {.struct_size = sizeof options, .op = op};
    dt_submission_t submission = {
        .kind = DT_KIND_ALLREDUCE, .tensor = &tensor, .options = &options};
    return run(&submission);
}

dtrain_status_t dtrain_broadcast(const char *name, void *buffer, int64_t count,
                                 dtrain_dtype_t dtype, int root)
{
    dtrain_tensor_t tensor = {.struct_size = sizeof tensor,
                              .ndim = 1,
                              .name = name,
                              .in = buffer,
                              .out = buffer,
                              .shape = &count,
                              .dtype = dtype};
    dt_submission_t submission = {.kind = DT_KIND_BROADCAST, .tensor = &tensor, .root = root};
    return run(&submission);
}

dtrain_status_t dtrain_barrier(void)
{
    dt_submission_t submission = {.kind = DT_KIND_BARRIER};
    return run(&submission);
}

dtrain_status_t dtrain_poll(dtrain_handle_t handle, int *done)
{
    dtrain_status_t status = DTRAIN_OK;
    dt_runtime_t *runtime = dt_api_enter(&status);
    if (!runtime)
        return status;
    status = done ? dt_runtime_poll(runtime, handle, done)
                  : dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "dtrain_poll: done is NULL");
    dt_api_leave();
    return status;
}

static dtrain_status_t wait_for(dtrain_handle_t handle, int timeout_ms)
{
    dtrain_status_t status = DTRAIN_OK;
    dt_runtime_t *runtime = dt_api_enter(&status);
    if (!runtime)
        return status;
    status = dt_runtime_wait(runtime, handle, timeout_ms);
    dt_api_leave();
    return status;
}

dtrain_status_t dtrain_wait(dtrain_handle_t handle)
{
    return wait_for(handle, -1);
}

dtrain_status_t dtrain_wait_for(dtrain_handle_t handle, int timeout_ms)
{
    if (timeout_ms < 0)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "dtrain_wait_for: timeout_ms is %d",
                       timeout_ms);
    return wait_for(handle, timeout_ms);
}

dtrain_status_t dtrain_wait_all(const dtrain_handle_t *handles, int n, dtrain_status_t *each)
{
    if (n < 0 || (n > 0 && !handles))
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "dtrain_wait_all: no handles");
    dtrain_status_t status = DTRAIN_OK;
    dt_runtime_t *runtime = dt_api_enter(&status);
    if (!runtime)
        return status;
    status = dt_runtime_wait_all(runtime, handles, n, each);
    dt_api_leave();
    return status;
}

dtrain_status_t dtrain_release(dtrain_handle_t handle)
{
    dtrain_status_t status = DTRAIN_OK;
    dt_runtime_t *runtime = dt_api_enter(&status);
    if (!runtime)
        return status;
    status = dt_runtime_release(runtime, handle);
    dt_api_leave();
    return status;
}

dtrain_status_t dtrain_handle_error(dtrain_handle_t handle, char *text, size_t cap)
{
    dtrain_status_t status = DTRAIN_OK;
    dt_runtime_t *runtime = dt_api_enter(&status);
    if (!runtime)
        return status;
    status = dt_runtime_handle_error(runtime, handle, text, cap);
    dt_api_leave();
    return status;
}
