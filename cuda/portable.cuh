/* portable.cuh - what lets the kernels' bodies compile by nvcc for a GPU and by any C++ compiler
 * for the host. A body is an ordinary function of its place in the grid, so the host runs it in
 * loops. */
#ifndef DT_CUDA_PORTABLE_CUH
#define DT_CUDA_PORTABLE_CUH

#include <stdint.h>
#include <string.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#if defined(__CUDACC__)
#define DT_DEVICE static __device__ __forceinline__
#else
#define DT_DEVICE static inline
#endif

/* Where a thread stands. */
typedef struct place {
    uint32_t block, num_blocks;
    uint32_t thread, num_threads;
} place_t;

/* A word of memory that is loaded and stored at once. */
template <int BYTES> struct word;
template <> struct word<1> {
    typedef unsigned char type;
};
template <> struct word<2> {
    typedef unsigned short type;
};
template <> struct word<4> {
    typedef unsigned int type;
};
template <> struct word<8> {
    typedef uint2 type;
};
template <> struct word<16> {
    typedef uint4 type;
};

/* A load of what is read once, and should not push other data out of the cache. */
template <typename T> DT_DEVICE T load_once(const T *from)
{
#if defined(__CUDA_ARCH__)
    return __ldcs(from);
#else
    return *from;
#endif
}

/* Between a type in memory and the one that is computed in. */
template <typename T> struct arithmetic {
    typedef T type;
    DT_DEVICE type load(T value)
    {
        return value;
    }
    DT_DEVICE T store(type value)
    {
        return value;
    }
};

template <> struct arithmetic<__half> {
    typedef float type;
    DT_DEVICE float load(__half value)
    {
        return __half2float(value);
    }
    DT_DEVICE __half store(float value)
    {
        return __float2half_rn(value);
    }
};

template <> struct arithmetic<__nv_bfloat16> {
    typedef float type;
    DT_DEVICE float load(__nv_bfloat16 value)
    {
        return __bfloat162float(value);
    }
    DT_DEVICE __nv_bfloat16 store(float value)
    {
        return __float2bfloat16_rn(value);
    }
};

#endif
