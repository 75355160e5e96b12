/* nccl_memory.h - the device memory that the library hands out. Any thread. */
#ifndef DT_COMM_NCCL_MEMORY_H
#define DT_COMM_NCCL_MEMORY_H

#include "comm/nccl/nccl_device.h"

/* Of a block, in its range's flags. */
#define DT_NCCL_IS_NCCLS 1  /* from ncclMemAlloc */
#define DT_NCCL_IS_KNOWN 2  /* a communicator has registered it, at some time */
#define DT_NCCL_IS_WINDOW 4 /* ditto, as a window */

/* As dt_device_ops_t's. */
dtrain_status_t dt_nccl_allocate(dt_device_t *base, size_t bytes, void **memory);
int dt_nccl_deallocate(dt_device_t *base, void *memory);
dt_memory_t dt_nccl_kind_of(dt_device_t *base, const void *memory);

/* The block that an address is in, which is about to be registered; `window`: DT_NCCL_IS_WINDOW, or
 * 0. -1: it is none that can be. */
int dt_nccl_claim(dt_nccl_device_t *device, const void *address, int window,
                  dt_nccl_range_t *block);

/* Gives back all that is out. */
void dt_nccl_free_memory(dt_nccl_device_t *device);

#endif
