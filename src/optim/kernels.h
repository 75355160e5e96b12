/* kernels.h - between update.c, norm.c and the kernels: one table of functions for each
 * instruction set, all made from kernels.inc.h. */
#ifndef DT_OPTIM_KERNELS_H
#define DT_OPTIM_KERNELS_H

#include "base/dtype.h"
#include "base/isa.h"
#include "optim/update.h"

typedef void (*dt_update_fn_t)(const dt_update_factors_t *factors, const dt_update_range_t *range);

/* The sum of squares of `count` elements: see norm.h. */
typedef double (*dt_squares_fn_t)(const void *values, size_t count);

/* By the type of the gradients; F64 gradients mean F64 parameters, others F32. */
typedef struct dt_optim_kernels {
    dt_update_fn_t sgd[DT_DTYPE_COUNT];
    dt_update_fn_t adam[DT_DTYPE_COUNT];
    dt_squares_fn_t squares[DT_DTYPE_COUNT];
} dt_optim_kernels_t;

extern const dt_optim_kernels_t dt_optim_scalar;
extern const dt_optim_kernels_t dt_optim_avx2;   /* x86-64 only */
extern const dt_optim_kernels_t dt_optim_avx512; /* x86-64 only */
extern const dt_optim_kernels_t dt_optim_neon;   /* aarch64 only */

/* Those of the instruction set in use. */
const dt_optim_kernels_t *dt_optim_kernels(void);

#endif
