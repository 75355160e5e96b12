/* kernels_neon.c - the kernels for aarch64's Advanced SIMD. */
#define DT_KERNELS dt_kernels_neon
#define DT_VECTOR_BYTES 16
#define DT_VECTOR_NATIVE 1
#include "reduce/kernels.inc.h"
