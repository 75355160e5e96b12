#include "core/output.h"

#include "base/memory.h"
#include "core/gpu.h"

dt_output_t *dt_output_alloc(int64_t bytes)
{
    if ((uint64_t)bytes > SIZE_MAX - sizeof(dt_output_t))
        return NULL;
    dt_output_t *output =
        dt_alloc_aligned(DT_OUTPUT_ALIGNMENT, sizeof(dt_output_t) + (size_t)bytes);
    if (!output)
        return NULL;
    output->next = NULL;
    output->memory = output->data;
    output->gpu = NULL;
    return output;
}

dt_output_t *dt_output_alloc_on(dt_gpu_t *gpu, const void *hint, int64_t bytes)
{
    if (!gpu)
        return dt_output_alloc(bytes);
    dt_device_t *device;
    dt_output_t *output = dt_output_alloc(1);
    if (!output)
        return NULL;
    dtrain_status_t status = dt_gpu_open(gpu, hint, &device);
    if (status == DTRAIN_OK)
        status = device->ops->allocate(device, (size_t)bytes, &output->memory);
    if (status != DTRAIN_OK) {
        dt_free(output);
        return NULL;
    }
    output->gpu = gpu;
    return output;
}

void dt_output_free(dt_output_t *output)
{
    while (output) {
        dt_output_t *next = output->next;
        if (output->gpu)
            dt_gpu_retire(output->gpu, output);
        else
            dt_free(output);
        output = next;
    }
}
