/* kernels_scalar.c - the optimizers' kernels for what every CPU of the architecture has. */
#define DT_KERNELS dt_optim_scalar
#define DT_VECTOR_BYTES 16
#define DT_VECTOR_NATIVE 0
#include "optim/kernels.inc.h"
