#include "core/user_memory.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"

#define ALIGNMENT 4096

/* Stands in the page before the caller's memory. */
struct dt_user_block {
    dt_user_block_t *next;
};

void dt_user_memory_init(dt_user_memory_t *memory, dt_backend_t *backend, dt_gpu_t *gpu)
{
    memory->gpu = gpu;
    memory->backend = backend;
    memory->blocks = NULL;
    pthread_mutex_init(&memory->lock, NULL);
}

static void *user_part(dt_user_block_t *block)
{
    return (char *)block + ALIGNMENT;
}

static dtrain_status_t alloc_ordinary(dt_user_memory_t *memory, size_t bytes, void **out)
{
    dt_user_block_t *block = NULL;
    if (bytes <= SIZE_MAX - ALIGNMENT)
        block = dt_alloc_aligned(ALIGNMENT, bytes + ALIGNMENT);
    if (!block)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "dtrain_mem_alloc: no memory for %zu bytes",
                       bytes);
    memset(block, 0, bytes + ALIGNMENT);
    pthread_mutex_lock(&memory->lock);
    block->next = memory->blocks;
    memory->blocks = block;
    pthread_mutex_unlock(&memory->lock);
    *out = user_part(block);
    return DTRAIN_OK;
}

static dtrain_status_t alloc_on_device(dt_user_memory_t *memory, size_t bytes, void **out)
{
    dt_device_t *device;
    dtrain_status_t status = dt_gpu_open(memory->gpu, NULL, &device);
    return status == DTRAIN_OK ? device->ops->allocate(device, bytes, out) : status;
}

dtrain_status_t dt_user_memory_alloc(dt_user_memory_t *memory, size_t bytes, int device,
                                     void **block)
{
    if (!block)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "dtrain_mem_alloc: memory is NULL");
    if (device == DTRAIN_DEVICE_CUDA)
        return alloc_on_device(memory, bytes, block);
    if (device != DTRAIN_DEVICE_CPU)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "dtrain_mem_alloc: there is no device %d",
                       device);
    if (memory->backend->ops->allocate)
        return memory->backend->ops->allocate(memory->backend, bytes, block);
    return alloc_ordinary(memory, bytes, block);
}

static int free_ordinary(dt_user_memory_t *memory, void *block)
{
    pthread_mutex_lock(&memory->lock);
    dt_user_block_t **at = &memory->blocks;
    while (*at && user_part(*at) != block)
        at = &(*at)->next;
    dt_user_block_t *found = *at;
    if (found)
        *at = found->next;
    pthread_mutex_unlock(&memory->lock);
    dt_free(found);
    return found ? 0 : -1;
}

dtrain_status_t dt_user_memory_free(dt_user_memory_t *memory, void *block)
{
    if (!block)
        return DTRAIN_OK;
    dt_device_t *device = dt_gpu_peek(memory->gpu);
    if (device && device->ops->deallocate(device, block) == 0)
        return DTRAIN_OK;
    int failed = memory->backend->ops->deallocate
                     ? memory->backend->ops->deallocate(memory->backend, block)
                     : free_ordinary(memory, block);
    if (failed)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "dtrain_mem_free: %p did not come from dtrain_mem_alloc, or was freed",
                       block);
    return DTRAIN_OK;
}

void dt_user_memory_free_all(dt_user_memory_t *memory)
{
    while (memory->blocks) {
        dt_user_block_t *next = memory->blocks->next;
        dt_free(memory->blocks);
        memory->blocks = next;
    }
    pthread_mutex_destroy(&memory->lock);
}
