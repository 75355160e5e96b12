/* agree.h - small things that all ranks agree on, under names of the library's own. Blocking. */
#ifndef DT_CORE_AGREE_H
#define DT_CORE_AGREE_H

#include "core/runtime.h"

/* The public functions of the same names. */
dtrain_status_t dt_agree_stop(dt_runtime_t *runtime, int local, int *any);
dtrain_status_t dt_check_equal(dt_runtime_t *runtime, const dtrain_tensor_t *tensors, int n,
                               const dtrain_options_t *options);

#endif
