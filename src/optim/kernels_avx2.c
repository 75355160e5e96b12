/* kernels_avx2.c - the optimizers' kernels for AVX2 and F16C. */
#define DT_KERNELS dt_optim_avx2
#define DT_VECTOR_BYTES 32
#define DT_VECTOR_NATIVE 1
#include "optim/kernels.inc.h"
