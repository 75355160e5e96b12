/* kernels_scalar.c - the kernels for what every CPU of the architecture has. */
#define DT_KERNELS dt_kernels_scalar
#define DT_VECTOR_BYTES 16
#define DT_VECTOR_NATIVE 0
#include "reduce/kernels.inc.h"
