#include "comm/nccl/nccl_memory.h"

#include "base/log.h"
#include "base/status.h"
#include "comm/nccl/nccl_register.h"

/* NCCL registers whole pages: what shares none with other memory can be registered by itself. */
#define PAGE_BYTES ((size_t)4096)

/* cudaFree waits for what the device does; ncclMemFree unmaps memory under a kernel that uses it.
 */
static void give_back(dt_nccl_device_t *device, const dt_nccl_range_t *block)
{
    if (block->flags & DT_NCCL_IS_NCCLS) {
        device->cuda->device_synchronize();
        device->nccl->mem_free(block->begin);
    } else {
        device->cuda->deallocate(block->begin);
    }
}

/* NCCL's own memory can be sent from without a copy on systems that have the means; elsewhere it is
 * what cudaMalloc gives. */
static dtrain_status_t get_memory(dt_nccl_device_t *device, size_t bytes, dt_nccl_range_t *block)
{
    void *memory = NULL;
    size_t asked = bytes > 0 ? bytes : 1;
    int is_too_long = asked > SIZE_MAX - PAGE_BYTES;
    *block = (dt_nccl_range_t){.bytes = (asked + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES};
    if (!is_too_long && device->card.nccl_version > 0 &&
        device->nccl->mem_alloc(&memory, block->bytes) == ncclSuccess)
        block->flags = DT_NCCL_IS_NCCLS;
    else if (is_too_long || device->cuda->allocate(&memory, block->bytes) != cudaSuccess) {
        device->cuda->get_last_error();
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "GPU %d: no memory for %zu bytes", device->number,
                       bytes);
    }
    block->begin = memory;
    cudaError_t error = device->cuda->memset_async(memory, 0, block->bytes, device->clears);
    if (error == cudaSuccess)
        error = device->cuda->stream_synchronize(device->clears);
    if (error == cudaSuccess)
        return DTRAIN_OK;
    give_back(device, block);
    return dt_nccl_cuda_error(device, error, "cudaMemsetAsync");
}

static dtrain_status_t allocate(dt_nccl_device_t *device, size_t bytes, void **memory)
{
    dt_nccl_range_t block;
    dtrain_status_t status = get_memory(device, bytes, &block);
    if (status != DTRAIN_OK)
        return status;
    pthread_mutex_lock(&device->lock);
    int failed = dt_nccl_ranges_add(&device->blocks, block);
    pthread_mutex_unlock(&device->lock);
    if (failed) {
        give_back(device, &block);
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory");
    }
    *memory = block.begin;
    return DTRAIN_OK;
}

dtrain_status_t dt_nccl_allocate(dt_device_t *base, size_t bytes, void **memory)
{
    dt_nccl_device_t *device = (dt_nccl_device_t *)base;
    dt_nccl_visit_t visit;
    dtrain_status_t status = dt_nccl_enter(device, &visit);
    if (status == DTRAIN_OK) {
        status = allocate(device, bytes, memory);
        dt_nccl_leave(device, &visit);
    }
    return status;
}

/* Takes a block out of the table: 0, or -1 when none begins there. */
static int take(dt_nccl_device_t *device, const void *memory, dt_nccl_range_t *block)
{
    pthread_mutex_lock(&device->lock);
    dt_nccl_range_t *found = dt_nccl_ranges_find(&device->blocks, memory);
    int failed = !found || found->begin != memory;
    if (!failed) {
        *block = *found;
        dt_nccl_ranges_remove(&device->blocks, found);
    }
    pthread_mutex_unlock(&device->lock);
    return failed ? -1 : 0;
}

int dt_nccl_deallocate(dt_device_t *base, void *memory)
{
    dt_nccl_device_t *device = (dt_nccl_device_t *)base;
    dt_nccl_range_t block;
    dt_nccl_visit_t visit;
    if (take(device, memory, &block))
        return -1;
    if (dt_nccl_enter(device, &visit) != DTRAIN_OK)
        return 0;
    if ((block.flags & DT_NCCL_IS_KNOWN) && dt_nccl_register_forget(device, memory) != 0)
        dt_log(DTRAIN_LOG_WARN, "nccl", "GPU %d: NCCL is stuck: %zu bytes are kept for it",
               device->number, block.bytes);
    else
        give_back(device, &block);
    dt_nccl_leave(device, &visit);
    return 0;
}

static int can_be_registered(const dt_nccl_range_t *block)
{
    return block && (block->flags & DT_NCCL_IS_NCCLS) && (uintptr_t)block->begin % PAGE_BYTES == 0;
}

dt_memory_t dt_nccl_kind_of(dt_device_t *base, const void *memory)
{
    dt_nccl_device_t *device = (dt_nccl_device_t *)base;
    dt_memory_t kind = DT_MEMORY_ANY;
    pthread_mutex_lock(&device->lock);
    const dt_nccl_range_t *block = dt_nccl_ranges_find(&device->blocks, memory);
    if (can_be_registered(block))
        kind = block->flags & DT_NCCL_IS_WINDOW ? DT_MEMORY_SYMMETRIC : DT_MEMORY_OWN;
    pthread_mutex_unlock(&device->lock);
    return kind;
}

int dt_nccl_claim(dt_nccl_device_t *device, const void *address, int window, dt_nccl_range_t *block)
{
    pthread_mutex_lock(&device->lock);
    dt_nccl_range_t *found = dt_nccl_ranges_find(&device->blocks, address);
    int failed = !can_be_registered(found);
    if (!failed) {
        found->flags |= DT_NCCL_IS_KNOWN | window;
        *block = *found;
    }
    pthread_mutex_unlock(&device->lock);
    return failed ? -1 : 0;
}

void dt_nccl_free_memory(dt_nccl_device_t *device)
{
    for (int i = 0; i < device->blocks.count; i++)
        give_back(device, &device->blocks.sorted[i]);
    dt_nccl_ranges_free(&device->blocks);
}
