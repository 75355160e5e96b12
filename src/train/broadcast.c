#include "train/broadcast.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

#define PREFIX "dtrain.parameter/"

static dtrain_status_t submit(dt_runtime_t *runtime, const dtrain_param_t *param, int root,
                              dt_params_place_t place, dtrain_handle_t *handle)
{
    if (param->struct_size < sizeof *param)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "dtrain_param_t: struct_size is %u, not %zu: set it to sizeof",
                       param->struct_size, sizeof *param);
    /* One that is too long, or empty, is refused as a tensor's. */
    char name[sizeof PREFIX + DTRAIN_NAME_MAX];
    const char *own = param->name ? param->name : "";
    snprintf(name, sizeof name, "%s%s", own[0] ? PREFIX : "", own);
    dtrain_tensor_t tensor = {.struct_size = sizeof tensor,
                              .ndim = param->ndim,
                              .name = name,
                              .in = param->data,
                              .out = param->data,
                              .shape = param->shape,
                              .dtype = param->dtype,
                              .device = place.device,
                              .stream = place.stream};
    dt_submission_t submission = {
        .kind = DT_KIND_BROADCAST, .tensor = &tensor, .root = root, .is_own = 1};
    return dt_runtime_submit(runtime, &submission, handle);
}

dtrain_status_t dt_broadcast_params(dt_runtime_t *runtime, const dtrain_param_t *params, int n,
                                    int root, dt_params_place_t place)
{
    dtrain_status_t first = dt_runtime_may_block(runtime, "to broadcast parameters");
    if (first != DTRAIN_OK)
        return first;
    if (n < 0 || (n > 0 && !params))
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "%d parameters%s", n,
                       params ? "" : ", and the array is NULL");
    dtrain_handle_t *handles = dt_calloc((size_t)n + 1, sizeof *handles);
    if (!handles)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for %d handles", n);
    char text[DT_ERROR_MAX] = "";
    /* What is refused here is not waited for, and all else is, as the other ranks do. */
    for (int i = 0; i < 2 * n; i++) {
        dtrain_status_t status = DTRAIN_OK;
        if (i < n)
            status = submit(runtime, &params[i], root, place, &handles[i]);
        else if (handles[i - n] != 0)
            status = dt_runtime_wait(runtime, handles[i - n], -1);
        if (i >= n && handles[i - n] != 0)
            dt_runtime_release(runtime, handles[i - n]);
        if (status != DTRAIN_OK && first == DTRAIN_OK) {
            first = status;
            snprintf(text, sizeof text, "%s", dt_last_error());
        }
    }
    dt_free(handles);
    return first == DTRAIN_OK ? first : dt_fail(first, "%s", text);
}
