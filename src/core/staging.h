/*
 * staging.h - a collective of device memory, carried out by the host's backend on copies in pinned
 * memory. What is long is cut into chunks: while one is reduced, the next is being copied in and
 * the one before out.
 */
#ifndef DT_CORE_STAGING_H
#define DT_CORE_STAGING_H

#include "comm/device.h"
#include "core/staged.h"

typedef struct dt_staging_buffer {
    struct dt_staging_buffer *next; /* spare */
    size_t bytes;
    char *memory;
} dt_staging_buffer_t;

/* Pinned memory that is not in use: to pin takes long. With the baton. */
typedef struct dt_staging_pool {
    dt_device_t *device;
    dt_staging_buffer_t *spare;
} dt_staging_pool_t;

void dt_staging_pool_free(dt_staging_pool_t *pool);

/* At least so many bytes; NULL when memory ran out. */
dt_staging_buffer_t *dt_staging_take(dt_staging_pool_t *pool, size_t bytes);
void dt_staging_give(dt_staging_pool_t *pool, dt_staging_buffer_t *buffer);

/* The collective is copied, what it points to is borrowed. Copying in begins. OUT_OF_MEMORY, or the
 * device's error. */
dtrain_status_t dt_staging_create(dt_staging_pool_t *pool, dt_device_t *device,
                                  const dt_collective_t *collective, int rank, int size,
                                  dt_staged_t **staged);

#endif
