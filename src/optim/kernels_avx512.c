/* kernels_avx512.c - the optimizers' kernels for AVX-512 F, BW, VL and DQ. */
#define DT_KERNELS dt_optim_avx512
#define DT_VECTOR_BYTES 64
#define DT_VECTOR_NATIVE 1
#include "optim/kernels.inc.h"
