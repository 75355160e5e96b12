/*
 * through_host.h - what only the host can do with tensors of a GPU (Adasum, sparse tensors,
 * codecs): they are copied to pinned memory, once what is before them on the GPU is done; there the
 * operation is carried out as for tensors of the host, in all its collectives and with the same
 * bits; and what comes of it is copied back, with a mark behind it.
 */
#ifndef DT_CORE_THROUGH_HOST_H
#define DT_CORE_THROUGH_HOST_H

#include "core/operation.h"
#include "core/staging.h"

/*
 * `operations` are a bucket's, and outlive what is made here. Their `host_in` and `host_out` are
 * set, on which `inner` works, which is taken over also on error; it has one collective at least.
 * Copying in begins. OUT_OF_MEMORY, or the device's error.
 */
dtrain_status_t dt_through_host_create(dt_staging_pool_t *pool, dt_device_t *device,
                                       dt_operation_t *const *operations, int n, dt_staged_t *inner,
                                       dt_staged_t **staged);

#endif
