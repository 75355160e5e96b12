/* user_memory.h - memory handed out by dtrain_mem_alloc: the backend's where it has its own kind,
 * else ordinary memory. */
#ifndef DT_CORE_USER_MEMORY_H
#define DT_CORE_USER_MEMORY_H

#include <pthread.h>

#include "comm/backend.h"
#include "core/gpu.h"

typedef struct dt_user_block dt_user_block_t;

typedef struct dt_user_memory {
    dt_backend_t *backend; /* [const] */
    dt_gpu_t *gpu;         /* [const] */
    pthread_mutex_t lock;
    dt_user_block_t *blocks; /* [lock] ordinary memory that is out */
} dt_user_memory_t;

/* `gpu` for memory of a device. */
void dt_user_memory_init(dt_user_memory_t *memory, dt_backend_t *backend, dt_gpu_t *gpu);

/* See dtrain_mem_alloc and dtrain_mem_free. Any thread. */
dtrain_status_t dt_user_memory_alloc(dt_user_memory_t *memory, size_t bytes, int device,
                                     void **block);
dtrain_status_t dt_user_memory_free(dt_user_memory_t *memory, void *block);

/* Frees all that is out, but the backend's own, and the lock. */
void dt_user_memory_free_all(dt_user_memory_t *memory);

#endif
