/*
 * gpu_kernels.cuh - what the trainers' kernels do, each as a function of a thread's place in the
 * grid. gpu_kernels.cu lets a GPU run them. They also compile as host code, with one thread a
 * block and one lane a warp, which is how tests without a GPU run them.
 */
#ifndef MLP_GPU_KERNELS_CUH
#define MLP_GPU_KERNELS_CUH

#include <math.h>
#include <stdint.h>

#include <cuda_bf16.h>

#if defined(__CUDACC__)
#define ON_GPU static __device__ __forceinline__
#else
#define ON_GPU static inline
#endif

#define COLUMNS 32 /* of a matrix, that a block adds up */
#define WARPS_MAX 8

/* Where a thread stands: in its block, and in its warp. */
typedef struct place {
    int block, num_blocks;
    int thread, num_threads;
    int warp, num_warps; /* of the block */
    int lane, num_lanes; /* of the warp */
} place_t;

ON_GPU int64_t first_element(const place_t &place)
{
    return (int64_t)place.block * place.num_threads + place.thread;
}

ON_GPU int64_t elements_at_once(const place_t &place)
{
    return (int64_t)place.num_blocks * place.num_threads;
}

ON_GPU float load(const float *from, int64_t i)
{
    return from[i];
}

ON_GPU float load(const __nv_bfloat16 *from, int64_t i)
{
    return __bfloat162float(from[i]);
}

ON_GPU void store(float *to, int64_t i, float value)
{
    to[i] = value;
}

ON_GPU void store(__nv_bfloat16 *to, int64_t i, float value)
{
    to[i] = __float2bfloat16_rn(value);
}

/* A block a row, so that no element has to be divided into row and column. */
template <typename T>
ON_GPU void gather(const place_t &place, T *inputs, uint8_t *row_labels, const uint8_t *pixels,
                   const uint8_t *labels, const int64_t *numbers, int rows, int features,
                   float scale, float shift)
{
    for (int64_t row = place.block; row < rows; row += place.num_blocks) {
        const uint8_t *sample = pixels + numbers[row] * features;
        for (int i = place.thread; i < features; i += place.num_threads)
            store(inputs, row * features + i, (float)sample[i] * scale + shift);
        if (place.thread == 0)
            row_labels[row] = labels[numbers[row]];
    }
}

template <typename T>
ON_GPU void convert(const place_t &place, T *to, const float *from, int64_t count)
{
    for (int64_t i = first_element(place); i < count; i += elements_at_once(place))
        store(to, i, from[i]);
}

/* ---- Loss: a warp a row ---------------------------------------------------------------------- */

ON_GPU float warp_sum(float value)
{
#if defined(__CUDA_ARCH__)
    for (int offset = 16; offset > 0; offset /= 2)
        value += __shfl_xor_sync(0xffffffff, value, offset);
#endif
    return value;
}

ON_GPU float warp_max(float value)
{
#if defined(__CUDA_ARCH__)
    for (int offset = 16; offset > 0; offset /= 2)
        value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, offset));
#endif
    return value;
}

ON_GPU void warp_meets(void)
{
#if defined(__CUDA_ARCH__)
    __syncwarp();
#endif
}

template <typename T>
ON_GPU void row_loss(const place_t &place, T *output, int label, int classes, float scale,
                     float *loss, int *correct)
{
    float highest = -INFINITY, highest_other = -INFINITY, sum = 0;
    for (int i = place.lane; i < classes; i += place.num_lanes) {
        highest = fmaxf(highest, load(output, i));
        if (i != label)
            highest_other = fmaxf(highest_other, load(output, i));
    }
    highest = warp_max(highest);
    highest_other = warp_max(highest_other);
    for (int i = place.lane; i < classes; i += place.num_lanes)
        sum += expf(load(output, i) - highest);
    sum = warp_sum(sum);
    const float of_label = load(output, label);
    if (place.lane == 0) {
        *loss += logf(sum) + highest - of_label;
        *correct += of_label > highest_other;
    }
    warp_meets(); /* the label's output is replaced below */
    for (int i = place.lane; i < classes && scale != 0; i += place.num_lanes) {
        const float probability = expf(load(output, i) - highest) / sum;
        store(output, i, (probability - (i == label)) * scale);
    }
}

template <typename T>
ON_GPU void loss(const place_t &place, T *outputs, const uint8_t *labels, int rows, int classes,
                 float scale, float *losses, int *correct)
{
    for (int64_t row = (int64_t)place.block * place.num_warps + place.warp; row < rows;
         row += (int64_t)place.num_blocks * place.num_warps)
        row_loss(place, outputs + row * classes, labels[row], classes, scale, losses + row,
                 correct + row);
}

/* ---- What a product's epilogue does, where cuBLASLt has no product with it ------------------- */

template <typename T>
ON_GPU void add_bias(const place_t &place, T *outputs, const T *bias, int rows, int columns,
                     int has_relu)
{
    for (int64_t row = place.block; row < rows; row += place.num_blocks) {
        for (int i = place.thread; i < columns; i += place.num_threads) {
            const float value = load(outputs, row * columns + i) + load(bias, i);
            store(outputs, row * columns + i, has_relu && !(value > 0) ? 0 : value);
        }
    }
}

template <typename T>
ON_GPU void relu_gradient(const place_t &place, T *delta, const T *outputs, int64_t count)
{
    for (int64_t i = first_element(place); i < count; i += elements_at_once(place)) {
        if (!(load(outputs, i) > 0))
            store(delta, i, 0);
    }
}

/* Each warp of a block adds up some of the rows of COLUMNS columns ... */
template <typename T>
ON_GPU void sum_rows(const place_t &place, const T *delta, int rows, int columns,
                     float (*sums)[COLUMNS])
{
    const int begin = place.block * COLUMNS;
    for (int i = place.lane; i < COLUMNS && begin + i < columns; i += place.num_lanes) {
        float sum = 0;
        for (int64_t row = place.warp; row < rows; row += place.num_warps)
            sum += load(delta, row * columns + begin + i);
        sums[place.warp][i] = sum;
    }
}

/* ... and when all have, these sums are added. */
template <typename T>
ON_GPU void sum_warps(const place_t &place, T *gradient, int columns, float (*sums)[COLUMNS])
{
    const int begin = place.block * COLUMNS;
    for (int i = place.thread; i < COLUMNS && begin + i < columns; i += place.num_threads) {
        float sum = 0;
        for (int warp = 0; warp < place.num_warps; warp++)
            sum += sums[warp][i];
        store(gradient, begin + i, sum);
    }
}

/* ---- Descent ----------------------------------------------------------------------------------
 */

template <typename T>
ON_GPU void sgd(const place_t &place, float *parameters, float *velocity, const T *gradients,
                T *copy, int64_t count, float momentum, const float *rate)
{
    for (int64_t i = first_element(place); i < count; i += elements_at_once(place)) {
        const float v = momentum * velocity[i] + load(gradients, i);
        const float p = parameters[i] - *rate * v;
        velocity[i] = v;
        parameters[i] = p;
        if (copy)
            store(copy, i, p);
    }
}

#endif
