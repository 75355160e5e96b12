#include "gpu_kernels.h"

#include <math.h>

#include <cuda_bf16.h>

#define THREADS 256
#define WARP 32

static __device__ __forceinline__ float load(const float *from, int64_t i)
{
    return from[i];
}

static __device__ __forceinline__ float load(const __nv_bfloat16 *from, int64_t i)
{
    return __bfloat162float(from[i]);
}

static __device__ __forceinline__ void store(float *to, int64_t i, float value)
{
    to[i] = value;
}

static __device__ __forceinline__ void store(__nv_bfloat16 *to, int64_t i, float value)
{
    to[i] = __float2bfloat16_rn(value);
}

static int blocks_for(int64_t count)
{
    const int64_t most = 4096, needed = (count + THREADS - 1) / THREADS;
    return (int)(needed < 1 ? 1 : needed < most ? needed : most);
}

template <typename T>
static __global__ void gather(T *inputs, uint8_t *row_labels, const uint8_t *pixels,
                              const uint8_t *labels, const int64_t *numbers, int rows, int features,
                              float scale, float shift)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x, count = (int64_t)rows * features;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        const int64_t number = numbers[i / features];
        store(inputs, i, (float)pixels[number * features + i % features] * scale + shift);
        if (i % features == 0)
            row_labels[i / features] = labels[number];
    }
}

void gpu_gather(gpu_type_t type, void *inputs, uint8_t *row_labels, const uint8_t *pixels,
                const uint8_t *labels, const int64_t *numbers, int rows, int features, float scale,
                float shift, cudaStream_t stream)
{
    const int blocks = blocks_for((int64_t)rows * features);
    if (type == GPU_BF16)
        gather<<<blocks, THREADS, 0, stream>>>((__nv_bfloat16 *)inputs, row_labels, pixels, labels,
                                               numbers, rows, features, scale, shift);
    else
        gather<<<blocks, THREADS, 0, stream>>>((float *)inputs, row_labels, pixels, labels, numbers,
                                               rows, features, scale, shift);
}

template <typename T> static __global__ void convert(T *to, const float *from, int64_t count)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step)
        store(to, i, from[i]);
}

void gpu_convert(gpu_type_t type, void *to, const float *from, int64_t count, cudaStream_t stream)
{
    if (type == GPU_BF16)
        convert<<<blocks_for(count), THREADS, 0, stream>>>((__nv_bfloat16 *)to, from, count);
    else
        convert<<<blocks_for(count), THREADS, 0, stream>>>((float *)to, from, count);
}

/* ---- Loss: a warp a row ---------------------------------------------------------------------- */

static __device__ __forceinline__ float warp_sum(float value)
{
    for (int offset = WARP / 2; offset > 0; offset /= 2)
        value += __shfl_xor_sync(0xffffffff, value, offset);
    return value;
}

static __device__ __forceinline__ float warp_max(float value)
{
    for (int offset = WARP / 2; offset > 0; offset /= 2)
        value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, offset));
    return value;
}

template <typename T>
static __global__ void loss(T *outputs, const uint8_t *labels, int rows, int classes, float scale,
                            float *losses, int *correct)
{
    const int lane = threadIdx.x % WARP;
    const int row = (int)(blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP);
    if (row >= rows)
        return;
    T *output = outputs + (int64_t)row * classes;
    const int label = labels[row];
    float highest = -INFINITY, highest_other = -INFINITY, sum = 0;
    for (int i = lane; i < classes; i += WARP) {
        highest = fmaxf(highest, load(output, i));
        if (i != label)
            highest_other = fmaxf(highest_other, load(output, i));
    }
    highest = warp_max(highest);
    highest_other = warp_max(highest_other);
    for (int i = lane; i < classes; i += WARP)
        sum += expf(load(output, i) - highest);
    sum = warp_sum(sum);
    const float of_label = load(output, label);
    if (lane == 0) {
        losses[row] += logf(sum) + highest - of_label;
        correct[row] += of_label > highest_other;
    }
    __syncwarp(); /* the label's output is replaced below */
    for (int i = lane; i < classes && scale != 0; i += WARP) {
        const float probability = expf(load(output, i) - highest) / sum;
        store(output, i, (probability - (i == label)) * scale);
    }
}

void gpu_loss(gpu_type_t type, void *outputs, const uint8_t *labels, int rows, int classes,
              float scale, float *losses, int *correct, cudaStream_t stream)
{
    const int rows_a_block = THREADS / WARP, blocks = (rows + rows_a_block - 1) / rows_a_block;
    if (type == GPU_BF16)
        loss<<<blocks, THREADS, 0, stream>>>((__nv_bfloat16 *)outputs, labels, rows, classes, scale,
                                             losses, correct);
    else
        loss<<<blocks, THREADS, 0, stream>>>((float *)outputs, labels, rows, classes, scale, losses,
                                             correct);
}

/* ---- Descent ----------------------------------------------------------------------------------
 */

template <typename T>
static __global__ void sgd(float *parameters, float *velocity, const T *gradients, T *copy,
                           int64_t count, float momentum, const float *rate)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        const float v = momentum * velocity[i] + load(gradients, i);
        const float p = parameters[i] - *rate * v;
        velocity[i] = v;
        parameters[i] = p;
        if (copy)
            store(copy, i, p);
    }
}

void gpu_sgd(gpu_type_t type, float *parameters, float *velocity, const void *gradients, void *copy,
             int64_t count, float momentum, const float *rate, cudaStream_t stream)
{
    if (type == GPU_BF16)
        sgd<<<blocks_for(count), THREADS, 0, stream>>>(
            parameters, velocity, (const __nv_bfloat16 *)gradients, (__nv_bfloat16 *)copy, count,
            momentum, rate);
    else
        sgd<<<blocks_for(count), THREADS, 0, stream>>>(
            parameters, velocity, (const float *)gradients, (float *)copy, count, momentum, rate);
}
