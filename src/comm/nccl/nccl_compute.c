#include "comm/nccl/nccl_compute.h"

#include "base/dtype.h"
#include "base/status.h"
#include "optim/norm.h"

#define THREADS 256
#define BLOCKS_A_PROCESSOR 4
#define ELEMENTS_A_THREAD 4 /* of an update: what a thread takes at once */

/* Ends a call: puts the thread's device back, and turns CUDA's error into ours. */
static dtrain_status_t leave(dt_nccl_device_t *device, const dt_nccl_visit_t *visit,
                             cudaError_t error, const char *call)
{
    dtrain_status_t status =
        error == cudaSuccess ? DTRAIN_OK : dt_nccl_cuda_error(device, error, call);
    dt_nccl_leave(device, visit);
    return status;
}

dtrain_status_t dt_nccl_clear(dt_device_t *base, void *stream, void *memory, size_t bytes)
{
    dt_nccl_device_t *device = (dt_nccl_device_t *)base;
    dt_nccl_visit_t visit;
    dtrain_status_t status = dt_nccl_enter(device, &visit);
    if (status != DTRAIN_OK)
        return status;
    cudaError_t error = device->cuda->memset_async(memory, 0, bytes, stream);
    return leave(device, &visit, error, "cudaMemsetAsync");
}

dtrain_status_t dt_nccl_copy_in(dt_device_t *base, void *stream, const dt_copy_t *copies, int n)
{
    dt_nccl_device_t *device = (dt_nccl_device_t *)base;
    dt_nccl_visit_t visit;
    cudaError_t error = cudaSuccess;
    dtrain_status_t status = dt_nccl_enter(device, &visit);
    if (status != DTRAIN_OK)
        return status;
    for (int i = 0; i < n && error == cudaSuccess; i++)
        error = device->cuda->memcpy_async(copies[i].to, copies[i].from, copies[i].bytes,
                                           cudaMemcpyDefault, stream);
    return leave(device, &visit, error, "cudaMemcpyAsync");
}

dtrain_status_t dt_nccl_transfer(dt_device_t *base, void *stream, void *to, const void *from,
                                 size_t bytes)
{
    dt_nccl_device_t *device = (dt_nccl_device_t *)base;
    dt_nccl_visit_t visit;
    cudaError_t error = cudaSuccess;
    dtrain_status_t status = dt_nccl_enter(device, &visit);
    if (status != DTRAIN_OK)
        return status;
    if (bytes > 0)
        error = device->cuda->memcpy_async(to, from, bytes, cudaMemcpyDefault, stream);
    if (error == cudaSuccess)
        error = device->cuda->stream_synchronize(stream);
    return leave(device, &visit, error, "copying between GPU and host");
}

dtrain_status_t dt_nccl_scale(dt_device_t *base, void *stream, dtrain_dtype_t dtype, void *values,
                              int64_t count, double factor)
{
    dt_nccl_device_t *device = (dt_nccl_device_t *)base;
    dt_nccl_visit_t visit;
    const dt_nccl_move_t move = {.buffer = values,
                                 .unpacks = 1,
                                 .dtype = dtype,
                                 .buffer_dtype = dtype,
                                 .divisor = 1,
                                 .scale = factor};
    const dt_piece_t piece = {.in = values, .out = values, .count = count};
    if (count == 0)
        return DTRAIN_OK;
    dtrain_status_t status = dt_nccl_enter(device, &visit);
    if (status != DTRAIN_OK)
        return status;
    status = dt_nccl_move(device, stream, &move, &piece, 1);
    dt_nccl_leave(device, &visit);
    return status;
}

/* Kernels of one type of gradients stand behind each other in the order F16, BF16, F32, F64. */
static int place_of(dtrain_dtype_t dtype)
{
    switch (dtype) {
    case DTRAIN_DTYPE_F16:
        return 0;
    case DTRAIN_DTYPE_BF16:
        return 1;
    case DTRAIN_DTYPE_F32:
        return 2;
    default:
        return 3;
    }
}

/* `items`: what a block of threads does at once; there are so many of them. */
static dtrain_status_t launch(dt_nccl_device_t *device, void *stream, int kernel, int64_t items,
                              void *args)
{
    dt_nccl_visit_t visit;
    int64_t most = (int64_t)BLOCKS_A_PROCESSOR * device->num_processors;
    dim3 grid = {.x = (unsigned)(items < most ? items : most), .y = 1, .z = 1};
    dim3 block = {.x = THREADS, .y = 1, .z = 1};
    void *pointers[] = {args};
    if (items == 0)
        return DTRAIN_OK;
    dtrain_status_t status = dt_nccl_enter(device, &visit);
    if (status != DTRAIN_OK)
        return status;
    cudaError_t error = device->cuda->launch_kernel((const void *)device->kernels[kernel], grid,
                                                    block, pointers, 0, stream);
    return leave(device, &visit, error, dt_kernel_name((dt_kernel_t)kernel));
}

dtrain_status_t dt_nccl_update(dt_device_t *base, void *stream, const dt_update_factors_t *factors,
                               const dt_update_range_t *range)
{
    dt_device_update_t args = {.count = (int64_t)range->count,
                               .gradients = range->gradients,
                               .parameters = range->parameters,
                               .first = range->first,
                               .second = range->second,
                               .copy = range->copy,
                               .is_adam = factors->is_adam,
                               .copy_dtype = (int32_t)range->copy_dtype,
                               .nesterov = factors->nesterov,
                               .scale = factors->scale,
                               .decay = factors->decay,
                               .shrink = factors->shrink,
                               .rate = factors->rate,
                               .momentum = factors->momentum,
                               .beta1 = factors->beta1,
                               .gain1 = factors->gain1,
                               .beta2 = factors->beta2,
                               .gain2 = factors->gain2,
                               .root_factor = factors->root_factor,
                               .epsilon = factors->epsilon};
    const int64_t unit = THREADS * ELEMENTS_A_THREAD;
    return launch((dt_nccl_device_t *)base, stream,
                  DT_KERNEL_UPDATE_F16 + place_of(range->gradient_dtype),
                  (args.count + unit - 1) / unit, &args);
}

dtrain_status_t dt_nccl_squares(dt_device_t *base, void *stream, dtrain_dtype_t dtype,
                                const void *values, int64_t count, double *sums)
{
    dt_squares_t args = {.values = values, .count = count, .sums = sums};
    return launch((dt_nccl_device_t *)base, stream, DT_KERNEL_SQUARES_F16 + place_of(dtype),
                  (count + DT_NORM_BLOCK - 1) / DT_NORM_BLOCK, &args);
}
