/* rounded.h - float32 tensors of a GPU that travel rounded to 16 bits, through host memory, where
 * there is no NCCL. Those of the host are packed so by the executor; both have the same bits. */
#ifndef DT_CORE_ROUNDED_H
#define DT_CORE_ROUNDED_H

#include "core/operation.h"
#include "core/staged.h"

/* Of a bucket's operations, borrowed, whose `host_in` is read and `host_out` written. NULL when
 * memory ran out. */
dt_staged_t *dt_rounded_create(dt_operation_t *const *operations, int n, dtrain_dtype_t dtype);

#endif
