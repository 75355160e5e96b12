/* dtype.h - sizes and names of element types, reductions and devices, and checks of them. */
#ifndef DT_BASE_DTYPE_H
#define DT_BASE_DTYPE_H

#include <stddef.h>

#include <dtrain/dtrain.h>

#define DT_DTYPE_COUNT 12 /* one above the highest dtrain_dtype_t */
#define DT_OP_COUNT 5     /* reductions that are taken elementwise: all but adasum */

size_t dt_dtype_size(dtrain_dtype_t dtype); /* 0 when unknown */
const char *dt_dtype_name(dtrain_dtype_t dtype);
const char *dt_op_name(dtrain_op_t op);
const char *dt_device_name(int32_t device); /* whose memory a tensor lies in */
int dt_dtype_is_float(dtrain_dtype_t dtype);

#endif
