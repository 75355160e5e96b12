#include "core/gpu.h"

#include <stdio.h>

#include "base/memory.h"
#include "base/status.h"

void dt_gpu_init(dt_gpu_t *gpu, const dt_config_t *config, const dt_topology_t *topology)
{
    gpu->config = config;
    gpu->topology = topology;
    pthread_mutex_init(&gpu->lock, NULL);
    atomic_init(&gpu->device, NULL);
    atomic_init(&gpu->retired, NULL);
}

void dt_gpu_retire(dt_gpu_t *gpu, dt_output_t *output)
{
    output->next = atomic_load(&gpu->retired);
    while (!atomic_compare_exchange_weak(&gpu->retired, &output->next, output))
        ;
}

/* Takes all that is retired; `device` NULL: its memory ends with the device. */
static void free_retired(dt_gpu_t *gpu, dt_device_t *device)
{
    dt_output_t *output = atomic_exchange(&gpu->retired, NULL);
    while (output) {
        dt_output_t *next = output->next;
        if (device)
            device->ops->deallocate(device, output->memory);
        dt_free(output);
        output = next;
    }
}

void dt_gpu_sweep(dt_gpu_t *gpu)
{
    if (atomic_load_explicit(&gpu->retired, memory_order_relaxed))
        free_retired(gpu, dt_gpu_peek(gpu));
}

void dt_gpu_close(dt_gpu_t *gpu)
{
    dt_device_t *device = atomic_load(&gpu->device);
    free_retired(gpu, NULL);
    if (device)
        device->ops->destroy(device);
    pthread_mutex_destroy(&gpu->lock);
}

dt_device_t *dt_gpu_peek(dt_gpu_t *gpu)
{
    return atomic_load(&gpu->device);
}

int dt_gpu_has(dt_gpu_t *gpu, const void *memory)
{
    dt_device_t *device = dt_gpu_peek(gpu);
    return device && memory && device->ops->is_devices(device, memory);
}

static dtrain_status_t open_locked(dt_gpu_t *gpu, const void *hint, dt_device_t **device)
{
    *device = atomic_load(&gpu->device);
    if (*device)
        return DTRAIN_OK;
    if (gpu->config->gpu == DTRAIN_GPU_OFF)
        return dt_fail(DTRAIN_ERR_UNSUPPORTED, "no GPU path: DTRAIN_GPU is off");
    dtrain_status_t status = dt_device_load(hint, gpu->topology->local_rank, device);
    if (status == DTRAIN_OK)
        atomic_store(&gpu->device, *device);
    return status;
}

dtrain_status_t dt_gpu_open(dt_gpu_t *gpu, const void *hint, dt_device_t **device)
{
    *device = atomic_load(&gpu->device);
    if (*device)
        return DTRAIN_OK;
    pthread_mutex_lock(&gpu->lock);
    dtrain_status_t status = open_locked(gpu, hint, device);
    pthread_mutex_unlock(&gpu->lock);
    return status;
}

/* Puts the operation before the thread's last error. */
static dtrain_status_t add_context(const dtrain_tensor_t *tensor, const dt_operation_t *operation,
                                   dtrain_status_t status)
{
    char why[DT_ERROR_MAX];
    snprintf(why, sizeof why, "%s", dt_last_error());
    return dt_fail(status, "%s '%.200s': %.700s", dt_kind_name(operation->signature.kind),
                   tensor->name, why);
}

/* Of both buffers, as far as there are two. What lies in a window is used as such only by whoever
 * knows that the other ranks' lies at the same place. */
static dt_memory_t memory_of(dt_device_t *device, const dt_operation_t *operation,
                             dt_memory_t claim)
{
    const void *first = operation->in ? operation->in : operation->out;
    /* An output of the library's is other memory each time: registering it would cost more than it
     * saves. */
    if (operation->owned ||
        (!operation->out && dt_kind_traits(operation->signature.kind)->rows_differ))
        return DT_MEMORY_ANY;
    dt_memory_t kind = first ? device->ops->kind_of(device, first) : DT_MEMORY_OWN;
    if (operation->out && operation->out != first &&
        device->ops->kind_of(device, operation->out) != kind)
        return DT_MEMORY_ANY;
    if (kind == DT_MEMORY_SYMMETRIC && claim != DT_MEMORY_SYMMETRIC)
        return DT_MEMORY_ANY;
    return kind == DT_MEMORY_OWN && claim == DT_MEMORY_NEW_WINDOW ? claim : kind;
}

dtrain_status_t dt_gpu_take(dt_gpu_t *gpu, const dtrain_tensor_t *tensor, dt_mark_t *ready,
                            dt_memory_t claim, dt_operation_t *operation)
{
    dt_device_t *device;
    const void *in = operation->in, *out = operation->out;
    dtrain_status_t status = dt_gpu_open(gpu, in ? in : out, &device);
    if (status == DTRAIN_OK && in && operation->count > 0)
        status = device->ops->check(device, in);
    if (status == DTRAIN_OK && out && out != in && operation->count > 0)
        status = device->ops->check(device, out);
    if (status == DTRAIN_OK)
        operation->signature.memory = memory_of(device, operation, claim);
    if (status == DTRAIN_OK && ready)
        operation->ready = dt_mark_hold(ready);
    else if (status == DTRAIN_OK)
        status = device->ops->record(device, tensor->stream, &operation->ready);
    return status == DTRAIN_OK ? status : add_context(tensor, operation, status);
}

/* Once the GPU has done what its stream holds. */
static dtrain_status_t fetch(dt_device_t *device, void *stream, const void *from, size_t bytes,
                             void *to)
{
    dt_mark_t *mark;
    dtrain_status_t status = device->ops->check(device, from);
    if (status == DTRAIN_OK)
        status = device->ops->record(device, stream, &mark); /* not while it is being captured */
    if (status != DTRAIN_OK)
        return status;
    dt_mark_drop(mark);
    return device->ops->transfer(device, stream, to, from, bytes);
}

dtrain_status_t dt_gpu_fetch(dt_gpu_t *gpu, void *stream, const void *from, size_t bytes,
                             void **copy)
{
    dt_device_t *device;
    *copy = NULL;
    dtrain_status_t status = dt_gpu_open(gpu, from, &device);
    if (status != DTRAIN_OK)
        return status;
    void *memory = dt_alloc(bytes + 1);
    if (!memory)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory for %zu bytes of a GPU's", bytes);
    if (bytes > 0)
        status = fetch(device, stream, from, bytes, memory);
    if (status == DTRAIN_OK)
        *copy = memory;
    else
        dt_free(memory);
    return status;
}

dtrain_status_t dt_gpu_stream_wait(dt_gpu_t *gpu, dt_operation_t *operation, void *stream)
{
    dt_device_t *device = dt_gpu_peek(gpu);
    dt_mark_t *mark = atomic_load_explicit(&operation->enqueued, memory_order_acquire);
    return mark ? device->ops->wait(device, stream, mark) : DTRAIN_IN_PROGRESS;
}
