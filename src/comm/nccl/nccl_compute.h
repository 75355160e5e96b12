/* nccl_compute.h - what is computed in a stream of the caller's: see device.h. */
#ifndef DT_COMM_NCCL_COMPUTE_H
#define DT_COMM_NCCL_COMPUTE_H

#include "comm/nccl/nccl_device.h"

dtrain_status_t dt_nccl_clear(dt_device_t *base, void *stream, void *memory, size_t bytes);
dtrain_status_t dt_nccl_copy_in(dt_device_t *base, void *stream, const dt_copy_t *copies, int n);
dtrain_status_t dt_nccl_scale(dt_device_t *base, void *stream, dtrain_dtype_t dtype, void *values,
                              int64_t count, double factor);
dtrain_status_t dt_nccl_update(dt_device_t *base, void *stream, const dt_update_factors_t *factors,
                               const dt_update_range_t *range);
dtrain_status_t dt_nccl_squares(dt_device_t *base, void *stream, dtrain_dtype_t dtype,
                                const void *values, int64_t count, double *sums);
dtrain_status_t dt_nccl_transfer(dt_device_t *base, void *stream, void *to, const void *from,
                                 size_t bytes);

#endif
