/* kernels_avx2.c - the kernels for AVX2 and F16C. */
#define DT_KERNELS dt_kernels_avx2
#define DT_VECTOR_BYTES 32
#define DT_VECTOR_NATIVE 1
#include "reduce/kernels.inc.h"
