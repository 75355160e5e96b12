/* kernels_neon.c - the optimizers' kernels for aarch64's Advanced SIMD. */
#define DT_KERNELS dt_optim_neon
#define DT_VECTOR_BYTES 16
#define DT_VECTOR_NATIVE 1
#include "optim/kernels.inc.h"
