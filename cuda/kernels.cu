/* kernels.cu - the entry points that a GPU runs: where a thread stands, and the body. */
#include "kernels.h"
#include "move.cuh"
#include "optim.cuh"

static __device__ __forceinline__ place_t here(void)
{
    const place_t place = {blockIdx.x, gridDim.x, threadIdx.x, blockDim.x};
    return place;
}

#define DT_MOVE_KERNELS(name, body)                                        \
    extern "C" __global__ void __launch_bounds__(256)                      \
        dt_move_##name##_few(const __grid_constant__ dt_move_few_t args)   \
    {                                                                      \
        body(args, here());                                                \
    }                                                                      \
    extern "C" __global__ void __launch_bounds__(256)                      \
        dt_move_##name##_many(const __grid_constant__ dt_move_many_t args) \
    {                                                                      \
        body(args, here());                                                \
    }

DT_MOVE_KERNELS(copy, move_copy)
DT_MOVE_KERNELS(f16, move_scaled<__half>)
DT_MOVE_KERNELS(bf16, move_scaled<__nv_bfloat16>)
DT_MOVE_KERNELS(f32, move_scaled<float>)
DT_MOVE_KERNELS(f64, move_scaled<double>)
DT_MOVE_KERNELS(integers, move_integers)
DT_MOVE_KERNELS(rounded_f16, move_rounded<__half>)
DT_MOVE_KERNELS(rounded_bf16, move_rounded<__nv_bfloat16>)

template <typename T> static __device__ __forceinline__ void squares(const dt_squares_t &args)
{
    const int rows = 256 / squares_shape<T>::THREADS; /* of element blocks, at once */
    __shared__ double shared[rows * DT_SQUARES_SUMS];
    const place_t place = here();
    const int64_t blocks = (args.count + DT_SQUARES_BLOCK - 1) / DT_SQUARES_BLOCK;
    for (int64_t first = (int64_t)place.block * rows; first < blocks;
         first += (int64_t)place.num_blocks * rows) {
        const int64_t block = first + place.thread / squares_shape<T>::THREADS;
        if (block < blocks)
            square_lanes<T>(args, block, shared, place);
        __syncthreads();
        if (block < blocks)
            square_join<T>(args, block, shared, place);
        __syncthreads();
    }
}

#define DT_OPTIM_KERNELS(name, gradient, parameter)                       \
    extern "C" __global__ void __launch_bounds__(256)                     \
        dt_update_##name(const __grid_constant__ dt_device_update_t args) \
    {                                                                     \
        update_all<gradient, parameter>(args, here());                    \
    }                                                                     \
    extern "C" __global__ void __launch_bounds__(256)                     \
        dt_squares_##name(const __grid_constant__ dt_squares_t args)      \
    {                                                                     \
        squares<gradient>(args);                                          \
    }

DT_OPTIM_KERNELS(f16, __half, float)
DT_OPTIM_KERNELS(bf16, __nv_bfloat16, float)
DT_OPTIM_KERNELS(f32, float, float)
DT_OPTIM_KERNELS(f64, double, double)
