/* broadcast.h - one rank's parameters for all, without an optimizer. */
#ifndef DT_TRAIN_BROADCAST_H
#define DT_TRAIN_BROADCAST_H

#include "core/runtime.h"

/* See dtrain_broadcast_params. */
dtrain_status_t dt_broadcast_params(dt_runtime_t *runtime, const dtrain_param_t *params, int n,
                                    int root);

#endif
