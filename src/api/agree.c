/* agree.c - dtrain_agree_stop and dtrain_check_equal: dtrain.h says what each does. */
#include "core/agree.h"

#include "api/world.h"

dtrain_status_t dtrain_agree_stop(int local, int *any)
{
    dtrain_status_t status = DTRAIN_OK;
    dt_runtime_t *runtime = dt_api_enter(&status);
    if (!runtime)
        return status;
    status = dt_agree_stop(runtime, local, any);
    dt_api_leave();
    return status;
}

dtrain_status_t dtrain_check_equal(const dtrain_tensor_t *tensors, int n,
                                   const dtrain_options_t *options)
{
    dtrain_status_t status = DTRAIN_OK;
    dt_runtime_t *runtime = dt_api_enter(&status);
    if (!runtime)
        return status;
    status = dt_check_equal(runtime, tensors, n, options);
    dt_api_leave();
    return status;
}
