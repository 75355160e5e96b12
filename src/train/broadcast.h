/* broadcast.h - one rank's parameters for all, without an optimizer. */
#ifndef DT_TRAIN_BROADCAST_H
#define DT_TRAIN_BROADCAST_H

#include "core/runtime.h"

/* Where the parameters lie: DTRAIN_DEVICE_CPU or _CUDA, and the stream that they come from. */
typedef struct dt_params_place {
    int32_t device;
    void *stream;
} dt_params_place_t;

/* See dtrain_broadcast_params and dtrain_cuda_broadcast_params. */
dtrain_status_t dt_broadcast_params(dt_runtime_t *runtime, const dtrain_param_t *params, int n,
                                    int root, dt_params_place_t place);

#endif
