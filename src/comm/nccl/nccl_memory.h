/* nccl_memory.h - the device memory that the library hands out. Any thread. */
#ifndef DT_COMM_NCCL_MEMORY_H
#define DT_COMM_NCCL_MEMORY_H

#include "comm/nccl/nccl_device.h"

/* Of a block, in its range's flags. */
#define DT_NCCL_IS_NCCLS 1 /* from ncclMemAlloc */

/* As dt_device_ops_t's. */
dtrain_status_t dt_nccl_allocate(dt_device_t *base, size_t bytes, void **memory);
int dt_nccl_deallocate(dt_device_t *base, void *memory);
int dt_nccl_is_own(dt_device_t *base, const void *memory);

/* Gives back all that is out. */
void dt_nccl_free_memory(dt_nccl_device_t *device);

#endif
