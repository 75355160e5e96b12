/* gpu_kernels.cu - the trainers' kernels as a GPU runs them, and their launches. */
#include "gpu_kernels.h"

#include "gpu_kernels.cuh"

#define THREADS 256
#define WARP 32

static_assert(THREADS / WARP == WARPS_MAX, "a block's warps are those that sums have room for");

static __device__ __forceinline__ place_t here(void)
{
    const place_t place = {
        (int)blockIdx.x,         (int)gridDim.x,         (int)threadIdx.x,        (int)blockDim.x,
        (int)threadIdx.x / WARP, (int)blockDim.x / WARP, (int)threadIdx.x % WARP, WARP};
    return place;
}

static int blocks_for(int64_t count, int64_t of_a_block)
{
    const int64_t most = 4096, needed = (count + of_a_block - 1) / of_a_block;
    return (int)(needed < 1 ? 1 : needed < most ? needed : most);
}

/* ---- For each type, under names that both of this file's compilers know ---------------------- */

#define KERNELS(name, T)                                                                           \
    extern "C" __global__ void mlp_gather_##name(                                                  \
        T *inputs, uint8_t *row_labels, const uint8_t *pixels, const uint8_t *labels,              \
        const int64_t *numbers, int rows, int features, float scale, float shift)                  \
    {                                                                                              \
        gather(here(), inputs, row_labels, pixels, labels, numbers, rows, features, scale, shift); \
    }                                                                                              \
    extern "C" __global__ void mlp_convert_##name(T *to, const float *from, int64_t count)         \
    {                                                                                              \
        convert(here(), to, from, count);                                                          \
    }                                                                                              \
    extern "C" __global__ void mlp_loss_##name(T *outputs, const uint8_t *labels, int rows,        \
                                               int classes, float scale, float *losses,            \
                                               int *correct)                                       \
    {                                                                                              \
        loss(here(), outputs, labels, rows, classes, scale, losses, correct);                      \
    }                                                                                              \
    extern "C" __global__ void mlp_add_bias_##name(T *outputs, const T *bias, int rows,            \
                                                   int columns, int has_relu)                      \
    {                                                                                              \
        add_bias(here(), outputs, bias, rows, columns, has_relu);                                  \
    }                                                                                              \
    extern "C" __global__ void mlp_relu_gradient_##name(T *delta, const T *outputs, int64_t count) \
    {                                                                                              \
        relu_gradient(here(), delta, outputs, count);                                              \
    }                                                                                              \
    extern "C" __global__ void mlp_sum_rows_##name(const T *delta, T *gradient, int rows,          \
                                                   int columns)                                    \
    {                                                                                              \
        __shared__ float sums[WARPS_MAX][COLUMNS];                                                 \
        sum_rows(here(), delta, rows, columns, sums);                                              \
        __syncthreads();                                                                           \
        sum_warps(here(), gradient, columns, sums);                                                \
    }                                                                                              \
    extern "C" __global__ void mlp_sgd_##name(float *parameters, float *velocity,                  \
                                              const T *gradients, T *copy, int64_t count,          \
                                              float momentum, const float *rate)                   \
    {                                                                                              \
        sgd(here(), parameters, velocity, gradients, copy, count, momentum, rate);                 \
    }

KERNELS(f32, float)
KERNELS(bf16, __nv_bfloat16)

/* ---- Launches -------------------------------------------------------------------------------- */

void gpu_gather(gpu_type_t type, void *inputs, uint8_t *row_labels, const uint8_t *pixels,
                const uint8_t *labels, const int64_t *numbers, int rows, int features, float scale,
                float shift, cudaStream_t stream)
{
    const int blocks = blocks_for(rows, 1);
    if (type == GPU_BF16)
        mlp_gather_bf16<<<blocks, THREADS, 0, stream>>>((__nv_bfloat16 *)inputs, row_labels, pixels,
                                                        labels, numbers, rows, features, scale,
                                                        shift);
    else
        mlp_gather_f32<<<blocks, THREADS, 0, stream>>>((float *)inputs, row_labels, pixels, labels,
                                                       numbers, rows, features, scale, shift);
}

void gpu_convert(gpu_type_t type, void *to, const float *from, int64_t count, cudaStream_t stream)
{
    const int blocks = blocks_for(count, THREADS);
    if (type == GPU_BF16)
        mlp_convert_bf16<<<blocks, THREADS, 0, stream>>>((__nv_bfloat16 *)to, from, count);
    else
        mlp_convert_f32<<<blocks, THREADS, 0, stream>>>((float *)to, from, count);
}

void gpu_loss(gpu_type_t type, void *outputs, const uint8_t *labels, int rows, int classes,
              float scale, float *losses, int *correct, cudaStream_t stream)
{
    const int blocks = blocks_for(rows, WARPS_MAX);
    if (type == GPU_BF16)
        mlp_loss_bf16<<<blocks, THREADS, 0, stream>>>((__nv_bfloat16 *)outputs, labels, rows,
                                                      classes, scale, losses, correct);
    else
        mlp_loss_f32<<<blocks, THREADS, 0, stream>>>((float *)outputs, labels, rows, classes, scale,
                                                     losses, correct);
}

void gpu_add_bias(gpu_type_t type, void *outputs, const void *bias, int rows, int columns,
                  int has_relu, cudaStream_t stream)
{
    const int blocks = blocks_for(rows, 1);
    if (type == GPU_BF16)
        mlp_add_bias_bf16<<<blocks, THREADS, 0, stream>>>(
            (__nv_bfloat16 *)outputs, (const __nv_bfloat16 *)bias, rows, columns, has_relu);
    else
        mlp_add_bias_f32<<<blocks, THREADS, 0, stream>>>((float *)outputs, (const float *)bias,
                                                         rows, columns, has_relu);
}

void gpu_relu_gradient(gpu_type_t type, void *delta, const void *outputs, int64_t count,
                       cudaStream_t stream)
{
    const int blocks = blocks_for(count, THREADS);
    if (type == GPU_BF16)
        mlp_relu_gradient_bf16<<<blocks, THREADS, 0, stream>>>(
            (__nv_bfloat16 *)delta, (const __nv_bfloat16 *)outputs, count);
    else
        mlp_relu_gradient_f32<<<blocks, THREADS, 0, stream>>>((float *)delta,
                                                              (const float *)outputs, count);
}

void gpu_sum_rows(gpu_type_t type, const void *delta, void *gradient, int rows, int columns,
                  cudaStream_t stream)
{
    const int blocks = (columns + COLUMNS - 1) / COLUMNS; /* no block has others */
    if (type == GPU_BF16)
        mlp_sum_rows_bf16<<<blocks, THREADS, 0, stream>>>((const __nv_bfloat16 *)delta,
                                                          (__nv_bfloat16 *)gradient, rows, columns);
    else
        mlp_sum_rows_f32<<<blocks, THREADS, 0, stream>>>((const float *)delta, (float *)gradient,
                                                         rows, columns);
}

void gpu_sgd(gpu_type_t type, float *parameters, float *velocity, const void *gradients, void *copy,
             int64_t count, float momentum, const float *rate, cudaStream_t stream)
{
    const int blocks = blocks_for(count, THREADS);
    if (type == GPU_BF16)
        mlp_sgd_bf16<<<blocks, THREADS, 0, stream>>>(parameters, velocity,
                                                     (const __nv_bfloat16 *)gradients,
                                                     (__nv_bfloat16 *)copy, count, momentum, rate);
    else
        mlp_sgd_f32<<<blocks, THREADS, 0, stream>>>(parameters, velocity, (const float *)gradients,
                                                    (float *)copy, count, momentum, rate);
}
