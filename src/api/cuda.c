/* cuda.c - dtrain_cuda.h says what each does. */
#include <dtrain/dtrain_cuda.h>

#include "api/gradsets.h"
#include "api/world.h"
#include "base/status.h"
#include "train/broadcast.h"
#include "train/optimizer.h"

dtrain_status_t dtrain_stream_wait(dtrain_handle_t handle, void *stream)
{
    dtrain_status_t status = DTRAIN_OK;
    dt_runtime_t *runtime = dt_api_enter(&status);
    if (!runtime)
        return status;
    status = dt_runtime_stream_wait(runtime, handle, stream);
    dt_api_leave();
    return status;
}

dtrain_status_t dtrain_cuda_device(int *device)
{
    dtrain_status_t status = DTRAIN_OK;
    dt_device_t *opened;
    dt_device_card_t card;
    if (!device)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "dtrain_cuda_device: device is NULL");
    dt_runtime_t *runtime = dt_api_enter(&status);
    if (!runtime)
        return status;
    status = dt_gpu_open(&runtime->gpu, NULL, &opened);
    if (status == DTRAIN_OK) {
        opened->ops->describe(opened, &card);
        *device = card.device;
    }
    dt_api_leave();
    return status;
}

dtrain_status_t dtrain_cuda_broadcast_params(const dtrain_param_t *params, int n, int root,
                                             void *stream)
{
    const dt_params_place_t place = {.device = DTRAIN_DEVICE_CUDA, .stream = stream};
    dtrain_status_t status = DTRAIN_OK;
    dt_runtime_t *runtime = dt_api_enter(&status);
    if (!runtime)
        return status;
    status = dt_broadcast_params(runtime, params, n, root, place);
    dt_api_leave();
    return status;
}

dtrain_status_t dtrain_gradset_stream_wait(dtrain_gradset_t *set, void *stream)
{
    dtrain_status_t status = dt_api_enter_set(set, "gradient set");
    if (status != DTRAIN_OK)
        return status;
    status = dt_gradset_stream_wait(set, stream);
    dt_api_leave();
    return status;
}

dtrain_status_t dtrain_optimizer_stream_step(dtrain_optimizer_t *optimizer, double learning_rate,
                                             void *stream, dtrain_step_info_t *info)
{
    dtrain_status_t status = dt_api_enter_set(optimizer ? optimizer->set : NULL, "optimizer");
    if (status != DTRAIN_OK)
        return status;
    status = dt_optimizer_stream_step(optimizer, learning_rate, stream, info);
    dt_api_leave();
    return status;
}
