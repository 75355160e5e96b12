/* handles.c - operations in flight: dtrain.h says what each function does. */
#include "api/world.h"
#include "base/status.h"

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

dtrain_status_t dtrain_wait_any(const dtrain_handle_t *handles, int n, int *index)
{
    dtrain_status_t status = DTRAIN_OK;
    dt_runtime_t *runtime = dt_api_enter(&status);
    if (!runtime)
        return status;
    status = dt_runtime_wait_any(runtime, handles, n, index);
    dt_api_leave();
    return status;
}

dtrain_status_t dtrain_output(dtrain_handle_t handle, const void **data, int64_t *shape, int *ndim)
{
    dtrain_status_t status = DTRAIN_OK;
    dt_runtime_t *runtime = dt_api_enter(&status);
    if (!runtime)
        return status;
    status = dt_runtime_output(runtime, handle, data, shape, ndim);
    dt_api_leave();
    return status;
}

dtrain_status_t dtrain_sparse_output(dtrain_handle_t handle, const int64_t **indices,
                                     const void **values, int64_t *nnz)
{
    dtrain_status_t status = DTRAIN_OK;
    dt_runtime_t *runtime = dt_api_enter(&status);
    if (!runtime)
        return status;
    status = dt_runtime_sparse_output(runtime, handle, indices, values, nnz);
    dt_api_leave();
    return status;
}

dtrain_status_t dtrain_recv_splits(dtrain_handle_t handle, int64_t *splits, int n)
{
    dtrain_status_t status = DTRAIN_OK;
    dt_runtime_t *runtime = dt_api_enter(&status);
    if (!runtime)
        return status;
    status = dt_runtime_recv_splits(runtime, handle, splits, n);
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
