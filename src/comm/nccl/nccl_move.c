/* nccl_move.c - launches the kernels that move tensors. */
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/nccl/nccl_device.h"
#include "cuda/move_plan.h"

#define THREADS 256
#define BLOCKS_A_PROCESSOR 4

static dt_kernel_t choose_kernel(const dt_nccl_move_t *move)
{
    int is_plain = move->divisor == 1 && move->scale == 1;
    if (move->dtype == DTRAIN_DTYPE_F32 && move->buffer_dtype == DTRAIN_DTYPE_F16)
        return DT_KERNEL_MOVE_ROUNDED_F16_FEW;
    if (move->dtype == DTRAIN_DTYPE_F32 && move->buffer_dtype == DTRAIN_DTYPE_BF16)
        return DT_KERNEL_MOVE_ROUNDED_BF16_FEW;
    if (move->dtype != move->buffer_dtype || (!dt_dtype_is_float(move->dtype) && !is_plain))
        return DT_KERNEL_MOVE_INTEGERS_FEW;
    if (is_plain)
        return DT_KERNEL_MOVE_COPY_FEW;
    switch (move->dtype) {
    case DTRAIN_DTYPE_F16:
        return DT_KERNEL_MOVE_F16_FEW;
    case DTRAIN_DTYPE_BF16:
        return DT_KERNEL_MOVE_BF16_FEW;
    case DTRAIN_DTYPE_F32:
        return DT_KERNEL_MOVE_F32_FEW;
    default:
        return DT_KERNEL_MOVE_F64_FEW;
    }
}

static dtrain_status_t launch(dt_nccl_device_t *device, cudaStream_t stream, dt_kernel_t kernel,
                              dt_move_head_t *args)
{
    uint32_t most = (uint32_t)(BLOCKS_A_PROCESSOR * device->num_processors);
    dim3 grid = {.x = args->num_chunks < most ? args->num_chunks : most, .y = 1, .z = 1};
    dim3 block = {.x = THREADS, .y = 1, .z = 1};
    void *pointers[] = {args};
    const void *function = (const void *)device->kernels[kernel];
    cudaError_t error = device->cuda->launch_kernel(function, grid, block, pointers, 0, stream);
    return error == cudaSuccess ? DTRAIN_OK
                                : dt_nccl_cuda_error(device, error, dt_kernel_name(kernel));
}

/* Pieces as items of a move. */
static dt_move_item_t *make_items(const dt_piece_t *pieces, int n, int unpacks)
{
    dt_move_item_t *items = dt_alloc((size_t)n * sizeof *items);
    for (int i = 0; items && i < n; i++) {
        items[i].tensor = unpacks ? pieces[i].out : (void *)pieces[i].in;
        items[i].count = pieces[i].count;
    }
    return items;
}

/* The two kinds of arguments begin alike. */
static dtrain_status_t launch_all(dt_nccl_device_t *device, cudaStream_t stream,
                                  const dt_nccl_move_t *move, const dt_move_item_t *items, int n,
                                  dt_move_many_t *args)
{
    int room = n <= DT_MOVE_FEW ? DT_MOVE_FEW : DT_MOVE_MANY;
    dt_kernel_t kernel = choose_kernel(move);
    if (n > DT_MOVE_FEW)
        kernel += DT_KERNEL_MOVE_COPY_MANY - DT_KERNEL_MOVE_COPY_FEW;
    int element = (int)dt_dtype_size(move->buffer_dtype);
    int next = 0;
    uint32_t place = 0;
    dtrain_status_t status = DTRAIN_OK;
    args->head = (dt_move_head_t){.buffer = move->buffer,
                                  .unpacks = move->unpacks,
                                  .tensor_dtype = (int32_t)move->dtype,
                                  .buffer_dtype = (int32_t)move->buffer_dtype,
                                  .element_bytes = element,
                                  .divisor = move->divisor,
                                  .scale = move->scale};
    while (status == DTRAIN_OK &&
           dt_move_fill(&args->head, args->entries, room, element, items, n, &next, &place) > 0)
        status = launch(device, stream, kernel, &args->head);
    return status;
}

dtrain_status_t dt_nccl_move(dt_nccl_device_t *device, cudaStream_t stream,
                             const dt_nccl_move_t *move, const dt_piece_t *pieces, int n)
{
    dt_move_item_t *items = make_items(pieces, n, move->unpacks);
    dt_move_many_t *args =
        dt_alloc(n <= DT_MOVE_FEW ? sizeof(dt_move_few_t) : sizeof(dt_move_many_t));
    dtrain_status_t status =
        items && args ? launch_all(device, stream, move, items, n, args)
                      : dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for a kernel's arguments");
    dt_free(items);
    dt_free(args);
    return status;
}

int64_t dt_nccl_move_bytes(const dt_piece_t *pieces, int n, dtrain_dtype_t buffer_dtype)
{
    dt_move_item_t *items = make_items(pieces, n, 0);
    int64_t bytes = items ? dt_move_bytes(items, n, (int)dt_dtype_size(buffer_dtype)) : -1;
    dt_free(items);
    return bytes;
}
