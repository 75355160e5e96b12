#include "blas.h"

#include <cblas.h>
#include <string.h>

static const char *best_kernels(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw"))
        return "SkylakeX";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return "Haswell";
#endif
    return NULL;
}

const char *blas_begin(void)
{
    openblas_set_num_threads(1);
    /* Prescott is what OpenBLAS says of an x86-64 processor that it does not know. */
    return strcmp(openblas_get_corename(), "Prescott") == 0 ? best_kernels() : NULL;
}
